//! Tests of explanations, audits and exports, on logs that are written in memory: which limits count after a change,
//! which hits after they were taken back, which snapshots are of the log, and how much of a log is in memory.

mod exported;
mod forged;
mod global;
mod log;
mod recreated;
mod refused;

use log::{MemoryLog, at};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::{Hit, HitKind};
use tollgate_shared::wire::set_rows::SetRow;

const NETWORKS: &str = r#"
version = 1
rules = 2
[rate."web.ip"]
rate = "2/s"
addresses = { v4 = 32, v6 = 64 }
[rate."web.cc"]
rate = "2/s"
"#;

/// The same, but other networks limit addresses, and copies are limited in place of a rate.
const CHANGED: &str = r#"
version = 1
rules = 2
[rate."web.ip"]
rate = "2/s"
addresses = { v4 = 24, v6 = 64 }
[copies."web.cc"]
limit = 2
"#;

#[test]
fn denials_from_before_a_change_of_kind_or_prefix_are_found() {
    let mut log = MemoryLog::new(NETWORKS);
    let (address, customer) = (("web.ip", "198.51.100.7"), ("web.cc", "cc"));
    let of_address = log.hits(1_000, "alpha", address, 6);
    let of_customer = log.hits(1_000, "alpha", customer, 6);
    log.document(20_000, CHANGED);
    for (code, pair) in [(of_address, address), (of_customer, customer)] {
        let found = log.explained_code(code).expect("an explanation");
        assert!(found.denied, "{found:#?}");
        assert_eq!(found.domain.as_deref(), Some(pair.1));
        let found = log.explained(pair, Some(1_500));
        assert_eq!(found.code, Some(code.to_string()), "{found:#?}");
    }
    // What denied an address last, it was denied as itself.
    let found = log.explained(address, None);
    assert_eq!(found.code, Some(of_address.to_string()), "{found:#?}");
    // Since the change it is limited as a network, and the customer in copies.
    let of_network = log.hits(21_000, "alpha", ("web.ip", "198.51.100.0/24"), 6);
    let of_copies = log.hold(21_000, customer, 2);
    let found = log.explained(address, None);
    assert_eq!(found.code, Some(of_network.to_string()), "{found:#?}");
    for (code, pair) in [(of_network, address), (of_copies, customer)] {
        assert!(log.explained_code(code).is_ok_and(|found| found.denied));
        let found = log.explained(pair, Some(21_500));
        assert_eq!(found.code, Some(code.to_string()), "{found:#?}");
    }
}

const THREE: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "3/s"
"#;

const V1: (&str, &str) = ("api.search", "v1");

#[test]
fn a_call_is_explained_by_the_limits_of_its_instant() {
    let shadow = THREE.replace("rate = ", "shadow = true\nrate = ");
    let slower = THREE.replace("3/s", "1/s");
    let gone = THREE.replace("api.search", "api.other");
    let kill = Act::Switch {
        namespace: "api".into(),
        ignore_configured: Some(true),
        allow_unconfigured: None,
    };
    let change: [&dyn Fn(&mut MemoryLog); 5] = [
        &|log| log.document(3_000, &shadow),
        &|log| log.document(3_000, &slower),
        &|log| log.document(3_000, &gone),
        &|log| log.act(3_000, kill.clone()),
        &|log| log.act(3_000, Act::Set(row("1/s"))),
    ];
    for (index, change) in change.into_iter().enumerate() {
        let mut log = MemoryLog::new(THREE);
        log.hits(1_000, "alpha", V1, 2);
        let before = log.explained(V1, Some(1_000));
        let between = log.explained(V1, Some(2_500));
        let everybody = log.explained_everybody(V1.0, 2_500).to_string();
        change(&mut log);
        log.hits(4_000, "alpha", V1, 1);
        let after = log.explained(V1, Some(1_000));
        assert_eq!(after.to_string(), before.to_string(), "change {index}");
        assert_eq!(before.reason, "room");
        let sentence = &before.sentences[0];
        assert!(sentence.contains("2 of 3 in 1s"), "{sentence}");
        // The same of an instant without a call.
        let same = log.explained(V1, Some(2_500)).to_string();
        assert_eq!(same, between.to_string(), "change {index}");
        assert_eq!(between.reason, "no_call");
        let same = log.explained_everybody(V1.0, 2_500).to_string();
        assert_eq!(same, everybody, "change {index}");
    }
    // The other way round: it was in shadow.
    let mut log = MemoryLog::new(&shadow);
    log.hits(1_000, "alpha", V1, 2);
    log.document(3_000, THREE);
    log.hits(4_000, "alpha", V1, 1);
    assert_eq!(log.explained(V1, Some(1_000)).reason, "shadow");
    assert_eq!(log.explained(V1, Some(4_000)).reason, "room");
    // What arrived in the log after a change was ruled under the new limits.
    let mut log = MemoryLog::new(THREE);
    log.document(3_000, &shadow);
    log.hit(3_100, "alpha", V1.0, Hit::one(0, V1.1, at(2_900), 1));
    assert_eq!(log.explained(V1, Some(2_900)).reason, "shadow");
}

fn row(rate: &str) -> SetRow {
    SetRow {
        resource: V1.0.into(),
        domain: V1.1.into(),
        rate: Some(rate.into()),
        hard: None,
        limit: None,
    }
}

#[test]
fn a_ban_of_an_unlimited_pair_is_dated_by_its_call() {
    let mut log = MemoryLog::new(THREE);
    let unlimited = ("api.unknown", "mal");
    let ban = Act::Ban {
        resource: None,
        domain: unlimited.1.into(),
        until: at(120_000),
    };
    log.act(2_000, ban);
    log.hits(3_000, "alpha", unlimited, 1);
    let found = log.explained(unlimited, None);
    let denial = found.denial.as_ref().expect("a denial");
    assert_eq!(denial.cause, "banned");
    assert_eq!(denial.since_us, at(3_000).as_micros());
    assert_eq!(found.statements[0].at_us, at(3_000).as_micros());
    assert_eq!(found.excess.hits, 1);
    assert!(!log.explained(unlimited, Some(1_000)).denied, "before");
    assert!(log.explained(unlimited, Some(3_500)).denied);
    let call = log.explained(unlimited, Some(3_000));
    assert_eq!(call.reason, "within_delay", "it filled nothing");
}

const USED_UP: &str = r#"
version = 1
rules = 2
[rate."api.quota"]
quota = ["5/day"]
[rate."api.bucket"]
bucket = { rate = "1/h", burst = 5, debt = 5 }
"#;

/// The hits that used up a pair's quota or bucket, by agent.
fn used_up(log: &MemoryLog, pair: (&str, &str)) -> Vec<(String, u64)> {
    let found = log.explained(pair, None);
    let window = found.window.expect("hits");
    let agents = window.by_agent.into_iter();
    agents.map(|of| (of.agent, of.hits)).collect()
}

#[test]
fn refunded_hits_use_up_no_quota_and_no_bucket() {
    let hits = |agent: &str, n: u64| (agent.to_owned(), n);
    for resource in ["api.quota", "api.bucket"] {
        let pair = (resource, "rr");
        let mut log = MemoryLog::new(USED_UP);
        log.hits(1_000, "first", pair, 2);
        log.hits(2_000, "second", pair, 3);
        let all = vec![hits("second", 3), hits("first", 2)];
        assert_eq!(used_up(&log, pair), all, "{resource}");
        let refund = Act::Refund {
            resource: pair.0.into(),
            domain: pair.1.into(),
            hits: 3,
        };
        log.act(3_000, refund);
        assert_eq!(used_up(&log, pair), all, "{resource}: of that denial");
        log.hits(4_000, "third", pair, 3);
        let newest = vec![hits("third", 3), hits("first", 2)];
        assert_eq!(used_up(&log, pair), newest, "{resource}");
    }
}

#[test]
fn settled_hits_use_up_no_quota_and_no_bucket() {
    let hits = |agent: &str, n: u64| (agent.to_owned(), n);
    for resource in ["api.quota", "api.bucket"] {
        let pair = (resource, "rr");
        let mut log = MemoryLog::new(USED_UP);
        log.hits(1_000, "first", pair, 2);
        let estimate = Hit {
            kind: HitKind::Estimate,
            ..Hit::one(0, pair.1, at(2_000), 3)
        };
        log.hit(2_000, "second", resource, estimate);
        // It cost one in place of three.
        log.settle(3_000, pair, (2_000, 3, 1));
        log.hits(4_000, "third", pair, 2);
        let mut found = used_up(&log, pair);
        found.sort();
        let left = [hits("first", 2), hits("second", 1), hits("third", 2)];
        assert_eq!(found, left, "{resource}");
    }
}

#[test]
fn a_denial_without_an_end_is_for_ever() {
    let document = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"0/s\"\n";
    let mut log = MemoryLog::new(document);
    log.hits(1_000, "alpha", V1, 1);
    log.act(2_000, ban(Timestamp::MAX));
    let found = log.explained(V1, None);
    assert!(found.sentences[0].contains(" for ever: "), "{found}");
    let text = found.to_string();
    assert!(text.contains("until        for ever\n"), "{text}");
    assert!(
        !text.contains("never") && !text.contains("rules 1"),
        "{text}"
    );
}

fn ban(until: Timestamp) -> Act {
    Act::Ban {
        resource: Some(V1.0.into()),
        domain: V1.1.into(),
        until,
    }
}

#[test]
fn room_for_copies_is_stated_of_the_asked_instant() {
    let mut log = MemoryLog::new(CHANGED);
    log.hold(1_000, ("web.cc", "cc"), 1);
    let found = log.explained(("web.cc", "cc"), Some(1_200));
    let expected = "web.cc of cc had room at 2026-11-26T12:00:01.200000Z";
    assert_eq!(found.sentences[0], expected);
}

const HOURS: &str = r#"version = 1
rules = 2
[rate."api.window"]
rate = "100/6h"
[rate."api.quota"]
quota = ["100/month"]
[rate."api.tiers"]
tiers = [{ limit = 100, window = "6h", active = "6h" }]
[rate."api.bucket"]
bucket = { rate = "1/h", burst = 99, debt = 5 }
"#;

/// A log with hits of an hour before a snapshot, and hits after it that fill the limit.
fn filled_across_a_snapshot(pair: (&str, &str)) -> MemoryLog {
    const MINUTE: u64 = 60_000;
    let mut log = MemoryLog::new(HOURS);
    log.hits(MINUTE, "first", pair, 60);
    log.tick(60 * MINUTE);
    log.snapshot();
    log.tick(90 * MINUTE);
    log.hits(90 * MINUTE, "second", pair, 40);
    log.tick(91 * MINUTE);
    log
}

#[test]
fn hits_before_the_nearest_snapshot_are_named_if_the_log_has_them() {
    for resource in ["api.window", "api.quota", "api.tiers", "api.bucket"] {
        let log = filled_across_a_snapshot((resource, "rr"));
        let found = log.explained((resource, "rr"), Some(90 * 60_000 + 1));
        assert!(found.denied, "{found}");
        let window = found.window.as_ref().expect("hits");
        assert_eq!(window.unnamed, 0, "{resource}: {found}");
        assert!((99..=100).contains(&window.hits), "{resource}: {found}");
    }
}

#[test]
fn hits_that_the_log_does_not_have_any_more_are_stated() {
    for resource in ["api.window", "api.quota", "api.tiers", "api.bucket"] {
        let mut log = filled_across_a_snapshot((resource, "rr"));
        log.forget();
        for at in [None, Some(90 * 60_000 + 1)] {
            let found = log.explained((resource, "rr"), at);
            let window = found.window.as_ref().expect("hits");
            assert_eq!(window.hits, 40, "{resource}: {found}");
            // A copy flows into the bucket meanwhile.
            let unnamed = if resource == "api.bucket" { 59 } else { 60 };
            let says = format!(
                "{unnamed} of the {} hits that it counts are not named: the log lacks its beginning, and was read from \
                 the snapshot of 2026-11-26T13:00:00",
                unnamed + 40
            );
            assert!(found.to_string().contains(&says), "{resource}: {found}");
        }
    }
}
