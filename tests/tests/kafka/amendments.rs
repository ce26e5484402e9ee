//! Amendments on a real Kafka: whichever aggregator receives a command, the one that rules the pair
//! carries it out; of two at once the log lets one win; an audit reports them in order.

use serde_json::Value;
use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::{Aggregator, await_whole, codes_of, directory, get, until};

/// An operator's command to an aggregator.
fn command(of: &Aggregator, args: &[&str]) -> std::process::Command {
    let mut command = tollgate();
    command
        .args(args)
        .args(["--url", &format!("http://{}", of.http)])
        .args(["--by", "ann", "--reason", "a trial", "--format", "json"]);
    command
}

fn run(mut command: std::process::Command) -> (Option<i32>, String) {
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (
        output.status.code(),
        text + &String::from_utf8_lossy(&output.stderr),
    )
}

/// The causes of a domain's denials, if all aggregators answer the same for the whole fleet.
fn causes(fleet: &[&Aggregator], domain: &str) -> Option<Vec<String>> {
    let of = |one: &&Aggregator| {
        let view = get(one.http, &format!("/v1/denials?domain={domain}"))?;
        let denials = view["denials"].as_array()?.clone();
        let cause = |denial: &Value| denial["cause"].as_str().map(str::to_owned);
        Some(denials.iter().filter_map(cause).collect::<Vec<_>>())
    };
    let mut causes: Vec<_> = fleet.iter().map(of).collect::<Option<_>>()?;
    causes.dedup();
    let one = causes.pop();
    one.filter(|_| causes.is_empty())
}

pub fn an_operator_may_ask_any_aggregator_of_a_fleet(kafka: &LocalKafka) {
    let dir = directory();
    let prefix = kafka.fresh_name("amendments");
    let one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    let two = Aggregator::start(dir.path(), kafka, &prefix, "agg-2", false);
    let fleet = [&one, &two];
    await_whole(&fleet);

    // Enough domains that both aggregators rule some of them.
    let domains: Vec<String> = (0..8).map(|number| format!("tenant-{number}")).collect();
    for (index, domain) in domains.iter().enumerate() {
        let (code, text) = run(command(fleet[index % 2], &["ban", "search", domain]));
        assert_eq!(code, Some(0), "{text}");
    }
    for domain in &domains {
        until("each is banned once", || {
            causes(&fleet, domain).is_some_and(|causes| causes == ["banned"])
        });
    }
    let (code, text) = run(command(
        &two,
        &["ban", "--everywhere", "mallory", "--for", "1h"],
    ));
    assert_eq!(code, Some(0), "{text}");
    until("on both resources", || {
        causes(&fleet, "mallory").is_some_and(|causes| causes == ["banned"; 2])
    });
    let (code, text) = run(command(&one, &["ban", "nothing", "mallory"]));
    assert_eq!(code, Some(65), "{text}");

    of_two_acts_on_one_version_the_log_lets_one_win(fleet, [&domains[0], &domains[1]]);

    // The partitions move, and the amendments move with them.
    drop(one);
    await_whole(&[&two]);
    until("what was written is still in force", || {
        causes(&[&two], "mallory").is_some_and(|causes| causes == ["banned"; 2])
    });
    an_audit_lists_the_ban_everywhere(kafka, &prefix);
}

/// Two at once, each expecting the same version.
fn of_two_acts_on_one_version_the_log_lets_one_win(fleet: [&Aggregator; 2], banned: [&str; 2]) {
    let [one, two] = fleet;
    let version_of = |of: &Aggregator| get(of.http, "/v1/limits")?["version"].as_u64();
    until("both know the newest version", || {
        version_of(one).is_some() && version_of(one) == version_of(two)
    });
    let expected = version_of(one).expect("an answer").to_string();
    let unban = |(of, domain): (&Aggregator, &str)| {
        let args = ["unban", "search", domain, "--expect-version", &expected];
        command(of, &args)
    };
    let codes = codes_of(fleet.into_iter().zip(banned).map(unban));
    assert_eq!(codes, [Some(0), Some(75)]);
    until("one of them is not banned any more", || {
        let left = |domain| causes(&fleet, domain).map(|causes| causes.len());
        left(banned[0])
            .zip(left(banned[1]))
            .is_some_and(|(a, b)| a + b == 1)
    });
}

fn an_audit_lists_the_ban_everywhere(kafka: &LocalKafka, prefix: &str) {
    let args = ["audit", "--model", "all", "--format", "json", "-q"];
    let mut audit = tollgate();
    audit
        .args(args)
        .args(["--kafka", kafka.bootstrap(), "--topic-prefix", prefix]);
    let (code, text) = run(audit);
    assert_eq!(code, Some(0), "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["equal"], true, "{report}");
    let amendments = report["amendments"].as_array().expect("a list");
    let mut acts = amendments.iter().map(|one| one["amendment"].as_str());
    let everywhere =
        acts.any(|act| act.is_some_and(|act| act.starts_with("ban * mallory until 2")));
    assert!(everywhere, "{amendments:?}");
}
