//! Header fields of an HTTP response about a limit: `Retry-After` (RFC 9110), the fields of the IETF draft "RateLimit
//! header fields for HTTP", as structured fields, and older fields on request.
//!
//! ```text
//! retry-after: 5
//! ratelimit-policy: "tier-2";q=100;w=10          100 of it in 10 seconds
//! ratelimit: "tier-2";r=0;t=5                    nothing left, for 5 seconds; of an allowed call: what is
//!
//! ratelimit-policy: "window-1";q=1000;w=60, "window-0";q=50;w=1      all that hold; the one of ratelimit goes first
//!
//! ratelimit-policy: "copies";q=10;qu="concurrent-requests"      10 at a time
//!
//! x-ratelimit-limit: 100   x-ratelimit-remaining: 0   x-ratelimit-reset: 5      the same, for older clients
//! ```
//!
//! Knows no HTTP library. What stays true: values are whole and not negative, and unknown values are left out.

use std::fmt::Write as _;

use crate::resource::Policy;

/// The greatest whole number of a structured field (RFC 9651).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Header fields about a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    pub(crate) retry_after: Option<u64>,
    policy: Option<String>,
    limit: Option<String>,
    figures: Figures,
    tells_legacy: bool,
}

/// The values of `policy` and `limit` as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    quota: Option<u64>,
    remaining: Option<u64>,
    reset_seconds: Option<u64>,
}

impl Headers {
    pub(crate) fn of_policy(name: &str, limit: u64, seconds: u64) -> Self {
        let quota = limit.min(INTEGER_MAX);
        let mut policy = format!("\"{name}\";q={quota}");
        if seconds != 0 {
            // Writing to a String cannot fail.
            let _ = write!(policy, ";w={}", seconds.min(INTEGER_MAX));
        }
        Self::of_field(policy, quota)
    }

    /// Fields of a limit on how many copies are held at a time.
    pub(crate) fn of_copies(name: &str, limit: u64) -> Self {
        let quota = limit.min(INTEGER_MAX);
        let policy = format!("\"{name}\";q={quota};qu=\"concurrent-requests\"");
        Self::of_field(policy, quota)
    }

    /// The same fields with the resource's other limits, of which it is not known what is left.
    pub(crate) fn beside(mut self, policy: Policy) -> Self {
        let known = self.policy_name().map(str::to_owned);
        let limits = policy.limits();
        let others = limits.iter().flat_map(|limits| limits.iter());
        for other in others.filter(|other| known.as_ref() != Some(&other.name)) {
            let other = Self::of_policy(&other.name, other.quota, other.seconds);
            match &mut self.policy {
                Some(policies) => {
                    // Writing to a String cannot fail.
                    let _ = write!(policies, ", {}", other.policy.unwrap_or_default());
                }
                None => (self.policy, self.figures) = (other.policy, other.figures),
            }
        }
        self
    }

    fn of_field(policy: String, quota: u64) -> Self {
        Self {
            policy: Some(policy),
            figures: Figures {
                quota: Some(quota),
                ..Figures::default()
            },
            ..Self::default()
        }
    }

    /// Sets what remains, and in how many seconds there is more.
    pub(crate) fn set_limit(&mut self, name: &str, remaining: u64, reset_seconds: Option<u64>) {
        let remaining = remaining.min(INTEGER_MAX);
        let reset_seconds = reset_seconds.map(|seconds| seconds.min(INTEGER_MAX));
        let mut limit = format!("\"{name}\";r={remaining}");
        if let Some(seconds) = reset_seconds {
            let _ = write!(limit, ";t={seconds}");
        }
        self.limit = Some(limit);
        self.figures.remaining = Some(remaining);
        self.figures.reset_seconds = reset_seconds;
    }

    /// The same fields and also `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, for older
    /// clients. No standard defines these three. Here the limit is the number of copies that it grants in its window,
    /// and the reset is a number of whole seconds from now, not an instant.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.near("api.search", "acme", 7, 50, Duration::from_secs(1));
    /// let allowed = kit.agent().rate("api.search").hit("acme")?;
    /// let fields: Vec<_> = allowed.headers().with_legacy().iter().collect();
    /// assert!(fields.contains(&("x-ratelimit-limit", "50".to_owned())));
    /// # Ok::<(), tollgate_agent::Denied>(())
    /// ```
    #[must_use]
    pub fn with_legacy(mut self) -> Self {
        self.tells_legacy = true;
        self
    }

    /// `Retry-After`, in whole seconds, rounded up.
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
    pub const fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after
    }

    /// `RateLimit-Policy`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let headers = search.hit("acme").unwrap_err().headers();
    /// assert!(headers.rate_limit_policy().is_some_and(|policy| policy.contains("q=1")));
    /// ```
    pub fn rate_limit_policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// `RateLimit`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let headers = search.hit("acme").unwrap_err().headers();
    /// assert!(headers.rate_limit().is_some_and(|limit| limit.contains("r=0")));
    /// ```
    pub fn rate_limit(&self) -> Option<&str> {
        self.limit.as_deref()
    }

    /// The name of the first limit in both fields. Names have no quotes.
    pub(crate) fn policy_name(&self) -> Option<&str> {
        self.policy.as_deref()?.split('"').nth(1)
    }

    /// All fields that are known: names in lower case, and values.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let headers = search.hit("acme").unwrap_err().headers();
    /// for (name, value) in headers.iter() {
    ///     println!("{name}: {value}");
    /// }
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, String)> {
        let figures = match self.tells_legacy {
            true => self.figures,
            false => Figures::default(),
        };
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        [
            ("retry-after", text(self.retry_after)),
            ("ratelimit-policy", self.policy.clone()),
            ("ratelimit", self.limit.clone()),
            ("x-ratelimit-limit", text(figures.quota)),
            ("x-ratelimit-remaining", text(figures.remaining)),
            ("x-ratelimit-reset", text(figures.reset_seconds)),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::TestAgent;

    #[test]
    fn older_fields_are_shown_on_request() {
        let mut headers = Headers::of_policy("tier-2", 100, 10);
        headers.set_limit("tier-2", 0, Some(5));
        assert!(headers.iter().all(|(name, _)| !name.starts_with("x-")));
        let all: Vec<_> = headers.with_legacy().iter().collect();
        let value = |name: &str| {
            let found = all.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("ratelimit"), Some("\"tier-2\";r=0;t=5"));
        assert_eq!(value("x-ratelimit-limit"), Some("100"));
        assert_eq!(value("x-ratelimit-remaining"), Some("0"));
        assert_eq!(value("x-ratelimit-reset"), Some("5"));
        // Unknown values are left out of the older fields, too.
        let known: Vec<_> = Headers::of_policy("hard", 7, 1)
            .with_legacy()
            .iter()
            .collect();
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["ratelimit-policy", "x-ratelimit-limit"]);
        assert_eq!(Headers::default().with_legacy().iter().count(), 0);
    }

    #[test]
    fn all_windows_are_shown_and_the_remainder_of_one() {
        let kit = TestAgent::new();
        let second = Duration::from_secs(1);
        kit.windows("api.search", &[(50, second), (1_000, 60 * second)]);
        let search = kit.agent().rate("api.search");
        let fields = |headers: Headers| {
            let policy = headers.rate_limit_policy().unwrap_or_default().to_owned();
            (policy, headers.rate_limit().map(str::to_owned))
        };
        let hit = |domain| search.hit(domain).expect("it is let through");
        let both = "\"window-0\";q=50;w=1, \"window-1\";q=1000;w=60";
        assert_eq!(fields(hit("acme").headers()), (both.to_owned(), None));
        kit.near("api.search", "acme", 7, 50, second);
        let left = Some("\"window-0\";r=6;t=1".to_owned());
        assert_eq!(fields(hit("acme").headers()), (both.to_owned(), left));
        // A limit that is reached comes first.
        kit.deny("api.search", "denied", 5 * second);
        let denied = search.hit("denied").expect_err("it is denied").headers();
        assert_eq!(denied.policy_name(), Some("tier-1"));
        let all = format!("\"tier-1\";q=1;w=5, {both}");
        let left = Some("\"tier-1\";r=0;t=5".to_owned());
        assert_eq!(fields(denied), (all, left));
    }

    #[test]
    fn a_limit_in_shadow_is_not_shown() {
        let kit = TestAgent::new();
        let minute = Duration::from_secs(60);
        kit.windows("api.search", &[(50, minute)]);
        kit.near("api.search", "near", 7, 50, minute);
        kit.deny("api.search", "denied", minute);
        kit.ignored("api.search");
        let search = kit.agent().rate("api.search");
        for domain in ["near", "denied", "other"] {
            let allowed = search.hit(domain).expect("it is let through");
            assert_eq!(allowed.headers(), Headers::default(), "{domain}");
            assert_eq!((allowed.room(), allowed.remaining()), (None, None));
        }
    }

    #[test]
    fn no_number_is_above_those_of_structured_fields() {
        let mut headers = Headers::of_policy("hard", u64::MAX, u64::MAX);
        headers.set_limit("hard", u64::MAX, Some(u64::MAX));
        for (_, value) in headers.with_legacy().iter() {
            let numbers = value.split(|c: char| !c.is_ascii_digit());
            for number in numbers.filter(|number| !number.is_empty()) {
                assert_eq!(number, "999999999999999", "{value}");
            }
        }
    }
}
