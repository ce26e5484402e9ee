//! The list of holds as operators see it, the oldest first.
//!
//! Knows nothing of HTTP. What stays true: one answer looks at no more than [`LOOK_MAX`] holds, whatever the
//! query, so that no query delays the rulings; an answer that stops before the end states after which hold to go
//! on; the order of the list does not depend on the machine (`hold_order`).

use tollgate_api::holds::{HoldView, HoldsView, ResourceView};
use tollgate_engine::copies::{HoldState, HoldView as Held, StagedView};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Timestamp;

use super::hold_order::{HoldCursor, Kinds, OrderEntry, OrderSource, behind};
use super::partition::Partition;
use super::queries::Views;

/// Holds that one answer looks at, over all resources: that takes a fraction of a millisecond.
pub const LOOK_MAX: usize = 1_000;

/// The states of a hold: it counts; its agent is gone, so it does not count; it has no holder, and counts.
pub const STATES: [&str; 3] = [HELD, LOST, STAGED];
const HELD: &str = "held";
const LOST: &str = "lost";
const STAGED: &str = "staged";

/// A page of holds, whose cursor is written only when the answer is.
pub type HoldsPage = HoldsView<HoldView, HoldCursor>;

/// Which holds a query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldFilter {
    /// Of this resource.
    pub resource: Option<String>,
    /// Of this domain.
    pub domain: Option<String>,
    /// Of the agent of this name.
    pub agent: Option<String>,
    /// Taken under this group.
    pub group: Option<String>,
    /// In this state: one of [`STATES`].
    pub state: Option<&'static str>,
    /// After this position of the order.
    pub after: Option<HoldCursor>,
    /// At most this many.
    pub limit: usize,
}

impl Views<'_> {
    pub(super) fn holds_view(&self, filter: &HoldFilter) -> HoldsPage {
        let of_resource = filter.resource.as_deref();
        let sources: Vec<OrderSource<'_>> = self
            .partitions
            .iter()
            .flat_map(|partition| {
                let now = partition.ruler.now();
                let all = partition.ruler.copies();
                all.map(move |(resource, copies)| OrderSource {
                    resource,
                    partition: partition.index,
                    now,
                    copies,
                })
            })
            .filter(|source| of_resource.is_none_or(|of| of == source.resource))
            .collect();
        let mut view = HoldsPage {
            schema: "tollgate.holds/1".into(),
            holds: Vec::new(),
            more: false,
            next: None,
            resources: sources.iter().map(resource_view).collect(),
            partitions_missing: self.missing_for(filter),
        };
        view.resources.sort_by(|a, b| a.resource.cmp(&b.resource));
        let mut last = None;
        let all = behind(&sources, filter.after.as_ref(), filter.kinds());
        for (looked, (index, entry)) in all.enumerate() {
            let Some(source) = sources.get(index) else {
                continue;
            };
            let fits = filter.wants(&entry);
            if LOOK_MAX <= looked || fits && filter.limit <= view.holds.len() {
                view.more = true;
                // If no hold was looked at, the next page begins where this one was to begin.
                view.next = last
                    .map(|(resource, entry)| HoldCursor::of(resource, &entry))
                    .or_else(|| filter.after.clone());
                break;
            }
            if fits {
                view.holds.push(source.view_of(&entry));
            }
            last = Some((source.resource, entry));
        }
        view
    }

    /// Partitions that the query concerns and that are not ruled here.
    fn missing_for(&self, filter: &HoldFilter) -> Vec<u32> {
        let count = self.settings.partitions;
        let resource = filter.resource.as_deref();
        let one = resource.map(|resource| partition_of_resource(resource, count));
        let asked = |partition: &&Partition| one.is_none_or(|one| one == partition.index);
        let missing = self
            .partitions
            .iter()
            .filter(asked)
            // A partition that another aggregator rules is just as unknown here.
            .filter(|partition| !partition.is_ready());
        missing.map(|partition| partition.index).collect()
    }
}

impl HoldFilter {
    /// The kinds of entries to look at: staged copies belong to no agent.
    fn kinds(&self) -> Kinds {
        let only_staged = self.state == Some(STAGED);
        Kinds {
            held: !only_staged,
            staged: self.agent.is_none() && (self.state.is_none() || only_staged),
        }
    }

    fn wants(&self, entry: &OrderEntry<'_>) -> bool {
        let (domain, groups) = match entry {
            OrderEntry::Held(held) => (held.domain, &held.groups),
            OrderEntry::Staged(staged) => (staged.domain, &staged.groups),
        };
        let of_agent = match entry {
            OrderEntry::Held(held) => {
                self.agent.as_ref().is_none_or(|of| of == held.agent)
                    && self.state.is_none_or(|of| of == name_of(held.state))
            }
            OrderEntry::Staged(_) => true,
        };
        let group = self.group.as_deref();
        of_agent
            && self.domain.as_ref().is_none_or(|of| of == domain)
            && group.is_none_or(|of| groups.contains(&of))
    }
}

impl OrderSource<'_> {
    fn view_of(&self, entry: &OrderEntry<'_>) -> HoldView {
        match entry {
            OrderEntry::Held(held) => self.held(held),
            OrderEntry::Staged(staged) => self.staged(staged),
        }
    }

    fn held(&self, held: &Held<'_>) -> HoldView {
        HoldView {
            state: name_of(held.state).into(),
            agent: Some(held.agent.into()),
            epoch: Some(format!("{:032x}", held.epoch)),
            number: Some(held.id.number),
            seized: held.seized,
            ..self.view(
                held.domain,
                &held.groups,
                held.copies,
                held.start,
                held.strict,
            )
        }
    }

    fn staged(&self, staged: &StagedView<'_>) -> HoldView {
        HoldView {
            state: STAGED.into(),
            transfer: Some(staged.id.to_string()),
            end_us: Some(staged.end.as_micros()),
            ..self.view(
                staged.domain,
                &staged.groups,
                staged.copies,
                staged.start,
                staged.strict,
            )
        }
    }

    fn view(
        &self,
        domain: &str,
        groups: &[&str],
        copies: u32,
        start: Timestamp,
        strict: bool,
    ) -> HoldView {
        HoldView {
            resource: self.resource.into(),
            domain: domain.into(),
            groups: groups.iter().map(|group| (*group).into()).collect(),
            state: HELD.into(),
            agent: None,
            epoch: None,
            number: None,
            transfer: None,
            copies,
            start_us: start.as_micros(),
            age_us: self.now.since(start).as_micros(),
            end_us: None,
            strict,
            seized: false,
            partition: self.partition,
        }
    }
}

const fn name_of(state: HoldState) -> &'static str {
    match state {
        HoldState::Live => HELD,
        HoldState::Lost => LOST,
    }
}

fn resource_view(source: &OrderSource<'_>) -> ResourceView {
    let total = source.copies.total();
    ResourceView {
        resource: source.resource.into(),
        partition: source.partition,
        copies: total.copies,
        optimistic: source.copies.optimistic(),
        global: total.limit,
        holds: source.copies.kept(),
    }
}
