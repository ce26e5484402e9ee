//! What an audit says: differences, remarks and counts, for programs and for people.
//!
//! A difference is what must not be: it ends the command with 1. A remark is what is legal and worth
//! knowing: repeats after a restart, batches that came twice, the end that is not announced yet. Fields
//! are only ever added. Knows nothing of how differences are found.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tollgate_shared::place::Code;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::statement::{Says, Scope};

use super::amended::Brought;
use super::range::Utc;
pub use super::sample::ModelPart;

/// How many differences of one partition are kept; further ones are only counted.
const KEPT: usize = 10_000;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The replay states it, and nobody announced it.
    Missing,
    /// It was announced, and the replay states nothing there.
    Unexpected,
    /// It was announced otherwise than the replay states it.
    Changed,
    /// It was recorded behind one that it comes before.
    Order,
    /// It was recorded before what caused it.
    Early,
    /// A record is not there.
    Gap,
    /// A record that only aggregators write bears a wrong tag, or points at no version.
    Forged,
    /// A snapshot is not what the replay has at its place.
    Snapshot,
    /// The independent model rules otherwise than the engine.
    Model,
    /// An owner said that it came to another state than the replay does.
    Testimony,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What is wrong.
    pub kind: Kind,
    /// The partition.
    pub partition: u32,
    /// `hits` or `denials`: where the offset is one of.
    pub stream: &'static str,
    /// The record: the one that caused the statement, or the one that is wrong.
    pub offset: u64,
    /// The entry in it.
    pub entry: Option<u32>,
    /// The code that agents give for the statement.
    pub code: Option<String>,
    /// The resource.
    pub resource: Option<Box<str>>,
    /// `pair`, `resource` or `group`.
    pub scope: Option<&'static str>,
    /// The domain or group.
    pub domain: Option<Box<str>>,
    /// What the replay states.
    pub expected: Option<Stated>,
    /// What is recorded.
    pub found: Option<Stated>,
    /// The offset at which it is recorded in the denials.
    pub recorded_at: Option<u64>,
    /// In words.
    pub text: String,
}

/// What is stated about a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stated {
    /// `denied`, `open` or `near`.
    pub says: &'static str,
    /// Which limit closed.
    pub cause: Option<String>,
    /// When it ends in engine time; null: never, or nothing is denied.
    pub end_us: Option<u64>,
    /// The limit.
    pub limit: Option<u64>,
    /// Its window.
    pub window_us: Option<u64>,
    /// The limits version.
    pub version: Option<u64>,
}

impl Stated {
    /// What a statement says.
    pub fn of(says: &Says) -> Self {
        let none = Self {
            says: "open",
            cause: None,
            end_us: None,
            limit: None,
            window_us: None,
            version: None,
        };
        match says {
            Says::Open => none,
            Says::Near(near) => Self {
                says: "near",
                end_us: Some(near.end.as_micros()),
                limit: Some(near.left),
                ..none
            },
            Says::Denied(denial) => Self {
                says: "denied",
                cause: Some(denial.cause.to_string()),
                end_us: (denial.end < Timestamp::MAX).then_some(denial.end.as_micros()),
                limit: Some(denial.limit),
                window_us: Some(denial.window.as_micros()),
                version: Some(denial.version),
            },
        }
    }
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.says == "open" {
            return f.write_str("open again");
        }
        let end = self.end_us.map_or(Timestamp::MAX, Timestamp::from_micros);
        write!(f, "{} until {}", self.says, Utc(end))?;
        if let (Some(cause), Some(limit), Some(window_us), Some(version)) =
            (&self.cause, self.limit, self.window_us, self.version)
        {
            let window = tollgate_engine::limits::print_span(Span::from_micros(window_us));
            write!(f, " by {cause} ({limit} in {window}), version {version}")?;
        }
        Ok(())
    }
}

/// The names of a scope as reports have them.
pub fn scope_of(scope: &Scope) -> (&'static str, Option<Box<str>>) {
    match scope {
        Scope::Pair(domain) => ("pair", Some(domain.clone())),
        Scope::Resource => ("resource", None),
        Scope::Group(group) => ("group", Some(group.clone())),
    }
}

impl Difference {
    /// About a record.
    pub fn of_record(
        kind: Kind,
        (partition, stream, offset): (u32, &'static str, u64),
        text: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            partition,
            stream,
            offset,
            entry: None,
            code: None,
            resource: None,
            scope: None,
            domain: None,
            expected: None,
            found: None,
            recorded_at: None,
            text: text.into(),
        }
    }

    /// About a statement.
    pub fn of_statement(kind: Kind, about: &Announced, text: impl Into<String>) -> Self {
        let place = about.statement.place;
        let (scope, domain) = scope_of(&about.statement.scope);
        let partition = about.partition;
        Self {
            entry: Some(place.entry),
            code: Some(Code { partition, place }.to_string()),
            resource: Some(about.resource.clone()),
            scope: Some(scope),
            domain,
            ..Self::of_record(kind, (partition, "hits", place.offset), text)
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partition,
            stream,
            offset,
            ..
        } = self;
        write!(f, "partition {partition}, {stream} offset {offset}")?;
        if let Some(entry) = self.entry {
            write!(f, ", entry {entry}")?;
        }
        if let Some(resource) = &self.resource {
            write!(f, ": {resource}")?;
            match &self.domain {
                Some(domain) => write!(f, " of {domain}")?,
                None => f.write_str(" of everybody")?,
            }
        }
        write!(f, ": {}", self.text)?;
        if let Some(expected) = &self.expected {
            write!(f, "\n    expected  {expected}")?;
        }
        if let Some(found) = &self.found {
            write!(f, "\n    found     {found}")?;
        }
        if let Some(offset) = self.recorded_at {
            write!(f, "\n    recorded  at denials offset {offset}")?;
        }
        if let Some(code) = &self.code {
            write!(f, "\n    code      {code}")?;
        }
        Ok(())
    }
}

/// Something legal that is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// What.
    pub kind: &'static str,
    /// The partition.
    pub partition: u32,
    /// How often.
    pub count: u64,
    /// Where it was met first.
    pub first_offset: u64,
    /// In words.
    pub text: String,
}

/// What one partition's audit came to.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The partition.
    pub partition: u32,
    /// Records that were replayed in the range.
    pub records: u64,
    /// Entries of hits in them.
    pub entries: u64,
    /// Hits in them: granted, excess, late.
    pub hits: [u64; 3],
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Statements of the replay: denials and lifts.
    pub stated: [u64; 2],
    /// Of those, announced as they should be.
    pub compared: u64,
    /// Statements that were announced again, as they should be.
    pub repeats: u64,
    /// Snapshots that were compared.
    pub snapshots: u64,
    /// Testimonies of owners that agree.
    pub testimonies: u64,
    /// What the model was asked.
    pub model: ModelPart,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// How many there are.
    pub differences_count: u64,
    /// What operators did, in the order of the log.
    pub amendments: Vec<Brought>,
    remarks: BTreeMap<&'static str, Remark>,
}

impl Part {
    /// Of a partition that nothing has been read of.
    pub fn new(partition: u32) -> Self {
        Self {
            partition,
            ..Self::default()
        }
    }

    /// Takes a difference.
    pub fn differs(&mut self, difference: Difference) {
        self.differences_count += 1;
        if self.differences.len() < KEPT {
            self.differences.push(difference);
        }
    }

    /// Takes a remark.
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

/// The report of an audit.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The form of this object.
    pub schema: &'static str,
    /// The log.
    pub log: String,
    /// Whether there is no difference.
    pub equal: bool,
    /// Partitions that were read.
    pub partitions: usize,
    /// Records that were replayed.
    pub records: u64,
    /// Entries of hits.
    pub entries: u64,
    /// Hits that an ideal limiter would have granted.
    pub granted: u64,
    /// Hits that it would not have.
    pub excess: u64,
    /// Hits that came too late to say.
    pub late: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Denials that the replay states.
    pub denials: u64,
    /// Lifts that it states.
    pub lifts: u64,
    /// Statements that were announced exactly so.
    pub announced_equal: u64,
    /// Statements that were announced again, exactly so.
    pub announced_again: u64,
    /// Snapshots whose digest is the replay's.
    pub snapshots_equal: u64,
    /// Testimonies of owners whose digest is the replay's.
    pub testimonies_equal: u64,
    /// What the independent model was asked.
    pub model: ModelPart,
    /// How long the sampled pairs were denied beyond a replay in order of time.
    pub reorder_denied_us: u64,
    /// How many differences there are.
    pub differences_count: u64,
    /// The first of them, by partition and place.
    pub differences: Vec<Difference>,
    /// Remarks, by partition.
    pub remarks: Vec<Remark>,
    /// What operators did, by partition in the order of the log.
    pub amendments: Vec<Brought>,
    /// How long it took.
    pub elapsed_us: u64,
    /// Entries in a second.
    pub entries_per_second: u64,
}

impl Report {
    /// Brings the partitions' parts together.
    pub fn of(log: String, parts: Vec<Part>, elapsed: Duration) -> Self {
        let sum = |of: &dyn Fn(&Part) -> u64| parts.iter().map(of).sum::<u64>();
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let entries = sum(&|part| part.entries);
        let model = ModelPart {
            pairs: sum(&|part| part.model.pairs),
            entries: sum(&|part| part.model.entries),
            statements: sum(&|part| part.model.statements),
            reorder_denied_us: sum(&|part| part.model.reorder_denied_us),
            denied_us: sum(&|part| part.model.denied_us),
        };
        Self {
            schema: "tollgate.audit/1",
            log,
            equal: parts.iter().all(|part| part.differences_count == 0),
            partitions: parts.len(),
            records: sum(&|part| part.records),
            entries,
            granted: sum(&|part| part.hits[0]),
            excess: sum(&|part| part.hits[1]),
            late: sum(&|part| part.hits[2]),
            refused_calls: sum(&|part| part.refused_calls),
            denials: sum(&|part| part.stated[0]),
            lifts: sum(&|part| part.stated[1]),
            announced_equal: sum(&|part| part.compared),
            announced_again: sum(&|part| part.repeats),
            snapshots_equal: sum(&|part| part.snapshots),
            testimonies_equal: sum(&|part| part.testimonies),
            model,
            reorder_denied_us: model.reorder_denied_us,
            differences_count: sum(&|part| part.differences_count),
            remarks: parts
                .iter()
                .flat_map(|part| part.remarks.values().cloned())
                .collect(),
            amendments: parts
                .iter()
                .flat_map(|part| part.amendments.clone())
                .collect(),
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

    /// Keeps only the first so many differences in the list.
    pub fn list(&mut self, limit: usize) {
        self.differences.truncate(limit);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        writeln!(
            f,
            "the replay states {} denials and {} lifts; {} were announced exactly so ({} again); {} snapshots and {} testimonies have its digest",
            self.denials,
            self.lifts,
            self.announced_equal,
            self.announced_again,
            self.snapshots_equal,
            self.testimonies_equal
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
            "{:.1} s, {} entries/s",
            self.elapsed_us as f64 / 1e6,
            self.entries_per_second
        )?;
        match self.differences_count {
            0 => write!(f, "equal: the log justifies what was announced"),
            1 => write!(f, "NOT equal: 1 difference"),
            count => write!(f, "NOT equal: {count} differences"),
        }
    }
}
