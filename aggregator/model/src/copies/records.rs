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
    CopiesOutcome, HeartbeatRecord, HoldAct, HoldsRecord, ModelOp, ModelPart, ModelStatus,
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
                    let over = ModelStatus::of(op.number, 0).refused(HoldRefusal::EpochOver);
                    outcome.state_verdict_at(entry, (&process, op.resource), Some(over));
                }
                return outcome;
            }
            RecordTurn::Applied => {}
        }
        if self.meet(&process, &mut outcome) {
            for (name, held) in &self.resources {
                let mut holds = held.holds.holds.iter();
                if holds.any(|hold| hold.lost && hold.process == process) {
                    outcome.state_verdict((&process, name), None);
                }
            }
        }
        let mut banned = Vec::new();
        for (op, entry) in ops {
            let is_banned = self.is_banned(op);
            if let (Some(domain), true) = (domain_of(op), is_banned) {
                banned.push((op.resource, domain));
            }
            let status = self.operate(&process, &record.sender, op, is_banned);
            self.settle();
            if status.is_some() {
                outcome.state_verdict_at(entry, (&process, op.resource), status);
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

    /// Whether an operation takes copies of a resource that is only kept, where such operations are refused.
    fn takes_none(&self, op: &ModelOp<'_>) -> bool {
        let takes = matches!(op.act, HoldAct::Reserve { .. } | HoldAct::Hold { .. });
        let is_limited = self.limits.resources.contains_key(op.resource);
        takes && !is_limited && self.limits.refuses_others
    }

    /// Performs an operation. Returns how its hold stands, if the process is to know.
    fn operate(
        &mut self,
        process: &Process,
        sender: &SentBy<'_>,
        op: &ModelOp<'_>,
        is_banned: bool,
    ) -> Option<ModelStatus> {
        let is_heeded = self.limits.heeds(op.resource);
        let refuses_others = self.limits.refuses_others;
        let takes_none = self.takes_none(op);
        let Some(held) = self.open(op.resource).filter(|_| !takes_none) else {
            return uncounted(op, refuses_others);
        };
        let holds = &mut held.holds;
        let (name, at_us) = ((process, op.number), sender.instant_us(op.at_us));
        let by_ban = |domain: &str| Some(CopyScope::Domain(domain.to_owned()));
        let stands = |copies, excess| ModelStatus {
            excess,
            ..ModelStatus::of(op.number, copies)
        };
        let done = match op.act {
            HoldAct::Reserve { domain, .. }
                if is_banned && holds.at(process, op.number).is_none() =>
            {
                Ok(Some(stands(0, (0, by_ban(domain)))))
            }
            HoldAct::Reserve {
                domain,
                copies,
                min,
            } if is_heeded => {
                let granted = holds.reserve(name, domain, (min, copies), at_us);
                granted.map(|(granted, by)| Some(stands(granted, (0, by))))
            }
            HoldAct::Reserve { domain, copies, .. } => {
                // The limits are not enforced: no operation is refused, and no copies are in excess.
                let held = holds.hold(name, domain, copies, at_us);
                held.map(|_| {
                    set_excess(holds, name, (0, None));
                    Some(stands(copies, (0, None)))
                })
            }
            HoldAct::Hold { domain, copies } => {
                let held = holds.hold(name, domain, copies, at_us);
                held.map(|excess| {
                    let all = (copies, by_ban(domain));
                    let excess = if is_banned { all } else { excess };
                    set_excess(holds, name, excess.clone());
                    Some(stands(copies, excess))
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
        done.unwrap_or_else(|why| Some(how_it_stands(holds, name).refused(why)))
    }

    /// Applies a heartbeat.
    pub fn heartbeat(&mut self, record: &HeartbeatRecord<'_>) -> CopiesOutcome {
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
                    false => outcome.state_verdict(of, None),
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
                    let counted = how_it_stands(holds, (process, number));
                    let refusal = match verdict {
                        ListVerdict::Counted(_) => None,
                        ListVerdict::Ended => Some(HoldRefusal::HoldEnded),
                        ListVerdict::UnknownTransfer => Some(HoldRefusal::UnknownTransfer),
                        ListVerdict::AtCapacity => Some(HoldRefusal::AtCapacity),
                    };
                    let status = match refusal {
                        Some(why) => counted.refused(why),
                        None => counted,
                    };
                    outcome.state_verdict(of, Some(status));
                }
            }
        }
        for number in part.awaiting.iter().chain(&part.asked) {
            outcome.state_verdict(of, Some(how_it_stands(holds, (process, *number))));
        }
    }

    /// Answers for numbers of resources without limits on copies, as for operations on such resources.
    fn notify_uncounted(
        &self,
        process: &Process,
        parts: &[ModelPart<'_>],
        outcome: &mut CopiesOutcome,
    ) {
        let is_counted =
            |name| self.limits.resources.contains_key(name) || self.resources.contains_key(name);
        for part in parts.iter().filter(|of| !is_counted(of.resource)) {
            for number in part.awaiting.iter().chain(&part.asked) {
                let status = match self.limits.refuses_others {
                    true => ModelStatus::of(*number, 0).refused(HoldRefusal::Unconfigured),
                    // As many as the process wants.
                    false => ModelStatus::of(*number, u64::from(u32::MAX)),
                };
                outcome.state_verdict((process, part.resource), Some(status));
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

/// How a process's hold stands.
fn how_it_stands(holds: &HoldsModel, (process, number): (&Process, u64)) -> ModelStatus {
    let Some(at) = holds.live_at(process, number) else {
        return ModelStatus::of(number, 0);
    };
    let hold = &holds.holds[at];
    ModelStatus {
        excess: hold.excess.clone(),
        seized: (hold.seized).then(|| (hold.domain.clone(), hold.start_us)),
        ..ModelStatus::of(number, hold.copies)
    }
}

/// The answer to an operation on a resource without limits on copies: the operation is accepted and nothing is stored,
/// or it is refused.
fn uncounted(op: &ModelOp<'_>, is_refused: bool) -> Option<ModelStatus> {
    let refused = |why| Some(ModelStatus::of(op.number, 0).refused(why));
    match op.act {
        HoldAct::Cancel => None,
        _ if is_refused => refused(HoldRefusal::Unconfigured),
        HoldAct::Reserve { copies, .. } | HoldAct::Hold { copies, .. } => {
            Some(ModelStatus::of(op.number, copies))
        }
        HoldAct::Seize { .. } => refused(HoldRefusal::UnknownTransfer),
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
            let over = ModelStatus::of(number, 0).refused(HoldRefusal::EpochOver);
            outcome.state_verdict(of, Some(over));
        }
        if let PartHolds::Digest(is_right) = &part.holds
            && !is_right(&BTreeMap::new())
        {
            outcome.state_verdict(of, None);
        }
    }
}
