//! A random log of one partition, as bytes for the engine and as inputs for the model.
//!
//! What stays true: append times never fall, except that those of activations may, as under a new leader whose clock is
//! behind; and every record was encoded and decoded.

mod builder;
mod for_model;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tollgate_engine::engine::Versions;
use tollgate_limits::Limits;
use tollgate_model as model;
use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;

use builder::build;

use super::{CONFIGURED, DOMAINS, RESOURCES, Written, any_resource, any_tiers, at};

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
    /// Of the versions in `limits` those that differ from the one before by rows alone.
    rows: BTreeMap<u64, Arc<Act>>,
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

    fn rows(&self, version: u64) -> Option<Arc<Act>> {
        self.rows.get(&version).cloned()
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (version, written) in &self.written {
            writeln!(f, "\nversion {version}:\n{}", written.document())?;
        }
        for entry in &self.entries {
            let after_us = entry.appended.as_micros() as i64 - START_US as i64;
            writeln!(f, "{} {after_us:+} us: {:?}", entry.offset, entry.input)?;
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
        behind_ms: u64,
    },
    Amend {
        acts: Vec<OneAct>,
        behind_ms: u64,
    },
    Rows {
        rows: Vec<OneRow>,
        /// The next version comes in with the same activation.
        with_next: bool,
    },
    Many(ManyVersions),
}

/// A row, before it gets names.
#[derive(Clone, Debug)]
pub struct OneRow {
    resource: usize,
    domain: usize,
    own: model::DomainOverride,
}

/// So many versions of one activation: first that in force, from the `from`th on a changed one, from the `to`th on that
/// in force again.
#[derive(Clone, Debug)]
pub struct ManyVersions {
    len: u64,
    from: u64,
    to: u64,
    change: (u8, u64),
}

fn any_rows() -> impl Strategy<Value = Vec<OneRow>> {
    let unit = prop::sample::select(&SHORT_UNITS[..]);
    let own = (
        prop::option::of(unit.prop_flat_map(any_tiers)),
        prop::option::of(1u64..9),
    );
    let own = own.prop_map(|(tiers, hard)| model::DomainOverride {
        tiers: super::own(tiers),
        hard: super::own(hard),
        ..model::DomainOverride::default()
    });
    // The fourth domain is an address: its row is a step.
    let domain = prop_oneof![9 => 0usize..3, 1 => Just(3usize)];
    let row = (0..RESOURCES.len(), domain, own);
    let row = row.prop_map(|(resource, domain, own)| OneRow {
        resource,
        domain,
        own,
    });
    prop::collection::vec(row, 1..4)
}

fn any_many_versions() -> impl Strategy<Value = ManyVersions> {
    let steps = (250u64..262, 0u64..262, 0u64..262);
    (steps, any::<u8>(), 1u64..9).prop_map(|((len, from, to), what, limit)| ManyVersions {
        len,
        from,
        to,
        change: (what, limit),
    })
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
        36 => hits.prop_map(|(agent, sequence, entries)| Step::Hits { agent, sequence, entries }),
        12 => Just(Step::Tick),
        6 => (0..RESOURCES.len(), 0u32..2, prop::bool::weighted(0.2), granted).prop_map(
            |(resource, source, late, granted)| Step::Totals { resource, source, late, granted },
        ),
        3 => (0usize..3, any_delay()).prop_map(|(skip, behind_ms)| Step::Activation { skip, behind_ms }),
        9 => (prop::collection::vec(any_act(), 1..4), any_delay())
            .prop_map(|(acts, behind_ms)| Step::Amend { acts, behind_ms }),
        9 => (any_rows(), prop::bool::weighted(0.2))
            .prop_map(|(rows, with_next)| Step::Rows { rows, with_next }),
        1 => any_many_versions().prop_map(Step::Many),
    ]
}

/// How far the clock of an activation's append is behind, in milliseconds.
fn any_delay() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0u64), 1 => 1u64..700]
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
