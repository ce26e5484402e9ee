//! Records and acts in the model's types: the same content, without types of the engine.

use super::*;

/// An act under the model's names.
fn for_the_model(act: &Act) -> model::log::Act {
    let here = || RESOURCES.map(str::to_owned).to_vec();
    let owned = |name: &str| name.to_owned();
    match act {
        Act::Reset { resource, domain } => model::log::Act::Reset {
            resource: owned(resource),
            domain: owned(domain),
        },
        Act::Pardon { resource, domain } => model::log::Act::Pardon {
            resource: owned(resource),
            domain: owned(domain),
        },
        Act::Refund {
            resource,
            domain,
            hits,
        } => model::log::Act::Refund {
            resource: owned(resource),
            domain: owned(domain),
            hits: *hits,
        },
        Act::Ban {
            resource,
            domain,
            until,
        } => model::log::Act::Ban {
            resource: resource.as_deref().map(owned),
            domain: owned(domain),
            here: here(),
            end: match *until {
                Timestamp::MAX => model::End::Never,
                until => model::End::At(until.as_micros()),
            },
        },
        Act::Unban { resource, domain } => model::log::Act::Unban {
            resource: resource.as_deref().map(owned),
            domain: owned(domain),
            here: here(),
        },
        other => panic!("{other:?} is none of the model's business"),
    }
}

impl Input {
    /// Applies the record to the model.
    pub fn apply(
        &self,
        entry: &Entry,
        log: &Log,
        slow: &mut model::PartitionModel,
    ) -> model::log::RecordOutcome {
        let (offset, appended_us) = (entry.offset, entry.appended.as_micros());
        match self {
            Self::Hits {
                agent,
                epoch,
                seq,
                sent_us,
                entries,
            } => slow.apply(&model::log::LogInput::Hits(model::log::HitsRecord {
                offset,
                appended_us,
                agent,
                epoch: *epoch,
                seq: *seq,
                sent_us: *sent_us,
                entries: entries
                    .iter()
                    .map(|hit| model::log::HitEntry {
                        resource: RESOURCES[hit.resource],
                        domain: DOMAINS[hit.domain],
                        at_us: at(*sent_us)
                            .saturating_offset(-(hit.age_us as i64))
                            .as_micros(),
                        n: u64::from(hit.copies),
                        kind: model::log::EntryKind::Hit,
                        unguarded: false,
                    })
                    .collect(),
            })),
            Self::Tick => slow.apply(&model::log::LogInput::Tick {
                offset,
                appended_us,
            }),
            Self::Totals {
                resource,
                source,
                granted,
            } => slow.apply(&model::log::LogInput::Totals {
                offset,
                totals: vec![model::log::Total {
                    resource,
                    source_partition: source.0,
                    source_offset: source.1,
                    parts: granted
                        .iter()
                        .map(|(ms, n)| model::log::TotalPart {
                            ms: *ms,
                            unguarded: false,
                            copies: u64::from(*n),
                        })
                        .collect(),
                }],
            }),
            Self::Amendments(acts) => {
                let mut all = model::log::RecordOutcome::default();
                for (version, act) in acts {
                    let outcome = slow.apply(&model::log::LogInput::Amendment {
                        offset,
                        appended_us,
                        version: *version,
                        act: for_the_model(act),
                    });
                    all.changes.extend(outcome.changes);
                }
                all
            }
            Self::Limits(versions) => slow.apply(&model::log::LogInput::Limits {
                offset,
                appended_us,
                versions: versions
                    .iter()
                    .map(|version| (*version, log.written[version].for_the_model()))
                    .collect(),
            }),
        }
    }
}
