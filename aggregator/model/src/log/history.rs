//! Every statement about every scope, so that a refusal can be checked long afterwards.
//!
//! Knows nothing of rules. What stays true: a scope's statements are in the order of their log positions, and
//! no statement is ever removed.

use std::collections::BTreeMap;

use super::input::{ModelPosition, ScopeChange};
use crate::scope::ScopeName;
use crate::stream::Denial;

/// One statement about some scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The log position of its cause.
    pub position: ModelPosition,
    /// The denial; `None` means a lift.
    pub denied: Option<Denial>,
}

/// The statements by scope.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    scopes: BTreeMap<ScopeName, Vec<Statement>>,
}

impl History {
    pub fn add(&mut self, change: &ScopeChange) {
        let statement = Statement {
            position: change.position,
            denied: change.denied,
        };
        match self.scopes.get_mut(&change.scope) {
            Some(statements) => statements.push(statement),
            None => {
                self.scopes.insert(change.scope.clone(), vec![statement]);
            }
        }
    }

    pub fn of(&self, scope: &ScopeName) -> &[Statement] {
        self.scopes.get(scope).map_or(&[], Vec::as_slice)
    }

    /// The newest statement about `scope` at or before the log position `position`.
    pub fn at(&self, scope: &ScopeName, position: ModelPosition) -> Option<Statement> {
        let statements = self.of(scope);
        let upto = statements.partition_point(|statement| statement.position <= position);
        upto.checked_sub(1).map(|newest| statements[newest])
    }

    pub fn scopes(&self) -> impl Iterator<Item = (&ScopeName, &[Statement])> {
        self.scopes
            .iter()
            .map(|(scope, all)| (scope, all.as_slice()))
    }
}
