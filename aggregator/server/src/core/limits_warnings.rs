//! Warnings about limits that came into force: what they leave without effect, and what they forget.
//!
//! Knows nothing of partitions. What stays true: what existed when the process started is not warned of again, but for
//! domains that agents do not learn.

use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_limits::versions::{Bans, Entered, LimitsBook, Version};
use tollgate_limits::{Limits, RateResource, WarningKind, forgotten_by_documents};
use tollgate_shared::networks::NetworkText;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::public::NETWORKS_MAX;

/// Logs what a record of the stream changes that its author may not expect. `pairs` returns how many pairs all
/// partitions know.
pub(super) fn of_entered(
    book: &LimitsBook,
    before: Option<&Arc<Limits>>,
    (entered, appended): (&Entered, Timestamp),
    pairs: impl Fn() -> u64,
) {
    let Entered::Version { version, .. } = entered else {
        return;
    };
    beyond_bound(before, &version.limits);
    let (bans, log_now) = (book.bans(), appended);
    bans_beyond_bound(bans, version, log_now);
    if let Some(before) = before.filter(|_| version.made.is_none()) {
        resets(before, version, pairs);
        bans_within_domains(bans, before, version, log_now);
    }
}

/// Warns of bans of addresses, or of networks, that a document leaves without effect, because it limits addresses by
/// wider networks than the one before.
fn bans_within_domains(bans: &Bans, before: &Limits, version: &Version, log_now: Timestamp) {
    let now = &version.limits;
    let of_bans = bans
        .resources()
        .map(|resource| (resource, now.rate(resource)));
    let of_limits = now.rates().map(|rate| (rate.name(), Some(rate)));
    let mut resources: Vec<_> = of_bans.chain(of_limits).collect();
    resources.sort_unstable_by_key(|(resource, _)| *resource);
    resources.dedup_by_key(|(resource, _)| *resource);
    for (resource, rate) in resources {
        let addresses = rate.and_then(RateResource::addresses);
        let of_before = before.rate(resource).and_then(RateResource::addresses);
        let Some(addresses) = addresses.filter(|_| addresses != of_before) else {
            continue;
        };
        let without_effect = bans.within_domains(resource, addresses, log_now);
        if let Some(first) = without_effect.first() {
            let mut text = NetworkText::default();
            tracing::warn!(
                resource,
                bans = without_effect.len(),
                "these bans have no effect, because `addresses` limits wider networks as one domain: the first is a ban of \
                 {}, a part of {}, expected a ban of all of that; `unban` ends bans without effect",
                text.write(*first),
                addresses.network_of(first.addr())
            );
        }
    }
}

/// Warns of resources that close more domains than agents learn, or let in more and nobody else, if the version before
/// did not.
pub(super) fn beyond_bound(before: Option<&Arc<Limits>>, latest: &Arc<Limits>) {
    // Most acts of operators leave limits as they are.
    if before.is_some_and(|before| Arc::ptr_eq(before, latest)) {
        return;
    }
    let before = before.into_iter();
    let closed = before
        .clone()
        .flat_map(|before| before.closed_beyond_bound());
    let closed: BTreeSet<&str> = closed.map(|(resource, _)| resource).collect();
    for (resource, learnt) in latest.closed_beyond_bound() {
        if !closed.contains(resource) {
            tracing::warn!(resource, learnt, "{}", WarningKind::ClosedBeyondBound);
        }
    }
    let allowed = before.flat_map(|before| before.allowed_beyond_bound());
    let allowed: BTreeSet<&str> = allowed.collect();
    for resource in latest.allowed_beyond_bound() {
        if !allowed.contains(resource) {
            tracing::warn!(resource, "{}", WarningKind::AllowedBeyondBound);
        }
    }
}

/// Warns of a ban of a network beside as many as agents learn.
fn bans_beyond_bound(bans: &Bans, version: &Version, log_now: Timestamp) {
    let act = version.made.as_ref().map(|made| &*made.act);
    let Some(Act::Ban { resource, .. }) = act.filter(|act| Bans::of_networks_are_changed_by(act))
    else {
        return;
    };
    if bans.are_beyond_bound(resource.as_deref().unwrap_or_default(), log_now) {
        tracing::warn!(
            "more networks are banned than agents learn of a resource ({}, the widest of IPv4 and as many of IPv6): \
             addresses of the others are refused from their first denial on",
            NETWORKS_MAX / 2
        );
    }
}

/// Logs the resources of which a document removes the rows of single domains, or forgets usage. (An amendment sets limits of a few domains, which its
/// author knows.) No partition can say at once how many pairs are affected, since a pair is known by a hash of its
/// names. The line gives the upper bound: all pairs that this aggregator knows. Each affected pair is counted by
/// its resource once it comes under the version: `tollgate_resource_pairs_forgotten_total`.
fn resets(before: &Limits, version: &Version, pairs_max: impl Fn() -> u64) {
    for dropped in version.limits.rows_dropped_of(before) {
        tracing::warn!(version = version.number, "{dropped}");
    }
    let (lines, omitted) = forgotten_by_documents(before, &version.limits);
    let pairs_max = if lines.is_empty() { 0 } else { pairs_max() };
    for line in lines {
        tracing::warn!(version = version.number, pairs_max, "{line}");
    }
    if 0 < omitted {
        tracing::warn!(version = version.number, "and {omitted} more of that kind");
    }
}
