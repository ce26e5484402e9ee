//! Which segments have to go: a function of the existing segments, the instant and the bounds.
//!
//! ```text
//! age     a segment goes when its last record is older than the retention, and the next start does not need it
//! bytes   while all segments together are above the bound, the one whose last record is oldest goes
//! ```
//!
//! Segments go whole, from the beginning of their partition, and never the active one. `limits` are
//! kept for ever, so they do not count: hits would have to make up for them. Denials are kept at least as long as hits:
//! a segment of denials goes only when no partition has hits from before its last record. Knows nothing of files.

use super::super::Stream;

/// A partition, as far as retention is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RetainedPartition {
    pub stream: Stream,
    pub index: u32,
    /// The offset of its first record.
    pub first: u64,
    /// The first offset that the next start reads, [`u64::MAX`] if it does not matter: age takes nothing from there on.
    pub needed_from: u64,
    /// Its closed segments, in order.
    pub closed: Vec<KeptSegment>,
    /// The append time of the last record before the active segment; `None` if there is no active
    /// segment.
    pub active_floor_ms: Option<u64>,
    /// The length of the active segment, in bytes.
    pub active_bytes: u64,
}

/// A closed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptSegment {
    /// The offset behind its last record.
    pub end: u64,
    /// The append time of the record before its first.
    pub floor_ms: u64,
    /// The append time of its last record.
    pub last_ms: u64,
    pub bytes: u64,
}

/// The bounds that retention keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub retention_ms: u64,
    pub bytes: u64,
}

impl Bounds {
    /// Whether a segment is older than the retention.
    pub fn are_passed_by(self, segment: &KeptSegment, now_ms: u64) -> bool {
        segment.last_ms.saturating_add(self.retention_ms) < now_ms
    }
}

/// What has to go, and what stays although it is old.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overdue {
    /// How many segments to remove from the beginning of each partition.
    pub gone: Vec<usize>,
    /// How many partitions of hits keep a segment that is too old, because the next start reads it.
    pub held_back: usize,
}

/// What has to go.
pub(super) fn overdue(partitions: &[RetainedPartition], now_ms: u64, bounds: Bounds) -> Overdue {
    let mut gone = vec![0; partitions.len()];
    let sizes = |kept: &RetainedPartition| {
        kept.active_bytes + kept.closed.iter().map(|s| s.bytes).sum::<u64>()
    };
    let counted = partitions.iter();
    let counted = counted.filter(|kept| kept.stream != Stream::Limits);
    let mut bytes: u64 = counted.map(sizes).sum();
    let is_old = |segment: &KeptSegment| bounds.are_passed_by(segment, now_ms);
    let by_age = |kept: &RetainedPartition, segment: &KeptSegment| {
        is_old(segment) && segment.end <= kept.needed_from
    };
    loop {
        let too_old = oldest(partitions, &gone, by_age);
        let by_bytes = || oldest(partitions, &gone, |_, _| bounds.bytes < bytes);
        let Some((at, segment)) = too_old.or_else(by_bytes) else {
            break;
        };
        bytes -= segment.bytes;
        if let Some(count) = gone.get_mut(at) {
            *count += 1;
        }
    }
    let rest = partitions.iter().zip(&gone);
    let hits = rest.filter(|(kept, _)| kept.stream == Stream::Hits);
    let held_back = hits.filter(|(kept, gone)| kept.closed.get(**gone).is_some_and(is_old));
    Overdue {
        held_back: held_back.count(),
        gone,
    }
}

/// Of the segments that may go and that `pick` accepts, the one whose last record is oldest, and its partition.
fn oldest(
    partitions: &[RetainedPartition],
    gone: &[usize],
    pick: impl Fn(&RetainedPartition, &KeptSegment) -> bool,
) -> Option<(usize, KeptSegment)> {
    let hits_begin_ms = partitions
        .iter()
        .zip(gone)
        .filter(|(kept, _)| kept.stream == Stream::Hits)
        .filter_map(|(kept, gone)| match kept.closed.get(*gone) {
            Some(segment) => Some(segment.floor_ms),
            None => kept.active_floor_ms,
        })
        .min()
        .unwrap_or(u64::MAX);
    partitions
        .iter()
        .zip(gone)
        .enumerate()
        .filter_map(|(at, (kept, gone))| {
            let segment = *kept.closed.get(*gone)?;
            let may_go = match kept.stream {
                Stream::Hits => true,
                Stream::Limits => false,
                Stream::Denials => segment.last_ms <= hits_begin_ms,
            };
            (may_go && pick(kept, &segment)).then_some((at, segment))
        })
        .min_by_key(|(at, segment)| (segment.last_ms, *at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(stream: Stream, last_ms: &[u64]) -> RetainedPartition {
        let floors = std::iter::once(0).chain(last_ms.iter().copied());
        let segment = |(end, (floor_ms, last_ms)): (u64, (u64, &u64))| KeptSegment {
            end,
            floor_ms,
            last_ms: *last_ms,
            bytes: 100,
        };
        RetainedPartition {
            stream,
            index: 0,
            first: 0,
            needed_from: u64::MAX,
            closed: (1..)
                .zip(floors.clone().zip(last_ms))
                .map(segment)
                .collect(),
            active_floor_ms: floors.last(),
            active_bytes: 10,
        }
    }

    const BY_AGE: Bounds = Bounds {
        retention_ms: 1_000,
        bytes: u64::MAX,
    };

    /// How many segments go from each partition.
    fn gone(partitions: &[RetainedPartition], now_ms: u64, bounds: Bounds) -> Vec<usize> {
        overdue(partitions, now_ms, bounds).gone
    }

    #[test]
    fn what_the_next_start_reads_goes_only_for_want_of_room() {
        let mut needed = kept(Stream::Hits, &[500, 600, 700]);
        needed.needed_from = 1;
        let all = [needed, kept(Stream::Hits, &[400, 800])];
        let of = |gone: [usize; 2], held_back| Overdue {
            gone: gone.to_vec(),
            held_back,
        };
        assert_eq!(overdue(&all, 1_400, BY_AGE), of([0, 0], 0));
        assert_eq!(overdue(&all, 1_501, BY_AGE), of([1, 1], 0));
        assert_eq!(overdue(&all, 9_999, BY_AGE), of([1, 2], 1));
        // Together 520 bytes.
        let bytes = Bounds {
            bytes: 219,
            ..BY_AGE
        };
        assert_eq!(overdue(&all, 9_999, bytes), of([2, 2], 1));
        assert_eq!(overdue(&all, 0, bytes), of([3, 1], 0));
    }

    #[test]
    fn a_segment_is_removed_when_its_last_record_is_too_old() {
        let all = [kept(Stream::Hits, &[500, 900]), kept(Stream::Hits, &[400])];
        assert_eq!(gone(&all, 1_400, BY_AGE), [0, 0]);
        assert_eq!(gone(&all, 1_401, BY_AGE), [0, 1]);
        assert_eq!(gone(&all, 1_501, BY_AGE), [1, 1]);
        assert_eq!(gone(&all, 9_999, BY_AGE), [2, 1]);
    }

    #[test]
    fn limits_stay_for_ever() {
        let all = [kept(Stream::Limits, &[1, 2])];
        let bounds = Bounds {
            retention_ms: 0,
            bytes: 0,
        };
        assert_eq!(gone(&all, u64::MAX, bounds), [0]);
    }

    #[test]
    fn above_the_bound_on_bytes_only_the_oldest_are_removed() {
        let all = [kept(Stream::Hits, &[500, 900]), kept(Stream::Hits, &[600])];
        let bounds = |bytes| Bounds {
            retention_ms: u64::MAX,
            bytes,
        };
        assert_eq!(gone(&all, 0, bounds(320)), [0, 0]);
        assert_eq!(gone(&all, 0, bounds(319)), [1, 0]);
        assert_eq!(gone(&all, 0, bounds(219)), [1, 1]);
        assert_eq!(gone(&all, 0, bounds(0)), [2, 1]);
    }

    #[test]
    fn limits_do_not_count_against_the_bound_on_bytes() {
        let limits: Vec<u64> = (1..=90).collect();
        let all = [
            kept(Stream::Limits, &limits),
            kept(Stream::Hits, &[500, 900]),
        ];
        let bounds = |bytes| Bounds {
            retention_ms: u64::MAX,
            bytes,
        };
        assert_eq!(gone(&all, 0, bounds(210)), [0, 0]);
        assert_eq!(gone(&all, 0, bounds(209)), [0, 1]);
    }

    #[test]
    fn denials_stay_as_long_as_hits_from_before_their_last_record() {
        let all = [
            kept(Stream::Hits, &[700, 2_000]),
            kept(Stream::Denials, &[300, 800]),
        ];
        // At 1701 the first segment of hits is overdue; hits from 700 on remain.
        assert_eq!(gone(&all, 1_700, BY_AGE), [0, 0]);
        assert_eq!(gone(&all, 1_701, BY_AGE), [1, 1]);
        assert_eq!(gone(&all, 3_001, BY_AGE), [2, 2]);
    }
}
