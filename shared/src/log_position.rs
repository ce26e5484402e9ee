//! Log positions: where in the log a statement was caused, which also gives the order of all
//! statements.
//!
//! A partition's log has an identity, so that offsets of a recreated log are never confused with
//! those of the old one. Knows nothing of the record at a position.

use std::fmt;
use std::str::FromStr;

/// The identity of one partition's log: made once, repeated by ticks.
///
/// Ordered by generation first. A higher generation voids all statements under lower ones; the random
/// part distinguishes two logs that were created independently with one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// How many times the log was recreated.
    pub generation: u32,
    /// Drawn when the log was created; also the key of pair identities in it.
    pub random: u64,
}

/// A log position in one partition. Ordered along that log; the partition is not part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The log's generation (the random part of its id is known from the partition).
    pub generation: u32,
    /// The record's offset in the partition.
    pub offset: u64,
    /// The entry within the record; 0 for a record without entries.
    pub entry: u32,
}

impl LogPosition {
    /// The position of a record's first entry.
    pub const fn of_record(log: LogId, offset: u64) -> Self {
        Self {
            generation: log.generation,
            offset,
            entry: 0,
        }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}.{}", self.offset, self.entry, self.generation)
    }
}

/// The short code in an agent's refusal, by which its cause can be found: a partition and a log
/// position, written `partition-offset-entry-generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// The partition that ruled.
    pub partition: u32,
    /// The log position in it.
    pub position: LogPosition,
}

impl Code {
    /// The code of a log position.
    pub const fn new(partition: u32, position: LogPosition) -> Self {
        Self {
            partition,
            position,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogPosition {
            generation,
            offset,
            entry,
        } = self.position;
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
        let position = LogPosition {
            generation: small(generation)?,
            offset,
            entry: small(entry)?,
        };
        match parts.next() {
            Some(_) => Err(CodeFault),
            None => Ok(Self {
                partition: small(partition)?,
                position,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_survives_being_written_down() {
        let position = LogPosition {
            generation: 2,
            offset: u64::MAX,
            entry: 7,
        };
        let code = Code {
            partition: 3,
            position,
        };
        assert_eq!(code.to_string().parse(), Ok(code));
        for wrong in ["", "1-2-3", "1-2-3-4-5", "a-2-3-4", "1-2-4294967296-1"] {
            assert_eq!(wrong.parse::<Code>(), Err(CodeFault), "{wrong}");
        }
    }

    #[test]
    fn a_higher_generation_comes_after_everything_before_it() {
        let old = LogPosition {
            generation: 1,
            offset: 900,
            entry: 3,
        };
        let new = LogPosition {
            generation: 2,
            offset: 0,
            entry: 0,
        };
        assert!(old < new);
    }
}
