//! The denials that were stated and may be in force, with the names that only they keep.
//!
//! Ordered by the scopes' hashes, so that every walk over them is the same on any machine. Knows
//! nothing of why a scope is closed. What stays true: every denial whose end lies after log time is
//! here; others may be here for a while, and nobody sees them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tollgate_shared::place::Place;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Denial, Says, Scope, Statement};

use super::rulings::{Rulings, Said};
use crate::pairs::Identity;

/// A denial in force, as the feed's snapshots and queries show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDenial {
    /// The resource.
    pub resource: Arc<str>,
    /// The domain; none: everybody.
    pub domain: Option<Arc<str>>,
    /// Where it was stated last.
    pub place: Place,
    /// Until when, and why.
    pub denial: Denial,
}

impl LiveDenial {
    /// The scope as statements name it.
    pub fn scope(&self) -> Scope {
        match &self.domain {
            Some(domain) => Scope::Pair((&**domain).into()),
            None => Scope::Resource,
        }
    }

    /// How long it still holds at `now`, which is log time; [`Span::MAX`]: for ever.
    pub fn remaining(&self, now: Timestamp) -> Span {
        match self.denial.end {
            Timestamp::MAX => Span::MAX,
            end => end.since(now),
        }
    }

    fn said(&self, says: Says) -> Said {
        Said {
            resource: self.resource.clone(),
            statement: Statement {
                scope: self.scope(),
                place: self.place,
                says,
            },
        }
    }
}

/// How a scope stands after an entry, and how it stood before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub identity: Identity,
    /// The place of the entry.
    pub place: Place,
    /// The pair's time.
    pub now: Timestamp,
    /// The end that was stated last.
    pub before: Option<Timestamp>,
    /// The denial by now.
    pub denial: Option<Denial>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Denials {
    live: BTreeMap<Identity, LiveDenial>,
    /// Where the sweep goes on.
    hand: Identity,
}

impl Denials {
    /// Says what has changed about a scope; nothing, where the end in force is what it was. `names`
    /// gives its resource and domain.
    pub fn follow(
        &mut self,
        standing: Standing,
        names: impl FnOnce() -> (Arc<str>, Option<Arc<str>>),
        rulings: &mut Rulings,
    ) {
        let Standing {
            identity, place, ..
        } = standing;
        // What had ended by itself at the pair's time needs no lift.
        let in_force = standing.before.filter(|end| standing.now < *end);
        if in_force == standing.denial.map(|denial| denial.end) {
            if standing.before.is_some() && in_force.is_none() {
                self.live.remove(&identity);
            }
            return;
        }
        match standing.denial {
            Some(denial) => {
                let (resource, domain) = names();
                let live = LiveDenial {
                    resource,
                    domain,
                    place,
                    denial,
                };
                self.deny(identity, live, rulings);
            }
            None => self.lift(identity, place, rulings),
        }
    }

    /// A scope is denied: states it.
    pub fn deny(&mut self, identity: Identity, live: LiveDenial, rulings: &mut Rulings) {
        rulings
            .statements
            .push(live.said(Says::Denied(live.denial)));
        self.live.insert(identity, live);
    }

    /// A denial in force is over before its end: states the lift.
    pub fn lift(&mut self, identity: Identity, place: Place, rulings: &mut Rulings) {
        if let Some(mut live) = self.live.remove(&identity) {
            live.place = place;
            rulings.statements.push(live.said(Says::Open));
        }
    }

    /// A denial has ended by itself.
    pub fn end(&mut self, identity: Identity) {
        self.live.remove(&identity);
    }

    /// Puts in a denial as a snapshot has it.
    pub fn put(&mut self, identity: Identity, live: LiveDenial) {
        self.live.insert(identity, live);
    }

    /// The denials that end after `now`, by the scopes' hashes.
    pub fn after(&self, now: Timestamp) -> impl Iterator<Item = (Identity, &LiveDenial)> {
        let live = self.live.iter().map(|(identity, live)| (*identity, live));
        live.filter(move |(_, live)| now < live.denial.end)
    }

    /// The first one behind `behind` (or of all) that ends after `now`.
    pub fn next(
        &self,
        behind: Option<Identity>,
        now: Timestamp,
    ) -> Option<(Identity, &LiveDenial)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut live = self.live.range((from, Bound::Unbounded));
        live.find(|(_, live)| now < live.denial.end)
            .map(|(identity, live)| (*identity, live))
    }

    /// The denial of a scope, if it ends after `now`.
    pub fn get(&self, identity: Identity, now: Timestamp) -> Option<&LiveDenial> {
        self.live
            .get(&identity)
            .filter(|live| now < live.denial.end)
    }

    /// How many are kept, ended ones included.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Drops those that have ended among the next `count`.
    pub fn sweep(&mut self, now: Timestamp, count: usize) {
        let next = self.live.range(self.hand..).take(count);
        let (mut ended, mut seen) = (Vec::new(), 0);
        for (identity, live) in next {
            seen += 1;
            self.hand = Identity(identity.0.wrapping_add(1));
            if live.denial.end <= now {
                ended.push(*identity);
            }
        }
        if seen < count {
            self.hand = Identity(0);
        }
        for identity in ended {
            self.live.remove(&identity);
        }
    }
}
