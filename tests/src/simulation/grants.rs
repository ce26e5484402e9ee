//! Laws 3 and 6: each operation on copies comes to what a ledger of the check's own comes to, by limits read from the
//! document's text.
//!
//! ```text
//! before the record    acme holds 2 and 1, limit = 4
//! reserve 3 for acme, at least 1     1 is granted, kept down by acme's limit
//! hold 2 for acme                    2 of them too many
//! release 2 of that                  it is over: nothing is said
//! afterwards           the engine lists what the ledger has
//! ```
//!
//! Before each record the ledger is made anew from the engine's list of holds, and shares nothing with its counts, its
//! limits and its operations: what one record does wrongly is found there, and not held against the next. Lists of
//! beats and ticks are none of its business. What stays true: an operation that is refused changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate::core::limits_book::{Made, Version};
use tollgate_engine::copies::{Copies, HoldState};
use tollgate_engine::engine::{Engine, Fate};
use tollgate_shared::holdings::TransferId;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::holds::{Does, HoldBatch, HoldOp};
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::{VerdictSays, Why};

use super::documents::DOMAINS;
use super::fullness::{AllSizes, Sizes};
use super::watch::Ruled;

/// Copies of one domain, held or staged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    domain: &'static str,
    groups: Vec<Box<str>>,
    copies: u32,
    /// What is lost is remembered, and does not count.
    is_live: bool,
}

/// A hold: its epoch and its number.
type HoldName = (u128, u64);

/// The copies of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ledger {
    holds: BTreeMap<HoldName, Entry>,
    staged: BTreeMap<TransferId, Entry>,
}

/// Ledgers, as they were before it, of the resources that a batch is about, and which numbers of its epoch have been ended in each.
#[derive(Debug, Default)]
pub(super) struct Ledgers(BTreeMap<Box<str>, (Ledger, BTreeSet<u64>)>);

/// What holds for one operation beside limits.
#[derive(Clone, Copy, Debug)]
struct Rule<'a> {
    sizes: &'a Sizes,
    /// Denials of the namespace are heeded.
    is_heeded: bool,
    is_ended: bool,
    is_banned: bool,
}

/// What an operation has to come to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing is said.
    Done,
    Granted(u32, Room),
    Counted(u32, Room),
    Seized(u32),
    Ended,
    Refused(Why),
}

/// The scopes that have the least room, where that is less than what was asked for.
type Room = Vec<Scope>;

impl Ledgers {
    /// What an engine lists of the resources of a batch.
    pub(super) fn before(engine: &Engine, batch: &HoldBatch<'_>) -> Self {
        let all = engine.copies();
        let of_it = all.filter(|(name, _)| batch.resources().contains(&&***name));
        let sender = batch.sender;
        Self(
            of_it
                .map(|(name, copies)| {
                    let agent = copies.known_agent(sender.agent, sender.epoch);
                    let ended = agent.into_iter().flat_map(|agent| copies.ended_of(agent));
                    ((**name).into(), (Ledger::of(copies), ended.collect()))
                })
                .collect(),
        )
    }
}

impl Ledger {
    fn of(copies: &Copies) -> Self {
        let entry = |domain: &str, groups: &[&str], copies, is_live| Entry {
            domain: known(domain),
            groups: groups.iter().map(|name| Box::from(*name)).collect(),
            copies,
            is_live,
        };
        Self {
            holds: copies
                .oldest_first()
                .map(|hold| {
                    let is_live = hold.state == HoldState::Live;
                    let one = entry(hold.domain, &hold.groups, hold.copies, is_live);
                    ((hold.epoch, hold.id.number), one)
                })
                .collect(),
            staged: copies
                .staged()
                .map(|one| (one.id, entry(one.domain, &one.groups, one.copies, true)))
                .collect(),
        }
    }

    fn sum(&self, scope: &Scope) -> u64 {
        let all = self.holds.values().chain(self.staged.values());
        let counts = |one: &&Entry| {
            one.is_live
                && match scope {
                    Scope::Pair(domain) => *one.domain == **domain,
                    Scope::Group(group) => one.groups.contains(group),
                    Scope::Resource => true,
                }
        };
        all.filter(counts).map(|one| u64::from(one.copies)).sum()
    }

    /// The most of so many copies that all limits leave room for, and what keeps them below.
    fn room(&self, sizes: &Sizes, domain: &str, copies: u32) -> (u32, Room) {
        let limited = sizes.limited_scopes(domain).into_iter();
        let rooms: Vec<(u64, Scope)> = limited
            .map(|(scope, limit)| (limit.saturating_sub(self.sum(&scope)), scope))
            .collect();
        let least = rooms.iter().map(|(room, _)| *room).min();
        match least.filter(|least| *least < u64::from(copies)) {
            Some(least) => {
                let nearest = rooms.into_iter().filter(|(room, _)| *room == least);
                (least as u32, nearest.map(|(_, scope)| scope).collect())
            }
            None => (copies, Room::new()),
        }
    }

    fn live(&mut self, name: HoldName) -> Option<&mut Entry> {
        self.holds.get_mut(&name).filter(|one| one.is_live)
    }

    fn begin(&mut self, name: HoldName, domain: &str, copies: u32, sizes: &Sizes) {
        let entry = Entry {
            domain: known(domain),
            groups: sizes.groups_of(domain),
            copies,
            is_live: true,
        };
        self.holds.insert(name, entry);
    }

    /// Takes copies from a hold; with the last one it is over.
    fn take_from(&mut self, name: HoldName, copies: u32) -> Result<Entry, Why> {
        let one = self.live(name).ok_or(Why::UnknownHold)?;
        if one.copies < copies {
            return Err(Why::TooManyCopies);
        }
        one.copies -= copies;
        let taken = Entry {
            copies,
            ..one.clone()
        };
        if one.copies == 0 {
            self.holds.remove(&name);
        }
        Ok(taken)
    }

    /// Does an operation of an epoch.
    fn follow(&mut self, epoch: u128, op: &HoldOp<'_>, rule: Rule<'_>) -> Outcome {
        let name = (epoch, op.number);
        match op.does {
            Does::Reserve {
                domain,
                copies,
                min,
            } => self.reserve(name, domain, min..=copies, rule),
            Does::Hold { domain, copies } => {
                if rule.is_ended {
                    return Outcome::Ended;
                }
                self.holds.remove(&name);
                let (granted, nearest) = self.room(rule.sizes, domain, copies);
                self.begin(name, domain, copies, rule.sizes);
                match rule.is_banned {
                    true => Outcome::Counted(copies, vec![Scope::Pair(domain.into())]),
                    false => Outcome::Counted(copies - granted, nearest),
                }
            }
            Does::Release { copies } => match self.take_from(name, copies) {
                Ok(_) => Outcome::Done,
                Err(why) => Outcome::Refused(why),
            },
            Does::Transfer { copies, to, .. } => {
                let held = self.live(name).map_or(0, |one| one.copies);
                if copies <= held && self.staged.contains_key(&to) {
                    return Outcome::Refused(Why::TransferExists);
                }
                match self.take_from(name, copies) {
                    Ok(staged) => {
                        self.staged.insert(to, staged);
                        Outcome::Done
                    }
                    Err(why) => Outcome::Refused(why),
                }
            }
            Does::Seize { from } => {
                if rule.is_ended {
                    return Outcome::Ended;
                }
                if self.live(name).is_some() {
                    return Outcome::Refused(Why::HoldExists);
                }
                match self.staged.remove(&from) {
                    Some(one) => {
                        let copies = one.copies;
                        self.holds.insert(name, one);
                        Outcome::Seized(copies)
                    }
                    None => Outcome::Refused(Why::UnknownTransfer),
                }
            }
            Does::Cancel => {
                if self.live(name).is_some() {
                    self.holds.remove(&name);
                }
                Outcome::Done
            }
        }
    }

    fn reserve(
        &mut self,
        name: HoldName,
        domain: &str,
        wanted: std::ops::RangeInclusive<u32>,
        rule: Rule<'_>,
    ) -> Outcome {
        let (min, copies) = (*wanted.start(), *wanted.end());
        if rule.is_banned && !self.holds.contains_key(&name) {
            return Outcome::Granted(0, vec![Scope::Pair(domain.into())]);
        }
        if rule.is_ended {
            return Outcome::Ended;
        }
        if !rule.is_heeded {
            // Nobody is refused, and what was there is replaced.
            self.begin(name, domain, copies, rule.sizes);
            return Outcome::Granted(copies, Room::new());
        }
        if self.live(name).is_some() {
            return Outcome::Refused(Why::HoldExists);
        }
        let (room, nearest) = self.room(rule.sizes, domain, copies);
        if room < min {
            return Outcome::Granted(0, nearest);
        }
        self.begin(name, domain, room, rule.sizes);
        Outcome::Granted(room, nearest)
    }
}

/// One of the domains that there are here: nothing is allocated for its name.
fn known(domain: &str) -> &'static str {
    let found = DOMAINS.into_iter().find(|one| *one == domain);
    found.unwrap_or("(none of them)")
}

/// Whether what was said of an operation is what it came to.
fn is_said(outcome: &Outcome, says: Option<&VerdictSays>) -> bool {
    let is_near = |by: &Option<Scope>, nearest: &Room| match by {
        Some(scope) => nearest.contains(scope),
        None => nearest.is_empty(),
    };
    match (outcome, says) {
        (Outcome::Done, None) | (Outcome::Ended, Some(VerdictSays::Ended { .. })) => true,
        (Outcome::Granted(expected, nearest), Some(VerdictSays::Granted { copies, by, .. })) => {
            expected == copies && is_near(by, nearest)
        }
        (Outcome::Counted(expected, nearest), Some(VerdictSays::Counted { excess, by, .. })) => {
            expected == excess && is_near(by, nearest)
        }
        (
            Outcome::Seized(expected),
            Some(VerdictSays::Seized { copies, .. } | VerdictSays::Held { copies, .. }),
        ) => expected == copies,
        (Outcome::Refused(expected), Some(VerdictSays::Refused { why, .. })) => expected == why,
        _ => false,
    }
}

/// Whether a verdict answers an operation on this hold.
fn answers(says: &VerdictSays, number: u64) -> bool {
    match says {
        VerdictSays::Counted { number: of, .. }
        | VerdictSays::Granted { number: of, .. }
        | VerdictSays::Seized { number: of, .. }
        | VerdictSays::Held { number: of, .. }
        | VerdictSays::Ended { number: of, .. }
        | VerdictSays::Refused { number: of, .. } => *of == number,
        VerdictSays::NotHeld { .. } | VerdictSays::BeatWanted => false,
    }
}

/// Whether an operator has ever banned a domain from a resource, up to a version.
fn was_banned(made: &BTreeMap<u64, Arc<Made>>, upto: u64, resource: &str, domain: &str) -> bool {
    made.range(..=upto).any(|(_, made)| match &*made.act {
        Act::Ban {
            resource: on,
            domain: of,
            ..
        } => **of == *domain && on.as_ref().is_none_or(|on| **on == *resource),
        _ => false,
    })
}

impl Ruled {
    /// Holds what a batch came to against ledgers of what was before it, which follow it; how many operations were judged.
    ///
    /// # Errors
    ///
    /// Which operation, what was said, and what it comes to.
    pub(super) fn check_grants(
        &self,
        version: &Version,
        all: &AllSizes,
        made: &BTreeMap<u64, Arc<Made>>,
        Ledgers(mut ledgers): Ledgers,
        batch: &HoldBatch<'_>,
    ) -> Result<u64, String> {
        let mut judged = 0;
        let is_applied = self.rulings.fates == [Fate::Applied];
        let epoch = batch.sender.epoch;
        for (op, entry) in batch.ops().zip(0..).filter(|_| is_applied) {
            let resource = batch.resource(op.resource);
            let Some(sizes) = all.get(resource) else {
                continue;
            };
            let (ledger, ended) = ledgers.entry(resource.into()).or_default();
            let domain = match op.does {
                Does::Reserve { domain, .. } | Does::Hold { domain, .. } => domain,
                _ => "",
            };
            let is_heeded = !version.limits.namespace_of(resource).ignore_configured;
            let is_banned = is_heeded && was_banned(made, version.number, resource, domain);
            let said = self.rulings.verdicts.iter().find(|due| {
                due.place.entry == entry
                    && due.epoch == epoch
                    && *due.resource == *resource
                    && answers(&due.says, op.number)
            });
            let says = said.map(|due| &due.says);
            let rule = Rule {
                sizes,
                is_heeded,
                is_ended: ended.contains(&op.number),
                is_banned: false,
            };
            // Until when a ban lasts, and whether it was taken back, is not judged here: either may be said.
            let unbanned = is_banned.then(|| ledger.clone());
            let mut comes_to = ledger.follow(epoch, &op, Rule { is_banned, ..rule });
            if let Some(mut unbanned) = unbanned
                && !is_said(&comes_to, says)
            {
                comes_to = unbanned.follow(epoch, &op, rule);
                *ledger = unbanned;
            }
            if !is_said(&comes_to, says) {
                return Err(format!(
                    "operation {entry} of {resource}, {op:?} of epoch {epoch:x}, under version {}: {says:?} was said, \
                     expected {comes_to:?}",
                    version.number
                ));
            }
            judged += 1;
        }
        for (name, (expected, _)) in &ledgers {
            let found = self.engine.copies().find(|(of, _)| ***of == **name);
            let found = found.map_or_else(Ledger::default, |(_, copies)| Ledger::of(copies));
            if all.contains_key(&**name) && found != *expected {
                return Err(format!(
                    "{name}, after operations of epoch {epoch:x}: {found:?}, expected {expected:?}"
                ));
            }
        }
        Ok(judged)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fullness::sizes_of;
    use super::*;

    const TEXT: &str = "[copies.\"gpu.slot\"]\nlimit = 4\nglobal = 9\n\
                        groups.few = { limit = 3, members = [\"acme\"] }\n";

    fn op(number: u64, does: Does<'_>) -> HoldOp<'_> {
        HoldOp {
            resource: 0,
            number,
            at: tollgate_shared::time::Timestamp::ZERO,
            does,
        }
    }

    #[test]
    fn a_ledger_grants_what_all_limits_leave_room_for() {
        let all = sizes_of(TEXT);
        let rule = Rule {
            sizes: &all["gpu.slot"],
            is_heeded: true,
            is_ended: false,
            is_banned: false,
        };
        let mut ledger = Ledger::default();
        let mut follow =
            |number, does: Does<'_>, rule: Rule<'_>| ledger.follow(7, &op(number, does), rule);
        let reserve = |domain, copies, min| Does::Reserve {
            domain,
            copies,
            min,
        };
        let few = || vec![Scope::Group("few".into())];
        let own = || vec![Scope::Pair("globex".into())];
        assert_eq!(
            follow(1, reserve("acme", 4, 1), rule),
            Outcome::Granted(3, few())
        );
        assert_eq!(
            follow(2, reserve("acme", 1, 1), rule),
            Outcome::Granted(0, few())
        );
        let holds_six = Does::Hold {
            domain: "globex",
            copies: 6,
        };
        assert_eq!(follow(3, holds_six, rule), Outcome::Counted(2, own()));
        assert_eq!(
            follow(4, reserve("initech", 1, 1), rule),
            Outcome::Granted(0, vec![Scope::Resource])
        );
        let ignored = Rule {
            is_heeded: false,
            ..rule
        };
        assert_eq!(
            follow(4, reserve("initech", 1, 1), ignored),
            Outcome::Granted(1, Room::new())
        );
        let too_many = Does::Release { copies: 4 };
        assert_eq!(
            follow(1, too_many, rule),
            Outcome::Refused(Why::TooManyCopies)
        );
        let to = TransferId(5);
        let staged = Does::Transfer {
            copies: 3,
            to,
            ttl: tollgate_shared::time::Span::from_secs(1),
        };
        assert_eq!(follow(1, staged, rule), Outcome::Done);
        let seize = Does::Seize { from: to };
        assert_eq!(follow(9, seize, rule), Outcome::Seized(3));
        assert_eq!(
            follow(10, seize, rule),
            Outcome::Refused(Why::UnknownTransfer)
        );
        assert_eq!(follow(9, Does::Cancel, rule), Outcome::Done);
        assert_eq!(ledger.sum(&Scope::Resource), 7);
        assert_eq!(ledger.sum(&Scope::Group("few".into())), 0);
    }

    #[test]
    fn a_copy_more_or_less_than_it_comes_to_is_not_what_was_said() {
        let outcome = Outcome::Granted(2, Room::new());
        let says = |copies| VerdictSays::Granted {
            number: 1,
            copies,
            by: None,
        };
        assert!(is_said(&outcome, Some(&says(2))));
        assert!(!is_said(&outcome, Some(&says(1))));
        assert!(!is_said(&outcome, Some(&says(3))));
        assert!(!is_said(&outcome, None));
    }
}
