//! What is known of the limit that a call is nearest to, or was refused by.
//!
//! Knows nothing of how it came about. What stays true: it is information; nobody is refused by it.

use std::time::Duration;

use tollgate_shared::wire::statement::Cause;

/// What is known of the limit that a call is nearest to, or was refused by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Which limit.
    pub cause: Cause,
    /// Copies that it grants.
    pub limit: u64,
    /// In each window of this length.
    pub window: Duration,
    /// Copies that are left.
    pub remaining: u64,
    /// Until there is more. `None`: not known.
    pub more_in: Option<Duration>,
}

impl Room {
    /// The limit's name in headers, as `window-1`. `None`: it has none.
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

/// The name of the limit in headers.
pub(crate) fn policy_name(cause: Cause) -> Option<String> {
    match cause {
        Cause::Tier(tier) if tier != 0 => Some(format!("tier-{tier}")),
        Cause::Window(window) => Some(format!("window-{window}")),
        Cause::Quota(quota) => Some(format!("quota-{quota}")),
        Cause::Hard | Cause::Global | Cause::Bucket => Some(cause.to_string()),
        _ => None,
    }
}
