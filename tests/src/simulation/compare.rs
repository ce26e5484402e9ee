//! Compares the engine's answer to a record with the model's.
//!
//! Engine and model share no type, so everything is converted into one form here. Compared are the statements
//! about each scope of a rate (the end of its denial and the cause), the
//! results for a record's entries, resource by resource, the totals that are due, the sum of the corrections of
//! stamps, and whether a tick counted. Not compared is what the model does not know: copies, refused calls,
//! candidates. Nor is it compared which entry of a resource had which part of its counts, and the results of
//! totalled hits: the statements show those.

use std::collections::BTreeMap;

use tollgate_engine::engine::{Counts, Engine, Fate, ResourceCounts, ResourceStatement, Rulings};
use tollgate_model as model;
use tollgate_model::log::{EntryRuling, NotRuled, RecordOutcome, TotalRuling};
use tollgate_replay::model_check::cause_to_wire;
use tollgate_shared::wire::hits::Hit;
use tollgate_shared::wire::record::{Record, Total};
use tollgate_shared::wire::statement::{Cause, Scope, StatementKind};

use super::accounts::{Sums, pair_of};
use super::copy_limits::COPIES;
use super::coverage::Coverage;
use super::documents::DOMAINS;

/// The time of each pair: the greatest instant among its entries.
pub type Times = Sums;

type ScopeName = (String, Option<String>);
/// The last statement about each scope: its end (`None`: open) and cause.
type Stated = BTreeMap<ScopeName, Option<(u64, Cause)>>;
/// The results for entries, by resource.
type CountsOf = BTreeMap<String, Counts>;

/// The instant of an end; a denial that never ends has the greatest instant.
pub fn end_us(end: model::End) -> u64 {
    match end {
        model::End::At(end_us) => end_us,
        model::End::Never => u64::MAX,
    }
}

/// Compares the rulings of one record.
///
/// # Errors
///
/// If they differ.
pub fn rulings(
    record: &Record<'_>,
    rulings: &Rulings,
    outcome: &RecordOutcome,
) -> Result<(), String> {
    let got = stated(&rulings.statements);
    let expected = expected(outcome);
    if !same(&got, &expected) {
        return Err(format!("statements {got:?}, the model: {expected:?}"));
    }
    if let Record::Hits(batch) = record {
        // A downward settlement that is not ruled brings no copies.
        let copies = |hit: &Hit<'_>| if hit.is_refund() { 0 } else { hit.total() };
        let hits = batch.hits().iter();
        let entries = hits.map(|hit| (batch.resource(hit.resource), copies(hit)));
        let (got, expected) = (
            counts(&rulings.counts),
            expected_counts(entries, &outcome.entries),
        );
        if got != expected {
            return Err(format!("counts {got:?}, the model: {expected:?}"));
        }
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
        if due != expected {
            return Err(format!("totals due {due:?}, the model: {expected:?}"));
        }
        let moved: i64 = rulings.corrections.iter().map(|one| one.moved_us).sum();
        if moved != outcome.moved_us {
            return Err(format!(
                "stamps moved {moved}, the model: {}",
                outcome.moved_us
            ));
        }
    }
    if let Record::Tick(_) = record {
        let ignored = rulings.fates == [Fate::TickIgnored];
        if ignored == outcome.tick_counted {
            return Err(format!("tick ignored: {ignored}, the model otherwise"));
        }
    }
    Ok(())
}

/// Compares statements. The model has no separate cause for a resource without tiers.
fn same(got: &Stated, expected: &Stated) -> bool {
    got.len() == expected.len()
        && got.iter().zip(expected).all(|((scope, one), (of, other))| {
            scope == of
                && match (one, other) {
                    (Some((end, Cause::Inaccessible)), Some((never, _))) => {
                        end == never && *never == u64::MAX
                    }
                    (one, other) => one == other,
                }
        })
}

fn stated(said: &[ResourceStatement]) -> Stated {
    let mut stated = Stated::new();
    // The model knows nothing of copies.
    let of_rates = |said: &&ResourceStatement| !COPIES.contains(&&*said.resource);
    for said in said.iter().filter(of_rates) {
        let domain = match &said.statement.scope {
            Scope::Pair(domain) => Some(domain.to_string()),
            Scope::Resource | Scope::Group(_) => None,
        };
        let denied = match &said.statement.kind {
            StatementKind::Denied(denial) => Some((denial.end.as_micros(), denial.cause)),
            StatementKind::Lifted => None,
        };
        stated.insert((said.resource.to_string(), domain), denied);
    }
    stated
}

fn expected(outcome: &RecordOutcome) -> Stated {
    let mut stated = Stated::new();
    for change in &outcome.changes {
        let denied = change
            .denied
            .map(|denial| (end_us(denial.end), cause_to_wire(denial.cause)));
        let scope = &change.scope;
        stated.insert((scope.resource.clone(), scope.domain.clone()), denied);
    }
    stated
}

/// The results for each resource's entries, without resources of which nothing counts.
fn counts(all: &[ResourceCounts]) -> CountsOf {
    let mut by_resource = CountsOf::new();
    for of in all {
        let total = by_resource.entry(of.resource.to_string()).or_default();
        total.entries += of.counts.entries;
        total.granted += of.counts.granted;
        total.excess += of.counts.excess;
        total.late += of.counts.late;
        total.too_old += of.counts.too_old;
        total.unconfigured += of.counts.unconfigured;
        total.at_cap += of.counts.at_cap;
        total.misrouted += of.counts.misrouted;
    }
    by_resource.retain(|_, total| *total != Counts::default());
    by_resource
}

/// The same from the model's answer, for entries with their resources and copies.
fn expected_counts<'a>(
    entries: impl Iterator<Item = (&'a str, u64)>,
    rulings: &[EntryRuling],
) -> CountsOf {
    let mut by_resource = CountsOf::new();
    for ((resource, copies), ruling) in entries.zip(rulings) {
        let total = by_resource.entry(resource.to_owned()).or_default();
        total.entries += 1;
        match ruling {
            EntryRuling::Ruled { outcome, .. } => {
                total.granted += outcome.granted;
                total.excess += outcome.excess;
                total.late += outcome.late;
            }
            EntryRuling::NotRuled(why) => match why {
                NotRuled::TooOld => total.too_old += copies,
                NotRuled::Unconfigured => total.unconfigured += copies,
                NotRuled::AtCap => total.at_cap += copies,
                NotRuled::Duplicate | NotRuled::OlderThanWindow => total.entries -= 1,
            },
        }
    }
    by_resource.retain(|_, total| *total != Counts::default());
    by_resource
}

/// Compares the number of pairs, and so which were added and evicted. The model does not
/// know banned pairs of copies.
///
/// # Errors
///
/// If the numbers differ.
pub fn pairs(engine: &Engine, model: &model::PartitionModel) -> Result<(), String> {
    let (pairs, expected) = (engine.pairs(), model.pairs_count());
    if pairs == expected {
        return Ok(());
    }
    let of_copies = COPIES.iter().map(|resource| {
        let known = |domain: &&&str| engine.pair(resource, domain).is_some();
        DOMAINS.iter().filter(known).count() as u64
    });
    let of_copies: u64 = of_copies.sum();
    if pairs == expected + of_copies {
        return Ok(());
    }
    Err(format!(
        "{pairs} pairs, {of_copies} of them of copies; the model: {expected}"
    ))
}

/// Counts what the record covered.
pub fn cover(
    record: &Record<'_>,
    outcome: &RecordOutcome,
    rulings: &Rulings,
    times: &mut Times,
    cover: &mut Coverage,
) {
    for ruling in &outcome.entries {
        match ruling {
            EntryRuling::Ruled { outcome, .. } => {
                cover.add("hit excess", outcome.excess);
                let late = match outcome.tier {
                    0 => "late hit with no tier",
                    _ => "late hit older than its tier's entry",
                };
                cover.add(late, outcome.late);
            }
            EntryRuling::NotRuled(NotRuled::Duplicate) => cover.see("batch duplicate"),
            EntryRuling::NotRuled(NotRuled::TooOld) => cover.see("hit too old"),
            EntryRuling::NotRuled(NotRuled::AtCap) => cover.see("pair at the cap"),
            EntryRuling::NotRuled(_) => {}
        }
    }
    if let Record::Hits(batch) = record {
        cover_requests(batch, outcome, times, cover);
    }
    for ruling in &outcome.totals {
        match ruling {
            TotalRuling::Ruled { .. } => cover.see("total applied"),
            TotalRuling::OutOfOrder => cover.see("total out of order"),
            _ => {}
        }
    }
    let by_version = matches!(record, Record::LimitsActivation(_));
    let denials = outcome.changes.iter().filter_map(|change| change.denied);
    for denial in denials.filter(|_| !by_version) {
        cover.see(match denial.cause {
            model::Cause::Hard => "denial by hard limit",
            model::Cause::Global => "denial by global limit",
            model::Cause::Tier(_) => "denial by tier",
            model::Cause::Banned => "denial by ban",
            model::Cause::Window(_) => "denial by window",
            model::Cause::Quota(_) => "denial by quota",
            model::Cause::Bucket => "denial by bucket",
        });
        cover.see_if("denial for ever", denial.end == model::End::Never);
    }
    cover.see_if("stamps corrected", outcome.moved_us != 0);
    cover.see_if("tick ignored", rulings.fates == [Fate::TickIgnored]);
}

fn cover_requests(
    batch: &tollgate_shared::wire::hits::HitBatch<'_>,
    outcome: &RecordOutcome,
    times: &mut Times,
    cover: &mut Coverage,
) {
    for (hit, ruling) in batch.hits().iter().zip(&outcome.entries) {
        let EntryRuling::Ruled { at_us, outcome } = ruling else {
            continue;
        };
        if let Some((r, d)) = pair_of(batch.resource(hit.resource), hit.domain) {
            let time = &mut times[r][d];
            if *at_us < *time && 0 < outcome.granted {
                cover.see("hit granted late");
            }
            *time = (*time).max(*at_us);
        }
        if hit.min.is_some() && outcome.granted == 0 {
            cover.see("request with a minimum refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_two_resources_are_not_confused() {
        let of = |resource: &str, entries, too_old| ResourceCounts {
            resource: resource.into(),
            counts: Counts {
                entries,
                too_old,
                ..Counts::default()
            },
        };
        let rulings = [
            EntryRuling::NotRuled(NotRuled::TooOld),
            EntryRuling::NotRuled(NotRuled::TooOld),
            EntryRuling::NotRuled(NotRuled::Duplicate),
        ];
        let expected = |of: [(&'static str, u64); 3]| expected_counts(of.into_iter(), &rulings);
        let said = counts(&[of("a", 1, 3), of("b", 1, 2)]);
        assert_eq!(said, expected([("a", 3), ("b", 2), ("c", 7)]));
        // The sums are the same.
        assert_ne!(said, expected([("a", 2), ("b", 3), ("c", 7)]));
        assert_ne!(said, expected([("a", 3), ("a", 2), ("c", 7)]));
    }
}
