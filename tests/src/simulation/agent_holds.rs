//! Services that hold copies: they take them, return parts, transfer them to each other, and wait for grants.
//!
//! What stays true: [`Holding`] records each hold of a process, so that it can be compared with the log's counts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_agent::{Cause, Copies, Denied, Hold, HoldChange, HoldFault, HoldNews, Refused};
use tollgate_shared::holdings::TransferId;
use tollgate_shared::wire::verdict::EndedBy;

use super::agent_host::AgentHost;
use super::awaited::{Awaited, NotHad, Wait};
use super::copy_limits::COPIES;
use super::documents::DOMAINS;
use super::plan::QUIET_US;
use super::random::Random;
use super::world::World;

/// In this part of the quiescent phase no service takes or returns anything, so that holds can be compared with
/// counts: after every agent was heard or missed, and before all holds are returned.
pub(super) const PAUSE_US: std::ops::Range<u64> = 6_500_000..9_000_000;

/// The greatest number of holds of one process.
const HOLDS_MAX: usize = 64;

/// How long a service waits for a grant or a seize.
pub(super) const WAIT: Duration = Duration::from_secs(3);

/// A hold that has ended: its resource, its number, and who ended it.
type Over = (Box<str>, u64, EndedBy);

/// A hold in use.
struct InUse {
    hold: Hold,
    /// The domain that holds it. `None`: the hold was seized, and its domain is not known here.
    domain: Option<usize>,
    until_us: u64,
}

/// The holds of the services of one process.
#[derive(Default)]
pub struct Holding {
    random: Random,
    /// Handles.
    pub copies: Vec<Copies>,
    in_use: Vec<(usize, InUse)>,
    pub(super) awaited: Vec<Awaited>,
    /// Strict reserves that a verdict refused, in this life, by resource.
    pub(super) not_granted: [u64; COPIES.len()],
    /// What the agent's callback reported, until the simulation reads it.
    news: Arc<Mutex<Vec<Over>>>,
    /// Holds that ended without an act of their holders, by resource and number.
    over: BTreeSet<(usize, u64)>,
    /// Draws how holders react to such an end.
    random_of_over: Random,
    pub changed_us: u64,
    /// Number of calls that were let through, in all lives.
    pub granted: u64,
}

/// Transfers that no service has seized yet.
#[derive(Debug, Default)]
pub struct Offered(VecDeque<(usize, TransferId)>);

impl Holding {
    /// A process without holds.
    pub fn new(seed: u64, agent: usize) -> Self {
        Self {
            random: Random::of(seed, "holds", agent as u64),
            random_of_over: Random::of(seed, "holds over", agent as u64),
            ..Self::default()
        }
    }

    /// Copies of a resource in use, of the holds that `are_meant`.
    fn copies_in_use(&self, resource: usize, are_meant: impl Fn(&InUse) -> bool) -> u64 {
        let is_it = |(of, one): &&(usize, InUse)| *of == resource && are_meant(one);
        let of_it = self.in_use.iter().filter(is_it);
        of_it.map(|(_, one)| u64::from(one.hold.copies())).sum()
    }

    /// Copies of a resource in use.
    pub fn held(&self, resource: usize) -> u64 {
        self.copies_in_use(resource, |_| true)
    }

    /// The greatest number of copies of a resource that one domain may have in use: a seized hold may be its own.
    pub fn held_by(&self, resource: usize, domain: usize) -> u64 {
        self.copies_in_use(resource, |one| one.domain.is_none_or(|of| of == domain))
    }

    /// Copies of all resources in use.
    pub fn held_of_all(&self) -> u64 {
        (0..COPIES.len()).map(|resource| self.held(resource)).sum()
    }

    /// Copies of a resource in use that count, as far as the agent knows.
    pub fn counting(&self, resource: usize) -> u64 {
        self.copies_in_use(resource, |one| {
            let number = one.hold.number();
            number.is_none_or(|number| !self.over.contains(&(resource, number)))
        })
    }

    /// The callback for changes of holds of a process that starts.
    pub(super) fn on_hold(&mut self) -> impl Fn(&HoldNews<'_>) + Send + Sync + use<> {
        self.over.clear();
        self.not_granted = [0; COPIES.len()];
        // The previous process's callback may still be called.
        self.news = Arc::default();
        let news = Arc::clone(&self.news);
        move |one: &HoldNews<'_>| {
            if let HoldChange::Ended(by) = one.change() {
                let over = (one.resource().into(), one.number(), *by);
                let mut news = news.lock().unwrap_or_else(PoisonError::into_inner);
                news.push(over);
            }
        }
    }

    /// Whether a service waits for a grant or a seize.
    pub fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Drops everything: it was returned, or ended with the process.
    pub fn let_go(&mut self) {
        self.in_use.clear();
        self.awaited.clear();
    }
}

impl AgentHost {
    /// Whether its services use copies.
    pub fn uses_copies(&self) -> bool {
        0 < self.plan.holds_per_s
    }
}

impl World {
    /// Services take copies, give them back and hand them over.
    pub(super) fn use_copies(&mut self, agent: usize) {
        let now_us = self.now_us;
        let host = &mut self.agents[agent];
        if !host.uses_copies() || host.process.is_none() {
            return;
        }
        if self.plan.length_us - QUIET_US <= now_us {
            if !host.holding.in_use.is_empty() || host.holding.awaits() {
                host.holding.let_go();
                host.holding.changed_us = now_us;
                self.schedule_flush(agent);
            }
            return;
        }
        if PAUSE_US.contains(&now_us.saturating_sub(self.plan.quiescence_us())) {
            return;
        }
        let mut changed = self.give_back(agent);
        let host = &mut self.agents[agent];
        // A burst of calls about every `per_burst` microseconds.
        let per_burst = host.plan.holds_per_s * host.plan.every_us;
        let mut takes = per_burst / 1_000_000;
        takes += u64::from(host.holding.random.below(1_000_000) < per_burst % 1_000_000);
        for _ in 0..takes {
            self.take_copies(agent);
            changed = true;
        }
        if changed {
            self.agents[agent].holding.changed_us = now_us;
            let held = self.agents[agent].holding.held_of_all();
            self.event(&[12, agent as u64, takes, held], || {
                format!("agent {agent} holds {held} copies")
            });
            self.schedule_flush(agent);
        }
    }

    /// Returns holds whose time is over, in parts, or transfers them.
    fn give_back(&mut self, agent: usize) -> bool {
        let now_us = self.now_us;
        let holding = &mut self.agents[agent].holding;
        let mut changed = false;
        let mut faults = Vec::new();
        let mut at = 0;
        while let Some((resource, one)) = holding.in_use.get_mut(at) {
            if now_us < one.until_us {
                at += 1;
                continue;
            }
            changed = true;
            let copies = one.hold.copies();
            match holding.random.below(4) {
                0 if 1 < copies => {
                    let some = holding.random.between(1, u64::from(copies) - 1) as u32;
                    faults.extend(one.hold.release(some).err());
                    one.until_us = now_us + holding.random.spread(1_000, 1_000_000);
                }
                1 => {
                    let ttl = Duration::from_micros(holding.random.spread(20_000, 4_000_000));
                    match one.hold.transfer(copies, ttl) {
                        Ok(id) => {
                            self.offered.0.push_back((*resource, id));
                            self.watch.cover.see("copies handed over");
                        }
                        Err(HoldFault::Unrecorded) => {}
                        Err(fault) => faults.push(fault),
                    }
                    holding.in_use.remove(at);
                }
                _ => drop(holding.in_use.remove(at)),
            }
        }
        self.check_given_back(agent, &faults);
        changed
    }

    /// Law 6: a hold that counts can be returned in parts, and transferred once it is in the log.
    fn check_given_back(&mut self, agent: usize, faults: &[HoldFault]) {
        if let Some(fault) = faults.iter().find(|fault| !is_over(**fault)) {
            let what = format!("agent {agent}: {fault}");
            self.violated(6, "what is held can be given back and handed over", what);
        }
    }

    fn take_copies(&mut self, agent: usize) {
        let now_us = self.now_us;
        let host = &mut self.agents[agent];
        let holding = &mut host.holding;
        if HOLDS_MAX <= holding.in_use.len() + holding.awaited.len() {
            return;
        }
        let random = &mut holding.random;
        if random.one_in(5)
            && let Some((resource, id)) = self.offered.0.pop_front()
        {
            let copies = holding.copies[resource].clone();
            let seize = async move { copies.seize_within(id, WAIT).await.map_err(NotHad::Seize) };
            let wait = Wait {
                resource,
                domain: None,
                asked_us: now_us,
            };
            return holding.awaited.push(Awaited::new(wait, seize));
        }
        let resource = random.below(COPIES.len() as u64) as usize;
        let d = random.below(DOMAINS.len() as u64) as usize;
        let d = random.below(d as u64 + 1) as usize;
        let wanted = random.between(1, 4) as u32;
        let copies = holding.copies[resource].clone();
        let limits = self.plan.documents[0].copies.as_ref();
        if limits.is_some_and(|limits| limits.is_strict(resource)) {
            let reserve = async move {
                let reserve = copies.reserve_confirmed(DOMAINS[d], wanted, WAIT);
                let not_had = |refused| NotHad::Reserve(refused, wanted);
                reserve.await.map_err(not_had)
            };
            let wait = Wait {
                resource,
                domain: Some(d),
                asked_us: now_us,
            };
            return holding.awaited.push(Awaited::new(wait, reserve));
        }
        let (taken, min) = match random.one_in(3) {
            true => (copies.reserve_up_to(DOMAINS[d], 1..=wanted), 1),
            false => (copies.reserve(DOMAINS[d], wanted), wanted),
        };
        match taken {
            Ok(hold) => {
                holding.granted += 1;
                self.see("copies taken");
                self.uses(agent, (resource, Some(d)), hold);
            }
            Err(error) => self.not_reserved(agent, (resource, d), min, error),
        }
    }

    /// Notes a hold that is in use from now on.
    pub(super) fn uses(
        &mut self,
        agent: usize,
        (resource, domain): (usize, Option<usize>),
        hold: Hold,
    ) {
        let host = &mut self.agents[agent];
        let holding = &mut host.holding;
        let until_us = self.now_us + holding.random.spread(1_000, host.plan.hold_max_us);
        let one = InUse {
            hold,
            domain,
            until_us,
        };
        holding.in_use.push((resource, one));
    }

    /// Holders learn which of their holds have ended. Of the holds that an operator ended, every other one is
    /// given up; the rest stays in use.
    pub(super) fn hear_of_holds(&mut self, agent: usize) {
        let holding = &mut self.agents[agent].holding;
        let news =
            std::mem::take(&mut *holding.news.lock().unwrap_or_else(PoisonError::into_inner));
        for (name, number, by) in news {
            let Some(resource) = COPIES.iter().position(|of| **of == *name) else {
                continue;
            };
            holding.over.insert((resource, number));
            if by == EndedBy::Operator && holding.random_of_over.one_in(2) {
                holding
                    .in_use
                    .retain(|(of, one)| *of != resource || one.hold.number() != Some(number));
                holding.changed_us = self.now_us;
            }
        }
    }

    /// Law 3, for a call of more copies than any domain may have.
    pub(super) fn never_reserved(&mut self, agent: usize, resource: usize, min: u32) {
        self.decisions += 1;
        self.refusals += 1;
        self.see("more copies than any limit grants");
        let limit = self.watch.least_limit(COPIES[resource]);
        if limit.is_none_or(|limit| u64::from(min) <= limit) {
            let what = format!("agent {agent}: {min} are wanted, the limit is {limit:?}");
            self.violated(3, "a refusal of copies is justified", what);
        }
    }

    fn not_reserved(
        &mut self,
        agent: usize,
        (resource, d): (usize, usize),
        min: u32,
        error: Refused,
    ) {
        let denied = match error {
            Refused::Denied(denied) => denied,
            Refused::TooMany(_) => return self.never_reserved(agent, resource, min),
            // Before the first limits arrive, the agent does not know that the resource is strict.
            other => return self.violated(7, "calls make sense here", other.to_string()),
        };
        self.decisions += 1;
        self.refusals += 1;
        match denied.code() {
            Some(_) => self.refused_copies(agent, resource, d, &denied),
            None if denied.cause() == Cause::Full => {
                self.see("copies refused by own holds");
                if let Some(why) = self.fits_beside_own_holds(agent, (resource, d), min) {
                    let what = format!(
                        "agent {agent} refuses {} for {} by what it holds itself: {why}",
                        COPIES[resource], DOMAINS[d]
                    );
                    self.violated(3, "a refusal of copies is justified", what);
                }
            }
            None => {
                let what = format!("agent {agent} refused by {:?}", denied.cause());
                self.violated(3, "nobody refuses by policy here", what);
            }
        }
    }

    /// Why this many further copies fit beside the process's own holds, under every limits version that it may know.
    pub(super) fn fits_beside_own_holds(
        &self,
        agent: usize,
        (resource, d): (usize, usize),
        min: u32,
    ) -> Option<String> {
        let held = self.agents[agent].holding.held_by(resource, d);
        let limit = self.watch.least_limit(COPIES[resource]);
        let fits = limit.is_none_or(|limit| held + u64::from(min) <= limit);
        fits.then(|| format!("{held} are held and {min} wanted, the least limit ever is {limit:?}"))
    }

    /// Law 3: copies are refused only if the newest statement that the agent may know calls the scope full.
    pub(super) fn refused_copies(
        &mut self,
        agent: usize,
        resource: usize,
        d: usize,
        denied: &Denied,
    ) {
        self.see("copies refused as full");
        let pair = (COPIES[resource], DOMAINS[d]);
        self.check_refusal(agent, pair, denied, "a refusal of copies is justified");
    }
}

/// Whether a fault means that the agent knows the hold no longer counts.
fn is_over(fault: HoldFault) -> bool {
    matches!(fault, HoldFault::Ended(_) | HoldFault::Uncounted(_))
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::*;

    #[test]
    fn a_counted_hold_that_cannot_be_released_is_a_violation() {
        let mut world = World::new(Plan::draw(1), false);
        let over = HoldFault::Ended(EndedBy::Operator);
        world.check_given_back(0, &[over]);
        assert_eq!(world.violation, None);
        let (asked, held) = (2, 1);
        world.check_given_back(0, &[over, HoldFault::TooMany { asked, held }]);
        let found = world.violation.expect("the hold has fewer");
        let check = "what is held can be given back and handed over";
        assert_eq!((found.law, &*found.check), (6, check));
    }
}
