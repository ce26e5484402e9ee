//! The entries of statements that no call of the followed pair caused.
//!
//! ```text
//! version 9, activated at offset 51       in the log                  in a replay of initech alone
//!   acme, denied until a later instant    51, entry 0
//!   globex                                51, entry 1
//!   initech                               51, entry 2                 51, entry 0
//! ```
//!
//! A limits activation states what changes for all scopes of its partition, in one sequence of entries. A replay of
//! one scope numbers only its own statements. The decision records in the stream `denials` have the numbers under which
//! they were announced. Knows nothing of replays. What stays true: a statement gets the number of a decision record of
//! the same scope that says the same, or none.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_log::Stream;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::statement::{Scope, Statement};

use crate::source::{ReadStep, Source, SourceError};

/// A statement whose entry is not known yet.
pub(super) struct Unnumbered<'a> {
    pub statement: &'a mut Statement,
    /// Set when the entry becomes known.
    pub is_numbered: &'a mut bool,
}

/// Finds the entries of statements about one scope of a resource; they must be in the order of the log.
///
/// # Errors
///
/// If the decision records cannot be read.
pub(super) fn find<'a>(
    source: &dyn Source,
    (partition, resource): (u32, &str),
    statements: impl Iterator<Item = Unnumbered<'a>>,
) -> Result<(), SourceError> {
    let wanted: Vec<Unnumbered<'a>> = statements.collect();
    let offsets = wanted.iter().map(|of| of.statement.position.offset);
    let offsets: BTreeSet<u64> = offsets.collect();
    let Some(scope) = wanted.first().map(|of| of.statement.scope.clone()) else {
        return Ok(());
    };
    let mut announced = announced_at(source, (partition, resource, &scope), &offsets)?;
    for of in wanted {
        let recorded = announced.entry(of.statement.position.offset).or_default();
        let found = recorded.iter().position(|recorded| {
            recorded.position.generation == of.statement.position.generation
                && recorded.kind == of.statement.kind
        });
        if let Some(found) = found {
            *of.statement = recorded.remove(found);
            *of.is_numbered = true;
        }
    }
    Ok(())
}

/// The recorded statements about a scope at these offsets, each once, in the order of their entries.
fn announced_at(
    source: &dyn Source,
    (partition, resource, scope): (u32, &str, &Scope),
    offsets: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, Vec<Statement>>, SourceError> {
    let mut found: BTreeMap<u64, Vec<Statement>> = BTreeMap::new();
    let mut cursor = source.open(Stream::Denials, partition, 0)?;
    loop {
        match cursor.read()? {
            ReadStep::Records(records) => {
                for record in &records {
                    if let Ok(Announced {
                        resource: of,
                        statement,
                        ..
                    }) = Announced::decode(&record.bytes)
                        && *of == *resource
                        && statement.scope == *scope
                        && offsets.contains(&statement.position.offset)
                    {
                        found
                            .entry(statement.position.offset)
                            .or_default()
                            .push(statement);
                    }
                }
            }
            ReadStep::Gone { .. } => {}
            ReadStep::End => break,
        }
    }
    for statements in found.values_mut() {
        statements.sort_by_key(|statement| statement.position);
        // Several aggregators may have recorded the same.
        statements.dedup();
    }
    Ok(found)
}
