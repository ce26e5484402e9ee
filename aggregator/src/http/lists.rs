//! The lists: what is denied, who holds what, how a pair stands, who uses most.
//!
//! Each asks the core, and those who rule what this process does not. Knows nothing of how answers are put
//! together.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use tollgate_shared::names::{EVERYBODY, admit_domain};

use super::fleet::{self, List, Order};
use super::query::UrlQuery;
use super::{Shown, fault, silent};
use crate::core::holds::{HoldFilter, STATES};
use crate::core::usage::{By, TOP_MAX, TopFilter};
use crate::core::view::{DenialFilter, Query, Reply};

/// The most denials in one answer, and how many there are where nobody says.
const DENIALS_MAX: usize = 100_000;
const DENIALS_DEFAULT: usize = 1_000;

/// The most holds in one answer, and how many there are where nobody says.
pub const HOLDS_MAX: usize = 100_000;
const HOLDS_DEFAULT: usize = 1_000;

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
}

pub(super) async fn denials(
    State(shown): State<Shown>,
    asked: Asked,
    UrlQuery(url): UrlQuery<DenialsUrl>,
) -> Response {
    let limit = url.limit.unwrap_or(DENIALS_DEFAULT);
    if DENIALS_MAX < limit {
        let text = format!("limit = {limit}: expected at most {DENIALS_MAX}");
        return fault(StatusCode::BAD_REQUEST, text);
    }
    let filter = DenialFilter {
        resource: url.resource,
        domain: url.domain,
        limit,
    };
    let list = List {
        rows: "denials",
        limit,
        order: Order::Resource,
    };
    match shown.desk.ask(Query::Denials(filter)).await {
        Some(Reply::Denials(view)) => gathered(&shown, asked, &view, &list).await,
        _ => silent(),
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
    let limit = url.limit.unwrap_or(HOLDS_DEFAULT);
    if HOLDS_MAX < limit {
        let text = format!("limit = {limit}: expected at most {HOLDS_MAX}");
        return fault(StatusCode::BAD_REQUEST, text);
    }
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
    match shown.desk.ask(Query::Holds(filter)).await {
        Some(Reply::Holds(view)) => gathered(&shown, asked, &view, &list).await,
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
        Some(Reply::Candidates(view)) => gathered(&shown, asked, &view, &list).await,
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
            let view = fleet::whoever_rules(&shown.others, (&asked.uri, &asked.headers), &view);
            view.await
                .map_or_else(silent, |view| Json(view).into_response())
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
        Some(Reply::Top(view)) => gathered(&shown, asked, &view, &list).await,
        _ => silent(),
    }
}

async fn gathered(shown: &Shown, asked: Asked, view: &impl Serialize, list: &List) -> Response {
    let of = (&asked.uri, &asked.headers);
    let view = fleet::gather(&shown.others, of, view, list).await;
    view.map_or_else(silent, |view| Json(view).into_response())
}
