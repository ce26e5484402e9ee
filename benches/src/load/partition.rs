//! One partition of a log and its engine, driven like an aggregator's: hits, and a tick every 250
//! ms of log time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use tollgate_engine::{Engine, Fate, Rulings};
use tollgate_limits::Limits;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick};

use super::batches::{Appended, BEGIN_US};

const LOG: LogId = LogId {
    generation: 1,
    random: 0x5EED,
};

/// The time between ticks.
pub const TICK_EVERY_US: u64 = 250_000;

/// An engine and its input.
pub struct Partition {
    /// The engine.
    pub engine: Engine,
    /// The rulings of the last record.
    pub rulings: Rulings,
    versions: BTreeMap<u64, Arc<Limits>>,
    offset: u64,
    ticks: u64,
    ticked_us: u64,
}

impl Partition {
    /// The only partition of a log that has a genesis and a first version of the limits.
    ///
    /// # Errors
    ///
    /// The fault of the limits.
    pub fn new(limits: &str) -> anyhow::Result<Self> {
        let mut partition = Self {
            engine: Engine::new(0, 1),
            // As of an aggregator that serves agents.
            rulings: Rulings {
                tells_near: true,
                ..Rulings::default()
            },
            versions: BTreeMap::new(),
            offset: 0,
            ticks: 0,
            ticked_us: BEGIN_US,
        };
        let begin = Timestamp::from_micros(BEGIN_US);
        let genesis = RecordPen::new(&MacKey::UNPROTECTED, 0).genesis(LOG);
        partition.expect_applied(&genesis, begin)?;
        let activation = partition.version(limits)?;
        partition.expect_applied(&activation, begin)?;
        Ok(partition)
    }

    /// Adds a version of the limits. Returns the limits activation for it.
    ///
    /// # Errors
    ///
    /// The fault of the limits.
    pub fn version(&mut self, limits: &str) -> anyhow::Result<Vec<u8>> {
        let limits = Limits::parse(limits).map_err(|faults| anyhow!("{faults}"))?;
        let version = self
            .versions
            .keys()
            .next_back()
            .map_or(1, |newest| newest + 1);
        self.versions.insert(version, Arc::new(limits));
        let digest = [0; 32];
        let activation = LimitsActivation { version, digest };
        Ok(RecordPen::new(&MacKey::UNPROTECTED, 0).limits_activation(&activation))
    }

    /// The tick that is due before something is appended at this instant; `None` if none is.
    pub fn tick_due(&mut self, at: Timestamp) -> Option<Appended> {
        if at.as_micros() < self.ticked_us + TICK_EVERY_US {
            return None;
        }
        self.ticked_us += TICK_EVERY_US;
        self.ticks += 1;
        let tick = Tick {
            log: LOG,
            aggregator: "bench-owner",
            instance: 9,
            number: self.ticks,
        };
        Some(Appended {
            bytes: RecordPen::new(&MacKey::UNPROTECTED, 0).tick(&tick),
            at: Timestamp::from_micros(self.ticked_us),
            entries: 0,
        })
    }

    /// These batches, with the ticks that are due between them.
    pub fn with_ticks(&mut self, batches: Vec<Appended>) -> Vec<Appended> {
        let mut records = Vec::with_capacity(batches.len() + 16);
        for batch in batches {
            while let Some(tick) = self.tick_due(batch.at) {
                records.push(tick);
            }
            records.push(batch);
        }
        records
    }

    /// Decodes and applies the next record. Returns false if it could not be decoded.
    pub fn apply(&mut self, bytes: &[u8], at: Timestamp) -> bool {
        self.rulings.clear();
        match Record::decode(bytes) {
            Ok(record) => {
                self.apply_decoded(&record, at);
                true
            }
            Err(_) => false,
        }
    }

    /// Applies a decoded record; its rulings are added to those since the last [`Self::apply`].
    pub fn apply_decoded(&mut self, record: &Record<'_>, at: Timestamp) {
        self.engine
            .apply(self.offset, at, record, &self.versions, &mut self.rulings);
        self.offset += 1;
    }

    /// Begins to apply a valid record; see [`Self::go_on`].
    ///
    /// # Errors
    ///
    /// If it was not applied: then later measurements mean nothing.
    pub fn expect_begun(&mut self, bytes: &[u8], at: Timestamp) -> anyhow::Result<()> {
        let record = Record::decode(bytes)?;
        self.rulings.clear();
        let (engine, rulings) = (&mut self.engine, &mut self.rulings);
        engine.begin(self.offset, at, &record, &self.versions, rulings);
        self.offset += 1;
        self.expect_fate()
    }

    /// Applies the next slice of the record that was begun last.
    pub fn go_on(&mut self) {
        self.rulings.clear();
        self.engine.go_on(&mut self.rulings);
    }

    /// Applies a valid record.
    ///
    /// # Errors
    ///
    /// If it was not applied: then later measurements mean nothing.
    pub fn expect_applied(&mut self, bytes: &[u8], at: Timestamp) -> anyhow::Result<()> {
        if !self.apply(bytes, at) {
            return Err(anyhow!("a record of ours cannot be decoded"));
        }
        self.expect_fate()
    }

    fn expect_fate(&self) -> anyhow::Result<()> {
        match self.rulings.fates.as_slice() {
            [Fate::Applied | Fate::TickIgnored] => Ok(()),
            fates => Err(anyhow!("a record of ours was not applied: {fates:?}")),
        }
    }
}

/// Limits of one resource with one tier: `limit` hits in a window that is also its active time.
pub fn limits_text(limit: u64, window: &str, pairs_max: u64) -> String {
    let tier = format!("{{ limit = {limit}, window = \"{window}\", active = \"{window}\" }}");
    limits_with(&format!("tiers = [{tier}]"), pairs_max)
}

/// Limits of one resource with one constraint.
pub fn limits_with(constraint: &str, pairs_max: u64) -> String {
    format!(
        "version = 1\nrules = 2\n[engine]\npairs_per_partition_max = {pairs_max}\n[rate.\"{}\"]\n{constraint}\n",
        super::batches::RESOURCE
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::batches::Courier;

    #[test]
    fn hits_and_ticks_are_applied_and_ruled() {
        let mut partition = Partition::new(&limits_text(2, "1s", 10)).expect("limits");
        let mut courier = Courier::default();
        let from = BEGIN_US + 600_000;
        let batch = courier.batch(&[1, 1, 1, 2], 1, from, from + 100);
        let records = partition.with_ticks(vec![batch]);
        assert_eq!(records.len(), 3, "two ticks and the batch");
        for record in &records {
            partition
                .expect_applied(&record.bytes, record.at)
                .expect("applied");
        }
        let counts = partition
            .rulings
            .counts
            .first()
            .expect("one resource")
            .counts;
        assert_eq!((counts.granted, counts.excess), (3, 1));
        // The second hit fills the window; the third, which is excess, extends the denial.
        assert_eq!(partition.rulings.statements.len(), 2);
        assert_eq!(partition.engine.pairs(), 2);
    }
}
