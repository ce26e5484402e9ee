//! The denied scopes of a copy-limited resource: a scope is denied when an operation finds it full,
//! until it has room again.
//!
//! ```text
//! hold 2 of b       probation is full           denied: group probation, without an end
//! release 1 of b    probation has room          open
//! limit raised      denied scopes are checked again; other scopes are not
//! ```
//!
//! Such a denial has no end of its own: it holds as long as agents receive advancing watermarks of the
//! partition. Knows nothing of holds. What stays true: a denied scope is full, and a full scope is
//! denied from the first operation on that found it full, unless as many as allowed are denied.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Cause, Denial, Scope as Name, Statement, StatementKind};
use tollgate_shared::wire::verdict::HoldStatus;

use super::rulings::{ResourceStatement, Rulings, VerdictDue};
use crate::copies::{Copies, CopiesScope};

/// The last statement about a denied scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatedScope {
    /// The log position of the statement.
    pub position: LogPosition,
    /// The version under which it was ruled.
    pub version: u64,
    /// The scope's effective limit.
    pub limit: u64,
}

/// All denied scopes of one resource.
#[derive(Clone, Debug, Default)]
pub(super) struct DeniedScopes {
    domains: BTreeMap<Arc<str>, StatedScope>,
    groups: BTreeMap<Arc<str>, StatedScope>,
    resource: Option<StatedScope>,
    digest: u128,
}

/// The destination of statements, and what they have in common.
pub(super) struct StatementSink<'r> {
    pub rulings: &'r mut Rulings,
    /// The log position of the next statement.
    pub position: LogPosition,
    /// The version in force.
    pub version: u64,
    /// How many domains of one resource may be denied.
    pub denied_max: u64,
}

impl StatementSink<'_> {
    /// Moves to the next log position.
    pub fn next(&mut self) {
        self.position.entry = self.position.entry.saturating_add(1);
    }

    /// Adds a verdict for an agent's epoch; `None` asks for a list.
    pub fn verdict(
        &mut self,
        agent: &Arc<str>,
        epoch: u128,
        resource: &Arc<str>,
        status: impl Into<Option<HoldStatus>>,
    ) {
        self.rulings.verdicts.push(VerdictDue {
            agent: agent.clone(),
            epoch,
            resource: resource.clone(),
            position: self.position,
            status: status.into(),
        });
    }
}

impl StatedScope {
    fn denial(self) -> Denial {
        Denial {
            end: Timestamp::MAX,
            cause: Cause::Full,
            version: self.version,
            limit: self.limit,
            window: Span::ZERO,
            most: u64::MAX,
        }
    }
}

impl DeniedScopes {
    /// Checks a scope and states what has changed: a denial if it is full now, a lift if it has room
    /// again. `stated` is whether this resource's denials are stated at all.
    pub fn follow(
        &mut self,
        resource: &Arc<str>,
        copies: &Copies,
        stated: bool,
        scope: CopiesScope<'_>,
        sink: &mut StatementSink<'_>,
    ) {
        let count = copies.count_of(scope);
        let full = count.limit.filter(|_| stated && count.full());
        let before = self.get(scope);
        let kind = match (full, before) {
            (Some(limit), Some(before)) if before.limit == limit => return,
            (Some(limit), before) => {
                let new_domain = before.is_none() && matches!(scope, CopiesScope::Domain(_));
                if new_domain && sink.denied_max <= self.domains.len() as u64 {
                    sink.rulings.copies.denials_at_cap += 1;
                    return;
                }
                let now = StatedScope {
                    position: sink.position,
                    version: sink.version,
                    limit,
                };
                self.put(scope, Some(now));
                StatementKind::Denied(now.denial())
            }
            (None, Some(_)) => {
                self.put(scope, None);
                StatementKind::Lifted
            }
            (None, None) => return,
        };
        sink.rulings.statements.push(ResourceStatement {
            resource: resource.clone(),
            statement: Statement {
                scope: name_of(scope),
                position: sink.position,
                kind,
            },
        });
    }

    /// Checks every denied scope again.
    pub fn again(
        &mut self,
        resource: &Arc<str>,
        copies: &Copies,
        stated: bool,
        sink: &mut StatementSink<'_>,
    ) {
        for (scope, _) in self.names() {
            self.follow(resource, copies, stated, borrowed(&scope), sink);
            sink.next();
        }
    }

    /// States a scope's denial again at a new log position, if it is denied.
    pub fn state_one_again(
        &mut self,
        resource: &Arc<str>,
        scope: CopiesScope<'_>,
        sink: &mut StatementSink<'_>,
    ) {
        let Some(stated) = self.get(scope) else {
            return;
        };
        let position = sink.position;
        self.put(scope, Some(StatedScope { position, ..stated }));
        sink.rulings.statements.push(ResourceStatement {
            resource: resource.clone(),
            statement: Statement {
                scope: name_of(scope),
                position,
                kind: StatementKind::Denied(stated.denial()),
            },
        });
        sink.next();
    }

    /// States every denial again, at new log positions.
    pub fn state_again(&mut self, resource: &Arc<str>, sink: &mut StatementSink<'_>) {
        for (scope, _) in self.names() {
            self.state_one_again(resource, borrowed(&scope), sink);
        }
    }

    /// Lifts every denial: the resource is not limited by copies any more.
    pub fn lift_all(&mut self, resource: &Arc<str>, sink: &mut StatementSink<'_>) {
        for (scope, _) in self.names() {
            sink.rulings.statements.push(ResourceStatement {
                resource: resource.clone(),
                statement: Statement {
                    scope,
                    position: sink.position,
                    kind: StatementKind::Lifted,
                },
            });
            sink.next();
        }
        *self = Self::default();
    }

    /// Every denied scope as it was stated, with the log position of the statement.
    pub fn statements(&self) -> impl Iterator<Item = Statement> + '_ {
        self.iter().map(|(scope, stated)| Statement {
            scope: name_of(scope),
            position: stated.position,
            kind: StatementKind::Denied(stated.denial()),
        })
    }

    /// Every denied scope: domains, then groups, each by name, then the resource.
    pub fn iter(&self) -> impl Iterator<Item = (CopiesScope<'_>, StatedScope)> {
        let domains = self.domains.iter();
        let groups = self.groups.iter();
        domains
            .map(|(name, stated)| (CopiesScope::Domain(name), *stated))
            .chain(groups.map(|(name, stated)| (CopiesScope::Group(name), *stated)))
            .chain(self.resource.map(|stated| (CopiesScope::Resource, stated)))
    }

    /// Number of denied scopes.
    pub fn len(&self) -> usize {
        self.domains.len() + self.groups.len() + usize::from(self.resource.is_some())
    }

    /// A digest of the denied scopes and their limits alone.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Sets a scope from a snapshot; `None` removes it.
    pub fn put(&mut self, scope: CopiesScope<'_>, stated: Option<StatedScope>) {
        let before = match (scope, stated) {
            (CopiesScope::Domain(name), Some(stated)) => self.domains.insert(name.into(), stated),
            (CopiesScope::Domain(name), None) => self.domains.remove(name),
            (CopiesScope::Group(name), Some(stated)) => self.groups.insert(name.into(), stated),
            (CopiesScope::Group(name), None) => self.groups.remove(name),
            (CopiesScope::Resource, stated) => std::mem::replace(&mut self.resource, stated),
        };
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(mark(scope, before));
        }
        if let Some(stated) = stated {
            self.digest = self.digest.wrapping_add(mark(scope, stated));
        }
    }

    fn get(&self, scope: CopiesScope<'_>) -> Option<StatedScope> {
        match scope {
            CopiesScope::Domain(name) => self.domains.get(name).copied(),
            CopiesScope::Group(name) => self.groups.get(name).copied(),
            CopiesScope::Resource => self.resource,
        }
    }

    fn names(&self) -> Vec<(Name, StatedScope)> {
        self.iter()
            .map(|(scope, stated)| (name_of(scope), stated))
            .collect()
    }
}

/// The scope as statements name it.
pub(super) fn name_of(scope: CopiesScope<'_>) -> Name {
    match scope {
        CopiesScope::Domain(name) => Name::Pair(name.into()),
        CopiesScope::Group(name) => Name::Group(name.into()),
        CopiesScope::Resource => Name::Resource,
    }
}

/// The scope that a statement names.
fn borrowed(name: &Name) -> CopiesScope<'_> {
    match name {
        Name::Pair(name) => CopiesScope::Domain(name),
        Name::Group(name) => CopiesScope::Group(name),
        Name::Resource => CopiesScope::Resource,
    }
}

/// What one denied scope adds to the digest.
fn mark(scope: CopiesScope<'_>, stated: StatedScope) -> u128 {
    let mut hasher = SipHasher13::new();
    let (kind, name) = match scope {
        CopiesScope::Domain(name) => (0, name),
        CopiesScope::Group(name) => (1, name),
        CopiesScope::Resource => (2, ""),
    };
    hasher.write_u8(kind);
    hasher.write_u64(stated.version);
    hasher.write_u64(stated.limit);
    hasher.write(name.as_bytes());
    hasher.finish128().as_u128()
}
