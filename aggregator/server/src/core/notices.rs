//! Notices: pairs that were hit and are near their limits are told to the agents of their resource.
//!
//! ```text
//! ruled in a turn    api.search, acme: 7 of 50 left       one frame of the resource's notices
//! hit again          within 20 ms: waits, and is looked at when its turn comes
//! ```
//!
//! All domains of a resource with a global limit are one pair more, under the name `*`, ruled where totals are.
//!
//! They are information, so everything else comes first: of each partition at most [`AT_ONCE`] pairs are told
//! each [`EVERY`], pairs in the order of their names, one round after the other; at most [`WAITING_MAX`] wait,
//! and who comes beyond is left out, and counted. A pair that waits is told as it stands when its turn comes,
//! and not at all if it is no longer near. Nothing is kept of what was told, and nothing told again: no topic
//! of notices has heartbeats. Nothing wakes the process for them.
//!
//! What stays true: no ruling, denial or state depends on a notice; a partition that is behind tells none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use tollgate_engine::engine::PairNear;
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::hits::HitBatch;
use tollgate_shared::wire::notice::{Notice, NoticeFrame};

use super::Core;
use super::announce::{Ready, TOPIC_KEY_UNPROTECTED};
use super::event::{Effect, Now};
use super::partition::Partition;

/// How often pairs of one partition are told.
const EVERY: Span = Span::from_millis(20);

/// How many each time: 2,000 a second.
const AT_ONCE: usize = 40;

/// Pairs of one partition that may wait: for some two seconds. With their names they take 400 kB, at the
/// greatest length of those 2 MB.
const WAITING_MAX: usize = 4_096;

/// A resource and a domain of it.
type Pair = (Arc<str>, Box<str>);

/// The pairs of one partition that were hit, and were near their limits then.
#[derive(Debug, Default)]
struct Waiting {
    pairs: BTreeSet<Pair>,
    /// The pair that was told last.
    last: Option<Pair>,
    /// When the next are told.
    next: Span,
}

impl Waiting {
    /// Whether there is room for the pair, or it waits already.
    fn take(&mut self, resource: &Arc<str>, domain: &str) -> bool {
        let pair = (Arc::clone(resource), domain.into());
        if WAITING_MAX <= self.pairs.len() && !self.pairs.contains(&pair) {
            return false;
        }
        self.pairs.insert(pair);
        true
    }

    /// The pair whose turn it is: the first behind the last one, or the first.
    fn pop(&mut self) -> Option<Pair> {
        let behind = self.last.take().and_then(|last| {
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            self.pairs.range::<Pair, _>(behind).next().cloned()
        });
        let pair = behind.or_else(|| self.pairs.first().cloned())?;
        self.pairs.remove(&pair);
        self.last = Some(pair.clone());
        Some(pair)
    }
}

/// The notices of one aggregator.
#[derive(Debug, Default)]
pub struct Notices {
    waiting: BTreeMap<u32, Waiting>,
    /// By resource: the last sequence of its notices.
    sequences: HashMap<Arc<str>, u64>,
    writer: Writer,
}

/// What publishing came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Published {
    frames: u64,
    /// By resource, how many of its pairs were told.
    told: BTreeMap<Arc<str>, u64>,
}

impl Notices {
    /// Takes the entries of a batch that left their pairs near their limits; how many there was no room for.
    fn take(&mut self, partition: u32, batch: &HitBatch<'_>, near: &[u32]) -> u64 {
        let waiting = self.waiting.entry(partition).or_default();
        let mut names: HashMap<u32, Arc<str>> = HashMap::new();
        let mut numbers = near.iter().copied().peekable();
        let mut shed = 0;
        for (number, hit) in (0..).zip(batch.hits()) {
            if numbers.next_if_eq(&number).is_some() {
                let name = names
                    .entry(hit.resource)
                    .or_insert_with(|| batch.resource(hit.resource).into());
                shed += u64::from(!waiting.take(name, hit.domain));
            }
            if numbers.peek().is_none() {
                break;
            }
        }
        shed
    }

    /// Takes everybody's use of a resource; whether there was room.
    fn take_everybody(&mut self, partition: u32, resource: &str) -> bool {
        let waiting = self.waiting.entry(partition).or_default();
        waiting.take(&resource.into(), EVERYBODY)
    }

    /// Publishes what is due of partitions that are ready.
    fn publish(
        &mut self,
        instance: u128,
        clock: Span,
        ready: &BTreeMap<u32, Ready>,
        look: impl Fn(u32, &str, &str) -> Option<PairNear>,
        effects: &mut Vec<Effect>,
    ) -> Published {
        // What another rules, or is ruled anew, is told by whoever does.
        self.waiting
            .retain(|partition, _| ready.contains_key(partition));
        let mut told: BTreeMap<Arc<str>, Vec<Notice>> = BTreeMap::new();
        for (partition, waiting) in &mut self.waiting {
            if waiting.pairs.is_empty() || clock < waiting.next {
                continue;
            }
            waiting.next = clock.saturating_add(EVERY);
            let Some(Ready { log_now, .. }) = ready.get(partition) else {
                continue;
            };
            for _ in 0..AT_ONCE {
                let Some((resource, domain)) = waiting.pop() else {
                    break;
                };
                let near = look(*partition, &resource, &domain);
                if let Some(notice) =
                    near.and_then(|near| notice(*partition, domain, &near, *log_now))
                {
                    told.entry(resource).or_default().push(notice);
                }
            }
        }
        let mut published = Published::default();
        for (resource, notices) in told {
            published.frames += 1;
            published
                .told
                .insert(Arc::clone(&resource), notices.len() as u64);
            let sequence = self.sequences.entry(Arc::clone(&resource)).or_default();
            *sequence += 1;
            let frame = NoticeFrame {
                instance,
                sequence: *sequence,
                sent: clock,
                resource: (*resource).into(),
                notices,
            };
            frame.encode(&mut self.writer);
            effects.push(Effect::Publish {
                topic: Topic::of_notices(&TOPIC_KEY_UNPROTECTED, &resource),
                frame: self.writer.as_slice().to_vec(),
            });
        }
        published
    }
}

/// What is told of a pair when the log's time is `log_now`; `None` where it is no longer near by then.
fn notice(partition: u32, domain: Box<str>, near: &PairNear, log_now: Timestamp) -> Option<Notice> {
    let rest = |until: Timestamp| match until {
        Timestamp::MAX => Span::MAX,
        until => until.since(log_now),
    };
    let near_for = rest(near.until);
    (near_for != Span::ZERO).then(|| Notice {
        partition,
        domain,
        cause: near.cause,
        left: near.left,
        limit: near.limit,
        window: near.window,
        more_in: rest(near.more_at),
        near_for,
        since: near.time,
    })
}

impl Core {
    /// Takes note of what became of a batch, and of the pairs that it left near their limits.
    pub(super) fn note_batch(&mut self, index: u32, batch: &HitBatch<'_>) {
        let partition = self.partitions.get(index as usize);
        let Some(partition) = partition.filter(|partition| partition.announcing) else {
            return;
        };
        let (counts, calls) = partition.ruler.counts();
        self.resources.note(partition.ruler.limits(), counts, calls);
        let (near, shed) = partition.ruler.near();
        self.counters.notices_shed += shed;
        if !near.is_empty() {
            self.counters.notices_shed += self.notices.take(index, batch, near);
        }
    }

    /// Takes note of what a total left of its resource's global limit.
    pub(super) fn note_total(&mut self, index: u32, resource: &str) {
        let partition = self.partitions.get(index as usize);
        let is_near =
            |partition: &Partition| partition.announcing && partition.ruler.is_everybody_near();
        if partition.is_some_and(is_near) && !self.notices.take_everybody(index, resource) {
            self.counters.notices_shed += 1;
        }
    }

    /// Publishes the notices that are due.
    pub(super) fn notices_turn(&mut self, now: Now, ready: &BTreeMap<u32, Ready>) {
        let partitions = &self.partitions;
        let look = |index: u32, resource: &str, domain: &str| {
            let partition = partitions.get(index as usize)?;
            partition.ruler.near_of(resource, domain)
        };
        let published =
            self.notices
                .publish(self.instance, now.clock, ready, look, &mut self.effects);
        self.counters.frames_of_notices += published.frames;
        for (resource, told) in published.told {
            self.counters.notices += told;
            if let Some(latest) = self.limits.book.latest() {
                self.resources.told(&latest.limits, &resource, told);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::place::LogId;
    use tollgate_shared::wire::frame::Evidence;
    use tollgate_shared::wire::hits::{Hit, HitKind, Sender, write_hits};
    use tollgate_shared::wire::record::Record;
    use tollgate_shared::wire::statement::Cause;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn ready() -> BTreeMap<u32, Ready> {
        let log = LogId::default();
        let evidence = Evidence {
            partition: 0,
            log,
            ruled: 9,
            appended: NOW,
            current: true,
        };
        let log_now = NOW;
        BTreeMap::from([(0, Ready { evidence, log_now })])
    }

    fn near(until: Timestamp) -> PairNear {
        PairNear {
            time: Timestamp::from_millis(990),
            left: 7,
            cause: Cause::Window(0),
            limit: 50,
            window: Span::from_secs(1),
            more_at: Timestamp::from_millis(1_020),
            until,
        }
    }

    /// A batch with one hit of each of these domains, all of which are near.
    fn hit(notices: &mut Notices, domains: impl Iterator<Item = String>) -> u64 {
        let domains: Vec<String> = domains.collect();
        let mut writer = Writer::new();
        let sender = Sender {
            agent: "a",
            epoch: 1,
            sequence: 1,
            sent: NOW,
        };
        let hits = domains.iter().map(|domain| Hit {
            resource: 0,
            domain,
            at: NOW,
            copies: 1,
            calls: 1,
            min: None,
            kind: HitKind::Hit,
            unguarded: false,
        });
        write_hits(&mut writer, &sender, &["api.search"], hits, [].into_iter());
        let Ok(Record::Hits(batch)) = Record::decode(writer.as_slice()) else {
            panic!("a batch")
        };
        let all: Vec<u32> = (0..domains.len() as u32).collect();
        notices.take(0, &batch, &all)
    }

    fn publish(notices: &mut Notices, clock: Span, until: Timestamp) -> Vec<NoticeFrame> {
        let mut effects = Vec::new();
        notices.publish(
            3,
            clock,
            &ready(),
            |_, _, _| Some(near(until)),
            &mut effects,
        );
        let frame = |effect| match effect {
            Effect::Publish { frame, .. } => NoticeFrame::decode(&frame).expect("a frame"),
            other => panic!("{other:?}"),
        };
        effects.into_iter().map(frame).collect()
    }

    #[test]
    fn a_pair_is_told_once_in_20_ms_and_only_while_it_is_near() {
        let mut notices = Notices::default();
        let until = Timestamp::from_millis(1_090);
        let acme = || ["acme".to_owned()].into_iter();
        hit(&mut notices, acme());
        hit(&mut notices, acme());
        let frames = publish(&mut notices, Span::ZERO, until);
        let [frame] = &frames[..] else {
            panic!("{frames:?}")
        };
        let [told] = &frame.notices[..] else {
            panic!("{frame:?}")
        };
        assert_eq!((&*told.domain, told.left, frame.sequence), ("acme", 7, 1));
        assert_eq!(
            (told.more_in, told.near_for),
            (Span::from_millis(20), Span::from_millis(90))
        );
        hit(&mut notices, acme());
        assert_eq!(publish(&mut notices, Span::from_millis(19), until), []);
        let again = publish(&mut notices, Span::from_millis(20), until);
        assert_eq!(again[0].sequence, 2);
        hit(&mut notices, acme());
        assert_eq!(
            publish(&mut notices, Span::from_millis(60), NOW),
            [],
            "over"
        );
        hit(&mut notices, acme());
        let mut effects = Vec::new();
        let none = BTreeMap::new();
        let look = |_, _: &str, _: &str| Some(near(until));
        notices.publish(3, Span::from_secs(9), &none, look, &mut effects);
        assert!(
            effects.is_empty() && notices.waiting.is_empty(),
            "not ready"
        );
    }

    #[test]
    fn ten_thousand_near_pairs_cost_bounded_bytes_and_none_starves() {
        let mut notices = Notices::default();
        let domain = |n: usize| format!("tenant-{n:05}");
        let (mut bytes, mut count, mut shed) = (0, 0, 0);
        let mut told: BTreeMap<Box<str>, u64> = BTreeMap::new();
        // Each second half of them is hit in every millisecond, in an order of its own.
        for ms in 0..10_000_usize {
            if ms.is_multiple_of(5) {
                let from = ms * 7_919;
                shed += hit(
                    &mut notices,
                    (0..1_000).map(|n| domain((from + n * 37) % 10_000)),
                );
            }
            let clock = Span::from_millis(ms as u64);
            for frame in publish(&mut notices, clock, Timestamp::MAX) {
                let mut writer = Writer::new();
                frame.encode(&mut writer);
                bytes += writer.as_slice().len();
                count += frame.notices.len();
                for notice in frame.notices {
                    *told.entry(notice.domain).or_default() += 1;
                }
            }
        }
        println!(
            "10,000 pairs near their limits, one partition: {count} notices, {bytes} bytes in 10 s, {} pairs told, \
             {shed} left out",
            told.len()
        );
        assert_eq!(count, 20_000, "2,000 a second");
        assert!(bytes < 20_000 * 80, "{bytes}");
        assert!(0 < shed);
        // What waits is a choice of what came, so that some come again sooner than others.
        assert!(9_000 < told.len(), "{}", told.len());
    }
}
