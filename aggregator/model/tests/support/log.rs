//! A partition's log in short notation: the records get their offsets and sequences by counting.
//!
//! Knows nothing of wire formats: the records are the model's own inputs.

use tollgate_model::log::{
    EntryKind, EntryRuling, HitEntry, HitsRecord, LogInput, ModelPosition, RecordOutcome,
    ScopeChange, ScopeName, Total, TotalPart,
};
use tollgate_model::{DomainLimits, End, EntryOutcome, Limits, PartitionModel, ResourceLimits};

use super::{SECOND, limits, tier};

pub const MINUTE: u64 = 60 * SECOND;
/// The begin of these logs: late enough to stamp a hit 10 minutes before it.
pub const START: u64 = 100 * MINUTE;

/// A partition that is fed record by record; offsets and sequences are counted automatically.
pub struct Log {
    pub model: PartitionModel,
    pub offset: u64,
    pub seq: u64,
}

impl Log {
    /// A log that begins with a tick at `START` and version 1.
    pub fn new(limits: Limits) -> Self {
        let mut log = Self {
            model: PartitionModel::new(),
            offset: 0,
            seq: 0,
        };
        log.tick(START);
        log.version(START, 1, limits);
        log
    }

    pub fn feed(&mut self, record: LogInput<'_>) -> RecordOutcome {
        self.offset += 1;
        self.model.apply(&record)
    }

    pub fn tick(&mut self, appended_us: u64) -> bool {
        let offset = self.offset;
        self.feed(LogInput::Tick {
            offset,
            appended_us,
        })
        .tick_counted
    }

    pub fn version(&mut self, appended_us: u64, version: u64, limits: Limits) -> RecordOutcome {
        let offset = self.offset;
        let versions = vec![(version, limits)];
        self.feed(LogInput::Limits {
            offset,
            appended_us,
            versions,
        })
    }

    /// A batch of agent "a" that is appended at the instant at which it is sent.
    pub fn hits(&mut self, appended_us: u64, entries: &[HitEntry<'_>]) -> RecordOutcome {
        self.seq += 1;
        let seq = self.seq;
        self.batch("a", 1, seq, appended_us, appended_us, entries)
    }

    pub fn batch(
        &mut self,
        agent: &str,
        epoch: u128,
        seq: u64,
        appended_us: u64,
        sent_us: u64,
        entries: &[HitEntry<'_>],
    ) -> RecordOutcome {
        let offset = self.offset;
        self.feed(LogInput::Hits(HitsRecord {
            offset,
            appended_us,
            agent,
            epoch,
            seq,
            sent_us,
            entries: entries.to_vec(),
        }))
    }

    /// One total of "r" from partition 7.
    pub fn total(&mut self, source: u64, by_ms: &[(u64, u64)]) -> RecordOutcome {
        let offset = self.offset;
        let total = Total {
            resource: "r",
            source_partition: 7,
            source_offset: source,
            parts: by_ms
                .iter()
                .map(|(ms, copies)| TotalPart {
                    ms: *ms,
                    unguarded: false,
                    copies: *copies,
                })
                .collect(),
        };
        let totals = vec![total];
        self.feed(LogInput::Totals { offset, totals })
    }
}

pub fn hit(domain: &str, at_us: u64) -> HitEntry<'_> {
    hits(domain, at_us, 1)
}

pub fn hits(domain: &str, at_us: u64, n: u64) -> HitEntry<'_> {
    HitEntry {
        resource: "r",
        domain,
        at_us,
        n,
        kind: EntryKind::Hit,
        unguarded: false,
    }
}

/// Resource "r" with one tier: `limit` a second, active for an hour.
pub fn per_second(limit: u64) -> Limits {
    of_resource(limits(&[tier(limit, SECOND, 3600 * SECOND, 0)]), None)
}

pub fn of_resource(default: DomainLimits, global: Option<u64>) -> Limits {
    let resource = ResourceLimits {
        default,
        global,
        ..ResourceLimits::default()
    };
    Limits {
        resources: [("r".to_owned(), resource)].into(),
        ..Limits::default()
    }
}

pub fn global(limit: u64) -> Limits {
    of_resource(limits(&[tier(1000, SECOND, 3600 * SECOND, 0)]), Some(limit))
}

pub fn ruled(ruling: &EntryRuling) -> (u64, &EntryOutcome) {
    match ruling {
        EntryRuling::Ruled { at_us, outcome } => (*at_us, outcome),
        EntryRuling::NotRuled(why) => panic!("not ruled: {why:?}"),
    }
}

pub fn instants(outcome: &RecordOutcome) -> Vec<u64> {
    outcome.entries.iter().map(|entry| ruled(entry).0).collect()
}

pub fn change(
    domain: Option<&str>,
    offset: u64,
    entry: u32,
    end: Option<End>,
) -> (ScopeName, ModelPosition, Option<End>) {
    (
        ScopeName::new("r", domain),
        ModelPosition { offset, entry },
        end,
    )
}

pub fn changes(outcome: &RecordOutcome) -> Vec<(ScopeName, ModelPosition, Option<End>)> {
    let plain = |change: &ScopeChange| {
        let end = change.denied.map(|denial| denial.end);
        (change.scope.clone(), change.position, end)
    };
    outcome.changes.iter().map(plain).collect()
}
