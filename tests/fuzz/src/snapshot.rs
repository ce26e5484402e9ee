//! An engine's snapshot: a restored engine is written as the same chunks, and anything else is a fault.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use tollgate_engine::engine::Versions;
use tollgate_engine::{Engine, Rulings};
use tollgate_limits::Limits;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::{Hit, HitKind, Sender, write_hits};
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick};

use crate::Memory;

/// Tables have an initial capacity, and grow by doubling.
const MEMORY: Memory = Memory {
    base: 2 << 20,
    per_byte: 512,
};

const LIMITS: &str = r#"
[rate.api]
rate = "5/s"
bucket = { rate = "10/s", burst = 20 }
quota = ["100/day"]
candidate = { rate = "2/s" }
[rate.tiered]
tiers = [{ limit = 2, window = "1s", active = "2s", cooldown = "6s" }]
global = "7/s"
[copies.gpu]
limit = 3
groups.g = { limit = 2, members = ["acme"] }
"#;

/// The versions of the seeds' log: limits, then a ban.
struct Log {
    limits: Arc<Limits>,
    acts: BTreeMap<u64, Arc<Act>>,
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let ban = Act::Ban {
        resource: None,
        domain: "globex".into(),
        until: Timestamp::MAX,
    };
    Log {
        limits: Arc::new(Limits::parse(LIMITS).expect("it is right")),
        acts: BTreeMap::from([(2, Arc::new(ban))]),
    }
});

impl Versions for Log {
    fn limits(&self, version: u64) -> Option<Arc<Limits>> {
        (1 <= version).then(|| Arc::clone(&self.limits))
    }

    fn next_after(&self, version: Option<u64>) -> Option<u64> {
        [1, 2]
            .into_iter()
            .find(|next| version.is_none_or(|version| version < *next))
    }

    fn amendment(&self, version: u64) -> Option<Arc<Act>> {
        self.acts.get(&version).cloned()
    }
}

/// `[length (u16) chunk]…`; the last chunk is the rest.
pub fn run(bytes: &[u8]) {
    let chunks = split(bytes);
    let restore = || Engine::restore(0, 1, &chunks, &*LOG);
    match MEMORY.holds(bytes.len(), restore) {
        Ok(mut engine) => {
            let written = engine.snapshot();
            let again = Engine::restore(0, 1, &written, &*LOG);
            let mut again = again.expect("what was written is restored");
            assert_eq!(again.digest(), engine.digest());
            assert_eq!(again.snapshot(), written, "and written as the same");
            goes_on(engine);
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

/// A restored engine must go on ruling, whatever its state.
fn goes_on(mut engine: Engine) {
    let after = engine
        .freeze()
        .applied_upto()
        .map_or(0, |upto| upto.saturating_add(1));
    let mut rulings = Rulings::default();
    for (offset, bytes) in (after..).zip(records()) {
        let record = Record::decode(&bytes).expect("it is right");
        let appended = Timestamp::from_micros(START_US + 1_000_000 * (offset.min(1_000) + 1));
        engine.apply(offset, appended, &record, &*LOG, &mut rulings);
    }
}

fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len));
        let (chunk, rest) = rest.split_at(len.min(rest.len()));
        chunks.push(chunk);
        bytes = rest;
    }
    chunks
}

fn joined(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in chunks {
        bytes.extend_from_slice(&(chunk.len() as u16).to_le_bytes());
        bytes.extend_from_slice(chunk);
    }
    bytes
}

const START_US: u64 = 1_800_000_000_000_000;

/// One record of each kind that changes a state.
fn records() -> Vec<Vec<u8>> {
    let key = MacKey::derive(b"fuzz");
    let pen = || RecordPen::new(&key, 0);
    let log = LogId {
        generation: 1,
        random: 77,
    };
    let pointer = |version| {
        let digest = [0; 32];
        pen().limits_activation(&LimitsActivation { version, digest })
    };
    let tick = |number| {
        let (owner, instance) = ("agg-1", 9);
        pen().tick(&Tick {
            log,
            aggregator: owner,
            instance,
            number,
        })
    };
    vec![
        pen().genesis(log),
        pointer(1),
        hits(1),
        holds(2),
        tick(1),
        hits(3),
        pointer(2),
        hits(4),
        tick(2),
    ]
}

fn sender(sequence: u64) -> Sender<'static> {
    Sender {
        agent: "web-1",
        epoch: 7,
        sequence,
        sent: Timestamp::from_micros(START_US + sequence * 1_000_000),
    }
}

fn hits(sequence: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    let sender = sender(sequence);
    let at = sender.sent;
    let estimate = Hit {
        kind: HitKind::Estimate,
        ..Hit::one(0, "initech", at, 2)
    };
    let all = [
        Hit::one(0, "acme", at, 9),
        Hit::one(0, "globex", at, 1),
        estimate,
        Hit::one(1, "acme", at, 3),
        Hit::one(1, "umbrella", at, 1),
    ];
    write_hits(
        &mut writer,
        &sender,
        &["api", "tiered"],
        all.into_iter(),
        [].into_iter(),
    );
    writer.as_slice().to_vec()
}

fn holds(sequence: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    let sender = sender(sequence);
    let hold = |number, copies| HoldOp {
        resource: 0,
        number,
        at: sender.sent,
        action: HoldAction::Hold {
            domain: "acme",
            copies,
        },
    };
    write_holds(
        &mut writer,
        &sender,
        &["gpu"],
        [hold(1, 2), hold(2, 4)].into_iter(),
    );
    writer.as_slice().to_vec()
}

/// The engine after each of some records.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut engine = Engine::new(0, 1);
    let mut seeds = vec![joined(&engine.snapshot())];
    let mut rulings = Rulings::default();
    for (offset, bytes) in (0..).zip(records()) {
        let record = Record::decode(&bytes).expect("it is right");
        let appended = Timestamp::from_micros(START_US + 1_000_000 * (offset + 1));
        engine.apply(offset, appended, &record, &*LOG, &mut rulings);
        seeds.push(joined(&engine.snapshot()));
    }
    seeds
}
