//! A limits pointer: new versions come into force, and the denials in force are ruled again.
//!
//! ```text
//! version 9 raises api.search to 5 a second
//!   acme, denied until 1.000001 under 2 a second      -> has room: lifted
//!   globex, denied until 1.400001                     -> closed until 0.900001: stated anew
//!   initech, closed by version 9 alone                -> denied from its next entry
//! ```
//!
//! At the greater of the pair's time and the version's record, in the order of the scopes' hashes.
//! Knows nothing of how versions are written. What stays true: a version starts no denial.

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

impl Engine {
    /// Applies a pointer.
    pub(super) fn pointer(
        &mut self,
        offset: u64,
        appended: Timestamp,
        pointer: &Pointer,
        versions: &dyn Versions,
        rulings: &mut Rulings,
    ) -> Fate {
        if self.steps.needs(pointer.version).is_none() {
            return Fate::PointerKnown;
        }
        if let Some(stop) = self.cannot_follow(offset, pointer.version, versions) {
            return Fate::Stopped(stop);
        }
        let mut place = Place::of_record(self.log.unwrap_or_default(), offset);
        let at = self.log_time.map_or(appended, |log| log.max(appended));
        while let Some(version) = versions.next_after(self.steps.version())
            && version <= pointer.version
            && let Some(limits) = versions.limits(version)
        {
            let before = self.steps.newest().limits.clone();
            self.steps.push(version, at, limits.clone());
            self.rule_again(&mut place, rulings);
            let mut voice = self.voice(place, rulings);
            self.holders.new_limits(&before, &limits, &mut voice);
            place = voice.place;
        }
        self.steps.trim(self.table.oldest_ordinal());
        Fate::Applied
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

    /// Rules every denial in force again under the newest version.
    ///
    /// One at a time behind a scope's hash, so that it could as well be done in slices.
    fn rule_again(&mut self, place: &mut Place, rulings: &mut Rulings) {
        let limits = self.steps.newest().limits.clone();
        let at = self.steps.newest().at;
        let mut behind = None;
        while let Some((identity, live)) = self.denials.next(behind, at) {
            let live = live.clone();
            self.rule_one_again(&limits, identity, live, place, rulings);
            behind = Some(identity);
        }
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
            return self.denials.end(identity);
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
            return self.denials.end(identity);
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
