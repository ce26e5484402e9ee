//! A log that is written and ruled record by record, with the last statements at hand.
//!
//! Knows nothing of what the records should mean. What stays true: one record, one offset.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::known::Known;
use super::log::START_US;
use tollgate_engine::engine::{Counts, Engine, Fate, Rulings};
use tollgate_limits::{Limits, Own};
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick};
use tollgate_shared::wire::set_rows::SetRow;
use tollgate_shared::wire::statement::{Scope, StatementKind};

/// An engine, its log so far, and its last rulings.
pub struct Play {
    pub engine: Engine,
    pub versions: BTreeMap<u64, Arc<Limits>>,
    pub acts: BTreeMap<u64, Arc<Act>>,
    pub rulings: Rulings,
    pub offset: u64,
    pub now_ms: u64,
    pub sequence: u64,
    pub log: LogId,
}

pub const LOG: LogId = LogId {
    generation: 1,
    random: 5,
};

impl Play {
    /// A log with its genesis and one version.
    pub fn of(document: &str) -> Self {
        Self::of_partition(document, 0, 1)
    }

    pub fn of_partition(document: &str, partition: u32, partitions: u32) -> Self {
        let mut play = Self {
            engine: Engine::new(partition, partitions),
            versions: BTreeMap::new(),
            acts: BTreeMap::new(),
            rulings: Rulings::new(),
            offset: 0,
            now_ms: START_US / 1_000,
            sequence: 1,
            log: LOG,
        };
        let genesis = pen().genesis(LOG);
        play.apply(&genesis);
        play.version(document);
        play
    }

    pub fn apply(&mut self, bytes: &[u8]) -> Fate {
        let record = Record::decode(bytes).expect("a record");
        self.rulings.clear();
        let appended = Timestamp::from_millis(self.now_ms);
        let (engine, rulings) = (&mut self.engine, &mut self.rulings);
        let known = Known(&self.versions, &self.acts);
        engine.apply(self.offset, appended, &record, &known, rulings);
        self.offset += 1;
        self.rulings.fates[0]
    }

    pub fn version(&mut self, document: &str) -> Fate {
        let text = format!("version = 1\nrules = 2\n{document}");
        let limits = Limits::parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
        let version = self.offset + 100;
        self.versions.insert(version, Arc::new(limits));
        self.activate(version)
    }

    pub fn activate(&mut self, version: u64) -> Fate {
        let digest = [0; 32];
        let activation = pen().limits_activation(&LimitsActivation { version, digest });
        self.apply(&activation)
    }

    /// An operator's act, and the activation that brings it in.
    pub fn amend(&mut self, act: Act) -> Fate {
        let version = self.offset + 100;
        self.acts.insert(version, Arc::new(act));
        self.activate(version)
    }

    /// One version of rows, each with a resource, a domain and its limits.
    pub fn rows(&mut self, rows: &[(&str, &str, Own)]) -> Fate {
        let mut limits = Limits::clone(self.engine.limits());
        for (resource, domain, own) in rows {
            let set = limits.with_own(resource, domain, Some(own));
            limits = set.unwrap_or_else(|why| panic!("{why}"));
        }
        let row = |(resource, domain, own): &(&str, &str, Own)| SetRow {
            resource: (*resource).into(),
            domain: (*domain).into(),
            rate: own.rate.clone(),
            hard: own.hard.clone(),
            limit: own.limit,
        };
        let version = self.offset + 100;
        self.versions.insert(version, Arc::new(limits));
        self.amend(Act::SetMany(rows.iter().map(row).collect()))
    }

    pub fn tick(&mut self, later_ms: u64) -> Fate {
        self.now_ms += later_ms;
        let tick = pen().tick(&Tick {
            log: self.log,
            aggregator: "agg-1",
            instance: 1,
            number: 1,
        });
        self.apply(&tick)
    }

    pub fn hits(&mut self, resource: &str, domains: &[&str]) -> Fate {
        let sent = Timestamp::from_millis(self.now_ms);
        let hit = |domain| Hit::one(0, domain, sent, 1);
        let hits: Vec<Hit<'_>> = domains.iter().copied().map(hit).collect();
        self.next_batch(resource, &hits)
    }

    /// A batch with the sequence after the last one.
    pub fn next_batch(&mut self, resource: &str, hits: &[Hit<'_>]) -> Fate {
        self.sequence += 1;
        self.batch(resource, self.sequence, hits, &[])
    }

    pub fn batch(
        &mut self,
        resource: &str,
        sequence: u64,
        hits: &[Hit<'_>],
        refused: &[Refused<'_>],
    ) -> Fate {
        let sender = Sender {
            agent: "web-1",
            epoch: 9,
            sequence,
            sent: Timestamp::from_millis(self.now_ms),
        };
        let mut writer = Writer::new();
        let (hits, refused) = (hits.iter().copied(), refused.iter().copied());
        write_hits(&mut writer, &sender, &[resource], hits, refused);
        self.apply(writer.as_slice())
    }

    /// The last statements, one line each, with ends counted from the log's beginning.
    pub fn output(&self) -> Vec<String> {
        let line = |stated: &tollgate_engine::engine::ResourceStatement| {
            let scope = match &stated.statement.scope {
                Scope::Pair(domain) => domain.to_string(),
                Scope::Resource => "*".to_owned(),
                Scope::Group(group) => format!("group {group}"),
            };
            let text = match &stated.statement.kind {
                StatementKind::Lifted => "open".to_owned(),
                StatementKind::Denied(denial) => match denial.end {
                    Timestamp::MAX => format!("never, {}", denial.cause),
                    end => format!("{}, {}", end.as_micros() - START_US, denial.cause),
                },
            };
            format!("{} {scope}: {text}", stated.resource)
        };
        self.rulings.statements.iter().map(line).collect()
    }

    pub fn counts(&self) -> Counts {
        assert_eq!(self.rulings.counts.len(), 1);
        self.rulings.counts[0].counts
    }
}

pub fn pen() -> RecordPen<'static> {
    RecordPen::new(&MacKey::UNPROTECTED, 0)
}
