//! What a partition appends now and then, at most one at a time: ticks, and pointers at new limits.

use tollgate_log::{RETRY_AFTER, Ticket};
use tollgate_shared::time::{Span, Timestamp};

/// A thing that is appended now and then, at most once at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendSlot {
    /// What is on its way: appended, and not seen in the log yet.
    pub ticket: Option<Ticket>,
    /// Not before this.
    pub not_before: Span,
}

impl AppendSlot {
    /// Whether one may be appended now.
    pub fn is_free(&self, clock: Span) -> bool {
        self.ticket.is_none() && self.not_before <= clock
    }

    /// It did not reach the log.
    pub fn failed(&mut self, clock: Span) {
        self.ticket = None;
        self.not_before = clock.saturating_add(RETRY_AFTER);
    }

    /// What this ticket named did not reach the log, if that is waited for.
    pub fn failed_of(&mut self, ticket: Ticket, clock: Span) {
        if self.ticket == Some(ticket) {
            self.failed(clock);
        }
    }
}

/// The ticks of an owner in one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// On its way, or not.
    pub slot: AppendSlot,
    /// The number of the last one that was appended.
    pub number: u64,
    /// When that was sent.
    pub sent: Span,
    /// The limits version under which it was signed.
    pub under: u64,
    /// Of the newest one that came back: when the log took it at the latest, and when it was sent.
    pub newest: Option<(Timestamp, Span)>,
    /// The newest one that came back, until the log has answered its append.
    unanswered: Option<Ticket>,
}

impl Ticks {
    /// One came back, which the log took then.
    pub fn came_back(&mut self, number: u64, appended: Timestamp) {
        if number == self.number {
            self.newest = Some((appended.end_of_millisecond(), self.sent));
            self.unanswered = self.slot.ticket.take();
        }
    }

    /// The log says when it took one, more exactly than by the record: deliveries come before answers.
    pub fn taken(&mut self, ticket: Ticket, at: Option<Timestamp>) {
        if self.unanswered == Some(ticket) {
            self.unanswered = None;
            if let (Some((latest, _)), Some(at)) = (&mut self.newest, at) {
                *latest = at.min(*latest);
            }
        }
    }

    /// None has come back and none is waited for. Numbers go on; and the last one may come back yet, or be read once
    /// more, so that it stays known when it was sent.
    #[must_use]
    pub fn begun_anew(self) -> Self {
        Self {
            number: self.number,
            sent: self.sent,
            under: self.under,
            ..Self::default()
        }
    }
}

/// The pointers of an owner in one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pointing {
    /// On its way, or not.
    pub slot: AppendSlot,
    /// The version that it points at, or the last one did.
    pub version: u64,
    /// The limits version under which it was signed.
    pub under: u64,
}

impl Pointing {
    /// One was met that points at a version; `in_force` is the one that rules behind it. Says whether it is the one
    /// that was waited for, or a later one.
    pub fn met(&mut self, version: u64, in_force: u64, clock: Span) -> bool {
        // Whatever has become the latest version meanwhile: it gets a pointer of its own.
        if version < self.version {
            return false;
        }
        self.slot = AppendSlot::default();
        if in_force < version {
            // It was passed over; what it would have brought is pointed at again, by and by.
            self.slot.failed(clock);
        }
        true
    }
}
