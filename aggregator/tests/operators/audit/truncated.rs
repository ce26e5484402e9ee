//! Tests of `tollgate audit`, on a log of which some partitions have lost their beginning.

use super::*;
use crate::support::export::rewritten;

/// An export in which these partitions have lost their first records, and have no snapshots.
fn truncated(dir: &Path, name: &str, partitions: &[u32]) {
    rewritten(dir, name, partitions, |all| {
        for partition in partitions {
            of(all, Stream::Hits, *partition).drain(..10);
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_its_beginning_is_named() {
    let dir = written().await;
    let (_, whole) = audit(dir.path(), &["--export", "all"]);
    truncated(dir.path(), "one", &[2]);
    let (exit, report) = audit(dir.path(), &["--export", "one"]);
    assert_eq!((exit, &report["equal"]), (1, &false.into()), "{report:#}");
    assert_eq!(report["differences_count"], 0, "{report:#}");
    let unaudited = report["not_audited"].as_array().expect("a list");
    assert_eq!(
        (unaudited.len(), &unaudited[0]["partition"]),
        (1, &2.into())
    );
    let reason = unaudited[0]["reason"].as_str().expect("a text");
    assert!(reason.contains("the log begins at 10"), "{reason}");
    // The others are audited.
    assert_eq!(
        (&report["partitions"], &whole["partitions"]),
        (&3.into(), &4.into())
    );
    let records = |report: &Value| report["records"].as_u64().expect("a number");
    let source = ExportSource::open(&dir.path().join("all")).expect("an export");
    let lost = of(&mut read_all(&source), Stream::Hits, 2).len() as u64;
    assert_eq!(records(&report), records(&whole) - lost);
    let (_, text, _) = run(dir.path(), &["audit", "--export", "one"]);
    let line = format!(
        "not audited: {reason}\nNOT all compared: no difference in the rest; 1 partition was not audited"
    );
    assert!(text.contains(&line), "{text}");
    // Differences elsewhere are reported beside it.
    let mut source = read_all(&source);
    let (partition, at) = neighbours(&source);
    let other = (0..PARTITIONS)
        .find(|other| *other != partition)
        .expect("another one");
    let changed = announced(&of(&mut source, Stream::Denials, partition)[at]).map(|mut changed| {
        changed.statement.position.entry += 1_000;
        encoded(&changed)
    });
    rewritten(dir.path(), "both", &[other], |all| {
        of(all, Stream::Hits, other).drain(..10);
        of(all, Stream::Denials, partition)[at].bytes = changed.expect("a statement");
    });
    let (exit, report) = audit(dir.path(), &["--export", "both"]);
    assert_eq!(
        (exit, report["not_audited"].as_array().map(Vec::len)),
        (1, Some(1)),
        "{report:#}"
    );
    assert!(kinds(&report).contains(&"missing"), "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_no_beginning_at_all_yields_no_report() {
    let dir = written().await;
    truncated(dir.path(), "none", &[0, 1, 2, 3]);
    let (exit, stdout, stderr) = run(dir.path(), &["audit", "--export", "none"]);
    assert_eq!((exit, &*stdout), (65, ""), "{stderr}");
    assert!(
        stderr.contains("partition 0: offset 0 is wanted"),
        "{stderr}"
    );
}
