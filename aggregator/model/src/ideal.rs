//! The hits that an ideal in-line limiter would have let through, of the calls that were offered.
//!
//! Knows nothing of agents or logs. What stays true: it computes the in-line reading and nothing else.

use std::collections::BTreeMap;

use crate::inline::InlineLimiter;
use crate::limits::Limits;

/// One call that a service wanted to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The instant, in microseconds since the epoch.
    pub at_us: u64,
    /// The resource.
    pub resource: &'a str,
    /// The domain on whose behalf.
    pub domain: &'a str,
    /// Hits asked for.
    pub copies: u64,
    /// The least number of hits for which the call is of use.
    pub min: u64,
}

/// The totals of one pair's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdealCount {
    /// Hits asked for.
    pub offered: u64,
    /// Hits that the ideal limiter lets through.
    pub let_through: u64,
}

/// Asks an ideal limiter of each resource, call by call. The calls come in time order. A resource
/// without limits lets everything through.
pub fn ideal<'a>(
    limits: &Limits,
    calls: impl IntoIterator<Item = Call<'a>>,
) -> BTreeMap<(String, String), IdealCount> {
    let mut limiters: BTreeMap<&str, Option<InlineLimiter>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, BTreeMap<&str, IdealCount>> = BTreeMap::new();
    for call in calls {
        let limiter = limiters.entry(call.resource).or_insert_with(|| {
            let own = limits.of(call.resource)?;
            Some(InlineLimiter::new(own.clone()))
        });
        let let_through = match limiter {
            Some(limiter) => limiter.grant(call.at_us, call.domain, call.copies, call.min),
            None => call.copies,
        };
        let domains = counts.entry(call.resource).or_default();
        let count = domains.entry(call.domain).or_default();
        count.offered = count.offered.saturating_add(call.copies);
        count.let_through = count.let_through.saturating_add(let_through);
    }
    let pairs = counts.into_iter().flat_map(|(resource, domains)| {
        let name = move |domain: &str| (resource.to_owned(), domain.to_owned());
        domains.into_iter().map(move |(d, count)| (name(d), count))
    });
    pairs.collect()
}
