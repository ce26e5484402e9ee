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

use tollgate_shared::place::Place;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::record::LimitsActivation;
use tollgate_shared::wire::statement::Denial;

use super::Engine;
use super::amended::OfPair;
use super::amendments::When;
use super::copy_bans;
use super::denials::Standing;
use super::rule::Rule;
use super::rulings::{Fate, Rulings, Stop};
use super::totals::{class_of_everybody, global_denial};
use super::versions::Versions;
use crate::pairs::{Identity, Opened, Rest};
use crate::stream::Pair;
use tollgate_limits::{Limits, RULES, RateClass};

/// How many denials a slice looks at: less than a millisecond's worth.
const SLICE: usize = 512;

/// The denials in force are being ruled again.
#[derive(Debug)]
pub(super) struct RulingAgain {
    /// The place of what is said next.
    place: Place,
    /// When the pointer was appended, and not before log time.
    at: Timestamp,
    /// Versions that come into force after this one.
    versions: VecDeque<(u64, Brought)>,
    /// What is being done for this one.
    doing: Doing,
}

/// What a version is.
#[derive(Debug)]
enum Brought {
    /// Limits.
    Limits(Arc<Limits>),
    /// An amendment.
    Act(Arc<Act>),
}

/// What is being done for a version.
#[derive(Debug)]
enum Doing {
    /// The denials in force are ruled again.
    Limits {
        /// The limits before it.
        before: Arc<Limits>,
        /// The last denial that was looked at.
        behind: Option<Identity>,
    },
    /// An operator's act, which touches what it names alone: one slice.
    Act(u64, Arc<Act>),
}

impl Engine {
    /// Applies a pointer: the versions that it brings in come into force with the slices of
    /// [`Engine::go_on`].
    pub(super) fn pointer(
        &mut self,
        offset: u64,
        appended: Timestamp,
        pointer: &LimitsActivation,
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
            let brought = match versions.amendment(version) {
                Some(act) => Brought::Act(act),
                None => Brought::Limits(limits),
            };
            found.push_back((version, brought));
            reached = Some(version);
        }
        let place = Place::of_record(self.log.unwrap_or_default(), offset);
        let at = self.log_time.map_or(appended, |log| log.max(appended));
        self.next_version(place, at, found);
        Fate::Applied
    }

    /// Puts the next of the versions in force, if there is one.
    fn next_version(
        &mut self,
        place: Place,
        at: Timestamp,
        mut versions: VecDeque<(u64, Brought)>,
    ) {
        let Some((version, brought)) = versions.pop_front() else {
            return self.steps.trim(self.oldest_ordinal());
        };
        let doing = match brought {
            Brought::Limits(limits) => {
                let before = self.steps.newest().limits.clone();
                self.steps.push(version, at, limits);
                Doing::Limits {
                    before,
                    behind: None,
                }
            }
            Brought::Act(act) => {
                self.steps.amended(version);
                Doing::Act(version, act)
            }
        };
        self.ruling_again = Some(RulingAgain {
            place,
            at,
            versions,
            doing,
        });
    }

    /// Rules the next slice of the denials in force again, or does what an operator did.
    pub(super) fn rule_slice_again(&mut self, rulings: &mut Rulings) {
        let Some(mut again) = self.ruling_again.take() else {
            return;
        };
        let at = again.at;
        match &mut again.doing {
            Doing::Act(version, act) => {
                let when = When {
                    version: *version,
                    at,
                };
                self.amend(when, act, &mut again.place, rulings);
            }
            Doing::Limits { before, behind } => {
                let limits = self.steps.newest().limits.clone();
                let walked = self.denials.walk(*behind, at, SLICE);
                for (identity, live) in walked.in_force {
                    let scope = Again {
                        identity,
                        resource: live.resource,
                        domain: live.domain,
                        at,
                    };
                    self.rule_one_again(scope, Touch::Nothing, &mut again.place, rulings);
                }
                if walked.upto.is_some() {
                    *behind = walked.upto;
                    self.ruling_again = Some(again);
                    return;
                }
                let mut voice = self.voice(again.place, rulings);
                self.holders.new_limits(before, &limits, &mut voice);
                again.place = voice.place;
            }
        }
        self.next_version(again.place, at, again.versions);
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

    /// Does something to a scope, and says what has changed about its denial. No denial is started,
    /// unless by a ban.
    pub(super) fn rule_one_again(
        &mut self,
        again: Again,
        touch: Touch,
        place: &mut Place,
        rulings: &mut Rulings,
    ) {
        let identity = again.identity;
        let newest = self.steps.newest();
        let (limits, version, ordinal) = (newest.limits.clone(), newest.version, newest.ordinal);
        let rule = Rule::of(&limits, &again.resource);
        let nothing = RateClass::inaccessible();
        let whole = class_of_everybody(rule.global());
        let domain = again.domain.as_deref();
        let (class, stated) = match domain {
            Some(domain) => rule
                .class_of(&limits, &nothing, domain)
                .unwrap_or((&nothing, false)),
            None => (&whole, false),
        };
        let mut amended = domain.map_or_else(OfPair::default, |domain| {
            let said = self.amended.of(identity, &again.resource, domain);
            rule_of_amended(&limits, &again.resource, said)
        });
        if self.table.open(identity) == Opened::New {
            if touch != Touch::Nothing || !amended.is_banned(again.at) {
                // A pair stays while it is denied, so there is nothing to be said.
                self.table.abandon();
                self.denials.end(identity);
                return;
            }
            self.table.working().begin(class, ordinal);
        }
        let working = self.table.working();
        match domain {
            Some(domain) => {
                if self.steps.migrate(working, &again.resource, domain) {
                    rulings.pair_forgotten(&again.resource);
                }
            }
            None => self.steps.migrate_whole(working, &again.resource),
        }
        let before = working.stated;
        let now = working.pair.now().max(again.at);
        let denied = before.is_some_and(|end| now < end);
        if let Some(until) = touch.apply(&mut working.pair, class, (now, denied)) {
            amended.pardon = Some(until);
            let said = self.amended.pair(identity);
            let pardon = Some(until);
            self.amended.set_pair(identity, OfPair { pardon, ..said });
        }
        // Copies have windows of no kind: what else denies them is that they are full, and said elsewhere.
        let of_copies =
            copy_bans::counts_here(&limits, &again.resource, (self.partition, self.partitions));
        let own: Option<Denial> = match rule {
            _ if !denied || of_copies => None,
            Rule::Limited { rate, stated: true } if domain.is_none() => rate
                .global()
                .and_then(|limit| global_denial(limit, working, now, version)),
            _ if stated => {
                let closure = working.pair.closure(class, now);
                closure.map(|closure| rule.denial(class, closure, (now, version)))
            }
            _ => None,
        };
        let denial = amended.denial(own, now);
        let end = denial.map(|denial| denial.end);
        working.stated = end;
        // Instants other than the pair's time were asked: it keeps its ten minutes.
        if denied || end.is_some() {
            working.rest = Rest::LONG;
        }
        let matters = working.pair.matters_until(class);
        working.stays_at_least(matters.max(end.unwrap_or_default()));
        self.table.close();
        if end == before {
            if end.is_none() {
                // It has ended at the pair's own time.
                self.denials.end(identity);
            }
            return;
        }
        let standing = Standing {
            identity,
            place: *place,
            now,
            over: self.now(),
            before,
            denial,
        };
        let names = || (again.resource, again.domain);
        self.denials.follow(standing, names, rulings);
        place.entry = place.entry.saturating_add(1);
    }
}

/// A scope that is ruled again.
pub(super) struct Again {
    pub identity: Identity,
    pub resource: Arc<str>,
    /// None: everybody.
    pub domain: Option<Arc<str>>,
    /// At the greater of this and its own time.
    pub at: Timestamp,
}

/// What is done to a pair before it is ruled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// Nothing.
    Nothing,
    /// Everything that it counted is forgotten.
    Reset,
    /// Its newest copies are taken out of what counts.
    Refund(u64),
    /// It is pardoned if it is denied: its debt is taken back to its limits.
    Pardon,
}

impl Touch {
    /// Does it to a pair that is denied at `now` or not; until when the pair is pardoned by it, if it is. Never is no instant: who is never let
    /// in again is not pardoned.
    pub(super) fn apply(
        self,
        pair: &mut Pair,
        class: &RateClass,
        (now, denied): (Timestamp, bool),
    ) -> Option<Timestamp> {
        match self {
            Self::Nothing => {}
            Self::Reset => pair.reset(class),
            Self::Refund(hits) => pair.refund(class, hits),
            Self::Pardon if !denied => {}
            Self::Pardon => {
                pair.forgive(class);
                let closure = pair.closure(class, now)?;
                return Some(closure.end).filter(|end| *end < Timestamp::MAX);
            }
        }
        None
    }
}

/// What amendments say of a pair where its namespace heeds denials at all.
pub(super) fn rule_of_amended(limits: &Limits, resource: &str, said: OfPair) -> OfPair {
    match said.ban {
        Some(_) if limits.namespace_of(resource).ignore_configured => OfPair { ban: None, ..said },
        _ => said,
    }
}
