//! The record of one call: an event in a few 64-bit words.
//!
//! ```text
//! hit      [stamp (us)] [resource:32 | length:16 | unguarded:1 | kind:3 | cause:12] [domain, eight bytes a word]
//! bulk     the same, with [copies:32 | min:32] before the domain
//! charge   the same, with [copies:32 | 0] before the domain
//! refund   the same, with [estimated:32 | actual:32] [stamp of the estimate (us)] before the domain
//! refused  the same, with [copies:32 | generation:32] [offset] [entry] before the domain
//! ```
//!
//! Words, because a ring of words takes an event with one copy of memory. Knows nothing of threads. What stays true:
//! an event is read as it was written.

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::NAME_BYTES_MAX;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::Cause;

use crate::resource::ResourceId;

/// The most words of an event.
pub(super) const WORDS_MAX: usize = 5 + NAME_BYTES_MAX.div_ceil(8);

const HIT: u64 = 0;
const BULK: u64 = 1;
const REFUSED: u64 = 2;
const REFUSED_AT: u64 = 3;
const CHARGE: u64 = 4;
const REFUND: u64 = 5;
const ESTIMATE: u64 = 6;

/// The bit of a head that marks the call as unguarded.
const UNGUARDED_BIT: u32 = 15;

/// What happened to a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// The call was let through.
    Hit {
        /// The copies.
        copies: u32,
        /// The least number of copies that was useful, if less than all.
        min: Option<u32>,
        /// Whether it is known to be unguarded: the agent was blind, or denials were ignored. The packer finds the
        /// other reasons.
        unguarded: bool,
    },
    /// The call was let through and charged by an estimate: a settlement may follow.
    Estimate {
        /// The estimated copies.
        copies: u32,
        /// As for a hit.
        unguarded: bool,
    },
    /// A cost that was known only afterwards.
    Charge {
        /// The copies.
        copies: u32,
    },
    /// The cost was lower than the estimate.
    Refund {
        /// The copies charged; more than the actual cost.
        estimated: u32,
        /// The actual cost.
        actual: u32,
        /// The stamp under which the estimate was recorded.
        made: Timestamp,
    },
    /// The call was refused.
    Refused {
        /// The copies that the call asked for.
        copies: u32,
        /// The cause of the refusal.
        cause: Cause,
        /// The log position of the denial, if a statement refused the call.
        position: Option<LogPosition>,
    },
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecorderEvent<'a> {
    pub(crate) resource: ResourceId,
    pub(crate) domain: &'a str,
    pub(crate) at: Timestamp,
    pub(crate) happened: Happened,
}

/// Room for the words of one event.
pub(super) struct EventWords {
    words: [u64; WORDS_MAX],
    len: usize,
}

impl EventWords {
    pub(super) const fn new() -> Self {
        Self {
            words: [0; WORDS_MAX],
            len: 0,
        }
    }

    pub(super) fn as_slice(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn push(&mut self, word: u64) {
        if let Some(slot) = self.words.get_mut(self.len) {
            *slot = word;
            self.len += 1;
        }
    }

    /// Writes an event over the previous one.
    #[inline]
    pub(super) fn write(&mut self, event: &RecorderEvent<'_>) {
        self.len = 0;
        let head = u64::from(event.resource.0) << 32 | (event.domain.len() as u64) << 16;
        self.push(event.at.as_micros());
        match event.happened {
            Happened::Hit {
                copies: 1,
                min: None,
                unguarded,
            } => self.push(head | HIT << 12 | u64::from(unguarded) << UNGUARDED_BIT),
            Happened::Hit {
                copies,
                min,
                unguarded,
            } => {
                self.push(head | BULK << 12 | u64::from(unguarded) << UNGUARDED_BIT);
                self.push(u64::from(copies) << 32 | u64::from(min.unwrap_or(0)));
            }
            Happened::Estimate { copies, unguarded } => {
                self.push(head | ESTIMATE << 12 | u64::from(unguarded) << UNGUARDED_BIT);
                self.push(u64::from(copies) << 32);
            }
            Happened::Charge { copies } => {
                self.push(head | CHARGE << 12);
                self.push(u64::from(copies) << 32);
            }
            Happened::Refund {
                estimated,
                actual,
                made,
            } => {
                self.push(head | REFUND << 12);
                self.push(u64::from(estimated) << 32 | u64::from(actual));
                self.push(made.as_micros());
            }
            Happened::Refused {
                copies,
                cause,
                position,
            } => {
                let kind = if position.is_some() {
                    REFUSED_AT
                } else {
                    REFUSED
                };
                let position = position.unwrap_or_default();
                self.push(head | kind << 12 | u64::from(number_of(cause)));
                self.push(u64::from(copies) << 32 | u64::from(position.generation));
                self.push(position.offset);
                self.push(u64::from(position.entry));
            }
        }
        let (eights, rest) = event.domain.as_bytes().as_chunks::<8>();
        for eight in eights {
            self.push(u64::from_le_bytes(*eight));
        }
        if !rest.is_empty() {
            self.push(last_word(event.domain.as_bytes(), rest));
        }
    }
}

/// The bytes after the last whole word, as a word.
#[inline]
fn last_word(all: &[u8], rest: &[u8]) -> u64 {
    match all.last_chunk::<8>() {
        // Ends with the same bytes, and takes one read.
        Some(last) => u64::from_le_bytes(*last) >> (u64::BITS - 8 * rest.len() as u32),
        None => rest
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Reads events, one after the other.
#[derive(Debug)]
pub(super) struct EventReader<'w> {
    words: std::slice::Iter<'w, u64>,
}

impl<'w> EventReader<'w> {
    pub(super) fn new(words: &'w [u64]) -> Self {
        Self {
            words: words.iter(),
        }
    }

    /// The next event; `room` receives its domain. `None` at the end, and for an invalid event.
    pub(super) fn next<'r>(&mut self, room: &'r mut Vec<u8>) -> Option<RecorderEvent<'r>> {
        let at = Timestamp::from_micros(*self.words.next()?);
        let head = *self.words.next()?;
        let unguarded = head >> UNGUARDED_BIT & 1 == 1;
        let happened = match head >> 12 & 0x7 {
            HIT => Happened::Hit {
                copies: 1,
                min: None,
                unguarded,
            },
            ESTIMATE => Happened::Estimate {
                copies: (*self.words.next()? >> 32) as u32,
                unguarded,
            },
            CHARGE => Happened::Charge {
                copies: (*self.words.next()? >> 32) as u32,
            },
            REFUND => {
                let both = *self.words.next()?;
                Happened::Refund {
                    estimated: (both >> 32) as u32,
                    actual: both as u32,
                    made: Timestamp::from_micros(*self.words.next()?),
                }
            }
            BULK => {
                let both = *self.words.next()?;
                let min = both as u32;
                Happened::Hit {
                    copies: (both >> 32) as u32,
                    min: (min != 0).then_some(min),
                    unguarded,
                }
            }
            kind => {
                let both = *self.words.next()?;
                let position = LogPosition {
                    generation: both as u32,
                    offset: *self.words.next()?,
                    entry: *self.words.next()? as u32,
                };
                Happened::Refused {
                    copies: (both >> 32) as u32,
                    cause: cause_of((head & 0xfff) as u16),
                    position: (kind == REFUSED_AT).then_some(position),
                }
            }
        };
        let len = (head >> 16 & 0xffff) as usize;
        room.clear();
        while room.len() < len {
            room.extend_from_slice(&self.words.next()?.to_le_bytes());
        }
        room.truncate(len);
        // The bytes were written from a `str`.
        let domain = std::str::from_utf8(room).ok()?;
        Some(RecorderEvent {
            resource: ResourceId((head >> 32) as u32),
            domain,
            at,
            happened,
        })
    }
}

fn number_of(cause: Cause) -> u16 {
    match cause {
        Cause::Tier(tier) => 256 + u16::from(tier),
        Cause::Window(window) => 512 + u16::from(window),
        Cause::Quota(quota) => 768 + u16::from(quota),
        Cause::Bucket => 8,
        Cause::TooMany => 9,
        Cause::NotRate => 10,
        Cause::Hard => 1,
        Cause::Global => 2,
        Cause::Inaccessible => 3,
        Cause::Unconfigured => 4,
        Cause::Full => 6,
        Cause::Banned => 7,
        // Also for causes that a later release may add, until this release learns them.
        _ => 5,
    }
}

fn cause_of(number: u16) -> Cause {
    match number {
        1 => Cause::Hard,
        2 => Cause::Global,
        3 => Cause::Inaccessible,
        4 => Cause::Unconfigured,
        6 => Cause::Full,
        7 => Cause::Banned,
        8 => Cause::Bucket,
        9 => Cause::TooMany,
        10 => Cause::NotRate,
        256..=511 => Cause::Tier((number - 256) as u8),
        512..=767 => Cause::Window((number - 512) as u8),
        768..=1023 => Cause::Quota((number - 768) as u8),
        _ => Cause::Blind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn happened() -> impl Strategy<Value = Happened> {
        let cause = prop_oneof![
            any::<u8>().prop_map(Cause::Tier),
            any::<u8>().prop_map(Cause::Window),
            any::<u8>().prop_map(Cause::Quota),
            prop::sample::select(vec![
                Cause::Hard,
                Cause::Global,
                Cause::Inaccessible,
                Cause::Unconfigured,
                Cause::Blind,
                Cause::Full,
                Cause::Banned,
                Cause::Bucket,
                Cause::TooMany,
                Cause::NotRate,
            ]),
        ];
        let position =
            (any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(generation, offset, entry)| {
                LogPosition {
                    generation,
                    offset,
                    entry,
                }
            });
        prop_oneof![
            (1..=u32::MAX, prop::option::of(1..=u32::MAX), any::<bool>()).prop_map(
                |(copies, min, unguarded)| Happened::Hit {
                    copies,
                    min,
                    unguarded,
                }
            ),
            (1..=u32::MAX).prop_map(|copies| Happened::Charge { copies }),
            (1..=u32::MAX, any::<bool>())
                .prop_map(|(copies, unguarded)| Happened::Estimate { copies, unguarded }),
            (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(estimated, actual, made)| {
                Happened::Refund {
                    estimated,
                    actual,
                    made: Timestamp::from_micros(made),
                }
            }),
            (any::<u32>(), cause, prop::option::of(position)).prop_map(
                |(copies, cause, position)| {
                    Happened::Refused {
                        copies,
                        cause,
                        position,
                    }
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn written_events_are_read_back(
            events in prop::collection::vec((any::<u32>(), "\\PC{0,64}", any::<u64>(), happened()), 0..20),
        ) {
            let mut ring = Vec::new();
            let mut words = EventWords::new();
            for (resource, domain, at, happened) in &events {
                words.write(&RecorderEvent {
                    resource: ResourceId(*resource),
                    domain,
                    at: Timestamp::from_micros(*at),
                    happened: *happened,
                });
                ring.extend_from_slice(words.as_slice());
            }
            let mut reader = EventReader::new(&ring);
            let mut room = Vec::new();
            for (resource, domain, at, happened) in &events {
                let read = reader.next(&mut room).expect("as many as were written");
                prop_assert_eq!(read, RecorderEvent {
                    resource: ResourceId(*resource),
                    domain,
                    at: Timestamp::from_micros(*at),
                    happened: *happened,
                });
            }
            prop_assert!(reader.next(&mut room).is_none());
        }
    }

    #[test]
    fn the_longest_domain_has_room() {
        let domain = "x".repeat(NAME_BYTES_MAX);
        let mut words = EventWords::new();
        let event = RecorderEvent {
            resource: ResourceId(1),
            domain: &domain,
            at: Timestamp::ZERO,
            happened: Happened::Refused {
                copies: 1,
                cause: Cause::Hard,
                position: Some(LogPosition::default()),
            },
        };
        words.write(&event);
        assert_eq!(words.as_slice().len(), WORDS_MAX);
        assert_eq!(
            EventReader::new(words.as_slice()).next(&mut Vec::new()),
            Some(event)
        );
    }
}
