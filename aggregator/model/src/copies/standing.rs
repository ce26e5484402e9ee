//! Denied scopes: banned domains, and scopes that are full.
//!
//! ```text
//! few has 3 of 3, and a reserve asks     few is denied, full
//! one of them is released                open
//! few is lowered to 1                    nothing: a version denies no scope, but the next reserve finds it full
//! acme is banned, and full               full, until it has room; banned from then on
//! ```
//!
//! Knows nothing of operations. What stays true: a scope denied as full is full. A full scope in which an operation
//! asked for room is denied, unless the greatest number of domains is denied already.

use std::collections::BTreeMap;

use super::limits::{CopiesVersion, CopyScope};
use super::partition::HeldResource;

/// Why a scope is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStanding {
    /// The scope is full under this limit.
    Full(u64),
    /// The scope is banned until this instant, in microseconds.
    Banned(u64),
}

/// Bans, as operators set them and as the partition has announced them.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyBans {
    /// The end of each ban, in microseconds, by resource (`None` means all resources) and domain.
    ends: BTreeMap<(Option<String>, String), u64>,
    /// The end of each ban as announced, by resource and domain.
    announced: BTreeMap<(String, String), u64>,
}

impl CopyBans {
    /// Sets a ban, or removes it.
    pub fn set(&mut self, resource: Option<&str>, domain: &str, until_us: Option<u64>) {
        let of = (resource.map(str::to_owned), domain.to_owned());
        match until_us {
            Some(until_us) => self.ends.insert(of, until_us),
            None => self.ends.remove(&of),
        };
    }

    /// The end of a domain's ban; of two bans the later end.
    fn end_of(&self, resource: &str, domain: &str) -> Option<u64> {
        let end = |of: Option<&str>| {
            let of = (of.map(str::to_owned), domain.to_owned());
            self.ends.get(&of).copied()
        };
        end(Some(resource)).max(end(None))
    }

    /// Whether a domain is banned.
    pub fn is_banned(&self, resource: &str, domain: &str, now_us: u64) -> bool {
        let end_us = self.end_of(resource, domain);
        end_us.is_some_and(|end_us| now_us < end_us)
    }

    /// The announced end of a domain's ban, if it has not passed.
    pub fn ban_of(&self, resource: &str, domain: &str, now_us: u64) -> Option<u64> {
        let announced = self
            .announced
            .get(&(resource.to_owned(), domain.to_owned()));
        announced.copied().filter(|end_us| now_us < *end_us)
    }

    /// Announces whether a domain is banned.
    pub fn state(&mut self, resource: &str, domain: &str, is_heeded: bool, now_us: u64) {
        let end_us = { self.end_of(resource, domain) }.filter(|end_us| now_us < *end_us);
        let of = (resource.to_owned(), domain.to_owned());
        match end_us.filter(|_| is_heeded) {
            Some(end_us) => self.announced.insert(of, end_us),
            None => self.announced.remove(&of),
        };
    }

    /// Announces again, under a new version, the bans of all domains that were announced as banned.
    pub fn state_all_again(&mut self, limits: &CopiesVersion, now_us: u64) {
        let announced: Vec<_> = self.announced.keys().cloned().collect();
        for (resource, domain) in announced {
            self.state(&resource, &domain, limits.heeds_bans(&resource), now_us);
        }
    }

    /// The resources on which a domain was announced as banned, and still is.
    pub fn announced_of(&self, domain: &str, now_us: u64) -> Vec<String> {
        let of_domain = self.all_bans(now_us).filter(|((_, of), _)| *of == domain);
        of_domain
            .map(|((resource, _), _)| resource.to_owned())
            .collect()
    }

    /// All announced bans that have not ended.
    pub fn all_bans(&self, now_us: u64) -> impl Iterator<Item = ((&str, &str), u64)> {
        let announced = self
            .announced
            .iter()
            .filter(move |(_, end_us)| now_us < **end_us);
        announced.map(|((resource, domain), end_us)| ((&**resource, &**domain), *end_us))
    }
}

impl CopiesVersion {
    /// Whether a resource has limits on copies that are enforced.
    pub(super) fn heeds(&self, resource: &str) -> bool {
        let found = self.resources.get(resource);
        found.is_some_and(|found| found.is_heeded)
    }

    /// Whether the bans of a resource are enforced.
    pub(super) fn heeds_bans(&self, resource: &str) -> bool {
        self.heeds(resource) || self.heeded_others.contains(resource)
    }
}

impl HeldResource {
    /// Denies or opens all scopes that are denied now or in which an operation asked for room.
    pub(super) fn settle(&mut self, is_heeded: bool, denied_max: usize) {
        let mut scopes = std::mem::take(&mut self.holds.asked);
        scopes.extend(self.full.keys().cloned());
        for scope in scopes {
            let limit = self.holds.limits.limit_of(&scope);
            let Some(limit) = limit.filter(|_| is_heeded && self.holds.is_full(&scope)) else {
                self.full.remove(&scope);
                continue;
            };
            let is_domain = |of: &CopyScope| matches!(of, CopyScope::Domain(_));
            let domains = self.full.keys().filter(|of| is_domain(of)).count();
            if !is_domain(&scope) || domains < denied_max || self.full.contains_key(&scope) {
                self.full.insert(scope, limit);
            }
        }
    }
}
