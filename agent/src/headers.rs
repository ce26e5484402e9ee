//! What an HTTP answer may say about a limit: `Retry-After` (RFC 9110) and the fields of the IETF draft
//! "RateLimit header fields for HTTP", as structured fields.
//!
//! ```text
//! retry-after: 5
//! ratelimit-policy: "tier-2";q=100;w=10          100 of it in 10 seconds
//! ratelimit: "tier-2";r=0;t=5                    nothing left, for 5 seconds; of an allowed call: what is
//! ```
//!
//! Knows no HTTP library. What stays true: values are whole and not negative, and what is not known is
//! left out.

use std::fmt::Write as _;

/// The greatest whole number of a structured field (RFC 9651).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Header fields about a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    pub(crate) retry_after: Option<u64>,
    policy: Option<String>,
    limit: Option<String>,
}

impl Headers {
    pub(crate) fn of_policy(name: &str, limit: u64, seconds: u64) -> Self {
        let mut policy = format!("\"{name}\";q={}", limit.min(INTEGER_MAX));
        if seconds != 0 {
            // Writing to a String cannot fail.
            let _ = write!(policy, ";w={}", seconds.min(INTEGER_MAX));
        }
        Self {
            policy: Some(policy),
            ..Self::default()
        }
    }

    /// What remains, and in how many seconds there is more.
    pub(crate) fn set_limit(&mut self, name: &str, remaining: u64, reset_seconds: Option<u64>) {
        let mut limit = format!("\"{name}\";r={}", remaining.min(INTEGER_MAX));
        if let Some(seconds) = reset_seconds {
            let _ = write!(limit, ";t={}", seconds.min(INTEGER_MAX));
        }
        self.limit = Some(limit);
    }

    /// `Retry-After`, in whole seconds, rounded up.
    pub const fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after
    }

    /// `RateLimit-Policy`.
    pub fn rate_limit_policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// `RateLimit`.
    pub fn rate_limit(&self) -> Option<&str> {
        self.limit.as_deref()
    }

    /// All that are known: names in lower case, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            (
                "retry-after",
                self.retry_after.map(|seconds| seconds.to_string()),
            ),
            ("ratelimit-policy", self.policy.clone()),
            ("ratelimit", self.limit.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
    }
}
