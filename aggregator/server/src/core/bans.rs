//! The list of bans, as operators see it.
//!
//! It is made of the acts in the log of limits, which every aggregator reads whole: so each answers for the whole fleet.
//! Knows nothing of who is denied. What stays true: a part of the list takes the core no noticeable time.

use tollgate_api::bans::BanView;
use tollgate_limits::versions::{BanFilter, Bans, ListedBan};
use tollgate_limits::{Limits, RateResource, is_part_of_domain};
use tollgate_shared::networks::network_of_domain;
use tollgate_shared::time::Timestamp;

/// So many bans are looked at for one part of the list, which takes about 0.2 ms.
const LOOKED_AT_MAX: usize = 1_000;

/// Where a part of the list ends: a resource (`None`: every resource), and what is banned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanCursor(pub Option<String>, pub String);

/// A page of bans, whose cursor is written only when the answer is.
pub type BansPage = tollgate_api::bans::BansView<BanView, BanCursor>;

/// At most `limit` bans.
pub(super) fn page(
    bans: &Bans,
    filter: &BanFilter,
    limit: usize,
    (limits, log_now): (Option<&Limits>, Timestamp),
) -> BansPage {
    let mut page = BansPage {
        schema: "tollgate.bans/1".into(),
        bans: Vec::new(),
        next: None,
    };
    for (looked_at, listed) in bans.list(filter, log_now).enumerate() {
        if page.bans.len() == limit || looked_at == LOOKED_AT_MAX {
            return page;
        }
        page.next = Some(BanCursor(
            listed.resource.map(str::to_owned),
            listed.domain.clone(),
        ));
        if listed.is_asked_for {
            page.bans.push(view(listed, limits, log_now));
        }
    }
    BansPage { next: None, ..page }
}

fn view(listed: ListedBan<'_>, limits: Option<&Limits>, log_now: Timestamp) -> BanView {
    let reaches_nobody = reaches_nobody(&listed, limits);
    let until = Some(listed.ban.until).filter(|until| *until < Timestamp::MAX);
    BanView {
        resource: listed.resource.map(Box::from),
        domain: listed.domain.into(),
        end_us: until.map(Timestamp::as_micros),
        remaining_us: until.map(|until| until.since(log_now).as_micros()),
        version: listed.ban.version,
        reaches_nobody,
    }
}

/// Whether a ban on one resource is of addresses that the limits in force make a part of one domain. A ban on every
/// resource may reach callers of others.
fn reaches_nobody(listed: &ListedBan<'_>, limits: Option<&Limits>) -> bool {
    let rate = listed.resource.zip(limits);
    let rate = rate.and_then(|(resource, limits)| limits.rate(resource));
    let addresses = rate.and_then(RateResource::addresses);
    let both = addresses.zip(network_of_domain(&listed.domain));
    both.is_some_and(|(addresses, of)| is_part_of_domain(addresses, &of))
}
