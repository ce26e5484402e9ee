//! Amendments: operators' acts by hand, and those of their effects that last.
//!
//! ```text
//! pardon   a denied pair is lifted, and not denied again until its limits would open it, or grant a hit in time
//! reset    its tiers and windows are as if it had never had a hit
//! refund   its newest granted hits are taken out again
//! ban      it is denied until the ban ends; hits stamped before that are excess
//! ```
//!
//! Knows nothing of partitions: the input states which pairs of a banned domain are ruled here. What stays true:
//! the counted tick that reaches the end of a ban or pardon removes it.

use std::collections::BTreeMap;

use super::input::{Act, ModelPosition, RecordOutcome, ScopeChange};
use super::{PartitionModel, ends_differ};
use crate::names::{is_network, is_within, networks_of, spelt};
use crate::scope::ScopeName;
use crate::stream::{Over, StreamPair};
use crate::verdict::End;

/// All lasting effects.
#[derive(Clone, Debug, Default)]
pub(super) struct Amendments {
    /// The end of each ban, by resource (`None` means all resources) and domain.
    bans: BTreeMap<(Option<String>, String), End>,
    /// The end of each pardon in microseconds, by resource and domain.
    pardons: BTreeMap<(String, String), u64>,
}

impl Amendments {
    /// The bans and pardons in force over a pair.
    pub fn over(&self, resource: &str, domain: &str) -> Over {
        let ban = |of: Option<&str>, name: &str| {
            let key = (of.map(str::to_owned), name.to_owned());
            self.bans.get(&key).copied()
        };
        // An address lies in many networks; they are looked up only if anything is banned.
        let mut names = vec![domain.to_owned()];
        if !self.bans.is_empty() {
            names.extend(networks_of(domain));
        }
        let bans = names.iter();
        let bans = bans.map(|name| ban(Some(resource), name).max(ban(None, name)));
        let pardon = (resource.to_owned(), domain.to_owned());
        Over {
            ban: bans.max().flatten(),
            pardon_us: self.pardons.get(&pardon).copied(),
        }
    }

    /// Notes that the limits granted a hit that was not late: what was pardoned is over.
    pub fn granted(&mut self, resource: &str, domain: &str) {
        let pardon = (resource.to_owned(), domain.to_owned());
        self.pardons.remove(&pardon);
    }

    /// Applies a counted tick. Returns whether a ban or pardon ended.
    fn end_by(&mut self, now_us: u64) -> bool {
        let before = self.bans.len() + self.pardons.len();
        self.bans.retain(|_, end| end.is_after(now_us));
        self.pardons.retain(|_, end_us| now_us < *end_us);
        self.bans.len() + self.pardons.len() < before
    }
}

impl PartitionModel {
    /// Applies an operator's act, as of the record of a limits activation.
    pub(super) fn amend(
        &mut self,
        (offset, at_us): (u64, u64),
        version: u64,
        act: &Act,
    ) -> RecordOutcome {
        let mut outcome = RecordOutcome::default();
        if self.version.is_some_and(|known| version <= known) {
            return outcome;
        }
        self.version = Some(version);
        let position = ModelPosition { offset, entry: 0 };
        for (resource, domain) in self.meant(act, at_us) {
            let scope = ScopeName::new(&resource, Some(&domain));
            let before = self.table.denied(&scope);
            self.amend_pair(&resource, &domain, act, at_us);
            if let Some(effect) = &mut self.effect {
                effect.starts_anew(&scope);
            }
            let after = self.table.denied(&scope);
            let time_us = self.table.pair(&resource, &domain);
            let time_us = time_us.and_then(StreamPair::time_us).unwrap_or(0);
            let before = before.filter(|denial| denial.end.is_after(time_us.max(at_us)));
            if ends_differ(before, after) {
                outcome.changes.push(ScopeChange {
                    scope,
                    position,
                    denied: after,
                });
            }
        }
        self.table.look_again();
        outcome
    }

    /// Applies a counted tick: removes what has ended.
    pub(super) fn end_amendments(&mut self, now_us: u64) {
        if self.amendments.end_by(now_us) {
            self.say_over();
        }
    }

    /// Gives every pair the bans and pardons in force over it.
    fn say_over(&mut self) {
        let amendments = &self.amendments;
        self.table
            .each_pair(|resource, domain, pair| pair.set_over(amendments.over(resource, domain)));
    }

    /// Notes a ban, and returns the pairs that an act concerns.
    fn meant(&mut self, act: &Act, at_us: u64) -> Vec<(String, String)> {
        match act {
            Act::Reset { resource, domain }
            | Act::Pardon { resource, domain }
            | Act::Refund {
                resource, domain, ..
            } => vec![(resource.clone(), domain.clone())],
            Act::Ban {
                resource,
                domain,
                here,
                end,
            } => {
                let domain = &spelt(domain);
                let key = (resource.clone(), domain.clone());
                self.amendments.bans.remove(&key);
                if end.is_after(at_us) {
                    self.amendments.bans.insert(key, *end);
                }
                self.banned(resource.as_deref(), domain, here, at_us)
            }
            Act::Unban {
                resource,
                domain,
                here,
            } => {
                let domain = &spelt(domain);
                let key = (resource.clone(), domain.clone());
                self.amendments.bans.remove(&key);
                self.banned(resource.as_deref(), domain, here, at_us)
            }
        }
    }

    /// The banned pair; for a whole domain its pairs on configured resources, and its denied pairs.
    fn banned(
        &mut self,
        resource: Option<&str>,
        domain: &str,
        here: &[String],
        at_us: u64,
    ) -> Vec<(String, String)> {
        let pair = |resource: &str| (resource.to_owned(), domain.to_owned());
        if is_network(domain) {
            // Other pairs of the network get a statement only with their next entry.
            self.say_over();
            let denied = self.table.denied_pairs(at_us);
            let meant = denied.filter(|(of, within)| {
                resource.is_none_or(|resource| resource == *of) && is_within(within, domain)
            });
            let meant = meant.map(|(of, within)| (of.to_owned(), within.to_owned()));
            return meant.collect();
        }
        if let Some(resource) = resource {
            return vec![pair(resource)];
        }
        self.say_over();
        let configured = here.iter().map(String::as_str);
        let configured = configured.filter(|name| self.limits.resources.contains_key(*name));
        let denied = self.table.denied_resources_of(domain, at_us);
        let mut all: Vec<_> = configured.chain(denied).map(pair).collect();
        all.sort();
        all.dedup();
        all
    }

    fn amend_pair(&mut self, resource: &str, domain: &str, act: &Act, at_us: u64) {
        let key = (resource.to_owned(), domain.to_owned());
        if matches!(act, Act::Reset { .. }) {
            self.amendments.pardons.remove(&key);
        }
        let over = self.amendments.over(resource, domain);
        if self.table.pair(resource, domain).is_none() {
            let is_ban = matches!(act, Act::Ban { .. } | Act::Unban { .. });
            if is_ban && over.bans(at_us) {
                let limits = self.limits.of(resource);
                let limits = limits.map(|limits| limits.of(domain)).unwrap_or_default();
                let mut pair = StreamPair::new(&limits).begun_at(self.step);
                pair.set_over(over);
                pair.rule_again(at_us);
                self.table.add_pair(resource, domain, pair);
            }
            return;
        }
        let configured = self.limits.of(resource).is_some();
        let Some(pair) = self.table.pair_mut(resource, domain) else {
            return;
        };
        pair.come_to(self.step);
        pair.set_over(over);
        match act {
            Act::Reset { .. } => pair.reset(),
            Act::Refund { hits, .. } => pair.refund(*hits),
            Act::Pardon { .. } => {
                if let Some(until_us) = pair.pardon(at_us) {
                    self.amendments.pardons.insert(key, until_us);
                }
            }
            Act::Ban { .. } | Act::Unban { .. } => {}
        }
        match configured {
            true => pair.rule_again(at_us),
            false => pair.free(at_us),
        }
    }
}
