//! The denials that were stated and may be in force, with the names of their scopes, which are kept
//! only here.
//!
//! Ordered by the scopes' hashes, so that every walk has the same order on any machine. Knows nothing
//! of why a scope is closed. What stays true: every denial whose end lies after log time is here;
//! ended ones may remain for a while, but no view shows them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Denial, Scope, Statement, StatementKind};

use super::rulings::{ResourceStatement, Rulings};
use crate::pairs::Identity;

/// A denial in force, as the feed's snapshots and queries show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDenial {
    /// The resource.
    pub resource: Arc<str>,
    /// The domain; `None`: everybody.
    pub domain: Option<Arc<str>>,
    /// The log position of its last statement.
    pub position: LogPosition,
    /// Until when, and why.
    pub denial: Denial,
}

impl LiveDenial {
    /// The scope as statements name it.
    pub fn scope(&self) -> Scope {
        match &self.domain {
            Some(domain) => Scope::Pair(domain.clone()),
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

    fn statement(&self, kind: StatementKind) -> ResourceStatement {
        ResourceStatement {
            resource: self.resource.clone(),
            statement: Statement {
                scope: self.scope(),
                position: self.position,
                kind,
            },
        }
    }
}

/// How a scope stands before and after an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScopeStanding {
    pub identity: Identity,
    /// The log position of the entry.
    pub position: LogPosition,
    /// The pair's time.
    pub now: Timestamp,
    /// What ended by then is over for every pair: see [`super::Engine::now`].
    pub over: Timestamp,
    /// The end that was stated last.
    pub before: Option<Timestamp>,
    /// The denial after the entry.
    pub denial: Option<Denial>,
}

/// The bits of a scope's hash that select its shard: the first ones, so that the shards are in the
/// order of the hashes.
const SHARD_BITS: u32 = 8;

type DenialShard = BTreeMap<Identity, LiveDenial>;

/// All denials of a partition.
#[derive(Clone, Debug)]
pub(super) struct Denials {
    /// Each shard is shared with frozen copies until it changes: a copy of all of them is cheap, and
    /// the first change to a shard after it copies that shard alone.
    shards: Vec<Arc<DenialShard>>,
    len: usize,
    /// Where the next sweep begins.
    hand: Identity,
}

/// A copy of all denials at one moment.
#[derive(Debug)]
pub(super) struct FrozenDenials {
    shards: Vec<Arc<DenialShard>>,
    now: Timestamp,
}

/// One step of a walk over all denials.
#[derive(Debug)]
pub(super) struct Walked {
    /// The denials of this step that are in force.
    pub in_force: Vec<(Identity, LiveDenial)>,
    /// The last one that was looked at; `None`: there are no more.
    pub upto: Option<Identity>,
}

impl Default for Denials {
    fn default() -> Self {
        let empty = Arc::default();
        Self {
            shards: vec![empty; 1 << SHARD_BITS],
            len: 0,
            hand: Identity(0),
        }
    }
}

impl FrozenDenials {
    /// The denials in force, by the scopes' hashes.
    pub fn iter(&self) -> impl Iterator<Item = (Identity, &LiveDenial)> {
        after(&self.shards, self.now)
    }
}

fn after(
    shards: &[Arc<DenialShard>],
    now: Timestamp,
) -> impl Iterator<Item = (Identity, &LiveDenial)> {
    let live = shards.iter().flat_map(|shard| shard.iter());
    live.map(|(identity, live)| (*identity, live))
        .filter(move |(_, live)| now < live.denial.end)
}

fn shard_of(identity: Identity) -> usize {
    (identity.0 >> (u128::BITS - SHARD_BITS)) as usize
}

impl Denials {
    /// States what has changed about a scope; nothing if the end in force is the same. `names` returns
    /// its resource and domain.
    pub fn follow(
        &mut self,
        standing: ScopeStanding,
        names: impl FnOnce() -> (Arc<str>, Option<Arc<str>>),
        rulings: &mut Rulings,
    ) {
        let ScopeStanding {
            identity, position, ..
        } = standing;
        // A denial that had ended by itself at the pair's time needs no lift.
        let in_force = standing.before.filter(|end| standing.now < *end);
        if in_force == standing.denial.map(|denial| denial.end) {
            if standing.before.is_some() && in_force.is_none() {
                self.end(identity);
            }
            return;
        }
        match standing.denial {
            Some(denial) => {
                // The names of a scope that is denied already are here.
                if let Some(live) = self.live_mut(identity) {
                    (live.position, live.denial) = (position, denial);
                    rulings
                        .statements
                        .push(live.statement(StatementKind::Denied(denial)));
                    return;
                }
                let (resource, domain) = names();
                let live = LiveDenial {
                    resource,
                    domain,
                    position,
                    denial,
                };
                self.deny(identity, live, rulings);
            }
            None => self.lift(identity, position, standing.over, rulings),
        }
    }

    /// Denies a scope, and states it.
    pub fn deny(&mut self, identity: Identity, live: LiveDenial, rulings: &mut Rulings) {
        rulings
            .statements
            .push(live.statement(StatementKind::Denied(live.denial)));
        self.put(identity, live);
    }

    /// Ends a denial before its time, and states the lift. A denial that ended by `over` needs no
    /// lift, and may not be here any more.
    pub fn lift(
        &mut self,
        identity: Identity,
        position: LogPosition,
        over: Timestamp,
        rulings: &mut Rulings,
    ) {
        let live = self.end(identity);
        if let Some(mut live) = live.filter(|live| over < live.denial.end) {
            live.position = position;
            rulings
                .statements
                .push(live.statement(StatementKind::Lifted));
        }
    }

    fn live_mut(&mut self, identity: Identity) -> Option<&mut LiveDenial> {
        let shard = self.shards.get_mut(shard_of(identity))?;
        if !shard.contains_key(&identity) {
            return None;
        }
        Arc::make_mut(shard).get_mut(&identity)
    }

    /// Removes a denial that has ended by itself.
    pub fn end(&mut self, identity: Identity) -> Option<LiveDenial> {
        let shard = self.shards.get_mut(shard_of(identity))?;
        if !shard.contains_key(&identity) {
            return None;
        }
        self.len -= 1;
        Arc::make_mut(shard).remove(&identity)
    }

    /// Adds a denial from a snapshot.
    pub fn put(&mut self, identity: Identity, live: LiveDenial) {
        if let Some(shard) = self.shards.get_mut(shard_of(identity)) {
            let before = Arc::make_mut(shard).insert(identity, live);
            self.len += usize::from(before.is_none());
        }
    }

    /// A copy of the denials that end after `now`; it shares their memory until that changes.
    pub fn freeze(&self, now: Timestamp) -> FrozenDenials {
        FrozenDenials {
            shards: self.shards.clone(),
            now,
        }
    }

    /// The denials that end after `now`, by the scopes' hashes.
    pub fn after(&self, now: Timestamp) -> impl Iterator<Item = (Identity, &LiveDenial)> {
        after(&self.shards, now)
    }

    /// The same, in the order in which they are stated again under a new generation.
    pub fn to_state_again(&self, now: Timestamp) -> Vec<(Identity, LiveDenial)> {
        let live = self.after(now);
        live.map(|(identity, live)| (identity, live.clone()))
            .collect()
    }

    /// Looks at the next `count` denials after `behind`; `None`: from the first one on.
    pub fn walk(&self, behind: Option<Identity>, now: Timestamp, count: usize) -> Walked {
        let mut walked = Walked {
            in_force: Vec::new(),
            upto: None,
        };
        for (seen, (identity, live)) in self.behind(behind).enumerate() {
            if seen == count {
                return walked;
            }
            walked.upto = Some(identity);
            if now < live.denial.end {
                walked.in_force.push((identity, live.clone()));
            }
        }
        walked.upto = None;
        walked
    }

    /// The denial of a scope, if it ends after `now`.
    pub fn get(&self, identity: Identity, now: Timestamp) -> Option<&LiveDenial> {
        let live = self.shards.get(shard_of(identity))?.get(&identity);
        live.filter(|live| now < live.denial.end)
    }

    /// How many are kept, ended ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Looks at the next `count` denials, and drops those that have ended.
    pub fn sweep(&mut self, now: Timestamp, count: usize) {
        if self.len == 0 {
            // Each tick would look into every shard.
            self.hand = Identity(0);
            return;
        }
        let from = self.hand.0.checked_sub(1).map(Identity);
        let (mut ended, mut seen) = (Vec::new(), 0);
        let mut hand = Identity(0);
        for (identity, live) in self.behind(from).take(count) {
            seen += 1;
            hand = Identity(identity.0.wrapping_add(1));
            if live.denial.end <= now {
                ended.push(identity);
            }
        }
        self.hand = if seen < count { Identity(0) } else { hand };
        for identity in ended {
            self.end(identity);
        }
    }

    fn behind(&self, behind: Option<Identity>) -> impl Iterator<Item = (Identity, &LiveDenial)> {
        let first = behind.map_or(0, shard_of);
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let shards = self.shards.iter().skip(first).enumerate();
        let live = shards.flat_map(move |(index, shard)| match index {
            0 => shard.range((from, Bound::Unbounded)),
            _ => shard.range(..),
        });
        live.map(|(identity, live)| (*identity, live))
    }
}
