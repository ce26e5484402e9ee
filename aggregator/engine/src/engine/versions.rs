//! The limits versions that this log has seen, and how a pair that missed some of them comes under the
//! newest.
//!
//! ```text
//! versions 4, 9, 12     a pair ruled by 4 last: from 4 to 9, then from 9 to 12, at its next entry
//! ```
//!
//! No version causes a walk over all pairs. Only denials in force are ruled again at once (their names are
//! known); every other pair follows at its next entry, one version after the other, with the same result.
//! Only versions that change a pair's own limits matter to it.
//!
//! A version of rows that name pairs is no step: it concerns these pairs alone, and each of them comes under it at once.
//! Its limits take the place of the newest step's, which are the same for all other pairs. So however many rows are set,
//! nothing more is kept.
//!
//! What stays true: if a pair missed more than [`STEPS_MAX`] steps, those before them count as one. If they changed the
//! lengths, the bucket or the tiers that it has, it starts anew with these; its quotas go on by unit and zone in any
//! case. That is lenient, bounds what has to be kept, and depends on the log alone.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;

use crate::pairs::Stored;
use crate::rules::carry_over;
use crate::rules::window::CountsStamps as _;
use tollgate_limits::versions::LimitsBook;
use tollgate_limits::{Limits, RateClass, RateResource, Window, forgets};

/// The checked texts of versions, which the caller provides. It has verified each against the digest in the
/// activation that brings it in.
pub trait Versions {
    /// The limits in force under a version; `None` if it is not at hand.
    fn limits(&self, version: u64) -> Option<Arc<Limits>>;

    /// The lowest version above this one (for `None`, the lowest of all) that is at hand.
    fn next_after(&self, version: Option<u64>) -> Option<u64>;

    /// The operator's act, for a version that leaves the limits unchanged; `None` for limits.
    fn amendment(&self, _version: u64) -> Option<Arc<Act>> {
        None
    }

    /// The act that sets rows, for a version that differs from the one before it by these rows alone.
    fn rows(&self, _version: u64) -> Option<Arc<Act>> {
        None
    }
}

impl Versions for std::collections::BTreeMap<u64, Arc<Limits>> {
    fn limits(&self, version: u64) -> Option<Arc<Limits>> {
        self.get(&version).cloned()
    }

    fn next_after(&self, version: Option<u64>) -> Option<u64> {
        let mut above = match version {
            None => self.range(..),
            Some(version) => self.range((
                std::ops::Bound::Excluded(version),
                std::ops::Bound::Unbounded,
            )),
        };
        above.next().map(|(version, _)| *version)
    }
}

impl Versions for LimitsBook {
    fn limits(&self, version: u64) -> Option<Arc<Limits>> {
        Some(Arc::clone(&self.get(version)?.limits))
    }

    fn next_after(&self, version: Option<u64>) -> Option<u64> {
        self.after(version.unwrap_or(0)).map(|next| next.number)
    }

    fn amendment(&self, version: u64) -> Option<Arc<Act>> {
        let made = self.get(version)?.made.as_ref()?;
        (!made.act.is_limits()).then(|| Arc::clone(&made.act))
    }

    fn rows(&self, version: u64) -> Option<Arc<Act>> {
        let made = self.get(version)?.made.as_ref()?;
        (!made.act.rows().is_empty()).then(|| Arc::clone(&made.act))
    }
}

/// A source without any version.
impl Versions for () {
    fn limits(&self, _: u64) -> Option<Arc<Limits>> {
        None
    }

    fn next_after(&self, _: Option<u64>) -> Option<u64> {
        None
    }
}

/// How many missed steps a pair goes through one by one.
pub(super) const STEPS_MAX: u32 = 255;

/// One version, in the order in which activations brought them in, with the rows that name pairs after it.
#[derive(Clone, Debug)]
pub(super) struct VersionStep {
    /// The number of the last version whose limits it has; 0 before the first activation.
    pub version: u64,
    /// Counted from 0, which is before the first activation.
    pub ordinal: u32,
    /// When its activation was appended, or the latest tick's or earlier step's instant if that is later. Rows after it
    /// leave this as it is.
    pub at: Timestamp,
    /// Its limits.
    pub limits: Arc<Limits>,
}

/// The versions from the oldest one on that a pair may need.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// Ascending and without gaps in their ordinals; never empty.
    steps: VecDeque<VersionStep>,
    newest: VersionStep,
    /// The version that was brought in last: the newest step's, or an amendment after it.
    upto: u64,
    /// When a version of rows took effect whose pairs are coming under it: `newest` has its limits already, the last of
    /// `steps` those before it.
    rows_at: Option<Timestamp>,
}

impl Steps {
    /// Nothing is configured yet.
    pub fn new() -> Self {
        let none = VersionStep {
            version: 0,
            ordinal: 0,
            at: Timestamp::ZERO,
            limits: Arc::default(),
        };
        Self::of(VecDeque::from([none.clone()]), none, 0)
    }

    /// Steps from a snapshot.
    pub fn of(steps: VecDeque<VersionStep>, newest: VersionStep, upto: u64) -> Self {
        Self {
            steps,
            newest,
            upto,
            rows_at: None,
        }
    }

    /// The version in force.
    pub fn newest(&self) -> &VersionStep {
        &self.newest
    }

    /// The number of the version in force, amendments included, if there is one.
    pub fn version(&self) -> Option<u64> {
        (self.newest.ordinal != 0 || self.upto != 0).then_some(self.upto)
    }

    /// Notes an amendment. It is no step: however many there are, pairs do not go through them.
    pub fn amended(&mut self, version: u64) {
        self.upto = version;
    }

    /// All steps that are kept, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &VersionStep> {
        self.steps.iter()
    }

    /// Which versions an activation of `version` brings in; `None` if it is known.
    pub fn needs(&self, version: u64) -> Option<RangeInclusive<u64>> {
        match self.version() {
            Some(known) if version <= known => None,
            Some(known) => Some(known + 1..=version),
            None => Some(0..=version),
        }
    }

    /// Puts a version into force.
    pub fn push(&mut self, version: u64, at: Timestamp, limits: Arc<Limits>) {
        self.upto = version;
        self.newest = VersionStep {
            version,
            ordinal: self.newest.ordinal.saturating_add(1),
            at,
            limits,
        };
        self.steps.push_back(self.newest.clone());
    }

    /// Puts a version of rows into force. Until [`Steps::end_rows`], each pair that migrates comes under the newest step
    /// first, and then under the rows; so every pair that the rows name must migrate, once, and no other one may.
    pub fn begin_rows(&mut self, version: u64, at: Timestamp, limits: Arc<Limits>) {
        self.upto = version;
        (self.newest.version, self.newest.limits) = (version, limits);
        self.rows_at = Some(at);
    }

    /// All pairs that the rows name are under them.
    pub fn end_rows(&mut self) {
        self.rows_at = None;
        if let Some(last) = self.steps.back_mut() {
            *last = self.newest.clone();
        }
    }

    /// Drops versions that no pair needs any more; `oldest` is the lowest one that ruled a pair.
    pub fn trim(&mut self, oldest: Option<u32>) {
        let newest = self.newest.ordinal;
        let needed = oldest
            .unwrap_or(newest)
            .max(newest.saturating_sub(STEPS_MAX));
        while self.steps.front().is_some_and(|step| step.ordinal < needed) {
            self.steps.pop_front();
        }
    }

    /// Brings a domain's pair under the version in force. True: one of the missed versions forgot some of its
    /// use.
    pub fn migrate(&self, stored: &mut Stored, resource: &str, domain: &str) -> bool {
        let class_of = |limits: &Limits| limits.class_of(resource, domain).cloned();
        self.migrate_under(stored, class_of, |_, _, _| {})
    }

    /// Brings a domain's pair under the candidate of the version in force; under versions without a candidate
    /// it keeps its last second. As with real limits, a denied pair is ruled again by each version.
    pub fn migrate_candidate(&self, stored: &mut Stored, resource: &str, domain: &str) {
        let class_of = |limits: &Limits| {
            let class = limits.rate(resource)?.candidate_class_of(domain)?;
            Some(limits.class(class).clone())
        };
        self.migrate_under(stored, class_of, |stored, class, at| {
            let now = stored.pair.now().max(at);
            let closure = class.and_then(|class| stored.pair.closure(class, now));
            let denied = stored.stated.is_some_and(|end| now < end);
            stored.stated = closure.map(|closure| closure.end).filter(|_| denied);
        });
    }

    /// Takes a pair through versions. `class_of` returns a version's limits for it; `ruled_again` is called
    /// for each version.
    fn migrate_under(
        &self,
        stored: &mut Stored,
        class_of: impl Fn(&Limits) -> Option<RateClass>,
        ruled_again: impl Fn(&mut Stored, Option<&RateClass>, Timestamp),
    ) -> bool {
        let mut forgot = false;
        if let Some(oldest) = self.oldest_kept(stored) {
            let class = class_of(&oldest.limits);
            let limits = class.clone().unwrap_or_else(RateClass::inaccessible);
            let time = stored.pair.now();
            let state = &mut stored.pair.state;
            if carry_over::print_of(&limits) == stored.print {
                forgot = carry_over::follow(&limits, state, time);
            } else {
                carry_over::start_empty(&limits, state, time);
                forgot = true;
            }
            ruled_again(stored, class.as_ref(), oldest.at);
            end_by(stored, oldest.at);
            stored.ordinal = oldest.ordinal;
        }
        let mut under = |old: &Limits, new: &Limits, at: Timestamp, stored: &mut Stored| {
            let bare = RateClass::inaccessible;
            let (old, class) = (class_of(old), class_of(new));
            if old != class {
                let (old, new) = (old.unwrap_or_else(bare), class.clone().unwrap_or_else(bare));
                forgot |= !forgets(&old, &new).is_empty();
                stored.pair.new_limits(&old, &new);
            }
            ruled_again(stored, class.as_ref(), at);
        };
        self.migrate_by(stored, |old, new, stored| {
            under(&old.limits, &new.limits, new.at, stored);
        });
        if let (Some(at), Some(before)) = (self.rows_at, self.steps.back()) {
            under(&before.limits, &self.newest.limits, at, stored);
            end_by(stored, at);
        }
        let class = class_of(&self.newest.limits);
        stored.print = match class {
            Some(class) => carry_over::print_of(&class),
            None => carry_over::print_of(&RateClass::inaccessible()),
        };
        forgot
    }

    /// The oldest version that is kept, for pairs that missed more versions; `None` for other pairs.
    fn oldest_kept(&self, stored: &Stored) -> Option<&VersionStep> {
        let oldest = self.newest.ordinal.checked_sub(STEPS_MAX)?;
        let slept_longer = stored.ordinal < oldest;
        let mut steps = self.steps.iter().filter(|_| slept_longer);
        steps.find(|step| step.ordinal == oldest)
    }

    /// Brings a resource's own pair under the version in force: it keeps what counts, however the global
    /// limit changes, and forgets it under versions without one.
    pub fn migrate_whole(&self, stored: &mut Stored, resource: &str) {
        let under = |limits: &Limits, stored: &mut Stored| {
            let global = limits.rate(resource).and_then(RateResource::global);
            match (global, stored.pair.state.windows.first_mut()) {
                (Some(limit), Some(stamps)) => Window::of_second(limit).round(stamps),
                _ => stored.pair.state.begin_window(),
            }
        };
        if let Some(oldest) = self.oldest_kept(stored) {
            under(&oldest.limits, stored);
            end_by(stored, oldest.at);
            stored.ordinal = oldest.ordinal;
        }
        self.migrate_by(stored, |_, new, stored| under(&new.limits, stored));
    }

    /// Takes the pair through the versions that it missed, all of which are kept.
    fn migrate_by(
        &self,
        stored: &mut Stored,
        mut step: impl FnMut(&VersionStep, &VersionStep, &mut Stored),
    ) {
        let slept = |step: &&VersionStep| stored.ordinal < step.ordinal;
        let first = self.steps.len() - self.steps.iter().filter(slept).count();
        for index in first.max(1)..self.steps.len() {
            let (old, new) = (&self.steps[index - 1], &self.steps[index]);
            step(old, new, stored);
            end_by(stored, new.at);
            stored.ordinal = new.ordinal;
        }
    }
}

/// A denial that was over at a version's record stays over: a version starts no denials.
fn end_by(stored: &mut Stored, at: Timestamp) {
    let now = stored.pair.now().max(at);
    stored.stated = stored.stated.filter(|end| now < *end);
}
