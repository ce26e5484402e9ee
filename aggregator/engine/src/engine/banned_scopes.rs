//! The scopes that a ban may close or its end may open, ruled again a slice at a time.
//!
//! ```text
//! ban api.search, acme           that pair
//! ban everywhere, acme           acme's pairs on configured resources, and its denied ones
//! unban 10.0.0.0/8               denied pairs in it: the names of its other pairs are not known here
//! ```
//!
//! The named ones first, then those that are denied, both in the order of their hashes: a ban may meet a hundred thousand
//! denials. Knows nothing of how bans are kept. What stays true: the last slice is done before the next record is
//! applied, and no result depends on the size of the slices.

use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::networks::network_of_domain;
use tollgate_shared::time::Timestamp;

use super::Engine;
use super::activations::{PairAction, SLICE, ScopeToRule};
use super::denials::LiveDenial;
use super::rulings::Rulings;
use crate::pairs::Identity;
use tollgate_limits::Resource;

/// A scope with its resource and domain.
type NamedScope = (Identity, (Arc<str>, Arc<str>));

/// The scopes that are still to be ruled again.
#[derive(Debug)]
pub(super) struct BannedScopes {
    /// Scopes whose names are known without a denial, in the order of their hashes: of each its resource and domain.
    /// They come first.
    named: Vec<NamedScope>,
    /// How many of these were ruled again.
    done: usize,
    /// Which denials are meant as well; `None`: no others, or all were looked at.
    denied: Option<MeantDenials>,
    /// The last denial that was looked at.
    behind: Option<Identity>,
}

/// Which denials in force a ban is about.
#[derive(Debug)]
enum MeantDenials {
    /// Those of a domain.
    Of(Arc<str>),
    /// Those of all addresses in a network, on one resource or on all.
    Within(Option<Arc<str>>, Box<str>),
}

impl MeantDenials {
    /// Tells which denials are meant.
    fn are(&self) -> impl Fn(&LiveDenial) -> bool {
        let network = match self {
            Self::Of(_) => None,
            Self::Within(_, network) => network_of_domain(network),
        };
        move |live| {
            let Some(domain) = live.domain.as_deref() else {
                return false;
            };
            match self {
                Self::Of(banned) => **banned == *domain,
                Self::Within(resource, _) => {
                    let is_on = resource.as_ref().is_none_or(|of| *of == live.resource);
                    let of = |network| Some((network, network_of_domain(domain)?));
                    is_on
                        && network
                            .and_then(of)
                            .is_some_and(|(network, of)| network.contains(&of))
                }
            }
        }
    }
}

impl BannedScopes {
    /// A single pair.
    pub fn one(identity: Identity, resource: &str, domain: &str) -> Self {
        Self {
            named: vec![(identity, (resource.into(), domain.into()))],
            done: 0,
            denied: None,
            behind: None,
        }
    }

    /// Those of a domain: these, and every denied one.
    pub fn of_domain(domain: &str, named: impl IntoIterator<Item = (Identity, Arc<str>)>) -> Self {
        let domain: Arc<str> = domain.into();
        let named = named.into_iter();
        let named = named.map(|(identity, resource)| (identity, (resource, domain.clone())));
        let mut named: Vec<NamedScope> = named.collect();
        named.sort_unstable_by_key(|(identity, _)| *identity);
        Self {
            named,
            done: 0,
            denied: Some(MeantDenials::Of(domain)),
            behind: None,
        }
    }

    /// The denied pairs in a network, on one resource or on all. Its other pairs are denied from their next entry.
    pub fn in_network(resource: Option<&str>, network: &str) -> Self {
        let resource = resource.map(Arc::from);
        Self {
            named: Vec::new(),
            done: 0,
            denied: Some(MeantDenials::Within(resource, network.into())),
            behind: None,
        }
    }
}

impl Engine {
    /// Rules the next slice again. Returns whether there are more.
    pub(super) fn rule_banned(
        &mut self,
        scopes: &mut BannedScopes,
        at: Timestamp,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) -> bool {
        for (identity, (resource, domain)) in self.next_banned(scopes, at) {
            let again = ScopeToRule {
                identity,
                resource,
                domain: Some(domain),
                at,
            };
            match self.counts_holds_of(&again.resource) {
                true => self.rule_copies_again(again, position, rulings),
                false => self.rule_one_again(again, PairAction::Nothing, position, rulings),
            }
        }
        scopes.denied.is_some() || scopes.done < scopes.named.len()
    }

    /// The scopes of the next slice. None comes twice: one that the ban has denied would be ruled as if it had been
    /// denied before.
    fn next_banned(&self, scopes: &mut BannedScopes, at: Timestamp) -> Vec<NamedScope> {
        let named = scopes.named.iter().skip(scopes.done).take(SLICE);
        let named: Vec<NamedScope> = named.cloned().collect();
        scopes.done += named.len();
        let Some(meant) = scopes.denied.as_ref().filter(|_| named.is_empty()) else {
            return named;
        };
        let walked = self.denials.walk(scopes.behind, at, SLICE);
        let is_meant = meant.are();
        let denied = walked.in_force.into_iter();
        let is_done = |of: Identity| {
            scopes
                .named
                .binary_search_by_key(&of, |(of, _)| *of)
                .is_ok()
        };
        let denied = denied.filter(|(identity, live)| is_meant(live) && !is_done(*identity));
        let names = |live: LiveDenial| Some((live.resource, live.domain?));
        let denied = denied.filter_map(|(identity, live)| Some((identity, names(live)?)));
        let denied = denied.collect();
        drop(is_meant);
        scopes.behind = walked.upto;
        if walked.upto.is_none() {
            scopes.denied = None;
        }
        denied
    }

    /// The pairs of a domain on configured resources that are ruled or counted here.
    pub(super) fn scopes_of(&self, domain: &str) -> Vec<(Identity, Arc<str>)> {
        let limits = &self.steps.newest().limits;
        let configured = limits
            .resources()
            .iter()
            // A pattern has no pairs: those of its resources are denied from their next entry.
            .filter(|resource| !resource.name().ends_with('*'))
            .filter(|resource| match resource {
                Resource::Rate(rate) => self.rules_pair(rate.name(), domain),
                Resource::Copies(copies) => self.counts_holds_of(copies.name()),
            })
            .map(Resource::name);
        let identity = |resource: &str| self.identities.of_resource(resource).of(domain);
        configured
            .map(|resource| (identity(resource), Arc::from(resource)))
            .collect()
    }
}
