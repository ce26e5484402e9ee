//! Answers for the whole fleet: this process asks other members for partitions that it does not rule.
//!
//! ```text
//! GET /v1/holds ── own core ── partitions 1, 3 are missing ── agg-2, agg-3, at once, each for its own only
//!               <── rows of 0, 2 and of each answer; without an answer: partitions_missing
//! ```
//!
//! The members themselves state which partitions they rule. A member that is asked with the header [`ALONE`] asks no
//! others. Knows nothing of the lists' content, except that each row names its partition. What stays true: a
//! partition's rows are from one aggregator; a partition without an answer is listed as missing.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{HeaderMap, Uri};
use serde::Serialize;
use serde_json::Value;

use super::ANSWERS;
use super::client::{Client, explained};
use super::merge::{List, finish, leave_out_older, merge, missing_in};
use super::queue::Turn;

/// A request with this header is answered only from what this process rules.
pub(super) const ALONE: &str = "x-tollgate-alone";

/// How long another member may take to answer. The fleet notices a dead member by its silence within some seconds;
/// until then callers should not wait that long.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest answer that is read: 10,000 rows of the longest names.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Another aggregator of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its address for HTTP, as `host:port`.
    pub http: Box<str>,
    /// The partitions that it states it rules.
    pub partitions: Vec<u32>,
}

/// The other members, as known at the moment. Empty where the log is a journal.
#[derive(Clone, Debug, Default)]
pub struct Others {
    known: Arc<RwLock<Vec<Other>>>,
    /// The client for them: it shows this aggregator's own certificate if they use TLS, and never the token of this
    /// aggregator's caller.
    client: Arc<Client>,
}

impl Others {
    /// No members yet, to be asked by this client.
    pub fn asked_by(client: Client) -> Self {
        Self {
            known: Arc::default(),
            client: Arc::new(client),
        }
    }

    /// Replaces the members.
    pub fn set(&self, others: Vec<Other>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = others;
    }

    fn of(&self, missing: &BTreeSet<u32>) -> Vec<Other> {
        let others = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let rules = |other: &&Other| other.partitions.iter().any(|p| missing.contains(p));
        others.iter().filter(rules).cloned().collect()
    }
}

/// The view of this process's own partitions.
pub(super) trait OwnView: Serialize + Send + 'static {
    /// The partitions that it does not rule.
    fn missing(&self) -> BTreeSet<u32>;
}

/// An answer: the own view, or one merged from several members.
#[derive(Debug)]
pub(super) enum FromFleet<V> {
    Own(V),
    Fleet(Value),
}

impl<V: OwnView> FromFleet<V> {
    /// Serialises it.
    ///
    /// # Errors
    ///
    /// Never, as far as is known: views consist of texts and numbers.
    pub(super) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        match self {
            Self::Own(view) => serde_json::to_vec(view),
            Self::Fleet(view) => serde_json::to_vec(view),
        }
    }
}

/// A view, merged with the answers of other members to the same request.
pub(super) async fn gather<V: OwnView>(
    turn: &Turn,
    others: &Others,
    (uri, headers): (&Uri, &HeaderMap),
    own: V,
    list: &List,
) -> Option<FromFleet<V>> {
    let mut missing = own.missing();
    if headers.contains_key(ALONE) || missing.is_empty() {
        return Some(FromFleet::Own(own));
    }
    let mut view = written(turn, own).await?;
    let mut answers = ask_all(&others.client, others.of(&missing), uri).await;
    let mut all = vec![&mut view];
    all.extend(&mut answers);
    let left_out = leave_out_older(&mut all, list);
    for answer in answers {
        let theirs = missing_in(&answer);
        let answered: BTreeSet<u32> = missing.difference(&theirs).copied().collect();
        merge(&mut view, &answer, &answered, list);
        missing.retain(|partition| !answered.contains(partition));
    }
    missing.extend(left_out);
    finish(&mut view, list);
    view["partitions_missing"] = missing.into_iter().collect();
    Some(FromFleet::Fleet(view))
}

/// A view of one thing, as JSON: another member's, if this process does not rule it and that member does.
pub(super) async fn whoever_rules<V: OwnView>(
    others: &Others,
    (uri, headers): (&Uri, &HeaderMap),
    own: V,
) -> FromFleet<V> {
    let missing = own.missing();
    if headers.contains_key(ALONE) || missing.is_empty() {
        return FromFleet::Own(own);
    }
    let answers = ask_all(&others.client, others.of(&missing), uri).await;
    let ruled = answers
        .into_iter()
        .find(|answer| missing_in(answer).is_empty());
    ruled.map_or(FromFleet::Own(own), FromFleet::Fleet)
}

/// A view as JSON, in the background: it may have ten thousand rows.
async fn written(turn: &Turn, view: impl Serialize + Send + 'static) -> Option<Value> {
    let written = ANSWERS.run(turn, move || serde_json::to_value(view));
    written.await?.ok()
}

/// Asks all members at once; those without a good answer are left out.
async fn ask_all(client: &Arc<Client>, others: Vec<Other>, uri: &Uri) -> Vec<Value> {
    let path: Arc<str> = uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .into();
    let asked: Vec<_> = others
        .into_iter()
        .map(|other| {
            let (client, path) = (Arc::clone(client), Arc::clone(&path));
            let url = format!("http://{}", other.http);
            // The client blocks a thread; there are no more of them than members.
            tokio::task::spawn_blocking(move || ask(&client, &url, &path))
        })
        .collect();
    let mut answers = Vec::new();
    for asked in asked {
        match asked.await {
            Ok(Ok(answer)) => answers.push(answer),
            Ok(Err(error)) => tracing::warn!(%error, "another member does not answer"),
            Err(_) => {}
        }
    }
    answers
}

fn ask(client: &Client, url: &str, path: &str) -> Result<Value, String> {
    let failed = |error: ureq::Error| format!("{url}{path}: {}", explained(&error));
    let opened = client.open(url, Some(PATIENCE));
    let opened = opened.map_err(|fault| fault.to_string())?;
    let mut response = opened.get(path).header(ALONE, "1").call().map_err(failed)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(format!("{url}{path}: status {status}"));
    }
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    let text = body.read_to_string().map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| format!("{url}{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::merge::RowOrder;
    use crate::http::queue::Queue;
    use serde_json::json;

    static QUEUE: Queue = Queue::new(8);

    impl OwnView for Value {
        fn missing(&self) -> BTreeSet<u32> {
            missing_in(self)
        }
    }

    const HOLDS: List = List {
        rows: "holds",
        limit: 3,
        order: RowOrder::Start,
    };

    /// The merged answer about holds or candidates.
    async fn answered(others: &Others, of: (&Uri, &HeaderMap), own: Value, list: &List) -> Value {
        let turn = QUEUE.turn().await.expect("a turn");
        match gather(&turn, others, of, own, list)
            .await
            .expect("an answer")
        {
            FromFleet::Own(view) | FromFleet::Fleet(view) => view,
        }
    }

    #[tokio::test]
    async fn a_silent_members_partitions_are_reported_missing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        let others = Others::default();
        others.set(vec![Other {
            http: nobody.to_string().into(),
            partitions: vec![1],
        }]);
        let own = json!({"holds": [], "partitions_missing": [1, 2]});
        let uri = Uri::from_static("/v1/holds?limit=3");
        let view = answered(&others, (&uri, &HeaderMap::new()), own.clone(), &HOLDS).await;
        assert_eq!(view["partitions_missing"], json!([1, 2]));
        let app = axum::Router::new().route(
            "/v1/holds",
            axum::routing::get(|headers: HeaderMap| async move {
                assert!(headers.contains_key(ALONE));
                axum::Json(
                    json!({"holds": [{"partition": 1, "start_us": 7}], "partitions_missing": [2]}),
                )
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let somebody = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        others.set(vec![Other {
            http: somebody.to_string().into(),
            partitions: vec![1],
        }]);
        let view = answered(&others, (&uri, &HeaderMap::new()), own.clone(), &HOLDS).await;
        assert_eq!(view["partitions_missing"], json!([2]));
        assert_eq!(view["holds"][0]["start_us"], json!(7));
        let mut alone = HeaderMap::new();
        alone.insert(ALONE, "1".parse().unwrap());
        let view = answered(&others, (&uri, &alone), own, &HOLDS).await;
        assert_eq!(view["partitions_missing"], json!([1, 2]));
        serving.abort();
    }

    /// A member that answers about candidates, and states which partitions it does not rule.
    async fn member(rows: Value, missing: Value) -> (Box<str>, tokio::task::JoinHandle<()>) {
        let view = json!({"configured": ["api.search"], "candidates": rows, "partitions_missing": missing});
        let answer = axum::routing::get(move || {
            let view = view.clone();
            async move { axum::Json(view) }
        });
        let app = axum::Router::new().route("/v1/candidates", answer);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        (address.to_string().into(), serving)
    }

    #[tokio::test]
    async fn candidates_results_have_each_partition_once() {
        let row = |partition: u32, resource: &str, newly_refused: u64| {
            json!({"partition": partition, "resource": resource, "newly_refused": newly_refused,
                "newest": [{"domain": format!("of-{partition}")}]})
        };
        // The second has just taken partition 1 over, and counts it as well: it was not asked for that.
        let (one, serving_one) = member(
            json!([row(1, "api.search", 5), row(1, "api.export", 1)]),
            json!([0, 2, 3]),
        )
        .await;
        let (two, serving_two) = member(
            json!([row(1, "api.search", 5), row(2, "api.search", 7)]),
            json!([0, 3]),
        )
        .await;
        let others = Others::default();
        let rules = |http: &str, partitions: &[u32]| Other {
            http: http.into(),
            partitions: partitions.to_vec(),
        };
        others.set(vec![rules(&one, &[1]), rules(&two, &[2])]);
        let own = json!({"configured": ["api.search"], "candidates": [row(0, "api.search", 3)],
            "partitions_missing": [1, 2, 3]});
        let list = List {
            rows: "candidates",
            limit: usize::MAX,
            order: RowOrder::Resource,
        };
        let uri = Uri::from_static("/v1/candidates");
        let view = answered(&others, (&uri, &HeaderMap::new()), own, &list).await;
        let rows = view["candidates"].as_array().expect("rows");
        let found: Vec<(&str, u64, u64)> = rows
            .iter()
            .map(|row| {
                let number = |field: &str| row[field].as_u64().expect("a number");
                let resource = row["resource"].as_str().expect("a name");
                (resource, number("partition"), number("newly_refused"))
            })
            .collect();
        let expected = [
            ("api.export", 1, 1),
            ("api.search", 0, 3),
            ("api.search", 1, 5),
            ("api.search", 2, 7),
        ];
        assert_eq!(found, expected);
        assert_eq!(view["partitions_missing"], json!([3]), "nobody rules it");
        serving_one.abort();
        serving_two.abort();
    }
}
