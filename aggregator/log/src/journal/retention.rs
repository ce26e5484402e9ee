//! Which segments have to go: a function of the existing segments, the instant and the bounds.
//!
//! ```text
//! age     a segment goes when its last record is older than the retention
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

/// How many segments to remove from the beginning of each partition.
pub(super) fn overdue(partitions: &[RetainedPartition], now_ms: u64, bounds: Bounds) -> Vec<usize> {
    let mut gone = vec![0; partitions.len()];
    let sizes = |kept: &RetainedPartition| {
        kept.active_bytes + kept.closed.iter().map(|s| s.bytes).sum::<u64>()
    };
    let counted = partitions.iter();
    let counted = counted.filter(|kept| kept.stream != Stream::Limits);
    let mut bytes: u64 = counted.map(sizes).sum();
    while let Some((at, segment)) = oldest(partitions, &gone) {
        let old = segment.last_ms.saturating_add(bounds.retention_ms) < now_ms;
        if !old && bytes <= bounds.bytes {
            break;
        }
        bytes -= segment.bytes;
        if let Some(count) = gone.get_mut(at) {
            *count += 1;
        }
    }
    gone
}

/// Of the segments that may go, the one whose last record is oldest, and its partition.
fn oldest(partitions: &[RetainedPartition], gone: &[usize]) -> Option<(usize, KeptSegment)> {
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
            may_go.then_some((at, segment))
        })
        .min_by_key(|(at, segment)| (segment.last_ms, *at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(stream: Stream, last_ms: &[u64]) -> RetainedPartition {
        let floors = std::iter::once(0).chain(last_ms.iter().copied());
        let segment = |(floor_ms, last_ms): (u64, &u64)| KeptSegment {
            floor_ms,
            last_ms: *last_ms,
            bytes: 100,
        };
        RetainedPartition {
            stream,
            closed: floors.clone().zip(last_ms).map(segment).collect(),
            active_floor_ms: floors.last(),
            active_bytes: 10,
        }
    }

    const BY_AGE: Bounds = Bounds {
        retention_ms: 1_000,
        bytes: u64::MAX,
    };

    #[test]
    fn a_segment_is_removed_when_its_last_record_is_too_old() {
        let all = [kept(Stream::Hits, &[500, 900]), kept(Stream::Hits, &[400])];
        assert_eq!(overdue(&all, 1_400, BY_AGE), [0, 0]);
        assert_eq!(overdue(&all, 1_401, BY_AGE), [0, 1]);
        assert_eq!(overdue(&all, 1_501, BY_AGE), [1, 1]);
        assert_eq!(overdue(&all, 9_999, BY_AGE), [2, 1]);
    }

    #[test]
    fn limits_stay_for_ever() {
        let all = [kept(Stream::Limits, &[1, 2])];
        let bounds = Bounds {
            retention_ms: 0,
            bytes: 0,
        };
        assert_eq!(overdue(&all, u64::MAX, bounds), [0]);
    }

    #[test]
    fn above_the_bound_on_bytes_only_the_oldest_are_removed() {
        let all = [kept(Stream::Hits, &[500, 900]), kept(Stream::Hits, &[600])];
        let bounds = |bytes| Bounds {
            retention_ms: u64::MAX,
            bytes,
        };
        assert_eq!(overdue(&all, 0, bounds(320)), [0, 0]);
        assert_eq!(overdue(&all, 0, bounds(319)), [1, 0]);
        assert_eq!(overdue(&all, 0, bounds(219)), [1, 1]);
        assert_eq!(overdue(&all, 0, bounds(0)), [2, 1]);
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
        assert_eq!(overdue(&all, 0, bounds(210)), [0, 0]);
        assert_eq!(overdue(&all, 0, bounds(209)), [0, 1]);
    }

    #[test]
    fn denials_stay_as_long_as_hits_from_before_their_last_record() {
        let all = [
            kept(Stream::Hits, &[700, 2_000]),
            kept(Stream::Denials, &[300, 800]),
        ];
        // At 1701 the first segment of hits is overdue; hits from 700 on remain.
        assert_eq!(overdue(&all, 1_700, BY_AGE), [0, 0]);
        assert_eq!(overdue(&all, 1_701, BY_AGE), [1, 1]);
        assert_eq!(overdue(&all, 3_001, BY_AGE), [2, 2]);
    }
}
