//! What is to be appended to a partition whose identity is not in the log yet waits here.
//!
//! ```text
//! identity ── no room on the disk ── again ── taken
//! pointer ─── waits ──────────────────────────────── sent, behind it
//! tick ────── not sent: another one is, later
//! ```
//!
//! Records that came before the identity of their generation would have places of the one before, which a log that
//! lost its end has given away already. A tick that waited would say that the log's time is later than it is, by as
//! long. What stays true: what is appended to a partition keeps its order; no more waits than its senders have on their
//! way at once.

use std::collections::VecDeque;

use tollgate_log::{Stream, Ticket};
use tollgate_shared::wire::record::kind;

use super::event::Effect;
use super::identities::Identities;

/// Appends that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Withheld(VecDeque<Effect>);

/// What becomes of an effect.
enum Turn {
    /// It is carried out.
    Now,
    /// It waits.
    Later,
    /// It is a tick of this partition, and does not wait.
    Never(u32, Ticket),
}

impl Withheld {
    /// Takes out of the effects of a step what may not be appended yet, and puts in what may be now. Gives the ticks
    /// that are not appended, each with its partition.
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
    let Effect::Append {
        stream,
        partition,
        ticket,
        record,
    } = effect
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
