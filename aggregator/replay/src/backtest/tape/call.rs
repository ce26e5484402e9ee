//! A recorded call, and the bytes that it has in a run on the disk.
//!
//! Knows nothing of order. What stays true: every call reads back as it was written.

use tollgate_shared::time::Timestamp;

/// Bytes of a written call.
pub(super) const CALL_BYTES: usize = 36;

/// One recorded call, or several of one hit each at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its stamp.
    pub at: Timestamp,
    /// The number of its pair.
    pub pair: u32,
    /// How many hits it asked for.
    pub copies: u32,
    /// The least number of hits that was of use; 0: these are `copies` calls of one hit each.
    pub min: u32,
    /// What became of it.
    pub kind: CallKind,
}

/// What became of a call when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// It was let through.
    LetThrough,
    /// It was refused.
    Refused,
    /// It was let through and charged by an estimate, which may be settled.
    Estimate {
        /// As its agent stamped it, by which a settlement names it.
        stamp: Timestamp,
    },
    /// No call: a cost that was known only afterwards. It has been spent, so it counts whether there is room or not.
    Charge,
    /// No call: copies of an estimate are given back. They were not charged if the estimate is refused here.
    Refund {
        /// The stamp of the estimate.
        stamp: Timestamp,
        /// The actual cost, which stays charged.
        actual: u32,
    },
}

impl Call {
    /// How many calls this entry stands for; 0 for a settlement.
    pub fn calls(&self) -> u64 {
        match (self.kind, self.min) {
            (CallKind::Charge | CallKind::Refund { .. }, _) => 0,
            (_, 0) => u64::from(self.copies),
            (_, _) => 1,
        }
    }

    /// How many of the calls were granted, if `hits` hits were.
    pub fn granted_calls(&self, hits: u64) -> u64 {
        match (self.calls(), self.min) {
            (0, _) => 0,
            (_, 0) => hits,
            (_, _) => u64::from(0 < hits),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; CALL_BYTES] {
        let mut bytes = [0; CALL_BYTES];
        bytes[..8].copy_from_slice(&self.at.as_micros().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pair.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.copies.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.min.to_le_bytes());
        let (kind, stamp, actual) = match self.kind {
            CallKind::LetThrough => (0, Timestamp::ZERO, 0),
            CallKind::Refused => (1, Timestamp::ZERO, 0),
            CallKind::Estimate { stamp } => (2, stamp, 0),
            CallKind::Charge => (3, Timestamp::ZERO, 0),
            CallKind::Refund { stamp, actual } => (4, stamp, actual),
        };
        bytes[20..24].copy_from_slice(&u32::to_le_bytes(kind));
        bytes[24..32].copy_from_slice(&stamp.as_micros().to_le_bytes());
        bytes[32..].copy_from_slice(&actual.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; CALL_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let long = |at: usize| u64::from(word(at)) | (u64::from(word(at + 4)) << 32);
        Self {
            at: Timestamp::from_micros(long(0)),
            pair: word(8),
            copies: word(12),
            min: word(16),
            kind: match word(20) {
                0 => CallKind::LetThrough,
                1 => CallKind::Refused,
                2 => CallKind::Estimate {
                    stamp: Timestamp::from_micros(long(24)),
                },
                3 => CallKind::Charge,
                _ => CallKind::Refund {
                    stamp: Timestamp::from_micros(long(24)),
                    actual: word(32),
                },
            },
        }
    }
}
