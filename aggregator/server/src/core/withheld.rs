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

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::time::Span;

use super::event::Effect;
use super::{Core, Purpose};

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
    Never(u32),
}

impl Core {
    /// Takes out of the effects of a step what may not be appended yet, and puts in what may be now.
    pub(super) fn withhold(&mut self, clock: Span) {
        let waits = !self.withheld.0.is_empty();
        if !waits && !self.identities.any_awaited() || planted(Bug::IdentityLate) {
            return;
        }
        let before = std::mem::take(&mut self.withheld.0);
        for effect in before.into_iter().chain(std::mem::take(&mut self.effects)) {
            match self.turn_of(&effect) {
                Turn::Now => self.effects.push(effect),
                Turn::Later => self.withheld.0.push_back(effect),
                Turn::Never(index) => self.take_back_tick(index, &effect, clock),
            }
        }
    }

    fn turn_of(&self, effect: &Effect) -> Turn {
        let Effect::Append {
            stream,
            partition,
            ticket,
            ..
        } = effect
        else {
            return Turn::Now;
        };
        if !self.identities.is_awaited((*stream, *partition)) {
            return Turn::Now;
        }
        match self.appends.get(ticket) {
            Some(Purpose::Genesis(..)) => Turn::Now,
            Some(Purpose::Tick(index)) => Turn::Never(*index),
            _ => Turn::Later,
        }
    }

    fn take_back_tick(&mut self, index: u32, effect: &Effect, clock: Span) {
        if let Effect::Append { ticket, .. } = effect {
            self.appends.remove(ticket);
            if let Some(partition) = self.partitions.get_mut(index as usize) {
                partition.ticks.slot.failed_of(*ticket, clock);
            }
        }
    }
}
