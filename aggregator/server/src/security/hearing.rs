//! What may be heard on the feed under a grant that is not for all namespaces.
//!
//! ```text
//! link  asks for api.search, which the grant holds for ──> its topic may be heard under the grant
//! feed  subscribes to a topic ── may be heard ──> subscribed     else: parked until the link has asked
//! ```
//!
//! A topic is a hash, so the feed cannot tell by itself of which namespace it is: the link says, which has the
//! resource's name. What stays true: under such a grant nothing is heard of a resource that a link under the same
//! grant did not ask for and was allowed; the sets are bounded.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_shared::wire::frame::Topic;

/// Topics of one grant: those of as many resources as an agent may have by default, with their notices, and agents'
/// own.
const TOPICS_MAX: usize = 30_000;

/// The topics, by the grants' names.
#[derive(Debug, Default)]
pub struct Hearing {
    topics: Mutex<HashMap<Box<str>, HashSet<Topic>>>,
    changes: AtomicU64,
}

impl Hearing {
    /// Lets topics be heard under a grant; whether any is new.
    pub fn allow(&self, grant: &str, topics: impl IntoIterator<Item = Topic>) -> bool {
        let mut all = self.lock();
        let of_grant = all.entry(grant.into()).or_default();
        let before = of_grant.len();
        for topic in topics {
            if of_grant.len() < TOPICS_MAX {
                of_grant.insert(topic);
            }
        }
        let is_new = before < of_grant.len();
        if is_new {
            self.changes.fetch_add(1, Ordering::Release);
        }
        is_new
    }

    /// Whether a topic may be heard under a grant.
    pub fn is_allowed(&self, grant: &str, topic: &Topic) -> bool {
        let all = self.lock();
        all.get(grant).is_some_and(|topics| topics.contains(topic))
    }

    /// A number that rises whenever more may be heard.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Forgets grants that are no more.
    pub fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| is_there(name));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, HashSet<Topic>>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_grant_may_hear_another_may_not() {
        let hearing = Hearing::default();
        let topic = Topic::of_resource(&[0; 16], "api.search");
        assert!(hearing.allow("api", [topic]) && !hearing.allow("api", [topic]));
        assert!(hearing.is_allowed("api", &topic) && !hearing.is_allowed("web", &topic));
        assert_eq!(hearing.changes(), 1);
        hearing.keep(|name| name == "web");
        assert!(!hearing.is_allowed("api", &topic));
    }
}
