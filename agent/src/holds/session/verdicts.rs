//! The ruling aggregators' verdicts on this agent's holds.
//!
//! ```text
//! status              the hold is in use                      the hold is awaited
//! copies, no excess   confirmed                               granted
//! copies, excess      too many, less what was given away      granted, and too many
//! no copies           in doubt, and listed at once            full by a scope; or never ruled
//! ended, refused      over                                    over
//! a release, transfer or cancel was refused: the agent lists what it holds
//! ```
//!
//! For one hold the status with the greatest log position wins, so that repeated or late verdicts, or those of a
//! second aggregator, change nothing. Verdicts for other epochs are ignored.

use std::sync::Arc;

use tollgate_shared::wire::holds::Op;
use tollgate_shared::wire::verdict::{EndedBy, HoldReason, Verdict, Why};

use super::HoldSession;
use super::entry::{HeldResource, KeptHold, Stands};
use crate::batch::holds::{HoldAct, Operation};
use crate::callback;
use crate::clock::Mono;
use crate::holds::news::{FullScope, HoldChange, HoldNews};
use crate::holds::notice::{HoldAnswer, HoldStanding};
use crate::resource::ResourceId;
use crate::stats::Counters;

impl HeldResource {
    /// Informs holders that wait to give back what was too much, if the resource asks for it only since the verdict.
    pub(super) fn ask_back(&mut self) {
        if !self.resource.gives_back() {
            return;
        }
        for kept in self.holds.values_mut() {
            if let Some(standing @ HoldStanding::Excess(..)) = kept.standing() {
                KeptHold::answer(&mut kept.watch, &standing);
            }
        }
    }
}

impl HoldSession {
    /// Applies verdicts.
    pub(crate) fn take_verdicts(&mut self, verdicts: Vec<Verdict>, now: Mono) {
        for verdict in verdicts {
            if verdict.epoch == self.origin.epoch && self.take_verdict(verdict, now).is_some() {
                Counters::add(&self.counters.verdicts, 1);
            } else {
                Counters::add(&self.counters.verdicts_ignored, 1);
            }
        }
        self.tell_live();
    }

    /// Applies one verdict. `None` if it was useless.
    fn take_verdict(&mut self, verdict: Verdict, now: Mono) -> Option<()> {
        let id = self.resources.find(&verdict.resource)?.id;
        let held = self.held.get_mut(&id)?;
        let Some(status) = verdict.status else {
            held.doubt(now);
            self.list_now(id, now);
            return Some(());
        };
        let (number, copies, reason) = (status.number, status.copies, status.reason);
        let kept = held.holds.get_mut(&number)?;
        let newest = kept.status.as_ref().map(|(position, _)| *position);
        if newest.is_some_and(|newest| verdict.position <= newest) {
            return None;
        }
        let (before, is_in_use) = (kept.last_standing(), kept.in_use());
        kept.status = Some((verdict.position, status));
        match reason {
            Some(HoldReason::Ended(by)) => {
                self.ended(id, number, by);
                return Some(());
            }
            // The two sides count differently: a list corrects that.
            Some(HoldReason::Refused(Some(Op::Release | Op::Transfer | Op::Cancel), _)) => {
                let partition = held.partition;
                held.show_excess(number);
                self.heal(partition, now);
                return Some(());
            }
            // The log has lost the transfer that the hold was taken over from: it counts if it is listed like any other
            // hold. Lists that were sent before that are refused as well, which means nothing more.
            Some(HoldReason::Refused(_, Why::UnknownTransfer)) if is_in_use => {
                kept.seized.take()?;
            }
            Some(HoldReason::Refused(_, why)) => {
                self.uncounted(id, number, why);
                return Some(());
            }
            None => {}
        }
        if !is_in_use && !self.grant(id, number, now) {
            return Some(());
        }
        match copies {
            0 => self.is_not_held(id, number, now),
            _ => self.counts(id, number, before),
        }
        Some(())
    }

    /// An awaited hold has its answer: the copies that may be used from now on, or none. Returns whether it is used.
    fn grant(&mut self, id: ResourceId, number: u64, now: Mono) -> bool {
        let Some(held) = self.held.get_mut(&id) else {
            return false;
        };
        let Some(kept) = held.holds.get_mut(&number) else {
            return false;
        };
        let Some((_, status)) = &kept.status else {
            return false;
        };
        kept.copies = match &status.seized {
            Some(of) => {
                (kept.domain, kept.start) = (Arc::from(&*of.domain), of.start);
                status.copies
            }
            None => kept.copies.min(status.copies),
        };
        let (domain, copies) = (Arc::clone(&kept.domain), kept.copies);
        if copies == 0 {
            let full = status.scope.clone();
            let full = full.map_or(HoldAnswer::Lost, HoldAnswer::Full);
            Self::not_granted(held, number, full);
            return false;
        }
        let Some(answer) = held.use_now(number) else {
            return false;
        };
        if answer.send(HoldAnswer::Granted { domain, copies }).is_ok() {
            return true;
        }
        // The caller no longer waits for it.
        let partition = held.partition;
        let at = held
            .remove(number)
            .map_or_else(Default::default, |kept| kept.start);
        let cancel = Operation {
            resource: id,
            number,
            at,
            act: HoldAct::Cancel,
        };
        self.queue(partition, cancel, now);
        false
    }

    /// Ends an awaited hold with this answer.
    pub(super) fn not_granted(held: &mut HeldResource, number: u64, why: HoldAnswer) {
        if held.holds.get(&number).is_some_and(|kept| !kept.in_use())
            && let Some(kept) = held.remove(number)
            && let Stands::Awaited(answer) = kept.stands
        {
            let _ = answer.send(why);
        }
    }

    /// A hold in use counts: callers learn whether it was too much.
    fn counts(&mut self, id: ResourceId, number: u64, before: Option<HoldStanding>) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        let Some(standing) = held.counts(number) else {
            return;
        };
        let gives_back = held.resource.gives_back();
        let is_excess = matches!(standing, HoldStanding::Excess(..));
        if let Some(kept) = held.holds.get_mut(&number) {
            kept.notify(&standing, is_excess && gives_back);
        }
        if before.as_ref() != Some(&standing)
            && let HoldStanding::Excess(excess, by) = standing
        {
            Counters::add(&self.counters.holds_excess, 1);
            let scope = by.map(FullScope::from);
            self.tell_news(id, number, HoldChange::Excess(excess, scope));
        }
    }

    /// A hold is in use and does not count: a list makes it count again.
    fn is_not_held(&mut self, id: ResourceId, number: u64, now: Mono) {
        if let Some(held) = self.held.get_mut(&id) {
            held.doubt_one(number, now);
            self.list_now(id, now);
        }
    }

    /// The next heartbeat lists the resource's holds, at once.
    fn list_now(&mut self, id: ResourceId, now: Mono) {
        if let Some(held) = self.held.get_mut(&id) {
            held.list_wanted = true;
            let partition = held.partition;
            self.heartbeat_by(partition, now);
        }
    }

    fn ended(&mut self, id: ResourceId, number: u64, by: EndedBy) {
        Counters::add(&self.counters.holds_ended, 1);
        self.end_one(id, number, &HoldStanding::Ended(by), HoldAnswer::Lost);
        self.tell_news(id, number, HoldChange::Ended(by));
    }

    /// A hold does not count, and would not count if it were listed again.
    fn uncounted(&mut self, id: ResourceId, number: u64, why: Why) {
        let standing = HoldStanding::Uncounted(why);
        self.end_one(id, number, &standing, HoldAnswer::Refused(why));
        // Where nothing is staged, no process has it yet: the seizing caller asks again, or tells the host.
        if why != Why::UnknownTransfer {
            Counters::add(&self.counters.holds_uncounted, 1);
            self.tell_news(id, number, HoldChange::Uncounted(why));
        }
    }

    fn end_one(
        &mut self,
        id: ResourceId,
        number: u64,
        standing: &HoldStanding,
        otherwise: HoldAnswer,
    ) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        let in_use = held.holds.get(&number).filter(|kept| kept.in_use());
        if let Some(kept) = in_use {
            // Before a caller learns of it, and asks; and before its excess is forgotten.
            let pair = (id, &kept.domain);
            self.revoked
                .put(number, pair, kept.copies, standing.clone());
        }
        let Some(mut kept) = held.remove(number) else {
            return;
        };
        kept.notify(standing, true);
        if let Stands::Awaited(answer) = kept.stands {
            let _ = answer.send(otherwise);
        }
    }

    fn tell_news(&self, id: ResourceId, number: u64, change: HoldChange) {
        if let (Some(on_hold), Some(held)) = (&self.on_hold, self.held.get(&id)) {
            let news = HoldNews::new(&held.resource.name, number, change);
            callback::call(&self.counters, "on_hold", || (on_hold.0)(&news));
        }
    }
}
