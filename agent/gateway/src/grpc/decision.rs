//! Decides on the descriptors of one request: either all are let through, or none is counted.
//!
//! ```text
//! checked          hits: can all be made?   copies: can all be taken?
//! one cannot       nothing is taken; refusals are recorded
//! all can          copies are taken first, since they can be given back, then hits are recorded
//! ```
//!
//! What has happened already (records, copies that are given back) is applied whatever the result of the rest. Knows
//! nothing of protobuf. What stays true: no decision waits; what cannot be decided is let through and counted.

use std::time::Instant;

use tollgate_agent::{
    Agent, Allowed, Cause, Copies, Denied, Headers, HttpAnswer, Rate, Refused, Room,
};

use super::arrivals::{Arrival, HeldFor};
use super::asks::{DescriptorAct, DescriptorAsk, DescriptorRead};
use super::holds::EnvoyHolds;
use crate::authorize::hit;
use crate::state::{Shared, Undecided};

/// The decision on a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    /// The refusal. `None` if it is let through, unless a status is refused without a reason.
    pub refusal: Option<HttpAnswer>,
    /// Header fields about limits, if it is let through.
    pub headers: Headers,
    /// One status for each descriptor, in their order.
    pub statuses: Vec<Status>,
}

/// The decision on one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub is_refused: bool,
    /// What is known of its limit.
    pub room: Option<Room>,
}

impl Decision {
    /// Whether the request is refused.
    pub fn is_refused(&self) -> bool {
        self.refusal.is_some() || self.statuses.iter().any(|status| status.is_refused)
    }

    fn refuse(&mut self, at: usize, answer: Option<HttpAnswer>, room: Option<Room>) {
        if let Some(status) = self.statuses.get_mut(at) {
            *status = Status {
                is_refused: true,
                room,
            };
        }
        // Of several refusals, the one that lasts longest determines when to try again; one without an end lasts
        // longest.
        let lasts = |answer: &HttpAnswer| answer.retry_after_secs().unwrap_or(u64::MAX);
        if let Some(answer) = answer
            && self
                .refusal
                .as_ref()
                .is_none_or(|known| lasts(known) < lasts(&answer))
        {
            self.refusal = Some(answer);
        }
    }
}

/// What a decision needs.
pub(crate) struct Deciding<'a> {
    pub agent: &'a Agent,
    pub holds: &'a EnvoyHolds,
    pub arrival: Arrival,
}

/// The hits of one descriptor: its index, the resource, the domain, and the number.
struct Hits<'a> {
    at: usize,
    rate: Rate,
    domain: &'a str,
    copies: u32,
}

struct Uses<'a> {
    at: usize,
    copies: Copies,
    ask: &'a DescriptorAsk,
    count: u32,
}

impl Deciding<'_> {
    /// Decides on descriptors.
    pub fn decide(&self, descriptors: &[DescriptorRead]) -> Decision {
        let mut decision = Decision {
            statuses: vec![Status::default(); descriptors.len()],
            ..Decision::default()
        };
        let mut hits = Vec::new();
        let mut uses = Vec::new();
        for (at, read) in descriptors.iter().enumerate() {
            match read {
                DescriptorRead::Undecided(why) => Shared::note_undecided(*why),
                DescriptorRead::Refused => decision.refuse(at, None, None),
                DescriptorRead::Ask(ask) => match ask.act {
                    DescriptorAct::Take(count) => self.sort(at, ask, count, (&mut hits, &mut uses)),
                    DescriptorAct::Look => self.sort(at, ask, 0, (&mut hits, &mut uses)),
                    DescriptorAct::Record(count) => self.record(ask, count),
                    DescriptorAct::Release(count) => self.release(ask, count),
                },
            }
        }
        match (&*hits, &*uses) {
            // After a refusal without asking, nothing is taken for the rest.
            _ if decision.is_refused() => Shared::note("refused"),
            ([], []) => {}
            ([one], []) => decide_one(one, &mut decision),
            _ => self.decide_all(&hits, &uses, &mut decision),
        }
        if decision.is_refused() {
            // Envoy reports the end of this request, too.
            for uses in uses {
                let (held_for, count) = (held_for(uses.ask), u64::from(uses.count));
                self.holds
                    .refuse(self.arrival, held_for, count, Instant::now());
            }
        }
        decision
    }

    /// Sorts a request into hits or copies, by how its resource is limited.
    fn sort<'d>(
        &self,
        at: usize,
        ask: &'d DescriptorAsk,
        count: u32,
        (hits, uses): (&mut Vec<Hits<'d>>, &mut Vec<Uses<'d>>),
    ) {
        let rate = self.agent.rate(&ask.resource);
        if rate.is_limited_by_copies() {
            let copies = self.agent.copies(&ask.resource);
            uses.push(Uses {
                at,
                copies,
                ask,
                count,
            });
        } else {
            hits.push(Hits {
                at,
                rate,
                domain: &ask.domain,
                copies: count,
            });
        }
    }

    fn record(&self, ask: &DescriptorAsk, count: u32) {
        let rate = self.agent.rate(&ask.resource);
        match rate.is_limited_by_copies() {
            true => Shared::note_undecided(Undecided::NotRate),
            false => rate.record(&ask.domain, count),
        }
    }

    fn release(&self, ask: &DescriptorAsk, count: u64) {
        let why = || match self.agent.rate(&ask.resource).is_limited_by_copies() {
            true => Undecided::NotHeld,
            false => Undecided::NegativeHits,
        };
        let now = Instant::now();
        let left = self
            .holds
            .release(self.arrival, &held_for(ask), count, why, now);
        if left != 0 {
            Shared::note_undecided(why());
        }
    }

    fn decide_all(&self, hits: &[Hits<'_>], uses: &[Uses<'_>], decision: &mut Decision) {
        let looked = hits
            .iter()
            .map(|hits| (hits.at, hits.rate.peek(hits.domain)));
        let looked: Vec<(usize, Result<Allowed, Denied>)> = looked.collect();
        let is_denied = looked.iter().any(|(_, looked)| looked.is_err());
        // No copies are taken in vain. Refusals are recorded below all the same.
        let taken = match is_denied {
            true => Ok(Vec::new()),
            false => take(self.agent, uses),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err((at, error)) => {
                Shared::note("refused");
                return decision.refuse(at, Some(error.http()), room_of(&error));
            }
        };
        let wishes = hits
            .iter()
            .map(|hits| (&hits.rate, hits.domain, hits.copies));
        let wishes: Vec<(&Rate, &str, u32)> = wishes.collect();
        match self.agent.hit_all_n(&wishes) {
            Ok(allowed) => {
                Shared::note(if allowed.blind() { "blind" } else { "allowed" });
                decision.headers = allowed.headers();
                for (one, (at, looked)) in hits.iter().zip(looked) {
                    let room = looked.ok().and_then(|allowed| allowed.room());
                    let taken = taken_of_pair(hits, one);
                    let left = room.map(|room| Room {
                        remaining: room.remaining.saturating_sub(taken),
                        ..room
                    });
                    set_room(decision, at, left);
                }
                for (uses, hold) in taken {
                    let held_for = held_for(uses.ask);
                    self.holds
                        .keep(self.arrival, held_for, hold, Instant::now());
                }
            }
            // Copies that were taken are given back.
            Err(error) => {
                let of_looked = looked
                    .into_iter()
                    .filter_map(|(at, looked)| Some((at, looked.err()?)));
                for (at, denied) in of_looked {
                    decision.refuse(at, Some(denied.http()), denied.room());
                }
                refuse_by(&error, hits, decision);
            }
        }
    }
}

fn held_for(ask: &DescriptorAsk) -> HeldFor {
    HeldFor::new(&ask.resource, &ask.domain, &ask.request)
}

/// Decides on hits of one pair alone.
fn decide_one(one: &Hits<'_>, decision: &mut Decision) {
    match hit(&one.rate, one.domain, one.copies) {
        Ok(allowed) => {
            Shared::note(if allowed.blind() { "blind" } else { "allowed" });
            decision.headers = allowed.headers();
            set_room(decision, one.at, allowed.room());
        }
        Err(error) => refuse_by(&error, std::slice::from_ref(one), decision),
    }
}

/// How many hits a request takes of a descriptor's pair, which several of its descriptors may name.
fn taken_of_pair(hits: &[Hits<'_>], one: &Hits<'_>) -> u64 {
    let is_same = |other: &&Hits<'_>| {
        other.domain == one.domain && other.rate.resource() == one.rate.resource()
    };
    let taken = hits.iter().filter(is_same);
    taken.map(|hits| u64::from(hits.copies)).sum()
}

fn set_room(decision: &mut Decision, at: usize, room: Option<Room>) {
    if let Some(status) = decision.statuses.get_mut(at) {
        status.room = room;
    }
}

/// Refuses by an error of several hits; an error without a descriptor is assigned to the first one that asks for
/// most.
fn refuse_by(error: &Refused, hits: &[Hits<'_>], decision: &mut Decision) {
    let room = match error {
        Refused::Denied(denied) if denied.cause() == Cause::NotRate => {
            // The resource's limits arrived between the check and the hit.
            return Shared::note_undecided(Undecided::NotRate);
        }
        Refused::Misuse(_) => return Shared::note_undecided(Undecided::Misuse),
        Refused::Denied(denied) => denied.room(),
        _ => None,
    };
    Shared::note("refused");
    if decision.statuses.iter().any(|status| status.is_refused) {
        return decision.refuse(usize::MAX, Some(error.http()), None);
    }
    let first = hits
        .iter()
        .max_by_key(|hits| (hits.copies, std::cmp::Reverse(hits.at)));
    decision.refuse(first.map_or(0, |hits| hits.at), Some(error.http()), room);
}

type TakenCopies<'u, 'a> = Vec<(&'u Uses<'a>, tollgate_agent::Hold)>;

/// Takes copies of all, or of none; fails with the descriptor that is refused. A request that cannot be decided here
/// is let through without a hold.
fn take<'u, 'a>(
    agent: &Agent,
    uses: &'u [Uses<'a>],
) -> Result<TakenCopies<'u, 'a>, (usize, Refused)> {
    let mut asked: Vec<&Uses<'a>> = Vec::new();
    for one in uses {
        if one.copies.is_strict() {
            Shared::note_undecided(Undecided::Strict);
        } else if one.count != 0 {
            asked.push(one);
        } else if let Err(error @ Refused::Denied(_)) = one.copies.peek(&one.ask.domain) {
            return Err((one.at, error));
        }
    }
    let wishes = asked
        .iter()
        .map(|one| (&one.copies, &*one.ask.domain, one.count));
    let wishes: Vec<(&Copies, &str, u32)> = wishes.collect();
    match agent.reserve_all(&wishes, None) {
        Ok(together) => Ok(asked.into_iter().zip(together.holds).collect()),
        Err(error @ (Refused::Denied(_) | Refused::TooMany(_))) => {
            let is_full = |one: &&&Uses<'_>| one.copies.peek(&one.ask.domain).is_err();
            let full = asked.iter().find(is_full).or(asked.first());
            Err((full.map_or(0, |one| one.at), error))
        }
        // The resource's limits arrived between the check and the taking.
        Err(_) => {
            Shared::note_undecided(Undecided::Misuse);
            Ok(Vec::new())
        }
    }
}

fn room_of(error: &Refused) -> Option<Room> {
    match error {
        Refused::Denied(denied) => denied.room(),
        _ => None,
    }
}
