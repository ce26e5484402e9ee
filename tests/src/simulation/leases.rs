//! How long an agent's denials may hold, by the messages that it received: partition by
//! partition, of one resource's topic.
//!
//! ```text
//! had received api.search, partition 3, up to @118
//! a frame: partition 3 up to @120       renews its lease
//! the same frame once more              does not: a log that stands still fails open
//! a frame: partition 5 up to @90        does not renew the lease of partition 3
//! ```
//!
//! Reads the messages on the wire beside the agent, and asks the agent only for the log position
//! that it has reached. What stays true: everything counts that the agent may count as a new
//! watermark, also frames after a gap.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_agent::simulation::{Happening, SimulatedAgent};
use tollgate_shared::place::Place;
use tollgate_shared::wire::frame::{Frame, Watermark};
use tollgate_shared::wire::link::FromAggregator;

/// The messages of one process.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// When a watermark of a resource's partition last arrived.
    renewed_us: BTreeMap<(Box<str>, u32), u64>,
    /// The resources in the parts of each aggregator's snapshot that have arrived.
    parts: BTreeMap<usize, BTreeSet<Box<str>>>,
}

impl Leases {
    /// When a watermark of a resource's partition last arrived; `None` means never.
    pub(super) fn renewed_us(&self, resource: &str, partition: u32) -> Option<u64> {
        self.renewed_us.get(&(resource.into(), partition)).copied()
    }

    /// Notes an arrival before the agent handles it.
    pub(super) fn comes(&mut self, happening: &Happening, process: &SimulatedAgent, now_us: u64) {
        match happening {
            Happening::FeedSaid { topic, frame, .. } if *topic != process.topic() => {
                if let Ok(frame) = Frame::decode(frame) {
                    self.take(process, &frame.resource, &frame.evidence, now_us);
                }
            }
            Happening::LinkSaid { peer, message } => {
                let Ok(FromAggregator::Snapshot(snapshot)) = FromAggregator::decode(message) else {
                    return;
                };
                let parts = self.parts.entry(*peer).or_default();
                if snapshot.part == 0 {
                    parts.clear();
                }
                parts.extend(snapshot.topics.into_iter().map(|topic| topic.resource));
                if !snapshot.more {
                    for resource in std::mem::take(parts) {
                        self.take(process, &resource, &snapshot.evidence, now_us);
                    }
                }
            }
            _ => {}
        }
    }

    fn take(
        &mut self,
        process: &SimulatedAgent,
        resource: &str,
        evidence: &[Watermark],
        now_us: u64,
    ) {
        for one in evidence {
            let place = Place::of_record(one.log, one.ruled);
            let heard = process.heard_upto(resource, one.partition);
            let is_another = process.known_log(one.partition) != Some(one.log);
            if is_another || heard.is_none_or(|heard| heard < place) {
                let of = (resource.into(), one.partition);
                self.renewed_us.insert(of, now_us);
            }
        }
    }
}
