//! Amendments: what operators do by hand, from the log position of the activation that brings them in.
//!
//! ```text
//! acme is denied until 12:00:07
//! pardon at 12:00:02    lifted; until 12:00:07 no denial of acme is stated; its hits count as usual; it is over
//!                       earlier if a hit is granted, because a version or refund has made room
//! reset  at 12:00:02    lifted; its windows are empty, its tiers inactive
//! refund 3              three hits are taken out of its windows: lifted, or denied for less long
//! ban until 18:00       denied until then: hits that arrive all the same are excess
//! ```
//!
//! An amendment takes effect at the pair's time or the time of the activation record, whichever is later. Knows
//! nothing of the operator and of limits documents. What stays true: an amendment of an unknown pair changes
//! nothing, unless it is a ban, and it causes statements only about the scopes that it names.

use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::{self, partition_of_resource};
use tollgate_shared::networks::NetworkText;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::verdict::EndedBy;

use super::Engine;
use super::activations::{PairAction, ScopeToRule};
use super::amended::{Ban, PairAmendments};
use super::banned_scopes::BannedScopes;
use super::holds::ended;
use super::network_bans::banned_network;
use super::rulings::Rulings;
use crate::copies::{Copies, HoldId, TransferId};

/// Version and instant of an amendment.
#[derive(Clone, Copy)]
pub(super) struct AmendedAt {
    /// Its number among the versions.
    pub version: u64,
    /// When its activation was appended, or [`Engine::now`] if that is later.
    pub at: Timestamp,
}

impl Engine {
    /// Applies what an operator wrote. Returns the scopes that are still to be ruled again, if there may be any.
    pub(super) fn amend(
        &mut self,
        when: AmendedAt,
        act: &Act,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) -> Option<BannedScopes> {
        match act {
            Act::Reset { resource, domain } => {
                self.touch(
                    when,
                    (resource, domain),
                    PairAction::Reset,
                    position,
                    rulings,
                );
            }
            Act::Pardon { resource, domain } => {
                self.touch(
                    when,
                    (resource, domain),
                    PairAction::Pardon,
                    position,
                    rulings,
                );
            }
            Act::Refund {
                resource,
                domain,
                hits,
            } => {
                let touch = PairAction::Refund(*hits);
                self.touch(when, (resource, domain), touch, position, rulings);
            }
            Act::Ban {
                resource,
                domain,
                until,
            } => {
                let ban = Ban {
                    until: *until,
                    version: when.version,
                };
                // A ban that has ended by log time would never be removed.
                let ban = Some(ban).filter(|_| when.at < *until);
                return self.set_ban(when, (resource.as_deref(), domain), ban);
            }
            Act::Unban { resource, domain } => {
                return self.set_ban(when, (resource.as_deref(), domain), None);
            }
            Act::ReleaseHold { .. } | Act::ReleaseHolds { .. } | Act::ReleaseTransfer { .. } => {
                self.release_holds(act, position, rulings);
            }
            // These change limits.
            Act::Switch { .. } | Act::Set(_) | Act::SetMany(_) => {}
        }
        None
    }

    /// Applies `touch` to a pair that is ruled here, and rules its denial again.
    fn touch(
        &mut self,
        when: AmendedAt,
        (resource, domain): (&str, &str),
        touch: PairAction,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) {
        if !self.rules_pair(resource, domain) {
            return;
        }
        let identity = self.identities.of_resource(resource).of(domain);
        if matches!(touch, PairAction::Reset) {
            self.amended.end_pardon(identity);
        }
        self.touch_candidate(identity, (resource, domain), touch, when.at);
        let again = ScopeToRule {
            identity,
            resource: resource.into(),
            domain: Some(domain.into()),
            at: when.at,
        };
        self.rule_one_again(again, touch, position, rulings);
    }

    /// Bans a domain or a network, or lifts its ban. Returns the scopes that this may close or open.
    fn set_ban(
        &mut self,
        when: AmendedAt,
        (resource, domain): (Option<&str>, &str),
        ban: Option<Ban>,
    ) -> Option<BannedScopes> {
        let mut text = NetworkText::default();
        let domain = match banned_network(domain, &mut text) {
            Ok(network) => {
                self.amended.set_network(resource, network, ban);
                return Some(BannedScopes::in_network(resource, network));
            }
            Err(domain) => domain,
        };
        let Some(resource) = resource else {
            self.amended.set_domain(domain, ban);
            return Some(BannedScopes::of_domain(domain, self.scopes_of(domain)));
        };
        let identity = self.identities.of_resource(resource).of(domain);
        let of_pair = self.amended.pair(identity);
        let is_denied = self.denials.get(identity, when.at).is_some();
        let rules_pair = self.rules_pair(resource, domain);
        let of_copies = self.counts_holds_of(resource);
        // Whether limits on its rate or on its copies follow, the partition that rules them knows the ban.
        let is_home = partition_of_resource(resource, self.partitions) == self.partition;
        if !rules_pair && !is_home {
            return None;
        }
        self.amended
            .set_pair(identity, PairAmendments { ban, ..of_pair });
        let is_elsewhere = self.steps.newest().limits.copies(resource).is_some();
        // Otherwise another partition denies it: the one that counts its copies, or rules its hits.
        let is_here = of_copies || is_denied || rules_pair && !is_elsewhere;
        is_here.then(|| BannedScopes::one(identity, resource, domain))
    }

    /// Ends the holds that an operator selected, the oldest first: their copies come back, heartbeats that list
    /// them do not restore them, and their agents get verdicts. Then lets the selected staged copies go; these
    /// belong to no agent, so there is no verdict.
    fn release_holds(&mut self, act: &Act, position: &mut LogPosition, rulings: &mut Rulings) {
        let Some(index) = resource_of_holds(act).and_then(|of| self.holders.find(of).ok()) else {
            return;
        };
        let mut sink = self.sink(*position, rulings);
        let Some((held, out)) = self.holders.at(index) else {
            return;
        };
        for (hold, agent, epoch) in meant(&held.copies, act) {
            out.clear();
            if held.copies.end_hold(hold, out).is_err() {
                continue;
            }
            sink.rulings.copies.ended_by_operator += 1;
            let status = ended(hold.number, EndedBy::Operator);
            sink.verdict(&agent, epoch, &held.name, status);
            held.follow(out, &mut sink);
            sink.next();
        }
        for transfer in staged_meant(&held.copies, act) {
            out.clear();
            if held.copies.end_transfer(transfer, out).is_err() {
                continue;
            }
            sink.rulings.copies.transfers_ended_by_operator += 1;
            held.follow(out, &mut sink);
            sink.next();
        }
        *position = sink.position;
    }

    /// How many holds and staged transfers an operator's release selects.
    pub fn holds_meant(&self, act: &Act) -> usize {
        let index = resource_of_holds(act).and_then(|of| self.holders.find(of).ok());
        let held = index.and_then(|index| self.holders.all().get(index));
        held.map_or(0, |held| {
            meant(&held.copies, act).len() + staged_meant(&held.copies, act).len()
        })
    }

    /// Whether a pair belongs to this partition.
    pub(super) fn rules_pair(&self, resource: &str, domain: &str) -> bool {
        names::partition_of_pair(resource, domain, self.partitions) == self.partition
    }
}

/// The resource whose holds or staged copies an act ends.
fn resource_of_holds(act: &Act) -> Option<&str> {
    match act {
        Act::ReleaseHold { resource, .. }
        | Act::ReleaseHolds { resource, .. }
        | Act::ReleaseTransfer { resource, .. } => Some(resource),
        _ => None,
    }
}

/// The holds that an act ends, each with its agent, the oldest first.
fn meant(copies: &Copies, act: &Act) -> Vec<(HoldId, Arc<str>, u128)> {
    if let Act::ReleaseHold {
        agent,
        epoch,
        number,
        ..
    } = act
    {
        let known = copies.known_agent(agent, *epoch);
        let id = known.map(|agent| HoldId {
            agent,
            number: *number,
        });
        let held = id.and_then(|id| copies.hold_of(id));
        return held
            .map(|held| (held.id, held.agent.into(), held.epoch))
            .into_iter()
            .collect();
    }
    let Act::ReleaseHolds { domain, agent, .. } = act else {
        return Vec::new();
    };
    let fits = |of: &Option<Box<str>>, name: &str| of.as_ref().is_none_or(|of| **of == *name);
    let all = copies.oldest_first();
    all.filter(|held| fits(domain, held.domain) && fits(agent, held.agent))
        .map(|held| (held.id, held.agent.into(), held.epoch))
        .collect()
}

/// The transfers that an act ends, by the end that was stated when they were staged.
fn staged_meant(copies: &Copies, act: &Act) -> Vec<TransferId> {
    match act {
        Act::ReleaseTransfer { transfer, .. } => {
            let staged = copies.staged_under(*transfer);
            staged.map(|staged| staged.id).into_iter().collect()
        }
        // An operator who clears a domain means all of its copies; staged copies belong to no agent.
        Act::ReleaseHolds {
            domain,
            agent: None,
            ..
        } => {
            let fits = |name: &str| domain.as_ref().is_none_or(|of| **of == *name);
            let staged = copies.staged().filter(|staged| fits(staged.domain));
            staged.map(|staged| staged.id).collect()
        }
        _ => Vec::new(),
    }
}
