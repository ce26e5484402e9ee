//! Topics of resources: the last sequence of each, and which of them have subscribers.
//!
//! ```text
//! api.search     r4f0c…     57     subscribers: a heartbeat each time that one is due
//! made.up.name   r93ab…      2     none: no heartbeat, however many such names there are
//! ```
//!
//! Names come from anybody's calls, so they are forgotten where nothing is in force and nobody subscribes; a forgotten
//! topic goes on above all sequences that were forgotten, which a subscriber takes for a gap. Knows nothing of frames. What stays true: the
//! sequences of a topic rise.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use tollgate_shared::wire::frame::Topic;

use super::live::Live;

/// How many topics are kept beside twice those that were needed when topics were forgotten last.
const SPARE: usize = 4_096;

/// Asks the feed which topics have subscribers: all of them; or, where that is less work, those of so many resources,
/// whose topics the function lists.
type Ask = dyn Fn(usize, &dyn Fn() -> Vec<Topic>) -> Vec<Topic> + Send + Sync;

/// The topics that have subscribers. The default takes every topic for one: where there is no feed, in tests.
#[derive(Clone, Default)]
pub struct Subscribed(Option<Arc<Ask>>);

impl Subscribed {
    /// As a feed knows them: `ask` lists those that have subscribers, of the topics in a list that it may make and whose
    /// length it gets, or of all.
    pub fn asked(
        ask: impl Fn(usize, &dyn Fn() -> Vec<Topic>) -> Vec<Topic> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// All topics that have subscribers; `None`: every topic may.
    pub(super) fn all(&self) -> Option<HashSet<Topic>> {
        let ask = self.0.as_ref()?;
        Some(ask(usize::MAX, &Vec::new).into_iter().collect())
    }
}

impl fmt::Debug for Subscribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = if self.0.is_some() { "asked" } else { "all" };
        f.debug_tuple("Subscribed").field(&known).finish()
    }
}

/// The topics of one kind that one aggregator publishes.
#[derive(Debug)]
pub(super) struct Topics {
    key: [u8; 16],
    known: HashMap<Arc<str>, (Topic, u64)>,
    names: HashMap<Topic, Arc<str>>,
    /// The last sequence of topics that are not known.
    others: u64,
    /// How many were needed when topics were forgotten last.
    kept: usize,
}

impl Topics {
    pub fn new(key: [u8; 16]) -> Self {
        Self {
            key,
            known: HashMap::new(),
            names: HashMap::new(),
            others: 0,
            kept: 0,
        }
    }

    /// The last sequence of a resource's topic.
    pub fn last(&self, resource: &str) -> u64 {
        self.known
            .get(resource)
            .map_or(self.others, |(_, last)| *last)
    }

    /// Makes a resource's topic known.
    pub fn meet(&mut self, resource: &Arc<str>) {
        if !self.known.contains_key(resource) {
            let topic = Topic::of_resource(&self.key, resource);
            self.known
                .insert(Arc::clone(resource), (topic, self.others));
            self.names.insert(topic, Arc::clone(resource));
        }
    }

    /// A resource's topic, and its next sequence.
    pub fn next(&mut self, resource: &Arc<str>) -> (Topic, u64) {
        self.meet(resource);
        match self.known.get_mut(resource) {
            Some((topic, last)) => {
                *last += 1;
                (*topic, *last)
            }
            None => (Topic::of_resource(&self.key, resource), self.others + 1),
        }
    }

    /// The resources with something in force whose topics have subscribers, in order. All of these were met.
    pub fn with_subscribers(&mut self, live: &Live, subscribed: &Subscribed) -> Vec<Arc<str>> {
        let Some(ask) = &subscribed.0 else {
            return live.resources().cloned().collect();
        };
        if self.are_many()
            && let Some(all) = subscribed.all()
        {
            self.forget_but(|name, topic| live.has(name) || all.contains(topic));
        }
        let topics = || {
            let known = live.resources().filter_map(|name| self.known.get(name));
            known.map(|(topic, _)| *topic).collect()
        };
        let found = ask(live.resources_len(), &topics);
        let names = found.iter().filter_map(|topic| self.names.get(topic));
        let mut names: Vec<_> = names.filter(|name| live.has(name)).cloned().collect();
        names.sort();
        names
    }

    /// Lets all topics skip a sequence.
    pub fn skip(&mut self) {
        // Without forgotten topics, no subscriber has received anything of those that are not known.
        self.others += u64::from(0 < self.others);
        self.known.values_mut().for_each(|(_, last)| *last += 1);
    }

    /// Whether there are many more topics than were needed last.
    pub fn are_many(&self) -> bool {
        self.kept.saturating_mul(2).saturating_add(SPARE) < self.known.len()
    }

    /// Forgets the topics that are not needed.
    pub fn forget_but(&mut self, is_needed: impl Fn(&str, &Topic) -> bool) {
        let (others, names) = (&mut self.others, &mut self.names);
        self.known.retain(|resource, (topic, last)| {
            let is_needed = is_needed(resource, topic);
            if !is_needed {
                *others = (*others).max(*last);
                names.remove(topic);
            }
            is_needed
        });
        self.kept = self.known.len();
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::log_position::LogPosition;
    use tollgate_shared::time::{Span, Timestamp};
    use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement, StatementKind};

    use super::*;

    fn name(n: usize) -> Arc<str> {
        Arc::from(format!("made.up.{n}"))
    }

    fn live(names: &[&Arc<str>]) -> Live {
        let mut live = Live::default();
        for name in names {
            let denial = Denial {
                end: Timestamp::MAX,
                cause: Cause::Hard,
                version: 1,
                limit: 1,
                window: Span::ZERO,
                most: u64::MAX,
            };
            let statement = Statement {
                scope: Scope::Pair("acme".into()),
                position: LogPosition::default(),
                kind: StatementKind::Denied(denial),
            };
            live.take(0, name, &statement);
        }
        live
    }

    #[test]
    fn topics_that_nothing_needs_are_forgotten() {
        let mut topics = Topics::new([0; 16]);
        let (kept, first): (Arc<str>, Arc<str>) = (Arc::from("api.search"), name(0));
        for _ in 0..5 {
            topics.next(&first);
        }
        topics.next(&kept);
        for n in 1..SPARE - 1 {
            topics.next(&name(n));
            assert!(!topics.are_many(), "so few stay");
        }
        topics.next(&name(SPARE));
        assert!(topics.are_many());
        topics.forget_but(|of, _| of == "api.search");
        assert_eq!((topics.known.len(), topics.names.len()), (1, 1));
        assert_eq!(
            (topics.last("api.search"), topics.last("made.up.0")),
            (1, 5)
        );
        topics.skip();
        assert_eq!(topics.next(&first).1, 7, "5 was its last, and 6 is skipped");
        assert_eq!(topics.next(&kept).1, 3);
    }

    #[test]
    fn only_topics_with_subscribers_have_heartbeats() {
        let mut topics = Topics::new([0; 16]);
        let [a, b, c] = [1, 2, 3].map(name);
        let subscribers: Vec<Topic> = [&c, &a].map(|name| topics.next(name).0).to_vec();
        topics.meet(&b);
        // The feed may answer either question.
        let of_listed = subscribers.clone();
        let listed = Subscribed::asked(move |count, list| match count {
            usize::MAX => of_listed.clone(),
            count => {
                let list = list();
                assert_eq!(list.len(), count);
                { list.into_iter() }
                    .filter(|topic| of_listed.contains(topic))
                    .collect()
            }
        });
        let all = Subscribed::asked(move |_, _| subscribers.clone());
        for subscribed in [listed, all] {
            let found = topics.with_subscribers(&live(&[&a, &b]), &subscribed);
            assert_eq!(found, [Arc::clone(&a)]);
            let found = topics.with_subscribers(&live(&[&c, &b, &a]), &subscribed);
            assert_eq!(found, [Arc::clone(&a), Arc::clone(&c)], "in order");
            // Among many, those that have subscribers stay known.
            for n in 10..SPARE + 20 {
                topics.meet(&name(n));
            }
            topics.with_subscribers(&live(&[&b]), &subscribed);
            assert_eq!((topics.known.len(), topics.last(&a)), (3, 1));
        }
        let found = topics.with_subscribers(&live(&[&b, &a]), &Subscribed::default());
        assert_eq!(found, [a, b]);
    }
}
