//! A partition that is played record by record: the records of agents and aggregators, and the
//! statements and verdicts.
//!
//! What stays true: every record is encoded and decoded; after every record all copies are counted
//! again, and now and then the engine is restored from its own snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::known::Known;
use tollgate_engine::engine::{Engine, Fate, Rulings};
use tollgate_limits::Limits;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::heartbeat::{HeartbeatHead, Holds, Listed, Part, write_heartbeat};
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick};
use tollgate_shared::wire::statement::{Cause, Scope, Statement, StatementKind};

pub const RESOURCE: &str = "sandbox";

const LOG: LogId = LogId {
    generation: 1,
    random: 5,
};

/// An engine, its log so far, and its last rulings.
pub struct Play {
    pub engine: Engine,
    pub versions: BTreeMap<u64, Arc<Limits>>,
    acts: BTreeMap<u64, Arc<Act>>,
    pub rulings: Rulings,
    pub now_ms: u64,
    offset: u64,
    ticks: u64,
    /// By resource and scope, the statements of denials that were not lifted.
    stated: BTreeMap<(Arc<str>, String), Statement>,
}

/// An agent's epoch, with the last sequence that it used.
#[derive(Clone, Debug)]
pub struct Sending {
    pub name: &'static str,
    pub epoch: u128,
    pub sequence: u64,
}

pub const fn agent(name: &'static str, epoch: u128) -> Sending {
    Sending {
        name,
        epoch,
        sequence: 0,
    }
}

pub fn listed(number: u64, domain: &str, copies: u32, start_ms: u64) -> Listed<'_> {
    Listed {
        number,
        domain,
        copies,
        start: Timestamp::from_millis(start_ms),
        strict: false,
        seized: None,
    }
}

pub fn whole<'a>(listed: &'a [Listed<'a>]) -> Part<'a> {
    Part {
        resource: 0,
        awaiting: &[],
        asked: &[],
        holds: Holds::List {
            from: 0,
            upto: u64::MAX,
            listed,
        },
    }
}

impl Play {
    /// A log with its genesis and one version.
    pub fn of(document: &str) -> Self {
        let mut play = Self {
            engine: Engine::new(0, 1),
            versions: BTreeMap::new(),
            acts: BTreeMap::new(),
            rulings: Rulings::new(),
            now_ms: 1_800_000_000_000,
            offset: 0,
            ticks: 0,
            stated: BTreeMap::new(),
        };
        play.apply(&pen().genesis(LOG));
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
        self.engine.audit_copies().expect("counts are right");
        for stated in &self.rulings.statements {
            let of = (stated.resource.clone(), scope(&stated.statement.scope));
            match stated.statement.kind {
                StatementKind::Denied(_) => self.stated.insert(of, stated.statement.clone()),
                StatementKind::Lifted => self.stated.remove(&of),
            };
        }
        self.rulings.fates[0]
    }

    pub fn version(&mut self, document: &str) -> Fate {
        let text = format!("version = 1\nrules = 2\n{document}");
        let limits = Limits::parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
        let version = self.offset + 100;
        self.versions.insert(version, Arc::new(limits));
        self.activate(version)
    }

    /// An operator's act, and the activation that brings it in.
    pub fn amend(&mut self, act: Act) -> Fate {
        let version = self.offset + 100;
        self.acts.insert(version, Arc::new(act));
        self.activate(version)
    }

    fn activate(&mut self, version: u64) -> Fate {
        let digest = [0; 32];
        let activation = pen().limits_activation(&LimitsActivation { version, digest });
        self.apply(&activation)
    }

    /// The log lacks the records that another one still had.
    pub fn skip_to(&mut self, other: &Self) {
        self.now_ms = other.now_ms;
        self.offset = other.offset;
        self.ticks = other.ticks;
    }

    /// Half a second passes, and a tick is counted.
    pub fn tick(&mut self) -> Fate {
        self.now_ms += 500;
        self.ticks += 1;
        let tick = pen().tick(&Tick {
            log: LOG,
            aggregator: "agg-1",
            instance: 1,
            number: self.ticks,
        });
        self.apply(&tick)
    }

    pub fn ops(&mut self, from: &mut Sending, ops: &[(u64, HoldAction<'_>)]) -> Fate {
        let bytes = self.ops_bytes(from, ops);
        self.apply(&bytes)
    }

    /// A record of operations, not appended yet.
    pub fn ops_bytes(&self, from: &mut Sending, ops: &[(u64, HoldAction<'_>)]) -> Vec<u8> {
        self.ops_bytes_on(from, RESOURCE, ops)
    }

    fn ops_bytes_on(
        &self,
        from: &mut Sending,
        resource: &str,
        ops: &[(u64, HoldAction<'_>)],
    ) -> Vec<u8> {
        let at = Timestamp::from_millis(self.now_ms);
        let ops = ops.iter().map(|(number, action)| HoldOp {
            resource: 0,
            number: *number,
            at,
            action: *action,
        });
        let mut writer = Writer::new();
        let sender = self.sender(from);
        write_holds(&mut writer, &sender, &[resource], ops);
        writer.as_slice().to_vec()
    }

    pub fn heartbeat(&mut self, from: &mut Sending, part: Part<'_>) -> Fate {
        let bytes = self.heartbeat_bytes(from, HeartbeatHead::default(), &[part]);
        self.apply(&bytes)
    }

    /// Operations on another resource.
    pub fn ops_on(
        &mut self,
        from: &mut Sending,
        resource: &str,
        ops: &[(u64, HoldAction<'_>)],
    ) -> Fate {
        let bytes = self.ops_bytes_on(from, resource, ops);
        self.apply(&bytes)
    }

    /// A heartbeat that lists no holds at all.
    pub fn heartbeat_without_parts(&mut self, from: &mut Sending) -> Fate {
        let bytes = self.heartbeat_bytes(from, HeartbeatHead::default(), &[]);
        self.apply(&bytes)
    }

    /// A heartbeat, not appended yet.
    pub fn heartbeat_bytes(
        &self,
        from: &mut Sending,
        head: HeartbeatHead,
        parts: &[Part<'_>],
    ) -> Vec<u8> {
        let mut writer = Writer::new();
        let sender = self.sender(from);
        write_heartbeat(&mut writer, &sender, &[RESOURCE], head, parts);
        writer.as_slice().to_vec()
    }

    /// The engine's output for the last record: denials and lifts, then verdicts, as text.
    pub fn output(&self) -> Vec<String> {
        let statements = self.rulings.statements.iter().map(|stated| {
            let scope = scope(&stated.statement.scope);
            match stated.statement.kind {
                StatementKind::Denied(denial) if denial.cause == Cause::Banned => {
                    format!("banned {scope}")
                }
                StatementKind::Denied(denial) => format!("denied {scope} at {}", denial.limit),
                StatementKind::Lifted => format!("open {scope}"),
            }
        });
        let verdicts = self.rulings.verdicts.iter();
        statements
            .chain(verdicts.map(|due| match &due.status {
                Some(status) => format!("{}: {status}", due.agent),
                None => format!("{}: list wanted", due.agent),
            }))
            .collect()
    }

    pub fn copies_of(&self, domain: &str) -> u64 {
        let found = self.engine.copies().find(|(name, _)| &***name == RESOURCE);
        found.map_or(0, |(_, copies)| copies.domain(domain).copies)
    }

    pub fn total(&self) -> u64 {
        self.engine
            .copies()
            .map(|(_, copies)| copies.total().copies)
            .sum()
    }

    /// All statements together show the denials in force; of two of one scope, the one stated last.
    pub fn check_statements(&self) {
        let now = self.engine.now();
        let live = self.engine.live_denials().map(|live| {
            let kind = StatementKind::Denied(live.denial);
            let (scope, position) = (live.scope(), live.position);
            let statement = Statement {
                scope,
                position,
                kind,
            };
            (&live.resource, statement)
        });
        let mut in_force: BTreeMap<(Arc<str>, String), Statement> = BTreeMap::new();
        for (resource, statement) in live.chain(self.engine.denied_scopes()) {
            let of = (resource.clone(), scope(&statement.scope));
            let before = in_force.get(&of).map(|before| before.position);
            if before.is_none_or(|before| before < statement.position) {
                in_force.insert(of, statement);
            }
        }
        let mut stated = self.stated.clone();
        stated.retain(|_, statement| match statement.kind {
            StatementKind::Denied(denial) => now < denial.end,
            StatementKind::Lifted => false,
        });
        assert_eq!(stated, in_force);
    }

    /// Restores the engine from its snapshot, twice: restoring packs pairs anew, so the first one may write them
    /// in another order, and no later one does.
    pub fn restart(&mut self) {
        let (before, chunks) = (self.engine.digest(), self.engine.snapshot());
        self.engine = self.restored(&chunks);
        let chunks = self.engine.snapshot();
        self.engine = self.restored(&chunks);
        assert_eq!(self.engine.digest(), before);
        assert_eq!(self.engine.snapshot(), chunks);
    }

    fn restored(&self, chunks: &[Vec<u8>]) -> Engine {
        let known = Known(&self.versions, &self.acts);
        let restored = Engine::restore(0, 1, chunks, &known);
        restored.unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn sender(&self, from: &mut Sending) -> Sender<'static> {
        from.sequence += 1;
        Sender {
            agent: from.name,
            epoch: from.epoch,
            sequence: from.sequence,
            sent: Timestamp::from_millis(self.now_ms),
        }
    }
}

fn scope(scope: &Scope) -> String {
    match scope {
        Scope::Pair(domain) => domain.to_string(),
        Scope::Group(group) => format!("group {group}"),
        Scope::Resource => "all".to_owned(),
    }
}

fn pen() -> RecordPen<'static> {
    RecordPen::new(&MacKey::UNPROTECTED, 0)
}
