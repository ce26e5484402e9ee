//! A record of hold operations: each is applied to its hold, in the order of the record.
//!
//! ```text
//! batch of agent a, epoch 7, sequence 9
//!   operation 0   hold 3: sandbox, acme, 2 copies    status: 2 copies, none too many
//!   operation 1   release 2: 1 copy                  a scope has room again: a lift
//! ```
//!
//! Knows nothing of heartbeats. What stays true: a refused operation has changed nothing, and its agent gets a
//! verdict; an agent that sent an operation counts as alive.

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::holds::{HoldAction, HoldBatch, HoldOp, Op};
use tollgate_shared::wire::statement::Scope as Name;
use tollgate_shared::wire::verdict::{EndedBy, HoldReason, HoldStatus, SeizedCopies, Why};

use super::Engine;
use super::admission::Admission;
use super::copy_bans::{BannedPair, all_too_much, domain_of, nothing_granted};
use super::holders::{AgentProcess, Held};
use super::rulings::{Fate, HoldCounts, ResourceHolds, Rulings};
use super::scopes::StatementSink;
use super::senders::Clock;
use crate::copies::{
    AgentIx, Ahead, Copies, CopiesRequest, Effects, HoldId, HoldState, Limiter, NameKey, OpRefused,
};

/// Operations that are looked up before the first of them is applied: as many as `Copies` reads ahead at once,
/// with two look-ups each.
const AHEAD: usize = 16;

/// One resource of a batch.
struct Context<'a> {
    name: &'a str,
    door: Admission,
    counts: HoldCounts,
}

impl Engine {
    /// Applies a record of hold operations.
    pub(super) fn holds(
        &mut self,
        offset: u64,
        appended: Timestamp,
        batch: &HoldBatch<'_>,
        rulings: &mut Rulings,
    ) -> Fate {
        let entries = batch.ops_len();
        let (process, clock) = match self.admit_in_turn(&batch.sender, appended, entries, rulings) {
            Ok(admitted) => admitted,
            Err(fate) => return fate,
        };
        let position = LogPosition::of_record(self.log.unwrap_or_default(), offset);
        if self.holders.is_over(&process) {
            for (op, entry) in batch.ops().zip(0..) {
                let position = LogPosition { entry, ..position };
                let resource = batch.resource(op.resource);
                let status = refused(op.number, Some(op.action.op()), Why::EpochOver);
                self.sink(position, rulings).verdict(
                    &process.name,
                    process.epoch,
                    &resource.into(),
                    status,
                );
            }
            return Fate::EpochOver { entries };
        }
        self.signs_of_life(&process, position, rulings);
        let doors = self.doors(batch.resources(), &process);
        let mut contexts: Vec<Context<'_>> = batch
            .resources()
            .iter()
            .zip(doors)
            .map(|(&name, door)| Context {
                name,
                door,
                counts: HoldCounts::default(),
            })
            .collect();
        let (banned, mut position) =
            self.each_op(batch, &process, clock, position, &mut contexts, rulings);
        self.deny_banned(banned, &mut position, rulings);
        for context in contexts {
            if context.counts != HoldCounts::default() {
                rulings.hold_counts.push(ResourceHolds {
                    resource: context.name.into(),
                    counts: context.counts,
                });
            }
        }
        Fate::Applied
    }

    /// A sink for statements at a log position, with the version in force.
    pub(super) fn sink<'r>(
        &self,
        position: LogPosition,
        rulings: &'r mut Rulings,
    ) -> StatementSink<'r> {
        let newest = self.steps.newest();
        StatementSink {
            rulings,
            position,
            version: newest.version,
            denied_max: newest.limits.engine().pairs_per_partition_max,
        }
    }

    /// The key under which names of domains are hashed.
    pub(super) fn name_key(&self) -> NameKey {
        let key = self.identities.key();
        NameKey {
            k0: key.random,
            k1: !u64::from(key.generation),
        }
    }

    /// The sender lives. If it was gone, it gets a request to list its holds.
    fn signs_of_life(
        &mut self,
        process: &AgentProcess,
        position: LogPosition,
        rulings: &mut Rulings,
    ) {
        let mut sink = self.sink(position, rulings);
        if !self.holders.alive(process, &mut sink).returned {
            return;
        }
        for held in self.holders.all() {
            let agent = held.copies.known_agent(&process.name, process.epoch);
            if agent.is_some_and(|agent| held.copies.has_lost(agent)) {
                sink.verdict(&process.name, process.epoch, &held.name, None);
            }
        }
    }

    fn each_op(
        &mut self,
        batch: &HoldBatch<'_>,
        process: &AgentProcess,
        clock: Clock,
        position: LogPosition,
        contexts: &mut [Context<'_>],
        rulings: &mut Rulings,
    ) -> (Vec<BannedPair>, LogPosition) {
        let mut banned = Vec::new();
        let mut sink = self.sink(position, rulings);
        let mut ahead: Vec<HoldOp<'_>> = Vec::with_capacity(AHEAD);
        let mut ops = batch.ops();
        loop {
            ahead.clear();
            ahead.extend(ops.by_ref().take(AHEAD));
            if ahead.is_empty() {
                return (banned, sink.position);
            }
            self.read_ahead(&ahead, contexts);
            for op in &ahead {
                let context = &mut contexts[op.resource as usize];
                context.counts.ops += 1;
                let status = match context.door {
                    Admission::Counted {
                        is_closed: true, ..
                    } if takes_copies(op) => turned_away(op, Why::Unconfigured),
                    Admission::Counted { index, agent, .. } => {
                        let (at, counts) = (clock.instant(op.at), &mut context.counts);
                        self.counted_op(index, agent, (op, at), counts, (&mut sink, &mut banned))
                    }
                    Admission::Free => let_through(op, &mut context.counts),
                    Admission::Unconfigured => turned_away(op, Why::Unconfigured),
                    Admission::Misrouted => turned_away(op, Why::Misrouted),
                };
                if let Some(status) = status {
                    if matches!(status.reason, Some(HoldReason::Refused(..))) {
                        context.counts.refused_ops += 1;
                    }
                    let resource = match context.door {
                        Admission::Counted { index, .. } => self.holders.all()[index].name.clone(),
                        _ => context.name.into(),
                    };
                    sink.verdict(&process.name, process.epoch, &resource, status);
                }
                sink.next();
            }
        }
    }

    /// Applies one operation on copies that are counted here; returns how its hold stands, if its agent has to know.
    fn counted_op(
        &mut self,
        index: usize,
        agent: AgentIx,
        (op, at): (&HoldOp<'_>, Timestamp),
        counts: &mut HoldCounts,
        (sink, banned): (&mut StatementSink<'_>, &mut Vec<BannedPair>),
    ) -> Option<HoldStatus> {
        let is_banned = self.is_banned_op(index, op);
        let (held, out) = self.holders.at(index)?;
        let id = HoldId {
            agent,
            number: op.number,
        };
        if is_banned && let Some(domain) = domain_of(op) {
            banned.push((held.name.clone(), domain));
        }
        let status = match op.action {
            // A hold that exists already gets the usual verdict.
            HoldAction::Reserve { .. } if is_banned && held.copies.hold_of(id).is_none() => {
                nothing_granted(op, counts)
            }
            _ => apply(held, id, op, at, out, counts),
        };
        held.follow(out, sink);
        match is_banned {
            true => all_too_much(&mut held.copies, id, op, status, counts),
            false => status,
        }
    }

    /// Reads what the next operations will look up, if all are on one resource, as in most batches.
    fn read_ahead(&self, ops: &[HoldOp<'_>], contexts: &[Context<'_>]) {
        let Some(first) = ops.first().filter(|_| 1 < ops.len()) else {
            return;
        };
        let Admission::Counted { index, agent, .. } = contexts[first.resource as usize].door else {
            return;
        };
        let mut list = [Ahead::Domain(""); 2 * AHEAD];
        let mut len = 0;
        for op in ops.iter().filter(|op| op.resource == first.resource) {
            let number = op.number;
            list[len] = Ahead::Hold(HoldId { agent, number });
            len += 1;
            if let HoldAction::Hold { domain, .. } | HoldAction::Reserve { domain, .. } = op.action
            {
                list[len] = Ahead::Domain(domain);
                len += 1;
            }
        }
        if let Some(held) = self.holders.all().get(index) {
            held.copies.read_ahead(&list[..len]);
        }
    }
}

/// Applies one operation; returns how its hold stands, if its agent has to know.
fn apply(
    held: &mut Held,
    id: HoldId,
    op: &HoldOp<'_>,
    at: Timestamp,
    out: &mut Effects,
    counts: &mut HoldCounts,
) -> Option<HoldStatus> {
    let copies = &mut held.copies;
    let number = op.number;
    let done = match op.action {
        HoldAction::Reserve {
            domain,
            copies: asked,
            min,
        } => {
            let ask = ask(id, at, domain, asked);
            reserve(copies, ask, min, held.standing.stated, out).map(|(granted, scope)| {
                counts.granted += u64::from(granted);
                counts.not_granted += u64::from(asked - granted);
                Some(HoldStatus {
                    scope,
                    ..counted(number, granted)
                })
            })
        }
        HoldAction::Hold {
            domain,
            copies: taken,
        } => {
            let ask = ask(id, at, domain, taken);
            copies.hold(ask, out).map(|found| {
                counts.taken += u64::from(taken);
                counts.excess += u64::from(found.excess);
                Some(HoldStatus {
                    excess: found.excess,
                    scope: found.by.map(|by| scope_of(copies, by, domain)),
                    ..counted(number, taken)
                })
            })
        }
        HoldAction::Release { copies: given } => copies.release(id, given, out).map(|()| {
            counts.released += u64::from(given);
            None
        }),
        HoldAction::Transfer {
            copies: staged,
            to,
            ttl,
        } => copies.transfer(id, staged, to, at, ttl, out).map(|()| {
            counts.staged += u64::from(staged);
            None
        }),
        HoldAction::Seize { from } => copies.seize(from, id, out).map(|seized| {
            counts.seized += u64::from(seized);
            Some(status_of(copies, id))
        }),
        HoldAction::Cancel => cancel(copies, id, out).map(|given| {
            counts.released += u64::from(given);
            None
        }),
    };
    done.unwrap_or_else(|why| {
        Some(HoldStatus {
            reason: Some(not_done(op.action.op(), why)),
            ..status_of(copies, id)
        })
    })
}

/// Releases what a hold still has, if it is live; returns how many copies.
fn cancel(copies: &mut Copies, id: HoldId, out: &mut Effects) -> Result<u32, OpRefused> {
    let live = copies
        .hold_of(id)
        .filter(|view| view.state == HoldState::Live);
    match live.map_or(0, |view| view.copies) {
        0 => Ok(0),
        given => copies.release(id, given, out).map(|()| given),
    }
}

fn ask(id: HoldId, at: Timestamp, domain: &str, copies: u32) -> CopiesRequest<'_> {
    CopiesRequest {
        id,
        at,
        domain,
        copies,
    }
}

/// Grants copies before use. Where denials are not stated, reserves are not refused either.
fn reserve(
    copies: &mut Copies,
    ask: CopiesRequest<'_>,
    min: u32,
    stated: bool,
    out: &mut Effects,
) -> Result<(u32, Option<Name>), OpRefused> {
    if !stated {
        copies.hold(ask, out)?;
        copies.nothing_too_much(ask.id);
        return Ok((ask.copies, None));
    }
    let grant = copies.reserve(ask, min, out)?;
    let by = grant.by.map(|by| scope_of(copies, by, ask.domain));
    Ok((grant.granted, by))
}

/// How a hold stands.
pub(super) fn status_of(copies: &Copies, id: HoldId) -> HoldStatus {
    let view = copies.hold_of(id);
    let Some(view) = view.filter(|view| view.state == HoldState::Live) else {
        return counted(id.number, 0);
    };
    let taken = copies.excess_of(id);
    HoldStatus {
        excess: taken.excess,
        scope: taken.by.map(|by| scope_of(copies, by, view.domain)),
        // Its agent may still wait for this, and not know the domain.
        seized: view.seized.then(|| SeizedCopies {
            domain: view.domain.into(),
            start: view.start,
        }),
        ..counted(id.number, view.copies)
    }
}

/// The status of a hold of which so many copies count.
pub(super) fn counted(number: u64, copies: u32) -> HoldStatus {
    HoldStatus {
        number,
        copies,
        ..HoldStatus::default()
    }
}

/// The scope that a limit belongs to.
pub(super) fn scope_of(copies: &Copies, by: Limiter, domain: &str) -> Name {
    match by {
        Limiter::Domain => Name::Pair(tollgate_shared::names::admit_domain(domain).into()),
        Limiter::Group(group) => Name::Group(copies.group_name(group).into()),
        Limiter::Resource => Name::Resource,
    }
}

/// Why an operation was not applied.
fn not_done(op: Op, why: OpRefused) -> HoldReason {
    let why = match why {
        OpRefused::HoldEnded => return HoldReason::Ended(EndedBy::Earlier),
        // Neither occurs: operations without copies are refused when they are decoded.
        OpRefused::UnknownHold | OpRefused::NoCopies | OpRefused::MinAboveCopies { .. } => {
            Why::UnknownHold
        }
        OpRefused::TooManyCopies { .. } => Why::TooManyCopies,
        OpRefused::UnknownTransfer => Why::UnknownTransfer,
        OpRefused::TransferExists => Why::TransferExists,
        OpRefused::HoldExists => Why::HoldExists,
        OpRefused::EpochOver => Why::EpochOver,
        OpRefused::AtCapacity => Why::AtCapacity,
    };
    HoldReason::Refused(Some(op), why)
}

/// Nothing is held, because this was refused.
pub(super) fn refused(number: u64, op: Option<Op>, why: Why) -> HoldStatus {
    HoldStatus {
        reason: Some(HoldReason::Refused(op, why)),
        ..counted(number, 0)
    }
}

/// Nothing is held any more.
pub(super) fn ended(number: u64, by: EndedBy) -> HoldStatus {
    HoldStatus {
        reason: Some(HoldReason::Ended(by)),
        ..counted(number, 0)
    }
}

/// The resource has no limits on copies: every operation is granted, and nothing is kept.
fn let_through(op: &HoldOp<'_>, counts: &mut HoldCounts) -> Option<HoldStatus> {
    match op.action {
        HoldAction::Reserve { copies, .. } | HoldAction::Hold { copies, .. } => {
            counts.unlimited += u64::from(copies);
            Some(counted(op.number, copies))
        }
        HoldAction::Seize { .. } => turned_away(op, Why::UnknownTransfer),
        HoldAction::Release { .. } | HoldAction::Transfer { .. } | HoldAction::Cancel => None,
    }
}

/// Whether an operation takes copies that were free.
fn takes_copies(op: &HoldOp<'_>) -> bool {
    matches!(
        op.action,
        HoldAction::Hold { .. } | HoldAction::Reserve { .. }
    )
}

/// The resource is not counted here: operations that take copies are refused.
fn turned_away(op: &HoldOp<'_>, why: Why) -> Option<HoldStatus> {
    match op.action {
        HoldAction::Cancel => None,
        action => Some(refused(op.number, Some(action.op()), why)),
    }
}
