//! The report of an audit: differences, remarks and counts, for programs and for people.
//!
//! A difference is a fault in the log: the command then exits with 1, as it does if a partition was not audited. A remark
//! is legal and worth knowing: repeats after a restart, batches that came twice, statements at the end that are not
//! recorded yet. Fields are only ever added. Knows nothing of how differences are found.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tollgate_shared::escape::escaped;

use super::amended::{BroughtAmendment, of_all};
pub use super::difference::{Difference, DifferenceKind, Stated, scope_of};
pub use super::excess::{ExcessByCause, PairExcess};
pub use super::sample::ModelPart;
use crate::replay::ReplayError;
use crate::tags::unchecked_line;

/// How many differences of one partition are kept; further ones are only counted.
const KEPT: usize = 10_000;

/// A legal finding that is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// Its kind.
    pub kind: &'static str,
    /// The partition.
    pub partition: u32,
    /// How often it occurred.
    pub count: u64,
    /// The offset of its first occurrence.
    pub first_offset: u64,
    /// The finding in words.
    pub text: String,
}

/// The result of one partition's audit.
#[derive(Clone, Debug, Default)]
pub struct PartitionAudit {
    /// The partition.
    pub partition: u32,
    /// Records that were replayed in the range.
    pub records: u64,
    /// Entries of hits in those records.
    pub entries: u64,
    /// Hits in those records: granted, excess, late.
    pub hits: [u64; 3],
    /// Excess of pairs, by cause.
    pub excess: ExcessByCause,
    /// Excess by pair.
    pub excess_pairs: Vec<PairExcess>,
    /// Excess of pairs that are not named.
    pub excess_unnamed: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Statements of the replay: denials and lifts.
    pub stated: [u64; 2],
    /// How many of those are recorded correctly.
    pub compared: u64,
    /// Statements that were recorded again, correctly.
    pub repeats: u64,
    /// Snapshots that were compared.
    pub snapshots: u64,
    /// State digests of ruling aggregators that agree.
    pub state_digests: u64,
    /// What the model ruled.
    pub model: ModelPart,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// How many differences there are.
    pub differences_count: u64,
    /// What operators did, in the order of the log.
    pub amendments: Vec<BroughtAmendment>,
    /// Why the partition was not audited, or not to its end.
    pub not_audited: Option<ReplayError>,
    remarks: BTreeMap<&'static str, Remark>,
}

impl PartitionAudit {
    /// An empty result for a partition.
    pub fn new(partition: u32) -> Self {
        Self {
            partition,
            ..Self::default()
        }
    }

    /// Adds a difference.
    pub fn differs(&mut self, difference: Difference) {
        self.differences_count += 1;
        if self.differences.len() < KEPT {
            self.differences.push(difference);
        }
    }

    /// Adds a remark.
    pub fn remark(&mut self, kind: &'static str, count: u64, offset: u64, text: &str) {
        let remark = self.remarks.entry(kind).or_insert_with(|| Remark {
            kind,
            partition: self.partition,
            count: 0,
            first_offset: offset,
            text: text.to_owned(),
        });
        remark.count += count;
    }
}

/// A partition that was not audited, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnauditedPartition {
    /// The partition.
    pub partition: u32,
    /// Why.
    pub reason: String,
}

/// The report of an audit.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// The schema of this object.
    pub schema: &'static str,
    /// The log.
    pub log: String,
    /// Ids of missing record keys: the tags of aggregators' records under them were not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked_keys: Vec<String>,
    /// Partitions of which retention left too little.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_audited: Vec<UnauditedPartition>,
    /// Whether every partition was audited, and there is no difference.
    pub equal: bool,
    /// Partitions that were read.
    pub partitions: usize,
    /// Records that were replayed.
    pub records: u64,
    /// Entries of hits.
    pub entries: u64,
    /// Hits that an ideal limiter would have granted.
    pub granted: u64,
    /// Hits that an ideal limiter would have refused.
    pub excess: u64,
    /// The part of `excess` that is the excess of a pair, by what let it through. Hits in excess of a global limit
    /// alone are not counted here.
    pub excess_by_cause: ExcessByCause,
    /// Excess by pair, most first.
    pub excess_pairs: Vec<PairExcess>,
    /// Pairs with excess that are not listed.
    pub excess_pairs_unlisted: u64,
    /// Excess of pairs that are not known by name, because too many had some.
    pub excess_unnamed: u64,
    /// Pairs and constraints of which more was let through in some span than law 8 allows. Each is a difference, too.
    pub effect_violations: u64,
    /// Hits that came too late to be ruled granted or excess.
    pub late: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Denials that the replay states.
    pub denials: u64,
    /// Lifts that the replay states.
    pub lifts: u64,
    /// Statements that are recorded exactly so.
    pub announced_equal: u64,
    /// Statements that are recorded again, exactly so.
    pub announced_again: u64,
    /// Snapshots whose digest equals the replay's.
    pub snapshots_equal: u64,
    /// State digests of ruling aggregators that equal the replay's.
    pub state_digests_equal: u64,
    /// What the independent model ruled.
    pub model: ModelPart,
    /// How long the sampled pairs were denied beyond a replay in order of time.
    pub reorder_denied_us: u64,
    /// How many differences there are.
    pub differences_count: u64,
    /// The first differences, by partition and offset.
    pub differences: Vec<Difference>,
    /// Remarks, by partition.
    pub remarks: Vec<Remark>,
    /// What operators did, each act once.
    pub amendments: Vec<BroughtAmendment>,
    /// How long the audit took.
    pub elapsed_us: u64,
    /// Entries audited per second.
    pub entries_per_second: u64,
}

impl UnauditedPartition {
    fn of(part: &PartitionAudit) -> Option<Self> {
        let reason = part.not_audited.as_ref()?.to_string();
        let partition = part.partition;
        Some(Self { partition, reason })
    }
}

impl ModelPart {
    /// The model's figures of all partitions together.
    fn of_all(parts: &[PartitionAudit]) -> Self {
        let sum = |of: &dyn Fn(&Self) -> u64| parts.iter().map(|part| of(&part.model)).sum();
        Self {
            pairs: sum(&|model| model.pairs),
            entries: sum(&|model| model.entries),
            statements: sum(&|model| model.statements),
            reorder_denied_us: sum(&|model| model.reorder_denied_us),
            denied_us: sum(&|model| model.denied_us),
            effect_entries: sum(&|model| model.effect_entries),
            effect_violations: sum(&|model| model.effect_violations),
            effect_unjudged: sum(&|model| model.effect_unjudged),
        }
    }
}

impl AuditReport {
    /// Combines the partitions' parts.
    pub fn of(log: String, parts: Vec<PartitionAudit>, elapsed: Duration) -> Self {
        let sum = |of: &dyn Fn(&PartitionAudit) -> u64| parts.iter().map(of).sum::<u64>();
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let entries = sum(&|part| part.entries);
        let model = ModelPart::of_all(&parts);
        let mut by_cause = ExcessByCause::default();
        parts.iter().for_each(|part| by_cause.add(&part.excess));
        let mut pairs: Vec<PairExcess> = { parts.iter() }
            .flat_map(|part| part.excess_pairs.clone())
            .collect();
        pairs.sort_by(|a, b| {
            let of = |pair: &PairExcess| (pair.resource.clone(), pair.domain.clone());
            let by_size = b.excess.total().cmp(&a.excess.total());
            by_size.then_with(|| of(a).cmp(&of(b)))
        });
        let not_audited: Vec<_> = parts.iter().filter_map(UnauditedPartition::of).collect();
        let is_equal = |part: &PartitionAudit| part.differences_count == 0;
        Self {
            schema: "tollgate.audit/1",
            log,
            unchecked_keys: Vec::new(),
            equal: not_audited.is_empty() && parts.iter().all(is_equal),
            partitions: parts.len() - not_audited.len(),
            not_audited,
            records: sum(&|part| part.records),
            entries,
            granted: sum(&|part| part.hits[0]),
            excess: sum(&|part| part.hits[1]),
            excess_by_cause: by_cause,
            excess_pairs: pairs,
            excess_pairs_unlisted: 0,
            excess_unnamed: sum(&|part| part.excess_unnamed),
            effect_violations: model.effect_violations,
            late: sum(&|part| part.hits[2]),
            refused_calls: sum(&|part| part.refused_calls),
            denials: sum(&|part| part.stated[0]),
            lifts: sum(&|part| part.stated[1]),
            announced_equal: sum(&|part| part.compared),
            announced_again: sum(&|part| part.repeats),
            snapshots_equal: sum(&|part| part.snapshots),
            state_digests_equal: sum(&|part| part.state_digests),
            model,
            reorder_denied_us: model.reorder_denied_us,
            differences_count: sum(&|part| part.differences_count),
            remarks: parts
                .iter()
                .flat_map(|part| part.remarks.values().cloned())
                .collect(),
            amendments: of_all(parts.iter().flat_map(|part| &part.amendments)),
            differences: parts
                .into_iter()
                .flat_map(|mut part| {
                    part.differences
                        .sort_by_key(|d| (d.stream != "hits", d.offset, d.entry));
                    part.differences
                })
                .collect(),
            elapsed_us,
            entries_per_second: (u128::from(entries) * 1_000_000 / u128::from(elapsed_us.max(1)))
                .try_into()
                .unwrap_or(u64::MAX),
        }
    }

    /// Cuts the lists of differences and of pairs with excess to `limit` items.
    pub fn list(&mut self, limit: usize) {
        self.differences.truncate(limit);
        let unlisted = self.excess_pairs.len().saturating_sub(limit) as u64;
        self.excess_pairs_unlisted = self.excess_pairs_unlisted.saturating_add(unlisted);
        self.excess_pairs.truncate(limit);
    }

    fn write_excess(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.excess_by_cause == ExcessByCause::default() {
            return Ok(());
        }
        for pair in &self.excess_pairs {
            let (resource, domain) = (escaped(&pair.resource), escaped(&pair.domain));
            writeln!(f, "excess: {resource} of {domain}: {}", pair.excess)?;
        }
        if 0 < self.excess_pairs_unlisted {
            let more = self.excess_pairs_unlisted;
            writeln!(f, "({more} more pairs with excess are not listed)")?;
        }
        writeln!(f, "excess of pairs by cause: {}", self.excess_by_cause)
    }
}

impl AuditReport {
    /// Writes differences, amendments and remarks, one line each.
    fn write_lists(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.differences {
            writeln!(f, "{difference}")?;
        }
        let listed = self.differences.len() as u64;
        if listed < self.differences_count {
            let more = self.differences_count - listed;
            writeln!(f, "({more} more differences are not listed)")?;
        }
        for amendment in &self.amendments {
            writeln!(f, "{amendment}")?;
        }
        for remark in &self.remarks {
            let Remark {
                partition,
                count,
                first_offset,
                text,
                ..
            } = remark;
            writeln!(
                f,
                "remark: partition {partition}: {text}: {count}, first at offset {first_offset}"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_lists(f)?;
        writeln!(
            f,
            "{}: {} records, {} entries of hits: {} granted, {} excess, {} late; {} calls refused",
            self.log,
            self.records,
            self.entries,
            self.granted,
            self.excess,
            self.late,
            self.refused_calls
        )?;
        if let Some(line) = unchecked_line(&self.unchecked_keys) {
            writeln!(f, "{line}")?;
        }
        self.write_excess(f)?;
        writeln!(
            f,
            "the replay states {} denials and {} lifts; {} were announced exactly so ({} again); {} snapshots and {} state digests are equal to its own",
            self.denials,
            self.lifts,
            self.announced_equal,
            self.announced_again,
            self.snapshots_equal,
            self.state_digests_equal
        )?;
        writeln!(
            f,
            "the independent model ruled {} entries of {} pairs and {} statements; reorder_denied_us {} of {} denied",
            self.model.entries,
            self.model.pairs,
            self.model.statements,
            self.model.reorder_denied_us,
            self.model.denied_us
        )?;
        writeln!(
            f,
            "effect: {} violations in {} entries; {} entries beyond the bound were not judged",
            self.model.effect_violations, self.model.effect_entries, self.model.effect_unjudged
        )?;
        writeln!(
            f,
            "{:.1} s, {} entries/s",
            self.elapsed_us as f64 / 1e6,
            self.entries_per_second
        )?;
        self.write_conclusion(f)
    }
}

impl AuditReport {
    fn write_conclusion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for of in &self.not_audited {
            writeln!(f, "not audited: {}", of.reason)?;
        }
        let unaudited = match self.not_audited.len() {
            0 => String::new(),
            1 => "; 1 partition was not audited".to_owned(),
            count => format!("; {count} partitions were not audited"),
        };
        match self.differences_count {
            0 if self.equal => write!(f, "equal: the log justifies what was announced"),
            0 => write!(f, "NOT all compared: no difference in the rest{unaudited}"),
            1 => write!(f, "NOT equal: 1 difference{unaudited}"),
            count => write!(f, "NOT equal: {count} differences{unaudited}"),
        }
    }
}
