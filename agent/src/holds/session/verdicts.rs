//! The ruling aggregators' verdicts on this agent's holds.
//!
//! For one hold the verdict with the greatest log position wins, so that repeated or late verdicts, or those of a
//! second aggregator, change nothing. Verdicts for other epochs are ignored.

use std::sync::Arc;

use tollgate_shared::wire::holds::Op;
use tollgate_shared::wire::public::OnExcess;
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::{EndedBy, Verdict, VerdictSays, Why};

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
    /// Whether copies that were too many have to be given back.
    pub(super) fn gives_back(&self) -> bool {
        let public = self.resource.public();
        let copies = public.copies.as_ref();
        copies.is_some_and(|copies| copies.on_excess == OnExcess::GiveBack)
    }

    /// Informs holders that wait to give back what was too much, if the resource asks for it only since the verdict.
    pub(super) fn ask_back(&mut self) {
        if !self.gives_back() {
            return;
        }
        for kept in self.holds.values_mut() {
            if let Some(word @ HoldStanding::Excess(..)) = &kept.verdict {
                KeptHold::answer(&mut kept.watch, word);
            }
        }
    }
}

impl HoldSession {
    /// Applies verdicts.
    pub(crate) fn take_verdicts(&mut self, verdicts: Vec<Verdict>, now: Mono) {
        for verdict in verdicts {
            if verdict.epoch == self.origin.epoch && self.take_verdict(verdict, now) {
                Counters::add(&self.counters.verdicts, 1);
            } else {
                Counters::add(&self.counters.verdicts_ignored, 1);
            }
        }
        self.tell_live();
    }

    /// Applies one verdict. Returns whether it was useful.
    fn take_verdict(&mut self, verdict: Verdict, now: Mono) -> bool {
        let Some(id) = self.resources.find(&verdict.resource).map(|one| one.id) else {
            return false;
        };
        let Some(held) = self.held.get_mut(&id) else {
            return false;
        };
        let Some(number) = verdict.says.number() else {
            held.list_wanted = true;
            held.doubt(now);
            let partition = held.partition;
            self.heartbeat_by(partition, now);
            return true;
        };
        let Some(kept) = held.holds.get_mut(&number) else {
            return false;
        };
        if kept
            .verdict_place
            .is_some_and(|heard| verdict.place <= heard)
        {
            return false;
        }
        kept.verdict_place = Some(verdict.place);
        match verdict.says {
            VerdictSays::Counted { excess: 0, .. } => {
                kept.notify(&HoldStanding::Confirmed, false);
            }
            // The agent asks how much of it is left: the answer states of how many copies it is.
            VerdictSays::Counted { .. } if kept.gave => kept.doubt(now),
            VerdictSays::Counted { excess, by, .. } => self.exceeds(id, number, excess, by),
            VerdictSays::Granted { copies, by, .. } => {
                self.granted(id, number, Some(copies), by, now);
            }
            VerdictSays::Held {
                copies, excess, by, ..
            } => {
                // Copies that were given back since are still on their way to the aggregator.
                let left = excess.saturating_sub(copies.saturating_sub(kept.copies));
                match (kept.in_use(), kept.verdict.is_none(), left) {
                    (true, true, 0) => kept.notify(&HoldStanding::Confirmed, false),
                    (true, true, _) => self.exceeds(id, number, left, by),
                    (true, false, _) => {}
                    (false, ..) => self.granted(id, number, Some(copies), None, now),
                }
            }
            VerdictSays::Seized {
                domain,
                copies,
                start,
                ..
            } => {
                if kept.seized.is_some() && !kept.in_use() {
                    (kept.domain, kept.copies, kept.start) = (Arc::from(domain), copies, start);
                    self.granted(id, number, None, None, now);
                } else if kept.in_use() && kept.verdict.is_none() {
                    // The verdict was in doubt, and the agent had asked for it.
                    kept.notify(&HoldStanding::Confirmed, false);
                }
            }
            VerdictSays::NotHeld { .. } => self.is_not_held(id, number, now),
            VerdictSays::Ended { by, .. } => self.ended(id, number, by),
            VerdictSays::Refused { op, why, .. } => self.refused(id, number, op, why, now),
            VerdictSays::BeatWanted => {}
        }
        true
    }

    fn exceeds(&mut self, id: ResourceId, number: u64, excess: u32, by: Option<Scope>) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        let gives_back = held.gives_back();
        let Some(kept) = held.holds.get_mut(&number) else {
            return;
        };
        let word = HoldStanding::Excess(excess, by.clone());
        let is_news = kept.verdict.as_ref().or(kept.doubted_verdict.as_ref()) != Some(&word);
        kept.notify(&word, gives_back);
        if is_news {
            Counters::add(&self.counters.holds_excess, 1);
            let scope = by.map(FullScope::from);
            self.tell_news(id, number, HoldChange::Excess(excess, scope));
        }
    }

    /// Copies that were awaited may be used, or none. Without a number, all that the reserve asked for.
    fn granted(
        &mut self,
        id: ResourceId,
        number: u64,
        copies: Option<u32>,
        by: Option<Scope>,
        now: Mono,
    ) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        if held.holds.get(&number).is_none_or(|kept| kept.in_use()) {
            return;
        }
        if copies == Some(0) {
            if let Some(kept) = held.remove(number)
                && let Stands::Awaited(answer) = kept.stands
            {
                let _ = answer.send(HoldAnswer::Full(by));
            }
            return;
        }
        let mut granted = None;
        let answer = held.use_now(number, |kept| {
            kept.copies = copies.unwrap_or(kept.copies);
            kept.verdict = Some(HoldStanding::Confirmed);
            granted = Some((Arc::clone(&kept.domain), kept.copies));
        });
        let (Some(answer), Some((domain, copies))) = (answer, granted) else {
            return;
        };
        if answer.send(HoldAnswer::Granted { domain, copies }).is_err() {
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
        }
    }

    fn is_not_held(&mut self, id: ResourceId, number: u64, now: Mono) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        if held.holds.get(&number).is_some_and(|kept| kept.in_use()) {
            // It is in use all the same: a list makes it count again.
            held.list_wanted = true;
            let partition = held.partition;
            self.heartbeat_by(partition, now);
        } else {
            Self::lose(held, number);
        }
    }

    fn ended(&mut self, id: ResourceId, number: u64, by: EndedBy) {
        Counters::add(&self.counters.holds_ended, 1);
        self.end_one(id, number, &HoldStanding::Ended(by), HoldAnswer::Lost);
        self.tell_news(id, number, HoldChange::Ended(by));
    }

    fn end_one(&mut self, id: ResourceId, number: u64, word: &HoldStanding, otherwise: HoldAnswer) {
        let Some(mut kept) = self.held.get_mut(&id).and_then(|held| held.remove(number)) else {
            return;
        };
        if kept.in_use() {
            // Before a caller learns of it, and asks.
            self.revoked.put(number, kept.copies, word.clone());
        }
        kept.notify(word, true);
        if let Stands::Awaited(answer) = kept.stands {
            let _ = answer.send(otherwise);
        }
    }

    fn refused(&mut self, id: ResourceId, number: u64, op: Option<Op>, why: Why, now: Mono) {
        match op {
            // It was granted, and the log has since lost the transfer that it was taken over from. It is in use all
            // the same, and counts if it is listed like any other hold. Lists that were sent before that are refused
            // as well, which means nothing more.
            None | Some(Op::Seize) if why == Why::UnknownTransfer && self.is_in_use(id, number) => {
                self.list_as_its_own(id, number, now);
            }
            // No process has it yet: the seizing caller asks again, or tells the host that nothing is staged.
            Some(Op::Seize) if why == Why::UnknownTransfer => {
                self.end_one(
                    id,
                    number,
                    &HoldStanding::Uncounted(op, why),
                    HoldAnswer::Refused(why),
                );
            }
            // It does not count, and would not count if it were listed again.
            None | Some(Op::Hold | Op::Reserve | Op::Seize) => {
                Counters::add(&self.counters.holds_uncounted, 1);
                self.end_one(
                    id,
                    number,
                    &HoldStanding::Uncounted(op, why),
                    HoldAnswer::Refused(why),
                );
                self.tell_news(id, number, HoldChange::Uncounted(why));
            }
            // The two sides count differently: a list corrects that.
            Some(Op::Release | Op::Transfer | Op::Cancel) => {
                let partition = self.held.get(&id).map(|held| held.partition);
                if let Some(partition) = partition {
                    self.heal(partition, now);
                }
            }
        }
    }

    fn is_in_use(&self, id: ResourceId, number: u64) -> bool {
        let held = self.held.get(&id);
        let kept = held.and_then(|held| held.holds.get(&number));
        kept.is_some_and(KeptHold::in_use)
    }

    /// A hold in use no longer depends on its transfer: if it was seized, it is listed without the transfer.
    fn list_as_its_own(&mut self, id: ResourceId, number: u64, now: Mono) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        let kept = held.holds.get_mut(&number);
        if kept.is_some_and(|kept| kept.seized.take().is_some()) {
            held.list_wanted = true;
            let partition = held.partition;
            self.heartbeat_by(partition, now);
        }
    }

    fn tell_news(&self, id: ResourceId, number: u64, change: HoldChange) {
        if let (Some(on_hold), Some(held)) = (&self.on_hold, self.held.get(&id)) {
            let news = HoldNews::new(&held.resource.name, number, change);
            callback::call(&self.counters, "on_hold", || (on_hold.0)(&news));
        }
    }
}
