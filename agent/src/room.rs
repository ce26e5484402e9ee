//! What is known of the limit that a call is nearest to, or was refused by.
//!
//! Knows nothing of how it is computed. What stays true: it is information only; no call is refused
//! because of it.

use std::time::Duration;

use tollgate_shared::wire::statement::Cause;

/// What is known of the limit that a call is nearest to, or was refused by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The limit.
    pub cause: Cause,
    /// Copies that the limit grants in each window.
    pub limit: u64,
    /// The length of the window.
    pub window: Duration,
    /// Copies that are left.
    pub remaining: u64,
    /// How long until there is more; `None` if unknown.
    pub more_in: Option<Duration>,
}

impl Room {
    /// The limit's name in header fields, as `window-1`; `None` if it has none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(5));
    /// # let search = kit.agent().rate("api.search");
    /// let denied = search.hit("acme").unwrap_err();
    /// assert!(denied.room().is_some_and(|room| room.name().is_some()));
    /// ```
    pub fn name(&self) -> Option<String> {
        policy_name(self.cause)
    }
}

/// The name of the limit in header fields.
pub(crate) fn policy_name(cause: Cause) -> Option<String> {
    match cause {
        Cause::Tier(tier) if tier != 0 => Some(format!("tier-{tier}")),
        Cause::Window(window) => Some(format!("window-{window}")),
        Cause::Quota(quota) => Some(format!("quota-{quota}")),
        Cause::Hard | Cause::Global | Cause::Bucket => Some(cause.to_string()),
        _ => None,
    }
}
