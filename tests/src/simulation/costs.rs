//! Services with costs that are known only afterwards: charges, which no limiter checks,
//! and estimates that are settled.
//!
//! ```text
//! acme, 40 estimated     let through, and counted at once
//! 2.1 s later, 12 used   28 taken back      or: 55 used, 15 charged
//! acme, 9 used           charged: an entry like a hit, whatever denials are in force
//! ```
//!
//! Knows nothing of limits. What stays true: an estimate is settled at most once, by the life that made it, and the
//! settled copies are accounted for like a call.

use tollgate_agent::{Allowed, Estimate, Refused, SettleError, Settled};

use super::documents::DOMAINS;
use super::guards::Guard;
use super::quiescent_effect::CalledAt;
use super::world::World;

/// The longest time from an estimate to its settlement.
const SETTLED_WITHIN_US: u64 = 8_000_000;

/// An estimate that is not settled yet.
pub(super) struct Pending {
    estimate: Estimate,
    pair: (usize, usize),
    due_us: u64,
    /// Its index among the calls of the quiescent phase.
    called_at: CalledAt,
}

impl World {
    /// Decides whether this call is a charge, and makes it.
    pub(super) fn charges(&mut self, agent: usize, (r, d): (usize, usize)) -> bool {
        let host = &mut self.agents[agent];
        let ppm = host.plan.charges_ppm;
        if ppm == 0 || !host.random.chance(ppm) {
            return false;
        }
        let copies = host.random.between(1, host.plan.bulk_max) as u32;
        host.rates[r].record(DOMAINS[d], copies);
        self.see("cost charged");
        self.accounts_for(agent, (r, d), copies);
        true
    }

    /// Decides whether this call is an estimate. Returns the answer and the copies if it is.
    pub(super) fn estimates(
        &mut self,
        agent: usize,
        (r, d): (usize, usize),
    ) -> Option<(Result<Allowed, Refused>, u32)> {
        let host = &mut self.agents[agent];
        let ppm = host.plan.estimates_ppm;
        if ppm == 0 || !host.random.chance(ppm) {
            return None;
        }
        let copies = host.random.between(1, host.plan.bulk_max) as u32;
        let answer = host.rates[r].hit_estimated(DOMAINS[d], copies);
        let answer = answer.map(|estimate| {
            let allowed = estimate.allowed();
            let due_us = self.now_us + host.random.spread(1_000, SETTLED_WITHIN_US);
            host.estimates.push(Pending {
                estimate,
                pair: (r, d),
                due_us,
                called_at: None,
            });
            allowed
        });
        Some((answer, copies))
    }

    /// Settles estimates whose costs are known by now.
    pub(super) fn settle_estimates(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        let now_us = self.now_us;
        let due: Vec<_> = { host.estimates.extract_if(.., |one| one.due_us <= now_us) }.collect();
        for one in due {
            let Pending {
                estimate,
                pair,
                called_at,
                ..
            } = one;
            let host = &mut self.agents[agent];
            let actual = host.random.below(2 * u64::from(estimate.copies()) + 1) as u32;
            let cover = &mut self.watch.cover;
            match estimate.settle(actual) {
                Ok(Settled::TakenBack(copies)) => {
                    cover.see("estimate taken back");
                    let epoch = host.epoch;
                    self.watch.accounts.life(epoch).takes_back(pair, copies);
                    self.quiescent_calls.takes_back(pair, called_at, copies);
                }
                Ok(Settled::Charged(copies)) => self.accounts_for(agent, pair, copies),
                Ok(Settled::Kept) => cover.see("estimate kept"),
                // On a host that was frozen for ten minutes.
                Ok(_) | Err(SettleError::TooLate { .. }) => {}
                Err(error) => self.violated(7, "calls make sense here", error.to_string()),
            }
        }
    }

    /// Notes the newest estimate's index among the calls of the quiescent phase.
    pub(super) fn estimate_stands_at(&mut self, agent: usize, called_at: CalledAt) {
        if let Some(newest) = self.agents[agent].estimates.last_mut() {
            newest.called_at = called_at;
        }
    }

    /// Accounts for copies that are an entry but were not checked by a limiter.
    fn accounts_for(&mut self, agent: usize, pair: (usize, usize), copies: u32) {
        let life = self.watch.accounts.life(self.agents[agent].epoch);
        life.let_through(pair, copies, copies, Guard::Unknown);
    }
}
