//! Applies an agent's heartbeat: the agent lives, and the holds that it lists are compared with those
//! counted.
//!
//! ```text
//! digest as counted          no verdict
//! another digest             the agent has to send a list
//! list                       copies that are counted and not listed come back; holds that are listed and
//!                            not counted are counted: a verdict for each
//! a resource not named       the agent holds nothing of it
//! a number asked about       its status; where copies are not counted, the verdict on its operation again
//! ```
//!
//! Knows nothing of operations. What stays true: after lists of everything the epoch holds what it listed,
//! except holds that were ended or could not be counted.

use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::heartbeat::{Heartbeat, HoldsRead, Listed, PartRead};
use tollgate_shared::wire::verdict::{EndedBy, HoldStatus, Why};

use super::Engine;
use super::admission::Admission;
use super::holders::{AgentProcess, Held};
use super::holds::{counted, ended, refused, scope_of, status_of};
use super::rulings::{Fate, HoldCounts, ResourceHolds, Rulings};
use super::scopes::StatementSink;
use super::senders::Clock;
use crate::copies::{AgentIx, DigestOutcome, Effects, HoldId, HoldVerdict, List, Taken};

impl Engine {
    /// Applies a heartbeat.
    pub(super) fn heartbeat(
        &mut self,
        offset: u64,
        appended: Timestamp,
        heartbeat: &Heartbeat<'_>,
        rulings: &mut Rulings,
    ) -> Fate {
        let entries = heartbeat.parts_len();
        let (process, clock) =
            match self.admit_in_turn(&heartbeat.sender, appended, entries, rulings) {
                Ok(admitted) => admitted,
                Err(fate) => return fate,
            };
        let position = LogPosition::of_record(self.log.unwrap_or_default(), offset);
        let mut sink = self.sink(position, rulings);
        if self.holders.is_over(&process) {
            refuse_ended_epoch(&process, heartbeat, &mut sink);
            return Fate::EpochOver { entries };
        }
        sink.rulings.copies.heartbeats += 1;
        let replaced = heartbeat
            .head
            .replaces
            .filter(|epoch| *epoch != process.epoch);
        if let Some(epoch) = replaced {
            let name = process.name.clone();
            self.holders
                .end_epoch(&AgentProcess { name, epoch }, &mut sink);
        }
        if heartbeat.head.last {
            self.holders.end_epoch(&process, &mut sink);
            return Fate::Applied;
        }
        self.holders.alive(&process, &mut sink);
        let doors = self.doors(heartbeat.resources(), &process);
        for part in heartbeat.parts() {
            if let Some(Admission::Counted { index, agent, .. }) = doors.get(part.resource as usize)
            {
                self.part(&process, *index, *agent, clock, &part, &mut sink);
            }
        }
        if !heartbeat.head.more {
            let named = |name: &str| {
                heartbeat
                    .parts()
                    .any(|part| heartbeat.resource(part.resource) == name)
            };
            self.nothing_held_beside(&process, clock, named, &mut sink);
        }
        // After everything else, so that no log position of a statement depends on it.
        for part in heartbeat.parts() {
            if let Some(door) = doors.get(part.resource as usize) {
                let resource = heartbeat.resource(part.resource);
                notify_uncounted(&process, *door, resource, &part, &mut sink);
            }
        }
        Fate::Applied
    }

    fn part(
        &mut self,
        process: &AgentProcess,
        index: usize,
        agent: AgentIx,
        clock: Clock,
        part: &PartRead<'_>,
        sink: &mut StatementSink<'_>,
    ) {
        let Some((held, out)) = self.holders.at(index) else {
            return;
        };
        let awaiting: Vec<u64> = part.awaiting().collect();
        match &part.holds {
            HoldsRead::Digest(holdings) => {
                let found = held
                    .copies
                    .digest_heartbeat(agent, *holdings, &awaiting, out);
                held.follow(out, sink);
                if found == Ok(DigestOutcome::Differs) {
                    sink.rulings.copies.heartbeats_wanted += 1;
                    sink.verdict(&process.name, process.epoch, &held.name, None);
                }
                sink.next();
            }
            HoldsRead::List { from, upto, .. } => {
                let listed: Vec<Listed<'_>> = part
                    .listed()
                    .map(|entry| Listed {
                        start: clock.instant(entry.start),
                        ..entry
                    })
                    .collect();
                let list = List {
                    numbers: *from..=*upto,
                    listed: &listed,
                    awaiting: &awaiting,
                };
                list_of(held, process, agent, clock, &list, out, sink);
            }
        }
        for number in awaiting.into_iter().chain(part.asked()) {
            let status = status_of(&held.copies, HoldId { agent, number });
            sink.verdict(&process.name, process.epoch, &held.name, status);
            sink.next();
        }
    }

    /// Ends what the sender holds of resources that its heartbeat does not name.
    fn nothing_held_beside(
        &mut self,
        process: &AgentProcess,
        clock: Clock,
        named: impl Fn(&str) -> bool,
        sink: &mut StatementSink<'_>,
    ) {
        for index in 0..self.holders.all().len() {
            let Some((held, out)) = self.holders.at(index) else {
                return;
            };
            let agent = held.copies.known_agent(&process.name, process.epoch);
            match agent.filter(|_| !named(&held.name)) {
                Some(agent) => {
                    let nothing = List::whole(&[], &[]);
                    list_of(held, process, agent, clock, &nothing, out, sink);
                }
                // Takes a log position all the same: whether an epoch that has released everything is
                // still known depends on whether this engine was restored since.
                None => sink.next(),
            }
        }
    }
}

/// Applies a list to one resource, and adds the verdicts on what it lists.
fn list_of(
    held: &mut Held,
    process: &AgentProcess,
    agent: AgentIx,
    clock: Clock,
    list: &List<'_>,
    out: &mut Effects,
    sink: &mut StatementSink<'_>,
) {
    let at = clock.appended.end_of_millisecond();
    let before = held.copies.copies_of(agent);
    // Fails only for an epoch that is over, and such records were refused before.
    if held.copies.full_heartbeat(agent, at, list, out).is_err() {
        return;
    }
    held.follow(out, sink);
    sink.next();
    let mut counts = HoldCounts::default();
    for (id, verdict) in out.verdicts() {
        let found = list
            .listed
            .binary_search_by_key(&id.number, |entry| entry.number);
        let Some(entry) = found.ok().and_then(|at| list.listed.get(at)) else {
            continue;
        };
        counts.ops += 1;
        let status = listed_status(held, *id, entry, *verdict, &mut counts);
        sink.verdict(&process.name, process.epoch, &held.name, status);
        sink.next();
    }
    let after = held.copies.copies_of(agent);
    counts.released = (before + counts.taken).saturating_sub(after);
    if counts != HoldCounts::default() {
        sink.rulings.hold_counts.push(ResourceHolds {
            resource: (*held.name).into(),
            counts,
        });
    }
}

/// How a hold stands that a heartbeat listed, after this verdict on it.
fn listed_status(
    held: &Held,
    id: HoldId,
    entry: &Listed<'_>,
    verdict: HoldVerdict,
    counts: &mut HoldCounts,
) -> HoldStatus {
    let number = id.number;
    match verdict {
        HoldVerdict::Counted(Taken { excess, by }) => {
            let is_seized = entry.seized.is_some();
            if !is_seized || 0 < excess {
                counts.taken += u64::from(entry.copies);
                counts.excess += u64::from(excess);
            }
            match is_seized {
                true => status_of(&held.copies, id),
                false => HoldStatus {
                    excess,
                    scope: by.map(|by| scope_of(&held.copies, by, entry.domain)),
                    ..counted(number, entry.copies)
                },
            }
        }
        HoldVerdict::Ended => ended(number, EndedBy::Earlier),
        HoldVerdict::UnknownTransfer => {
            counts.refused_ops += 1;
            refused(number, None, Why::UnknownTransfer)
        }
        HoldVerdict::NotCounted => {
            counts.refused_ops += 1;
            refused(number, None, Why::AtCapacity)
        }
    }
}

/// Repeats the verdicts on numbers of a resource whose copies are not counted here: an agent that missed
/// the first verdict would wait for ever.
fn notify_uncounted(
    process: &AgentProcess,
    door: Admission,
    resource: &str,
    part: &PartRead<'_>,
    sink: &mut StatementSink<'_>,
) {
    let why = match door {
        Admission::Counted { .. } => return,
        Admission::Free => None,
        Admission::Unconfigured => Some(Why::Unconfigured),
        Admission::Misrouted => Some(Why::Misrouted),
    };
    let mut name: Option<Arc<str>> = None;
    for number in part.awaiting().chain(part.asked()) {
        let status = match why {
            Some(why) => refused(number, None, why),
            // What was let through is not remembered: it is let through again, however much it was.
            None => counted(number, u32::MAX),
        };
        let name = name.get_or_insert_with(|| resource.into());
        sink.verdict(&process.name, process.epoch, name, status);
        sink.next();
    }
}

/// Answers a heartbeat of an epoch that is over: nothing that it lists is counted.
fn refuse_ended_epoch(
    process: &AgentProcess,
    heartbeat: &Heartbeat<'_>,
    sink: &mut StatementSink<'_>,
) {
    for part in heartbeat.parts() {
        let resource = heartbeat.resource(part.resource).into();
        let listed = part.listed().map(|entry| entry.number);
        let numbers = listed.chain(part.awaiting()).chain(part.asked());
        for number in numbers {
            let status = refused(number, None, Why::EpochOver);
            sink.verdict(&process.name, process.epoch, &resource, status);
            sink.next();
        }
        if let HoldsRead::Digest(holdings) = part.holds
            && holdings != tollgate_shared::holdings::Holdings::default()
        {
            sink.verdict(&process.name, process.epoch, &resource, None);
            sink.next();
        }
    }
}
