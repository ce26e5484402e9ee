//! The deny list beside a plain model: whatever the order of statements and however often they are repeated, the
//! result is the same; and with some of them lost, nothing is denied that all of them in order would not deny.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Cause, Denial};

use super::name::EntryName;
use super::{DenyList, DenyView, Lease, ScopeChange, ScopeNotice, StatementOutcome};
use crate::clock::Mono;
use crate::resource::{Resource, ResourceId};

const DOMAINS: [&str; 4] = ["a", "b", "c", "*"];
const NOW: Mono = Mono(1_000_000);

/// One statement of the log about a domain, at a log position: denied until an instant, or open.
#[derive(Clone, Copy, Debug)]
struct Stated {
    domain: usize,
    position: LogPosition,
    until: Option<u64>,
}

fn position(offset: u64) -> LogPosition {
    LogPosition {
        generation: 1,
        offset,
        entry: 0,
    }
}

fn denial() -> Denial {
    Denial {
        end: Timestamp::MAX,
        cause: Cause::Tier(1),
        version: 1,
        limit: 1,
        window: Span::from_secs(1),
        most: u64::MAX,
    }
}

struct Bench {
    view: Arc<DenyView>,
    list: DenyList,
    resource: Arc<Resource>,
    lease: Lease,
}

impl Bench {
    fn new(max: usize) -> Self {
        let view = Arc::new(DenyView::new(max));
        let lease = Lease::default();
        lease.renew(Mono::MAX);
        Self {
            list: DenyList::new(Arc::clone(&view), max),
            view,
            resource: Arc::new(Resource::new(ResourceId(0), "r", 9)),
            lease,
        }
    }

    fn take(&mut self, stated: Stated) -> StatementOutcome {
        self.take_settled(stated, None)
    }

    fn take_settled(&mut self, stated: Stated, settled: Option<LogPosition>) -> StatementOutcome {
        self.take_from(0, stated, settled)
    }

    fn take_from(
        &mut self,
        partition: u32,
        stated: Stated,
        settled: Option<LogPosition>,
    ) -> StatementOutcome {
        let notice = ScopeNotice {
            is_group: false,
            resource: &self.resource,
            domain: DOMAINS[stated.domain],
            partition,
            position: stated.position,
            change: stated.until.map_or(ScopeChange::Lifted, |until| {
                ScopeChange::Denied(Mono(until), denial())
            }),
            lease: &self.lease,
            settled,
        };
        self.list.take(&notice, NOW)
    }

    /// Which domains are refused, and by which log position; through the filter, as calls see it.
    fn denied(&self) -> BTreeMap<usize, (LogPosition, u64)> {
        (0..DOMAINS.len())
            .filter_map(|index| {
                let fingerprint = self.resource.fingerprint(DOMAINS[index]);
                let found =
                    self.view
                        .refusal(&self.resource, fingerprint, DOMAINS[index], || NOW)?;
                assert!(
                    self.view.maybe(fingerprint),
                    "the filter knows every denial"
                );
                Some((index, (found.position, found.remaining.as_micros())))
            })
            .collect()
    }
}

/// The model: for every domain the statement at the greatest log position.
fn model(log: &[Stated]) -> BTreeMap<usize, (LogPosition, u64)> {
    let mut last: BTreeMap<usize, Stated> = BTreeMap::new();
    for stated in log {
        last.insert(stated.domain, *stated);
    }
    last.into_iter()
        .filter_map(|(domain, stated)| {
            let until = stated.until.filter(|until| NOW.0 < *until)?;
            Some((domain, (stated.position, until - NOW.0)))
        })
        .collect()
}

fn log() -> impl Strategy<Value = Vec<Stated>> {
    prop::collection::vec(
        (0..DOMAINS.len(), prop::option::of(900_000u64..1_200_000)),
        1..40,
    )
    .prop_map(|says| {
        (1..)
            .zip(says)
            .map(|(offset, (domain, until))| Stated {
                domain,
                position: position(offset),
                until,
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn the_end_does_not_depend_on_order_or_repetition(
        (log, order) in log().prop_flat_map(|log| {
            let twice: Vec<usize> = (0..log.len()).chain(0..log.len()).collect();
            (Just(log), Just(twice).prop_shuffle())
        }),
    ) {
        let mut bench = Bench::new(1_000);
        for index in order {
            bench.take(log[index]);
        }
        prop_assert_eq!(bench.denied(), model(&log));
        prop_assert_eq!(bench.list.len(), bench.denied().len());
    }

    #[test]
    fn lost_statements_never_deny_more_than_was_stated(
        (log, kept, order) in log().prop_flat_map(|log| {
            let len = log.len();
            (Just(log), prop::collection::vec(any::<bool>(), len), Just((0..len).collect::<Vec<_>>()).prop_shuffle())
        }),
        max in 1usize..6,
    ) {
        // Also at a bound: a denial without room leaves its scope open.
        let mut bench = Bench::new(max);
        let received: Vec<Stated> = log.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(one, _)| *one).collect();
        for index in order.into_iter().filter(|index| kept[*index]) {
            bench.take(log[index]);
        }
        let allowed = model(&received);
        for (domain, found) in bench.denied() {
            prop_assert_eq!(allowed.get(&domain), Some(&found));
        }
        // Everything is received up to the end of the log: older statements about scopes without an entry change
        // nothing.
        let end = position(log.len() as u64 + 1);
        bench.list.settle(ResourceId(0), |_| Some(end));
        prop_assert!(!bench.list.has_notes());
        let before = bench.denied();
        for stated in &log {
            if !before.contains_key(&stated.domain) {
                bench.take_settled(*stated, Some(end));
            }
        }
        prop_assert_eq!(bench.denied(), before);
    }
}

fn denied(domain: usize, offset: u64, until: u64) -> Stated {
    Stated {
        domain,
        position: position(offset),
        until: Some(until),
    }
}

#[test]
fn of_two_ends_at_one_place_the_lesser_holds() {
    for ends in [[1_500_000, 1_400_000], [1_400_000, 1_500_000]] {
        let mut bench = Bench::new(10);
        for until in ends {
            bench.take(denied(0, 5, until));
        }
        assert_eq!(bench.denied()[&0], (position(5), 400_000));
    }
}

#[test]
fn ended_denials_leave_the_list_and_the_filter() {
    let mut bench = Bench::new(10);
    bench.take(denied(0, 5, 1_200_000));
    bench.take(denied(3, 6, 1_300_000));
    bench.list.expire(Mono(1_200_000));
    assert_eq!(bench.denied().keys().copied().collect::<Vec<_>>(), [3]);
    assert!(!bench.view.maybe(bench.resource.fingerprint("a")));
    assert_eq!(bench.resource.flags(), crate::resource::WHOLE);
    bench.list.expire(Mono(1_300_000));
    assert_eq!((bench.list.len(), bench.resource.flags()), (0, 0));
}

#[test]
fn an_older_statement_never_closes_a_newer_lift() {
    let mut bench = Bench::new(10);
    let older = denied(0, 5, 9_000_000);
    bench.take(older);
    bench.take(Stated {
        domain: 0,
        position: position(9),
        until: None,
    });
    bench.take(denied(0, 12, 1_200_000));
    bench.list.expire(Mono(1_200_000));
    // A delayed snapshot from before all of that.
    assert_eq!(bench.take(older), StatementOutcome::Known);
    assert!(bench.denied().is_empty());
    // A watermark shows that nothing older can still arrive.
    bench.list.settle(ResourceId(0), |_| Some(position(13)));
    assert!(!bench.list.has_notes());
}

#[test]
fn an_expired_lease_refuses_no_call() {
    let mut bench = Bench::new(10);
    bench.take(denied(0, 5, 9_000_000));
    bench.lease.renew(NOW);
    assert!(bench.denied().is_empty());
}

#[test]
fn a_snapshot_ends_older_denials_that_it_does_not_list() {
    let mut bench = Bench::new(10);
    for (domain, offset) in [(0, 5), (1, 6), (2, 8)] {
        bench.take(denied(domain, offset, 9_000_000));
    }
    let listed = HashSet::from([bench.resource.fingerprint("b")]);
    let (resources, below) = (
        HashSet::from([ResourceId(0)]),
        HashMap::from([(0, position(8))]),
    );
    let ended = bench.list.end_unlisted(&resources, &below, &listed);
    assert_eq!(
        ended
            .iter()
            .map(|one| (&*one.domain, one.position))
            .collect::<Vec<_>>(),
        [("a", position(5))]
    );
    assert_eq!(bench.denied().keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_new_generation_voids_statements_of_older_ones() {
    let mut bench = Bench::new(10);
    bench.take(denied(0, 5, 9_000_000));
    bench.list.void(1, 2);
    assert_eq!(bench.denied().len(), 1);
    bench.list.void(0, 2);
    assert!(bench.denied().is_empty());
}

#[test]
fn of_two_partitions_denials_the_longer_one_stays_until_its_own_lift() {
    let (rate, full) = (denied(0, 5_000_000, 9_000_000), denied(0, 1_050, u64::MAX));
    let lift = |offset| Stated {
        domain: 0,
        position: position(offset),
        until: None,
    };
    let mut bench = Bench::new(10);
    assert_eq!(bench.take_from(7, rate, None), StatementOutcome::Denied);
    assert_eq!(bench.take(full), StatementOutcome::Denied);
    for other in [lift(5_000_001), rate, denied(0, 5_000_002, 8_000_000)] {
        let taken = bench.take_from(7, other, None);
        assert_eq!(taken, StatementOutcome::Outlasted);
        assert_eq!(bench.denied()[&0].0, full.position);
    }
    assert_eq!(bench.take(lift(1_060)), StatementOutcome::Lifted);
    assert!(bench.denied().is_empty());
    // In the other order.
    assert_eq!(
        bench.take(denied(0, 1_070, u64::MAX)),
        StatementOutcome::Denied
    );
    let later = denied(0, 5_000_003, 9_000_000);
    assert_eq!(bench.take_from(7, later, None), StatementOutcome::Outlasted);
    assert_eq!(bench.take(lift(1_080)), StatementOutcome::Lifted);
    assert!(bench.denied().is_empty());
    assert_eq!(bench.list.len(), 0);
}

#[test]
fn another_partitions_lift_makes_no_denial_older() {
    let mut bench = Bench::new(10);
    bench.take_from(7, denied(0, 5_000_000, 9_000_000), None);
    let lift = Stated {
        domain: 0,
        position: position(5_000_001),
        until: None,
    };
    assert_eq!(bench.take_from(7, lift, None), StatementOutcome::Lifted);
    let full = denied(0, 1_050, u64::MAX);
    assert_eq!(bench.take(full), StatementOutcome::Denied);
    assert_eq!(bench.denied()[&0].0, full.position);
}

#[test]
fn the_index_of_ends_stays_in_proportion() {
    let mut bench = Bench::new(10);
    for n in 0..20_000 {
        bench.take(denied(0, n, 9_000_000 + n));
    }
    assert!(bench.list.ends_len() <= 1_100);
}

#[test]
fn at_the_bound_a_new_denial_finds_no_room() {
    let mut bench = Bench::new(1);
    assert_eq!(
        bench.take(denied(0, 5, 9_000_000)),
        StatementOutcome::Denied
    );
    assert_eq!(
        bench.take(denied(1, 6, 9_000_000)),
        StatementOutcome::NoRoom
    );
    assert_eq!(
        bench.take(denied(0, 7, 9_500_000)),
        StatementOutcome::Denied
    );
}

#[test]
fn the_filter_never_hides_a_denial_that_was_found() {
    // A race: a caller looks for each denial while the writer is about to apply it.
    const DENIALS: u64 = 50_000;
    let names: Vec<String> = (0..DENIALS).map(|n| format!("d{n}")).collect();
    let mut bench = Bench::new(names.len());
    let (view, resource) = (Arc::clone(&bench.view), Arc::clone(&bench.resource));
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for (offset, domain) in (0..).zip(&names) {
                let taken = bench.list.take(
                    &ScopeNotice {
                        is_group: false,
                        resource: &bench.resource,
                        domain,
                        partition: 0,
                        position: position(offset),
                        change: ScopeChange::Denied(Mono::MAX, denial()),
                        lease: &bench.lease,
                        settled: None,
                    },
                    NOW,
                );
                assert_eq!(taken, StatementOutcome::Denied, "{domain}");
            }
        });
        for domain in &names {
            let fingerprint = resource.fingerprint(domain);
            let is_found = || {
                let found = view.refusal(&resource, fingerprint, domain, || NOW);
                found.is_some()
            };
            while !is_found() && !writer.is_finished() {
                std::hint::spin_loop();
            }
            assert!(view.maybe(fingerprint), "{domain}");
        }
    });
}

#[test]
fn a_fingerprint_alone_decides_nothing() {
    let bench = Bench::new(10);
    let fingerprint = bench.resource.fingerprint("a");
    let refused = |resource: u32, domain: &str| {
        let entry = super::view::DenialEntry {
            is_group: false,
            resource: ResourceId(resource),
            domain: EntryName::new(domain),
            partition: 0,
            position: position(5),
            until: Mono::MAX,
            closed: super::Closed::from(&denial()),
            lease: bench.lease.clone(),
        };
        bench.view.exact.insert(fingerprint, entry);
        bench
            .view
            .refusal(&bench.resource, fingerprint, "a", || NOW)
            .is_some()
    };
    assert!(refused(0, "a"));
    assert!(!refused(1, "a") && !refused(0, "b"));
}

#[test]
fn a_pair_is_urgent_for_ten_seconds_after_its_denial() {
    let mut bench = Bench::new(4);
    let denied = |domain, offset| Stated {
        domain,
        position: position(offset),
        until: Some(NOW.plus(Span::from_secs(3)).0),
    };
    bench.take(denied(0, 1));
    let is_urgent = |bench: &Bench, ms| {
        let fingerprint = bench.resource.fingerprint("a");
        let recent = bench.view.recent();
        recent.has(fingerprint, NOW.plus(Span::from_millis(ms)))
    };
    assert!(is_urgent(&bench, 12_999) && !is_urgent(&bench, 13_033));
    // A lift does not shorten that.
    let lift = Stated {
        until: None,
        ..denied(0, 2)
    };
    bench.take(lift);
    assert!(is_urgent(&bench, 12_999));
    assert!(!bench.resource.hurry().is_on(NOW));
    // All domains: every call of the resource.
    bench.take(denied(3, 3));
    assert!(bench.resource.hurry().is_on(NOW.plus(Span::from_secs(12))));
    assert!(!bench.resource.hurry().is_on(NOW.plus(Span::from_secs(13))));
}
