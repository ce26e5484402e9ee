//! The edge's counters, and its log lines for the operator.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_shared::log_lines::excerpt;

use super::ended::{Ended, REASONS};

/// The minimum time between two lines: peers must not be able to fill a disk.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Counters of the connections to one port.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Connections that ended, in the order of [`REASONS`].
    ended: [AtomicU64; REASONS.len()],
    /// Connections that are READY.
    pub open: AtomicU64,
}

impl PortCounters {
    /// How many connections ended for each reason.
    pub fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.ended.iter().map(|one| one.load(Ordering::Relaxed));
        REASONS.into_iter().zip(counts)
    }

    pub(super) fn count(&self, ended: &Ended) {
        let reason = ended.reason();
        if let Some(at) = REASONS.iter().position(|one| Some(*one) == reason) {
            self.ended[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Log lines for the operator, at most one a second.
#[derive(Debug, Default)]
pub(crate) struct OperatorLines {
    last: Mutex<Option<Instant>>,
    unsaid: AtomicU64,
}

impl OperatorLines {
    /// Whether a line may be logged now; if so, how many were suppressed since the last.
    fn may(&self, now: Instant) -> Option<u64> {
        let mut last = self
            .last
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if last.is_some_and(|last| now < last + LINE_EVERY) {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *last = Some(now);
        Some(self.unsaid.swap(0, Ordering::Relaxed))
    }

    /// Logs something about a peer of HTTP, within the caller's span.
    pub(crate) fn of_http(&self, what: std::fmt::Arguments<'_>) {
        if let Some(unsaid) = self.may(Instant::now()) {
            tracing::warn!(unsaid, "HTTP: {what}");
        }
    }

    /// Logs that a connection was ended, and why, within the caller's span.
    pub(super) fn ended(&self, detail: Option<&str>, ended: &Ended) {
        let Some(reason) = ended.reason().filter(|_| ended.is_logged()) else {
            return;
        };
        if let Some(unsaid) = self.may(Instant::now()) {
            tracing::warn!(reason, detail, unsaid, "ended a connection: {ended}");
        }
    }

    /// Logs that a batch of an agent, or a question, was refused, within the caller's span.
    pub(crate) fn refused(
        &self,
        agent: Option<&str>,
        reason: &'static str,
        why: &dyn std::fmt::Display,
    ) {
        if let Some(unsaid) = self.may(Instant::now()) {
            let agent = agent.map(excerpt).map(tracing::field::display);
            tracing::warn!(agent, reason, unsaid, "refused: {why}");
        }
    }

    /// Logs that the connections of an address are not read for now.
    pub(crate) fn held(&self, address: IpAddr, allowed: usize) {
        if let Some(unsaid) = self.may(Instant::now()) {
            tracing::warn!(
                %address,
                unsaid,
                "its connections wait: {allowed} bytes of their records are not ruled yet, as many as listen.appends_per_address_max"
            );
        }
    }

    /// Logs that a connection could not be accepted.
    pub(crate) fn not_accepted(&self, port: &'static str, error: &std::io::Error) {
        if let Some(unsaid) = self.may(Instant::now()) {
            tracing::warn!(port, unsaid, %error, "accepting pauses");
        }
    }

    /// Logs that no connection is accepted, because there are as many as allowed.
    pub(super) fn paused(&self, port: &'static str, open: usize) {
        if let Some(unsaid) = self.may(Instant::now()) {
            tracing::warn!(
                port,
                unsaid,
                "accepting pauses: {open} connections are open, as many as listen.connections_max and the limit on open files allow"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_logged_once_a_second_and_says_how_many_were_not() {
        let lines = OperatorLines::default();
        let began = Instant::now();
        assert_eq!(lines.may(began), Some(0));
        for ms in 1..1_000 {
            assert_eq!(lines.may(began + Duration::from_millis(ms)), None);
        }
        assert_eq!(lines.may(began + LINE_EVERY), Some(999));
    }

    #[test]
    fn every_reason_that_ends_a_connection_has_its_counter() {
        let allowed = Duration::ZERO;
        let all = [
            Ended::Gone,
            Ended::Handshake { allowed },
            Ended::PendingOfAddress { allowed: 1 },
            Ended::Pending { allowed: 1 },
            Ended::ConnectionsOfAddress { allowed: 1 },
            Ended::SlowMessage { found: 1, allowed },
            Ended::Unfinished {
                found: 1,
                allowed: 1,
            },
            Ended::Silent { allowed },
            Ended::Stalled { found: 1, allowed },
            Ended::Backlog {
                found: 1,
                allowed: 1,
            },
            Ended::Topic {
                found: 1,
                allowed: 1,
            },
            Ended::Subscriptions {
                found: 1,
                allowed: 1,
            },
            Ended::SubscriptionsOfAddress { allowed: 1 },
            Ended::SubscriptionsOfAll { allowed: 1 },
            Ended::Garbage { found: 1 },
            Ended::Tls,
            Ended::Refused(crate::security::AccessRefused::NoToken),
            Ended::Revoked,
            Ended::Violation(tollgate_zmtp::Violation::NotReady),
            Ended::Violation(tollgate_zmtp::Violation::Mechanism),
            Ended::Violation(tollgate_zmtp::Violation::PeerError),
            Ended::Violation(tollgate_zmtp::Violation::NotASubscription),
            Ended::Violation(tollgate_zmtp::Violation::Flags { found: 8 }),
            Ended::Violation(tollgate_zmtp::Violation::TooManyParts { allowed: 1 }),
            Ended::Violation(tollgate_zmtp::Violation::FrameTooLong {
                found: 2,
                allowed: 1,
            }),
        ];
        let counters = PortCounters::default();
        for (before, ended) in all.iter().enumerate() {
            counters.count(ended);
            let sum: u64 = counters.ended().map(|(_, count)| count).sum();
            assert_eq!(sum, before as u64 + 1, "{ended:?}");
        }
        assert!(counters.ended().all(|(_, count)| 0 < count));
        let unlogged = all.iter().filter(|ended| !ended.is_logged());
        assert!(unlogged.eq([&Ended::Gone]));
    }
}
