//! A random log of one partition, as bytes for the engine and as inputs for the model.
//!
//! What stays true: append times never fall, and every record was encoded and decoded.

mod for_model;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tollgate_engine::engine::Versions;
use tollgate_limits::Limits;
use tollgate_model as model;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_shared::wire::record::{LimitsActivation, RecordPen, Tick, Total};

use super::{CONFIGURED, DOMAINS, NETWORKS, RESOURCES, Written, any_resource, at};

pub const LOG: LogId = LogId {
    generation: 1,
    random: 77,
};

/// When logs begin: the start of a slot, well after the epoch.
pub const START_US: u64 = 1_800_000_000_000_000;

/// One record, in both forms.
#[derive(Clone, Debug)]
pub struct Entry {
    pub offset: u64,
    pub appended: Timestamp,
    pub bytes: Vec<u8>,
    pub input: Option<Input>,
}

/// The model's input, owned.
#[derive(Clone, Debug)]
pub enum Input {
    Hits {
        agent: &'static str,
        epoch: u128,
        seq: u64,
        sent_us: u64,
        entries: Vec<OneHit>,
    },
    Tick,
    Totals {
        resource: &'static str,
        source: (u32, u64),
        granted: Vec<(u64, u32)>,
    },
    Limits(Vec<u64>),
    Amendments(Vec<(u64, Act)>),
}

#[derive(Clone, Copy, Debug)]
pub struct OneHit {
    pub resource: usize,
    pub domain: usize,
    pub age_us: u64,
    pub copies: u32,
    pub min: Option<u32>,
}

/// A whole log, and the versions that its activations bring in.
#[derive(Clone)]
pub struct Log {
    pub entries: Vec<Entry>,
    pub written: BTreeMap<u64, Written>,
    pub versions: Brought,
}

/// The versions that activations bring in.
#[derive(Clone, Default)]
pub struct Brought {
    limits: BTreeMap<u64, Arc<Limits>>,
    acts: BTreeMap<u64, Arc<Act>>,
}

impl Versions for Brought {
    fn limits(&self, version: u64) -> Option<Arc<Limits>> {
        self.limits
            .range(..=version)
            .next_back()
            .map(|(_, of)| of.clone())
    }

    fn next_after(&self, version: Option<u64>) -> Option<u64> {
        let from = version.map_or(0, |version| version + 1);
        let limits = self.limits.range(from..).next().map(|(number, _)| *number);
        let acts = self.acts.range(from..).next().map(|(number, _)| *number);
        [limits, acts].into_iter().flatten().min()
    }

    fn amendment(&self, version: u64) -> Option<Arc<Act>> {
        self.acts.get(&version).cloned()
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (version, written) in &self.written {
            writeln!(f, "\nversion {version}:\n{}", written.document())?;
        }
        for entry in &self.entries {
            let after_us = entry.appended.as_micros() - START_US;
            writeln!(f, "{} +{after_us} us: {:?}", entry.offset, entry.input)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Hits {
        agent: usize,
        sequence: Sequence,
        entries: Vec<OneHit>,
    },
    Tick,
    Totals {
        resource: usize,
        source: u32,
        late: bool,
        granted: Vec<(u64, u32)>,
    },
    Activation {
        skip: usize,
    },
    Amend(Vec<OneAct>),
}

/// An amendment, before it gets names.
#[derive(Clone, Copy, Debug)]
pub struct OneAct {
    what: u8,
    resource: usize,
    domain: usize,
    everywhere: bool,
    hits: u64,
    /// How long a ban lasts, in microseconds; `None`: for ever.
    for_us: Option<u64>,
}

fn any_act() -> impl Strategy<Value = OneAct> {
    let last = prop_oneof![
        4 => (0u64..3_000_000).prop_map(Some),
        2 => (0u64..700_000_000).prop_map(Some),
        1 => Just(None),
    ];
    (
        0u8..8,
        0..RESOURCES.len(),
        0..DOMAINS.len(),
        any::<bool>(),
        1u64..8,
        last,
    )
        .prop_map(
            |(what, resource, domain, everywhere, hits, for_us)| OneAct {
                what,
                resource,
                domain,
                everywhere,
                hits,
                for_us,
            },
        )
}

#[derive(Clone, Copy, Debug)]
enum Sequence {
    Next,
    Skip(u64),
    Again(u64),
}

const AGENTS: [(&str, u128, i64); 5] = [
    // Name, epoch, and how many milliseconds the clock is behind.
    ("web-1", 11, 0),
    ("web-1", 12, 200),
    ("web-2", 13, 1_700),
    ("web-3", 14, -3_000),
    ("web-4", 15, -200),
];

fn any_hit() -> impl Strategy<Value = OneHit> {
    let age = prop_oneof![
        4 => Just(0u64),
        4 => 0u64..300_000,
        1 => 0u64..3_000_000,
        1 => prop_oneof![Just(599_990_000u64), Just(600_000_000u64), Just(600_000_001u64), 0u64..700_000_000],
    ];
    let copies = prop_oneof![5 => Just(1u32), 2 => 1u32..6];
    let min = prop_oneof![4 => Just(None), 1 => (1u32..4).prop_map(Some)];
    (0..RESOURCES.len(), 0..DOMAINS.len(), age, copies, min).prop_map(
        |(resource, domain, age_us, copies, min)| OneHit {
            resource,
            domain,
            age_us,
            copies,
            min: min.map(|min| min.min(copies)),
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let sequence = prop_oneof![
        12 => Just(Sequence::Next),
        1 => (1u64..200).prop_map(Sequence::Skip),
        2 => (0u64..140).prop_map(Sequence::Again),
    ];
    let hits = (
        0..AGENTS.len(),
        sequence,
        prop::collection::vec(any_hit(), 0..6),
    );
    let granted = prop::collection::vec((0u64..1_500, 1u32..9), 0..4);
    prop_oneof![
        12 => hits.prop_map(|(agent, sequence, entries)| Step::Hits { agent, sequence, entries }),
        4 => Just(Step::Tick),
        2 => (0..RESOURCES.len(), 0u32..2, prop::bool::weighted(0.2), granted).prop_map(
            |(resource, source, late, granted)| Step::Totals { resource, source, late, granted },
        ),
        1 => (0usize..3).prop_map(|skip| Step::Activation { skip }),
        3 => prop::collection::vec(any_act(), 1..4).prop_map(Step::Amend),
    ]
}

/// Milliseconds between the appends of two records.
fn any_pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0u64..5,
        6 => 0u64..400,
        2 => 400u64..3_000,
        1 => prop_oneof![Just(59_000u64), Just(601_000u64), 0u64..700_000],
    ]
}

/// Units in which everything that a tier remembers is over within ten minutes, and longer ones.
const SHORT_UNITS: [u64; 4] = [1_000, 60_000, 400_000, 1_000_000];
const LONG_UNITS: [u64; 2] = [5_000_000, 40_000_000];

fn any_version(units: &'static [u64]) -> impl Strategy<Value = Written> {
    let resources = prop::collection::btree_map(
        prop::sample::select(&CONFIGURED[..]),
        prop::sample::select(units).prop_flat_map(any_resource),
        1..3,
    );
    let pairs_max = prop_oneof![2 => Just(1_000u64), 1 => 1u64..6];
    (resources, pairs_max).prop_map(|(resources, pairs_max)| Written {
        resources,
        pairs_max,
    })
}

/// Versions, later ones mostly similar to the first.
///
/// After ten minutes a pair stays by the limits that ruled it last; the model checks all pairs at
/// each version. So longer units come with one version only.
fn any_versions() -> impl Strategy<Value = Vec<Written>> {
    prop_oneof![
        4 => any_short_versions(),
        1 => any_version(&LONG_UNITS).prop_map(|written| vec![written]),
    ]
}

fn any_short_versions() -> impl Strategy<Value = Vec<Written>> {
    any_version(&SHORT_UNITS).prop_flat_map(|first| {
        let near = first.clone();
        let change = (any::<u8>(), 1u64..9, any::<bool>());
        let near = change.prop_map(move |(what, limit, global)| {
            let mut written = near.clone();
            for resource in written.resources.values_mut() {
                match what % 4 {
                    0 => resource.default.hard = Some(limit),
                    1 => resource.global = global.then_some(limit),
                    2 => drop(resource.default.tiers.as_mut().unwrap().pop()),
                    _ => {
                        if let Some(tier) = resource.default.tiers.as_mut().unwrap().last_mut() {
                            tier.limit = limit;
                        }
                    }
                }
            }
            written
        });
        let other = prop_oneof![3 => near, 1 => any_version(&SHORT_UNITS)];
        (Just(first), prop::collection::vec(other, 0..6))
            .prop_map(|(first, others)| [vec![first], others].concat())
    })
}

pub fn any_log() -> impl Strategy<Value = Log> {
    let steps = prop::collection::vec((any_pause(), any_step()), 1..80);
    (any_versions(), steps).prop_map(|(versions, steps)| build(&versions, &steps))
}

struct Builder {
    log: Log,
    now_ms: u64,
    next_version: usize,
    /// The version that was brought in last.
    known: u64,
    version_numbers: Vec<u64>,
    sequences: [u64; AGENTS.len()],
    last_totals: BTreeMap<(usize, u32), u64>,
    ticks: u64,
}

fn build(versions: &[Written], steps: &[(u64, Step)]) -> Log {
    let numbers: Vec<u64> = (0..versions.len() as u64).map(|n| 3 + 1_000 * n).collect();
    let written: BTreeMap<u64, Written> = numbers.iter().copied().zip(versions.to_vec()).collect();
    let limits = written.iter();
    let versions = limits.map(|(n, written)| (*n, Arc::new(written.for_the_engine())));
    let mut builder = Builder {
        log: Log {
            entries: Vec::new(),
            versions: Brought {
                limits: versions.collect(),
                ..Brought::default()
            },
            written: written.clone(),
        },
        now_ms: START_US / 1_000,
        next_version: 0,
        known: 0,
        version_numbers: numbers,
        sequences: [1; AGENTS.len()],
        last_totals: BTreeMap::new(),
        ticks: 0,
    };
    let genesis = builder.pen().genesis(LOG);
    builder.push(genesis, None);
    builder.activate(0);
    for (pause_ms, step) in steps {
        builder.now_ms += pause_ms;
        match step {
            Step::Hits {
                agent,
                sequence,
                entries,
            } => builder.hits(*agent, *sequence, entries),
            Step::Tick => builder.tick(),
            Step::Totals {
                resource,
                source,
                late,
                granted,
            } => builder.totals(*resource, *source, *late, granted),
            Step::Activation { skip } => builder.activate(*skip),
            Step::Amend(acts) => builder.amend(acts),
        }
    }
    builder.log
}

impl Builder {
    fn pen(&self) -> RecordPen<'static> {
        RecordPen::new(&MacKey::UNPROTECTED, 0)
    }

    fn push(&mut self, bytes: Vec<u8>, input: Option<Input>) {
        let offset = self.log.entries.len() as u64 * 2;
        self.log.entries.push(Entry {
            offset,
            appended: Timestamp::from_millis(self.now_ms),
            bytes,
            input,
        });
    }

    fn hits(&mut self, agent: usize, sequence: Sequence, entries: &[OneHit]) {
        let (name, epoch, behind_ms) = AGENTS[agent];
        let next = &mut self.sequences[agent];
        let seq = match sequence {
            Sequence::Next => *next,
            Sequence::Skip(by) => *next + by,
            Sequence::Again(back) => next.saturating_sub(back),
        };
        *next = (*next).max(seq + 1);
        let sent = Timestamp::from_millis(self.now_ms).saturating_offset(-behind_ms * 1_000);
        let hit = |hit: &OneHit| Hit {
            min: hit.min,
            ..Hit::one(
                hit.resource as u32,
                DOMAINS[hit.domain],
                sent.saturating_offset(-(hit.age_us as i64)),
                hit.copies,
            )
        };
        let mut writer = Writer::new();
        let sender = Sender {
            agent: name,
            epoch,
            sequence: seq,
            sent,
        };
        let none = std::iter::empty::<tollgate_shared::wire::hits::Refused<'_>>();
        let none: Vec<_> = none.collect();
        write_hits(
            &mut writer,
            &sender,
            &RESOURCES,
            entries.iter().map(hit),
            none.into_iter(),
        );
        let input = Input::Hits {
            agent: name,
            epoch,
            seq,
            sent_us: sent.as_micros(),
            entries: entries.to_vec(),
        };
        self.push(writer.as_slice().to_vec(), Some(input));
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let tick = Tick {
            log: LOG,
            aggregator: "agg-1",
            instance: 1,
            number: self.ticks,
        };
        let bytes = self.pen().tick(&tick);
        self.push(bytes, Some(Input::Tick));
    }

    fn totals(&mut self, resource: usize, source: u32, late: bool, granted: &[(u64, u32)]) {
        let last = self.last_totals.entry((resource, source)).or_insert(0);
        // One that is not after the last: the same again, or an earlier one.
        let offset = match late {
            true => last.saturating_sub(u64::from(source % 2)),
            false => *last + 5,
        };
        *last = offset.max(*last);
        let mut by_ms: BTreeMap<u64, u32> = BTreeMap::new();
        for (ago_ms, hits) in granted {
            *by_ms.entry(self.now_ms - ago_ms).or_default() += hits;
        }
        let granted: Vec<(u64, u32)> = by_ms.into_iter().collect();
        let name = RESOURCES[resource];
        let counted = granted.iter().map(|(ms, hits)| Total::guarded(*ms, *hits));
        let counted: Vec<Total> = counted.collect();
        let bytes = self.pen().totals(name, (source, offset), &counted);
        let input = Input::Totals {
            resource: name,
            source: (source, offset),
            granted,
        };
        self.push(bytes, Some(input));
    }

    /// An activation of the next version after `skip` others; or of a known one, if there are no more.
    fn activate(&mut self, skip: usize) {
        let last = self.version_numbers.len() - 1;
        let target = (self.next_version + skip).min(last);
        let brought = self.next_version..=target;
        let versions = brought.map(|n| self.version_numbers[n]).collect();
        let version = self.version_numbers[target];
        self.next_version = self.next_version.max(target + 1);
        self.known = self.known.max(version);
        let digest = [0; 32];
        let bytes = self
            .pen()
            .limits_activation(&LimitsActivation { version, digest });
        self.push(bytes, Some(Input::Limits(versions)));
    }
}

impl Builder {
    /// One activation of a few amendments.
    fn amend(&mut self, acts: &[OneAct]) {
        let mut brought = Vec::new();
        for one in acts {
            self.known += 1;
            let act = one.named(self.now_ms);
            let versions = &mut self.log.versions;
            versions.acts.insert(self.known, Arc::new(act.clone()));
            brought.push((self.known, act));
        }
        let version = self.known;
        let digest = [0; 32];
        let bytes = self
            .pen()
            .limits_activation(&LimitsActivation { version, digest });
        self.push(bytes, Some(Input::Amendments(brought)));
    }
}

impl OneAct {
    fn named(self, now_ms: u64) -> Act {
        let resource: Box<str> = RESOURCES[self.resource].into();
        let domain: Box<str> = DOMAINS[self.domain].into();
        let now = Timestamp::from_millis(now_ms);
        let until = self
            .for_us
            .map_or(Timestamp::MAX, |us| now.saturating_offset(us as i64));
        let of = Some(resource.clone()).filter(|_| !self.everywhere);
        let network = NETWORKS.get(self.hits as usize);
        let is_address = domain.starts_with(|first: char| first.is_ascii_digit());
        let banned = network
            .filter(|_| is_address)
            .map(|&network| network.into());
        let banned = banned.unwrap_or_else(|| domain.clone());
        match self.what {
            0 | 1 => Act::Pardon { resource, domain },
            2 | 3 => Act::Reset { resource, domain },
            4 | 5 => Act::Refund {
                resource,
                domain,
                hits: self.hits,
            },
            6 => Act::Ban {
                resource: of,
                domain: banned,
                until,
            },
            _ => Act::Unban {
                resource: of,
                domain: banned,
            },
        }
    }
}
