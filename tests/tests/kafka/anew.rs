//! Topics that are deleted or made anew under a running aggregator, and documents that are longer than a
//! topic takes.

use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::{
    Aggregator, LIMITS, PARTITIONS, WITHIN, await_whole, command, directory, until,
};
use crate::log::{admin, block_on};

pub fn a_topic_that_is_deleted_is_named_and_one_that_is_made_anew_is_ruled(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("anew"));
    let mut one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    await_whole(&[&one]);
    let hits = format!("{prefix}.hits");
    // So far that the new one begins below.
    until("some ticks are ruled", || {
        one.rules().values().all(|(offset, _)| 20 < *offset)
    });
    delete(kafka, &hits);
    let line = one.line_with("the log takes nothing");
    assert!(line.contains(&format!("`{hits}`")), "{line}");
    assert!(!one.is_ready(), "and nobody is told otherwise");
    let (code, said) = command(kafka, &prefix, &["topics", "create"]);
    assert_eq!(code, Some(0), "{said}");
    one.line_with("the log takes records again");
    until("it is ruled from its beginning on", || {
        let rules = one.rules();
        rules.len() == PARTITIONS as usize && one.is_ready()
    });
    let then = one.rules();
    until("and further", || {
        let now = one.rules();
        then.iter()
            .all(|(index, (offset, _))| now.get(index).is_some_and(|(now, _)| offset < now))
    });
}

pub fn a_document_longer_than_a_topic_takes_is_refused_with_both_lengths(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("long"));
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("written");
        dir.path().join(name).to_string_lossy().into_owned()
    };
    let short = write("short.toml", LIMITS);
    let long = write("long.toml", &format!("{LIMITS}# {}\n", "x".repeat(40_000)));
    let push = |file: &str, more: &[&str]| {
        let args = [&["limits", "push", file, "--reason", "test"], more].concat();
        command(kafka, &prefix, &args)
    };
    let (code, said) = push(&short, &[]);
    assert_eq!(code, Some(0), "{said}");
    // By the client's own bound.
    let bound = write(
        "bound.toml",
        "[kafka.properties]\n\"message.max.bytes\" = \"20000\"\n",
    );
    let (code, said) = push(&long, &["--config", &bound]);
    assert_eq!(code, Some(65), "{said}");
    for part in [
        &*format!("`{prefix}.limits`"),
        "a record of 40",
        "message.max.bytes",
        "at least 1048588",
        "nothing was changed",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // By the topic's.
    let limits = format!("{prefix}.limits");
    let mut lower = AlterConfig::new(ResourceSpecifier::Topic(&limits));
    // What is not said is reset.
    for (name, value) in [
        ("message.timestamp.type", "LogAppendTime"),
        ("unclean.leader.election.enable", "false"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("max.message.bytes", "20000"),
    ] {
        lower = lower.set(name, value);
    }
    let options = AdminOptions::new().request_timeout(Some(WITHIN));
    let altered = block_on(admin(kafka).alter_configs(&[lower], &options)).expect("asked");
    assert!(altered.iter().all(Result::is_ok), "{altered:?}");
    until("the broker knows", || {
        push(&long, &["--dry-run"]).0 == Some(78)
    });
    let (code, said) = push(&long, &[]);
    assert_eq!(code, Some(78), "{said}");
    let both = "max.message.bytes = 20000: expected at least 1048588";
    assert!(said.contains(both), "{said}");
    let (_, said) = command(kafka, &prefix, &["limits", "list"]);
    assert_eq!(said.lines().count(), 1, "what was in force is: {said}");
}

fn delete(kafka: &LocalKafka, topic: &str) {
    let options = AdminOptions::new().operation_timeout(Some(WITHIN));
    let gone = block_on(admin(kafka).delete_topics(&[topic], &options)).expect("asked");
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
}
