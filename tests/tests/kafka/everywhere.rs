//! Any aggregator answers for the whole fleet: it asks the others about what it does not rule, and
//! names the partitions for which none answers.

use serde_json::Value;
use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::{Aggregator, PARTITIONS, await_whole, directory, until};

const DOMAINS: usize = 12;

/// The result of a command about a fleet: its exit code, its lines as JSON, and its other output.
pub fn ask(of: &Aggregator, args: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let output = tollgate()
        .args(args)
        .args(["--url", &format!("http://{}", of.http)])
        .args(["--format", "json"])
        .output()
        .expect("runs");
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), lines.collect(), stderr)
}

/// The domains that an aggregator lists for a query; `None` unless the whole fleet answered.
fn listed(of: &Aggregator, args: &[&str]) -> Option<Vec<String>> {
    let (code, lines, _) = ask(of, args);
    let domain = |line: &Value| line["domain"].as_str().map(str::to_owned);
    let mut domains: Vec<String> = lines.iter().filter_map(domain).collect();
    domains.sort_unstable();
    domains.dedup();
    (code == Some(0)).then_some(domains)
}

pub fn any_aggregator_answers_for_the_fleet_and_names_silent_ones(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("everywhere"));
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let (one, two) = (start("agg-1"), start("agg-2"));
    await_whole(&[&one, &two]);
    let mut domains: Vec<String> = (0..DOMAINS).map(|n| format!("tenant-{n}")).collect();
    hit_much(&one, &domains);
    domains.sort_unstable();
    for of in [&one, &two] {
        for by in ["hits", "excess"] {
            until("each lists all that are busy", || {
                listed(of, &["top", "--by", by]).as_ref() == Some(&domains)
            });
        }
        until("each lists all that are denied", || {
            // Cooldowns last 10 s: they may end while other aggregators are asked.
            listed(of, &["denials"]).is_some_and(|denied| !denied.is_empty()) || {
                hit_much(&one, &domains);
                false
            }
        });
        for domain in &domains {
            let (code, lines, stderr) = ask(of, &["pairs", "show", "search", domain]);
            assert_eq!(code, Some(0), "{stderr}");
            assert_eq!(lines[0]["known"], true, "{lines:?}");
            assert_eq!(lines[0]["partitions_missing"], serde_json::json!([]));
        }
        let (code, _, stderr) = ask(of, &["holds"]);
        assert_eq!(code, Some(0), "{stderr}");
    }

    // Killed, but not missed yet: its partitions are named. Later the other has taken over.
    let of_two: Vec<u32> = two.rules().into_keys().collect();
    assert_eq!(of_two.len(), PARTITIONS as usize / 2);
    drop(two.kill());
    let (code, _, stderr) = ask(&one, &["top"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("{of_two:?}")),
        "{of_two:?}: {stderr}"
    );
    await_whole(&[&one]);
    let (code, _, stderr) = ask(&one, &["top"]);
    assert_eq!(code, Some(0), "{stderr}");
}

/// Hits each domain far more often than allowed, before any denial can arrive.
pub fn hit_much(one: &Aggregator, domains: &[String]) {
    for domain in domains {
        let hit = tollgate()
            .args(["hit", "search", domain, "-q"])
            .args(["-n", "40", "--rate", "100000/s"])
            .args(["--aggregator", &one.agents.to_string()])
            .output()
            .expect("runs");
        // Some may have been refused: cooldowns last 10 s.
        assert!(matches!(hit.status.code(), Some(0 | 1)), "{hit:?}");
    }
}
