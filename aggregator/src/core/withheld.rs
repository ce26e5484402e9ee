//! What is to be appended to a partition whose identity is not in the log yet waits here.
//!
//! ```text
//! identity ── no room on the disk ── again ── taken
//! tick ────── waits ──────────────────────────────── sent, behind it
//! ```
//!
//! Records that came before the identity of their generation would have places of the one before, which a log that
//! lost its end has given away already. What stays true: what is appended to a partition keeps its order; no more waits
//! than its senders have on their way at once.

use std::collections::VecDeque;

use tollgate_shared::bugs::{Bug, planted};

use super::event::Effect;
use super::{Core, Purpose};

/// Appends that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Withheld(VecDeque<Effect>);

impl Core {
    /// Takes out of the effects of a step what may not be appended yet, and puts in what may be now.
    pub(super) fn withhold(&mut self) {
        let waits = !self.withheld.0.is_empty();
        if !waits && !self.identities.any_awaited() || planted(Bug::IdentityLate) {
            return;
        }
        let before = std::mem::take(&mut self.withheld.0);
        for effect in before.into_iter().chain(std::mem::take(&mut self.effects)) {
            if self.is_early(&effect) {
                self.withheld.0.push_back(effect);
            } else {
                self.effects.push(effect);
            }
        }
    }

    /// Whether it is an append that the identity of its partition has to precede.
    fn is_early(&self, effect: &Effect) -> bool {
        let Effect::Append {
            stream,
            partition,
            ticket,
            ..
        } = effect
        else {
            return false;
        };
        let is_identity = matches!(self.appends.get(ticket), Some(Purpose::Genesis(..)));
        !is_identity && self.identities.is_awaited((*stream, *partition))
    }
}
