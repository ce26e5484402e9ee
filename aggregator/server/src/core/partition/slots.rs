//! Records that a partition appends repeatedly, one at a time: ticks, and activations of new limits.

use tollgate_log::{RETRY_AFTER, Ticket};
use tollgate_shared::time::{Span, Timestamp};

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

/// The own ticks in one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// The tick on its way, if any.
    pub slot: AppendSlot,
    /// The number of the last tick that was appended.
    pub number: u64,
    /// When it was sent.
    pub sent: Span,
    /// The limits version under which it was signed.
    pub under: u64,
    /// Of the newest tick that was read: when the log took it at the latest, and when it was sent.
    pub newest: Option<(Timestamp, Span)>,
    /// The newest tick that was read, until the log has answered its append.
    unanswered: Option<Ticket>,
}

impl Ticks {
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
