//! The resources that close, or let in, more domains than agents learn: calls of the others pass until they are denied.
//!
//! ```text
//! closed      3,000 names     600 networks of IPv4     one network beside 10,001 other entries
//! learnt      2,259 of them   the widest 512           none
//! ```
//!
//! Knows nothing of what agents do with a list, which `closed.rs` makes. What stays true: a question costs no more than
//! the lists may be long, however many rows there are.

use ipnet::IpNet;
use tollgate_shared::networks::{is_wide, network_of_domain};
use tollgate_shared::wire::public::{NETWORKS_MAX, PublicNetworks, closed_within_bound};

use super::closed::ENTRIES_MAX;
use super::resource::{CopiesResource, Mode, RateResource, Resource};
use super::version::Limits;

impl Limits {
    /// The resources that close more domains, or networks, than agents learn, each with the number of domains that
    /// agents learn by their names. The others are refused only once they are denied.
    pub fn closed_beyond_bound(&self) -> impl Iterator<Item = (&str, usize)> {
        let rates = self.enforced_rates().filter_map(|rate| {
            let learnt = closed_within_bound(self.closed(rate)).count();
            let is_beyond = self.closed(rate).nth(learnt).is_some()
                || has_unlearnt_networks(rate.entries(), self.closed(rate), || {
                    self.public_entries(rate).networks
                });
            is_beyond.then_some((rate.name(), learnt))
        });
        let copies = self.enforced_copies().filter_map(|copies| {
            let closed = copies.closed();
            let learnt = closed_within_bound(closed.iter().copied()).count();
            let is_beyond = learnt < closed.len()
                || copies.has_unlearnt_entries()
                || has_unlearnt_networks(copies.entries(), closed.into_iter(), || {
                    copies.public_entries().networks
                });
            is_beyond.then_some((copies.name(), learnt))
        });
        rates.chain(copies)
    }

    /// The resources that let in more domains than agents learn, and nobody else: the others are refused only once they are
    /// denied.
    pub fn allowed_beyond_bound(&self) -> impl Iterator<Item = &str> {
        let rates = self.enforced_rates().filter(|rate| {
            let is_closed = self.class(rate.default_class()).grants_nothing();
            is_closed && rate.has_overrides() && self.public_entries(rate).allowed.is_none()
        });
        let copies = self.enforced_copies().filter(|copies| {
            copies.limit == 0 && copies.has_overrides() && copies.public_entries().allowed.is_none()
        });
        rates
            .map(RateResource::name)
            .chain(copies.map(CopiesResource::name))
    }

    fn enforced_copies(&self) -> impl Iterator<Item = &CopiesResource> {
        let copies = self
            .resources()
            .iter()
            .filter_map(|resource| match resource {
                Resource::Copies(copies) => Some(copies),
                Resource::Rate(_) => None,
            });
        copies.filter(|copies| !self.namespace_of(copies.name()).ignore_configured)
    }

    fn enforced_rates(&self) -> impl Iterator<Item = &RateResource> {
        self.rates().filter(|rate| {
            let is_ignored = self.namespace_of(rate.name()).ignore_configured;
            rate.mode() == Mode::Enforced && !is_ignored
        })
    }
}

impl CopiesResource {
    /// Whether there are too many entries to look at, and one of the document's closes its domain. Rows are not looked
    /// at: there may be a million.
    fn has_unlearnt_entries(&self) -> bool {
        let mut own = self.table.domains.iter().zip(&self.table.limits);
        let is_closed = |domain: &str| self.override_of(domain) == Some(0);
        ENTRIES_MAX < self.entries() && own.any(|(domain, limit)| *limit == 0 && is_closed(domain))
    }
}

/// Whether some of these closed domains are networks that agents do not learn, because there are too many entries, or
/// too many networks of one family.
fn has_unlearnt_networks<'e>(
    entries: usize,
    closed: impl Iterator<Item = &'e str>,
    learnt: impl FnOnce() -> PublicNetworks,
) -> bool {
    let of_domain = |domain: &'e str| Some((domain, network_of_domain(domain)?));
    let networks = closed
        .filter_map(of_domain)
        .filter(|(_, network)| is_wide(network));
    let (v4, v6): (Vec<_>, Vec<_>) = networks.partition(|(_, network)| network.addr().is_ipv4());
    if ENTRIES_MAX < entries {
        return !v4.is_empty() || !v6.is_empty();
    }
    let is_many = |family: &Vec<(&str, IpNet)>| NETWORKS_MAX / 2 < family.len();
    if !is_many(&v4) && !is_many(&v6) {
        return false;
    }
    let learnt = learnt();
    let has_unlearnt = |family: &Vec<(&str, IpNet)>| {
        let is_unlearnt = |(domain, _): &(&str, IpNet)| learnt.of_domain(domain).is_none();
        is_many(family) && family.iter().any(is_unlearnt)
    };
    has_unlearnt(&v4) || has_unlearnt(&v6)
}
