//! Places: where in the log something was caused, and by that the order of all statements.
//!
//! A partition's log has an identity, so that offsets of a log that was made anew are never taken
//! for those of the old one. Knows nothing of what stands at a place.

use std::fmt;
use std::str::FromStr;

/// The identity of one partition's log: made once, restated by ticks.
///
/// Ordered by generation first. A higher generation voids all that was said under lower ones; the
/// random part tells two logs apart that were made independently with one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// How many times the log has been made anew.
    pub generation: u32,
    /// Drawn when the log was made; also the key of pair identities in it.
    pub random: u64,
}

/// A place in the log of one partition. Ordered along that log; the partition is not part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The log's generation (the random part of its id is known from the partition).
    pub generation: u32,
    /// The record's offset in the partition.
    pub offset: u64,
    /// The entry within the record; 0 where a record has none.
    pub entry: u32,
}

impl Place {
    /// The place of a record's first entry.
    pub const fn of_record(log: LogId, offset: u64) -> Self {
        Self {
            generation: log.generation,
            offset,
            entry: 0,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}.{}", self.offset, self.entry, self.generation)
    }
}

/// The short code that an agent gives with a refusal and by which its cause is found: a partition and
/// a place, written `partition-offset-entry-generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// The partition that ruled.
    pub partition: u32,
    /// The place in it.
    pub place: Place,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            generation,
            offset,
            entry,
        } = self.place;
        write!(f, "{}-{offset}-{entry}-{generation}", self.partition)
    }
}

/// What is wrong with the text of a [`Code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a code, expected four numbers as in `3-18250-0-1` (partition, offset, entry, generation)"
)]
pub struct CodeFault;

impl FromStr for Code {
    type Err = CodeFault;

    fn from_str(text: &str) -> Result<Self, CodeFault> {
        let mut parts = text.split('-');
        let mut part = || {
            parts
                .next()
                .and_then(|p| p.parse::<u64>().ok())
                .ok_or(CodeFault)
        };
        let (partition, offset, entry, generation) = (part()?, part()?, part()?, part()?);
        let small = |n: u64| u32::try_from(n).map_err(|_| CodeFault);
        let place = Place {
            generation: small(generation)?,
            offset,
            entry: small(entry)?,
        };
        match parts.next() {
            Some(_) => Err(CodeFault),
            None => Ok(Self {
                partition: small(partition)?,
                place,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_survives_being_written_down() {
        let place = Place {
            generation: 2,
            offset: u64::MAX,
            entry: 7,
        };
        let code = Code {
            partition: 3,
            place,
        };
        assert_eq!(code.to_string().parse(), Ok(code));
        for wrong in ["", "1-2-3", "1-2-3-4-5", "a-2-3-4", "1-2-4294967296-1"] {
            assert_eq!(wrong.parse::<Code>(), Err(CodeFault), "{wrong}");
        }
    }

    #[test]
    fn a_higher_generation_comes_after_everything_before_it() {
        let old = Place {
            generation: 1,
            offset: 900,
            entry: 3,
        };
        let new = Place {
            generation: 2,
            offset: 0,
            entry: 0,
        };
        assert!(old < new);
    }
}
