//! Frames of notices: what pairs near their limits have left.
//!
//! Knows nothing of denials. What stays true: a gap in a topic of notices voids notices alone, and is no reason to
//! ask for a snapshot; frames of notices do not show that denials arrive.

use std::collections::HashMap;

use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::notice::{Notice, NoticeFrame};

use super::{Listener, topic_of};
use crate::callback;
use crate::clock::Mono;
use crate::deny::Noticed;
use crate::events::Near;
use crate::resource::{Resource, ResourceId};
use crate::stats::Counters;

/// The notices of one aggregator: for each resource the last sequence received.
#[derive(Debug, Default)]
pub(super) struct NoticeRuns {
    last: HashMap<ResourceId, u64>,
    /// Its notices may be old: they are void at the next tick.
    interrupted: bool,
}

impl NoticeRuns {
    /// Notices of every resource may have been missed.
    pub(super) fn interrupt(&mut self) {
        self.interrupted |= !self.last.is_empty();
        self.last.clear();
    }

    fn frame(&mut self, resource: ResourceId, sequence: u64) -> Sequence {
        match self.last.insert(resource, sequence) {
            None => Sequence::Follows,
            Some(last) if last.saturating_add(1) == sequence => Sequence::Follows,
            Some(last) if last < sequence => Sequence::Gap,
            Some(last) => {
                self.last.insert(resource, last);
                Sequence::Again
            }
        }
    }
}

/// The effect of a frame on a topic's sequence.
enum Sequence {
    Follows,
    Gap,
    Again,
}

impl Listener {
    /// Applies a frame of notices.
    pub(super) fn take_notices(&mut self, index: usize, topic: Topic, bytes: &[u8], now: Mono) {
        let counters = &self.around.counters;
        let Ok(frame) = NoticeFrame::decode(bytes) else {
            return Counters::add(&counters.frames_refused, 1);
        };
        let resource = self.around.resources.find(&frame.resource);
        let Some(resource) = resource.filter(|one| topic_of(one).notices() == topic) else {
            return Counters::add(&counters.frames_refused, 1);
        };
        let Some(peer) = self.publisher(index, frame.instance, now) else {
            return;
        };
        let late = peer.delay.late(frame.sent, now);
        match peer.notices.frame(resource.id, frame.sequence) {
            Sequence::Follows => {}
            Sequence::Gap => {
                Counters::add(&self.around.counters.near_gaps, 1);
                self.near.void(index, Some(resource.id));
            }
            Sequence::Again => return,
        }
        for notice in &frame.notices {
            self.take_notice(index, &resource, notice, late, now);
        }
        self.count_near();
    }

    fn take_notice(
        &self,
        index: usize,
        resource: &Resource,
        notice: &Notice,
        late: Span,
        now: Mono,
    ) {
        let counters = &self.around.counters;
        if self.partitions <= notice.partition {
            return Counters::add(&counters.statements_ignored, 1);
        }
        Counters::add(&counters.near_notices, 1);
        match self.near.take(resource, index, notice, late, now) {
            Noticed::Nearing => {
                if let Some(on_near) = &self.around.on_near {
                    let near = Near {
                        resource: &resource.name,
                        domain: &notice.domain,
                        remaining: notice.left,
                        limit: notice.limit,
                        cause: notice.cause,
                    };
                    callback::call(counters, "on_near", || (on_near.0)(&near));
                }
            }
            Noticed::Renewed | Noticed::Known => {}
            Noticed::NoRoom => Counters::add(&counters.near_without_room, 1),
        }
    }

    /// Removes notices that have ended, or whose publisher's topic was interrupted.
    pub(super) fn tick_notices(&mut self, now: Mono) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if std::mem::take(&mut peer.notices.interrupted) {
                self.near.void(index, None);
            }
        }
        self.near.expire(now);
        self.count_near();
    }

    fn count_near(&self) {
        let near = u64::try_from(self.near.len()).unwrap_or(u64::MAX);
        let counters = &self.around.counters;
        counters
            .near_live
            .store(near, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};

    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::Writer;
    use tollgate_shared::wire::public::Public;
    use tollgate_shared::wire::statement::Cause;

    use super::super::bench::{ListenerBench, stated};
    use super::*;
    use crate::deny::Taking;
    use crate::events::OnNear;

    fn frame(sequence: u64, domains: &[&str]) -> NoticeFrame {
        let notice = |domain: &&str| Notice {
            partition: 1,
            domain: (*domain).into(),
            cause: Cause::Bucket,
            left: 7,
            limit: 50,
            window: Span::from_secs(1),
            more_in: Span::from_millis(20),
            near_for: Span::from_secs(9),
            since: Timestamp::from_millis(5),
        };
        NoticeFrame {
            instance: ListenerBench::instance(0),
            sequence,
            sent: Span::from_secs(5),
            resource: "r".into(),
            notices: domains.iter().map(notice).collect(),
        }
    }

    fn receive(bench: &mut ListenerBench, frame: &NoticeFrame) {
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        let topic = topic_of(&bench.resource).notices();
        let now = bench.now;
        bench.listener.take_frame(0, topic, writer.as_slice(), now);
    }

    fn left(bench: &ListenerBench, domain: &str) -> Option<u64> {
        let taking = Taking {
            copies: 0,
            at: Timestamp::from_millis(6),
            now: bench.now,
        };
        let fingerprint = bench.resource.fingerprint(domain);
        let left = bench
            .view
            .left(&bench.resource, fingerprint, domain, taking);
        left.map(|left| left.remaining)
    }

    #[test]
    fn a_gap_in_notices_voids_notices_alone() {
        let mut bench = ListenerBench::joined(1);
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let calls = Arc::clone(&seen);
        bench.listener.around.on_near = Some(OnNear(Arc::new(move |near: &Near<'_>| {
            let text = format!("{} {}", near.domain(), near.remaining());
            calls.lock().unwrap().push(text);
        })));
        bench.frame(0, 12, &[stated("banned", 11, Some(Span::from_secs(600)))]);
        receive(&mut bench, &frame(3, &["acme"]));
        receive(&mut bench, &frame(4, &["acme", "globex"]));
        receive(&mut bench, &frame(4, &["initech"]));
        assert_eq!(
            (left(&bench, "acme"), left(&bench, "initech")),
            (Some(7), None)
        );
        // 5 is missing.
        receive(&mut bench, &frame(6, &["globex"]));
        assert_eq!(
            (left(&bench, "acme"), left(&bench, "globex")),
            (None, Some(7))
        );
        assert!(bench.refused("banned").is_some() && bench.refused("globex").is_none());
        assert_eq!(bench.open_ask(0), None, "nobody is asked for notices");
        let counters = Arc::clone(&bench.listener.around.counters);
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!((of(&counters.near_gaps), of(&counters.gaps)), (1, 0));
        assert_eq!(
            (of(&counters.near_notices), of(&counters.near_live)),
            (4, 1)
        );
        assert_eq!(*seen.lock().unwrap(), ["acme 7", "globex 7", "globex 7"]);
    }

    #[test]
    fn a_lift_and_other_limits_void_notices() {
        let mut bench = ListenerBench::joined(1);
        receive(&mut bench, &frame(3, &["acme", "globex"]));
        bench.frame(0, 12, &[stated("acme", 11, None)]);
        let both = |bench: &ListenerBench| [left(bench, "acme"), left(bench, "globex")];
        assert_eq!(both(&bench), [None, Some(7)]);
        // The same limits, under another number.
        bench.ask_again(
            0,
            13,
            Public {
                version: 2,
                ..bench.public.clone()
            },
        );
        assert_eq!(both(&bench), [None, Some(7)]);
        bench.ask_again(
            0,
            14,
            Public {
                version: 3,
                has_overrides: true,
                ..bench.public.clone()
            },
        );
        assert_eq!(both(&bench), [None, None]);
    }

    #[test]
    fn notices_end_with_their_feed() {
        let mut bench = ListenerBench::joined(1);
        receive(&mut bench, &frame(3, &["acme"]));
        bench.listener.feed_down(0);
        bench.listener.tick(bench.now);
        assert_eq!(left(&bench, "acme"), None);
        let foreign = NoticeFrame {
            instance: 1,
            ..frame(1, &["acme"])
        };
        receive(&mut bench, &foreign);
        assert_eq!(left(&bench, "acme"), None);
    }
}
