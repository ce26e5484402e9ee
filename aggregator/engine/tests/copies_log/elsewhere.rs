//! Verdicts on copies that are not counted here: of resources that no limits limit by copies, and of
//! resources that another partition rules.

use tollgate_engine::engine::{Engine, Rulings};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::holds::HoldAction;
use tollgate_shared::wire::record::Record;

use crate::play::{Play, RESOURCE, Sending, agent, listed, whole};
use crate::{SANDBOX, hold, release};
use tollgate_shared::holdings::TransferId;
use tollgate_shared::wire::heartbeat::{HeartbeatHead, Part};

#[test]
fn copies_of_unlimited_resources_are_not_kept() {
    let reserve = HoldAction::Reserve {
        domain: "acme",
        copies: 9,
        min: 1,
    };
    let mut play = Play::of("");
    let mut web = agent("web", 1);
    play.ops(
        &mut web,
        &[(1, hold("acme", 4)), (2, reserve), (1, release(4))],
    );
    let expected = ["web: hold 1 has 4", "web: hold 2 has 9"];
    assert_eq!(play.output(), expected);
    play.version("[namespace.\"*\"]\nallow_unconfigured = false\n");
    play.ops(&mut web, &[(3, hold("acme", 4))]);
    assert_eq!(
        play.output(),
        ["web: hold 3 has 0, refused: the resource is not configured"]
    );
    assert_eq!(play.engine.copies().count(), 0);
}

#[test]
fn copies_count_on_while_nothing_limits_their_resource() {
    let limited = "[copies.sandbox]\nlimit = 2\n";
    let mut play = Play::of(limited);
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 2))]);
    assert_eq!(play.output()[0], "denied acme at 2");
    play.version("");
    assert_eq!(play.output(), ["open acme"]);
    play.ops(&mut web, &[(2, hold("acme", 3))]);
    assert_eq!(play.output(), ["web: hold 2 has 3"], "none too many");
    play.tick();
    play.restart();
    assert_eq!(play.total(), 5);
    // What a later version limits counts at once.
    play.version(limited);
    let reserve = HoldAction::Reserve {
        domain: "acme",
        copies: 1,
        min: 1,
    };
    play.ops(&mut web, &[(3, reserve)]);
    assert_eq!((play.total(), play.copies_of("acme")), (5, 5));
    play.version("");
    play.ops(&mut web, &[(1, release(2)), (2, release(3))]);
    assert_eq!((play.total(), play.engine.copies().count()), (0, 1));
    play.tick();
    assert_eq!(play.engine.copies().count(), 0, "nothing is left to count");
}

#[test]
fn what_is_held_counts_on_where_unnamed_resources_are_refused() {
    let limited = "[copies.sandbox]\nlimit = 2\n";
    let mut play = Play::of(limited);
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 1)), (2, hold("acme", 1))]);
    play.version("[namespace.\"*\"]\nallow_unconfigured = false\n");
    play.ops(&mut web, &[(3, hold("acme", 1)), (2, release(1))]);
    let expected = ["web: hold 3 has 0, refused: the resource is not configured"];
    assert_eq!(play.output(), expected);
    let list = [listed(1, "acme", 1, play.now_ms)];
    play.heartbeat(&mut web, whole(&list));
    play.tick();
    play.restart();
    assert_eq!(play.total(), 1);
    play.version(limited);
    play.ops(&mut web, &[(4, hold("acme", 1))]);
    assert_eq!(play.total(), 2);
    play.version("[namespace.\"*\"]\nallow_unconfigured = false\n");
    play.ops(&mut web, &[(1, release(1)), (4, release(1))]);
    play.tick();
    assert_eq!(play.engine.copies().count(), 0);
}

#[test]
fn a_lost_verdict_on_uncounted_copies_is_repeated_on_request() {
    let reserve = HoldAction::Reserve {
        domain: "acme",
        copies: 9,
        min: 1,
    };
    let seize = HoldAction::Seize {
        from: TransferId(3),
    };
    let mut play = Play::of("");
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 4)), (2, reserve), (3, seize)]);
    let in_use = [listed(1, "acme", 4, play.now_ms)];
    let question = Part {
        awaiting: &[2, 3],
        asked: &[1],
        ..whole(&in_use)
    };
    play.heartbeat(&mut web, question);
    let expected = [
        "web: hold 2 has 4294967295",
        "web: hold 3 has 4294967295",
        "web: hold 1 has 4294967295",
    ];
    assert_eq!(play.output(), expected, "as many as are asked for");
    let positions: Vec<_> = play
        .rulings
        .verdicts
        .iter()
        .map(|due| due.position)
        .collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    play.restart();
    play.heartbeat(&mut web, whole(&in_use));
    assert!(play.output().is_empty(), "nobody asked");
    play.version("[namespace.\"*\"]\nallow_unconfigured = false\n");
    play.heartbeat(&mut web, question);
    let refused = [
        "web: hold 2 has 0, refused: the resource is not configured",
        "web: hold 3 has 0, refused: the resource is not configured",
        "web: hold 1 has 0, refused: the resource is not configured",
    ];
    assert_eq!(play.output(), refused);
    assert_eq!(play.engine.copies().count(), 0);
}

#[test]
fn operations_for_another_partition_are_refused_with_that_cause() {
    let play = Play::of(SANDBOX);
    let mut web: Sending = agent("web", 1);
    let bytes = play.ops_bytes(&mut web, &[(1, hold("acme", 1))]);
    let refused = "web: hold 1 has 0, refused: the resource belongs to another partition";
    assert_eq!(said_elsewhere(play, &bytes), [refused]);
}

#[test]
fn a_question_about_another_partitions_resource_is_answered() {
    let play = Play::of(SANDBOX);
    let mut web: Sending = agent("web", 1);
    let in_use = [listed(1, "acme", 1, play.now_ms)];
    let question = Part {
        asked: &[1],
        ..whole(&in_use)
    };
    let bytes = play.heartbeat_bytes(&mut web, HeartbeatHead::default(), &[question]);
    let refused = "web: hold 1 has 0, refused: the resource belongs to another partition";
    assert_eq!(said_elsewhere(play, &bytes), [refused]);
}

/// The rulings on a record by a partition to which the resource does not belong.
fn said_elsewhere(mut play: Play, bytes: &[u8]) -> Vec<String> {
    let home = partition_of_resource(RESOURCE, 7);
    let mut elsewhere = Engine::new((home + 1) % 7, 7);
    let mut rulings = Rulings::new();
    let record = Record::decode(bytes).expect("a record");
    // A version first, so that the resource is configured.
    let (&version, _) = play.versions.iter().next().expect("a version");
    let activation = tollgate_shared::wire::record::LimitsActivation {
        version,
        digest: [0; 32],
    };
    let at = Timestamp::from_millis(play.now_ms);
    elsewhere.apply(
        0,
        at,
        &Record::LimitsActivation(activation),
        &play.versions,
        &mut rulings,
    );
    elsewhere.apply(1, at, &record, &play.versions, &mut rulings);
    play.rulings = rulings;
    play.output()
}
