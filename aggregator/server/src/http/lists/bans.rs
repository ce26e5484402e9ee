//! The list of bans.
//!
//! Bans are in the log of limits, which every aggregator reads whole, so no other member is asked. Knows nothing of who
//! is denied. What stays true: a page has all bans up to its `next`.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use tollgate_api::bans::BanView;
use tollgate_limits::versions::BanFilter;
use tollgate_shared::names::admit_domain;

use super::{LISTS, SLICE, SLICES_MAX, answer, not_a_page, rows};
use crate::core::bans::{BanCursor, BansPage};
use crate::core::view::{Query, Reply};
use crate::http::fleet::{FromFleet, OwnView};
use crate::http::query::UrlQuery;
use crate::http::{Shown, busy, cursor, fault, silent};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BansUrl {
    resource: Option<String>,
    domain: Option<String>,
    limit: Option<String>,
    /// After this row: the `next` of the page before.
    after: Option<String>,
}

pub(in crate::http) async fn bans(
    State(shown): State<Shown>,
    UrlQuery(url): UrlQuery<BansUrl>,
) -> Response {
    let limit = match rows(url.limit.as_deref()) {
        // A page without rows has no place after which the next one begins.
        Ok(0) => {
            return fault(
                StatusCode::BAD_REQUEST,
                "limit = 0: expected at least one row",
            );
        }
        Ok(limit) => limit,
        Err(text) => return fault(StatusCode::BAD_REQUEST, text),
    };
    let after = match url.after.as_deref().map(cursor::read_ban) {
        Some(None) => return not_a_page(url.after.as_deref()),
        after => after.flatten(),
    };
    let filter = BanFilter {
        resource: url.resource,
        // The name under which agents limit a caller of this domain.
        domain: url.domain.map(|domain| admit_domain(&domain).into_owned()),
        after: after.map(|BanCursor(resource, domain)| (resource, domain)),
    };
    let Some(turn) = LISTS.turn().await else {
        return busy(&shown.counters);
    };
    match bans_by_slices(&shown, filter, limit).await {
        Some(Some(page)) => answer(&turn, FromFleet::Own(page)).await,
        Some(None) => fault(
            StatusCode::SERVICE_UNAVAILABLE,
            "the log of limits, which has all bans, has not been read to its end yet",
        ),
        None => silent(),
    }
}

/// Asks the core for bans, slice by slice. `Some(None)`: it has not read all of them yet.
async fn bans_by_slices(
    shown: &Shown,
    mut filter: BanFilter,
    limit: usize,
) -> Option<Option<BansPage>> {
    let mut found: Vec<BanView> = Vec::new();
    for slices in 1.. {
        let query = Query::Bans {
            filter: filter.clone(),
            limit: (limit - found.len()).min(SLICE),
        };
        let Reply::Bans(part) = shown.queries.ask(query).await? else {
            return None;
        };
        let Some(mut part) = part else {
            return Some(None);
        };
        found.append(&mut part.bans);
        match &part.next {
            Some(BanCursor(resource, domain)) if found.len() < limit && slices < SLICES_MAX => {
                filter.after = Some((resource.clone(), domain.clone()));
            }
            _ => {
                return Some(Some(BansPage {
                    bans: found,
                    ..part
                }));
            }
        }
    }
    None
}

impl OwnView for BansPage {
    fn missing(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }
}
