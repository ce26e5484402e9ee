//! The lists: denials, bans, holds, the state of a pair, the heaviest users, the limits.
//!
//! Each asks the core, and other members for partitions that this process does not rule. A list has pages of at
//! most [`ROWS_MAX`] rows; pages of denials and holds are made of slices, between which the core handles other
//! events, and state after which row the next page begins. One list is made at a time, and beside it one for another
//! member. Knows nothing of how answers
//! are merged.

pub(super) mod bans;

pub(super) use self::bans::bans;

use std::collections::BTreeSet;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use tollgate_api::candidates::CandidatesView;
use tollgate_api::denials::DenialView;
use tollgate_api::holds::HoldView;
use tollgate_api::pairs::PairView;
use tollgate_api::top::{TopPair, TopView};
use tollgate_shared::names::{EVERYBODY, admit_domain};

use super::fleet::{self, FromFleet, OwnView};
use super::merge::{List, RowOrder};
use super::query::UrlQuery;
use super::queue::{Queue, Turn};
use super::{ANSWERS, DOCUMENTS, Shown, busy, cursor, fault, silent};
use crate::core::holds::{HoldFilter, HoldsPage, STATES};
use crate::core::usage::{By, TOP_MAX, TopFilter, keep_greatest};
use crate::core::view::{DenialFilter, DenialsPage, DenialsPart, Query, Reply};

/// The most rows in one answer, and the number of rows if the caller states none.
pub const ROWS_MAX: usize = 10_000;
const ROWS_DEFAULT: usize = 1_000;

/// Rows that the core hands over at a time: that takes it about 0.4 ms.
const SLICE: usize = 256;

/// Denials beyond the shown ones are counted one by one: [`COUNTED`] at a time, which takes about 0.1 ms, and at most
/// [`COUNTS_MAX`] times.
const COUNTED: usize = 1_000;
const COUNTS_MAX: usize = 10;

/// Slices of one page of holds: about a fifth of a second, in which 200,000 holds that do not match are looked at. A
/// page that ends for this reason states where to go on.
const SLICES_MAX: usize = 200;

/// One list is made at a time.
static LISTS: Queue = Queue::new(32);

/// Beside it, one for another member, which waits for it in the turn of a list of its own.
static OF_MEMBERS: Queue = Queue::new(32);

/// One state of a pair is written at a time, beside lists.
static PAIRS: Queue = Queue::new(32);

/// The number of pairs in an answer of the heaviest users, if the caller states none.
const TOP_DEFAULT: usize = 20;

/// The request, to be repeated to other members.
pub(super) struct ListQuery {
    uri: Uri,
    headers: HeaderMap,
}

impl ListQuery {
    /// Waits for a turn; `None` if too many requests wait.
    async fn turn(&self) -> Option<Turn> {
        match self.headers.contains_key(fleet::ALONE) {
            true => OF_MEMBERS.turn().await,
            false => LISTS.turn().await,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for ListQuery {
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
    limit: Option<String>,
    /// After this row: the `next` of the page before.
    after: Option<String>,
}

pub(super) async fn denials(
    State(shown): State<Shown>,
    asked: ListQuery,
    UrlQuery(url): UrlQuery<DenialsUrl>,
) -> Response {
    let limit = match rows(url.limit.as_deref()) {
        Ok(limit) => limit,
        Err(text) => return fault(StatusCode::BAD_REQUEST, text),
    };
    let after = match url.after.as_deref().map(cursor::read) {
        Some(None) => return not_a_page(url.after.as_deref()),
        after => after.flatten(),
    };
    let Some(turn) = asked.turn().await else {
        return busy(&shown.counters);
    };
    let filter = DenialFilter {
        resource: url.resource,
        domain: url.domain,
        after,
        limit,
        counted_max: 0,
    };
    let list = List {
        rows: "denials",
        limit,
        order: RowOrder::Resource,
    };
    let Some(view) = denials_by_slices(&shown, filter).await else {
        return silent();
    };
    let of = (&asked.uri, &asked.headers);
    match fleet::gather(&turn, &shown.others, of, view, &list).await {
        Some(FromFleet::Fleet(mut view)) => {
            let last = view["denials"].as_array().and_then(|rows| rows.last());
            let more = view["omitted"].as_u64().is_some_and(|omitted| 0 < omitted);
            view["next"] = last.filter(|_| more).and_then(cursor::of_row).into();
            answer(&turn, FromFleet::<DenialsPage>::Fleet(view)).await
        }
        Some(own) => answer(&turn, own).await,
        None => silent(),
    }
}

/// Asks the core for denials, slice by slice: first those that are shown, then how many more there are.
async fn denials_by_slices(shown: &Shown, asked: DenialFilter) -> Option<DenialsPage> {
    let mut filter = asked.clone();
    let mut found: Vec<DenialView> = Vec::new();
    let mut part = loop {
        filter.limit = (asked.limit - found.len()).min(SLICE);
        let mut part = ask_for_denials(shown, &filter).await?;
        found.append(&mut part.page.denials);
        if !part.more || asked.limit <= found.len() {
            break part;
        }
        filter.after = part.upto;
    };
    let mut page = DenialsPage {
        denials: found,
        ..part.page
    };
    filter.limit = 0;
    filter.counted_max = COUNTED;
    for _ in 0..COUNTS_MAX {
        if !part.more {
            return Some(page);
        }
        filter.after = part.upto.take().or(filter.after);
        let next = ask_for_denials(shown, &filter).await?;
        page.omitted += next.page.omitted;
        (part.more, part.upto) = (next.more, next.upto);
    }
    if part.more {
        let others = part.kept.saturating_sub(page.denials.len());
        page.omitted = page.omitted.max(others);
    }
    Some(page)
}

async fn ask_for_denials(shown: &Shown, filter: &DenialFilter) -> Option<DenialsPart> {
    match shown.queries.ask(Query::Denials(filter.clone())).await? {
        Reply::Denials(part) => Some(part),
        _ => None,
    }
}

fn not_a_page(after: Option<&str>) -> Response {
    let after = after.unwrap_or_default();
    let text = format!("after = {after:?}: expected the `next` of a page");
    fault(StatusCode::BAD_REQUEST, text)
}

/// The number of rows in an answer.
fn rows(limit: Option<&str>) -> Result<usize, String> {
    let more = "; further pages follow with `after`";
    number(limit, ROWS_DEFAULT, ROWS_MAX).map_err(|fault| fault + more)
}

/// The number that a request states, up to a maximum.
fn number(limit: Option<&str>, default: usize, max: usize) -> Result<usize, String> {
    let Some(limit) = limit else {
        return Ok(default);
    };
    let number = limit.parse().ok().filter(|number| *number <= max);
    number.ok_or_else(|| format!("limit = {limit:?}: expected a number of at most {max}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldsUrl {
    resource: Option<String>,
    domain: Option<String>,
    agent: Option<String>,
    group: Option<String>,
    state: Option<String>,
    limit: Option<String>,
    /// After this row: the `next` of the page before.
    after: Option<String>,
}

pub(super) async fn holds(
    State(shown): State<Shown>,
    asked: ListQuery,
    UrlQuery(url): UrlQuery<HoldsUrl>,
) -> Response {
    let limit = match rows(url.limit.as_deref()) {
        Ok(limit) => limit,
        Err(text) => return fault(StatusCode::BAD_REQUEST, text),
    };
    let named = url.state.as_deref();
    let state = named.and_then(|name| STATES.into_iter().find(|state| *state == name));
    if let Some(name) = named.filter(|_| state.is_none()) {
        let text = format!("state = {name:?}: expected one of {}", STATES.join(", "));
        return fault(StatusCode::BAD_REQUEST, text);
    }
    let after = match url.after.as_deref().map(cursor::read_hold) {
        Some(None) => return not_a_page(url.after.as_deref()),
        after => after.flatten(),
    };
    let filter = HoldFilter {
        resource: url.resource,
        // The name under which agents limit a caller of this domain.
        domain: url.domain.map(|domain| admit_domain(&domain).into_owned()),
        agent: url.agent,
        group: url.group,
        state,
        after,
        limit,
    };
    let list = List {
        rows: "holds",
        limit,
        order: RowOrder::Start,
    };
    let Some(turn) = asked.turn().await else {
        return busy(&shown.counters);
    };
    match holds_by_slices(&shown, filter).await {
        Some(view) => gathered(&turn, &shown, asked, view, &list).await,
        None => silent(),
    }
}

/// Asks the core for holds, slice by slice.
async fn holds_by_slices(shown: &Shown, asked: HoldFilter) -> Option<HoldsPage> {
    let mut filter = asked.clone();
    let mut found: Vec<HoldView> = Vec::new();
    let mut slices = 0;
    loop {
        filter.limit = (asked.limit - found.len()).min(SLICE);
        let Reply::Holds(part) = shown.queries.ask(Query::Holds(filter.clone())).await? else {
            return None;
        };
        found.extend(part.holds);
        slices += 1;
        match part.next {
            Some(next) if found.len() < asked.limit && slices < SLICES_MAX => {
                filter.after = Some(next);
            }
            next => {
                return Some(HoldsPage {
                    holds: found,
                    next,
                    ..part
                });
            }
        }
    }
}

pub(super) async fn candidates(State(shown): State<Shown>, asked: ListQuery) -> Response {
    let list = List {
        rows: "candidates",
        limit: usize::MAX,
        order: RowOrder::Resource,
    };
    let Some(turn) = asked.turn().await else {
        return busy(&shown.counters);
    };
    match shown.queries.ask(Query::Candidates).await {
        Some(Reply::Candidates(view)) => gathered(&turn, &shown, asked, view, &list).await,
        _ => silent(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairUrl {
    resource: String,
    /// `None`: all domains together, under the resource's global limit.
    domain: Option<String>,
}

pub(super) async fn pair_by_query(
    state: State<Shown>,
    asked: ListQuery,
    UrlQuery(url): UrlQuery<PairUrl>,
) -> Response {
    pair(state, asked, url).await
}

pub(super) async fn pair_by_path(
    state: State<Shown>,
    asked: ListQuery,
    url: Result<Path<PairUrl>, PathRejection>,
) -> Response {
    match url {
        Ok(Path(url)) => pair(state, asked, url).await,
        Err(refused) => fault(StatusCode::BAD_REQUEST, refused.body_text()),
    }
}

async fn pair(
    State(shown): State<Shown>,
    asked: ListQuery,
    PairUrl { resource, domain }: PairUrl,
) -> Response {
    // The name under which agents limit a caller of this domain.
    let domain = match &domain {
        Some(domain) => admit_domain(domain).into_owned(),
        None => EVERYBODY.to_owned(),
    };
    match shown.queries.ask(Query::Pair { resource, domain }).await {
        Some(Reply::Pair(view)) => {
            let of = (&asked.uri, &asked.headers);
            let view = fleet::whoever_rules(&shown.others, of, *view).await;
            match PAIRS.turn().await {
                Some(turn) => answer(&turn, view).await,
                None => busy(&shown.counters),
            }
        }
        _ => silent(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopUrl {
    by: Option<String>,
    resource: Option<String>,
    limit: Option<String>,
}

pub(super) async fn top(
    State(shown): State<Shown>,
    asked: ListQuery,
    UrlQuery(url): UrlQuery<TopUrl>,
) -> Response {
    let limit = match number(url.limit.as_deref(), TOP_DEFAULT, TOP_MAX) {
        Ok(limit) => limit,
        Err(text) => return fault(StatusCode::BAD_REQUEST, text),
    };
    let name = url.by.as_deref().unwrap_or(By::default().name());
    let Some(by) = By::ALL.into_iter().find(|by| by.name() == name) else {
        let text = format!("by = {name:?}: expected hits, refused or excess");
        return fault(StatusCode::BAD_REQUEST, text);
    };
    let list = List {
        rows: "pairs",
        limit,
        order: RowOrder::Greatest(by.name()),
    };
    let filter = TopFilter {
        by,
        resource: url.resource,
        limit,
        from: 0,
    };
    let Some(turn) = asked.turn().await else {
        return busy(&shown.counters);
    };
    match top_by_slices(&shown, filter).await {
        Some(view) => gathered(&turn, &shown, asked, view, &list).await,
        None => silent(),
    }
}

/// Asks the core for the heaviest users, some partitions at a time.
async fn top_by_slices(shown: &Shown, mut filter: TopFilter) -> Option<TopView> {
    let mut found: Vec<TopPair> = Vec::new();
    loop {
        let Reply::Top(mut part) = shown.queries.ask(Query::Top(filter.clone())).await? else {
            return None;
        };
        found.append(&mut part.view.pairs);
        keep_greatest(&mut found, filter.by, filter.limit);
        match part.next {
            Some(next) => filter.from = next,
            None => {
                return Some(TopView {
                    pairs: found,
                    ..part.view
                });
            }
        }
    }
}

async fn gathered<V: OwnView>(
    turn: &Turn,
    shown: &Shown,
    asked: ListQuery,
    view: V,
    list: &List,
) -> Response {
    let of = (&asked.uri, &asked.headers);
    match fleet::gather(turn, &shown.others, of, view, list).await {
        Some(view) => answer(turn, view).await,
        None => silent(),
    }
}

/// A list as a response.
async fn answer<V: OwnView>(turn: &Turn, view: FromFleet<V>) -> Response {
    let written = ANSWERS.run(turn, move || view.to_json().ok());
    json(written.await.flatten())
}

/// The limits in force: one answer at a time, since with many domains it has hundreds of MB.
pub(super) async fn limits(State(shown): State<Shown>) -> Response {
    let Some(turn) = LISTS.turn().await else {
        return busy(&shown.counters);
    };
    match shown.queries.ask(Query::Limits).await {
        Some(Reply::Limits(view)) => {
            let written = DOCUMENTS.run(&turn, move || serde_json::to_vec(&view).ok());
            json(written.await.flatten())
        }
        _ => silent(),
    }
}

fn json(written: Option<Vec<u8>>) -> Response {
    let form = "application/json";
    let answer = |json| ([(header::CONTENT_TYPE, form)], json).into_response();
    written.map_or_else(silent, answer)
}

fn missing(partitions: &[u32]) -> BTreeSet<u32> {
    partitions.iter().copied().collect()
}

impl OwnView for DenialsPage {
    fn missing(&self) -> BTreeSet<u32> {
        missing(&self.partitions_missing)
    }
}

impl OwnView for HoldsPage {
    fn missing(&self) -> BTreeSet<u32> {
        missing(&self.partitions_missing)
    }
}

impl OwnView for CandidatesView {
    fn missing(&self) -> BTreeSet<u32> {
        missing(&self.partitions_missing)
    }
}

impl OwnView for TopView {
    fn missing(&self) -> BTreeSet<u32> {
        missing(&self.partitions_missing)
    }
}

impl OwnView for PairView {
    fn missing(&self) -> BTreeSet<u32> {
        missing(&self.partitions_missing)
    }
}
