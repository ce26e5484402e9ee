//! Operations on one hold: reserve, hold, release, transfer, seize, and ending it by an operator.
//!
//! ```text
//! limit 10 a domain, probation {b} 3
//! hold 2 of b          excess 0
//! hold 2 of b          excess 1: probation had room for one; both are counted; probation is full
//! release 2 of b       probation has room again
//! reserve 1..=5 of b   granted 1, kept below 5 by probation
//! transfer 1, ttl 10s  still counted; seized once, by any agent, or let go at the first tick at or after
//!                      then + 10 s, or when the copies reach their greatest age
//! ```
//!
//! Knows nothing of heartbeats and of time. What stays true: a refused operation has changed nothing.

use std::borrow::Cow;

use tollgate_shared::names::admit_domain;
use tollgate_shared::time::{Span, Timestamp};

use super::effects::{Effects, Grant, HoldId, Limiter, OpRefused, Taken, TransferId};
use super::holds::{Flags, HoldFacts};
use super::room::{AskedDomain, DomainRoom};
use super::staging::Staged;
use super::state::Copies;
use super::table::NIL;

/// Copies of a domain, asked for or in use.
#[derive(Clone, Copy, Debug)]
pub struct CopiesRequest<'a> {
    /// The hold's id.
    pub id: HoldId,
    /// When they were taken: their age is counted from here.
    pub at: Timestamp,
    /// On whose behalf.
    pub domain: &'a str,
    /// How many.
    pub copies: u32,
}

/// What a coming operation will look up.
#[derive(Clone, Copy, Debug)]
pub enum Ahead<'a> {
    /// A hold that will begin or end.
    Hold(HoldId),
    /// A domain that will be looked up.
    Domain(&'a str),
}

impl Copies {
    /// Reads what coming operations will look up, and changes nothing.
    ///
    /// An operation spends most of its time waiting for memory, one read after the other. The reads of
    /// different operations do not depend on each other, so the processor can wait for all of them at
    /// once. Worth a call for every record with several operations: measured to be faster; never needed
    /// for correctness.
    pub fn read_ahead(&self, ahead: &[Ahead<'_>]) {
        // More reads at a time than the processor keeps in flight would evict each other.
        const AT_ONCE: usize = 32;
        let mut sum = 0;
        for ahead in ahead.chunks(AT_ONCE) {
            // Hashes first: with few instructions for each read, many reads are in flight. No search
            // before the last pass: a mispredicted branch would discard the reads begun after it.
            let mut hashes = [0; AT_ONCE];
            for (hash, ahead) in hashes.iter_mut().zip(ahead) {
                *hash = match ahead {
                    Ahead::Hold(id) => self.holds.hash_of(*id),
                    Ahead::Domain(name) => self.domains.tag_of(name),
                };
            }
            let mut firsts = [NIL; AT_ONCE];
            for ((first, hash), ahead) in firsts.iter_mut().zip(hashes).zip(ahead) {
                *first = match ahead {
                    Ahead::Hold(_) => self.holds.first(hash),
                    Ahead::Domain(_) => self.domains.first(hash),
                };
            }
            for (first, ahead) in firsts.into_iter().zip(ahead) {
                sum ^= match ahead {
                    _ if first == NIL => 0,
                    Ahead::Hold(_) => self.holds.touch(first),
                    Ahead::Domain(_) => self.domains.touch(first),
                };
            }
            for ahead in ahead {
                if let Ahead::Hold(id) = ahead
                    && let Some(slot) = self.holds.find(*id)
                {
                    let domain = self.holds.facts(slot).domain;
                    sum ^= self.holds.read_neighbours(slot) ^ self.domains.at(domain).tag();
                }
            }
        }
        std::hint::black_box(sum);
    }

    /// Grants the largest n in [`min`, `copies`] that all limits leave room for; less than `min`
    /// grants nothing. (Charon, section 3.1, `reserve`.)
    ///
    /// # Errors
    ///
    /// [`OpRefused`] for no copies, a `min` above them, an id that is in use or was ended, an epoch
    /// that is over, and at the bound of holds.
    pub fn reserve(
        &mut self,
        ask: CopiesRequest<'_>,
        min: u32,
        out: &mut Effects,
    ) -> Result<Grant, OpRefused> {
        if ask.copies < min {
            let copies = ask.copies;
            return Err(OpRefused::MinAboveCopies { min, copies });
        }
        let lost = match self.may_begin(&ask)? {
            Some(slot) if !self.holds.facts(slot).flags.lost => return Err(OpRefused::HoldExists),
            lost => lost,
        };
        let name = admit_domain(ask.domain);
        let asked = self.ask(&name);
        let room = self.room(&asked);
        let (granted, by) = largest(ask.copies, room);
        if granted == 0 || granted < min {
            let held = asked.slot.map_or(0, |slot| self.domains.at(slot).copies());
            self.state_full(
                &name,
                self.limit_of_class(asked.class),
                held,
                asked.set,
                out,
            );
            return Ok(Grant { granted: 0, by });
        }
        if lost.is_none() && !self.has_place() {
            return Err(self.at_capacity());
        }
        let taken = CopiesRequest {
            copies: granted,
            ..ask
        };
        let strict = Flags {
            strict: true,
            ..Flags::default()
        };
        self.take(&taken, asked, lost, strict, out);
        Ok(Grant { granted, by })
    }

    /// Counts copies that are in use already, whatever the limits. Replaces a hold of the same id from an
    /// earlier reserve.
    ///
    /// # Errors
    ///
    /// [`OpRefused`] for no copies, an id that was ended, an epoch that is over, and at the bound.
    pub fn hold(&mut self, ask: CopiesRequest<'_>, out: &mut Effects) -> Result<Taken, OpRefused> {
        let before = self.may_begin(&ask)?;
        if before.is_none() && !self.has_place() {
            return Err(self.at_capacity());
        }
        Ok(self.hold_in_place_of(&ask, before, Flags::default(), out))
    }

    /// Releases copies; with the last one the hold is over.
    ///
    /// # Errors
    ///
    /// [`OpRefused`] for no copies, for a hold that the epoch does not have, and for more copies than the
    /// hold has.
    pub fn release(&mut self, id: HoldId, copies: u32, out: &mut Effects) -> Result<(), OpRefused> {
        let (slot, facts) = self.live_with(id, copies)?;
        if facts.copies == copies {
            self.end(slot, out);
        } else {
            self.resize(slot, facts.copies - copies, out);
        }
        Ok(())
    }

    /// Moves copies of a hold to the staging area. They still count until an agent seizes them or a tick
    /// lets them go: the first tick at or after `at` + `ttl`, or an earlier one at which they have
    /// reached the greatest age of a hold.
    ///
    /// # Errors
    ///
    /// [`OpRefused`] as for [`release`](Self::release), for an id under which copies are staged already,
    /// and at the bound.
    pub fn transfer(
        &mut self,
        id: HoldId,
        copies: u32,
        to: TransferId,
        at: Timestamp,
        ttl: Span,
        out: &mut Effects,
    ) -> Result<(), OpRefused> {
        let (slot, facts) = self.live_with(id, copies)?;
        if self.staging.get(to).is_some() {
            return Err(OpRefused::TransferExists);
        }
        if copies < facts.copies && !self.has_place() {
            return Err(self.at_capacity());
        }
        let from = out.scopes_stated();
        let staged = Staged {
            domain: facts.domain,
            set: facts.set,
            copies,
            strict: facts.flags.strict,
            start: facts.start,
            end: at.saturating_add(ttl),
        };
        self.stage(to, staged);
        if facts.copies == copies {
            self.end(slot, out);
        } else {
            self.resize(slot, facts.copies - copies, out);
        }
        out.retract(from);
        Ok(())
    }

    /// Claims everything staged under an id, for a new hold of any agent, including the one that staged
    /// it. The hold has the domain, the groups and the start of the copies; see
    /// [`hold_of`](Self::hold_of). Returns the number of copies.
    ///
    /// # Errors
    ///
    /// [`OpRefused`] if nothing is staged (any more), for an id that is in use or was ended, and for an
    /// epoch that is over.
    pub fn seize(
        &mut self,
        from: TransferId,
        id: HoldId,
        out: &mut Effects,
    ) -> Result<u32, OpRefused> {
        if self.acting(id.agent)?.ended.contains(&id.number) {
            return Err(OpRefused::HoldEnded);
        }
        let before = self.holds.find(id);
        if before.is_some_and(|slot| !self.holds.facts(slot).flags.lost) {
            return Err(OpRefused::HoldExists);
        }
        let staged = *self.staging.get(from).ok_or(OpRefused::UnknownTransfer)?;
        if let Some(lost) = before {
            self.end(lost, out);
        }
        self.claim(from, &staged, id, out);
        Ok(staged.copies)
    }

    /// Ends a hold on behalf of an operator: its copies come back, and later heartbeats that list it do
    /// not restore it. Returns the number of copies; 0 if its agent was gone.
    ///
    /// # Errors
    ///
    /// [`OpRefused::UnknownHold`] if there is no hold with this id.
    pub fn end_hold(&mut self, id: HoldId, out: &mut Effects) -> Result<u32, OpRefused> {
        let slot = self.holds.find(id).ok_or(OpRefused::UnknownHold)?;
        let facts = self.holds.facts(slot);
        self.end(slot, out);
        self.stays_ended(id);
        Ok(if facts.flags.lost { 0 } else { facts.copies })
    }

    /// Lets staged copies go on behalf of an operator. Returns how many.
    ///
    /// # Errors
    ///
    /// [`OpRefused::UnknownTransfer`] if nothing is staged.
    pub fn end_transfer(&mut self, id: TransferId, out: &mut Effects) -> Result<u32, OpRefused> {
        let staged = self.unstage(id, out).ok_or(OpRefused::UnknownTransfer)?;
        Ok(staged.copies)
    }

    /// Whether a hold may begin under this id; `Some` is the slot of the hold that has the id already.
    fn may_begin(&self, ask: &CopiesRequest<'_>) -> Result<Option<u32>, OpRefused> {
        if ask.copies == 0 {
            return Err(OpRefused::NoCopies);
        }
        if self.acting(ask.id.agent)?.ended.contains(&ask.id.number) {
            return Err(OpRefused::HoldEnded);
        }
        Ok(self.holds.find(ask.id))
    }

    fn live_with(&self, id: HoldId, copies: u32) -> Result<(u32, HoldFacts), OpRefused> {
        let (slot, facts) = self.live(id)?;
        if copies == 0 {
            return Err(OpRefused::NoCopies);
        }
        if facts.copies < copies {
            return Err(OpRefused::TooManyCopies {
                held: facts.copies,
                asked: copies,
            });
        }
        Ok((slot, facts))
    }

    /// Counts copies in use, after the previous hold of this id has been removed.
    pub(super) fn hold_in_place_of(
        &mut self,
        ask: &CopiesRequest<'_>,
        before: Option<u32>,
        flags: Flags,
        out: &mut Effects,
    ) -> Taken {
        let from = out.scopes_stated();
        if let Some(slot) = before {
            self.end(slot, out);
        }
        let name: Cow<'_, str> = admit_domain(ask.domain);
        let asked = self.ask(&name);
        let taken = excess_of(ask.copies, self.room(&asked));
        self.take(ask, asked, None, flags, out);
        self.remember(ask.id, taken);
        if before.is_some() {
            out.settle(from);
        }
        taken
    }

    fn take(
        &mut self,
        ask: &CopiesRequest<'_>,
        asked: AskedDomain<'_>,
        lost: Option<u32>,
        flags: Flags,
        out: &mut Effects,
    ) {
        let facts = HoldFacts {
            id: ask.id,
            domain: self.come_in(&asked),
            set: asked.set,
            copies: ask.copies,
            start: ask.at,
            flags,
        };
        if let Some(slot) = lost {
            // The domain must not be removed in between.
            self.domains.refer(facts.domain);
            self.end(slot, out);
            self.begin(&facts);
            self.domains.unrefer(facts.domain);
        } else {
            self.begin(&facts);
        }
        let held = self.domains.at(facts.domain).copies();
        let limit = self.limit_of_class(asked.class);
        self.state_full(asked.name, limit, held, asked.set, out);
    }

    /// Turns staged copies into a hold; in between nothing is counted twice or not at all.
    pub(super) fn claim(
        &mut self,
        from: TransferId,
        staged: &Staged,
        id: HoldId,
        out: &mut Effects,
    ) {
        let stated = out.scopes_stated();
        self.begin(&HoldFacts {
            id,
            domain: staged.domain,
            set: staged.set,
            copies: staged.copies,
            start: staged.start,
            flags: Flags {
                strict: staged.strict,
                seized: true,
                lost: false,
            },
        });
        self.unstage(from, out);
        out.retract(stated);
    }
}

/// How many of `copies` the room allows, and the limit that allows no more.
fn largest(copies: u32, room: DomainRoom) -> (u32, Option<Limiter>) {
    match u32::try_from(room.copies) {
        Ok(least) if least < copies => (least, Some(room.by)),
        _ => (copies, None),
    }
}

/// The excess of copies that are counted whatever the room.
pub(super) fn excess_of(copies: u32, room: DomainRoom) -> Taken {
    let (granted, by) = largest(copies, room);
    Taken {
        excess: copies - granted,
        by,
    }
}
