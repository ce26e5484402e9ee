//! Withheld appends: records for a partition whose identity is not in the log yet wait here.
//!
//! ```text
//! identity ─── no room on the disk ── again ── taken
//! activation ─ waits ──────────────────────────────── sent, after the identity
//! tick ─────── not sent: another one is, later
//! ```
//!
//! A record before the identity of its generation would have a log position of the previous generation, which a log
//! that lost its end may have used already. A tick that waited would make the log's time seem later than it is, by as
//! long. What stays true: appends to a partition keep their order; no more of them wait than their senders have on
//! their way at once.

use std::collections::VecDeque;

use tollgate_log::{Append, Stream, Ticket};
use tollgate_shared::wire::record::kind;

use super::event::Effect;
use super::identities::Identities;

/// Appends that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Withheld(VecDeque<Effect>);

/// What to do with an effect.
enum Turn {
    /// Carry it out.
    Now,
    /// Let it wait.
    Later,
    /// It is a tick of this partition: discard it.
    Never(u32, Ticket),
}

impl Withheld {
    /// Removes from the effects of a step the appends that have to wait, and adds those that need not wait any more.
    /// Returns the ticks that were discarded, each with its partition.
    pub fn sort(
        &mut self,
        effects: &mut Vec<Effect>,
        identities: &Identities,
    ) -> Vec<(u32, Ticket)> {
        let mut never = Vec::new();
        let waits = !self.0.is_empty();
        if !waits && !identities.any_awaited() {
            return never;
        }
        let before = std::mem::take(&mut self.0);
        for effect in before.into_iter().chain(std::mem::take(effects)) {
            match turn_of(&effect, identities) {
                Turn::Now => effects.push(effect),
                Turn::Later => self.0.push_back(effect),
                Turn::Never(partition, ticket) => never.push((partition, ticket)),
            }
        }
        never
    }
}

fn turn_of(effect: &Effect, identities: &Identities) -> Turn {
    let Effect::Append(Append {
        stream,
        partition,
        ticket,
        record,
    }) = effect
    else {
        return Turn::Now;
    };
    if !identities.is_awaited((*stream, *partition)) {
        return Turn::Now;
    }
    match record.get(1) {
        Some(&kind::GENESIS) => Turn::Now,
        Some(&kind::TICK) if *stream == Stream::Hits => Turn::Never(*partition, *ticket),
        _ => Turn::Later,
    }
}
