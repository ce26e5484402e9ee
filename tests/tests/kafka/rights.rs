//! Rights that are missing for one topic: whoever needs them names topic and operation, and goes on when
//! they are given.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin;

use crate::bad::{metric, produce};
use crate::fleet::{Aggregator, WITHIN, await_whole, command, directory, until};

/// Operations by their numbers in Kafka's protocol.
const ALL: i8 = 2;
const READ: i8 = 3;
const WRITE: i8 = 4;
const DESCRIBE: i8 = 8;
const DESCRIBE_CONFIGS: i8 = 10;

const TOPIC: i8 = 2;
const GROUP: i8 = 3;

const DENY: i8 = 2;
const ALLOW: i8 = 3;

/// What an ACL is about: the kind of thing, and its name.
type Resource<'a> = (i8, &'a str);

/// Forbids one operation to everybody. What has an ACL is closed but for what ACLs allow, so the others
/// are allowed.
fn forbid(kafka: &LocalKafka, (kind, name): Resource<'_>, operation: i8) {
    let mut request = header(30, 2);
    for (operation, permission) in [(ALL, ALLOW), (operation, DENY)] {
        request.push(kind as u8);
        text(&mut request, name);
        request.push(3); // this name alone
        text(&mut request, "User:ANONYMOUS");
        text(&mut request, "*");
        request.extend([operation as u8, permission as u8]);
    }
    let answer = ask(kafka, &request);
    // The correlation, how long it was held back, how many answers; then each with its error.
    assert_eq!(answer[8..12], 2i32.to_be_bytes());
    assert_eq!(answer[12..14], [0; 2], "{answer:?}");
}

/// Takes back what forbids an operation.
fn allow(kafka: &LocalKafka, (kind, name): Resource<'_>, operation: i8) {
    let mut request = header(31, 1);
    request.push(kind as u8);
    text(&mut request, name);
    request.push(3);
    text(&mut request, "User:ANONYMOUS");
    text(&mut request, "*");
    request.extend([operation as u8, DENY as u8]);
    let answer = ask(kafka, &request);
    assert_eq!(answer[8..12], 1i32.to_be_bytes());
    assert_eq!(answer[12..14], [0; 2], "{answer:?}");
}

/// A request of Kafka's protocol, version 1, with so many elements in its only array.
fn header(key: i16, elements: i32) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(key.to_be_bytes());
    request.extend(1i16.to_be_bytes());
    request.extend(7i32.to_be_bytes());
    text(&mut request, "tollgate");
    request.extend(elements.to_be_bytes());
    request
}

fn text(request: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("short");
    request.extend(length.to_be_bytes());
    request.extend(text.as_bytes());
}

/// The answer, behind its length.
fn ask(kafka: &LocalKafka, request: &[u8]) -> Vec<u8> {
    let mut broker = TcpStream::connect(kafka.bootstrap()).expect("connects");
    broker.set_read_timeout(Some(WITHIN)).expect("set");
    let length = u32::try_from(request.len()).expect("short");
    broker.write_all(&length.to_be_bytes()).expect("sent");
    broker.write_all(request).expect("sent");
    let mut length = [0; 4];
    broker.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    broker.read_exact(&mut answer).expect("an answer");
    answer
}

pub fn a_right_that_is_missing_is_named_with_its_topic_and_operation(kafka: &LocalKafka) {
    for (word, operation, name) in [
        ("state", DESCRIBE_CONFIGS, "DescribeConfigs"),
        ("members", DESCRIBE, "Describe"),
    ] {
        let prefix = kafka.fresh_name("rights");
        let (code, said) = command(kafka, &prefix, &["topics", "create"]);
        assert_eq!(code, Some(0), "{said}");
        let topic = format!("{prefix}.{word}");
        forbid(kafka, (TOPIC, &topic), operation);
        until("the broker knows", || {
            command(kafka, &prefix, &["topics", "check"]).0 != Some(0)
        });
        let (code, said) = command(kafka, &prefix, &["topics", "check"]);
        assert_eq!(code, Some(77), "{said}");
        assert!(said.contains(&format!("`{topic}`: {name}: ")), "{said}");
    }
    an_aggregator_names_what_it_may_not_and_goes_on_when_it_may(kafka);
    a_group_that_may_not_be_joined_is_named(kafka);
}

fn an_aggregator_names_what_it_may_not_and_goes_on_when_it_may(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("rights"));
    // Not to be allowed to keep garbage aside is no reason to stop.
    let (code, said) = command(kafka, &prefix, &["topics", "create"]);
    assert_eq!(code, Some(0), "{said}");
    forbid(kafka, (TOPIC, &format!("{prefix}.aside")), WRITE);
    let mut one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    await_whole(&[&one]);
    produce(kafka, &format!("{prefix}.hits"), &[b"garbage".to_vec()]);
    until("it is counted", || {
        metric(&one, "tollgate_records_aside_dropped_total ") == 1
    });
    for (word, operation, name) in [("hits", WRITE, "Write"), ("hits", READ, "Read")] {
        let topic = format!("{prefix}.{word}");
        forbid(kafka, (TOPIC, &topic), operation);
        let line = one.line_with("the log takes nothing");
        assert!(line.contains(&format!("`{topic}`: {name}: ")), "{line}");
        let ready = twin::text(one.http, "/readyz").unwrap_or_default();
        assert!(ready.contains(&topic), "{ready}");
        allow(kafka, (TOPIC, &topic), operation);
        one.line_with("the log takes records again");
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
