//! Topics that are deleted or recreated under a running aggregator, and documents that are longer
//! than a topic accepts.

use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
use tollgate_tests::http::get;
use tollgate_tests::kafka::LocalKafka;

use crate::everywhere::ask;
use crate::fleet::{
    Aggregator, LIMITS, PARTITIONS, WITHIN, await_whole, command, directory, until,
};
use crate::log::{admin, block_on};

pub fn a_deleted_topic_is_named_and_a_recreated_one_ruled(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("anew"));
    let mut one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    await_whole(&[&one]);
    let hits = format!("{prefix}.hits");
    // Enough that the recreated topic begins below.
    until("some ticks are ruled", || {
        one.rules().values().all(|(offset, _)| 20 < *offset)
    });
    delete(kafka, &hits);
    let line = one.line_with("the log accepts nothing");
    assert!(line.contains(&format!("`{hits}`")), "{line}");
    assert!(!one.is_ready(), "and nobody is told otherwise");
    let (code, output) = command(kafka, &prefix, &["topics", "create"]);
    assert_eq!(code, Some(0), "{output}");
    one.line_with("the log accepts records again");
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

pub fn a_document_above_a_topics_bound_is_refused_with_both_lengths(kafka: &LocalKafka) {
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
    let (code, output) = push(&short, &[]);
    assert_eq!(code, Some(0), "{output}");
    // By the client's own bound.
    let bound = write(
        "bound.toml",
        "[kafka.properties]\n\"message.max.bytes\" = \"20000\"\n",
    );
    let (code, output) = push(&long, &["--config", &bound]);
    assert_eq!(code, Some(65), "{output}");
    for part in [
        &*format!("`{prefix}.limits`"),
        "a record of 40",
        "message.max.bytes",
        "at least 1048588",
        "nothing was changed",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    // By the topic's bound.
    let limits = format!("{prefix}.limits");
    let mut lower = AlterConfig::new(ResourceSpecifier::Topic(&limits));
    // Settings that are not stated are reset.
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
    let (code, output) = push(&long, &[]);
    assert_eq!(code, Some(78), "{output}");
    let both = "max.message.bytes = 20000: expected at least 1048588";
    assert!(output.contains(both), "{output}");
    let (_, output) = command(kafka, &prefix, &["limits", "list"]);
    assert_eq!(output.lines().count(), 1, "what was in force is: {output}");
}

fn delete(kafka: &LocalKafka, topic: &str) {
    let options = AdminOptions::new().operation_timeout(Some(WITHIN));
    let gone = block_on(admin(kafka).delete_topics(&[topic], &options)).expect("asked");
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
}

pub fn recreated_members_are_read_and_limits_change_nothing(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("others"));
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let mut one = start("agg-1");
    await_whole(&[&one]);
    delete(kafka, &format!("{prefix}.members"));
    let line = one.line_with("statements of other members cannot be read");
    let missing = format!("`{prefix}.members`: it does not exist;");
    assert!(line.contains(&missing), "{line}");
    make(kafka, &prefix, "members");
    let mut two = start("agg-2");
    await_whole(&[&one, &two]);
    for of in [&one, &two] {
        until("each knows where the other is", || {
            ask(of, &["top"]).0 == Some(0)
        });
    }
    let version =
        |of: &Aggregator| get(of.http, "/v1/limits").map(|limits| limits["version"].clone());
    let ruling = version(&one);
    delete(kafka, &format!("{prefix}.limits"));
    make(kafka, &prefix, "limits");
    // To an aggregator that starts now, the offsets of the new topic would be other versions.
    let other = dir.path().join("other.toml");
    std::fs::write(&other, LIMITS.replace("5/m", "6/m")).expect("written");
    let push = [
        "limits",
        "push",
        &*other.to_string_lossy(),
        "--reason",
        "test",
    ];
    let (_, output) = command(kafka, &prefix, &push);
    for of in [&mut one, &mut two] {
        let line = of.line_with("limits cannot be read any further");
        assert!(
            line.contains("they were recreated, and version 1"),
            "{line}"
        );
    }
    let then = one.rules();
    until("it is ruled on", || {
        let now = one.rules();
        then.iter()
            .all(|(index, (offset, _))| now.get(index).is_some_and(|(now, _)| offset + 5 < *now))
    });
    assert_eq!(
        (version(&one), version(&two)),
        (ruling.clone(), ruling),
        "{output}"
    );
    assert!(!one.is_ready() && !two.is_ready());
    let mut set = vec!["limits", "set", "search", "--domain", "acme"];
    set.extend(["--rate", "9/m", "--reason", "test"]);
    let (code, _, output) = ask(&one, &set);
    assert_ne!(code, Some(0));
    assert!(output.contains("they were recreated"), "{output}");
}

/// Creates a missing topic.
fn make(kafka: &LocalKafka, prefix: &str, topic: &str) {
    let (code, output) = command(kafka, prefix, &["topics", "create"]);
    assert_eq!(code, Some(0), "{output}");
    let created = format!("{prefix}.{topic}: created");
    assert!(output.contains(&created), "{output}");
}
