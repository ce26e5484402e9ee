//! Tests of `tollgate audit` on copies, where one hold closes several scopes at one log position.

use std::path::Path;

use tollgate_log::{Delivered, Stream};
use tollgate_shared::wire::statement::{Scope, StatementKind};

use super::{announced, audit, encoded, kinds};
use crate::explain_copies::{sandbox, take, until};
use crate::support::export::{All, altered};
use crate::support::{Served, directory, run, serve};

const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 2
global = 2
"#;

/// Waits for two more ticks in every partition, after which everything is known to be recorded.
async fn all_is_recorded(served: &Served) {
    let shown = served.json("/v1/digests");
    let offsets = |value: &serde_json::Value| -> Vec<u64> {
        let all = value["partitions"].as_array().expect("partitions").iter();
        all.map(|of| of["offset"].as_u64().expect("an offset"))
            .collect()
    };
    let before = offsets(&shown);
    let is_past = |value: &serde_json::Value| {
        let now = offsets(value);
        now.iter().zip(&before).all(|(now, then)| then + 8 < *now)
    };
    served.await_json("/v1/digests", is_past);
}

/// A journal, and its export, of copies that twice filled a domain and all domains together at once. The first
/// aggregator is killed, and the second one announces again what the first one had announced.
async fn written() -> tempfile::TempDir {
    let dir = directory(LIMITS);
    for ending in ["KILL", "TERM"] {
        let mut served = serve(dir.path(), &[]);
        served.await_ready();
        let (_agent, copies) = sandbox(&served, ending).await;
        let hold = take(&copies, "acme", 2).await;
        until(&copies, "globex", true).await;
        drop(hold);
        until(&copies, "globex", false).await;
        all_is_recorded(&served).await;
        served.signal(ending);
        served.await_end();
    }
    let args = ["audit", "export", "--journal", "tollgate-data", "-o", "all"];
    let (exit, stdout, stderr) = run(dir.path(), &args);
    assert_eq!(exit, 0, "{stdout}{stderr}");
    dir
}

/// Alters the second of two statements at one log position, which is about all domains; returns its log position.
fn alter_second(dir: &Path, name: &str, alter: impl Fn(&mut Vec<Delivered>, usize)) -> u64 {
    let mut offset = None;
    altered(dir, name, |all: &mut All| {
        let denials = all.iter_mut().filter(|of| of.0 == Stream::Denials);
        for (_, _, records) in denials {
            let position = |of: &Delivered| announced(of).map(|of| of.statement.position);
            let is_one = |two: &[Delivered]| {
                position(&two[0]).is_some() && position(&two[0]) == position(&two[1])
            };
            let Some(first) = records.windows(2).position(is_one) else {
                continue;
            };
            let second = announced(&records[first + 1])
                .expect("a statement")
                .statement;
            assert_eq!(second.scope, Scope::Resource);
            // The second aggregator announced it again.
            let mut index = 0;
            records.retain(|of| {
                index += 1;
                index <= first + 2 || announced(of).is_none_or(|of| of.statement != second)
            });
            alter(records, first + 1);
            offset = Some(second.position.offset);
        }
    });
    offset.expect("two statements at one log position")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_tells_statements_at_one_log_position_apart() {
    let dir = written().await;
    let (exit, report) = audit(dir.path(), &["--journal", "tollgate-data"]);
    assert_eq!((exit, &report["equal"]), (0, &true.into()), "{report:#}");
    let number = |field: &str| report[field].as_u64().expect("a number");
    // Of each aggregator: acme and all domains, closed and open again.
    assert_eq!(number("denials"), 4, "{report:#}");
    assert_eq!(number("announced_equal"), 8, "{report:#}");

    let offset = alter_second(dir.path(), "less", |records, at| drop(records.remove(at)));
    let (exit, report) = audit(dir.path(), &["--export", "less"]);
    assert_eq!(exit, 1, "{report:#}");
    let missing = &report["differences"][0];
    assert_eq!(
        (&missing["kind"], &missing["scope"], &missing["offset"]),
        (&"missing".into(), &"resource".into(), &offset.into()),
        "{report:#}"
    );

    alter_second(dir.path(), "other", |records, at| {
        let mut other = announced(&records[at]).expect("a statement");
        let StatementKind::Denied(denial) = &mut other.statement.kind else {
            panic!("{other:?}");
        };
        denial.limit += 1;
        records[at].bytes = encoded(&other);
    });
    let (exit, report) = audit(dir.path(), &["--export", "other"]);
    assert_eq!(exit, 1, "{report:#}");
    assert_eq!(kinds(&report)[0], "changed", "{report:#}");
    let text = &report["differences"][0]["text"];
    assert_eq!(*text, "was announced otherwise: limit", "{report:#}");
}
