//! The pairs of one partition: which exist, which are denied, when they are evicted.
//!
//! A pair is a [`StreamPair`] or, for a whole resource, a [`WholeResource`]. Knows nothing of records. What stays
//! true: `count` is the number of pairs of both kinds, and every pair that can be evicted is in `leaving` once,
//! under an instant before which it is not evicted.

use std::collections::{BTreeMap, BTreeSet};

use super::whole::WholeResource;
use crate::limits::Limits;
use crate::scope::ScopeName;
use crate::stream::{Denial, StreamPair};

/// All pairs of a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct PairTable {
    /// By resource, then domain.
    pairs: BTreeMap<String, BTreeMap<String, StreamPair>>,
    /// By resource.
    wholes: BTreeMap<String, WholeResource>,
    count: u64,
    /// The table looks at a pair again only at its instant here, since looking at all pairs at each
    /// tick takes hours on a long log.
    leaving: BTreeSet<(u64, ScopeName)>,
    /// The slot of the last counted tick at the last eviction for room.
    room_made: u64,
}

impl PairTable {
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn pair(&self, resource: &str, domain: &str) -> Option<&StreamPair> {
        self.pairs.get(resource)?.get(domain)
    }

    pub fn pair_mut(&mut self, resource: &str, domain: &str) -> Option<&mut StreamPair> {
        self.pairs.get_mut(resource)?.get_mut(domain)
    }

    /// Adds a new pair, after its first entry.
    pub fn add_pair(&mut self, resource: &str, domain: &str, pair: StreamPair) {
        if let Some(stays_us) = pair.stays_until_us() {
            let scope = ScopeName::new(resource, Some(domain));
            self.leaving.insert((stays_us, scope));
        }
        let domains = self.pairs.entry(resource.to_owned()).or_default();
        domains.insert(domain.to_owned(), pair);
        self.count += 1;
    }

    pub fn whole(&self, resource: &str) -> Option<&WholeResource> {
        self.wholes.get(resource)
    }

    pub fn whole_mut(&mut self, resource: &str) -> Option<&mut WholeResource> {
        self.wholes.get_mut(resource)
    }

    /// Adds a new whole resource, after its first hits.
    pub fn add_whole(&mut self, resource: &str, whole: WholeResource) {
        if let Some(stays_us) = whole.stays_until_us() {
            self.leaving
                .insert((stays_us, ScopeName::new(resource, None)));
        }
        self.wholes.insert(resource.to_owned(), whole);
        self.count += 1;
    }

    /// Whether `cap` pairs exist that all still remember something at a slot's begin. Pairs
    /// that do not are evicted first.
    pub fn is_full(&mut self, cap: u64, slot: u64) -> bool {
        if cap <= self.count && self.room_made < slot {
            self.room_made = slot;
            for scope in self.scopes() {
                if self.has_rested(&scope) {
                    self.remove(&scope);
                }
            }
            // Pairs that were removed shall not be in `leaving`.
            self.look_again();
        }
        cap <= self.count
    }

    /// Evicts a pair right after its entry if all that it remembers was over at the last eviction for room.
    pub fn leave_if_rested(&mut self, scope: &ScopeName) {
        if self.has_rested(scope) {
            self.remove(scope);
            self.leaving.retain(|(_, leaving)| leaving != scope);
        }
    }

    fn has_rested(&self, scope: &ScopeName) -> bool {
        match &scope.domain {
            Some(domain) => self.pairs[&scope.resource][domain].rested_by(self.room_made),
            None => self.wholes[&scope.resource].rested_by(self.room_made),
        }
    }

    /// Evicts every pair whose time to stay is before `now_us`.
    pub fn leave(&mut self, now_us: u64) {
        while let Some((stays_us, scope)) = self.leaving.first().cloned()
            && stays_us < now_us
        {
            self.leaving.pop_first();
            match self.stays_until_us(&scope) {
                // The pair stays for ever, or until a version looks at all pairs again.
                None => {}
                Some(stays_us) if stays_us < now_us => self.remove(&scope),
                Some(stays_us) => {
                    self.leaving.insert((stays_us, scope));
                }
            }
        }
    }

    /// Puts every pair under new limits, and rules the denials in force again at the later of
    /// the pair's time and `at_us`.
    pub fn new_limits(&mut self, step: u64, at_us: u64, limits: &Limits) {
        for (resource, domains) in &mut self.pairs {
            let limits = limits.of(resource);
            for (domain, pair) in domains {
                match limits {
                    Some(limits) => {
                        pair.new_version(step, at_us, &limits.of(domain));
                    }
                    None => {
                        // The resource has no limits any more, so only a ban denies it.
                        pair.no_limits(step, at_us);
                    }
                }
            }
        }
        for (resource, whole) in &mut self.wholes {
            let limits = limits.of(resource);
            whole.new_version(step, at_us, limits.and_then(|limits| limits.global));
        }
        self.look_again();
    }

    /// Recomputes when a pair may be evicted after its entry: it may be earlier than before, because other limits
    /// rule the pair now or a cost was less.
    pub fn leaves_sooner(&mut self, scope: &ScopeName) {
        self.leaving.retain(|(_, leaving)| leaving != scope);
        if let Some(stays_us) = self.stays_until_us(scope) {
            self.leaving.insert((stays_us, scope.clone()));
        }
    }

    /// Recomputes when pairs may be evicted: new limits or an operator's act may have made it earlier.
    pub fn look_again(&mut self) {
        let scopes = self.scopes().into_iter();
        self.leaving = scopes
            .filter_map(|scope| Some((self.stays_until_us(&scope)?, scope)))
            .collect();
    }

    /// Calls `act` for every pair of a domain.
    pub fn each_pair(&mut self, mut act: impl FnMut(&str, &str, &mut StreamPair)) {
        for (resource, domains) in &mut self.pairs {
            for (domain, pair) in domains {
                act(resource, domain, pair);
            }
        }
    }

    /// The resources on which a domain is denied at `at_us`.
    pub fn denied_resources_of<'a>(
        &'a self,
        domain: &'a str,
        at_us: u64,
    ) -> impl Iterator<Item = &'a str> {
        let all = self.pairs.iter();
        all.filter(move |(_, domains)| {
            let denied = domains.get(domain).and_then(StreamPair::denied);
            denied.is_some_and(|denial| denial.end.is_after(at_us))
        })
        .map(|(resource, _)| resource.as_str())
    }

    /// The pairs that are denied at `at_us`.
    pub fn denied_pairs(&self, at_us: u64) -> impl Iterator<Item = (&str, &str)> {
        let all = self.pairs.iter().flat_map(|(resource, domains)| {
            let pairs = domains.iter();
            pairs.map(move |(domain, pair)| (resource.as_str(), domain.as_str(), pair.denied()))
        });
        all.filter(move |(_, _, denied)| denied.is_some_and(|denial| denial.end.is_after(at_us)))
            .map(|(resource, domain, _)| (resource, domain))
    }

    /// The denials in force at the later of their pair's time and `at_us`, by scope.
    pub fn denials_in_force(&self, at_us: u64) -> Vec<(ScopeName, Denial)> {
        let mut denials = Vec::new();
        for scope in self.scopes() {
            if let Some(denial) = self.denied(&scope)
                && denial.end.is_after(self.time_us(&scope).max(at_us))
            {
                denials.push((scope, denial));
            }
        }
        denials
    }

    /// The scope's denial at its last ruling.
    pub fn denied(&self, scope: &ScopeName) -> Option<Denial> {
        match &scope.domain {
            Some(domain) => self.pair(&scope.resource, domain)?.denied(),
            None => self.whole(&scope.resource)?.denied(),
        }
    }

    fn time_us(&self, scope: &ScopeName) -> u64 {
        match &scope.domain {
            Some(domain) => self.pairs[&scope.resource][domain].time_us().unwrap_or(0),
            None => self.wholes[&scope.resource].time_us(),
        }
    }

    fn stays_until_us(&self, scope: &ScopeName) -> Option<u64> {
        match &scope.domain {
            Some(domain) => self.pairs[&scope.resource][domain].stays_until_us(),
            None => self.wholes[&scope.resource].stays_until_us(),
        }
    }

    fn remove(&mut self, scope: &ScopeName) {
        self.count -= 1;
        match &scope.domain {
            Some(domain) => {
                let domains = self.pairs.get_mut(&scope.resource);
                domains.expect("it stood in `leaving`").remove(domain);
            }
            None => {
                self.wholes.remove(&scope.resource);
            }
        }
    }

    /// All pairs, in the order of their scopes.
    fn scopes(&self) -> BTreeSet<ScopeName> {
        let wholes = self.wholes.keys();
        let wholes = wholes.map(|resource| ScopeName::new(resource, None));
        let pairs = self.pairs.iter().flat_map(|(resource, domains)| {
            let domains = domains.keys();
            domains.map(move |domain| ScopeName::new(resource, Some(domain)))
        });
        wholes.chain(pairs).collect()
    }
}
