//! Laws 3 and 6: each operation on copies comes to what a ledger of the check's own comes to, by limits read from the
//! document's text.
//!
//! ```text
//! before the record    the engine's list of holds    becomes a `ledger`
//! operation by operation                             it comes to what was said of it, once
//! afterwards           the engine's list of holds    is the ledger
//! ```
//!
//! What one record does wrongly is found there, and not held against the next. Which domains are banned say `bans`.
//! Lists of beats and ticks are none of its business. What stays true: of an operation one thing is said at most.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_engine::engine::{Engine, Fate};
use tollgate_limits::versions::Version;
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{Does, HoldBatch};
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::VerdictSays;

use super::fullness::AllSizes;
use super::ledger::{Ledger, Outcome, Room, Rule};
use super::watch::Ruled;

/// Ledgers, as they were before it, of the resources that a batch is about, and which numbers of its epoch have been
/// ended in each.
#[derive(Debug, Default)]
pub(super) struct Ledgers(BTreeMap<Box<str>, (Ledger, BTreeSet<u64>)>);

/// How much of a batch was judged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judged {
    /// Operations.
    pub ops: u64,
    /// Those of domains that were banned.
    pub banned: u64,
    /// What was said of them.
    said: usize,
}

impl Ledgers {
    /// What an engine lists of the resources of a batch.
    pub(super) fn before(engine: &Engine, batch: &HoldBatch<'_>) -> Self {
        let all = engine.copies();
        let of_it = all.filter(|(name, _)| batch.resources().contains(&&***name));
        let sender = batch.sender;
        Self(
            of_it
                .map(|(name, copies)| {
                    let agent = copies.known_agent(sender.agent, sender.epoch);
                    let ended = agent.into_iter().flat_map(|agent| copies.ended_of(agent));
                    ((**name).into(), (Ledger::of(copies), ended.collect()))
                })
                .collect(),
        )
    }
}

/// Whether what was said of an operation, and that alone, is what it came to.
fn is_said(outcome: &Outcome, says: &[&VerdictSays]) -> bool {
    let is_near = |by: &Option<Scope>, nearest: &Room| match by {
        Some(scope) => nearest.contains(scope),
        None => nearest.is_empty(),
    };
    match (outcome, says) {
        (Outcome::Done, []) | (Outcome::Ended, [VerdictSays::Ended { .. }]) => true,
        (Outcome::Granted(expected, nearest), [VerdictSays::Granted { copies, by, .. }]) => {
            expected == copies && is_near(by, nearest)
        }
        (Outcome::Counted(expected, nearest), [VerdictSays::Counted { excess, by, .. }]) => {
            expected == excess && is_near(by, nearest)
        }
        (
            Outcome::Seized(expected),
            [VerdictSays::Seized { copies, .. } | VerdictSays::Held { copies, .. }],
        ) => expected == copies,
        (Outcome::Refused(expected), [VerdictSays::Refused { why, .. }]) => expected == why,
        _ => false,
    }
}

/// Whether a verdict answers an operation on this hold.
fn answers(says: &VerdictSays, number: u64) -> bool {
    match says {
        VerdictSays::Counted { number: of, .. }
        | VerdictSays::Granted { number: of, .. }
        | VerdictSays::Seized { number: of, .. }
        | VerdictSays::Held { number: of, .. }
        | VerdictSays::Ended { number: of, .. }
        | VerdictSays::Refused { number: of, .. }
        | VerdictSays::NotHeld { number: of } => *of == number,
        VerdictSays::BeatWanted => false,
    }
}

impl Ruled {
    /// Holds what a batch came to against ledgers of what was before it, which follow it.
    ///
    /// # Errors
    ///
    /// Which operation, what was said, and what it comes to.
    pub(super) fn check_grants(
        &self,
        version: &Version,
        all: &AllSizes,
        Ledgers(mut ledgers): Ledgers,
        batch: &HoldBatch<'_>,
    ) -> Result<Judged, String> {
        let mut judged = Judged::default();
        let is_applied = self.rulings.fates == [Fate::Applied];
        let Sender { agent, epoch, .. } = batch.sender;
        // Who comes back is asked for what it holds, whatever its operations are.
        let all_said = self.rulings.verdicts.iter();
        let all_said = all_said.filter(|due| due.says != VerdictSays::BeatWanted);
        let log = self.log_time();
        for (op, entry) in batch.ops().zip(0..).filter(|_| is_applied) {
            let resource = batch.resource(op.resource);
            let Some(sizes) = all.get(resource) else {
                continue;
            };
            let (ledger, ended) = ledgers.entry(resource.into()).or_default();
            let is_heeded = !version.limits.namespace_of(resource).ignore_configured;
            let is_banned = match op.does {
                Does::Reserve { domain, .. } | Does::Hold { domain, .. } => {
                    is_heeded && self.bans.is_banned(resource, domain, log)
                }
                _ => false,
            };
            let said = all_said.clone().filter(|due| due.place.entry == entry);
            let is_of_it = said.clone().all(|due| {
                *due.agent == *agent
                    && due.epoch == epoch
                    && *due.resource == *resource
                    && answers(&due.says, op.number)
            });
            let says: Vec<_> = said.map(|due| &due.says).collect();
            let rule = Rule {
                sizes,
                is_heeded,
                is_ended: ended.contains(&op.number),
                is_banned,
            };
            let comes_to = ledger.follow(epoch, &op, rule);
            if !is_of_it || !is_said(&comes_to, &says) {
                return Err(format!(
                    "operation {entry} of {resource}, {op:?} of epoch {epoch:x}, under version {}: {says:?} was said, \
                     expected {comes_to:?}",
                    version.number
                ));
            }
            judged.ops += 1;
            judged.banned += u64::from(is_banned);
            judged.said += says.len();
        }
        let are_all_judged = judged.ops == u64::from(batch.ops_len());
        if are_all_judged && judged.said != all_said.count() {
            let verdicts = &self.rulings.verdicts;
            return Err(format!(
                "{} operations of epoch {epoch:x}: {verdicts:?} was said",
                judged.ops
            ));
        }
        for (name, (expected, _)) in &ledgers {
            let found = self.engine.copies().find(|(of, _)| ***of == **name);
            let found = found.map_or_else(Ledger::default, |(_, copies)| Ledger::of(copies));
            if all.contains_key(&**name) && found != *expected {
                return Err(format!(
                    "{name}, after operations of epoch {epoch:x}: {found:?}, expected {expected:?}"
                ));
            }
        }
        Ok(judged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_more_or_less_than_it_comes_to_is_not_what_was_said() {
        let outcome = Outcome::Granted(2, Room::new());
        let says = |copies| VerdictSays::Granted {
            number: 1,
            copies,
            by: None,
        };
        assert!(is_said(&outcome, &[&says(2)]));
        assert!(!is_said(&outcome, &[&says(1)]));
        assert!(!is_said(&outcome, &[&says(3)]));
        assert!(!is_said(&outcome, &[]));
        assert!(!is_said(&outcome, &[&says(2), &says(2)]), "twice");
    }
}
