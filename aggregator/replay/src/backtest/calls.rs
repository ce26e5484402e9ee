//! The calls in the records of a log of Tollgate's own.
//!
//! ```text
//! record ──► batch ──► let through, estimated, charged, refunded: one call each
//!                      refused: spread between the first and the last
//!            holds     no calls: see `copies`
//! ```
//!
//! Knows nothing of tapes and limits. What stays true: calls have the instants by which aggregators rule them, see
//! [`Clock`]; no call is later than the log took its record.

use tollgate_engine::engine::Clock;
use tollgate_log::Delivered;
use tollgate_shared::time::Span;
use tollgate_shared::wire::DecodeError;
use tollgate_shared::wire::hits::{HitBatch, HitKind, Refused, Sender};
use tollgate_shared::wire::record::Record;

use super::copies::CopiesLeftOut;
use super::log::LogFault;
use super::tape::{Call, CallKind};
use crate::tags::Tags;

/// The calls of a record of the hits stream.
pub enum Calls<'a> {
    /// The calls of an agent.
    Batch(HitBatch<'a>),
    /// Holds of an agent, whose records are numbered together with its calls.
    Holds {
        /// The agent, and the record's number.
        sender: Sender<'a>,
        /// Resources, which are limited by copies.
        resources: Vec<&'a str>,
    },
    /// The log's time goes on.
    Tick,
    /// The record is about something else.
    None,
    /// It cannot be read. Aggregators keep such a record as a dead letter and go on.
    Unreadable(DecodeError),
}

impl<'a> Calls<'a> {
    /// The calls of a record.
    ///
    /// # Errors
    ///
    /// [`LogFault::Newer`] for an unknown kind that must not be skipped. A record that no aggregator wrote
    /// is skipped, as aggregators do.
    pub fn of(partition: u32, delivered: &'a Delivered, tags: &Tags) -> Result<Self, LogFault> {
        match Record::decode(&delivered.bytes) {
            Ok(Record::Hits(batch)) => Ok(Self::Batch(batch)),
            Ok(Record::Holds(holds)) => Ok(Self::Holds {
                sender: holds.sender,
                resources: holds.resources().to_vec(),
            }),
            Ok(Record::Heartbeat(holds)) => Ok(Self::Holds {
                sender: holds.sender,
                resources: holds.resources().to_vec(),
            }),
            Ok(Record::Unknown {
                skippable: false,
                kind,
            }) if tags.are_good(&delivered.bytes, partition) => Err(LogFault::Newer {
                partition,
                offset: delivered.offset,
                kind,
            }),
            Ok(Record::Tick(_)) if tags.are_good(&delivered.bytes, partition) => Ok(Self::Tick),
            Ok(_) => Ok(Self::None),
            Err(error) => Ok(Self::Unreadable(error)),
        }
    }
}

/// More points than this within one flush add no information.
const POINTS_MAX: u64 = 1_024;

/// More calls of one pair than an agent makes in a tenth of a second, after which it reports them. Without this bound a
/// short record would be any number of calls on the tape.
const CALLS_MAX: u64 = 65_536;

/// Passes the calls of a batch to `each`, by its agent's clock, with their resources and domains; pair numbers are not
/// known. Refused reservations of copies are left out. Returns how many other calls were left out, since an entry
/// states more than anybody makes.
///
/// # Errors
///
/// The first error of `each`.
pub fn calls_of<E>(
    batch: &HitBatch<'_>,
    clock: Clock,
    copies: &mut CopiesLeftOut,
    each: &mut dyn FnMut(&str, &str, Call) -> Result<(), E>,
) -> Result<u64, E> {
    let mut left_out = 0;
    for hit in batch.hits().iter() {
        let call = Call {
            at: clock.instant(hit.at),
            pair: 0,
            copies: hit.copies,
            // Without a stated minimum, the caller needs all copies.
            min: hit.min.unwrap_or(hit.copies),
            kind: match hit.kind {
                HitKind::Hit => CallKind::LetThrough,
                HitKind::Charge => CallKind::Charge,
                HitKind::Estimate => CallKind::Estimate { stamp: hit.at },
                HitKind::Refund { made, actual, .. } => CallKind::Refund {
                    stamp: made,
                    actual,
                },
            },
        };
        let calls = u64::from(hit.calls);
        left_out += calls.saturating_sub(CALLS_MAX);
        for _ in 0..calls.min(CALLS_MAX) {
            each(batch.resource(hit.resource), hit.domain, call)?;
        }
    }
    for refused in batch.refused() {
        if copies.leaves_out(batch.resource(refused.resource), &refused) {
            continue;
        }
        left_out = refused
            .calls
            .saturating_sub(spread_calls(&refused))
            .saturating_add(left_out);
        for call in spread(&refused, clock) {
            each(batch.resource(refused.resource), refused.domain, call)?;
        }
    }
    Ok(left_out)
}

/// How many of some refused calls are played.
fn spread_calls(refused: &Refused<'_>) -> u64 {
    // Calls of one hit share an entry, which has room for so many.
    let calls_max = match refused.copies <= refused.calls {
        true => POINTS_MAX * u64::from(u32::MAX),
        false => CALLS_MAX,
    };
    refused.calls.min(calls_max)
}

/// Refused calls of which only the first and the last instant are known, as calls spread between them.
fn spread<'a>(refused: &Refused<'a>, clock: Clock) -> impl Iterator<Item = Call> + use<'a> {
    let [first, last] = [refused.first, refused.last].map(|stamp| clock.instant(stamp));
    let (calls, lasted) = (refused.calls, last.since(first).as_micros());
    let each = u32::try_from(refused.copies / calls.max(1)).unwrap_or(u32::MAX);
    // What does not divide evenly is asked for by as many calls, one copy more each.
    let more = match each {
        0 => 0,
        _ => refused.copies % calls.max(1),
    };
    let each = each.max(1);
    let calls = spread_calls(refused);
    let points = calls.min(POINTS_MAX);
    let call = move |number: u64, copies, min| {
        let part = u128::from(lasted) * u128::from(number) / u128::from((points - 1).max(1));
        Call {
            at: first.saturating_add(Span::from_micros(part as u64)),
            pair: 0,
            copies,
            min,
            kind: CallKind::Refused,
        }
    };
    (0..points).flat_map(move |number| {
        let here = calls / points + u64::from(number < calls % points);
        let before = number * (calls / points) + number.min(calls % points);
        let larger = more.saturating_sub(before).min(here);
        // Calls of one hit share an entry; calls of several copies get one entry each.
        let entries = move |calls: u64, copies: u32| {
            let (entries, copies, min) = match (calls, copies) {
                (1.., 1) => (1, u32::try_from(calls).unwrap_or(u32::MAX), 0),
                (calls, copies) => (calls, copies, copies),
            };
            std::iter::repeat_n(call(number, copies, min), entries as usize)
        };
        entries(larger, each.saturating_add(1)).chain(entries(here - larger, each))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::statement::Cause;

    #[test]
    fn refused_calls_are_spread_evenly_without_loss() {
        let refused = |calls, copies| Refused {
            resource: 0,
            domain: "d",
            calls,
            copies,
            first: Timestamp::from_micros(1_000),
            last: Timestamp::from_micros(4_000),
            cause: Cause::Hard,
            position: None,
        };
        let of = |calls, copies| -> Vec<(u64, u32, u32)> {
            let right = Clock {
                move_us: 0,
                appended: Timestamp::MAX,
            };
            let calls = spread(&refused(calls, copies), right);
            let calls = calls.map(|call| (call.at.as_micros(), call.copies, call.min));
            calls.collect()
        };
        assert_eq!(of(1, 1), [(1_000, 1, 0)]);
        assert_eq!(of(3, 3), [(1_000, 1, 0), (2_500, 1, 0), (4_000, 1, 0)]);
        assert_eq!(of(2, 10), [(1_000, 5, 5), (4_000, 5, 5)]);
        assert_eq!(of(3, 10), [(1_000, 4, 4), (2_500, 3, 3), (4_000, 3, 3)]);
        assert_eq!(of(2, 3), [(1_000, 2, 2), (4_000, 1, 0)]);
        let copies = |entries: &[(u64, u32, u32)]| -> u64 {
            entries
                .iter()
                .map(|(_, copies, _)| u64::from(*copies))
                .sum()
        };
        assert_eq!(copies(&of(3_000, 4_999)), 4_999);
        let many = of(5_000, 5_000);
        assert_eq!(
            many.iter()
                .map(|(_, calls, _)| u64::from(*calls))
                .sum::<u64>(),
            5_000
        );
        assert_eq!((many[0].0, many[many.len() - 1].0), (1_000, 4_000));
    }

    #[test]
    fn a_report_of_more_calls_than_anybody_makes_gives_few_entries() {
        let refused = Refused {
            resource: 0,
            domain: "d",
            calls: 1 << 40,
            copies: 1 << 41,
            first: Timestamp::ZERO,
            last: Timestamp::ZERO,
            cause: Cause::Hard,
            position: None,
        };
        let right = Clock {
            move_us: 0,
            appended: Timestamp::MAX,
        };
        let entries = spread(&refused, right).take(1 << 20).count();
        assert!(entries < 1 << 20, "{entries}");
    }
}
