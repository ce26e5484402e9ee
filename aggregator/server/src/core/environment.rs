//! What all parts of the core share: settings, counters, and requested effects.
//!
//! Knows nothing of partitions. What stays true: effects are carried out in the order in which they were requested;
//! the answer to an append is found by its ticket, once.

use std::collections::HashMap;

use tollgate_log::{Append, Stream, Ticket};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::FromAggregator;

use super::event::{Effect, Peer, QueryId};
use super::partition::event::PartitionOutput;
use super::settings::Settings;
use super::view::Reply;

/// The purpose of an append that no partition made.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Genesis(Stream, u32),
    Document(u128),
    Amendment(u128),
    Agent { peer: Peer, id: u64, partition: u32 },
}

/// What all parts of the core share.
pub(super) struct Environment {
    pub settings: Settings,
    /// This process's instance.
    pub instance: u128,
    random: blake3::OutputReader,
    /// What partitions leave behind, and the counters.
    pub out: PartitionOutput,
    /// The effects that were requested.
    pub effects: Vec<Effect>,
    appends: HashMap<Ticket, Purpose>,
    last_ticket: u64,
}

impl Environment {
    pub fn new(settings: Settings) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate 2026-11 aggregator randomness");
        hasher.update(&settings.seed);
        let mut random = hasher.finalize_xof();
        Self {
            instance: draw_u128(&mut random),
            random,
            out: PartitionOutput::default(),
            effects: Vec::new(),
            appends: HashMap::new(),
            last_ticket: 0,
            settings,
        }
    }

    pub fn draw_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub fn draw_u128(&mut self) -> u128 {
        draw_u128(&mut self.random)
    }

    pub fn append(
        &mut self,
        stream: Stream,
        partition: u32,
        record: Vec<u8>,
        purpose: Purpose,
    ) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.appends.insert(ticket, purpose);
        self.effects.push(Effect::Append(Append {
            stream,
            partition,
            ticket,
            record: record.into(),
        }));
        ticket
    }

    /// The purpose of an append that was answered; `None`: no part waits for the answer.
    pub fn answered(&mut self, ticket: Ticket) -> Option<Purpose> {
        self.appends.remove(&ticket)
    }

    pub fn follow(&mut self, stream: Stream, partition: u32, from: u64) {
        self.effects.push(Effect::Follow {
            stream,
            partition,
            from,
        });
    }

    pub fn unfollow(&mut self, stream: Stream, partition: u32) {
        self.effects.push(Effect::Unfollow { stream, partition });
    }

    pub fn reply(&mut self, id: QueryId, reply: Reply) {
        let reply = Box::new(reply);
        self.effects.push(Effect::Reply { id, reply });
    }

    pub fn answer(&mut self, peer: Peer, answer: &FromAggregator) {
        let mut writer = Writer::new();
        answer.encode(&mut writer);
        self.effects.push(Effect::Answer {
            peer,
            message: writer.as_slice().to_vec(),
        });
    }
}

fn draw_u128(random: &mut blake3::OutputReader) -> u128 {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    u128::from_le_bytes(bytes)
}
