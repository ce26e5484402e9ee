//! Limits of many domains on a real Kafka: rows beside a document, on all aggregators, and under the next document.

use serde_json::Value;
use tollgate_shared::wire::limits_document::DOCUMENT_BYTES_MAX;
use tollgate_shared::wire::set_rows::ROWS_MAX;
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::{
    Aggregator, LIMITS, await_whole, command, directory, follow_no_file, get, until,
};

/// How many domains have a row.
const DOMAINS: usize = 22_000;

/// The limits in force by an aggregator's answer: version, document, number of rows, and the rate
/// of one domain.
fn limits_of(one: &Aggregator, domain: &str) -> Option<(u64, String, u64, Option<String>)> {
    let limits = get(one.http, "/v1/limits")?;
    let text = |field: &str| Some(limits[field].as_str()?.to_owned());
    let normalised: toml::Table = text("normalised")?.parse().ok()?;
    let rate = normalised["rate"]["wide"]["domains"].get(domain);
    let rate = rate.and_then(|of| Some(of["rate"].as_str()?.to_owned()));
    let rows = limits["rows"].as_u64()?;
    Some((limits["version"].as_u64()?, text("text")?, rows, rate))
}

pub fn limits_of_many_domains_are_rows_beside_every_document(kafka: &LocalKafka) {
    let prefix = kafka.fresh_name("large");
    let dir = directory();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("written");
    follow_no_file(dir.path());
    let run = |args: &[&str]| {
        let more = ["--reason", "test", "--format", "json"];
        command(kafka, &prefix, &[&["limits"], args, &more].concat())
    };
    let version = |args: &[&str]| {
        let (code, output) = run(args);
        assert_eq!(code, Some(0), "{output}");
        let output: Value = serde_json::from_str(&output).expect("JSON");
        output["version"].as_u64().expect("a version")
    };
    let first = version(&["push", &path("limits.toml")]);

    let rows = (0..DOMAINS).map(|n| format!("wide,tenant-{n},{}/s\n", 1 + n % 100));
    write(
        "many.csv",
        &("resource,domain,rate\n".to_owned() + &rows.collect::<String>()),
    );
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let fleet = [start("agg-1"), start("agg-2")];
    await_whole(&[&fleet[0], &fleet[1]]);
    let many = version(&["import", &path("many.csv")]);
    assert_eq!(many, first + DOMAINS.div_ceil(ROWS_MAX) as u64);
    let all_say = |expected: (u64, &str, &str)| {
        let (version, text, rate) = expected;
        let rate = Some(rate.to_owned());
        let expected = Some((version, text.to_owned(), DOMAINS as u64, rate));
        fleet
            .iter()
            .all(|one| limits_of(one, "tenant-7") == expected)
    };
    until("both rule by all of them", || {
        all_say((many, LIMITS, "8/s"))
    });

    // A row of one domain is one record, and the next document keeps all rows that it does not
    // state.
    let set = ["set", "wide", "--domain", "tenant-7", "--rate", "555/s"];
    assert_eq!(version(&set), many + 1);
    let next = format!("{LIMITS}# and a remark\n");
    write("next.toml", &next);
    assert_eq!(version(&["push", &path("next.toml")]), many + 2);
    until("both rule by the next document", || {
        all_say((many + 2, &next, "555/s"))
    });

    // A later aggregator reads the same from the log.
    let [one, two] = fleet;
    let expected = limits_of(&two, "tenant-7");
    drop(one);
    let three = start("agg-3");
    await_whole(&[&two, &three]);
    until("so does a third", || {
        limits_of(&three, "tenant-7") == expected
    });
}

pub fn a_document_that_is_too_long_is_refused_with_advice(kafka: &LocalKafka) {
    let prefix = kafka.fresh_name("long");
    let dir = directory();
    let long = dir.path().join("long.toml");
    std::fs::write(&long, LIMITS.to_owned() + &"#".repeat(DOCUMENT_BYTES_MAX)).expect("written");
    let long = long.display().to_string();
    let push = ["limits", "push", &long, "--reason", "test"];
    let (code, output) = command(kafka, &prefix, &push);
    assert_eq!(code, Some(65), "{output}");
    for part in ["expected at most 524288", "limits import"] {
        assert!(output.contains(part), "{output}");
    }
}
