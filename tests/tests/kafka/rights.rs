//! Rights that are missing for one topic: each process that needs them names topic and operation,
//! and goes on when they are granted.

use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin;

use crate::acls::{self, ALL, Acl, DESCRIBE, DESCRIBE_CONFIGS, GROUP, READ, TOPIC, WRITE};
use crate::bad::{metric, produce};
use crate::fleet::{Aggregator, await_whole, command, directory, until};

/// The principal of unauthenticated clients.
const NOBODY: &str = "ANONYMOUS";

/// Forbids one operation to everybody. A resource with an ACL allows only what ACLs allow, so the
/// other operations are allowed explicitly.
fn forbid(kafka: &LocalKafka, resource: (i8, &str), operation: i8) {
    let forbidden = Acl::of(NOBODY, resource, operation).denied();
    acls::make(
        kafka.bootstrap(),
        &[Acl::of(NOBODY, resource, ALL), forbidden],
    );
}

/// Deletes the ACL that forbids an operation.
fn allow(kafka: &LocalKafka, resource: (i8, &str), operation: i8) {
    let forbidden = Acl::of(NOBODY, resource, operation).denied();
    acls::take(kafka.bootstrap(), &[forbidden]);
}

pub fn a_missing_right_is_named_with_its_topic_and_operation(kafka: &LocalKafka) {
    for (suffix, operation, name) in [
        ("state", DESCRIBE_CONFIGS, "DescribeConfigs"),
        ("members", DESCRIBE, "Describe"),
    ] {
        let prefix = kafka.fresh_name("rights");
        let (code, output) = command(kafka, &prefix, &["topics", "create"]);
        assert_eq!(code, Some(0), "{output}");
        let topic = format!("{prefix}.{suffix}");
        forbid(kafka, (TOPIC, &topic), operation);
        until("the broker knows", || {
            command(kafka, &prefix, &["topics", "check"]).0 != Some(0)
        });
        let (code, output) = command(kafka, &prefix, &["topics", "check"]);
        assert_eq!(code, Some(77), "{output}");
        assert!(output.contains(&format!("`{topic}`: {name}: ")), "{output}");
    }
    an_aggregator_names_a_missing_right_and_resumes_with_it(kafka);
    a_group_that_may_not_be_joined_is_named(kafka);
}

fn an_aggregator_names_a_missing_right_and_resumes_with_it(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("rights"));
    // A missing right to keep dead letters is no reason to stop.
    let (code, output) = command(kafka, &prefix, &["topics", "create"]);
    assert_eq!(code, Some(0), "{output}");
    forbid(kafka, (TOPIC, &format!("{prefix}.aside")), WRITE);
    let mut one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    await_whole(&[&one]);
    produce(kafka, &format!("{prefix}.hits"), &[b"garbage".to_vec()]);
    until("it is counted", || {
        metric(&one, "tollgate_records_aside_dropped_total ") == 1
    });
    for (suffix, operation, name) in [("hits", WRITE, "Write"), ("hits", READ, "Read")] {
        let topic = format!("{prefix}.{suffix}");
        forbid(kafka, (TOPIC, &topic), operation);
        let line = one.line_with("the log accepts nothing");
        assert!(line.contains(&format!("`{topic}`: {name}: ")), "{line}");
        let ready = twin::text(one.http, "/readyz").unwrap_or_default();
        assert!(ready.contains(&topic), "{ready}");
        allow(kafka, (TOPIC, &topic), operation);
        one.line_with("the log accepts records again");
        await_whole(&[&one]);
    }
}

fn a_group_that_may_not_be_joined_is_named(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("rights"));
    let group = kafka.fresh_name("group");
    let text = std::fs::read_to_string(dir.path().join("dynamic.toml")).expect("there");
    let of_group = format!("[kafka]\ngroup = \"{group}\"\n");
    let text = text.replace("[kafka]\n", &of_group);
    std::fs::write(dir.path().join("grouped.toml"), text).expect("written");
    forbid(kafka, (GROUP, &group), READ);
    let mut one = Aggregator::configured(dir.path(), kafka, &prefix, "agg-1", "grouped.toml", None);
    one.line_with(&format!("kafka group `{group}`: Read: "));
    allow(kafka, (GROUP, &group), READ);
    await_whole(&[&one]);
}
