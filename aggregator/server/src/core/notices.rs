//! Notices: agents of a resource learn which of its pairs were hit and are near their limits.
//!
//! ```text
//! ruled in a turn    api.search, acme: 7 of 50 left       one frame of the resource's notices
//! hit again          within 20 ms: waits, and is looked at when its turn comes
//! ```
//!
//! All domains of a resource with a global limit form one more pair, named `*`, ruled where the totals are.
//!
//! Notices are information, so everything else comes first. Of each partition at most [`AT_ONCE`] pairs are
//! published every [`EVERY`], in the order of their names, round after round; at most [`WAITING_MAX`] wait, and
//! further pairs are dropped and counted. A pair that waits is published as it stands when its turn comes, and not
//! at all if it is no longer near. Notices that were published are not kept and not repeated: their topics have no
//! heartbeats. No notice wakes the process.
//!
//! What stays true: no ruling, denial or state depends on a notice; a partition that is behind publishes none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use tollgate_engine::engine::PairNear;
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::HitBatch;
use tollgate_shared::wire::notice::{Notice, NoticeFrame};

use super::announce::TOPIC_KEY_UNPROTECTED;
use super::environment::Environment;
use super::event::{Effect, Now};
use super::limits_state::LimitsState;
use super::partition::Partition;
use super::partition::event::PartitionStep;
use super::ready::ReadyPartitions;
use super::topics::Topics;

/// How often notices of one partition are published.
const EVERY: Span = Span::from_millis(20);

/// Notices of one partition that are published each time: 2,000 a second.
const AT_ONCE: usize = 40;

/// Pairs of one partition that may wait: for about two seconds. With their names they take 400 kB, and 2 MB with
/// names of the greatest length.
const WAITING_MAX: usize = 4_096;

/// A resource and one of its domains.
type NamedPair = (Arc<str>, Box<str>);

/// The pairs of one partition that were hit, and were near their limits after it.
#[derive(Debug, Default)]
pub struct NearPairs {
    pairs: BTreeSet<NamedPair>,
    /// The pair that was published last.
    last: Option<NamedPair>,
    /// When the next pairs are published.
    next: Span,
}

impl NearPairs {
    /// Takes the entries of a batch that left their pairs near their limits; returns how many did not fit.
    fn take(&mut self, batch: &HitBatch<'_>, near: &[u32]) -> u64 {
        let mut names: HashMap<u32, Arc<str>> = HashMap::new();
        let mut numbers = near.iter().copied().peekable();
        let mut shed = 0;
        for (number, hit) in (0..).zip(batch.hits()) {
            if numbers.next_if_eq(&number).is_some() {
                let name = names
                    .entry(hit.resource)
                    .or_insert_with(|| batch.resource(hit.resource).into());
                shed += u64::from(!self.take_pair(name, hit.domain));
            }
            if numbers.peek().is_none() {
                break;
            }
        }
        shed
    }

    /// Adds a pair; returns false if it does not wait already and there is no room for it.
    fn take_pair(&mut self, resource: &Arc<str>, domain: &str) -> bool {
        let pair = (Arc::clone(resource), domain.into());
        if WAITING_MAX <= self.pairs.len() && !self.pairs.contains(&pair) {
            return false;
        }
        self.pairs.insert(pair);
        true
    }

    /// Takes the pair whose turn it is: the first one after the last one, or the first of all.
    fn pop(&mut self) -> Option<NamedPair> {
        let behind = self.last.take().and_then(|last| {
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            self.pairs.range::<NamedPair, _>(behind).next().cloned()
        });
        let pair = behind.or_else(|| self.pairs.first().cloned())?;
        self.pairs.remove(&pair);
        self.last = Some(pair.clone());
        Some(pair)
    }

    /// Adds the notices that are due, by resource; `look` returns how near a pair is.
    fn take_due(
        &mut self,
        (partition, clock, log_now): (u32, Span, Timestamp),
        look: impl Fn(&str, &str) -> Option<PairNear>,
        due: &mut BTreeMap<Arc<str>, Vec<Notice>>,
    ) {
        if self.pairs.is_empty() || clock < self.next {
            return;
        }
        self.next = clock.saturating_add(EVERY);
        for _ in 0..AT_ONCE {
            let Some((resource, domain)) = self.pop() else {
                break;
            };
            let near = look(&resource, &domain);
            if let Some(notice) = near.and_then(|near| notice(partition, domain, &near, log_now)) {
                due.entry(resource).or_default().push(notice);
            }
        }
    }
}

/// The notices of one aggregator.
#[derive(Debug)]
pub struct Notices {
    topics: Topics,
    writer: Writer,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            topics: Topics::new(TOPIC_KEY_UNPROTECTED),
            writer: Writer::new(),
        }
    }
}

impl Notices {
    /// Publishes the notices that are due of partitions that are ready.
    pub(super) fn turn(
        &mut self,
        now: Now,
        partitions: &mut [Partition],
        ready: &ReadyPartitions,
        limits: &LimitsState,
        env: &mut Environment,
    ) {
        let mut due: BTreeMap<Arc<str>, Vec<Notice>> = BTreeMap::new();
        for partition in partitions {
            let Some(ready) = ready.get(partition.index) else {
                // A pair of a partition that is ruled elsewhere or again is published by the aggregator that rules
                // it.
                partition.near = NearPairs::default();
                continue;
            };
            let at = (partition.index, now.clock, ready.log_now);
            let ruler = &partition.ruler;
            let look = |resource: &str, domain: &str| ruler.near_of(resource, domain);
            partition.near.take_due(at, look, &mut due);
        }
        if self.topics.are_many()
            && let Some(all) = env.settings.subscribed.all()
        {
            self.topics
                .forget_but(|_, topic| all.contains(&topic.notices()));
        }
        let tally = &mut env.out.tally;
        for (resource, notices) in due {
            let count = notices.len() as u64;
            tally.counters.frames_of_notices += 1;
            tally.counters.notices += count;
            if let Some(latest) = limits.book.latest() {
                tally
                    .resources
                    .note_notices(&latest.limits, &resource, count);
            }
            let effect = self.publish(env.instance, now.clock, &resource, notices);
            env.effects.push(effect);
        }
    }

    fn publish(
        &mut self,
        instance: u128,
        clock: Span,
        resource: &Arc<str>,
        notices: Vec<Notice>,
    ) -> Effect {
        let (topic, sequence) = self.topics.next(resource);
        let frame = NoticeFrame {
            instance,
            sequence,
            sent: clock,
            resource: (**resource).into(),
            notices,
        };
        frame.encode(&mut self.writer);
        Effect::Publish {
            topic: topic.notices(),
            frame: self.writer.as_slice().to_vec(),
        }
    }
}

/// The notice about a pair at log time `log_now`; `None` if the pair is no longer near by then.
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

impl Partition {
    /// Notes the pairs that a batch left near their limits.
    pub(super) fn note_batch(&mut self, batch: &HitBatch<'_>, step: &mut PartitionStep<'_>) {
        if !self.announcing {
            return;
        }
        let tally = &mut step.out.tally;
        let (near, shed) = self.ruler.near();
        tally.counters.notices_shed += shed;
        if !near.is_empty() {
            tally.counters.notices_shed += self.near.take(batch, near);
        }
    }

    /// Notes what a total left of its resource's global limit.
    pub(super) fn note_total(&mut self, resource: &str, step: &mut PartitionStep<'_>) {
        let is_near = self.announcing && self.ruler.is_everybody_near();
        if is_near && !self.near.take_pair(&resource.into(), EVERYBODY) {
            step.counters().notices_shed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::wire::hits::{Hit, HitKind, Sender, write_hits};
    use tollgate_shared::wire::record::Record;
    use tollgate_shared::wire::statement::Cause;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    /// The notices of partition 0.
    #[derive(Default)]
    struct NoticeBench {
        near: NearPairs,
        notices: Notices,
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
    fn hit(bench: &mut NoticeBench, domains: impl Iterator<Item = String>) -> u64 {
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
        bench.near.take(&batch, &all)
    }

    fn publish(bench: &mut NoticeBench, clock: Span, until: Timestamp) -> Vec<NoticeFrame> {
        let mut due = BTreeMap::new();
        let look = |_: &str, _: &str| Some(near(until));
        bench.near.take_due((0, clock, NOW), look, &mut due);
        let mut frames = Vec::new();
        for (resource, notices) in due {
            match bench.notices.publish(3, clock, &resource, notices) {
                Effect::Publish { frame, .. } => {
                    frames.push(NoticeFrame::decode(&frame).expect("a frame"));
                }
                other => panic!("{other:?}"),
            }
        }
        frames
    }

    #[test]
    fn a_pair_gets_a_notice_every_20_ms_while_it_is_near() {
        let mut notices = NoticeBench::default();
        let until = Timestamp::from_millis(1_090);
        let acme = || ["acme".to_owned()].into_iter();
        hit(&mut notices, acme());
        hit(&mut notices, acme());
        let frames = publish(&mut notices, Span::ZERO, until);
        let [frame] = &frames[..] else {
            panic!("{frames:?}")
        };
        let [notice] = &frame.notices[..] else {
            panic!("{frame:?}")
        };
        assert_eq!(
            (&*notice.domain, notice.left, frame.sequence),
            ("acme", 7, 1)
        );
        assert_eq!(
            (notice.more_in, notice.near_for),
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
    }

    #[test]
    fn ten_thousand_near_pairs_cost_bounded_bytes_and_none_starves() {
        let mut notices = NoticeBench::default();
        let domain = |n: usize| format!("tenant-{n:05}");
        let (mut bytes, mut count, mut shed) = (0, 0, 0);
        let mut by_domain: BTreeMap<Box<str>, u64> = BTreeMap::new();
        // 1,000 of the domains are hit every 5 ms, in an order of their own.
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
                    *by_domain.entry(notice.domain).or_default() += 1;
                }
            }
        }
        println!(
            "10,000 pairs near their limits, one partition: {count} notices, {bytes} bytes in 10 s, {} pairs told, \
             {shed} left out",
            by_domain.len()
        );
        assert_eq!(count, 20_000, "2,000 a second");
        assert!(bytes < 20_000 * 80, "{bytes}");
        assert!(0 < shed);
        // The pairs that wait are a selection of those that were hit, so that some return sooner than others.
        assert!(9_000 < by_domain.len(), "{}", by_domain.len());
    }
}
