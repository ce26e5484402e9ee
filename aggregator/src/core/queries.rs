//! Answers for those who look from outside.

use tollgate_shared::names::{EVERYBODY, partition_of_pair, partition_of_resource};
use tollgate_shared::time::Span;
use tollgate_shared::wire::statement::{Says, Scope};

use super::Core;
use super::announce::Ready;
use super::event::{Effect, Now, QueryId};
use super::partition::Stage;
use super::view::{
    DenialFilter, DenialView, DenialsView, DigestView, DigestsView, Gauges, LimitsView, PairView,
    Query, Readiness, Reply, hex, random_hex,
};

impl Core {
    pub(super) fn answer_query(&mut self, now: Now, id: QueryId, query: Query) {
        let reply = match query {
            Query::Readiness => Reply::Readiness(self.readiness()),
            Query::Limits => Reply::Limits(self.limits_view()),
            Query::Denials(filter) => Reply::Denials(self.denials_view(now.clock, &filter)),
            Query::Pair { resource, domain } => {
                Reply::Pair(Box::new(self.pair_view(now.clock, &resource, &domain)))
            }
            Query::Digests => Reply::Digests(self.digests_view()),
            Query::Counters => {
                let mut counters = self.counters;
                counters.frames = self.announcer.frames();
                Reply::Counters(Box::new((counters, self.gauges())))
            }
        };
        self.effects.push(Effect::Reply {
            id,
            reply: Box::new(reply),
        });
    }

    fn readiness(&self) -> Readiness {
        let mut why = Vec::new();
        if let Some(down) = &self.log_down {
            why.push(format!("the log cannot be reached: {down}"));
        }
        if let Some(broken) = &self.limits.broken {
            why.push(format!("limits cannot be read: {broken}"));
        } else if !self.started {
            why.extend(self.limits_not_in_force());
        }
        why.extend(self.partitions.iter().filter_map(|p| p.why_not_ready()));
        Readiness {
            schema: "tollgate.ready/1",
            ready: why.is_empty(),
            why,
        }
    }

    fn limits_view(&self) -> LimitsView {
        let latest = self.limits.book.latest();
        LimitsView {
            schema: "tollgate.limits/1",
            version: self.limits.book.latest_number(),
            digest: latest.map(|version| hex(&version.digest)),
            text: latest.map(|version| version.text.to_string()),
            normalised: latest.map(|version| version.limits.normalised_text()),
            file_differs: self.limits.file_differs,
        }
    }

    fn denials_view(&self, clock: Span, filter: &DenialFilter) -> DenialsView {
        let mut view = DenialsView {
            schema: "tollgate.denials/1",
            denials: Vec::new(),
            omitted: 0,
            partitions_missing: self
                .partitions
                .iter()
                .filter(|partition| partition.why_not_ready().is_some())
                .map(|partition| partition.index)
                .collect(),
        };
        let mut resources: Vec<&str> = match &filter.resource {
            Some(resource) => vec![resource],
            None => self
                .announcer
                .live()
                .resources()
                .map(AsRef::as_ref)
                .collect(),
        };
        resources.sort_unstable();
        let ready = self.ready(clock);
        for resource in resources {
            let denials = self.denials_of(&ready, resource, filter.domain.as_deref());
            for denial in denials {
                if view.denials.len() < filter.limit {
                    view.denials.push(denial);
                } else {
                    view.omitted += 1;
                }
            }
        }
        view
    }

    /// The denials of a resource that have not ended, by partition and scope.
    fn denials_of<'a>(
        &'a self,
        ready: &'a std::collections::BTreeMap<u32, Ready>,
        resource: &'a str,
        domain: Option<&'a str>,
    ) -> impl Iterator<Item = DenialView> + 'a {
        self.announcer
            .live()
            .of_resource(resource)
            .filter(move |(at, _)| match (&at.scope, domain) {
                (_, None) => true,
                (Scope::Pair(found), Some(domain)) => &**found == domain,
                (_, Some(_)) => false,
            })
            .filter_map(move |(at, statement)| {
                let log_now = ready.get(&at.partition)?.log_now;
                match &statement.says {
                    Says::Denied(denial) if log_now < denial.end => {
                        let view =
                            DenialView::new(resource, at.partition, statement, denial, log_now);
                        Some(view)
                    }
                    _ => None,
                }
            })
    }

    fn pair_view(&self, clock: Span, resource: &str, domain: &str) -> PairView {
        let count = self.settings.partitions;
        // A resource's own pair, under its global limit, is ruled where its totals go.
        let everybody = domain == EVERYBODY;
        let index = match everybody {
            true => partition_of_resource(resource, count),
            false => partition_of_pair(resource, domain, count),
        };
        let partition = self.partitions.get(index as usize);
        let state = partition.and_then(|p| p.ruler.pair(resource, domain));
        let latest = self.limits.book.latest();
        let ready = self.ready(clock);
        PairView {
            schema: "tollgate.pair/1",
            resource: resource.into(),
            domain: domain.into(),
            partition: index,
            configured: latest.is_some_and(|version| version.limits.rate(resource).is_some()),
            known: state.is_some(),
            version: partition.map_or(0, |p| p.ruler.version()),
            state,
            denial: self
                .denials_of(&ready, resource, (!everybody).then_some(domain))
                .find(|denial| denial.domain.is_none() == everybody),
        }
    }

    fn digests_view(&self) -> DigestsView {
        let partitions = self
            .partitions
            .iter()
            .map(|partition| {
                let log = partition.log().unwrap_or_default();
                let (stage, why) = match &partition.stage {
                    Stage::CatchingUp | Stage::Returning => ("catching_up", None),
                    Stage::Ruling => ("ruling", None),
                    Stage::Waiting { version } => {
                        ("waiting", Some(format!("for limits version {version}")))
                    }
                    Stage::Stopped { why } => ("stopped", Some(why.clone())),
                };
                DigestView {
                    partition: partition.index,
                    stage,
                    why,
                    generation: log.generation,
                    log_random: random_hex(log),
                    offset: partition.next,
                    appended_us: partition.appended.as_micros(),
                    version: partition.ruler.version(),
                    digest: partition.ruler.digest(),
                }
            })
            .collect();
        DigestsView {
            schema: "tollgate.digests/1",
            limits_version: self.limits.book.latest_number(),
            partitions,
        }
    }

    fn gauges(&self) -> Gauges {
        let count = |found: &dyn Fn(&super::Partition) -> bool| {
            self.partitions.iter().filter(|p| found(p)).count() as u64
        };
        Gauges {
            partitions: self.partitions.len() as u64,
            partitions_ready: count(&|p| p.why_not_ready().is_none()),
            partitions_stopped: count(&|p| matches!(p.stage, Stage::Stopped { .. })),
            pairs: self.partitions.iter().map(|p| p.ruler.pairs()).sum(),
            live: self.announcer.live().len() as u64,
            totals_waiting: self.totals.len() as u64,
            denials_waiting: self
                .partitions
                .iter()
                .map(|p| p.recordings.len() as u64)
                .sum(),
            limits_version: self.limits.book.latest_number(),
            limits_file_differs: u64::from(self.limits.file_differs),
            limits_file_bad: u64::from(self.limits.is_file_bad()),
            log_up: u64::from(self.log_down.is_none()),
        }
    }
}
