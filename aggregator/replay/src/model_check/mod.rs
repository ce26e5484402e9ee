//! The bridge from the log's records to the independent model: which denials does the model confirm?
//!
//! Decodes records and limits and passes them to the model in its types; rules nothing itself. Used by the
//! demonstration and by audits. What stays true: the model gets records in log order, partition by partition,
//! and neither the engine nor its statements take part.

mod entries;
mod limits;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tollgate_limits::Limits;
use tollgate_model::log::{
    EntryRuling, HitEntry, HitsRecord, LogInput, ModelPosition, ScopeChange, ScopeName, Statement,
    TotalRuling,
};
use tollgate_model::{PartitionModel, log::RecordOutcome};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::Code;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::HitBatch;
use tollgate_shared::wire::record::{Record, Totals, needs_tag};

pub use entries::{cause_to_wire, entry_to_model, total_to_model};
pub use limits::pairs_of;
pub use limits::{act_to_model, to_model};
use limits::{to_model_of, with_rows};
use tollgate_limits::versions::{LimitsBook, Version, names_pairs};
use tollgate_log::Delivered;

/// Versions by number, as in the log: limits, and operators' acts beside them.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    all: BTreeMap<u64, Brought>,
}

#[derive(Clone, Debug)]
enum Brought {
    Limits(Arc<Limits>),
    /// Limits that differ from those before by rows alone, and the act that states these rows.
    Rows(Arc<Limits>, Arc<Act>),
    Act(Arc<Act>),
}

impl Brought {
    fn limits(&self) -> Option<&Arc<Limits>> {
        match self {
            Self::Limits(limits) | Self::Rows(limits, _) => Some(limits),
            Self::Act(_) => None,
        }
    }
}

impl Versions {
    /// All versions that a log has.
    pub fn of(book: &LimitsBook) -> Self {
        let (mut all, mut last) = (Self::default(), 0);
        while let Some(version) = book.after(last) {
            all.insert(version);
            last = version.number;
        }
        all
    }

    /// Adds a version.
    pub fn insert(&mut self, version: &Version) {
        let made = version.made.as_ref().map(|made| &made.act);
        let brought = match made {
            Some(act) if !act.is_limits() => Brought::Act(Arc::clone(act)),
            Some(act) if !act.rows().is_empty() => {
                Brought::Rows(Arc::clone(&version.limits), Arc::clone(act))
            }
            _ => Brought::Limits(Arc::clone(&version.limits)),
        };
        self.all.insert(version.number, brought);
    }

    /// The ids of the keys that count under a version: those of the newest limits up to it.
    fn record_keys(&self, version: Option<u64>) -> &[Box<str>] {
        let upto = self.all.range(..=version.unwrap_or(0)).rev();
        let mut limits = upto.filter_map(|(_, brought)| brought.limits());
        limits.next().map_or(&[], |limits| limits.record_keys())
    }

    /// The versions that are limits, in order.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<Limits>> {
        self.all.values().filter_map(Brought::limits)
    }
}

/// The model's rulings of one hits record, and its sender.
#[derive(Debug)]
pub struct RuledBatch<'a> {
    /// The record's partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// The agent's name.
    pub agent: &'a str,
    /// Its entries with their rulings, in order.
    pub entries: Vec<(HitEntry<'a>, EntryRuling)>,
    /// The statements that the record caused.
    pub statements: Vec<(ScopeName, Statement)>,
}

/// Records that the model never got, because they are invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InvalidRecords {
    /// Records that cannot be decoded.
    pub undecodable: u64,
    /// Records that only aggregators may write, without a valid tag.
    pub forged: u64,
}

/// The position of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordPosition {
    /// Its offset.
    pub offset: u64,
    /// When the log appended it, in microseconds since the epoch.
    pub appended_us: u64,
}

/// The model's result for one record.
#[derive(Debug, Default)]
pub struct ModelRuling<'a> {
    /// The entries that the model ruled, with their rulings, in order.
    pub entries: Vec<(HitEntry<'a>, EntryRuling)>,
    /// The statements that the record caused.
    pub changes: Vec<ScopeChange>,
    /// How totals were ruled.
    pub totals: Vec<TotalRuling>,
    /// The instant of the first total.
    pub first_total_us: u64,
    /// The versions that the record brought into force.
    pub versions: Vec<(u64, tollgate_model::Limits)>,
}

/// Gives a record to the model of its partition; of hits only those of the pairs that are `wanted`.
pub fn feed<'a>(
    model: &mut PartitionModel,
    at: RecordPosition,
    record: &Record<'a>,
    versions: &Versions,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> ModelRuling<'a> {
    let RecordPosition {
        offset,
        appended_us,
    } = at;
    match record {
        Record::Hits(batch) => feed_hits(model, at, batch, wanted),
        Record::Tick(_) => {
            model.apply(&LogInput::Tick {
                offset,
                appended_us,
            });
            ModelRuling::default()
        }
        Record::Totals(totals) => feed_totals(model, offset, totals),
        Record::LimitsActivation(activation) => {
            feed_activation(model, at, activation.version, versions, wanted)
        }
        // The model does not rule copies.
        Record::Genesis(_)
        | Record::Holds(_)
        | Record::Heartbeat(_)
        | Record::StateDigest(_)
        | Record::Unknown { .. } => ModelRuling::default(),
    }
}

fn feed_totals<'a>(
    model: &mut PartitionModel,
    offset: u64,
    totals: &Totals<'_>,
) -> ModelRuling<'a> {
    let outcome = model.apply(&LogInput::Totals {
        offset,
        totals: vec![total_to_model(totals)],
    });
    let first = totals.counted().next();
    ModelRuling {
        changes: outcome.changes,
        totals: outcome.totals,
        first_total_us: first.map_or(0, |total| total.at().as_micros()),
        ..ModelRuling::default()
    }
}

/// Gives the model each version that an activation brings into force, one after the other: the engine states what each
/// changes.
fn feed_activation<'a>(
    model: &mut PartitionModel,
    at: RecordPosition,
    activated: u64,
    versions: &Versions,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> ModelRuling<'a> {
    let mut fed = ModelRuling::default();
    let known = model.version();
    if known.is_some_and(|known| activated <= known) {
        return fed;
    }
    let RecordPosition {
        offset,
        appended_us,
    } = at;
    let from = known.map_or(Bound::Unbounded, Bound::Excluded);
    for (version, brought) in versions.all.range((from, Bound::Included(activated))) {
        let input = match brought {
            Brought::Rows(limits, act) if names_pairs(act) && model.version().is_some() => {
                let rows = act.rows();
                let pairs = pairs_of(limits, rows, wanted);
                let limits = with_rows(model.limits(), limits, rows, wanted);
                fed.versions.push((*version, limits.clone()));
                LogInput::Rows {
                    offset,
                    appended_us,
                    version: *version,
                    limits,
                    pairs,
                }
            }
            Brought::Limits(limits) | Brought::Rows(limits, _) => {
                let limits = match brought {
                    Brought::Rows(_, act) if model.version().is_some() => {
                        with_rows(model.limits(), limits, act.rows(), wanted)
                    }
                    _ => to_model_of(limits, wanted),
                };
                fed.versions.push((*version, limits.clone()));
                LogInput::Limits {
                    offset,
                    appended_us,
                    versions: vec![(*version, limits)],
                }
            }
            Brought::Act(act) => {
                let mut before = versions.all.range(..*version).rev();
                let limits = before.find_map(|(_, brought)| brought.limits());
                LogInput::Amendment {
                    offset,
                    appended_us,
                    version: *version,
                    act: act_to_model(act, limits, wanted),
                }
            }
        };
        fed.changes.extend(model.apply(&input).changes);
    }
    fed
}

fn feed_hits<'a>(
    model: &mut PartitionModel,
    at: RecordPosition,
    batch: &HitBatch<'a>,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> ModelRuling<'a> {
    // Each entry's index in the record, which is part of its log position.
    let (mut numbers, mut entries) = (Vec::new(), Vec::new());
    for (number, hit) in (0u32..).zip(batch.hits()) {
        if wanted(batch.resource(hit.resource), hit.domain) {
            numbers.push(number);
            entries.push(entry_to_model(batch, hit));
        }
    }
    let sender = batch.sender;
    let input = LogInput::Hits(HitsRecord {
        offset: at.offset,
        appended_us: at.appended_us,
        agent: sender.agent,
        epoch: sender.epoch,
        seq: sender.sequence,
        sent_us: sender.sent.as_micros(),
        entries: entries.clone(),
    });
    let RecordOutcome {
        entries: rulings,
        mut changes,
        ..
    } = model.apply(&input);
    for change in &mut changes {
        if let Some(number) = numbers.get(change.position.entry as usize) {
            change.position.entry = *number;
        }
    }
    ModelRuling {
        entries: entries.into_iter().zip(rulings).collect(),
        changes,
        ..ModelRuling::default()
    }
}

/// The model of every partition.
#[derive(Debug)]
pub struct ModelCheck {
    partitions: Vec<PartitionModel>,
    keys: Keyring,
    unseen: InvalidRecords,
    global_excess: Vec<(u64, u64)>,
}

impl ModelCheck {
    /// Checks a log of `partitions` partitions, whose aggregators sign with these keys.
    pub fn new(partitions: u32, keys: Keyring) -> Self {
        let partitions = (0..partitions).map(|_| PartitionModel::new()).collect();
        Self {
            partitions,
            keys,
            unseen: InvalidRecords::default(),
            global_excess: Vec::new(),
        }
    }

    /// Applies the next record of a partition. Returns the rulings of a hits record.
    pub fn apply<'a>(
        &mut self,
        partition: u32,
        delivered: &'a Delivered,
        versions: &Versions,
    ) -> Option<RuledBatch<'a>> {
        if needs_tag(&delivered.bytes) {
            let model = self.partitions.get(partition as usize)?;
            let ids = versions.record_keys(model.version());
            if !self.keys.authentic(ids, &delivered.bytes, partition) {
                self.unseen.forged += 1;
                return None;
            }
        }
        let Ok(record) = Record::decode(&delivered.bytes) else {
            self.unseen.undecodable += 1;
            return None;
        };
        let model = self.partitions.get_mut(partition as usize)?;
        let at = RecordPosition {
            offset: delivered.offset,
            appended_us: delivered.appended.as_micros(),
        };
        let fed = feed(model, at, &record, versions, &|_, _| true);
        for total in &fed.totals {
            if let TotalRuling::Ruled { excess, .. } = total {
                self.global_excess.push((fed.first_total_us, *excess));
            }
        }
        let Record::Hits(batch) = record else {
            return None;
        };
        let statement = |change: ScopeChange| {
            let (position, denied) = (change.position, change.denied);
            (change.scope, Statement { position, denied })
        };
        Some(RuledBatch {
            partition,
            offset: delivered.offset,
            agent: batch.sender.agent,
            entries: fed.entries,
            statements: fed.changes.into_iter().map(statement).collect(),
        })
    }

    /// Whether the model denies a call that an agent refused at `at_us`, naming `code` as its reason: the
    /// pair, or its whole resource, must be denied by a statement at or before that log position, with a later
    /// end.
    pub fn justifies(&self, code: Code, resource: &str, domain: &str, at_us: u64) -> bool {
        let position = ModelPosition {
            offset: code.position.offset,
            entry: code.position.entry,
        };
        self.partitions
            .get(code.partition as usize)
            .and_then(|model| model.justification(position, resource, domain, at_us))
            .is_some()
    }

    /// In words, the end of what the model states at a code's log position of the pair and of its resource.
    /// For diagnosis of a refusal that is not justified.
    pub fn ends(&self, code: Code, resource: &str, domain: &str) -> String {
        let position = ModelPosition {
            offset: code.position.offset,
            entry: code.position.entry,
        };
        let Some(model) = self.partitions.get(code.partition as usize) else {
            return format!("and there is no partition {}", code.partition);
        };
        let of = |domain: Option<&str>| {
            let scope = ScopeName::new(resource, domain);
            let statements = model.statements(&scope).iter();
            match statements.take_while(|one| one.position <= position).last() {
                None => "nothing said".to_owned(),
                Some(one) => match &one.denied {
                    None => "open".to_owned(),
                    Some(denial) => format!("closed until {:?}", denial.end),
                },
            }
        };
        format!("the pair {}, all {}", of(Some(domain)), of(None))
    }

    /// The records that the model never got.
    pub const fn unseen(&self) -> InvalidRecords {
        self.unseen
    }

    /// Hits beyond global limits, stamped before `before_us`.
    pub fn global_excess(&self, before_us: u64) -> u64 {
        let before = self
            .global_excess
            .iter()
            .filter(|(at_us, _)| *at_us < before_us);
        before.map(|(_, excess)| excess).sum()
    }
}
