//! The HTTP response to a refused call, for any HTTP library: status, header fields, and a problem (RFC 9457) of the
//! types that the IETF draft "RateLimit header fields for HTTP" registers.
//!
//! ```text
//! 429   a limit is reached, or a blind agent's local rate, or the call wants more than can ever be granted
//! 503   the agent is blind, and waiting does not help: the policy `blind` is closed, or its local rate never grants so
//!       many copies at once; or copies are not counted
//! 500   the service's own mistake: hits of a resource that is limited by copies, 0 copies
//! ```
//!
//! Knows no HTTP library. What stays true: every integration answers a refusal in the same way.

use std::fmt::Write as _;

use tollgate_shared::log_position::Code;

use crate::answer::{Cause, Denied};
use crate::headers::Headers;
use crate::refused::{Refused, TooMany};

/// The header field with the code by which `tollgate explain` finds the cause of a refusal.
const CODE: &str = "x-tollgate-code";

const TOO_MANY_REQUESTS: u16 = 429;
const SERVICE_UNAVAILABLE: u16 = 503;
const INTERNAL_SERVER_ERROR: u16 = 500;

/// The HTTP response to a refused call.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate_agent::testing::TestAgent;
/// # let kit = TestAgent::new();
/// # kit.deny("api.search", "acme", Duration::from_secs(5));
/// let search = kit.agent().rate("api.search");
/// if let Err(denied) = search.hit("acme") {
///     let answer = denied.http();
///     assert_eq!(answer.status(), 429);
///     assert!(answer.headers().any(|(name, value)| name == "retry-after" && value == "5"));
///     assert!(answer.body().contains(r#""status":429"#));
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    status: u16,
    /// The status that the refusal has by itself. It determines the problem's type, whatever status is sent instead.
    reason: u16,
    headers: Headers,
    code: Option<Code>,
    detail: String,
}

impl HttpAnswer {
    fn new(status: u16, detail: String) -> Self {
        Self {
            status,
            reason: status,
            headers: Headers::default(),
            code: None,
            detail,
        }
    }

    /// The same response with another status in place of 429 and of 503. Some web servers accept only certain statuses
    /// from an authorization service, and let requests through on others. Type and text of the problem stay those of
    /// the refusal.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let answer = search.hit("acme").unwrap_err().http().denied_as(403);
    /// assert_eq!(answer.status(), 403);
    /// ```
    #[must_use]
    pub fn denied_as(mut self, status: u16) -> Self {
        if self.status == TOO_MANY_REQUESTS || self.status == SERVICE_UNAVAILABLE {
            self.status = status;
        }
        self
    }

    /// The same response with the older fields `X-RateLimit-Limit`, `-Remaining` and `-Reset`: see
    /// [`Headers::with_legacy`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let answer = search.hit("acme").unwrap_err().http().with_legacy_headers();
    /// assert!(answer.headers().any(|(name, _)| name == "x-ratelimit-limit"));
    /// ```
    #[must_use]
    pub fn with_legacy_headers(mut self) -> Self {
        self.headers = self.headers.with_legacy();
        self
    }

    /// The status code.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// assert_eq!(search.hit("acme").unwrap_err().http().status(), 429);
    /// ```
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// What is refused, and until when, in words.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// println!("{}", search.hit("acme").unwrap_err().http().detail());
    /// ```
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// How many seconds to wait, rounded up; `None` if unknown.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// assert_eq!(search.hit("acme").unwrap_err().http().retry_after_secs(), Some(5));
    /// ```
    pub const fn retry_after_secs(&self) -> Option<u64> {
        self.headers.retry_after_secs()
    }

    /// Header fields, names in lower case: `retry-after`, `ratelimit-policy`, `ratelimit` and `x-tollgate-code` as
    /// far as their values are known; the older ones with [`HttpAnswer::with_legacy_headers`]; and `content-type`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// for (name, value) in search.hit("acme").unwrap_err().http().headers() {
    ///     println!("{name}: {value}");
    /// }
    /// ```
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let code = self.code.map(|code| (CODE, code.to_string()));
        let kind = ("content-type", "application/problem+json".to_owned());
        self.headers.iter().chain(code).chain([kind])
    }

    /// The body: a problem in JSON, and a line break. `violated-policies` has the name that the reached limit has in
    /// `RateLimit-Policy`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let body = search.hit("acme").unwrap_err().http().body();
    /// assert!(body.starts_with('{') && body.contains("429"));
    /// ```
    pub fn body(&self) -> String {
        let (kind, title) = match self.reason {
            SERVICE_UNAVAILABLE => (
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Request cannot be satisfied due to temporary server capacity constraints",
            ),
            INTERNAL_SERVER_ERROR => ("about:blank", "Internal Server Error"),
            _ => (
                "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "Request cannot be satisfied as assigned quota has been exceeded",
            ),
        };
        let mut body = format!(
            r#"{{"type":"{kind}","title":"{title}","status":{},"detail":""#,
            self.status
        );
        for character in self.detail.chars() {
            match character {
                '"' | '\\' => body.extend(['\\', character]),
                character if character.is_control() => {
                    // Writing to a String cannot fail.
                    let _ = write!(body, "\\u{:04x}", u32::from(character));
                }
                character => body.push(character),
            }
        }
        body.push('"');
        if let Some(name) = self.headers.policy_name() {
            // Names of limits are letters, digits and dashes.
            let _ = write!(body, r#","violated-policies":["{name}"]"#);
        }
        body.push_str("}\n");
        body
    }
}

impl Denied {
    /// The HTTP response to the call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// assert_eq!(search.hit("acme").unwrap_err().http().status(), 429);
    /// ```
    pub fn http(&self) -> HttpAnswer {
        let status = match self.cause() {
            // A refusal by the local rate ends, and is a refusal as by any rate.
            Cause::Blind if self.retry_after().is_none() => SERVICE_UNAVAILABLE,
            Cause::NotRate => INTERNAL_SERVER_ERROR,
            _ => TOO_MANY_REQUESTS,
        };
        HttpAnswer {
            headers: self.headers(),
            code: self.code(),
            ..HttpAnswer::new(status, self.to_string())
        }
    }
}

impl TooMany {
    /// The HTTP response to the call: 429 without `Retry-After`, because waiting does not help.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.most_at_once("llm.tokens", 10);
    /// use tollgate_agent::Refused;
    ///
    /// let refused = kit.agent().rate("llm.tokens").hit_n("acme", 50).unwrap_err();
    /// if let Refused::TooMany(too_many) = refused {
    ///     assert_eq!(too_many.http().retry_after_secs(), None);
    /// }
    /// ```
    pub fn http(&self) -> HttpAnswer {
        HttpAnswer::new(TOO_MANY_REQUESTS, self.to_string())
    }
}

impl Refused {
    /// The HTTP response to the call.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let no_copies = kit.agent().rate("api.search").hit_n("acme", 0).unwrap_err();
    /// assert_eq!(no_copies.http().status(), 500);
    /// ```
    pub fn http(&self) -> HttpAnswer {
        match self {
            Self::Denied(denied) => denied.http(),
            Self::TooMany(too_many) => too_many.http(),
            Self::Misuse(_) => HttpAnswer::new(INTERNAL_SERVER_ERROR, self.to_string()),
            Self::Uncounted(_) => HttpAnswer::new(SERVICE_UNAVAILABLE, self.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refused::Misuse;
    use tollgate_shared::time::Span;

    #[test]
    fn each_refusal_has_its_status_and_a_problem() {
        let of = |cause| Denied::by_policy(cause, Span::from_millis(1_500)).http();
        let closed = Denied::by_policy(Cause::Blind, Span::MAX).http();
        for (answer, status, kind) in [
            (of(Cause::Hard), 429, "quota-exceeded"),
            (closed.clone(), 503, "temporary-reduced-capacity"),
            (of(Cause::NotRate), 500, "about:blank"),
            (TooMany::new(7).http(), 429, "quota-exceeded"),
            (Refused::Misuse(Misuse::NoCopies).http(), 500, "about:blank"),
            (Refused::Misuse(Misuse::Strict).http(), 500, "about:blank"),
        ] {
            assert_eq!(answer.status(), status, "{answer:?}");
            assert!(answer.body().contains(kind), "{}", answer.body());
        }
        assert!(!of(Cause::Hard).body().contains("violated-policies"));
        assert_eq!(of(Cause::Hard).denied_as(403).status(), 403);
        let closed = closed.denied_as(403);
        assert_eq!(closed.status(), 403);
        let body = closed.body();
        assert!(body.contains("temporary-reduced-capacity") && body.contains("\"status\":403"));
        assert_eq!(of(Cause::Hard).retry_after_secs(), Some(2));
        assert_eq!(TooMany::new(7).http().retry_after_secs(), None);
    }

    #[test]
    fn a_blind_agents_local_rate_refuses_like_any_rate() {
        let answer = Denied::by_policy(Cause::Blind, Span::from_millis(1_500)).http();
        assert_eq!((answer.status(), answer.retry_after_secs()), (429, Some(2)));
        assert!(
            answer.body().contains("quota-exceeded"),
            "{}",
            answer.body()
        );
        assert_eq!(
            answer.detail(),
            "refused (blind: the local rate is reached), retry in 1.5s"
        );
    }

    #[test]
    fn the_limit_that_is_reached_is_named_as_in_the_headers() {
        let answer = HttpAnswer {
            headers: Headers::of_policy("tier-2", 100, 10),
            ..HttpAnswer::new(429, "rate limited".to_owned())
        };
        let ends = "\"detail\":\"rate limited\",\"violated-policies\":[\"tier-2\"]}\n";
        assert!(answer.body().ends_with(ends), "{}", answer.body());
        let is_older = |name: &str| name.starts_with("x-ratelimit");
        assert!(!answer.headers().any(|(name, _)| is_older(name)));
        let answer = answer.with_legacy_headers();
        assert!(answer.headers().any(|(name, _)| is_older(name)));
    }

    #[test]
    fn a_detail_is_valid_json_for_any_text() {
        let answer = HttpAnswer::new(429, "a \"quoted\" \\ line\n".to_owned());
        let ends = "\"detail\":\"a \\\"quoted\\\" \\\\ line\\u000a\"}\n";
        assert!(answer.body().ends_with(ends), "{}", answer.body());
    }
}
