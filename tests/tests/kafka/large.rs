//! A document of many chunks on a real Kafka: one version, the same at everybody's, and small changes of it.

use serde_json::Value;
use tollgate_shared::wire::limits_chunk::CHUNK_BYTES_MAX;
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::{
    Aggregator, LIMITS, await_whole, command, directory, follow_no_file, get, until,
};

/// Domains that have something of their own.
const DOMAINS: usize = 22_000;

/// Version and text that an aggregator says are in force.
fn limits_of(one: &Aggregator) -> Option<(u64, String)> {
    let limits = get(one.http, "/v1/limits")?;
    Some((
        limits["version"].as_u64()?,
        limits["text"].as_str()?.to_owned(),
    ))
}

pub fn a_document_of_many_chunks_is_one_version_everywhere(kafka: &LocalKafka) {
    let prefix = kafka.fresh_name("large");
    let dir = directory();
    let path = |name: &str| dir.path().join(name);
    follow_no_file(dir.path());
    let own = (0..DOMAINS).map(|n| {
        format!(
            "[rate.wide.domains.\"tenant-{n}\"]\nrate = \"{}/s\"\n",
            1 + n % 100
        )
    });
    let text = LIMITS.to_owned() + &own.collect::<String>();
    assert!(2 * CHUNK_BYTES_MAX < text.len(), "{} bytes", text.len());
    std::fs::write(path("large.toml"), &text).expect("written");
    let run = |args: &[&str]| command(kafka, &prefix, &[&["limits"], args].concat());
    let push = |file: &str| {
        let file = path(file);
        let file = file.to_str().expect("UTF-8");
        let (code, said) = run(&["push", file, "--reason", "test", "--format", "json"]);
        assert_eq!(code, Some(0), "{said}");
        let said: Value = serde_json::from_str(&said).expect("JSON");
        said["version"].as_u64().expect("a version")
    };
    let small = push("limits.toml");
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let fleet = [start("agg-1"), start("agg-2")];
    await_whole(&[&fleet[0], &fleet[1]]);

    let large = push("large.toml");
    // The number of a version is where its last chunk stands.
    let chunks = text.len().div_ceil(CHUNK_BYTES_MAX) as u64;
    assert_eq!(large, small + chunks);
    let all_say = |expected: &(u64, String)| {
        let said = fleet.each_ref().map(limits_of);
        said.iter().all(|said| said.as_ref() == Some(expected))
    };
    let expected = (large, text.clone());
    until("both rule by all of it", || all_say(&expected));
    let (code, shown) = run(&["show"]);
    assert!(code == Some(0) && shown.trim() == text.trim());

    // One domain of it costs one record, and nobody's text but that changes.
    let set = ["set", "wide", "--domain", "tenant-7", "--rate", "555/s"];
    let (code, said) = run(&[&set[..], &["--reason", "more"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let before = "[rate.wide.domains.\"tenant-7\"]\nrate = \"8/s\"\n";
    assert!(text.contains(before));
    let expected = (
        large + 1,
        text.replace(before, &before.replace("8/s", "555/s")),
    );
    until("both rule by the change", || all_say(&expected));

    // Whoever comes later reads the chunks and the change from the log.
    let [one, two] = fleet;
    drop(one);
    let three = start("agg-3");
    await_whole(&[&two, &three]);
    until("so does a third", || {
        limits_of(&three).as_ref() == Some(&expected)
    });
}
