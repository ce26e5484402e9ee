//! What an operation causes beside its result: scopes that closed or opened, holds that ended, verdicts
//! for an agent.
//!
//! ```text
//! hold 2 of b       full: group probation          the scope is denied until it has room again
//! release 2 of b    open: group probation          the denial is lifted
//! ```
//!
//! One [`Effects`] value is reused for every record, so that adding a statement allocates nothing once
//! the value has grown. Knows nothing of denials in force: a scope may be stated as closed twice, and
//! one may open that never closed. What stays true: of two statements about one scope the later one
//! holds.

pub use tollgate_shared::holdings::TransferId;

use super::groups::GroupIx;

/// Number of an agent's epoch in one resource; valid until the epoch is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentIx(pub(super) u32);

/// A hold: the agent's epoch that took it, and the number that the epoch gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId {
    /// The epoch.
    pub agent: AgentIx,
    /// Its number, never given twice within the epoch.
    pub number: u64,
}

/// Which limit was nearest to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// The domain's.
    Domain,
    /// A group's.
    Group(GroupIx),
    /// The global one.
    Resource,
}

/// Result of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Copies granted; 0: nothing has changed.
    pub granted: u32,
    /// The limit that kept the grant below the copies asked for.
    pub by: Option<Limiter>,
}

/// The excess of copies that are in use already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Copies that a reserve would not have granted; they are counted all the same.
    pub excess: u32,
    /// The limit that had no room for them.
    pub by: Option<Limiter>,
}

/// Why an operation was refused. A refused operation has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpRefused {
    /// The hold is not counted: it was never taken, was released, is lost, or belongs to another agent.
    #[error("unknown hold")]
    UnknownHold,
    /// The hold has fewer copies.
    #[error("{asked} copies asked of a hold of {held}")]
    TooManyCopies {
        /// Copies that it has.
        held: u32,
        /// Copies that were asked for.
        asked: u32,
    },
    /// Nothing is staged under the id: nothing ever was, or the copies were seized already, or let go
    /// at their end, at their greatest age or by an operator.
    #[error("unknown transfer")]
    UnknownTransfer,
    /// Something is staged under the id already.
    #[error("a transfer of this id is staged already")]
    TransferExists,
    /// The hold's id is in use.
    #[error("a hold of this id exists already")]
    HoldExists,
    /// The hold was ended by its age or by an operator, and stays ended.
    #[error("the hold was ended")]
    HoldEnded,
    /// The agent's epoch is over.
    #[error("the agent's epoch is over")]
    EpochOver,
    /// An operation without copies.
    #[error("0 copies, expected at least 1")]
    NoCopies,
    /// The minimum is above the maximum.
    #[error("min {min} above copies {copies}")]
    MinAboveCopies {
        /// The least number of copies wanted.
        min: u32,
        /// The greatest number of copies wanted.
        copies: u32,
    },
    /// The resource keeps as many holds as its bound allows. The copies are not counted.
    #[error("the maximum number of holds is reached")]
    AtCapacity,
}

/// The verdict for the agent on a hold that its heartbeat listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldVerdict {
    /// The hold counts now, with this excess.
    Counted(Taken),
    /// It was ended by its age or by an operator: the agent must stop using it.
    Ended,
    /// It names a transfer that it cannot claim.
    UnknownTransfer,
    /// The resource keeps as many holds as its bound allows; this one is not counted.
    NotCounted,
}

/// A scope that is denied to all its domains while it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopiesScope<'a> {
    /// A domain.
    Domain(&'a str),
    /// A group.
    Group(&'a str),
    /// All domains.
    Resource,
}

/// A hold that ended without an operation of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// The hold.
    pub hold: HoldId,
    /// Copies that came back.
    pub copies: u32,
}

/// The effects of the operations applied so far.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    text: String,
    scopes: Vec<EffectScope>,
    pub(super) ended: Vec<EndedHold>,
    pub(super) verdicts: Vec<(HoldId, HoldVerdict)>,
}

#[derive(Clone, Copy, Debug)]
struct EffectScope {
    kind: Kind,
    full: bool,
    len: u16,
    start: u32,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Domain,
    Group,
    Resource,
}

impl Effects {
    /// No effects yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything, for the next record.
    pub fn clear(&mut self) {
        self.text.clear();
        self.scopes.clear();
        self.ended.clear();
        self.verdicts.clear();
    }

    /// Scopes, each with whether it is full now, in the order of the statements.
    pub fn scopes(&self) -> impl Iterator<Item = (CopiesScope<'_>, bool)> {
        self.scopes
            .iter()
            .map(|stated| (self.scope(stated), stated.full))
    }

    /// Holds that ended by age.
    pub fn ended(&self) -> &[EndedHold] {
        &self.ended
    }

    /// Verdicts on holds that a heartbeat listed, in its order.
    pub fn verdicts(&self) -> &[(HoldId, HoldVerdict)] {
        &self.verdicts
    }

    pub(super) fn state(&mut self, scope: CopiesScope<'_>, full: bool) {
        let (kind, name) = match scope {
            CopiesScope::Domain(name) => (Kind::Domain, name),
            CopiesScope::Group(name) => (Kind::Group, name),
            CopiesScope::Resource => (Kind::Resource, ""),
        };
        let stated = EffectScope {
            kind,
            full,
            len: name.len() as u16,
            start: self.text.len() as u32,
        };
        self.text.push_str(name);
        self.scopes.push(stated);
    }

    /// Number of statements about scopes so far.
    pub(super) fn scopes_stated(&self) -> usize {
        self.scopes.len()
    }

    /// Drops the statements about scopes since `from`: copies changed hands, but no count has changed.
    pub(super) fn retract(&mut self, from: usize) {
        self.scopes.truncate(from);
    }

    /// Sorts the statements since `from` by scope and keeps the last one of each scope. Operations on
    /// many holds walk them in an order that differs in a restored state.
    pub(super) fn settle(&mut self, from: usize) {
        let text = &self.text;
        let tail = &mut self.scopes[from..];
        tail.sort_by(|a, b| scope_in(text, a).cmp(&scope_in(text, b)));
        let mut kept = from;
        for index in from..self.scopes.len() {
            let stated = self.scopes[index];
            let last = self.scopes.get(index + 1);
            if last.is_none_or(|next| scope_in(text, next) != scope_in(text, &stated)) {
                self.scopes[kept] = stated;
                kept += 1;
            }
        }
        self.scopes.truncate(kept);
    }

    fn scope(&self, stated: &EffectScope) -> CopiesScope<'_> {
        scope_in(&self.text, stated)
    }
}

fn scope_in<'a>(text: &'a str, stated: &EffectScope) -> CopiesScope<'a> {
    let start = stated.start as usize;
    let name = text.get(start..start + usize::from(stated.len));
    match stated.kind {
        Kind::Domain => CopiesScope::Domain(name.unwrap_or_default()),
        Kind::Group => CopiesScope::Group(name.unwrap_or_default()),
        Kind::Resource => CopiesScope::Resource,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_statements_are_in_order_and_the_last_of_a_scope_holds() {
        let mut out = Effects::new();
        out.state(CopiesScope::Resource, true);
        let from = out.scopes_stated();
        for (scope, full) in [
            (CopiesScope::Resource, true),
            (CopiesScope::Domain("b"), false),
            (CopiesScope::Group("a"), true),
            (CopiesScope::Domain("b"), true),
            (CopiesScope::Domain("a"), false),
            (CopiesScope::Resource, false),
        ] {
            out.state(scope, full);
        }
        out.settle(from);
        let stated: Vec<(CopiesScope<'_>, bool)> = out.scopes().collect();
        assert_eq!(
            stated,
            [
                (CopiesScope::Resource, true),
                (CopiesScope::Domain("a"), false),
                (CopiesScope::Domain("b"), true),
                (CopiesScope::Group("a"), true),
                (CopiesScope::Resource, false),
            ]
        );
        out.clear();
        assert_eq!(out.scopes().count(), 0);
    }
}
