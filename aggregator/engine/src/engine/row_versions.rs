//! Versions of rows that name pairs: each of these pairs comes under the new limits at once.
//!
//! ```text
//! set api.search, acme, 5/s      acme is denied: ruled again     globex is denied: unchanged, and not looked at
//! set sandbox, acme, limit 9     the denied scopes of sandbox are checked again
//! ```
//!
//! On limits of rates a version costs as much as it has rows, however many denials are in force; one with a row on copies
//! checks all denied scopes of copies. Ascending by identity, a slice at a time.
//! Knows nothing of how rows are written. What stays true: a pair that no row names has the same limits before and after
//! the version, and is not ruled again: a denial that its limits justify has the same end at any later instant before
//! that end.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;

use super::Engine;
use super::activations::{PairAction, SLICE, ScopeToRule};
use super::rulings::Rulings;
use crate::pairs::{Identity, Opened};
use tollgate_limits::Limits;

/// What a version of rows names, as far as it belongs to the partition and is not under it yet.
#[derive(Debug)]
pub(super) struct NamedPairs {
    pairs: BTreeMap<Identity, NamedPair>,
    /// The limits before it, if rows name resources that are limited by copies.
    before_copies: Option<Arc<Limits>>,
}

#[derive(Debug)]
struct NamedPair {
    resource: Arc<str>,
    domain: Arc<str>,
}

impl Engine {
    /// Puts a version of rows into force; [`Engine::rule_named`] brings the pairs under it.
    pub(super) fn begin_rows(
        &mut self,
        (version, at): (u64, Timestamp),
        limits: Arc<Limits>,
        act: &Act,
    ) -> NamedPairs {
        let mut pairs = BTreeMap::new();
        let mut of_copies = false;
        for row in act.rows() {
            of_copies |= limits.copies(&row.resource).is_some();
            let (resource, domain) = (&*row.resource, &*row.domain);
            if limits.rate(resource).is_some() && self.rules_pair(resource, domain) {
                let identity = self.identities.of_resource(resource).of(domain);
                let (resource, domain) = (resource.into(), domain.into());
                pairs.insert(identity, NamedPair { resource, domain });
            }
        }
        let before = self.steps.newest().limits.clone();
        self.steps.begin_rows(version, at, limits);
        NamedPairs {
            pairs,
            before_copies: of_copies.then_some(before),
        }
    }

    /// Brings the next slice of pairs under the version. Returns whether there are more.
    pub(super) fn rule_named(
        &mut self,
        named: &mut NamedPairs,
        at: Timestamp,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) -> bool {
        for _ in 0..SLICE {
            let Some((identity, pair)) = named.pairs.pop_first() else {
                break;
            };
            let again = ScopeToRule {
                identity,
                resource: pair.resource,
                domain: Some(pair.domain.clone()),
                at,
            };
            self.bring_candidate_under(identity, (&again.resource, &pair.domain));
            if self.denials.get(identity, at).is_some() {
                self.rule_one_again(again, PairAction::Nothing, position, rulings);
            } else {
                self.bring_under(again, rulings);
            }
        }
        if !named.pairs.is_empty() {
            return true;
        }
        if let Some(before) = named.before_copies.take() {
            let limits = self.steps.newest().limits.clone();
            let mut sink = self.sink(*position, rulings);
            self.holders.new_limits(&before, &limits, &mut sink);
            *position = sink.position;
        }
        self.steps.end_rows();
        false
    }

    /// Brings a pair under the version whose denial is over, if it is known and had one.
    fn bring_under(&mut self, again: ScopeToRule, rulings: &mut Rulings) {
        let identity = again.identity;
        self.denials.end(identity);
        let Some(domain) = again.domain.as_deref() else {
            return;
        };
        if self.table.open(identity) == Opened::New {
            return self.table.abandon();
        }
        let working = self.table.working();
        if self.steps.migrate(working, &again.resource, domain) {
            rulings.pair_forgotten(&again.resource);
        }
        self.table.close();
    }

    /// The same for its pair under the candidate, which has the limits of the row as well.
    fn bring_candidate_under(&mut self, identity: Identity, (resource, domain): (&str, &str)) {
        if self.candidates.open(identity) == Opened::New {
            return self.candidates.abandon();
        }
        self.steps
            .migrate_candidate(self.candidates.working(), resource, domain);
        self.candidates.close();
    }
}
