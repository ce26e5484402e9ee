//! Compares the engine with the slow model over whole logs: agents with wrong clocks, duplicates,
//! late entries, versions, ticks and totals; and with itself, cut and restored anywhere.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_engine::engine::{Counts, Engine, Fate, ResourceStatement, Rulings};
use tollgate_model as model;
use tollgate_shared::wire::record::{Record, Total};
use tollgate_shared::wire::statement::{Cause, Scope, StatementKind};

use crate::support::log::{Entry, Log, any_log};
use crate::support::{self, DOMAINS, RESOURCES, at};

fn apply(engine: &mut Engine, entry: &Entry, log: &Log, rulings: &mut Rulings) {
    let record = Record::decode(&entry.bytes).expect("a record");
    rulings.clear();
    engine.apply(
        entry.offset,
        entry.appended,
        &record,
        &log.versions,
        rulings,
    );
    assert_eq!(rulings.fates.len(), 1);
}

/// The last statement about each scope: its end (`None`: open) and cause. An activation of several
/// versions may state one scope several times.
type Stated = BTreeMap<(String, Option<String>), Option<(u64, String)>>;

fn stated(said: &[ResourceStatement]) -> Stated {
    let mut stated = Stated::new();
    for said in said {
        let domain = match &said.statement.scope {
            Scope::Pair(domain) => Some(domain.to_string()),
            Scope::Resource => None,
            Scope::Group(group) => panic!("group {group}"),
        };
        let denied = match &said.statement.kind {
            StatementKind::Denied(denial) => Some((denial.end.as_micros(), denial.cause)),
            StatementKind::Lifted => None,
        };
        let denied = denied.map(|(end_us, cause)| (end_us, cause.to_string()));
        stated.insert((said.resource.to_string(), domain), denied);
    }
    stated
}

/// The model's statements. It has no cause of its own for a resource without tiers: it names the
/// hard limit or no tier at all.
fn expected_statements(changes: &[model::log::ScopeChange], got: &Stated) -> Stated {
    let mut stated = Stated::new();
    for change in changes {
        let scope = (change.scope.resource.clone(), change.scope.domain.clone());
        let denied = change.denied.map(|denial| {
            let end_us = match denial.end {
                model::End::At(end_us) => end_us,
                model::End::Never => u64::MAX,
            };
            let cause = match denial.cause {
                model::Cause::Hard => Cause::Hard,
                model::Cause::Global => Cause::Global,
                model::Cause::Tier(tier) => Cause::Tier(tier as u8),
                model::Cause::Banned => Cause::Banned,
                model::Cause::Window(window) => Cause::Window(window as u8),
                model::Cause::Quota(quota) => Cause::Quota(quota as u8),
                model::Cause::Bucket => Cause::Bucket,
            };
            (end_us, cause.to_string())
        });
        let inaccessible = |(_, cause): &&(u64, String)| cause == "inaccessible";
        let statement = got
            .get(&scope)
            .and_then(Option::as_ref)
            .filter(inaccessible);
        let denied = denied.map(|(end_us, cause)| match statement {
            Some((_, statement)) if end_us == u64::MAX => (end_us, statement.clone()),
            _ => (end_us, cause),
        });
        stated.insert(scope, denied);
    }
    stated
}

fn total(counts: &Rulings) -> Counts {
    let mut total = Counts::default();
    for of in &counts.counts {
        total.entries += of.counts.entries;
        total.granted += of.counts.granted;
        total.excess += of.counts.excess;
        total.late += of.counts.late;
        total.too_old += of.counts.too_old;
        total.unconfigured += of.counts.unconfigured;
        total.at_cap += of.counts.at_cap;
    }
    total
}

fn expected_counts(entry: &Entry, outcome: &model::log::RecordOutcome) -> Counts {
    let mut total = Counts::default();
    let Some(support::log::Input::Hits { entries, .. }) = &entry.input else {
        return total;
    };
    for (hit, ruling) in entries.iter().zip(&outcome.entries) {
        let copies = u64::from(hit.copies);
        total.entries += 1;
        match ruling {
            model::log::EntryRuling::Ruled { outcome, .. } => {
                total.granted += outcome.granted;
                total.excess += outcome.excess;
                total.late += outcome.late;
            }
            model::log::EntryRuling::NotRuled(why) => match why {
                model::log::NotRuled::TooOld => total.too_old += copies,
                model::log::NotRuled::Unconfigured => total.unconfigured += copies,
                model::log::NotRuled::AtCap => total.at_cap += copies,
                model::log::NotRuled::Duplicate | model::log::NotRuled::OlderThanWindow => {
                    total.entries -= 1
                }
            },
        }
    }
    total
}

fn agrees_with_the_model(rulings: &Rulings, entry: &Entry, outcome: &model::log::RecordOutcome) {
    let got = stated(&rulings.statements);
    let expected = expected_statements(&outcome.changes, &got);
    if let Some(support::log::Input::Limits(versions)) = &entry.input {
        // Several versions may change an end and change it back. The model states the result under
        // the last cause, where the engine does not repeat an end for another cause.
        let end = |denied: &Option<(u64, String)>| denied.as_ref().map(|(end_us, _)| *end_us);
        for (scope, denied) in &expected {
            assert_eq!(got.get(scope).map(end), Some(end(denied)), "{scope:?}");
        }
        assert!(1 < versions.len() || got.len() == expected.len());
    } else {
        assert_eq!(got, expected, "offset {}", entry.offset);
    }
    assert_eq!(total(rulings), expected_counts(entry, outcome));
    let due: BTreeMap<String, BTreeMap<(u64, bool), u64>> = rulings
        .totals_due
        .iter()
        .map(|due| {
            let parts = due.counted.iter();
            let part = |total: &Total| ((total.ms, total.unguarded), u64::from(total.copies));
            (due.resource.to_string(), parts.map(part).collect())
        })
        .collect();
    let mut expected = outcome.totals_due.clone();
    expected.retain(|_, parts| !parts.is_empty());
    assert_eq!(due, expected);
    let moved: i64 = rulings.corrections.iter().map(|c| c.moved_us).sum();
    assert_eq!(moved, outcome.moved_us);
    assert_eq!(rulings.fates == [Fate::TickIgnored], {
        matches!(entry.input, Some(support::log::Input::Tick)) && !outcome.tick_counted
    });
}

/// The denials in force are the scopes that the model holds for denied.
fn denials_are_the_models(engine: &Engine, slow: &model::PartitionModel) {
    let now = engine.now();
    let mut live: BTreeMap<(String, Option<String>), u64> = BTreeMap::new();
    for denial in engine.live_denials() {
        let scope = (
            denial.resource.to_string(),
            denial.domain.as_deref().map(str::to_owned),
        );
        live.insert(scope, denial.denial.end.as_micros());
    }
    for resource in RESOURCES {
        let domains = DOMAINS.map(Some).into_iter().chain([None]);
        for domain in domains {
            let end = match domain {
                Some(domain) => slow.denied_until(resource, domain),
                None => slow.whole_denied_until(resource),
            };
            let end = end.map(|end| match end {
                model::End::At(end_us) => end_us,
                model::End::Never => u64::MAX,
            });
            let expected = end.filter(|end_us| now < at(*end_us));
            let scope = (resource.to_owned(), domain.map(str::to_owned));
            assert_eq!(
                live.get(&scope).copied(),
                expected,
                "{scope:?} after {:?}",
                engine.applied_upto()
            );
        }
    }
}

proptest! {
    #![proptest_config(support::cases(1_500))]

    #[test]
    fn the_engine_rules_a_log_as_the_model_does(log in any_log()) {
        let mut engine = Engine::new(0, 1);
        let mut slow = model::PartitionModel::new();
        let mut rulings = Rulings::new();
        for entry in &log.entries {
            apply(&mut engine, entry, &log, &mut rulings);
            let Some(input) = &entry.input else { continue };
            let outcome = input.apply(entry, &log, &mut slow);
            agrees_with_the_model(&rulings, entry, &outcome);
            denials_are_the_models(&engine, &slow);
            prop_assert_eq!(engine.pairs(), slow.pairs_count());
        }
    }

    #[test]
    fn an_engine_restored_anywhere_rules_the_same(
        log in any_log(),
        cut in any::<prop::sample::Index>(),
        again in 0usize..5,
    ) {
        let cut = cut.index(log.entries.len());
        let mut engine = Engine::new(0, 1);
        let mut rulings = Rulings::new();
        for entry in &log.entries[..cut] {
            apply(&mut engine, entry, &log, &mut rulings);
        }
        let frozen = engine.freeze();
        let (mut expected, mut ends) = (Vec::new(), Vec::new());
        for entry in &log.entries[cut..] {
            apply(&mut engine, entry, &log, &mut rulings);
            expected.push((format!("{rulings:?}"), engine.digest()));
            ends.push(engine.live_denials().cloned().collect::<Vec<_>>());
        }
        // Written only now: records after the cut must not have affected it.
        let mut chunks = Vec::new();
        frozen.write(|chunk| chunks.push(chunk));
        let restored = Engine::restore(0, 1, &chunks, &log.versions);
        let mut engine = restored.unwrap_or_else(|fault| panic!("{fault}"));
        prop_assert_eq!(engine.digest(), frozen.digest());
        for entry in &log.entries[cut.saturating_sub(again)..cut] {
            apply(&mut engine, entry, &log, &mut rulings);
            prop_assert_eq!(&rulings.fates[..], &[Fate::AlreadyApplied][..]);
        }
        for (index, entry) in log.entries[cut..].iter().enumerate() {
            apply(&mut engine, entry, &log, &mut rulings);
            let (statements, digest) = &expected[index];
            prop_assert_eq!(&format!("{rulings:?}"), statements);
            prop_assert_eq!(engine.digest(), *digest);
            prop_assert_eq!(&engine.live_denials().cloned().collect::<Vec<_>>(), &ends[index]);
        }
    }
}
