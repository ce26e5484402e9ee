//! The answer to a call: let through or refused, with what the agent knows of the limit.
//!
//! Both types are small and `Copy`, borrow nothing, and cost nothing to make. Knows nothing of how the agent decides.

use std::fmt;
use std::time::Duration;

use tollgate_shared::log_position::Code;
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

    /// How many copies were granted. Fewer than the call asked for only if it gave a minimum.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let allowed = kit.agent().rate("api.search").hit_n("acme", 3)?;
    /// assert_eq!(allowed.copies(), 3);
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    pub const fn copies(&self) -> u32 {
        self.copies
    }

    /// Whether the agent was blind: it had not received a watermark of the pair's partition for a minute, or ever; or
    /// it did not yet know the resource's limits, as in the first milliseconds after the resource's first use.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.go_blind();
    /// let allowed = kit.agent().rate("api.search").hit("acme")?;
    /// assert!(allowed.blind(), "no watermark arrived, and the policy is open");
    /// # Ok::<(), tollgate_agent::Denied>(())
    /// ```
    pub const fn blind(&self) -> bool {
        self.blind
    }

    /// How many more copies the domain has at once. Known only while the domain is near its limit (`near` of the
    /// limits; by default, while a fifth of the least limit or less is left). The number is what the aggregators
    /// counted for the fleet, minus what this agent has let through since, this call included; other agents may have
    /// let calls through as well. If all domains together are near the resource's global limit, it is the lesser of
    /// the two numbers. Information only: no call is refused because of it.
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

    /// Whether the domain is near its limit, as far as the agent knows.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let search = kit.agent().rate("api.search");
    /// # kit.near("api.search", "acme", 7, 50, Duration::from_secs(10));
    /// let allowed = search.hit("acme")?;
    /// assert!(allowed.is_near());
    /// # Ok::<(), tollgate_agent::Denied>(())
    /// ```
    pub const fn is_near(&self) -> bool {
        self.left.is_some()
    }

    /// What is left of the limit that the domain is near. `None` if it is not near a limit: then the agent does not
    /// know.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let search = kit.agent().rate("api.search");
    /// # kit.near("api.search", "acme", 7, 50, Duration::from_secs(10));
    /// let room = search.hit("acme")?.room().expect("it is near");
    /// assert_eq!(room.limit, 50);
    /// # Ok::<(), tollgate_agent::Denied>(())
    /// ```
    pub fn room(&self) -> Option<Room> {
        self.left.map(|left| Room {
            cause: left.cause,
            limit: left.limit,
            window: left.window.to_std(),
            remaining: left.remaining,
            more_in: (left.more_in < Span::MAX).then(|| left.more_in.to_std()),
        })
    }

    /// `RateLimit` of the nearest limit, if the domain is near it; otherwise the agent does not know what is left.
    /// `RateLimit-Policy` of that limit, and of all windows of the resource, or its first tier if it has no windows,
    /// unless some domain has limits of its own.
    /// Nothing for a resource in shadow mode.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let search = kit.agent().rate("api.search");
    /// # kit.near("api.search", "acme", 7, 50, Duration::from_secs(10));
    /// let headers = search.hit("acme")?.headers();
    /// assert!(headers.rate_limit().is_some());
    /// # Ok::<(), tollgate_agent::Denied>(())
    /// ```
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
    pub(crate) fn of_refusal(refusal: &Refusal, policy: Policy) -> Self {
        Self {
            remaining: refusal.remaining,
            code: Some(Code {
                partition: refusal.partition,
                position: refusal.position,
            }),
            cause: refusal.closed.cause,
            scope: refusal.scope,
            policy,
            limit: refusal.closed.limit,
            window: refusal.closed.window,
        }
    }

    /// The same denial, with the windows of the resource.
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

    /// How long until the call may be tried again. `None` if the refusal does not end by itself, or its end is not
    /// known.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let denied = search.hit("acme").unwrap_err();
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(5)));
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        (self.remaining < Span::MAX).then(|| self.remaining.to_std())
    }

    pub(crate) const fn remaining(&self) -> Span {
        self.remaining
    }

    /// What is refused: this domain, a group of domains, or all domains.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// use tollgate_agent::Scope;
    ///
    /// assert_eq!(search.hit("acme").unwrap_err().scope(), Scope::Pair);
    /// ```
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The limit that caused the refusal.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let denied = search.hit("acme").unwrap_err();
    /// println!("refused by {}", denied.cause());
    /// ```
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// The short code by which `tollgate explain` finds the cause. `None` if no aggregator announced a denial: the
    /// policy `blind` refused the call, the resource is not configured, its limits grant the domain nothing, this
    /// process alone holds as many copies as the domain may have, or the aggregators answered a request for copies of a
    /// strict resource that there is no room for so many.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// if let Some(code) = search.hit("acme").unwrap_err().code() {
    ///     println!("tollgate explain {code}");
    /// }
    /// ```
    pub const fn code(&self) -> Option<Code> {
        self.code
    }

    /// The limit that is reached, with nothing left. `None` if it is not known, or has no window.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let room = search.hit("acme").unwrap_err().room().expect("a window is full");
    /// assert_eq!(room.remaining, 0);
    /// ```
    pub fn room(&self) -> Option<Room> {
        (self.window != Span::ZERO).then(|| Room {
            cause: self.cause,
            limit: self.limit,
            window: self.window.to_std(),
            remaining: 0,
            more_in: self.retry_after(),
        })
    }

    /// `Retry-After`; and as in the current draft, `RateLimit` of the limit that is reached, and `RateLimit-Policy`
    /// of that limit and the resource's other windows, or its first tier if it has no windows. Unknown values are left
    /// out. A limit on copies has the unit `concurrent-requests`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let headers = search.hit("acme").unwrap_err().headers();
    /// assert_eq!(headers.retry_after_secs(), Some(5));
    /// ```
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

/// The name of a limit on copies in header fields.
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
            Cause::Full => write!(f, "the limit on copies in use is reached ({})", self.scope)?,
            Cause::NotRate => f.write_str("limited by copies, not by rate: see `Agent::copies`")?,
            Cause::Blind if self.retry_after().is_some() => {
                f.write_str("refused (blind: the local rate is reached)")?
            }
            Cause::Banned | Cause::Blind | Cause::Unconfigured => {
                write!(f, "refused ({})", self.cause)?
            }
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
#[path = "answer_tests.rs"]
mod tests;
