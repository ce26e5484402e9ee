//! What the feed may send to subscribers whose grants do not cover all namespaces, or all agents' names.
//!
//! ```text
//! link  asks for api.search, which its grant covers ──> its topic may be heard under grants of the same scope
//! link  says hello as checkout-1 ─────────────────────> so may that agent's own topic
//! feed  subscribes to a topic ── may be heard ──> subscribed     else: parked until a link has asked
//! link  ends ──> its topics are forgotten, unless another link asked for them as well
//! ```
//!
//! A topic is a hash, so the feed cannot know its namespace; the link, which has the resource's name, tells it.
//! Grants are compared only by their namespaces and agents' names: so a process whose token was replaced by another
//! one with the same scope keeps its topics, and one whose token was narrowed does not.
//!
//! What stays true: under such a grant a subscriber receives nothing about a resource, or about an agent's copies,
//! unless a link under a grant of the same scope asked for it and was allowed to; no connection takes another's room;
//! the sets are bounded.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_shared::wire::frame::Topic;

use super::grant::TokenGrant;

/// Topics that one link may have asked for: two of each resource that an agent may have by default, as on the feed,
/// and its own.
const OF_LINK_MAX: usize = 20_100;

/// Topics that all links together may have asked for, under such grants: some hundred megabytes.
const OF_ALL_MAX: usize = 1_000_000;

/// The scope of a grant. Grants of the same scope may hear the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantScope {
    namespaces: Option<BTreeSet<Box<str>>>,
    agents: Option<Box<str>>,
}

impl GrantScope {
    /// The scope of a grant; `None` if everything may be heard under it.
    pub fn of(grant: &TokenGrant) -> Option<Self> {
        let scope = Self {
            namespaces: grant.namespaces.clone(),
            agents: grant.agents.clone(),
        };
        (scope.namespaces.is_some() || scope.agents.is_some()).then_some(scope)
    }

    /// Whether it is the scope of a grant.
    pub fn is_of(&self, grant: &TokenGrant) -> bool {
        (&self.namespaces, &self.agents) == (&grant.namespaces, &grant.agents)
    }

    /// Whether a link has to ask for a topic before it receives frames of it. Agents' own topics always need that.
    pub const fn bounds(&self, topic: &Topic) -> bool {
        self.namespaces.is_some() || topic.as_bytes()[0] == b'a'
    }
}

/// The topics that links asked for.
#[derive(Debug, Default)]
pub struct Hearing {
    inner: Mutex<AskedTopics>,
    changes: AtomicU64,
    left_out: AtomicU64,
}

#[derive(Debug, Default)]
struct AskedTopics {
    /// How many links asked for a topic, by the scope of their grants.
    topics: HashMap<GrantScope, HashMap<Topic, u32>>,
    /// What each link asked for.
    links: HashMap<u64, (GrantScope, HashSet<Topic>)>,
    /// The number of topics of all links.
    count: usize,
}

impl Hearing {
    /// Allows the topics that a link asks for, under grants of this scope; returns whether any is new.
    pub fn allow(
        &self,
        link: u64,
        scope: &GrantScope,
        topics: impl IntoIterator<Item = Topic>,
    ) -> bool {
        let mut asked = self.lock();
        let AskedTopics {
            topics: all,
            links,
            count,
        } = &mut *asked;
        let (_, of_link) = links
            .entry(link)
            .or_insert_with(|| (scope.clone(), HashSet::new()));
        let of_grants = all.entry(scope.clone()).or_default();
        let mut is_new = false;
        for topic in topics.into_iter().filter(|topic| scope.bounds(topic)) {
            // Agents ask for a resource again whenever they were blind in it.
            if of_link.contains(&topic) {
                continue;
            }
            if OF_LINK_MAX <= of_link.len() || OF_ALL_MAX <= *count {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            of_link.insert(topic);
            *count += 1;
            let links = of_grants.entry(topic).or_default();
            is_new |= *links == 0;
            *links += 1;
        }
        if is_new {
            self.changes.fetch_add(1, Ordering::Release);
        }
        is_new
    }

    /// Forgets what a link asked for.
    pub fn forget(&self, link: u64) {
        let mut asked = self.lock();
        let Some((scope, topics)) = asked.links.remove(&link) else {
            return;
        };
        asked.count -= topics.len();
        let Some(of_grants) = asked.topics.get_mut(&scope) else {
            return;
        };
        for topic in &topics {
            if let Some(links) = of_grants.get_mut(topic) {
                *links -= 1;
                if *links == 0 {
                    of_grants.remove(topic);
                }
            }
        }
        if of_grants.is_empty() {
            asked.topics.remove(&scope);
        }
    }

    /// Whether a topic may be heard under grants of this scope.
    pub fn is_allowed(&self, scope: &GrantScope, topic: &Topic) -> bool {
        if !scope.bounds(topic) {
            return true;
        }
        let asked = self.lock();
        let of_grants = asked.topics.get(scope);
        of_grants.is_some_and(|topics| topics.contains_key(topic))
    }

    /// A number that rises whenever more topics may be heard.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Topics since the start that were not allowed because of a bound: nothing is received on them.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, AskedTopics> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(names: &[&str]) -> GrantScope {
        GrantScope {
            namespaces: Some(names.iter().map(|&name| name.into()).collect()),
            agents: None,
        }
    }

    #[test]
    fn an_agents_topic_is_open_only_to_grants_for_its_name() {
        let hearing = Hearing::default();
        let own = Topic::of_agent(&[0; 16], "checkout-1");
        let of = |agents: &str| GrantScope {
            namespaces: None,
            agents: Some(agents.into()),
        };
        assert!(!hearing.is_allowed(&of("checkout-*"), &own));
        hearing.allow(1, &of("checkout-*"), [own, topic(1)]);
        assert!(hearing.is_allowed(&of("checkout-*"), &own));
        assert!(!hearing.is_allowed(&of("web-*"), &own));
        // Topics of resources are all heard, and not remembered.
        assert!(hearing.is_allowed(&of("web-*"), &topic(1)));
        assert_eq!(hearing.lock().count, 1);
    }

    fn topic(number: usize) -> Topic {
        Topic::of_resource(&[0; 16], &format!("api.{number}"))
    }

    #[test]
    fn grants_limit_subscriptions_to_their_namespaces() {
        let hearing = Hearing::default();
        let (api, web) = (namespaces(&["api"]), namespaces(&["web"]));
        let one = topic(1);
        assert!(hearing.allow(1, &api, [one]) && !hearing.allow(1, &api, [one]));
        // This holds for every token of the same scope.
        assert!(hearing.is_allowed(&api, &one) && !hearing.is_allowed(&web, &one));
        assert_eq!(hearing.changes(), 1);
    }

    #[test]
    fn a_topic_is_forgotten_with_the_last_link_that_requested_it() {
        let hearing = Hearing::default();
        let api = namespaces(&["api"]);
        hearing.allow(1, &api, [topic(1), topic(2)]);
        assert!(!hearing.allow(2, &api, [topic(1)]));
        hearing.forget(1);
        assert!(hearing.is_allowed(&api, &topic(1)) && !hearing.is_allowed(&api, &topic(2)));
        hearing.forget(2);
        hearing.forget(2);
        assert!(!hearing.is_allowed(&api, &topic(1)));
        assert_eq!(hearing.lock().count, 0);
        assert!(hearing.lock().topics.is_empty());
    }

    #[test]
    fn a_greedy_subscriber_takes_no_room_from_others() {
        let hearing = Hearing::default();
        let api = namespaces(&["api"]);
        for chunk in 0..30 {
            let some = (0..1_000).map(|n| topic(chunk * 1_000 + n));
            hearing.allow(1, &api, some);
        }
        assert_eq!(hearing.left_out(), 30_000 - OF_LINK_MAX as u64);
        assert!(hearing.allow(2, &api, [topic(29_999)]));
        assert!(hearing.is_allowed(&api, &topic(29_999)));
    }
}
