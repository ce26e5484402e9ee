//! Verdicts on holds: the verdicts of a turn are published on each agent's own topic.
//!
//! ```text
//! ruled in a turn    web-1: hold 7 counted, hold 8 granted        one frame of web-1's topic
//! ```
//!
//! Published verdicts are not kept: an agent that missed one asks again with its next heartbeat. So these topics
//! have no heartbeats, and cost nothing while there are no verdicts. Knows nothing of sockets.
//!
//! What stays true: no two frames of a publisher have one sequence; a frame is never larger than a
//! message may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_engine::engine::VerdictDue;
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::verdict::{Verdict, VerdictFrame};
use tollgate_shared::wire::{MESSAGE_BYTES_MAX, Writer};

use super::event::Effect;

/// Verdicts in one frame. With names of the greatest length a verdict takes 870 bytes.
const VERDICTS_MAX: usize = 1_100;

const _: () = assert!(VERDICTS_MAX * 870 + 1_000 <= MESSAGE_BYTES_MAX);

/// The verdicts that were ruled and not published yet.
#[derive(Debug, Default)]
pub struct Verdicts {
    pending: BTreeMap<Arc<str>, Vec<Verdict>>,
    /// One sequence for all agents: a sequence per agent would need memory for every name.
    sequence: u64,
    writer: Writer,
}

impl Verdicts {
    /// Takes a verdict of a ready partition, and publishes it at the end of the turn.
    pub fn queue(&mut self, partition: u32, due: VerdictDue) {
        let verdict = Verdict {
            partition,
            position: due.position,
            epoch: due.epoch,
            resource: (*due.resource).into(),
            status: due.status,
        };
        self.pending.entry(due.agent).or_default().push(verdict);
    }

    /// Publishes the verdicts of this turn. Returns the number of frames.
    pub fn publish(
        &mut self,
        instance: u128,
        topic_key: &[u8; 16],
        clock: Span,
        effects: &mut Vec<Effect>,
    ) -> u64 {
        let before = self.sequence;
        for (agent, mut verdicts) in std::mem::take(&mut self.pending) {
            let topic = Topic::of_agent(topic_key, &agent);
            while !verdicts.is_empty() {
                let rest = verdicts.split_off(verdicts.len().min(VERDICTS_MAX));
                self.sequence += 1;
                VerdictFrame {
                    instance,
                    sequence: self.sequence,
                    sent: clock,
                    agent: (*agent).into(),
                    verdicts: std::mem::replace(&mut verdicts, rest),
                }
                .encode(&mut self.writer);
                effects.push(Effect::Publish {
                    topic,
                    frame: self.writer.as_slice().to_vec(),
                });
            }
        }
        self.sequence - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::log_position::LogPosition;
    use tollgate_shared::wire::statement::Scope;
    use tollgate_shared::wire::verdict::{HoldStatus, SeizedCopies};

    #[test]
    fn frames_are_distinct_and_bounded() {
        let mut verdicts = Verdicts::default();
        let name = "n".repeat(256);
        for number in 0..2_000 {
            verdicts.queue(
                0,
                VerdictDue {
                    agent: name.as_str().into(),
                    epoch: u128::MAX,
                    resource: name.as_str().into(),
                    position: LogPosition::default(),
                    status: Some(HoldStatus {
                        number,
                        copies: u32::MAX,
                        excess: u32::MAX,
                        scope: Some(Scope::Group(name.as_str().into())),
                        reason: None,
                        seized: Some(SeizedCopies {
                            domain: name.as_str().into(),
                            start: tollgate_shared::time::Timestamp::MAX,
                        }),
                    }),
                },
            );
        }
        let mut effects = Vec::new();
        assert_eq!(verdicts.publish(1, &[0; 16], Span::ZERO, &mut effects), 2);
        assert_eq!(verdicts.publish(1, &[0; 16], Span::ZERO, &mut effects), 0);
        let mut numbers = 0..2_000;
        for (effect, sequence) in effects.iter().zip(1..) {
            let Effect::Publish { topic, frame } = effect else {
                panic!("{effect:?}")
            };
            assert_eq!(*topic, Topic::of_agent(&[0; 16], &name));
            let frame = VerdictFrame::decode(frame).expect("a frame");
            assert_eq!(frame.sequence, sequence);
            for verdict in frame.verdicts {
                assert_eq!(verdict.status.map(|of| of.number), numbers.next());
            }
        }
        assert_eq!(numbers.next(), None);
    }
}
