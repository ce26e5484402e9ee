//! Builds a log from drawn steps: each step becomes a record for the engine and an input for the model.
//!
//! What stays true: the records begin with the log's identity and the first version; nothing is drawn here, the same
//! steps give the same log.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_limits::Limits;
use tollgate_model as model;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_shared::wire::record::{LimitsActivation, RecordPen, Tick, Total};
use tollgate_shared::wire::set_rows::SetRow;

use super::super::{DOMAINS, NETWORKS, RESOURCES, Written};
use super::{
    AGENTS, Brought, Entry, Input, LOG, Log, ManyVersions, OneAct, OneHit, OneRow, START_US,
    Sequence, Step,
};

struct Builder {
    log: Log,
    now_ms: u64,
    next_version: usize,
    /// The version that was brought in last.
    known: u64,
    /// The version whose limits are in force.
    in_force: u64,
    version_numbers: Vec<u64>,
    sequences: [u64; AGENTS.len()],
    last_totals: BTreeMap<(usize, u32), u64>,
    ticks: u64,
}

/// The log of these versions and steps.
pub(super) fn build(versions: &[Written], steps: &[(u64, Step)]) -> Log {
    let numbers: Vec<u64> = (0..versions.len() as u64)
        .map(|n| 3 + 1_000_000 * n)
        .collect();
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
        in_force: 0,
        version_numbers: numbers,
        sequences: [1; AGENTS.len()],
        last_totals: BTreeMap::new(),
        ticks: 0,
    };
    let genesis = builder.pen().genesis(LOG);
    builder.push(genesis, None);
    builder.activate(0, 0);
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
            Step::Activation { skip, behind_ms } => builder.activate(*skip, *behind_ms),
            Step::Amend { acts, behind_ms } => builder.amend(acts, *behind_ms),
            Step::Rows { rows, with_next } => builder.rows(rows, *with_next),
            Step::Many(many) => builder.many(many),
        }
    }
    builder.log
}

impl Builder {
    fn pen(&self) -> RecordPen<'static> {
        RecordPen::new(&MacKey::UNPROTECTED, 0)
    }

    fn push(&mut self, bytes: Vec<u8>, input: Option<Input>) {
        self.push_behind(0, bytes, input);
    }

    /// Appends a record by a clock that is behind.
    fn push_behind(&mut self, behind_ms: u64, bytes: Vec<u8>, input: Option<Input>) {
        let offset = self.log.entries.len() as u64 * 2;
        self.log.entries.push(Entry {
            offset,
            appended: Timestamp::from_millis(self.now_ms - behind_ms),
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
    fn activate(&mut self, skip: usize, behind_ms: u64) {
        let last = self.version_numbers.len() - 1;
        let target = (self.next_version + skip).min(last);
        let brought = self.next_version..=target;
        let versions = brought.map(|n| self.version_numbers[n]).collect();
        let version = self.version_numbers[target];
        if self.next_version <= target {
            self.next_version = target + 1;
            self.in_force = version;
        }
        self.known = self.known.max(version);
        self.push_activation(version, behind_ms, Input::Limits(versions));
    }

    fn push_activation(&mut self, version: u64, behind_ms: u64, input: Input) {
        let digest = [0; 32];
        let activation = LimitsActivation { version, digest };
        let bytes = self.pen().limits_activation(&activation);
        self.push_behind(behind_ms, bytes, Some(input));
    }
}

impl Builder {
    /// One activation of a few amendments.
    fn amend(&mut self, acts: &[OneAct], behind_ms: u64) {
        let mut brought = Vec::new();
        for one in acts {
            self.known += 1;
            let act = one.named(self.now_ms);
            let versions = &mut self.log.versions;
            versions.acts.insert(self.known, Arc::new(act.clone()));
            brought.push((self.known, act));
        }
        self.push_activation(self.known, behind_ms, Input::Amendments(brought));
    }
}

impl Builder {
    /// A version of these rows, as far as the limits in force name their resources.
    fn rows(&mut self, rows: &[OneRow], with_next: bool) {
        let mut written = self.log.written[&self.in_force].clone();
        let mut named = Vec::new();
        for row in rows {
            let Some(resource) = written.resources.get_mut(RESOURCES[row.resource]) else {
                continue;
            };
            let domain = DOMAINS[row.domain];
            match row.own == model::DomainOverride::default() {
                true => drop(resource.domains.remove(domain)),
                false => drop(resource.domains.insert(domain.to_owned(), row.own.clone())),
            }
            named.push(SetRow {
                resource: RESOURCES[row.resource].into(),
                domain: domain.into(),
                rate: None,
                hard: None,
                limit: None,
            });
        }
        if named.is_empty() {
            return;
        }
        let row_version = self.put_version(&written, Arc::new(written.for_the_engine()));
        let act = Arc::new(Act::SetMany(named));
        self.log.versions.rows.insert(row_version, act);
        let mut brought = vec![row_version];
        if with_next && self.next_version < self.version_numbers.len() {
            self.in_force = self.version_numbers[self.next_version];
            self.known = self.in_force;
            self.next_version += 1;
            brought.push(self.known);
        }
        self.push_activation(self.known, 0, Input::Limits(brought));
    }

    /// Many versions at once, which pairs without a denial sleep through.
    fn many(&mut self, many: &ManyVersions) {
        let now = self.log.written[&self.in_force].clone();
        let mut other = now.clone();
        let (what, limit) = many.change;
        for resource in other.resources.values_mut() {
            change(resource, (what % 8, limit));
        }
        let both = [now, other].map(|written| {
            let limits = Arc::new(written.for_the_engine());
            (written, limits)
        });
        let brought = (0..many.len).map(|number| {
            let is_other = many.from <= number && (number < many.to || many.to < many.from);
            let (written, limits) = &both[usize::from(is_other)];
            self.put_version(written, limits.clone())
        });
        let brought = brought.collect();
        self.push_activation(self.known, 0, Input::Limits(brought));
    }

    fn put_version(&mut self, written: &Written, limits: Arc<Limits>) -> u64 {
        self.known += 1;
        self.in_force = self.known;
        self.log.written.insert(self.known, written.clone());
        self.log.versions.limits.insert(self.known, limits);
        self.known
    }
}

/// Changes limits, and sometimes the shape of the state that they need.
fn change(resource: &mut model::ResourceLimits, (what, limit): (u8, u64)) {
    let default = &mut resource.default;
    match what {
        0 => default.hard = Some(limit),
        1 => resource.global = Some(limit),
        2 => drop(default.tiers.as_mut().unwrap().pop()),
        3 | 4 => {
            if let Some(tier) = default.tiers.as_mut().unwrap().last_mut() {
                (tier.limit, tier.cooldown_us) = (limit, tier.cooldown_us + u64::from(what == 3));
            }
        }
        5 => default.windows.push(model::Window {
            limit,
            window_us: limit * 1_000_000,
        }),
        6 => default.hard = None,
        _ => default.quotas.push(model::Quota {
            limit,
            unit: [model::Calendar::Day, model::Calendar::Month][usize::from(limit < 3)],
            zone: model::Zone::fixed(0),
        }),
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
