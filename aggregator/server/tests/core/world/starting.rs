//! How a world begins: a core on a new log or an existing one, with snapshots, in a fleet or in a group, or on a log
//! that has lost its end.
//!
//! What stays true: the world is a function of its log, its seed and its settings. The log is given, so a core finds
//! there what an earlier core has written.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use tollgate_log::{Chunks, Stream};
use tollgate_server::core::event::Effect;
use tollgate_server::core::recordings::WAITING_MAX;
use tollgate_server::core::snapshots::Policy;
use tollgate_server::core::topics::Subscribed;
use tollgate_server::core::{Core, Settings, Start};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::Span;

use super::{Fate, MemoryLog, PARTITIONS, Random, World};

fn all_partitions() -> impl Iterator<Item = (Stream, u32)> {
    let streams = [
        (Stream::Limits, 1),
        (Stream::Hits, PARTITIONS),
        (Stream::Denials, PARTITIONS),
    ];
    { streams.into_iter() }.flat_map(|(stream, n)| (0..n).map(move |p| (stream, p)))
}

fn begin(log: &MemoryLog, snapshots: BTreeMap<u32, Vec<Chunks>>) -> Start {
    Start {
        generation: 1,
        unbegun: all_partitions()
            .filter(|at| !log.streams.contains_key(at))
            .collect(),
        snapshots,
    }
}

impl World {
    /// A core on a new log.
    pub fn new(limits: &str) -> Self {
        let mut world = Self::on(MemoryLog::default(), 1);
        world.push(limits);
        world
    }

    /// A core on an existing log.
    pub fn on(log: MemoryLog, seed: u64) -> Self {
        Self::restored(log, seed, BTreeMap::new())
    }

    /// The same with snapshots, on a number of threads.
    pub fn restored_on(
        threads: Option<NonZeroUsize>,
        log: MemoryLog,
        seed: u64,
        snapshots: BTreeMap<u32, Vec<Chunks>>,
    ) -> Self {
        let mut world = Self::restored(log, seed, snapshots);
        world.rule_on(threads);
        world
    }

    /// The same with snapshots.
    pub fn restored(log: MemoryLog, seed: u64, snapshots: BTreeMap<u32, Vec<Chunks>>) -> Self {
        Self::made(Core::new, log, seed, snapshots, None)
    }

    /// A core of a fleet, which rules nothing before partitions are assigned to it.
    pub fn shared(log: MemoryLog, seed: u64) -> Self {
        Self::made(Core::shared, log, seed, BTreeMap::new(), None)
    }

    /// A core of a group that rules all partitions, as other groups do.
    pub fn in_group(log: MemoryLog, seed: u64, group: &str) -> Self {
        Self::restored_in_group(log, seed, group, BTreeMap::new())
    }

    /// The same with snapshots.
    pub fn restored_in_group(
        log: MemoryLog,
        seed: u64,
        group: &str,
        snapshots: BTreeMap<u32, Vec<Chunks>>,
    ) -> Self {
        Self::made(Core::new, log, seed, snapshots, Some(group))
    }

    /// A core on a log that has lost its end, as a journal may after a power cut: the next generation has to be begun
    /// in every partition.
    pub fn after_a_loss(log: MemoryLog, seed: u64) -> Self {
        Self::with_keys_after_a_loss(log, seed, Keyring::default())
    }

    /// A core with these record keys.
    pub fn with_keys(log: MemoryLog, seed: u64, keys: Keyring) -> Self {
        let start = begin(&log, BTreeMap::new());
        Self::started(Core::new, log, seed, start, (None, keys))
    }

    /// The same in a group, whose members append state digests.
    pub fn in_group_with_keys(log: MemoryLog, seed: u64, group: &str, keys: Keyring) -> Self {
        let start = begin(&log, BTreeMap::new());
        Self::started(Core::new, log, seed, start, (Some(group), keys))
    }

    /// The same on a log that has lost its end.
    pub fn with_keys_after_a_loss(log: MemoryLog, seed: u64, keys: Keyring) -> Self {
        let start = Start {
            generation: 2,
            unbegun: all_partitions().collect(),
            snapshots: BTreeMap::new(),
        };
        Self::started(Core::new, log, seed, start, (None, keys))
    }

    fn made(
        make: fn(Settings) -> (Core, Vec<Effect>),
        log: MemoryLog,
        seed: u64,
        snapshots: BTreeMap<u32, Vec<Chunks>>,
        group: Option<&str>,
    ) -> Self {
        let start = begin(&log, snapshots);
        Self::started(make, log, seed, start, (group, Keyring::default()))
    }

    fn started(
        make: fn(Settings) -> (Core, Vec<Effect>),
        log: MemoryLog,
        seed: u64,
        start: Start,
        (group, keys): (Option<&str>, Keyring),
    ) -> Self {
        let (core, effects) = make(Settings {
            aggregator: "w".to_owned(),
            seed: [seed as u8; 32],
            keys,
            partitions: PARTITIONS,
            group: group.map(Into::into),
            start,
            feeds: vec!["tcp://127.0.0.1:1".into()],
            heartbeat: Span::from_millis(250),
            subscribed: Subscribed::default(),
            follow_file: true,
            waiting_max: WAITING_MAX,
            snapshots: Some(Policy {
                every: Span::from_secs(30),
                entries_max: 200,
            }),
        });
        let mut world = Self {
            core,
            log,
            clock: Span::from_secs(seed * 3_600),
            frames: Vec::new(),
            verdicts: Vec::new(),
            notices: Vec::new(),
            answers: Vec::new(),
            dead_letters: Vec::new(),
            gave_up: None,
            snapshots: Vec::new(),
            dropped: Vec::new(),
            restores: Vec::new(),
            fate: Box::new(|_, _| Fate::Taken),
            held: Vec::new(),
            random: Random(seed),
            follows: BTreeMap::new(),
            appends: VecDeque::new(),
            replies: Vec::new(),
            queries: 0,
            sequences: BTreeMap::new(),
            together: false,
            deliveries: Vec::new(),
        };
        world.perform(effects);
        world
    }
}
