//! Deadlines of a connection: its handshake, the end of a message, any sign of life.
//!
//! ```text
//! accepted ──10 s──> READY, and a hello or a topic      else: handshake
//! a message's first byte ──5 s──> its last      else: slow message
//! a byte ──2 s──> ping ──8 s──> a byte          else: silent
//! no pings (ZMTP 3.0), and topics: ──10 min──> a byte from it or to it     else: silent
//! ```
//!
//! Knows only instants: clock and socket are the caller's. What stays true: a peer is not blamed for bytes
//! that this side does not read.

use tokio::time::Instant;

use super::bounds::Bounds;
use super::ended::Ended;

/// What to do about a connection now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Ping the peer.
    Ping,
    /// End the connection.
    End(Ended),
}

/// The deadlines of one connection.
#[derive(Debug)]
pub struct Patience {
    began: Instant,
    last_received: Instant,
    /// When the peer last took something.
    took: Instant,
    /// When the first byte of an unfinished message arrived.
    unfinished: Option<Instant>,
    is_ready: bool,
    /// Whether the peer has stated its purpose.
    has_begun: bool,
    /// Whether the peer understands pings.
    pings: bool,
    is_pinged: bool,
}

impl Patience {
    /// For a connection that was accepted now.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            last_received: now,
            took: now,
            unfinished: None,
            is_ready: false,
            has_begun: false,
            pings: false,
            is_pinged: false,
        }
    }

    /// The handshake is complete.
    pub fn ready(&mut self, pings: bool) {
        self.is_ready = true;
        self.pings = pings;
    }

    /// Whether the peer understands pings.
    pub fn pings(&self) -> bool {
        self.pings
    }

    /// The peer has stated its purpose.
    pub fn begun(&mut self) {
        self.has_begun = true;
    }

    /// Bytes arrived, and all of them were handled. `completed`: a message ended in them; `between`: no message
    /// is unfinished after them.
    pub fn note_received(&mut self, now: Instant, completed: bool, between: bool) {
        self.last_received = now;
        self.is_pinged = false;
        self.unfinished = match (between, completed, self.unfinished) {
            (true, _, _) => None,
            (false, false, Some(since)) => Some(since),
            (false, _, _) => Some(now),
        };
    }

    /// Notes when the peer last took something, if ever.
    pub fn took(&mut self, at: Option<Instant>) {
        self.took = at.map_or(self.took, |at| at.max(self.took));
    }

    /// The connection is not read now, for reasons on this side.
    pub fn not_read(&mut self, now: Instant) {
        self.last_received = now;
        self.unfinished = self.unfinished.map(|_| now);
        if self.is_ready {
            self.began = now;
        }
    }

    /// Returns what is due. `held` bytes of a message have arrived; `may_be_silent`: a peer that understands no
    /// pings need not send anything while it takes what is sent.
    pub fn look(&mut self, now: Instant, bounds: &Bounds, held: usize, may_be_silent: bool) -> Due {
        let allowed = bounds.handshake;
        if !self.has_begun && self.began + allowed <= now {
            return Due::End(Ended::Handshake { allowed });
        }
        if !self.is_ready {
            return Due::Nothing;
        }
        if self
            .unfinished
            .is_some_and(|since| since + bounds.message <= now)
        {
            return Due::End(Ended::SlowMessage {
                found: held,
                allowed: bounds.message,
            });
        }
        let silent = now.saturating_duration_since(self.last_received);
        let (quiet, allowed) = match self.pings || !may_be_silent {
            true => (silent, bounds.silence),
            false => {
                let took = now.saturating_duration_since(self.took);
                (silent.min(took), bounds.unpinged_silence)
            }
        };
        if allowed <= quiet {
            return Due::End(Ended::Silent { allowed });
        }
        if bounds.ping <= silent && self.pings && !self.is_pinged {
            self.is_pinged = true;
            return Due::Ping;
        }
        Due::Nothing
    }

    /// When to call [`Self::look`] next.
    pub fn next(&self, now: Instant, bounds: &Bounds) -> Instant {
        if !self.is_ready {
            return self.began + bounds.handshake;
        }
        // A deadline that begins meanwhile is checked soon enough: none is exceeded by more than half.
        let regular = bounds.ping.min(bounds.message / 2).min(bounds.stall / 2);
        let regular = now + regular.max(std::time::Duration::from_millis(1));
        let unfinished = self.unfinished.map(|since| since + bounds.message);
        unfinished.map_or(regular, |end| end.clamp(now, regular.max(now)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOUNDS: fn() -> Bounds = Bounds::default;

    fn at(began: Instant, ms: u64) -> Instant {
        began + Duration::from_millis(ms)
    }

    #[test]
    fn a_handshake_may_take_its_time_however_it_trickles() {
        let began = Instant::now();
        let mut patience = Patience::new(began);
        for second in 1..10 {
            let now = at(began, 1_000 * second);
            patience.note_received(now, false, false);
            assert_eq!(patience.look(now, &BOUNDS(), 0, false), Due::Nothing);
            assert_eq!(patience.next(now, &BOUNDS()), at(began, 10_000));
        }
        let due = patience.look(at(began, 10_000), &BOUNDS(), 0, false);
        assert!(matches!(due, Due::End(Ended::Handshake { .. })));
    }

    #[test]
    fn a_peer_that_only_pings_is_still_in_its_handshake() {
        let began = Instant::now();
        let mut patience = Patience::new(began);
        patience.ready(true);
        for second in 1..10 {
            let now = at(began, 1_000 * second);
            patience.note_received(now, true, true);
            assert_eq!(patience.look(now, &BOUNDS(), 0, false), Due::Nothing);
        }
        let due = patience.look(at(began, 10_000), &BOUNDS(), 0, false);
        assert!(matches!(due, Due::End(Ended::Handshake { .. })));
        // While the connection is not read, its peer cannot show any sign of life.
        patience.not_read(at(began, 10_000));
        let later = at(began, 19_000);
        patience.note_received(later, true, true);
        assert_eq!(patience.look(later, &BOUNDS(), 0, false), Due::Nothing);
        patience.begun();
        patience.note_received(at(began, 29_900), true, true);
        let due = patience.look(at(began, 30_000), &BOUNDS(), 0, false);
        assert_eq!(due, Due::Nothing);
    }

    #[test]
    fn a_message_ends_in_time_however_it_trickles() {
        let began = Instant::now();
        let mut patience = Patience::new(began);
        patience.ready(true);
        patience.begun();
        patience.note_received(at(began, 100), false, false);
        for ms in (200..5_100).step_by(100) {
            patience.note_received(at(began, ms), false, false);
            assert_eq!(
                patience.look(at(began, ms), &BOUNDS(), 9, false),
                Due::Nothing
            );
        }
        let due = patience.look(at(began, 5_100), &BOUNDS(), 9, false);
        assert!(matches!(due, Due::End(Ended::SlowMessage { found: 9, .. })));
        // A message that ended gives the next one its own time.
        patience.note_received(at(began, 5_100), true, false);
        assert_eq!(
            patience.look(at(began, 9_000), &BOUNDS(), 9, false),
            Due::Ping
        );
        // And a message that is not read is not blamed.
        patience.not_read(at(began, 9_500));
        assert_eq!(
            patience.look(at(began, 10_100), &BOUNDS(), 9, false),
            Due::Nothing
        );
    }

    #[test]
    fn a_silent_peer_is_pinged_once_and_then_closed() {
        let began = Instant::now();
        let mut patience = Patience::new(began);
        patience.ready(true);
        patience.begun();
        assert_eq!(
            patience.look(at(began, 1_999), &BOUNDS(), 0, true),
            Due::Nothing
        );
        assert_eq!(
            patience.look(at(began, 2_000), &BOUNDS(), 0, true),
            Due::Ping
        );
        assert_eq!(
            patience.look(at(began, 4_000), &BOUNDS(), 0, true),
            Due::Nothing
        );
        patience.note_received(at(began, 4_100), true, true);
        assert_eq!(
            patience.look(at(began, 6_100), &BOUNDS(), 0, true),
            Due::Ping
        );
        let due = patience.look(at(began, 14_100), &BOUNDS(), 0, true);
        assert!(matches!(due, Due::End(Ended::Silent { .. })));
    }

    #[test]
    fn a_peer_without_pings_may_be_silent_while_it_reads() {
        let began = Instant::now();
        let mut patience = Patience::new(began);
        patience.ready(false);
        patience.begun();
        let long = at(began, 599_000);
        assert_eq!(patience.look(long, &BOUNDS(), 0, true), Due::Nothing);
        let due = patience.look(long, &BOUNDS(), 0, false);
        assert!(matches!(due, Due::End(Ended::Silent { .. })));
        patience.took(Some(long));
        patience.took(None);
        let longer = at(long, 599_000);
        assert_eq!(patience.look(longer, &BOUNDS(), 0, true), Due::Nothing);
        let due = patience.look(at(longer, 1_000), &BOUNDS(), 0, true);
        assert!(matches!(due, Due::End(Ended::Silent { .. })));
    }
}
