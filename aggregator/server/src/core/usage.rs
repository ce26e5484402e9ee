//! The heaviest users: a bounded sketch of the pairs of one partition, for `tollgate top`.
//!
//! ```text
//! minute of log time   12:00            12:01            12:02 ──
//! kept                                  [before]         [this]     `top` shows the sum of both
//! ```
//!
//! The minute is the log's, as of the newest record of any partition that is ready: ticks move it where no hits come.
//! What a partition counted before the window that this minute gives is not shown.
//!
//! There are three measures: hits, refused calls, excess. For each, at most [`TRACKED_MAX`] names are kept, by the
//! rule of Misra and Gries: when the table is full, the count of the (K + 1)-th name is subtracted from all counts,
//! and names with nothing left are removed. So a shown count is at most the true one, and short of it by no more
//! than what was subtracted. Of long records a weighted sample is counted, so that a record costs the sketch no more
//! than a few microseconds; the sample is a function of the record's offset. No decision depends on the sketch, and
//! no snapshot has it: it begins empty when a partition is taken over.
//!
//! What stays true: the same records give the same sketch, on any machine.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use tollgate_api::top::{TopPair, TopView};
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::hits::HitBatch;

use super::partition::Partition;
use super::queries::Views;

/// Names that are kept of each measure and minute. The table grows to twice as many before it is cut: a cut sorts all
/// names, so each cut makes room for as many as it keeps.
const TRACKED_MAX: usize = 256;

/// The greatest `limit` of a query: what one partition keeps of one minute.
pub const TOP_MAX: usize = TRACKED_MAX;

/// Names that one answer looks at, plus those of one partition: that takes a millisecond at most.
const LOOKED_AT_ONCE: usize = TRACKED_MAX;

/// The log time that a generation covers.
const GENERATION: Span = Span::from_secs(60);

/// Entries of one record that are counted individually, for each measure. Each costs about 50 ns; a ruling costs
/// about 200 ns.
const SAMPLE: u32 = 32;

/// A record of this many entries is counted every second time, one of twice as many every third time, and so on:
/// reading an entry again costs about 10 ns, and should stay below a hundredth of its ruling.
const LOOKED_AT: u32 = 256;

/// A measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Hits that agents let through.
    #[default]
    Hits,
    /// Calls that agents refused.
    Refused,
    /// Hits that were let through although an ideal limiter would have refused them.
    Excess,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hits, Self::Refused, Self::Excess];

    /// The measure's name in queries and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hits => "hits",
            Self::Refused => "refused",
            Self::Excess => "excess",
        }
    }
}

/// Names with the greatest counts.
#[derive(Debug, Default)]
struct Sketch {
    /// The key is resource and domain, with a byte between them that occurs in no text.
    counts: HashMap<Box<[u8]>, u64, foldhash::fast::FixedState>,
    taken_off: u64,
}

impl Sketch {
    fn add(&mut self, key: &[u8], count: u64) {
        if let Some(known) = self.counts.get_mut(key) {
            *known = known.saturating_add(count);
            return;
        }
        self.counts.insert(key.into(), count);
        if 2 * TRACKED_MAX <= self.counts.len() {
            self.cut();
        }
    }

    /// Keeps the greatest counts. Only counts decide, so the table's order does not matter.
    fn cut(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        counts.sort_unstable_by_key(|count| Reverse(*count));
        let off = counts.get(TRACKED_MAX).copied().unwrap_or(0);
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(off);
            0 < *count
        });
        self.taken_off = self.taken_off.saturating_add(off);
    }
}

/// The counts of one minute.
#[derive(Debug, Default)]
struct Generation {
    minute: u64,
    sketches: [Sketch; By::ALL.len()],
}

/// The sketch of one partition.
#[derive(Debug, Default)]
pub struct Usage {
    this: Generation,
    before: Generation,
    key: Vec<u8>,
}

const fn minute_of(appended: Timestamp) -> u64 {
    appended.as_micros() / GENERATION.as_micros()
}

/// The sample of a list: the index of its first element, and the step to the next.
fn sample(len: u32, offset: u64) -> (usize, usize) {
    let step = len.div_ceil(SAMPLE).max(1);
    ((offset % u64::from(step)) as usize, step as usize)
}

impl Usage {
    /// Counts a batch that was ruled: `excess` has the numbers of entries with excess, and the amounts.
    pub fn take(
        &mut self,
        offset: u64,
        appended: Timestamp,
        batch: &HitBatch<'_>,
        excess: &[(u32, u64)],
    ) {
        self.turn_to(appended);
        // Offsets of an agent's batches may follow a pattern; their hashes do not.
        let drawn = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        let len = batch.hits().len() as u32;
        let every = 1 + u64::from(len / LOOKED_AT);
        if drawn.is_multiple_of(every) {
            let (first, step) = sample(len, drawn);
            let weight = every * step as u64;
            let sampled = batch.hits().iter().skip(first).step_by(step);
            for hit in sampled.filter(|hit| !hit.is_refund()) {
                let count = hit.total() * weight;
                self.add(By::Hits, batch.resource(hit.resource), hit.domain, count);
            }
            self.take_excess(drawn, every, batch, excess);
        }
        let refused: Vec<_> = batch.refused().collect();
        let (first, step) = sample(refused.len() as u32, drawn);
        for entry in refused.iter().skip(first).step_by(step) {
            let count = entry.calls.saturating_mul(step as u64);
            let resource = batch.resource(entry.resource);
            self.add(By::Refused, resource, entry.domain, count);
        }
    }

    fn take_excess(&mut self, drawn: u64, every: u64, batch: &HitBatch<'_>, excess: &[(u32, u64)]) {
        let (first, step) = sample(excess.len() as u32, drawn);
        let mut wanted = excess.iter().skip(first).step_by(step).peekable();
        if wanted.peek().is_none() {
            return;
        }
        for (number, hit) in (0..).zip(batch.hits()) {
            let Some((_, count)) = wanted.next_if(|(of, _)| *of == number) else {
                continue;
            };
            let count = count.saturating_mul(every).saturating_mul(step as u64);
            self.add(By::Excess, batch.resource(hit.resource), hit.domain, count);
            if wanted.peek().is_none() {
                return;
            }
        }
    }

    fn turn_to(&mut self, appended: Timestamp) {
        let minute = minute_of(appended);
        // A late record counts in this minute.
        if minute <= self.this.minute {
            return;
        }
        let old = std::mem::take(&mut self.this);
        self.before = match old.minute + 1 == minute {
            true => old,
            false => Generation::default(),
        };
        self.before.minute = minute - 1;
        self.this.minute = minute;
    }

    fn add(&mut self, by: By, resource: &str, domain: &str, count: u64) {
        self.key.clear();
        self.key.extend_from_slice(resource.as_bytes());
        self.key.push(0xff);
        self.key.extend_from_slice(domain.as_bytes());
        self.this.sketches[by as usize].add(&self.key, count);
    }

    /// The generations of a window: this minute and the one before.
    fn within(&self, minute: u64) -> impl Iterator<Item = &Generation> {
        let both = [&self.this, &self.before].into_iter();
        both.filter(move |generation| minute <= generation.minute + 1)
    }

    fn count(&self, by: By, key: &[u8], minute: u64) -> Option<u64> {
        let counts = self
            .within(minute)
            .filter_map(|generation| generation.sketches[by as usize].counts.get(key));
        counts.copied().reduce(u64::saturating_add)
    }

    /// By how much a count may be too small at most.
    fn taken_off(&self, by: By, minute: u64) -> u64 {
        let off = |generation: &Generation| generation.sketches[by as usize].taken_off;
        self.within(minute).map(off).fold(0, u64::saturating_add)
    }

    /// All names that are kept of a measure, in no order, once each.
    fn keys(&self, by: By, minute: u64) -> HashSet<&[u8]> {
        self.within(minute)
            .flat_map(|generation| generation.sketches[by as usize].counts.keys())
            .map(AsRef::as_ref)
            .collect()
    }
}

/// What a `top` query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopFilter {
    /// The measure.
    pub by: By,
    /// Only of this resource.
    pub resource: Option<String>,
    /// At most this many pairs.
    pub limit: usize,
    /// Only of this partition and those after it.
    pub from: u32,
}

/// The pairs of as many partitions as the core looks at in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopPart {
    /// The pairs.
    pub view: TopView,
    /// The first partition that was not looked at, because the answer would have taken too long.
    pub next: Option<u32>,
}

const fn count(pair: &TopPair, by: By) -> Option<u64> {
    match by {
        By::Hits => pair.hits,
        By::Refused => pair.refused,
        By::Excess => pair.excess,
    }
}

/// The resource and domain of a key in a sketch.
fn names_of(key: &[u8]) -> Option<(&str, &str)> {
    let at = key.iter().position(|byte| *byte == 0xff)?;
    let resource = std::str::from_utf8(key.get(..at)?).ok()?;
    let domain = std::str::from_utf8(key.get(at + 1..)?).ok()?;
    Some((resource, domain))
}

/// Sorts the pairs with the greatest counts first, and keeps `limit` of them.
pub fn keep_greatest(pairs: &mut Vec<TopPair>, by: By, limit: usize) {
    pairs.sort_unstable_by(|a, b| {
        let names =
            || (&a.resource, &a.domain, a.partition).cmp(&(&b.resource, &b.domain, b.partition));
        count(b, by).cmp(&count(a, by)).then_with(names)
    });
    pairs.truncate(limit.min(TOP_MAX));
}

impl Views<'_> {
    pub(super) fn top_view(&self, filter: &TopFilter) -> TopPart {
        let ready: Vec<_> = self.partitions.iter().filter(|p| p.is_ready()).collect();
        // Hits stop; the log's time goes on with each partition's ticks.
        let newest = ready.iter().map(|p| p.position.appended).max();
        let newest = newest.unwrap_or(Timestamp::ZERO);
        let minute = minute_of(newest);
        let mut pairs: Vec<TopPair> = Vec::new();
        let (mut looked, mut next) = (0, None);
        for partition in ready.iter().filter(|p| filter.from <= p.index) {
            if LOOKED_AT_ONCE <= looked {
                next = Some(partition.index);
                break;
            }
            let (found, of_this) = self.greatest(partition, filter, minute);
            pairs.extend(found);
            looked += of_this;
        }
        keep_greatest(&mut pairs, filter.by, filter.limit);
        let short = ready
            .iter()
            .map(|p| p.usage.taken_off(filter.by, minute))
            .max();
        let view = TopView {
            schema: "tollgate.top/1".into(),
            by: filter.by.name().into(),
            from_us: minute.saturating_sub(1) * GENERATION.as_micros(),
            to_us: newest.as_micros(),
            short_by_max: short.unwrap_or(0),
            pairs,
            partitions_missing: self.partitions_missing(),
        };
        TopPart { view, next }
    }

    /// The pairs of a partition with the greatest counts, and how many were looked at.
    fn greatest(
        &self,
        partition: &Partition,
        filter: &TopFilter,
        minute: u64,
    ) -> (Vec<TopPair>, usize) {
        let usage = &partition.usage;
        let count = |by, key| usage.count(by, key, minute);
        let named = |key| {
            let (resource, domain) = names_of(key)?;
            Some((Reverse(count(filter.by, key)), resource, domain, key))
        };
        let mut all: Vec<_> = usage
            .keys(filter.by, minute)
            .into_iter()
            .filter_map(named)
            .collect();
        all.sort_unstable();
        let looked = all.len();
        let wanted = all.into_iter().filter(|(_, resource, domain, _)| {
            let of = filter.resource.as_deref();
            of.is_none_or(|of| of == *resource) && self.belongs(partition.index, resource, domain)
        });
        let pair = |(_, resource, domain, key): (_, &str, &str, _)| TopPair {
            resource: resource.into(),
            domain: domain.into(),
            partition: partition.index,
            hits: count(By::Hits, key),
            refused: count(By::Refused, key),
            excess: count(By::Excess, key),
        };
        (wanted.take(filter.limit).map(pair).collect(), looked)
    }

    /// Whether a pair belongs to a partition: hits that a writer put into a wrong one are not shown.
    fn belongs(&self, partition: u32, resource: &str, domain: &str) -> bool {
        let count = self.settings.partitions;
        partition == partition_of_pair(resource, domain, count)
            || partition == partition_of_resource(resource, count)
    }

    /// Partitions that are not ruled here, or not yet.
    pub(super) fn partitions_missing(&self) -> Vec<u32> {
        self.partitions
            .iter()
            .filter(|partition| !partition.is_ready())
            .map(|partition| partition.index)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::wire::Writer;
    use tollgate_shared::wire::hits::{Hit, HitKind, Sender, write_hits};
    use tollgate_shared::wire::record::Record;

    use super::*;

    fn add(usage: &mut Usage, domain: &str, count: u64) {
        usage.add(By::Hits, "r", domain, count);
    }

    fn of(usage: &Usage, domain: &str) -> Option<u64> {
        let key = [b"r\xff", domain.as_bytes()].concat();
        usage.count(By::Hits, &key, usage.this.minute)
    }

    #[test]
    fn the_largest_pairs_stay_within_the_stated_error() {
        let mut usage = Usage::default();
        usage.turn_to(Timestamp::from_micros(60_000_000));
        for round in 0..200 {
            for great in 0..20 {
                add(&mut usage, &format!("great-{great}"), 50);
            }
            for small in 0..1_000 {
                add(&mut usage, &format!("small-{round}-{small}"), 1);
            }
        }
        let short = usage.taken_off(By::Hits, 1);
        assert!(0 < short && short < 5_000, "{short}");
        for great in 0..20 {
            let found = of(&usage, &format!("great-{great}")).expect("it stays");
            assert!(
                (10_000 - short..=10_000).contains(&found),
                "{found}, short by {short}"
            );
        }
        assert!(usage.this.sketches[By::Hits as usize].counts.len() < 2 * TRACKED_MAX);
    }

    #[test]
    fn a_refund_is_no_hit() {
        let sender = Sender {
            agent: "web-1",
            epoch: 1,
            sequence: 1,
            sent: Timestamp::ZERO,
        };
        let at = Timestamp::from_micros(60_000_000);
        let refund = Hit {
            copies: 3,
            kind: HitKind::Refund {
                made: at,
                estimated: 4,
                actual: 1,
            },
            ..Hit::one(0, "a", at, 1)
        };
        let mut writer = Writer::new();
        let hits = [Hit::one(0, "a", at, 1), refund];
        write_hits(
            &mut writer,
            &sender,
            &["r"],
            hits.into_iter(),
            [].into_iter(),
        );
        let Ok(Record::Hits(batch)) = Record::decode(writer.as_slice()) else {
            panic!("a batch");
        };
        let mut usage = Usage::default();
        usage.take(7, at, &batch, &[]);
        assert_eq!(of(&usage, "a"), Some(1));
    }

    #[test]
    fn counts_expire_after_the_next_minute() {
        let mut usage = Usage::default();
        let minute = |n: u64| Timestamp::from_micros(n * 60_000_000 + 5);
        usage.turn_to(minute(10));
        add(&mut usage, "a", 1);
        usage.turn_to(minute(11));
        add(&mut usage, "a", 2);
        assert_eq!(of(&usage, "a"), Some(3));
        usage.turn_to(minute(12));
        assert_eq!(of(&usage, "a"), Some(2));
        usage.turn_to(minute(14));
        assert_eq!(of(&usage, "a"), None);
    }

    #[test]
    fn counts_before_the_window_are_not_shown_after_its_turn() {
        let mut usage = Usage::default();
        usage.turn_to(Timestamp::from_micros(600_000_000));
        add(&mut usage, "a", 1);
        for name in 0..2 * TRACKED_MAX {
            add(&mut usage, &format!("small-{name}"), 1);
        }
        usage.turn_to(Timestamp::from_micros(660_000_000));
        add(&mut usage, "b", 2);
        let shown = |minute| {
            let keys = usage.keys(By::Hits, minute).len();
            (keys, usage.count(By::Hits, b"r\xffb", minute))
        };
        assert!(0 < usage.taken_off(By::Hits, 11));
        // Another partition is in the next minute already: its window begins with this partition's present one.
        assert_eq!(usage.taken_off(By::Hits, 12), 0);
        assert_eq!(shown(12), (1, Some(2)));
        assert_eq!(shown(13), (0, None));
    }
}
