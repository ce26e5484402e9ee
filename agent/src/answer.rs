//! What a call gets: let through, or refused, with what is known of the limit.
//!
//! Both are small and `Copy`, borrow nothing, and cost nothing to make. Knows nothing of how they came
//! about.

use std::fmt;
use std::time::Duration;

use tollgate_shared::place::Code;
use tollgate_shared::time::Span;
pub use tollgate_shared::wire::statement::Cause;

use crate::deny::Refusal;
use crate::headers::Headers;
use crate::left::Left;
use crate::resource::{Policy, whole_seconds};
pub use crate::room::Room;
use crate::room::policy_name;
use crate::scope::Scope;

/// A call that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Allowed {
    copies: u32,
    blind: bool,
    policy: Policy,
    left: Option<Left>,
}

/// A call that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Denied {
    remaining: Span,
    code: Option<Code>,
    cause: Cause,
    scope: Scope,
    policy: Policy,
    limit: u64,
    window: Span,
}

impl Allowed {
    pub(crate) const fn new(copies: u32, blind: bool, policy: Policy) -> Self {
        Self {
            copies,
            blind,
            policy,
            left: None,
        }
    }

    pub(crate) const fn with_left(self, left: Option<Left>) -> Self {
        Self { left, ..self }
    }

    /// How many were granted; less than was asked for only where a minimum was given.
    pub const fn copies(&self) -> u32 {
        self.copies
    }

    /// Whether the agent was blind: it had received nothing about the pair's partition for a minute, or
    /// ever; or not yet what is in force for the resource, as for some milliseconds after its first use.
    pub const fn blind(&self) -> bool {
        self.blind
    }

    /// How many more copies the domain has at once, where that is known: while the domain is near its limit
    /// (`near` of the limits: a fifth of the least one is left, by default). It is what the aggregators
    /// know of the fleet, less what this agent has let through since, this call included; other agents
    /// may have let through some as well. Where all domains together are near the resource's global limit, it
    /// is the lesser of both. Information: no call is refused by it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.near("api.search", "acme", 7, 50, Duration::from_secs(1));
    /// let search = kit.agent().rate("api.search");
    /// let allowed = search.hit("acme")?;
    /// if allowed.is_near() {
    ///     println!("slow down: {:?} left", allowed.remaining());
    /// }
    /// # assert_eq!(allowed.remaining(), Some(6));
    /// # Ok::<(), tollgate_agent::Denied>(())
    /// ```
    pub const fn remaining(&self) -> Option<u64> {
        match self.left {
            Some(left) => Some(left.remaining),
            None => None,
        }
    }

    /// Whether the domain is known to be near its limit.
    pub const fn is_near(&self) -> bool {
        self.left.is_some()
    }

    /// What is left of the limit that the domain is near to. `None`: it is near to none, so nobody here knows.
    pub fn room(&self) -> Option<Room> {
        self.left.map(|left| Room {
            cause: left.cause,
            limit: left.limit,
            window: left.window.to_std(),
            remaining: left.remaining,
            more_in: (left.more_in < Span::MAX).then(|| left.more_in.to_std()),
        })
    }

    /// `RateLimit` of the nearest limit, when the domain is near it; otherwise the agent does not know what
    /// is left. `RateLimit-Policy` of that limit, and of all windows of the resource where they are the same
    /// for every domain. Of a resource in shadow nothing is told.
    pub fn headers(&self) -> Headers {
        if let Some((left, name)) = self
            .left
            .and_then(|left| Some((left, policy_name(left.cause)?)))
        {
            let mut headers = Headers::of_policy(&name, left.limit, whole_seconds(left.window));
            let is_known = left.more_in != Span::MAX && left.more_in != Span::ZERO;
            let more_in = is_known.then(|| left.more_in.as_secs_rounded_up());
            headers.set_limit(&name, left.remaining, more_in);
            return headers.beside(self.policy);
        }
        Headers::default().beside(self.policy)
    }
}

impl Denied {
    pub(crate) fn of_refusal(refusal: &Refusal) -> Self {
        Self {
            remaining: refusal.remaining,
            code: Some(Code {
                partition: refusal.partition,
                place: refusal.place,
            }),
            cause: refusal.closed.cause,
            scope: refusal.scope,
            policy: Policy::NONE,
            limit: refusal.closed.limit,
            window: refusal.closed.window,
        }
    }

    /// The same of a resource whose windows are known.
    pub(crate) const fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Refused because this process alone holds as many copies as the domain may have.
    pub(crate) const fn of_own_holds(limit: u64) -> Self {
        Self {
            limit,
            ..Self::by_policy(Cause::Full, Span::MAX)
        }
    }

    /// Refused by the aggregators because a scope is full.
    pub(crate) const fn of_full(scope: Scope) -> Self {
        Self {
            scope,
            ..Self::by_policy(Cause::Full, Span::MAX)
        }
    }

    pub(crate) const fn by_policy(cause: Cause, remaining: Span) -> Self {
        Self {
            remaining,
            code: None,
            cause,
            scope: Scope::Pair,
            policy: Policy::NONE,
            limit: 0,
            window: Span::ZERO,
        }
    }

    /// How long until the call may be tried again. `None`: the refusal does not end by itself, or its end is
    /// not known.
    pub fn retry_after(&self) -> Option<Duration> {
        (self.remaining < Span::MAX).then(|| self.remaining.to_std())
    }

    pub(crate) const fn remaining(&self) -> Span {
        self.remaining
    }

    /// What is refused: the domain's use, or everybody's.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// Which limit closed.
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// The short code by which `tollgate explain` finds the cause. `None` where no aggregator announced the
    /// denial: the blind policy refused, or the resource is not configured.
    pub const fn code(&self) -> Option<Code> {
        self.code
    }

    /// The limit that is reached, of which nothing is left. `None`: it is not known, or has no window.
    pub fn room(&self) -> Option<Room> {
        (self.window != Span::ZERO).then(|| Room {
            cause: self.cause,
            limit: self.limit,
            window: self.window.to_std(),
            remaining: 0,
            more_in: self.retry_after(),
        })
    }

    /// `Retry-After`, and the current draft's `RateLimit` of the limit that is reached and `RateLimit-Policy`
    /// of it and the resource's other windows; what is not known is left out. A limit on copies has the unit
    /// `concurrent-requests`.
    pub fn headers(&self) -> Headers {
        let retry_after = (self.remaining < Span::MAX).then(|| self.remaining.as_secs_rounded_up());
        let mut headers = match (self.window, policy_name(self.cause)) {
            _ if self.cause == Cause::Full && self.limit != 0 => {
                let name = copies_name(self.scope);
                let mut headers = Headers::of_copies(name, self.limit);
                headers.set_limit(name, 0, None);
                headers
            }
            (Span::ZERO, _) | (_, None) => Headers::default(),
            (window, Some(name)) => {
                let mut headers = Headers::of_policy(&name, self.limit, whole_seconds(window));
                headers.set_limit(&name, 0, retry_after);
                headers.beside(self.policy)
            }
        };
        headers.retry_after = retry_after;
        headers
    }
}

/// The name in headers of a limit on copies.
const fn copies_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Pair => "copies",
        Scope::Resource => "copies-global",
        Scope::Group => "copies-group",
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Full => write!(f, "as many copies in use as may be ({})", self.scope)?,
            Cause::NotRate => f.write_str("limited by copies, not by rate: see `Agent::copies`")?,
            cause => write!(f, "rate limited ({cause})")?,
        }
        if let Some(wait) = self.retry_after() {
            write!(f, ", retry in {wait:?}")?;
        }
        match self.code {
            Some(code) => write!(f, ", code {code}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deny::Closed;
    use tollgate_shared::place::Place;

    fn denied(remaining: Span, cause: Cause, limit: u64, window: Span) -> Denied {
        let closed = Closed {
            limit,
            window,
            cause,
        };
        let place = Place {
            generation: 1,
            offset: 18_250,
            entry: 0,
        };
        Denied::of_refusal(&Refusal {
            scope: Scope::Pair,
            partition: 3,
            place,
            remaining,
            closed,
        })
    }

    fn texts(headers: &Headers) -> Vec<(&'static str, String)> {
        headers.iter().collect()
    }

    #[test]
    fn a_refusal_says_everything_that_is_known() {
        let denied = denied(
            Span::from_millis(4_100),
            Cause::Tier(2),
            100,
            Span::from_secs(10),
        );
        assert_eq!(
            texts(&denied.headers()),
            [
                ("retry-after", "5".to_owned()),
                ("ratelimit-policy", "\"tier-2\";q=100;w=10".to_owned()),
                ("ratelimit", "\"tier-2\";r=0;t=5".to_owned()),
            ]
        );
        assert_eq!(
            denied.to_string(),
            "rate limited (tier 2), retry in 4.1s, code 3-18250-0-1"
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        // A window that is no whole number of seconds, an end that nobody knows.
        let odd = denied(Span::MAX, Cause::Hard, 7, Span::from_millis(1_500));
        assert_eq!(
            texts(&odd.headers()),
            [
                ("ratelimit-policy", "\"hard\";q=7".to_owned()),
                ("ratelimit", "\"hard\";r=0".to_owned())
            ]
        );
        assert_eq!(odd.retry_after(), None);
        let blind = Denied::by_policy(Cause::Blind, Span::from_millis(1));
        assert_eq!(texts(&blind.headers()), [("retry-after", "1".to_owned())]);
        assert_eq!(
            texts(&Allowed::new(1, false, Policy::default()).headers()),
            []
        );
    }

    #[test]
    fn a_limit_on_copies_is_told_in_its_unit() {
        let full = denied(Span::MAX, Cause::Full, 10, Span::ZERO);
        let headers = full.headers();
        let policy = "\"copies\";q=10;qu=\"concurrent-requests\"";
        assert_eq!(headers.rate_limit_policy(), Some(policy));
        assert_eq!(headers.rate_limit(), Some("\"copies\";r=0"));
        assert_eq!(headers.retry_after_secs(), None);
        assert_eq!(full.room(), None, "it has no window");
        let of_all = Denied {
            scope: Scope::Resource,
            ..full
        };
        let policy = of_all.headers().rate_limit_policy().map(str::to_owned);
        assert!(policy.is_some_and(|policy| policy.starts_with("\"copies-global\";q=10;")));
        // The limit is not known.
        assert_eq!(texts(&Denied::of_full(Scope::Group).headers()), []);
    }

    #[test]
    fn an_allowed_call_near_its_limit_says_what_is_left() {
        let left = Left {
            remaining: 7,
            limit: 50,
            window: Span::from_secs(10),
            more_in: Span::from_millis(1_100),
            cause: Cause::Window(1),
        };
        let of = |left| Allowed::new(1, false, Policy::default()).with_left(Some(left));
        assert_eq!(
            texts(&of(left).headers()),
            [
                ("ratelimit-policy", "\"window-1\";q=50;w=10".to_owned()),
                ("ratelimit", "\"window-1\";r=7;t=2".to_owned()),
            ]
        );
        let more_in = Span::MAX;
        let headers = of(Left { more_in, ..left }).headers();
        assert_eq!(headers.rate_limit(), Some("\"window-1\";r=7"));
        assert_eq!((of(left).remaining(), of(left).is_near()), (Some(7), true));
    }

    #[test]
    fn answers_are_small() {
        assert!(size_of::<Result<Allowed, Denied>>() <= 72);
        assert!(size_of::<Result<Allowed, crate::refused::Refused>>() <= 72);
    }
}
