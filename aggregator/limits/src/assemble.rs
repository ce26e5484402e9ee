//! From statements of resources to one version: classes are determined, numbered, and shared.
//!
//! ```text
//! stated by the domain   windows ────────┐  hard ─── (silent)
//! stated by the candidate     (silent)   │     │
//! stated by the resource      tiers      │  hard 200/s ──┐
//! class of the domain                windows           200/s
//! ```
//!
//! Code that has limits in another form (a document, limits at another speed) makes a draft and
//! calls [`assemble`]. What stays true: the same statements give equal versions, in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_shared::networks::AddressPrefixes;

use super::descriptors::Descriptors;
use super::names::NameTable;
use super::networks::Networks;
use super::numbers::{ClassId, ResourceIx};
use super::patterns::Patterns;
use super::rate::RateClass;
use super::resource::{CopiesResource, Mode, RateResource, Resource};
use super::rows::RateRows;
use super::settings::{BlindPolicy, EngineSettings, Namespaces};
use super::stated::Stated;
use super::tables::{RateOverride, RateTable};
use super::version::{Classes, Limits};

/// A rate-limited resource before classes are numbered.
#[derive(Clone, Debug)]
pub(super) struct RateDraft {
    pub(super) name: Box<str>,
    pub(super) default: Stated,
    pub(super) candidate: Option<Stated>,
    pub(super) global: Option<u64>,
    pub(super) near: u8,
    pub(super) addresses: Option<AddressPrefixes>,
    pub(super) blind: Option<BlindPolicy>,
    pub(super) mode: Mode,
    pub(super) large_state: bool,
    pub(super) overrides: OverridesDraft,
}

/// The statements of domains, in any order.
#[derive(Clone, Debug, Default)]
pub(super) struct OverridesDraft {
    pub(super) domains: NameTable,
    /// For each domain by its number: the position of its statement in `stated`.
    pub(super) stated_of: Vec<u32>,
    pub(super) stated: Vec<Stated>,
}

/// The content of a version under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) rules: u32,
    pub(super) engine: EngineSettings,
    pub(super) namespaces: Namespaces,
    pub(super) rates: Vec<RateDraft>,
    pub(super) copies: Vec<CopiesResource>,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) record_keys: Arc<[Box<str>]>,
}

/// Makes a version from a draft. Names of resources must be distinct.
pub(super) fn assemble(mut draft: Draft) -> Limits {
    for rate in &mut draft.rates {
        rate.overrides.make_canonical();
    }
    let mut classes: Vec<RateClass> = draft.rates.iter().flat_map(classes_of).collect();
    classes.sort_unstable();
    classes.dedup();

    let mut resources: Vec<Resource> = draft
        .rates
        .into_iter()
        .map(|rate| Resource::Rate(finish_rate(rate, &classes)))
        .chain(draft.copies.into_iter().map(Resource::Copies))
        .collect();
    resources.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    for (position, resource) in resources.iter_mut().enumerate() {
        // Every resource takes bytes of a document, which is bounded far below 2^32.
        let ix = ResourceIx(position as u32);
        match resource {
            Resource::Rate(rate) => rate.ix = ix,
            Resource::Copies(copies) => copies.ix = ix,
        }
    }
    Limits {
        rules: draft.rules,
        engine: draft.engine,
        namespaces: draft.namespaces,
        names: NameTable::from_sorted(resources.iter().map(Resource::name)),
        patterns: Patterns::among(resources.iter().map(Resource::name)),
        resources: resources.into_boxed_slice(),
        classes: Classes::of(classes),
        descriptors: draft.descriptors,
        record_keys: draft.record_keys,
    }
}

impl OverridesDraft {
    fn of(rate: &RateResource) -> Self {
        if rate.rows.len() == 0 {
            let table = &*rate.table;
            return Self {
                domains: table.domains.clone(),
                stated_of: table.override_of.to_vec(),
                stated: table.overrides.iter().map(|o| o.stated.clone()).collect(),
            };
        }
        // Equal statements are merged when they are put into canonical order.
        Self {
            domains: NameTable::from_sorted(rate.overrides().map(|(domain, _)| domain)),
            stated_of: (0..).take(rate.overrides().count()).collect(),
            stated: rate.overrides().map(|(_, of)| of.stated.clone()).collect(),
        }
    }

    /// Puts the statements into canonical order, each once, and drops those that no domain has.
    fn make_canonical(&mut self) {
        let mut order = BTreeMap::new();
        for &position in &self.stated_of {
            order.insert(&self.stated[position as usize], 0);
        }
        for (number, (_, position)) in order.iter_mut().enumerate() {
            *position = number as u32;
        }
        let stated_of = self
            .stated_of
            .iter()
            .map(|&position| order[&self.stated[position as usize]])
            .collect();
        let stated = order.into_keys().cloned().collect();
        self.stated_of = stated_of;
        self.stated = stated;
    }
}

/// The classes of a statement: the real one, and the one under the candidate.
fn class_pair(rate: &RateDraft, stated: &Stated) -> (RateClass, Option<RateClass>) {
    let real = stated.clone().over_default(&rate.default).class();
    let candidate = rate.candidate.as_ref().map(|candidate| {
        let default = candidate.clone().or(&rate.default);
        stated.clone().over_default(&default).class()
    });
    (real, candidate)
}

fn classes_of(rate: &RateDraft) -> Vec<RateClass> {
    let silent = Stated::default();
    std::iter::once(&silent)
        .chain(&rate.overrides.stated)
        .flat_map(|stated| {
            let (real, candidate) = class_pair(rate, stated);
            std::iter::once(real).chain(candidate)
        })
        .collect()
}

fn finish_rate(rate: RateDraft, classes: &[RateClass]) -> RateResource {
    let number = |class: &RateClass| {
        let found = classes.binary_search(class);
        // All classes of all resources were collected before, so a miss is impossible; it would
        // name a class that does not exist rather than another tenant's.
        ClassId(found.map_or(u32::MAX, |position| position as u32))
    };
    let finish = |stated: &Stated| {
        let (real, candidate) = class_pair(&rate, stated);
        (number(&real), candidate.as_ref().map(number))
    };
    let (class, candidate_class) = finish(&Stated::default());
    let overrides: Box<[RateOverride]> = rate
        .overrides
        .stated
        .iter()
        .map(|stated| {
            let (class, candidate) = finish(stated);
            RateOverride {
                stated: stated.clone(),
                class,
                candidate,
            }
        })
        .collect();
    let is_closed = |of: &u32| {
        let class = classes.get(overrides[*of as usize].class.0 as usize);
        class.is_some_and(RateClass::grants_nothing)
    };
    let numbered = (0..).zip(&rate.overrides.stated_of);
    let closed = numbered.filter_map(|(number, of)| is_closed(of).then_some(number));
    let closed = closed.collect();
    RateResource {
        name: rate.name,
        ix: ResourceIx(0),
        default: RateOverride {
            stated: rate.default,
            class,
            candidate: candidate_class,
        },
        candidate: rate.candidate,
        global: rate.global,
        near: rate.near,
        addresses: rate.addresses,
        blind: rate.blind,
        mode: rate.mode,
        large_state: rate.large_state,
        networks: Networks::among(rate.overrides.domains.iter()),
        table: Arc::new(RateTable {
            domains: rate.overrides.domains,
            override_of: rate.overrides.stated_of.into_boxed_slice(),
            overrides,
            closed,
        }),
        rows: RateRows::default(),
    }
}

impl Limits {
    /// A draft with the content of this version.
    pub(super) fn to_draft(&self) -> Draft {
        let mut draft = Draft {
            rules: self.rules,
            engine: self.engine,
            namespaces: self.namespaces.clone(),
            descriptors: Arc::clone(&self.descriptors),
            record_keys: Arc::clone(&self.record_keys),
            ..Draft::default()
        };
        for resource in &self.resources {
            match resource {
                Resource::Copies(copies) => draft.copies.push(copies.clone()),
                Resource::Rate(rate) => draft.rates.push(RateDraft {
                    name: rate.name.clone(),
                    default: rate.default.stated.clone(),
                    candidate: rate.candidate.clone(),
                    global: rate.global,
                    near: rate.near,
                    addresses: rate.addresses,
                    blind: rate.blind,
                    mode: rate.mode,
                    large_state: rate.large_state,
                    overrides: OverridesDraft::of(rate),
                }),
            }
        }
        draft
    }
}
