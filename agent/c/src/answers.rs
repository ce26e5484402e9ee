//! The answer to a call: numbers for decisions, texts for HTTP responses.
//!
//! The caller's memory may be uninitialised, so every field of [`TgAnswer`] is a `MaybeUninit`. Texts are written
//! only for refusals and near a limit, which leaves the common call with 35 bytes to write.
//!
//! What stays true: each text ends with a NUL within its field; a text without room is left out whole.

use std::mem::MaybeUninit;
use std::time::Duration;

use tollgate_agent::{Allowed, Cause, Denied, Hold, HttpAnswer, Refused, Revoked};

/// Let through.
pub(crate) const ALLOWED: i32 = 0;
/// Refused.
pub(crate) const DENIED: i32 = 1;
/// Not within the given time.
pub(crate) const NOT_YET: i32 = 2;
/// Some copies of a hold are too many, and have to be given back.
pub(crate) const GIVE_BACK: i32 = 3;
/// A hold has ended.
pub(crate) const ENDED: i32 = 4;
/// A hold does not count.
pub(crate) const UNCOUNTED: i32 = 5;

/// The agent was blind.
const BLIND: u32 = 1;
/// Near a limit: `remaining` is known.
const NEAR: u32 = 2;
/// Let through because the handle belongs to the parent of this process.
const FORKED: u32 = 4;
/// More at once than can ever be granted.
const NEVER: u32 = 8;
/// Let through without room: for a handle, so that nothing can be settled, or for a hold, which counts nowhere.
const UNHELD: u32 = 16;

/// An unknown value.
const UNKNOWN: u64 = u64::MAX;

/// The numbers of an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TgAnswerHead {
    /// What the call returned.
    pub code: i32,
    /// See `TG_BLIND` and the following in the header.
    pub flags: u32,
    /// The HTTP status.
    pub status: u32,
    /// The copies granted.
    pub copies: u32,
    /// How long to wait, rounded up.
    pub retry_after_ms: u64,
    /// How many more copies the domain has at once; known near a limit.
    pub remaining: u64,
}

/// The answer to a call without further information.
const GO_ON: TgAnswerHead = TgAnswerHead {
    code: ALLOWED,
    flags: 0,
    status: 200,
    copies: 0,
    retry_after_ms: UNKNOWN,
    remaining: UNKNOWN,
};

/// A text in the caller's memory.
#[repr(transparent)]
pub struct TgText<const N: usize>([MaybeUninit<u8>; N]);

impl<const N: usize> TgText<N> {
    /// Makes the text empty.
    #[inline]
    fn clear(&mut self) {
        if let Some(first) = self.0.first_mut() {
            first.write(0);
        }
    }

    /// Writes a text and its NUL. A text without room, or with a NUL in it, is left out.
    fn put(&mut self, text: &str) {
        let fits = text.len() < N && !text.as_bytes().contains(&0);
        let text = if fits { text.as_bytes() } else { &[] };
        for (place, byte) in self.0.iter_mut().zip(text.iter().chain(&[0])) {
            place.write(*byte);
        }
    }
}

/// The room for header fields, with the NUL.
const HEADERS: usize = 512;

/// An answer, in the layout of `tollgate.h`.
#[repr(C)]
pub struct TgAnswer {
    pub(crate) head: MaybeUninit<TgAnswerHead>,
    pub(crate) denial: TgText<64>,
    pub(crate) headers: TgText<HEADERS>,
    pub(crate) body: TgText<768>,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum CallOutcome {
    Allowed(Allowed),
    /// Let through, and nothing can be given back or settled.
    Unheld(u32),
    /// Copies were taken.
    Held {
        copies: u32,
        blind: bool,
        /// Whether the agent reports them to the aggregators.
        recorded: bool,
    },
    Forked,
    Hit(Refused),
    Reserve(Refused),
}

impl CallOutcome {
    pub(crate) const fn code(&self) -> i32 {
        match self {
            Self::Allowed(_) | Self::Unheld(_) | Self::Held { .. } | Self::Forked => ALLOWED,
            Self::Hit(_) | Self::Reserve(_) => DENIED,
        }
    }

    fn head(&self) -> TgAnswerHead {
        let allowed = TgAnswerHead {
            code: self.code(),
            ..GO_ON
        };
        match self {
            Self::Allowed(of) => TgAnswerHead {
                flags: (u32::from(of.blind()) * BLIND) | (u32::from(of.is_near()) * NEAR),
                copies: of.copies(),
                remaining: of.remaining().unwrap_or(UNKNOWN),
                ..allowed
            },
            Self::Held {
                copies,
                blind,
                recorded,
            } => TgAnswerHead {
                flags: (u32::from(*blind) * BLIND) | (u32::from(!recorded) * UNHELD),
                copies: *copies,
                ..allowed
            },
            Self::Unheld(copies) => TgAnswerHead {
                flags: UNHELD,
                copies: *copies,
                ..allowed
            },
            Self::Forked => TgAnswerHead {
                flags: FORKED,
                ..allowed
            },
            Self::Hit(Refused::TooMany(most)) | Self::Reserve(Refused::TooMany(most)) => {
                TgAnswerHead {
                    flags: NEVER,
                    remaining: most.most(),
                    ..allowed
                }
            }
            Self::Hit(error) => refused(allowed, error.denied()),
            Self::Reserve(Refused::Denied(denied)) => refused(allowed, Some(denied)),
            Self::Reserve(_) => allowed,
        }
    }

    /// The HTTP response to a refusal.
    fn http(&self) -> Option<HttpAnswer> {
        match self {
            Self::Hit(error) => Some(error.http()),
            Self::Reserve(error) => Some(error.http()),
            _ => None,
        }
    }

    const fn denied(&self) -> Option<&Denied> {
        match self {
            Self::Hit(error) => error.denied(),
            Self::Reserve(Refused::Denied(denied)) => Some(denied),
            _ => None,
        }
    }
}

/// What the holder of a hold should know: a code, and how many of its copies it should give up.
pub(crate) fn of_hold(hold: &Hold) -> (i32, u32) {
    match hold.revoked_now() {
        None => (ALLOWED, 0),
        Some(Revoked::GiveBack { copies, .. }) => (GIVE_BACK, copies),
        Some(Revoked::Uncounted(_)) => (UNCOUNTED, hold.copies()),
        Some(_) => (ENDED, hold.copies()),
    }
}

fn refused(allowed: TgAnswerHead, denied: Option<&Denied>) -> TgAnswerHead {
    let wait = denied.and_then(Denied::retry_after);
    let is_blind = denied.is_some_and(|denied| denied.cause() == Cause::Blind);
    TgAnswerHead {
        flags: u32::from(is_blind) * BLIND,
        retry_after_ms: wait.map_or(UNKNOWN, whole_ms),
        remaining: 0,
        ..allowed
    }
}

fn whole_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(UNKNOWN)
}

impl TgAnswer {
    /// Writes the answer to a call. The common one, let through far from its limits, needs no lookup.
    #[inline]
    pub(crate) fn put(&mut self, outcome: &CallOutcome) {
        self.clear_texts();
        match outcome {
            CallOutcome::Allowed(allowed) if !allowed.is_near() => {
                self.head.write(TgAnswerHead {
                    flags: u32::from(allowed.blind()) * BLIND,
                    copies: allowed.copies(),
                    ..GO_ON
                });
            }
            _ => self.put_more(outcome),
        }
    }

    #[inline(never)]
    fn put_more(&mut self, outcome: &CallOutcome) {
        let mut head = outcome.head();
        if let Some(http) = outcome.http() {
            head.status = u32::from(http.status());
            self.put_refusal(outcome, &http);
        } else if let CallOutcome::Allowed(allowed) = outcome {
            self.headers.put(&lines(allowed.headers().iter(), HEADERS));
        }
        self.head.write(head);
    }

    fn put_refusal(&mut self, outcome: &CallOutcome, http: &HttpAnswer) {
        if let Some(code) = outcome.denied().and_then(Denied::code) {
            self.denial.put(&code.to_string());
        }
        self.headers.put(&lines(http.headers(), HEADERS));
        self.body.put(&http.body());
    }

    /// Writes the answer to a call that was not carried out: an HTTP server lets the request through.
    #[cold]
    pub(crate) fn put_fault(&mut self, code: i32) {
        self.clear_texts();
        self.head.write(TgAnswerHead { code, ..GO_ON });
    }

    #[inline]
    fn clear_texts(&mut self) {
        self.denial.clear();
        self.headers.clear();
        self.body.clear();
    }
}

/// Header fields, one a line, in less than `room` bytes. While there is no room for all, the longest is left out: that is
/// `RateLimit-Policy`, or `RateLimit`, of a resource with many constraints.
fn lines(headers: impl Iterator<Item = (&'static str, String)>, room: usize) -> String {
    let mut lines: Vec<_> = headers
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    while room <= lines.iter().map(String::len).sum() {
        let longest = lines.iter().map(String::len).enumerate();
        let Some((longest, _)) = longest.max_by_key(|(_, length)| *length) else {
            break;
        };
        lines.remove(longest);
    }
    lines.concat()
}

/// An agent's counters, in the layout of `tollgate.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TgCounts {
    /// Calls that were let through and that the recorder accepted.
    pub hits_accepted: u64,
    /// Calls that were let through and whose record was dropped anywhere.
    pub hits_dropped: u64,
    /// Calls that were let through and that the log has acknowledged.
    pub hits_acknowledged: u64,
    /// Calls that were refused and that the recorder accepted.
    pub refused_accepted: u64,
    /// Denials in the deny list.
    pub denials_live: u64,
    /// Holds that the agent tracks.
    pub holds_live: u64,
    /// How long the agent has been without a current watermark of some partition; 0 if it has one of each.
    pub blind_for_ms: u64,
    /// Calls on handles of the parent of this process, let through without a decision.
    pub calls_forked: u64,
    /// Open handles of all agents.
    pub handles_live: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_rounded_up() {
        assert_eq!(whole_ms(Duration::from_micros(1)), 1);
        assert_eq!(whole_ms(Duration::from_millis(7)), 7);
        assert_eq!(whole_ms(Duration::MAX), UNKNOWN);
    }

    #[test]
    fn the_longest_header_fields_are_left_out_where_there_is_no_room() {
        let text = |policy: usize, room| {
            let policy = ("ratelimit-policy", "p".repeat(policy));
            let fields = [("retry-after", "3".to_owned()), policy];
            lines(fields.into_iter(), room)
        };
        let (wait, policy) = (
            "retry-after: 3\n",
            format!("ratelimit-policy: {}\n", "p".repeat(9)),
        );
        assert_eq!(text(9, 15 + 28 + 1), format!("{wait}{policy}"));
        assert_eq!(text(9, 15 + 28), wait);
        assert_eq!(text(1_000, HEADERS), wait);
        assert_eq!(text(1_000, 15), "");
    }

    #[test]
    fn the_layout_is_that_of_the_header() {
        // agent/c/tests/check.c asserts the same for the C side.
        assert_eq!((size_of::<TgAnswer>(), align_of::<TgAnswer>()), (1_376, 8));
        assert_eq!(std::mem::offset_of!(TgAnswer, denial), 32);
        assert_eq!(std::mem::offset_of!(TgAnswer, headers), 96);
        assert_eq!(std::mem::offset_of!(TgAnswer, body), 608);
        assert_eq!(size_of::<TgCounts>(), 72);
    }
}
