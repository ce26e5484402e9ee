//! Answers to queries: what operators see of the core.

use std::borrow::Cow;
use std::sync::Arc;

use tollgate_api::candidates::CandidatesView;
use tollgate_api::denials::DenialView;
use tollgate_api::limits::SwitchView;
use tollgate_api::pairs::PairView;
use tollgate_api::state::{DigestView, DigestsView, Readiness};
use tollgate_engine::copies::Copies;
use tollgate_shared::names::{EVERYBODY, partition_of_pair, partition_of_resource};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Denial, Scope, Statement, StatementKind};

use super::amendments::Proposals;
use super::assignment::Membership;
use super::bans::{self, BansPage};
use super::broadcast::Broadcast;
use super::candidates::with_candidate;
use super::clocks::Clocks;
use super::event::Now;
use super::limits_state::LimitsState;
use super::live::At;
use super::partition::{Partition, Stage};
use super::ready::{ReadyPartitions, log_time_of, ready_at};
use super::settings::Settings;
use super::tally::Tally;
use super::view::{
    Counted, DenialFilter, DenialsCursor, DenialsPage, DenialsPart, Gauges, LimitsInForce,
    Normalised, Query, Reply, TextDigest, denial_view, random_hex,
};
use tollgate_limits::versions::BanFilter;
use tollgate_limits::versions::switches::Switch;

/// A denial that was found.
struct FoundDenial<'a> {
    at: &'a At,
    statement: &'a Statement,
    denial: &'a Denial,
    log_now: Timestamp,
}

impl FoundDenial<'_> {
    /// The denial as operators see it, with the name of its resource.
    fn view(&self, resource: Arc<str>) -> DenialView {
        let partition = self.at.partition;
        denial_view(
            resource,
            partition,
            self.statement,
            self.denial,
            self.log_now,
        )
    }
}

/// All parts of a core that queries read. A query changes none of them.
pub(super) struct Views<'a> {
    pub settings: &'a Settings,
    pub partitions: &'a [Partition],
    pub limits: &'a LimitsState,
    pub proposals: &'a Proposals,
    pub feed: &'a Broadcast,
    pub membership: &'a Membership,
    pub clocks: &'a Clocks,
    pub tally: &'a Tally,
    /// This process's clock.
    pub wall: Timestamp,
    pub log_down: Option<&'a str>,
    /// When the log took records again for the last time; `None`: it always did.
    pub log_up_since: Option<Span>,
    /// Whether the limits that were found or given at the start rule every partition.
    pub started: bool,
}

impl Views<'_> {
    /// The answer to a query that changes nothing; `None`: the query asks for a change.
    pub(super) fn answer(&self, now: Now, query: &Query) -> Option<Reply> {
        Some(match query {
            Query::Amend(_) => return None,
            Query::Readiness => Reply::Readiness(self.readiness()),
            Query::Limits => Reply::Limits(self.limits_view()),
            Query::Denials(filter) => Reply::Denials(self.denials_view(now.clock, filter)),
            Query::Bans { filter, limit } => Reply::Bans(self.bans_view(filter, *limit)),
            Query::Pair { resource, domain } => {
                Reply::Pair(Box::new(self.pair_view(now.clock, resource, domain)))
            }
            Query::Holds(filter) => Reply::Holds(self.holds_view(filter)),
            Query::Top(filter) => Reply::Top(self.top_view(filter)),
            Query::Candidates => Reply::Candidates(self.candidates_view()),
            Query::Digests => Reply::Digests(self.digests_view()),
            Query::Counters => {
                let mut counters = self.tally.counters;
                counters.frames = self.feed.frames() + counters.frames_of_notices;
                Reply::Counters(Box::new(Counted {
                    counters,
                    gauges: self.gauges(now),
                    clocks: self.clocks.view(now.clock),
                    candidates: self.tally.candidates.all(),
                    resources: self.tally.resources.all(),
                }))
            }
        })
    }

    fn readiness(&self) -> Readiness {
        let mut why = Vec::new();
        if let Some(down) = self.log_down {
            why.push(format!("the log accepts nothing: {down}"));
        }
        if let Some(unread) = self.limits.why_unread() {
            why.push(unread);
        } else if !self.started {
            why.extend(self.limits.why_not_in_force(self.partitions));
        }
        why.extend(self.limits.why_no_key(&self.settings.keys));
        if self.membership.shared && !self.membership.joined {
            why.push("partitions have not been assigned yet".to_owned());
        }
        why.extend(self.partitions.iter().filter_map(|p| {
            p.why_not_ready()
                .or_else(|| p.why_not_ready_since(self.log_up_since?))
        }));
        if let Some(last) = self.membership.surplus.last() {
            why.push(format!(
                "the topic of hits has at least {} partitions, expected {}: records of agents beyond that are not ruled, and no aggregator will start again; \
                 move to topics of another prefix (see the runbook)",
                last + 1,
                self.settings.partitions
            ));
        }
        Readiness {
            schema: "tollgate.ready/1".into(),
            ready: why.is_empty(),
            why,
        }
    }

    fn limits_view(&self) -> LimitsInForce {
        let latest = self.limits.book.latest();
        LimitsInForce {
            schema: "tollgate.limits/1".into(),
            version: self.limits.book.latest_number(),
            digest: latest.map(|version| TextDigest(version.text.clone())),
            text: latest.map(|version| version.text.clone()),
            rows: latest.map_or(0, |version| version.limits.rows_len() as u64),
            normalised: latest.map(|version| Normalised(Arc::clone(&version.limits))),
            file_differs: self.limits.file_differs,
            switches: self.limits.book.switches().all().map(switch_view).collect(),
        }
    }

    fn candidates_view(&self) -> CandidatesView {
        let latest = self.limits.book.latest();
        let ours = || self.partitions.iter().filter(|one| one.is_ours());
        let counting_from = ours().filter_map(|one| one.candidates.since()).max();
        CandidatesView {
            schema: "tollgate.candidates/1".into(),
            version: self.limits.book.latest_number(),
            counting_from_us: counting_from.map_or(0, Timestamp::as_micros),
            configured: latest.map_or_else(Vec::new, |latest| with_candidate(&latest.limits)),
            candidates: latest.map_or_else(Vec::new, |latest| {
                let views = ours().flat_map(|p| p.candidates.view(p.index, &latest.limits));
                views.collect()
            }),
            partitions_missing: self.partitions_missing(),
        }
    }

    fn denials_view(&self, clock: Span, filter: &DenialFilter) -> DenialsPart {
        let live = self.feed.announcer.live();
        let of = filter.resource.as_deref();
        let mut page = DenialsPage {
            schema: "tollgate.denials/1".into(),
            denials: Vec::new(),
            omitted: 0,
            next: None,
            partitions_missing: self.partitions_missing(),
        };
        let kept = of.map_or_else(|| live.len(), |resource| live.kept_of(resource));
        let part = |page, upto: Option<Option<DenialsCursor>>| DenialsPart {
            page,
            more: upto.is_some(),
            upto: upto.flatten(),
            kept,
        };
        let begins = filter.after.as_ref().map(|after| &*after.resource);
        let resources = live
            .resources_from(begins.max(of).unwrap_or_default())
            .take_while(|resource| of.is_none_or(|of| *of == ***resource));
        let ready = ready_at(self.partitions, clock);
        let mut last = None;
        let cursor = |last: Option<(&Arc<str>, &At)>| {
            last.map(|(resource, at)| DenialsCursor {
                resource: (**resource).into(),
                at: at.clone(),
            })
        };
        // There may be a million denials: only as many are looked at as take no noticeable time.
        for resource in resources {
            let after = filter.after.as_ref();
            let after = after.filter(|after| *after.resource == **resource);
            let domain =
                { filter.domain.as_deref() }.map(|domain| self.limited_as(resource, domain));
            let asked = (&**resource, domain.as_deref());
            for found in self.denials_of(&ready, asked, after.map(|after| &after.at)) {
                if page.denials.len() < filter.limit {
                    page.denials.push(found.view(Arc::clone(resource)));
                } else {
                    if page.omitted == 0 {
                        page.next = cursor(last);
                    }
                    if filter.counted_max <= page.omitted {
                        return part(page, Some(cursor(last)));
                    }
                    page.omitted += 1;
                }
                last = Some((resource, found.at));
            }
        }
        part(page, None)
    }

    fn bans_view(&self, filter: &BanFilter, limit: usize) -> Option<BansPage> {
        let all = self.limits.caught_up.then(|| self.limits.book.bans());
        let log_now = log_time_of(self.partitions, self.wall);
        let latest = self.limits.book.latest();
        let limits = latest.map(|version| &*version.limits);
        all.map(|all| bans::page(all, filter, limit, (limits, log_now)))
    }

    /// The denials of a resource that have not ended, by partition and scope: all of them, or those of one domain
    /// ([`EVERYBODY`]: that of the whole resource); only those after `after`.
    fn denials_of<'a>(
        &'a self,
        ready: &'a ReadyPartitions,
        (resource, domain): (&'a str, Option<&str>),
        after: Option<&'a At>,
    ) -> impl Iterator<Item = FoundDenial<'a>> + 'a {
        let live = self.feed.announcer.live();
        let count = self.settings.partitions;
        let one = domain.map(|domain| {
            let scope = match domain {
                EVERYBODY => Scope::Resource,
                _ => Scope::Pair(domain.into()),
            };
            // Rates are ruled with their pairs, copies with their resources.
            let of_copies = partition_of_resource(resource, count);
            let of_rates = match domain {
                EVERYBODY => of_copies,
                _ => partition_of_pair(resource, domain, count),
            };
            let partitions = [Some(of_rates), Some(of_copies).filter(|of| *of != of_rates)];
            partitions.into_iter().flatten().map(move |partition| At {
                partition,
                scope: scope.clone(),
            })
        });
        let all = one.is_none().then(|| live.after(resource, after));
        one.into_iter()
            .flatten()
            .filter_map(move |at| live.get(resource, &at))
            .filter(move |(at, _)| after.is_none_or(|after| after < *at))
            .chain(all.into_iter().flatten())
            .filter_map(move |(at, statement)| {
                let log_now = ready.get(at.partition)?.log_now;
                match &statement.kind {
                    StatementKind::Denied(denial) if log_now < denial.end => Some(FoundDenial {
                        at,
                        statement,
                        denial,
                        log_now,
                    }),
                    _ => None,
                }
            })
    }

    /// The domain to look up for one that was asked for: for an address, the network as which the resource limits it.
    fn limited_as<'d>(&self, resource: &str, domain: &'d str) -> Cow<'d, str> {
        let latest = self.limits.book.latest();
        latest.map_or(Cow::Borrowed(domain), |version| {
            version.limits.domain_of_call(resource, domain)
        })
    }

    fn pair_view(&self, clock: Span, resource: &str, domain: &str) -> PairView {
        let count = self.settings.partitions;
        let latest = self.limits.book.latest();
        let rate = latest.and_then(|version| version.limits.rate(resource));
        let copies = latest.and_then(|version| version.limits.copies(resource));
        let limited = self.limited_as(resource, domain);
        let domain = &*limited;
        // Copies are ruled in the partition of their resource; a resource's own pair, under its global limit, in the
        // partition that gets its totals.
        let index = match copies.is_some() || domain == EVERYBODY {
            true => partition_of_resource(resource, count),
            false => partition_of_pair(resource, domain, count),
        };
        let partition = self.partitions.get(index as usize);
        let state = partition.and_then(|p| p.ruler.pair(resource, domain));
        let ready = ready_at(self.partitions, clock);
        PairView {
            schema: "tollgate.pair/1".into(),
            resource: resource.into(),
            domain: domain.into(),
            partition: index,
            configured: rate.is_some(),
            limited_by_copies: copies.is_some(),
            known: state.is_some(),
            version: partition.map_or(0, |p| p.ruler.version()),
            state,
            denial: self
                .denials_of(&ready, (resource, Some(domain)), None)
                .next()
                .map(|found| found.view(resource.into())),
            partitions_missing: partition
                .filter(|p| !p.is_ready())
                .map(|p| vec![p.index])
                .unwrap_or_default(),
        }
    }

    fn digests_view(&self) -> DigestsView {
        let partitions = self
            .partitions
            .iter()
            // In the middle of a record the state belongs to no offset.
            .filter(|partition| partition.is_ours() && !partition.ruler.has_more())
            .map(|partition| {
                let log = partition.log().unwrap_or_default();
                let (stage, why) = partition.stage_shown();
                DigestView {
                    partition: partition.index,
                    stage: stage.into(),
                    why,
                    generation: log.generation,
                    log_random: random_hex(log),
                    offset: partition.position.shown(),
                    appended_us: partition.position.appended.as_micros(),
                    version: partition.ruler.version(),
                    digest: partition.ruler.digest(),
                }
            })
            .collect();
        DigestsView {
            schema: "tollgate.digests/1".into(),
            limits_version: self.limits.book.latest_number(),
            partitions,
        }
    }

    fn copies(&self) -> impl Iterator<Item = &Copies> {
        let of = self.partitions.iter().flat_map(|p| p.ruler.copies());
        of.map(|(_, copies)| copies)
    }

    fn agents(&self) -> impl Iterator<Item = (usize, usize)> {
        self.partitions.iter().map(|p| p.ruler.agents())
    }

    fn most_of_ours(&self, of: impl Fn(&Partition) -> u64) -> u64 {
        let ours = self.partitions.iter().filter(|p| p.is_ours());
        ours.map(of).max().unwrap_or(0)
    }

    fn gauges(&self, now: Now) -> Gauges {
        let count = |found: &dyn Fn(&Partition) -> bool| {
            self.partitions.iter().filter(|p| found(p)).count() as u64
        };
        let latest = self.limits.book.latest_number();
        Gauges {
            partitions: self.partitions.len() as u64,
            partitions_ours: count(&|p| p.is_ours()),
            partitions_ready: count(&Partition::is_ready),
            partitions_stopped: count(&|p| matches!(p.stage, Stage::Stopped { .. })),
            pairs: self.partitions.iter().map(|p| p.ruler.pairs()).sum(),
            live: self.feed.announcer.live().len() as u64,
            holds: self.copies().map(|copies| copies.kept()).sum(),
            copies: self.copies().map(|copies| copies.total().copies).sum(),
            agents_present: self.agents().map(|(present, _)| present as u64).sum(),
            agents_gone: self.agents().map(|(_, gone)| gone as u64).sum(),
            totals_waiting: self.partitions.iter().map(|p| p.totals.len() as u64).sum(),
            denials_waiting: self
                .partitions
                .iter()
                .map(|p| p.recordings.len() as u64)
                .sum(),
            amended: self
                .partitions
                .iter()
                .map(|p| p.ruler.amended() as u64)
                .sum(),
            switches: self.limits.book.switches().all().count() as u64,
            limits_version: latest,
            partitions_behind: count(&|p| p.is_ours() && p.ruler.version() < latest),
            limits_file_differs: u64::from(self.limits.file_differs),
            limits_file_bad: u64::from(self.limits.is_file_bad()),
            log_up: u64::from(self.log_down.is_none()),
            log_lag_us: self.most_of_ours(|p| match p.position.appended {
                // Nothing was ruled yet: readiness reports that.
                Timestamp::ZERO => 0,
                appended => now.wall.since(appended).as_micros(),
            }),
            log_ahead_us: self.most_of_ours(|p| p.position.appended.since(now.wall).as_micros()),
            snapshot_took_us: self.most_of_ours(|p| p.snapshots.took().as_micros()),
            snapshot_age_us: match self.settings.snapshots {
                Some(_) => self.most_of_ours(|p| p.snapshots.age(now.clock).as_micros()),
                None => 0,
            },
        }
    }
}

fn switch_view((namespace, switch): (&str, Switch)) -> SwitchView {
    SwitchView {
        namespace: namespace.to_owned(),
        ignore_configured: switch.ignore_configured,
        allow_unconfigured: switch.allow_unconfigured,
    }
}
