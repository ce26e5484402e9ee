//! Records that a partition appends repeatedly, one at a time: ticks, and activations of new limits.

use tollgate_log::{RETRY_AFTER, Ticket};
use tollgate_shared::time::{Span, Timestamp};

use super::{QUIET_AFTER, TICK_EVERY, TICK_EVERY_QUIET};

/// A slot for records that are appended one at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendSlot {
    /// The record on its way: appended, and not read yet.
    pub ticket: Option<Ticket>,
    /// No record is appended before this time.
    pub not_before: Span,
}

impl AppendSlot {
    /// Whether a record may be appended now.
    pub fn is_free(&self, clock: Span) -> bool {
        self.ticket.is_none() && self.not_before <= clock
    }

    /// The record did not reach the log.
    pub fn failed(&mut self, clock: Span) {
        self.ticket = None;
        self.not_before = clock.saturating_add(RETRY_AFTER);
    }

    /// The record of this ticket did not reach the log, if the slot waits for it.
    pub fn failed_of(&mut self, ticket: Ticket, clock: Span) {
        if self.ticket == Some(ticket) {
            self.failed(clock);
        }
    }
}

/// When the next tick is sent after one at `clock`, if ticks are sent every so often. All partitions' ticks are due at the
/// same instants: together they wake the process once.
fn next_tick_after(clock: Span, every: Span) -> Span {
    let every_us = every.as_micros().max(1);
    let next = clock.as_micros() / every_us + 1;
    Span::from_micros(next.saturating_mul(every_us))
}

/// The own ticks in one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// The tick on its way, if any.
    pub slot: AppendSlot,
    /// The number of the last tick that was appended.
    pub number: u64,
    /// When it was sent.
    pub sent: Span,
    /// When a record was last ruled that is no tick, nor follows from one.
    pub busy: Span,
    /// The limits version under which it was signed.
    pub under: u64,
    /// Of the newest tick that was read: when the log took it at the latest, and when it was sent.
    pub newest: Option<(Timestamp, Span)>,
    /// The newest tick that was read, until the log has answered its append.
    unanswered: Option<Ticket>,
}

impl Ticks {
    /// Whether nothing but ticks was ruled for [`QUIET_AFTER`] before the last tick was sent.
    pub fn are_quiet(&self) -> bool {
        QUIET_AFTER <= self.sent.saturating_sub(self.busy)
    }

    /// The next tick is not sent at once after this instant.
    pub fn wait_from(&mut self, clock: Span) {
        self.slot.not_before = next_tick_after(clock, TICK_EVERY);
    }

    /// When the next tick is due, unless one is on its way. After one that was lost, the next is as soon as ever.
    pub fn due(&self) -> Span {
        let has_come_back = self.newest.is_some_and(|(_, sent)| sent == self.sent);
        match has_come_back && self.are_quiet() {
            true => { self.slot.not_before }.max(next_tick_after(self.sent, TICK_EVERY_QUIET)),
            false => self.slot.not_before,
        }
    }

    /// A tick was read, which the log took at `appended`.
    pub fn came_back(&mut self, number: u64, appended: Timestamp) {
        if number == self.number {
            self.newest = Some((appended.end_of_millisecond(), self.sent));
            self.unanswered = self.slot.ticket.take();
        }
    }

    /// The log states when it took a tick, more exactly than the record does: records are delivered before answers.
    pub fn taken(&mut self, ticket: Ticket, at: Option<Timestamp>) {
        if self.unanswered == Some(ticket) {
            self.unanswered = None;
            if let (Some((latest, _)), Some(at)) = (&mut self.newest, at) {
                *latest = at.min(*latest);
            }
        }
    }

    /// Ticks of a recreated log: no tick has been read and none is awaited. Numbers continue. The last tick may
    /// still be read, perhaps once more, so the time at which it was sent stays known.
    #[must_use]
    pub fn on_recreated_log(self) -> Self {
        Self {
            number: self.number,
            sent: self.sent,
            busy: self.busy,
            under: self.under,
            ..Self::default()
        }
    }
}

/// The own limits activations in one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pointing {
    /// The activation on its way, if any.
    pub slot: AppendSlot,
    /// The version that it activates, or that the last one did.
    pub version: u64,
    /// The limits version under which it was signed.
    pub under: u64,
}

impl Pointing {
    /// An activation of `version` was read; `in_force` is the version that rules after it. Returns whether it is the
    /// activation that was awaited, or a later one.
    pub fn met(&mut self, version: u64, in_force: u64, clock: Span) -> bool {
        // A newer version has appeared meanwhile, and has an activation of its own.
        if version < self.version {
            return false;
        }
        self.slot = AppendSlot::default();
        if in_force < version {
            // The partition ignored the activation; the version is activated again later.
            self.slot.failed(clock);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    /// A tick that was sent at `sent` and came back, after a record at `busy`.
    fn ticks(sent: u64, busy: u64) -> Ticks {
        let mut ticks = Ticks {
            sent: at(sent),
            busy: at(busy),
            ..Ticks::default()
        };
        ticks.wait_from(at(sent));
        ticks.came_back(0, Timestamp::from_millis(1));
        ticks
    }

    #[test]
    fn ticks_are_due_at_common_instants() {
        assert_eq!(next_tick_after(at(0), TICK_EVERY), at(250));
        assert_eq!(next_tick_after(at(499), TICK_EVERY), at(500));
        assert_eq!(next_tick_after(at(500), TICK_EVERY), at(750));
        assert_eq!(ticks(6_001, 5_990).due(), at(6_250), "busy");
        assert_eq!(ticks(6_001, 1_002).due(), at(6_250), "almost quiet");
        assert_eq!(ticks(6_001, 1_001).due(), at(6_400), "quiet");
        assert_eq!(Ticks::default().due(), at(0), "the first");
    }

    #[test]
    fn after_a_lost_tick_the_next_of_a_quiet_partition_is_as_soon_as_ever() {
        let mut quiet = ticks(6_001, 0);
        (quiet.number, quiet.sent) = (1, at(6_400));
        quiet.slot.failed(at(6_401));
        assert_eq!(quiet.due(), at(6_401).saturating_add(RETRY_AFTER));
        // Those of a recreated log are no different.
        assert_eq!(ticks(6_001, 0).on_recreated_log().due(), at(0));
    }
}
