//! A limits activation: new versions come into force, and the denials in force are ruled again.
//!
//! ```text
//! version 9 raises api.search to 5 a second
//!   acme, denied until 1.000001 under 2 a second      -> has room: lifted
//!   globex, denied until 1.400001                     -> closed until 0.900001: the new end is stated
//!   initech, closed by version 9 alone                -> denied from its next entry
//! ```
//!
//! A version of rows that name pairs rules these pairs alone: the state and limits of all others stay the same, so their
//! denials do, too.
//!
//! They are ruled at the pair's time or the time of the version's record, whichever is later, in the order of the
//! scopes' hashes, a slice at a time, so that a hundred thousand denials cause no pause. Knows nothing of how
//! versions are written. What stays true: a version starts no denial, and the last slice is done before the next
//! record is applied, so no result depends on the size of the slices.

use std::collections::VecDeque;
use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::record::LimitsActivation;
use tollgate_shared::wire::statement::Denial;

use super::Engine;
use super::amended::PairAmendments;
use super::amendments::AmendedAt;
use super::banned_scopes::BannedScopes;
use super::copy_bans;
use super::denials::ScopeStanding;
use super::row_versions::NamedPairs;
use super::rule::Rule;
use super::rulings::{Fate, Rulings, Stop};
use super::totals::{class_of_everybody, global_denial};
use super::versions::Versions;
use crate::pairs::{Identity, Opened, Rest, Stored};
use crate::stream::Pair;
use tollgate_limits::versions::names_pairs;
use tollgate_limits::{Limits, RULES, RateClass};

/// How many denials a slice looks at: less than a millisecond of work.
pub(super) const SLICE: usize = 512;

/// State of ruling the denials in force again.
#[derive(Debug)]
pub(super) struct RulingAgain {
    /// The log position of the next statement.
    position: LogPosition,
    /// When the activation was appended, or [`Engine::now`] if that is later: a new leader's clock may be behind.
    at: Timestamp,
    /// Versions that come into force after the present one.
    versions: VecDeque<(u64, Brought)>,
    /// Work for the present one.
    doing: Doing,
}

/// What a version contains.
#[derive(Debug)]
enum Brought {
    /// Limits.
    Limits(Arc<Limits>),
    /// Limits that differ by rows that name pairs, and the act that sets these.
    Rows(Arc<Limits>, Arc<Act>),
    /// An amendment.
    Act(Arc<Act>),
}

/// Work for a version.
#[derive(Debug)]
enum Doing {
    /// The denials in force are ruled again.
    Limits {
        /// The limits before it.
        before: Arc<Limits>,
        /// The last denial that was ruled again.
        behind: Option<Identity>,
    },
    /// The pairs that rows name come under them.
    Rows(NamedPairs),
    /// An operator's act, which changes only what it names: one slice.
    Act(u64, Arc<Act>),
    /// The scopes that an operator's ban is about are ruled again.
    Banned(BannedScopes),
}

impl Engine {
    /// Applies an activation: its versions come into force with the slices of [`Engine::go_on`].
    pub(super) fn activate(
        &mut self,
        offset: u64,
        appended: Timestamp,
        activation: &LimitsActivation,
        versions: &dyn Versions,
    ) -> Fate {
        if self.steps.needs(activation.version).is_none() {
            return Fate::ActivationKnown;
        }
        if let Some(stop) = self.cannot_follow(offset, activation.version, versions) {
            return Fate::Stopped(stop);
        }
        let mut found = VecDeque::new();
        let mut reached = self.steps.version();
        while let Some(version) = versions.next_after(reached)
            && version <= activation.version
            && let Some(limits) = versions.limits(version)
        {
            let brought = match versions.amendment(version) {
                Some(act) => Brought::Act(act),
                None => match versions.rows(version).filter(|act| names_pairs(act)) {
                    Some(act) => Brought::Rows(limits, act),
                    None => Brought::Limits(limits),
                },
            };
            found.push_back((version, brought));
            reached = Some(version);
        }
        let position = LogPosition::of_record(self.log.unwrap_or_default(), offset);
        let at = self.now().max(appended);
        self.next_version(position, at, found);
        Fate::Applied
    }

    /// Puts the next of the versions into force, if there is one.
    fn next_version(
        &mut self,
        position: LogPosition,
        at: Timestamp,
        mut versions: VecDeque<(u64, Brought)>,
    ) {
        let Some((version, brought)) = versions.pop_front() else {
            return self.steps.trim(self.oldest_ordinal());
        };
        let is_first = self.steps.newest().ordinal == 0;
        let doing = match brought {
            Brought::Rows(limits, act) if !is_first => {
                Doing::Rows(self.begin_rows((version, at), limits, &act))
            }
            Brought::Limits(limits) | Brought::Rows(limits, _) => {
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
            position,
            at,
            versions,
            doing,
        });
    }

    /// Rules the next slice of the denials in force again, or applies an operator's act.
    pub(super) fn rule_slice_again(&mut self, rulings: &mut Rulings) {
        let Some(mut again) = self.ruling_again.take() else {
            return;
        };
        let at = again.at;
        match &mut again.doing {
            Doing::Act(version, act) => {
                let when = AmendedAt {
                    version: *version,
                    at,
                };
                if let Some(scopes) = self.amend(when, act, &mut again.position, rulings) {
                    again.doing = Doing::Banned(scopes);
                    self.ruling_again = Some(again);
                    return;
                }
            }
            Doing::Banned(scopes) => {
                if self.rule_banned(scopes, at, &mut again.position, rulings) {
                    self.ruling_again = Some(again);
                    return;
                }
            }
            Doing::Rows(named) => {
                if self.rule_named(named, at, &mut again.position, rulings) {
                    self.ruling_again = Some(again);
                    return;
                }
            }
            Doing::Limits { before, behind } => {
                let limits = self.steps.newest().limits.clone();
                let walked = self.denials.walk(*behind, at, SLICE);
                for (identity, live) in walked.in_force {
                    let scope = ScopeToRule {
                        identity,
                        resource: live.resource,
                        domain: live.domain,
                        at,
                    };
                    self.rule_one_again(scope, PairAction::Nothing, &mut again.position, rulings);
                }
                if walked.upto.is_some() {
                    *behind = walked.upto;
                    self.ruling_again = Some(again);
                    return;
                }
                let mut sink = self.sink(again.position, rulings);
                self.holders.new_limits(before, &limits, &mut sink);
                again.position = sink.position;
            }
        }
        self.next_version(again.position, at, again.versions);
    }

    /// Why an activation's versions cannot be used, if so; checked before any of them comes into force.
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

    /// Applies `touch` to a scope, and states what has changed about its denial. Starts no denial, except for a ban.
    pub(super) fn rule_one_again(
        &mut self,
        again: ScopeToRule,
        touch: PairAction,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) {
        let identity = again.identity;
        let newest = self.steps.newest();
        let (limits, version) = (newest.limits.clone(), newest.version);
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
        let mut amended = domain.map_or_else(PairAmendments::default, |domain| {
            let of_pair = self.amended.of(identity, &again.resource, domain);
            rule_of_amended(&limits, &again.resource, of_pair)
        });
        let bans = touch == PairAction::Nothing && amended.is_banned(again.at);
        if !self.open_again(&again, class, bans, rulings) {
            return;
        }
        let working = self.table.working();
        let before = working.stated;
        let now = working.pair.now().max(again.at);
        let denied = before.is_some_and(|end| now < end);
        if let Some(until) = touch.apply(&mut working.pair, class, (now, denied)) {
            amended.pardon = Some(until);
            self.amended.pardon_pair(identity, until);
        }
        // Pairs of copies have no windows. Their other denial is that they are full, which is stated elsewhere.
        let of_copies =
            copy_bans::counts_here(&limits, &again.resource, (self.partition, self.partitions));
        let own: Option<Denial> = match rule {
            _ if !denied || of_copies => None,
            Rule::Limited { rate, stated: true } if domain.is_none() => rate
                .global()
                .and_then(|limit| global_denial(limit, working, now, version)),
            _ if stated => closed(working, rule, class, (now, version)),
            _ => None,
        };
        let denial = amended.denial(own, now);
        let end = denial.map(|denial| denial.end);
        working.stated = end;
        // The pair was evaluated at an instant other than its own time, so it is kept for ten minutes.
        if denied || end.is_some() {
            working.rest = Rest::LONG;
        }
        let matters = working.pair.matters_until(class);
        working.stays_at_least(matters.max(end.unwrap_or_default()));
        self.table.close();
        let standing = ScopeStanding {
            identity,
            position: *position,
            now,
            over: self.now(),
            before,
            denial,
        };
        self.state_again(again, standing, position, rulings);
    }

    /// States what has changed about a scope's denial, if anything has.
    fn state_again(
        &mut self,
        again: ScopeToRule,
        standing: ScopeStanding,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) {
        let end = standing.denial.map(|denial| denial.end);
        if end == standing.before {
            if end.is_none() {
                // The denial has ended at the pair's own time.
                self.denials.end(standing.identity);
            }
            return;
        }
        let names = || (again.resource, again.domain);
        self.denials.follow(standing, names, rulings);
        position.entry = position.entry.saturating_add(1);
    }

    /// Opens a scope as of the version in force. False if it is not kept and nothing bans it: it was not denied, since
    /// a denied one is kept, so there is nothing to state.
    fn open_again(
        &mut self,
        again: &ScopeToRule,
        class: &RateClass,
        bans: bool,
        rulings: &mut Rulings,
    ) -> bool {
        if self.table.open(again.identity) == Opened::New {
            if !bans {
                self.table.abandon();
                self.denials.end(again.identity);
                return false;
            }
            let ordinal = self.steps.newest().ordinal;
            self.table.working().begin(class, ordinal);
        }
        let working = self.table.working();
        match again.domain.as_deref() {
            Some(domain) => {
                if self.steps.migrate(working, &again.resource, domain) {
                    rulings.pair_forgotten(&again.resource);
                }
            }
            None => self.steps.migrate_whole(working, &again.resource),
        }
        true
    }
}

/// A scope to rule again.
pub(super) struct ScopeToRule {
    pub identity: Identity,
    pub resource: Arc<str>,
    /// `None`: everybody.
    pub domain: Option<Arc<str>>,
    /// Ruled at this instant or the scope's own time, whichever is later.
    pub at: Timestamp,
}

/// What is done to a pair before it is ruled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairAction {
    /// Nothing.
    Nothing,
    /// Forgets everything that the pair has counted.
    Reset,
    /// Removes its newest copies from what counts.
    Refund(u64),
    /// Pardons the pair if it is denied: reduces its debt to its limits.
    Pardon,
}

impl PairAction {
    /// Applies it to a pair, which is denied at `now` or not. Returns until when this pardons the pair, if it does. A
    /// pair that would never open again has no such instant and is not pardoned.
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

/// What amendments state about a pair, without its ban where the namespace ignores denials.
pub(super) fn rule_of_amended(
    limits: &Limits,
    resource: &str,
    of_pair: PairAmendments,
) -> PairAmendments {
    match of_pair.ban {
        Some(_) if limits.namespace_of(resource).ignore_configured => PairAmendments {
            ban: None,
            ..of_pair
        },
        _ => of_pair,
    }
}

/// The denial of a pair that is closed under its class.
fn closed(
    stored: &Stored,
    rule: Rule<'_>,
    class: &RateClass,
    (now, version): (Timestamp, u64),
) -> Option<Denial> {
    let closure = stored.pair.closure(class, now)?;
    Some(rule.denial(class, closure, (now, version)))
}
