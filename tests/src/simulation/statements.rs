//! Queries to the watch about statements: which aggregator could make them, at which position,
//! and whether the log has them.
//!
//! Knows nothing of how statements arise. What stays true: a query changes nothing.

use std::ops::Range;

use tollgate_model as model;
use tollgate_model::log::{RecordOutcome, TotalRuling};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::record::{Record, kind};
use tollgate_shared::wire::statement::{Statement, StatementKind};

use super::trace::Violation;
use super::watch::{Kept, Ruled, TotalName, Watch};

impl Ruled {
    /// The offset of the first record that the log accepted at an instant or later.
    pub(super) fn first_since(&self, at_us: u64) -> u64 {
        self.taken
            .partition_point(|(taken_us, _)| *taken_us < at_us) as u64
    }

    /// The statements caused by records in this range of offsets, with their resources.
    fn stated_in(&self, offsets: Range<u64>) -> impl Iterator<Item = (&str, &Statement)> {
        let each = self.stated.iter();
        let each =
            each.flat_map(|((resource, _), all)| all.iter().map(move |one| (&**resource, one)));
        each.filter(move |(_, one)| offsets.contains(&one.position.offset))
    }

    /// How many statements were caused by records that the log accepted at an instant or later.
    pub fn stated_since(&self, at_us: u64) -> u64 {
        self.stated_in(self.first_since(at_us)..u64::MAX).count() as u64
    }

    /// Whether the second engine makes this statement.
    fn states(&self, resource: &str, statement: &Statement) -> bool {
        let stated = self.stated.get(&(resource.into(), statement.scope.clone()));
        let mut stated = stated.into_iter().flatten().rev();
        stated.any(|one| one == statement)
    }
}

/// When the denial of a statement ends. `None`: it is a lift.
pub(super) fn end_of(statement: &Statement) -> Option<Timestamp> {
    match statement.kind {
        StatementKind::Denied(denial) => Some(denial.end),
        StatementKind::Lifted => None,
    }
}

impl Watch {
    /// The greatest number of statements that one record of a partition has caused.
    pub(super) fn statements_most(&self, partition: u32) -> usize {
        let all = self.ruled.iter().chain(&self.past);
        let of_it = all.filter(|ruled| ruled.index == partition);
        of_it.map(|ruled| ruled.statements_most).max().unwrap_or(0)
    }

    /// The partition as it was ruled when this statement was made.
    pub fn of_statement(
        &self,
        partition: u32,
        resource: &str,
        statement: &Statement,
    ) -> Option<&Ruled> {
        let mut all = self.ruled.iter().chain(self.past.iter().rev());
        all.find(|ruled| ruled.index == partition && ruled.states(resource, statement))
    }

    /// The partition as it was ruled from the log whose id has this random part, in hexadecimal: after a topic was
    /// recreated, an aggregator that does not know it yet goes by the previous one.
    pub fn of_log(&self, partition: u32, random: &str) -> &Ruled {
        let is_it = |ruled: &&Ruled| {
            let named = ruled.log.map(|log| format!("{:016x}", log.random));
            ruled.index == partition && named.is_some_and(|named| named == random)
        };
        let mut all = self.ruled.iter().chain(self.past.iter().rev());
        all.find(is_it).unwrap_or(&self.ruled[partition as usize])
    }

    /// Whether some version grants a pair nothing at all, by the model.
    fn is_never_granted(&self, resource: &str, domain: &str) -> bool {
        let mut versions = self.limits.values();
        versions.any(|limits| grants_nothing(limits, resource, domain))
    }

    /// Whether some version never grants a pair more than `most` of this many copies at once, by the model.
    pub fn is_never_granted_at_once(
        &self,
        (resource, domain): (&str, &str),
        copies: u32,
        most: u64,
    ) -> bool {
        let mut versions = self.limits.values();
        versions.any(|limits| {
            limits.of(resource).is_some_and(|of| {
                let mut pair = model::StreamPair::new(&of.of(domain));
                let granted = pair.entry(1, u64::from(copies), false).granted;
                granted.min(of.global.unwrap_or(u64::MAX)) <= most
            })
        })
    }

    /// Whether the limits of this version grant a pair nothing at all. If the log has lost records, versions may have
    /// their numbers again, so any version may be meant, as where no version is named.
    pub fn is_granted_nothing_by(
        &self,
        version: Option<u64>,
        resource: &str,
        domain: &str,
    ) -> bool {
        match self.limits_of(version) {
            Some(limits) => grants_nothing(limits, resource, domain),
            None => self.is_never_granted(resource, domain),
        }
    }

    /// Whether agents that know the limits of this version refuse a domain from its first call: limits grant it nothing,
    /// its own or those of the resource. No document names more domains than agents learn.
    pub fn is_closed_by(&self, version: Option<u64>, resource: &str, domain: &str) -> bool {
        let limits = self.limits_of(version);
        limits.is_some_and(|limits| grants_nothing(limits, resource, domain))
    }

    /// The limits of a version: those of the newest version with limits up to it, as switches and bans are versions, too.
    fn limits_of(&self, version: Option<u64>) -> Option<&model::Limits> {
        let version = version.filter(|_| self.accounts.lost_us.is_none())?;
        let newest = self.limits.range(..=version).next_back();
        newest.map(|(_, limits)| limits)
    }

    /// Whether the newest version grants a pair nothing at all.
    pub fn is_granted_nothing_now(&self, resource: &str, domain: &str) -> bool {
        let newest = self.limits.last_key_value();
        newest.is_some_and(|(_, limits)| grants_nothing(limits, resource, domain))
    }

    /// Checks that a record of `denials` has the second engine's statement at that position.
    ///
    /// # Errors
    ///
    /// If it has another statement.
    pub(super) fn announcement(&mut self, partition: u32, kept: &Kept) -> Result<(), Violation> {
        if kept.bytes.get(1) == Some(&kind::GENESIS) {
            return Ok(());
        }
        let check = "evidence is what a second engine says";
        let violation = |what| Err(Violation::new(4, check, what));
        let Ok(announced) = Announced::decode(&kept.bytes) else {
            return violation("a record of `denials` cannot be read".to_owned());
        };
        let (of, resource, statement) = (
            announced.partition,
            &announced.resource,
            &announced.statement,
        );
        if self.of_statement(of, resource, statement).is_none() {
            return violation(format!("partition {partition}: {announced:?}"));
        }
        // What a log stated that was recreated since does not count for the present one.
        if self.ruled[partition as usize].states(resource, statement) {
            let one = (
                statement.position,
                resource.clone(),
                statement.scope.clone(),
            );
            self.announced[partition as usize].insert(one);
        }
        Ok(())
    }

    /// Notes the totals that a record asked for, or applied.
    pub(super) fn note_totals(
        &mut self,
        partition: u32,
        at_us: u64,
        record: &Record<'_>,
        outcome: Option<&RecordOutcome>,
    ) {
        for due in &self.ruled[partition as usize].rulings.totals_due {
            let name = (
                due.resource.clone(),
                due.source_partition,
                due.source_offset,
            );
            self.totals_due.insert(name, at_us);
        }
        if let (Record::Totals(total), Some(outcome)) = (record, outcome)
            && !matches!(outcome.totals[..], [TotalRuling::OutOfOrder])
        {
            let (source, offset) = (total.source_partition, total.source_offset);
            self.totals_due
                .remove(&(Box::from(total.resource), source, offset));
        }
    }

    /// The log has refused an append.
    pub fn append_refused(&mut self) {
        self.has_refused = true;
        self.cover.see("append refused");
    }

    /// A total that was asked for in this time and has not been applied yet.
    pub fn total_overdue(&self, asked_us: Range<u64>) -> Option<String> {
        let partitions = self.partitions;
        // A total that was appended after a later one counts nothing, which happens only where the log has refused an
        // append. So do, after a power cut, those of a source that has lost its end, until it comes as far as the
        // last total that the target has.
        let may_pass = self.has_refused || self.accounts.lost_us.is_some();
        let is_passed = |(resource, source, offset): &TotalName| {
            if !may_pass {
                return false;
            }
            let target = partition_of_resource(resource, partitions);
            let engine = &self.ruled[target as usize].engine;
            engine.applied_total(resource, *source) >= Some(*offset)
        };
        let mut due = self.totals_due.iter();
        let (name, at_us) =
            due.find(|(name, at_us)| asked_us.contains(at_us) && !is_passed(name))?;
        let (resource, partition, offset) = name;
        Some(format!(
            "{resource}, partition {partition}, offset {offset}: asked for at {at_us} us"
        ))
    }

    /// Statements caused in this time whose decision records the log lacks. Rulings from before the log had an
    /// identity are not published; they are stated again with the identity.
    pub fn unannounced(&self, caused_us: &Range<u64>) -> Option<String> {
        self.ruled.iter().find_map(|ruled| {
            let found = &self.announced[ruled.index as usize];
            let offsets = ruled.first_since(caused_us.start)..ruled.first_since(caused_us.end);
            let is_missing = |(resource, one): &(&str, &Statement)| {
                let key = (one.position, Box::from(*resource), one.scope.clone());
                one.position.generation != 0 && !found.contains(&key)
            };
            let missing = ruled.stated_in(offsets).find(is_missing)?;
            Some(format!("partition {}: {missing:?}", ruled.index))
        })
    }
}

/// Whether limits grant a pair nothing at all, by the model.
fn grants_nothing(limits: &model::Limits, resource: &str, domain: &str) -> bool {
    limits.of(resource).is_some_and(|of| {
        let mut pair = model::StreamPair::new(&of.of(domain));
        pair.entry(1, 1, false).granted == 0
    })
}
