//! Pairs of a recording that share one limit: addresses of one network, where a resource limits them so.
//!
//! ```text
//! addresses = { v4 = 32, v6 = 64 }      2001:db8::1, 2001:db8::2     limited together, as 2001:db8::/64
//! ```
//!
//! A recording has a pair for each address, whatever the limits, since several documents are played against it. So
//! each pair has a lead, the first pair of its network, and uses the lead's state; calls are counted for each pair.
//! Knows nothing of calls.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use tollgate_limits::{Limits, RateResource, Resource};
use tollgate_shared::networks::NetworkText;

use super::pairs::Pairs;

/// The name under which a domain is limited: its network, or itself.
pub(super) fn limited_as<'d>(rate: &RateResource, domain: &'d str) -> Cow<'d, str> {
    match rate.addresses() {
        None => Cow::Borrowed(domain),
        Some(addresses) => {
            let mut text = NetworkText::default();
            Cow::Owned(addresses.domain_of(domain, &mut text).to_owned())
        }
    }
}

/// The first pair of each network, by resource.
#[derive(Debug, Default)]
pub(super) struct Networks(HashMap<(u32, Box<str>), u32, RandomState>);

impl Networks {
    /// The pair whose state a new pair uses: itself, or the first address of its network.
    pub(super) fn lead(&mut self, pairs: &Pairs, number: u32, limits: &Limits) -> u32 {
        let (resource, domain) = pairs.names(number);
        let Some(Resource::Rate(rate)) = limits.resource(resource) else {
            return number;
        };
        if rate.addresses().is_none() {
            return number;
        }
        let network = limited_as(rate, domain).into_owned().into_boxed_str();
        let key = (pairs.pair(number).resource, network);
        *self.0.entry(key).or_insert(number)
    }
}
