//! Copies of one resource, in a ledger of the check's own.
//!
//! ```text
//! limit = 4, and acme holds 2 and 1
//! reserve 3 for acme, at least 1     1 is granted, kept down by acme's limit
//! hold 2 for acme                    2 of them too many
//! release 2 of that                  it is over: nothing is said
//! ```
//!
//! Shares nothing with the engine's counts, limits and operations; knows nothing of what was said. What stays true: an
//! operation that is refused changes nothing.

use std::collections::BTreeMap;

use tollgate_engine::copies::{Copies, HoldState};
use tollgate_shared::holdings::TransferId;
use tollgate_shared::wire::holds::{Does, HoldOp};
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::Why;

use super::documents::DOMAINS;
use super::fullness::Sizes;

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
pub(super) struct Ledger {
    holds: BTreeMap<HoldName, Entry>,
    staged: BTreeMap<TransferId, Entry>,
}

/// What holds for one operation beside limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule<'a> {
    pub sizes: &'a Sizes,
    /// Denials of the namespace are heeded.
    pub is_heeded: bool,
    pub is_ended: bool,
    pub is_banned: bool,
}

/// What an operation has to come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing is said.
    Done,
    Granted(u32, Room),
    Counted(u32, Room),
    Seized(u32),
    Ended,
    Refused(Why),
}

/// The scopes that have the least room, where that is less than what was asked for.
pub(super) type Room = Vec<Scope>;

impl Ledger {
    /// What copies list.
    pub(super) fn of(copies: &Copies) -> Self {
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
    pub(super) fn follow(&mut self, epoch: u128, op: &HoldOp<'_>, rule: Rule<'_>) -> Outcome {
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

    /// Denials are heeded, and nothing was ended or banned.
    const fn heeded(sizes: &Sizes) -> Rule<'_> {
        Rule {
            sizes,
            is_heeded: true,
            is_ended: false,
            is_banned: false,
        }
    }

    #[test]
    fn a_ledger_grants_what_all_limits_leave_room_for() {
        let all = sizes_of(TEXT);
        let rule = heeded(&all["gpu.slot"]);
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
    fn what_is_there_already_ended_lost_or_banned_is_granted_no_copy() {
        let all = sizes_of(TEXT);
        let rule = heeded(&all["gpu.slot"]);
        let (ended, banned) = (
            Rule {
                is_ended: true,
                ..rule
            },
            Rule {
                is_banned: true,
                ..rule
            },
        );
        let globex = "globex";
        let holds = Does::Hold {
            domain: globex,
            copies: 1,
        };
        let reserves = Does::Reserve {
            domain: globex,
            copies: 1,
            min: 1,
        };
        let stages = Does::Transfer {
            copies: 1,
            to: TransferId(5),
            ttl: tollgate_shared::time::Span::from_secs(1),
        };
        let seizes = Does::Seize {
            from: TransferId(5),
        };
        let by_it = || vec![Scope::Pair(globex.into())];
        let mut ledger = Ledger::default();
        let mut follow =
            |number, does: Does<'_>, rule: Rule<'_>| ledger.follow(7, &op(number, does), rule);
        assert_eq!(follow(1, holds, rule), Outcome::Counted(0, Room::new()));
        let exists = || Outcome::Refused(Why::HoldExists);
        assert_eq!(follow(1, reserves, rule), exists());
        assert_eq!(follow(1, reserves, banned), exists(), "it has it already");
        assert_eq!(follow(2, reserves, banned), Outcome::Granted(0, by_it()));
        assert_eq!(follow(2, holds, banned), Outcome::Counted(1, by_it()));
        for does in [holds, reserves, seizes] {
            assert_eq!(follow(3, does, ended), Outcome::Ended);
        }
        assert_eq!(follow(1, stages, rule), Outcome::Done);
        let staged = Outcome::Refused(Why::TransferExists);
        assert_eq!(follow(2, stages, rule), staged);
        assert_eq!(follow(2, seizes, rule), exists());
        ledger
            .holds
            .values_mut()
            .for_each(|one| one.is_live = false);
        let mut follow =
            |number, does: Does<'_>, rule: Rule<'_>| ledger.follow(7, &op(number, does), rule);
        let lost = Outcome::Refused(Why::UnknownHold);
        assert_eq!(follow(2, Does::Release { copies: 1 }, rule), lost);
        assert_eq!(follow(2, seizes, rule), Outcome::Seized(1));
        assert_eq!(ledger.sum(&Scope::Resource), 1);
    }
}
