//! Agents' records: operations on holds, and heartbeats that list holds.
//!
//! ```text
//! 7 holds        applied
//! 9 heartbeat    applied
//! 8 holds        overtaken: the heartbeat is newer
//! 10 heartbeat   the last one: applied, and the epoch is over
//! 11 holds       of an epoch that is over; the verdict on each operation states it
//! ```
//!
//! Knows nothing of the results of operations (`holds`, `lists`). What stays true: a record that is
//! not applied changes no hold.

use std::collections::BTreeMap;

use super::holds::{HoldRefusal, HoldsModel, KeptBy, Process};
use super::input::{
    BeatRecord, CopiesOutcome, EndReason, HoldAct, HoldSays, HoldsRecord, ModelOp, ModelPart,
    PartHolds, RecordTurn, SentBy,
};
use super::limits::CopyScope;
use super::lists::{ListVerdict, ListedHold};
use super::partition::CopiesModel;

impl CopiesModel {
    /// Applies a record of operations.
    pub fn holds(&mut self, record: &HoldsRecord<'_>) -> CopiesOutcome {
        let mut outcome = CopiesOutcome {
            turn: self.turn_of(&record.sender),
            ..CopiesOutcome::default()
        };
        let process = record.sender.process();
        let ops = record.ops.iter().zip(0..);
        match outcome.turn {
            RecordTurn::Overtaken => return outcome,
            RecordTurn::EpochOver => {
                for (op, entry) in ops {
                    let says = HoldSays::Refused(HoldRefusal::EpochOver);
                    outcome.state_verdict_at(entry, (&process, op.resource), op.number, says);
                }
                return outcome;
            }
            RecordTurn::Applied => {}
        }
        if self.meet(&process, &mut outcome) {
            for (name, held) in &self.resources {
                let mut holds = held.holds.holds.iter();
                if holds.any(|hold| hold.lost && hold.process == process) {
                    outcome.state_verdict((&process, name), 0, HoldSays::ListWanted);
                }
            }
        }
        let mut banned = Vec::new();
        for (op, entry) in ops {
            let is_banned = self.is_banned(op);
            if let (Some(domain), true) = (domain_of(op), is_banned) {
                banned.push((op.resource, domain));
            }
            let says = self.operate(&process, &record.sender, op, is_banned);
            self.settle();
            if let Some(says) = says {
                outcome.state_verdict_at(entry, (&process, op.resource), op.number, says);
            }
        }
        outcome.banned = banned.len() as u64;
        // A ban may be older than the limits on the resource. The statement of the ban is then made
        // when the domain takes copies.
        let now_us = self.now_us();
        for (resource, domain) in banned {
            if self.bans.ban_of(resource, domain, now_us).is_none() {
                self.bans.state(resource, domain, true, now_us);
            }
        }
        outcome
    }

    fn is_banned(&self, op: &ModelOp<'_>) -> bool {
        let now_us = self.now_us();
        let is_banned = |domain| self.bans.is_banned(op.resource, domain, now_us);
        self.limits.heeds(op.resource) && domain_of(op).is_some_and(is_banned)
    }

    /// Performs an operation. Returns the verdict, if there is one to send.
    fn operate(
        &mut self,
        process: &Process,
        sender: &SentBy<'_>,
        op: &ModelOp<'_>,
        is_banned: bool,
    ) -> Option<HoldSays> {
        let is_heeded = self.limits.heeds(op.resource);
        let refuses_others = self.limits.refuses_others;
        let Some(held) = self.open(op.resource) else {
            return uncounted(&op.act, refuses_others);
        };
        let holds = &mut held.holds;
        let (name, at_us) = ((process, op.number), sender.instant_us(op.at_us));
        let by_ban = |domain: &str| Some(CopyScope::Domain(domain.to_owned()));
        let done = match op.act {
            HoldAct::Reserve { domain, .. }
                if is_banned && holds.at(process, op.number).is_none() =>
            {
                Ok(Some(HoldSays::Granted((0, by_ban(domain)))))
            }
            HoldAct::Reserve {
                domain,
                copies,
                min,
            } if is_heeded => {
                let granted = holds.reserve(name, domain, (min, copies), at_us);
                granted.map(|granted| Some(HoldSays::Granted(granted)))
            }
            HoldAct::Reserve { domain, copies, .. } => {
                // The limits are not enforced: no operation is refused, and no copies are in excess.
                let held = holds.hold(name, domain, copies, at_us);
                held.map(|_| {
                    set_excess(holds, name, (0, None));
                    Some(HoldSays::Granted((copies, None)))
                })
            }
            HoldAct::Hold { domain, copies } => {
                let held = holds.hold(name, domain, copies, at_us);
                held.map(|excess| {
                    let all = (copies, by_ban(domain));
                    let excess = if is_banned { all } else { excess };
                    set_excess(holds, name, excess.clone());
                    Some(HoldSays::Counted(excess))
                })
            }
            HoldAct::Release { copies } => holds.release(name, copies).map(|()| None),
            HoldAct::Transfer { copies, to, ttl_us } => {
                let end_us = at_us.saturating_add(ttl_us);
                holds.transfer(name, copies, to, end_us).map(|()| None)
            }
            HoldAct::Seize { from } => {
                let seized = holds.seize(name, from);
                seized.map(|_| Some(how_it_stands(holds, name)))
            }
            HoldAct::Cancel => {
                if holds.live_at(process, op.number).is_some() {
                    holds.drop_hold(process, op.number);
                }
                Ok(None)
            }
        };
        done.unwrap_or_else(|why| {
            Some(match why {
                HoldRefusal::HoldEnded => HoldSays::Ended(EndReason::Earlier),
                why => HoldSays::Refused(why),
            })
        })
    }

    /// Applies a heartbeat.
    pub fn beat(&mut self, record: &BeatRecord<'_>) -> CopiesOutcome {
        let mut outcome = CopiesOutcome {
            turn: self.turn_of(&record.sender),
            ..CopiesOutcome::default()
        };
        let process = record.sender.process();
        match outcome.turn {
            RecordTurn::Overtaken => return outcome,
            RecordTurn::EpochOver => {
                refuse_ended_epoch(&process, &record.parts, &mut outcome);
                return outcome;
            }
            RecordTurn::Applied => {}
        }
        if let Some(epoch) = record.replaces.filter(|epoch| *epoch != process.1) {
            self.end_epoch(&(process.0.clone(), epoch), &mut outcome);
        }
        if record.last {
            self.end_epoch(&process, &mut outcome);
        } else {
            self.meet(&process, &mut outcome);
            for part in &record.parts {
                self.part(&process, &record.sender, part, &mut outcome);
                self.settle();
            }
            if !record.more {
                // The process holds nothing of a resource that the heartbeat does not name.
                let is_named = |name: &str| record.parts.iter().any(|part| part.resource == name);
                let others = { self.resources.iter_mut() }.filter(|(name, _)| !is_named(name));
                for (_, held) in others {
                    held.holds.holds.retain(|hold| hold.process != process);
                }
            }
            self.notify_uncounted(&process, &record.parts, &mut outcome);
        }
        self.settle();
        outcome
    }

    fn part(
        &mut self,
        process: &Process,
        sender: &SentBy<'_>,
        part: &ModelPart<'_>,
        outcome: &mut CopiesOutcome,
    ) {
        let Some(held) = self.open(part.resource) else {
            return;
        };
        let (holds, of) = (&mut held.holds, (process, part.resource));
        match &part.holds {
            PartHolds::Digest(is_right) => {
                match is_right(&holds.held_without(process, &part.awaiting)) {
                    true => drop(holds.equal_digest(process)),
                    false => outcome.state_verdict(of, 0, HoldSays::ListWanted),
                }
            }
            PartHolds::List { from, upto, listed } => {
                let listed: Vec<_> = { listed.iter() }
                    .map(|entry| ListedHold {
                        start_us: sender.instant_us(entry.start_us),
                        ..entry.clone()
                    })
                    .collect();
                let (numbers, at_us) = ((*from, *upto), sender.end_us());
                let verdicts = holds.full_list(process, &listed, &part.awaiting, numbers, at_us);
                for (number, verdict) in verdicts.into_iter().flatten() {
                    let is_seized =
                        |entry: &ListedHold<'_>| entry.number == number && entry.seized.is_some();
                    let says = match verdict {
                        ListVerdict::Counted((0, _)) if listed.iter().any(is_seized) => {
                            how_it_stands(holds, (process, number))
                        }
                        ListVerdict::Counted(excess) => HoldSays::Counted(excess),
                        ListVerdict::Ended => HoldSays::Ended(EndReason::Earlier),
                        ListVerdict::UnknownTransfer => {
                            HoldSays::Refused(HoldRefusal::UnknownTransfer)
                        }
                        ListVerdict::AtCapacity => HoldSays::Refused(HoldRefusal::AtCapacity),
                    };
                    outcome.state_verdict(of, number, says);
                }
            }
        }
        for number in part.awaiting.iter().chain(&part.asked) {
            outcome.state_verdict(of, *number, how_it_stands(holds, (process, *number)));
        }
    }

    /// Answers for numbers of resources without limits on copies, as for operations on such resources.
    fn notify_uncounted(
        &self,
        process: &Process,
        parts: &[ModelPart<'_>],
        outcome: &mut CopiesOutcome,
    ) {
        let limited = &self.limits.resources;
        for part in parts.iter().filter(|of| !limited.contains_key(of.resource)) {
            let says = |let_through: HoldSays| match self.limits.refuses_others {
                true => HoldSays::Refused(HoldRefusal::Unconfigured),
                false => let_through,
            };
            let of = (process, part.resource);
            for number in &part.awaiting {
                outcome.state_verdict(of, *number, says(HoldSays::NotHeld));
            }
            for number in &part.asked {
                outcome.state_verdict(of, *number, says(HoldSays::Counted((0, None))));
            }
        }
    }
}

/// The domain that an operation takes copies for.
fn domain_of<'a>(op: &ModelOp<'a>) -> Option<&'a str> {
    match op.act {
        HoldAct::Reserve { domain, .. } | HoldAct::Hold { domain, .. } => Some(domain),
        _ => None,
    }
}

fn set_excess(holds: &mut HoldsModel, (process, number): (&Process, u64), excess: KeptBy) {
    if let Some(at) = holds.live_at(process, number) {
        holds.holds[at].excess = excess;
    }
}

/// The verdict on a hold that a process asks about.
fn how_it_stands(holds: &HoldsModel, (process, number): (&Process, u64)) -> HoldSays {
    let Some(at) = holds.live_at(process, number) else {
        return HoldSays::NotHeld;
    };
    let hold = &holds.holds[at];
    let (copies, (excess, by)) = (hold.copies, hold.excess.clone());
    match hold.seized && excess == 0 {
        true => HoldSays::Seized {
            domain: hold.domain.clone(),
            copies,
            start_us: hold.start_us,
        },
        false => HoldSays::Held { copies, excess, by },
    }
}

/// The verdict on an operation on a resource without limits on copies: the operation is accepted and nothing
/// is stored, or it is refused.
fn uncounted(act: &HoldAct<'_>, is_refused: bool) -> Option<HoldSays> {
    match act {
        HoldAct::Cancel => None,
        _ if is_refused => Some(HoldSays::Refused(HoldRefusal::Unconfigured)),
        HoldAct::Reserve { copies, .. } => Some(HoldSays::Granted((*copies, None))),
        HoldAct::Hold { .. } => Some(HoldSays::Counted((0, None))),
        HoldAct::Seize { .. } => Some(HoldSays::Refused(HoldRefusal::UnknownTransfer)),
        HoldAct::Release { .. } | HoldAct::Transfer { .. } => None,
    }
}

/// Answers a process whose epoch is over: none of the holds that it lists counts.
fn refuse_ended_epoch(process: &Process, parts: &[ModelPart<'_>], outcome: &mut CopiesOutcome) {
    for part in parts {
        let of = (process, part.resource);
        let mut numbers = Vec::new();
        if let PartHolds::List { listed, .. } = &part.holds {
            numbers.extend(listed.iter().map(|entry| entry.number));
        }
        numbers.extend(part.awaiting.iter().chain(&part.asked));
        for number in numbers {
            outcome.state_verdict(of, number, HoldSays::Refused(HoldRefusal::EpochOver));
        }
        if let PartHolds::Digest(is_right) = &part.holds
            && !is_right(&BTreeMap::new())
        {
            outcome.state_verdict(of, 0, HoldSays::ListWanted);
        }
    }
}
