//! Who holds what: the list of holds as operators see it, the oldest first.
//!
//! Knows nothing of HTTP. What stays true: an answer looks at no more holds than it says, whatever is
//! asked, so that nobody who looks holds up the rulings; what is shown is in an order that does not
//! depend on the machine.

use serde::Serialize;
use tollgate_engine::copies::{Copies, HoldState, HoldView as Held, StagedView};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Timestamp;

use super::Core;
use super::partition::Partition;

/// Holds that one answer looks at, over all resources.
const LOOK_MAX: usize = 200_000;

/// The states of a hold: it counts; its agent is gone, so that it does not; it is nobody's, and counts.
pub const STATES: [&str; 3] = [HELD, LOST, STAGED];
const HELD: &str = "held";
const LOST: &str = "lost";
const STAGED: &str = "staged";

/// Which holds are asked for.
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
    /// At most so many.
    pub limit: usize,
}

/// Who holds what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoldsView {
    /// The form's name.
    pub schema: &'static str,
    /// The holds, the oldest first.
    pub holds: Vec<HoldView>,
    /// Whether there are more, or may be.
    pub more: bool,
    /// The copy-limited resources of which something was ever held, by name.
    pub resources: Vec<ResourceView>,
    /// Partitions that could not be asked: they are not ruled at the moment.
    pub partitions_missing: Vec<u32>,
}

/// A resource's copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceView {
    /// Its name.
    pub resource: Box<str>,
    /// The partition that rules it.
    pub partition: u32,
    /// Copies that are held or staged.
    pub copies: u64,
    /// Of them, those that were in use before they were granted.
    pub optimistic: u64,
    /// The global limit; null: unbounded.
    pub global: Option<u64>,
    /// Holds, those of gone agents included, and staged transfers.
    pub holds: u64,
}

/// One hold, or copies that are staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoldView {
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The groups that it was taken under.
    pub groups: Vec<Box<str>>,
    /// `held`; `lost`: its agent is gone and it does not count; `staged`: nobody's until it is seized.
    pub state: &'static str,
    /// The agent's name; null where it is staged.
    pub agent: Option<Box<str>>,
    /// The agent's epoch, in hexadecimal; null where it is staged.
    pub epoch: Option<String>,
    /// The number that the epoch gave to it; null where it is staged.
    pub number: Option<u64>,
    /// The transfer under which it is staged; null where it is held.
    pub transfer: Option<String>,
    /// Copies.
    pub copies: u32,
    /// When they were taken.
    pub start_us: u64,
    /// How long ago, by log time.
    pub age_us: u64,
    /// When staged copies are let go, at the end of their transfer or at their greatest age; null where it is
    /// held.
    pub end_us: Option<u64>,
    /// Whether it was granted before use.
    pub strict: bool,
    /// Whether it was seized from the staging area.
    pub seized: bool,
    /// The partition.
    pub partition: u32,
}

impl Core {
    pub(super) fn holds_view(&self, filter: &HoldFilter) -> HoldsView {
        let mut view = HoldsView {
            schema: "tollgate.holds/1",
            holds: Vec::new(),
            more: false,
            resources: Vec::new(),
            partitions_missing: self.missing_for(filter),
        };
        let mut looked = 0;
        for partition in &self.partitions {
            let now = partition.ruler.now();
            for (resource, copies) in partition.ruler.copies() {
                if filter
                    .resource
                    .as_ref()
                    .is_some_and(|of| **of != **resource)
                {
                    continue;
                }
                view.resources
                    .push(resource_view(resource, partition, copies));
                let place = Place {
                    resource,
                    partition: partition.index,
                    now,
                };
                let found = place.find(copies, filter, &mut looked, &mut view.more);
                view.holds.extend(found);
            }
        }
        view.resources.sort_by(|a, b| a.resource.cmp(&b.resource));
        view.holds.sort_by(|a, b| a.order().cmp(&b.order()));
        view.more |= filter.limit < view.holds.len();
        view.holds.truncate(filter.limit);
        view
    }

    /// Partitions that would have to be asked and are not ruled.
    fn missing_for(&self, filter: &HoldFilter) -> Vec<u32> {
        let count = self.settings.partitions;
        let resource = filter.resource.as_deref();
        let one = resource.map(|resource| partition_of_resource(resource, count));
        let asked = |partition: &&Partition| one.is_none_or(|one| one == partition.index);
        let missing = self
            .partitions
            .iter()
            .filter(asked)
            // One that another aggregator rules is as little known here.
            .filter(|partition| !partition.is_ours() || partition.why_not_ready().is_some());
        missing.map(|partition| partition.index).collect()
    }
}

/// What all holds of a resource have in common.
struct Place<'a> {
    resource: &'a str,
    partition: u32,
    now: Timestamp,
}

impl Place<'_> {
    fn find(
        &self,
        copies: &Copies,
        filter: &HoldFilter,
        looked: &mut usize,
        more: &mut bool,
    ) -> Vec<HoldView> {
        let mut found = Vec::new();
        let wanted = |domain: &str, groups: &[&str]| {
            let group = filter.group.as_deref();
            filter.domain.as_ref().is_none_or(|of| of == domain)
                && group.is_none_or(|of| groups.contains(&of))
        };
        let only_staged = filter.state == Some(STAGED);
        for held in copies.oldest_first().take_while(|_| !only_staged) {
            // One beyond the limit says that there are more.
            if LOOK_MAX <= *looked || filter.limit < found.len() {
                *more = true;
                break;
            }
            *looked += 1;
            let of_agent = filter.agent.as_ref().is_none_or(|of| of == held.agent);
            let of_state = filter.state.is_none_or(|of| of == name_of(held.state));
            if of_agent && of_state && wanted(held.domain, &held.groups) {
                found.push(self.held(&held));
            }
        }
        if filter.agent.is_some() || filter.state.is_some_and(|of| of != STAGED) {
            return found;
        }
        for staged in copies.staged() {
            if LOOK_MAX <= *looked {
                *more = true;
                break;
            }
            *looked += 1;
            if wanted(staged.domain, &staged.groups) {
                found.push(self.staged(&staged));
            }
        }
        found
    }

    fn held(&self, held: &Held<'_>) -> HoldView {
        HoldView {
            state: name_of(held.state),
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
            state: STAGED,
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
            state: HELD,
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

impl HoldView {
    fn order(&self) -> impl Ord + '_ {
        let who = (&self.agent, &self.epoch, self.number, &self.transfer);
        (self.start_us, &self.resource, who)
    }
}

const fn name_of(state: HoldState) -> &'static str {
    match state {
        HoldState::Live => HELD,
        HoldState::Lost => LOST,
    }
}

fn resource_view(resource: &str, partition: &Partition, copies: &Copies) -> ResourceView {
    let total = copies.total();
    ResourceView {
        resource: resource.into(),
        partition: partition.index,
        copies: total.copies,
        optimistic: copies.optimistic(),
        global: total.limit,
        holds: copies.kept(),
    }
}
