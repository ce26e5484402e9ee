//! The lists: what is denied, who holds what, how a pair stands, who uses most.
//!
//! Each asks the core, and those who rule what this process does not. A list has a page of at most
//! [`ROWS_MAX`] rows; that of denials is made of slices, between which the core goes on. One list is made at a
//! time. Knows nothing of how answers are put together.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_shared::names::{EVERYBODY, admit_domain};

use super::fleet::{self, List, Order};
use super::query::UrlQuery;
use super::queue::Queue;
use super::{Shown, busy, cursor, fault, silent};
use crate::core::holds::{HoldFilter, STATES};
use crate::core::usage::{By, TOP_MAX, TopFilter};
use crate::core::view::{DenialFilter, DenialView, DenialsView, Query, Reply};

/// The most rows in one answer, and how many there are where nobody says.
pub const ROWS_MAX: usize = 10_000;
const ROWS_DEFAULT: usize = 1_000;

/// Denials that the core hands over at a time: some 0.4 ms of it.
const SLICE: usize = 256;

/// One list is made at a time.
static LISTS: Queue = Queue::new(32);

/// How many pairs there are in an answer of those that use most, where nobody says.
const TOP_DEFAULT: usize = 20;

/// What was asked, to be asked of others.
pub(super) struct Asked {
    uri: Uri,
    headers: HeaderMap,
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self {
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DenialsUrl {
    resource: Option<String>,
    domain: Option<String>,
    limit: Option<usize>,
    /// Behind this row: the `next` of the page before.
    after: Option<String>,
}

pub(super) async fn denials(
    State(shown): State<Shown>,
    asked: Asked,
    UrlQuery(url): UrlQuery<DenialsUrl>,
) -> Response {
    let limit = match rows(url.limit) {
        Ok(limit) => limit,
        Err(text) => return fault(StatusCode::BAD_REQUEST, text),
    };
    let after = match url.after.as_deref().map(cursor::read) {
        Some(None) => {
            let text = format!("after = {:?}: expected the next of a page", url.after);
            return fault(StatusCode::BAD_REQUEST, text);
        }
        after => after.flatten(),
    };
    let Some(_turn) = LISTS.turn().await else {
        return busy(&shown.counters);
    };
    let filter = DenialFilter {
        resource: url.resource,
        domain: url.domain,
        after,
        limit,
        omitted_are_counted: true,
    };
    let list = List {
        rows: "denials",
        limit,
        order: Order::Resource,
    };
    let Some(view) = denials_by_slices(&shown, filter).await else {
        return silent();
    };
    let of = (&asked.uri, &asked.headers);
    let Some(mut view) = fleet::gather(&shown.others, of, view, &list).await else {
        return silent();
    };
    let last = view["denials"].as_array().and_then(|rows| rows.last());
    let more = view["omitted"].as_u64().is_some_and(|omitted| 0 < omitted);
    view["next"] = last.filter(|_| more).and_then(cursor::of_row).into();
    answer(view).await
}

/// What is denied, asked of the core slice by slice.
async fn denials_by_slices(shown: &Shown, asked: DenialFilter) -> Option<DenialsView> {
    let mut filter = asked.clone();
    let mut found: Vec<DenialView> = Vec::new();
    loop {
        let left = asked.limit - found.len();
        filter.limit = left.min(SLICE);
        filter.omitted_are_counted = left <= SLICE;
        let Reply::Denials(part) = shown.desk.ask(Query::Denials(filter.clone())).await? else {
            return None;
        };
        found.extend(part.denials);
        match part.next {
            Some(next) if found.len() < asked.limit => filter.after = Some(next),
            next => {
                return Some(DenialsView {
                    denials: found,
                    next,
                    ..part
                });
            }
        }
    }
}

/// How many rows an answer may have.
fn rows(limit: Option<usize>) -> Result<usize, String> {
    let limit = limit.unwrap_or(ROWS_DEFAULT);
    match limit <= ROWS_MAX {
        true => Ok(limit),
        false => Err(format!(
            "limit = {limit}: expected at most {ROWS_MAX}; a page goes on behind the one before it"
        )),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldsUrl {
    resource: Option<String>,
    domain: Option<String>,
    agent: Option<String>,
    group: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn holds(
    State(shown): State<Shown>,
    asked: Asked,
    UrlQuery(url): UrlQuery<HoldsUrl>,
) -> Response {
    let limit = match rows(url.limit) {
        Ok(limit) => limit,
        Err(text) => return fault(StatusCode::BAD_REQUEST, text),
    };
    let named = url.state.as_deref();
    let state = named.and_then(|name| STATES.into_iter().find(|state| *state == name));
    if let Some(name) = named.filter(|_| state.is_none()) {
        let text = format!("state = {name:?}: expected one of {}", STATES.join(", "));
        return fault(StatusCode::BAD_REQUEST, text);
    }
    let filter = HoldFilter {
        resource: url.resource,
        // The name under which a caller of this domain is limited.
        domain: url.domain.map(|domain| admit_domain(&domain).into_owned()),
        agent: url.agent,
        group: url.group,
        state,
        limit,
    };
    let list = List {
        rows: "holds",
        limit,
        order: Order::Start,
    };
    let Some(_turn) = LISTS.turn().await else {
        return busy(&shown.counters);
    };
    match shown.desk.ask(Query::Holds(filter)).await {
        Some(Reply::Holds(view)) => gathered(&shown, asked, view, &list).await,
        _ => silent(),
    }
}

pub(super) async fn candidates(State(shown): State<Shown>, asked: Asked) -> Response {
    let list = List {
        rows: "candidates",
        limit: usize::MAX,
        order: Order::Resource,
    };
    match shown.desk.ask(Query::Candidates).await {
        Some(Reply::Candidates(view)) => gathered(&shown, asked, view, &list).await,
        _ => silent(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairUrl {
    resource: String,
    /// None: everybody, under the resource's global limit.
    domain: Option<String>,
}

pub(super) async fn pair_by_query(
    state: State<Shown>,
    asked: Asked,
    UrlQuery(url): UrlQuery<PairUrl>,
) -> Response {
    pair(state, asked, url).await
}

pub(super) async fn pair_by_path(
    state: State<Shown>,
    asked: Asked,
    Path(url): Path<PairUrl>,
) -> Response {
    pair(state, asked, url).await
}

async fn pair(
    State(shown): State<Shown>,
    asked: Asked,
    PairUrl { resource, domain }: PairUrl,
) -> Response {
    // The name under which a caller of this domain is limited.
    let domain = match &domain {
        Some(domain) => admit_domain(domain).into_owned(),
        None => EVERYBODY.to_owned(),
    };
    match shown.desk.ask(Query::Pair { resource, domain }).await {
        Some(Reply::Pair(view)) => {
            let of = (&asked.uri, &asked.headers);
            let view = fleet::whoever_rules(&shown.others, of, view).await;
            view.map_or_else(silent, |view| Json(view).into_response())
        }
        _ => silent(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopUrl {
    by: Option<String>,
    resource: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn top(
    State(shown): State<Shown>,
    asked: Asked,
    UrlQuery(url): UrlQuery<TopUrl>,
) -> Response {
    let limit = url.limit.unwrap_or(TOP_DEFAULT);
    if TOP_MAX < limit {
        let text = format!("limit = {limit}: expected at most {TOP_MAX}");
        return fault(StatusCode::BAD_REQUEST, text);
    }
    let name = url.by.as_deref().unwrap_or(By::default().name());
    let Some(by) = By::ALL.into_iter().find(|by| by.name() == name) else {
        let text = format!("by = {name:?}: expected hits, refused or excess");
        return fault(StatusCode::BAD_REQUEST, text);
    };
    let list = List {
        rows: "pairs",
        limit,
        order: Order::Greatest(by.name()),
    };
    let filter = TopFilter {
        by,
        resource: url.resource,
        limit,
    };
    match shown.desk.ask(Query::Top(filter)).await {
        Some(Reply::Top(view)) => gathered(&shown, asked, view, &list).await,
        _ => silent(),
    }
}

async fn gathered(
    shown: &Shown,
    asked: Asked,
    view: impl Serialize + Send + 'static,
    list: &List,
) -> Response {
    let of = (&asked.uri, &asked.headers);
    match fleet::gather(&shown.others, of, view, list).await {
        Some(view) => answer(view).await,
        None => silent(),
    }
}

/// A list as a response, written in a thread that nobody else waits for.
async fn answer(view: Value) -> Response {
    let written = tokio::task::spawn_blocking(move || Json(view).into_response());
    written.await.unwrap_or_else(|_| silent())
}
