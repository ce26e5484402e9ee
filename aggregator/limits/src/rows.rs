//! Overrides beside a document: rows of single domains, which outlive the document.
//!
//! ```text
//! document     [rate.search] rate = "100/s"     domains: acme hard 200/s
//! rows         acme rate 5/s     globex rate 5/s     initech rate 7/s
//! acme         5/s, and 200/s of the document     globex 5/s     initech 7/s     all others 100/s
//! ```
//!
//! A row overrides what the document states of its domain, field by field, until the row is removed. A version shares
//! its rows with the one before it. Domains with the same statement share one [`RowStatement`]: a new document costs
//! as much as there are different statements and domains that it names itself, however many rows there are. Knows
//! nothing of logs. What stays true: the same document and rows have the same effect, whatever the order of the
//! changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::changed::Changed;
use super::networks::Networks;
use super::own::Own;
use super::sorted_names::SortedNames;
use super::stated::Stated;
use super::tables::{RateOverride, RateTable};

/// The statement of rows of a rate-limited resource, stored once for all domains that have it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowStatement {
    pub own: Own,
    /// Whether it states a limit of 0, so that it grants nothing under any document.
    grants_nothing: bool,
    /// The same as one text, which is the key for look-ups.
    key: Box<str>,
    pub stated: Stated,
}

impl RowStatement {
    pub fn of(own: Own, stated: Stated) -> Self {
        let key = key_of(&own);
        Self {
            grants_nothing: stated.class().grants_nothing(),
            own,
            key,
            stated,
        }
    }
}

/// A statement under the document in force.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StatementUse {
    statement: Arc<RowStatement>,
    /// Number of rows that have it; it is removed with the last one.
    rows: u64,
    over: RateOverride,
}

/// The rows of a rate-limited resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RateRows {
    of: Changed<Arc<RowStatement>>,
    statements: Changed<StatementUse>,
    /// The overrides of domains that the document names as well.
    named: Changed<RateOverride>,
    /// The networks among the domains, and among those that had a row.
    pub networks: Networks,
    /// The domains whose rows state a limit of 0.
    closed: SortedNames,
    len: usize,
}

impl RateRows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The statement of a domain's row.
    pub fn statement_of(&self, domain: &str) -> Option<&Arc<RowStatement>> {
        self.of.get(domain).flatten()
    }

    /// The override of a domain that has a row.
    #[inline]
    pub fn get(&self, domain: &str) -> Option<&RateOverride> {
        let statement = self.statement_of(domain)?;
        self.over(domain, statement)
    }

    fn over(&self, domain: &str, statement: &RowStatement) -> Option<&RateOverride> {
        let named = self.named.get(domain).flatten();
        named.or_else(|| self.used(&statement.key).map(|used| &used.over))
    }

    fn used(&self, key: &str) -> Option<&StatementUse> {
        self.statements.get(key).flatten()
    }

    /// All rows by domain, each with its override.
    pub fn all(&self) -> BTreeMap<&str, &RateOverride> {
        let rows = self.of.all().into_iter();
        rows.filter_map(|(domain, statement)| Some((domain, self.over(domain, statement?)?)))
            .collect()
    }

    /// All rows by domain, as they were stated.
    pub fn stated(&self) -> impl Iterator<Item = (&str, &Own)> {
        let rows = self.of.all().into_iter();
        rows.filter_map(|(domain, statement)| Some((domain, &statement?.own)))
    }

    /// The domains whose rows state a limit of 0, ascending.
    pub fn closed(&self) -> impl Iterator<Item = &str> {
        self.closed.iter()
    }

    /// Every override that a row has, once.
    pub fn overrides(&self) -> impl Iterator<Item = &RateOverride> {
        let used = self.statements.all().into_values().flatten();
        let named = self.named.all().into_values().flatten();
        used.map(|used| &used.over).chain(named)
    }

    /// The stored statement that equals `own`, if a row has it already.
    pub fn known(&self, own: &Own) -> Option<&Arc<RowStatement>> {
        self.used(&key_of(own)).map(|used| &used.statement)
    }

    /// Gives a domain a row. `over` returns the override of a statement under the document; `named` the override that
    /// results from the document's own statement of the domain, if it has one.
    pub fn put(
        &mut self,
        domain: &str,
        statement: Arc<RowStatement>,
        named: Option<RateOverride>,
        over: impl FnOnce(&Stated) -> RateOverride,
    ) {
        self.remove(domain);
        let used = match self.used(&statement.key) {
            Some(used) => StatementUse {
                rows: used.rows + 1,
                ..used.clone()
            },
            None => StatementUse {
                over: over(&statement.stated),
                statement: Arc::clone(&statement),
                rows: 1,
            },
        };
        self.statements.put(&statement.key, Some(used));
        if named.is_some() {
            self.named.put(domain, named);
        }
        if statement.grants_nothing {
            self.closed.insert(domain);
        }
        self.networks.add(domain);
        self.of.put(domain, Some(statement));
        self.len += 1;
    }

    /// Removes a domain's row, if it has one.
    pub fn remove(&mut self, domain: &str) {
        let Some(statement) = self.statement_of(domain).cloned() else {
            return;
        };
        let used = { self.used(&statement.key) }.filter(|used| 1 < used.rows);
        let used = used.map(|used| StatementUse {
            rows: used.rows - 1,
            ..used.clone()
        });
        self.statements.put(&statement.key, used);
        if self.named.get(domain).flatten().is_some() {
            self.named.put(domain, None);
        }
        self.closed.remove(domain);
        self.of.put(domain, None);
        self.len -= 1;
    }

    /// The same rows beside another document.
    pub fn beside(
        &self,
        document: &RateTable,
        mut over: impl FnMut(&Stated) -> RateOverride,
    ) -> Self {
        let mut rows = Self {
            of: self.of.clone(),
            networks: self.networks.clone(),
            closed: self.closed.clone(),
            len: self.len,
            ..Self::default()
        };
        for (key, used) in self.statements.all() {
            let Some(used) = used else {
                continue;
            };
            let used = StatementUse {
                over: over(&used.statement.stated),
                ..used.clone()
            };
            rows.statements.put(key, Some(used));
        }
        for (domain, named) in document.iter() {
            if let Some(statement) = self.statement_of(domain) {
                let both = statement.stated.clone().or(&named.stated);
                rows.named.put(domain, Some(over(&both)));
            }
        }
        rows
    }
}

fn key_of(own: &Own) -> Box<str> {
    let text = |field: &Option<Box<str>>| field.as_deref().unwrap_or_default().to_owned();
    format!("{}\0{}", text(&own.rate), text(&own.hard)).into()
}

/// The rows of a copy-limited resource, each with its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CopiesRows {
    of: Changed<u64>,
    /// The networks among the domains, and among those that had a row.
    pub networks: Networks,
    len: usize,
    /// The greatest limit that a row has, or had.
    pub greatest: u64,
}

impl CopiesRows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The limit that a domain's row states.
    #[inline]
    pub fn get(&self, domain: &str) -> Option<u64> {
        self.of.get(domain).flatten().copied()
    }

    /// All rows by domain.
    pub fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        let rows = self.of.all().into_iter();
        rows.filter_map(|(domain, limit)| Some((domain, *limit?)))
    }

    /// Gives a domain a row; `None` removes it.
    pub fn put(&mut self, domain: &str, limit: Option<u64>) {
        self.len -= usize::from(self.get(domain).is_some());
        self.len += usize::from(limit.is_some());
        self.greatest = self.greatest.max(limit.unwrap_or_default());
        self.networks.add(domain);
        self.of.put(domain, limit);
    }
}
