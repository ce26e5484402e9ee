//! A limits pointer: new versions come into force, and the denials in force are ruled again.
//!
//! ```text
//! version 9 raises api.search to 5 a second
//!   acme, denied until 1.000001 under 2 a second      -> has room: lifted
//!   globex, denied until 1.400001                     -> closed until 0.900001: stated anew
//!   initech, closed by version 9 alone                -> denied from its next entry
//! ```
//!
//! At the greater of the pair's time and the version's record, in the order of the scopes' hashes, a
//! slice at a time: a hundred thousand denials are not one pause. Knows nothing of how versions are
//! written. What stays true: a version starts no denial, and the last slice is done before the next
//! record is applied, so that the slices' size is seen by nobody.

use std::collections::VecDeque;
use std::sync::Arc;

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::place::Place;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::Pointer;
use tollgate_shared::wire::statement::Denial;

use super::Engine;
use super::denials::{LiveDenial, Standing};
use super::hits::Rule;
use super::rulings::{Fate, Rulings, Stop};
use super::totals::global_denial;
use super::versions::Versions;
use crate::limits::{Limits, RULES, RateClass};
use crate::pairs::{Identity, Opened, slot_of};

/// How many denials a slice looks at: less than a millisecond's worth.
const SLICE: usize = 1_024;

/// The denials in force are being ruled again.
#[derive(Debug)]
pub(super) struct RulingAgain {
    /// The place of what is said next.
    place: Place,
    /// When the pointer was appended, and not before log time.
    at: Timestamp,
    /// Versions that come into force after this one.
    versions: VecDeque<(u64, Arc<Limits>)>,
    /// The limits before the version that is ruled by now.
    before: Arc<Limits>,
    /// The last denial that was looked at.
    behind: Option<Identity>,
}

impl Engine {
    /// Applies a pointer: the versions that it brings in come into force with the slices of
    /// [`Engine::go_on`].
    pub(super) fn pointer(
        &mut self,
        offset: u64,
        appended: Timestamp,
        pointer: &Pointer,
        versions: &dyn Versions,
    ) -> Fate {
        if self.steps.needs(pointer.version).is_none() {
            return Fate::PointerKnown;
        }
        if let Some(stop) = self.cannot_follow(offset, pointer.version, versions) {
            return Fate::Stopped(stop);
        }
        let mut found = VecDeque::new();
        let mut reached = self.steps.version();
        while let Some(version) = versions.next_after(reached)
            && version <= pointer.version
            && let Some(limits) = versions.limits(version)
        {
            found.push_back((version, limits));
            reached = Some(version);
        }
        let again = RulingAgain {
            place: Place::of_record(self.log.unwrap_or_default(), offset),
            at: self.log_time.map_or(appended, |log| log.max(appended)),
            versions: found,
            before: Arc::default(),
            behind: None,
        };
        self.next_version(again);
        Fate::Applied
    }

    /// Puts the next of the versions in force, if there is one.
    fn next_version(&mut self, mut again: RulingAgain) {
        let Some((version, limits)) = again.versions.pop_front() else {
            return self.steps.trim(self.table.oldest_ordinal());
        };
        again.before = self.steps.newest().limits.clone();
        again.behind = None;
        self.steps.push(version, again.at, limits);
        self.ruling_again = Some(again);
    }

    /// Rules the next slice of the denials in force again.
    pub(super) fn rule_slice_again(&mut self, rulings: &mut Rulings) {
        let Some(mut again) = self.ruling_again.take() else {
            return;
        };
        let limits = self.steps.newest().limits.clone();
        let walked = self.denials.walk(again.behind, again.at, SLICE);
        for (identity, live) in walked.in_force {
            if planted(Bug::DenialKept) {
                break;
            }
            self.rule_one_again(&limits, identity, live, &mut again.place, rulings);
        }
        if walked.upto.is_some() {
            again.behind = walked.upto;
            self.ruling_again = Some(again);
            return;
        }
        let mut voice = self.voice(again.place, rulings);
        self.holders.new_limits(&again.before, &limits, &mut voice);
        again.place = voice.place;
        self.next_version(again);
    }

    /// Why a pointer's versions cannot be ruled by, looked at before any of them is.
    fn cannot_follow(&self, offset: u64, target: u64, versions: &dyn Versions) -> Option<Stop> {
        let missing = |version| Stop::MissingVersion { version, offset };
        let mut reached = self.steps.version();
        while reached.is_none_or(|reached| reached < target) {
            let next = versions.next_after(reached);
            let Some(version) = next.filter(|version| *version <= target) else {
                return Some(missing(target));
            };
            let Some(limits) = versions.limits(version) else {
                return Some(missing(version));
            };
            let rules = limits.rules();
            if rules != RULES {
                return Some(Stop::UnknownRules { version, rules });
            }
            reached = Some(version);
        }
        None
    }

    fn rule_one_again(
        &mut self,
        limits: &Limits,
        identity: Identity,
        live: LiveDenial,
        place: &mut Place,
        rulings: &mut Rulings,
    ) {
        if self.table.open(identity) == Opened::New {
            // A pair stays while it is denied, so this does not happen.
            self.table.abandon();
            self.denials.end(identity);
            return;
        }
        let newest = self.steps.newest();
        let (version, at) = (newest.version, newest.at);
        let working = self.table.working();
        match &live.domain {
            Some(domain) => self.steps.migrate(working, &live.resource, domain),
            None => self.steps.migrate_whole(working),
        }
        let Some(stated) = working.stated else {
            // It has ended at the pair's own time.
            self.table.close();
            self.denials.end(identity);
            return;
        };
        let now = working.pair.now().max(at);
        let rule = Rule::of(limits, &live.resource);
        let nothing = RateClass::default();
        let domain = live.domain.as_deref().unwrap_or(EVERYBODY);
        let class = rule.class_of(limits, &nothing, domain);
        let denial: Option<Denial> = match (&live.domain, rule, class) {
            (Some(_), _, Some((class, true))) => {
                let closure = working.pair.closure(class, now);
                closure.map(|closure| rule.denial(class, closure, version))
            }
            (None, Rule::Limited { rate, stated: true }, _) => rate
                .global()
                .and_then(|limit| global_denial(limit, working, now, version)),
            _ => None,
        };
        let end = denial.map(|denial| denial.end);
        let class = match &live.domain {
            Some(_) => class.map_or(&nothing, |(class, _)| class),
            None => &nothing,
        };
        working.stated = end;
        let stays = working.pair.stays_until(class).max(end.unwrap_or_default());
        working.leaves = slot_of(stays);
        self.table.close();
        if end == Some(stated) {
            return;
        }
        let standing = Standing {
            identity,
            place: *place,
            now,
            before: Some(stated),
            denial,
        };
        let names = || (live.resource, live.domain);
        self.denials.follow(standing, names, rulings);
        place.entry = place.entry.saturating_add(1);
    }
}
