//! Records and acts in the model's types: the same content, without types of the engine.

use std::collections::BTreeSet;

use tollgate_limits::versions::names_pairs;
use tollgate_model::log;

use super::*;

/// An act under the model's names.
fn for_the_model(act: &Act) -> log::Act {
    let here = || RESOURCES.map(str::to_owned).to_vec();
    let owned = |name: &str| name.to_owned();
    match act {
        Act::Reset { resource, domain } => log::Act::Reset {
            resource: owned(resource),
            domain: owned(domain),
        },
        Act::Pardon { resource, domain } => log::Act::Pardon {
            resource: owned(resource),
            domain: owned(domain),
        },
        Act::Refund {
            resource,
            domain,
            hits,
        } => log::Act::Refund {
            resource: owned(resource),
            domain: owned(domain),
            hits: *hits,
        },
        Act::Ban {
            resource,
            domain,
            until,
        } => log::Act::Ban {
            resource: resource.as_deref().map(owned),
            domain: owned(domain),
            here: here(),
            end: match *until {
                Timestamp::MAX => model::End::Never,
                until => model::End::At(until.as_micros()),
            },
        },
        Act::Unban { resource, domain } => log::Act::Unban {
            resource: resource.as_deref().map(owned),
            domain: owned(domain),
            here: here(),
        },
        other => panic!("{other:?} is none of the model's business"),
    }
}

impl OneHit {
    fn for_the_model(&self, sent_us: u64) -> log::HitEntry<'static> {
        let stamp = at(sent_us).saturating_offset(-(self.age_us as i64));
        log::HitEntry {
            resource: RESOURCES[self.resource],
            domain: DOMAINS[self.domain],
            at_us: stamp.as_micros(),
            n: u64::from(self.copies),
            kind: log::EntryKind::Hit,
            unguarded: false,
        }
    }
}

fn part_for_the_model((ms, copies): &(u64, u32)) -> log::TotalPart {
    log::TotalPart {
        ms: *ms,
        unguarded: false,
        copies: u64::from(*copies),
    }
}

/// The pairs that rows name, each once.
fn pairs_of(act: &Act) -> Vec<(String, String)> {
    let pairs = act.rows().iter();
    let pairs = pairs.map(|row| (row.resource.to_string(), row.domain.to_string()));
    pairs.collect::<BTreeSet<_>>().into_iter().collect()
}

impl Input {
    /// Applies the record to the model.
    pub fn apply(
        &self,
        entry: &Entry,
        log: &Log,
        slow: &mut model::PartitionModel,
    ) -> log::RecordOutcome {
        let (offset, appended_us) = (entry.offset, entry.appended.as_micros());
        match self {
            Self::Hits {
                agent,
                epoch,
                seq,
                sent_us,
                entries,
            } => {
                let entries = entries.iter().map(|hit| hit.for_the_model(*sent_us));
                slow.apply(&log::LogInput::Hits(log::HitsRecord {
                    offset,
                    appended_us,
                    agent,
                    epoch: *epoch,
                    seq: *seq,
                    sent_us: *sent_us,
                    entries: entries.collect(),
                }))
            }
            Self::Tick => slow.apply(&log::LogInput::Tick {
                offset,
                appended_us,
            }),
            Self::Totals {
                resource,
                source,
                granted,
            } => slow.apply(&log::LogInput::Totals {
                offset,
                totals: vec![log::Total {
                    resource,
                    source_partition: source.0,
                    source_offset: source.1,
                    parts: granted.iter().map(part_for_the_model).collect(),
                }],
            }),
            Self::Amendments(acts) => {
                let mut all = log::RecordOutcome::default();
                for (version, act) in acts {
                    let outcome = slow.apply(&log::LogInput::Amendment {
                        offset,
                        appended_us,
                        version: *version,
                        act: for_the_model(act),
                    });
                    all.changes.extend(outcome.changes);
                }
                all
            }
            Self::Limits(versions) => apply_versions(entry, versions, log, slow),
        }
    }
}

/// Versions of one activation: one by one, if any of them is of rows that name pairs.
fn apply_versions(
    entry: &Entry,
    versions: &[u64],
    log: &Log,
    slow: &mut model::PartitionModel,
) -> log::RecordOutcome {
    let (offset, appended_us) = (entry.offset, entry.appended.as_micros());
    let of = |version| (version, log.written[&version].for_the_model());
    let pairs_of = |version: &u64| {
        let act = log.versions.rows.get(version);
        act.filter(|act| names_pairs(act)).map(|act| pairs_of(act))
    };
    if versions.iter().all(|version| pairs_of(version).is_none()) {
        return slow.apply(&log::LogInput::Limits {
            offset,
            appended_us,
            versions: versions.iter().copied().map(of).collect(),
        });
    }
    let mut all = log::RecordOutcome::default();
    for version in versions {
        let input = match pairs_of(version) {
            None => log::LogInput::Limits {
                offset,
                appended_us,
                versions: vec![of(*version)],
            },
            Some(pairs) => log::LogInput::Rows {
                offset,
                appended_us,
                version: *version,
                limits: of(*version).1,
                pairs,
            },
        };
        all.changes.extend(slow.apply(&input).changes);
    }
    all
}
