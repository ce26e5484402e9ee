//! Rulings on a log with hold operations and heartbeats: the clauses on copies and on the liveness
//! of agents, each played through records.

mod bans;
mod elsewhere;
mod excess;
#[path = "../support/known.rs"]
mod known;
mod pauses;
mod play;
mod random;
mod releases;
mod restored;

use play::{agent, listed, whole};
use tollgate_engine::engine::{AgentChange, Fate};
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::time::Span;
use tollgate_shared::wire::heartbeat::{HeartbeatHead, Holds, Listed, Part};
use tollgate_shared::wire::holds::HoldAction;

use play::Play;

const SANDBOX: &str = "[copies.sandbox]\nlimit = 3\nglobal = 5\n\
    groups.probation = { limit = 2, members = [\"new\"] }\n";

const fn hold(domain: &str, copies: u32) -> HoldAction<'_> {
    HoldAction::Hold { domain, copies }
}

const fn release(copies: u32) -> HoldAction<'static> {
    HoldAction::Release { copies }
}

fn digest(holdings: Holdings) -> Part<'static> {
    Part {
        resource: 0,
        awaiting: &[],
        asked: &[],
        holds: Holds::Digest(holdings),
    }
}

#[test]
fn a_hold_is_confirmed_or_refused_and_a_release_lifts() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 2))]);
    assert_eq!(play.output(), ["web: hold 1 has 2"]);
    play.ops(&mut web, &[(2, hold("acme", 2))]);
    let full = ["denied acme at 3", "web: hold 2 has 2, 1 too many by acme"];
    assert_eq!(play.output(), full);
    play.ops(&mut web, &[(3, hold("new", 3))]);
    let group = [
        "denied new at 3",
        "denied group probation at 2",
        "denied all at 5",
        "web: hold 3 has 3, 2 too many by all",
    ];
    assert_eq!(play.output(), group);
    // Denied already: the statement is not repeated.
    play.ops(&mut web, &[(4, hold("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 4 has 1, 1 too many by acme"]);
    play.ops(
        &mut web,
        &[(3, release(3)), (1, release(2)), (2, release(1))],
    );
    let lifted = ["open new", "open group probation", "open all", "open acme"];
    assert_eq!(play.output(), lifted);
    assert_eq!(play.copies_of("acme"), 2);
    let positions: Vec<u32> = play
        .rulings
        .statements
        .iter()
        .map(|s| s.statement.position.entry)
        .collect();
    assert!(positions.is_sorted(), "{positions:?}");
    play.restart();
}

#[test]
fn a_strict_reserve_never_gets_more_than_there_is_room_for() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    let reserve = |copies, min| HoldAction::Reserve {
        domain: "acme",
        copies,
        min,
    };
    play.ops(
        &mut web,
        &[(1, reserve(2, 2)), (2, reserve(2, 1)), (3, reserve(1, 1))],
    );
    let expected = [
        "denied acme at 3",
        "web: hold 1 has 2",
        "web: hold 2 has 1 by acme",
        "web: hold 3 has 0 by acme",
    ];
    assert_eq!(play.output(), expected);
    // The deadline of 2 has passed: the agent cancels what it was granted, and a second cancel does
    // no harm.
    play.ops(
        &mut web,
        &[
            (2, HoldAction::Cancel),
            (2, HoldAction::Cancel),
            (9, HoldAction::Cancel),
        ],
    );
    assert_eq!(play.output(), ["open acme"]);
    assert_eq!(play.total(), 2);
}

#[test]
fn an_impossible_operation_is_refused_and_changes_nothing() {
    let mut play = Play::of(SANDBOX);
    let (mut web, mut job) = (agent("web", 1), agent("job", 1));
    play.ops(&mut web, &[(1, hold("acme", 2))]);
    let before = play.engine.snapshot();
    let ttl = Span::from_secs(1);
    let to = TransferId(7);
    let transfer = |copies| HoldAction::Transfer { copies, to, ttl };
    play.ops(
        &mut web,
        &[(1, release(3)), (2, release(1)), (1, transfer(3))],
    );
    let expected = [
        "web: hold 1 has 2, refused: more copies than it has",
        "web: hold 2 has 0, refused: unknown hold",
        "web: hold 1 has 2, refused: more copies than it has",
    ];
    assert_eq!(play.output(), expected);
    assert_eq!(play.rulings.hold_counts[0].counts.refused_ops, 3);
    play.ops(
        &mut job,
        &[(1, release(1)), (1, HoldAction::Seize { from: to })],
    );
    let expected = [
        "job: hold 1 has 0, refused: unknown hold",
        "job: hold 1 has 0, refused: unknown transfer",
    ];
    assert_eq!(play.output(), expected);
    assert_eq!(play.total(), 2);
    assert_ne!(play.engine.snapshot(), before, "sequences are remembered");
}

#[test]
fn staged_copies_count_until_they_are_seized_or_expire() {
    let mut play = Play::of(SANDBOX);
    let (mut web, mut job) = (agent("web", 1), agent("job", 1));
    let (one, two) = (TransferId(7), TransferId(8));
    let ttl = Span::from_secs(1);
    let stage = |to| HoldAction::Transfer { copies: 1, to, ttl };
    play.ops(
        &mut web,
        &[(1, hold("acme", 2)), (1, stage(one)), (1, stage(two))],
    );
    assert_eq!(play.copies_of("acme"), 2);
    play.restart();
    play.ops(
        &mut job,
        &[
            (1, HoldAction::Seize { from: one }),
            (2, HoldAction::Seize { from: one }),
        ],
    );
    let expected = [
        "job: hold 1 has 1 of acme",
        "job: hold 2 has 0, refused: unknown transfer",
    ];
    assert_eq!(play.output(), expected);
    play.tick();
    assert_eq!(play.copies_of("acme"), 2);
    play.tick();
    assert_eq!(play.copies_of("acme"), 1, "the other was let go");
}

#[test]
fn a_silent_agent_is_gone_and_returns_with_its_holds() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 2)), (2, hold("acme", 1))]);
    for _ in 0..3 {
        play.tick();
        assert_eq!((play.total(), play.rulings.agents.len()), (3, 0));
    }
    play.tick();
    assert_eq!(play.output(), ["open acme"]);
    assert_eq!(
        play.rulings.agents[0].change,
        AgentChange::Gone { copies: 3 }
    );
    assert_eq!(play.total(), 0);
    play.restart();
    // Another agent takes the copies that came back; the one that was cut off returns, and its
    // copies are excess.
    let mut job = agent("job", 1);
    play.ops(&mut job, &[(1, hold("acme", 2))]);
    let held = Holdings::default().with(1, 2).with(2, 1);
    play.heartbeat(&mut web, digest(held));
    assert_eq!(play.output(), ["web: list wanted"]);
    assert_eq!(play.rulings.agents[0].change, AgentChange::Returned);
    let list = [
        listed(1, "acme", 2, play.now_ms - 2_000),
        listed(2, "acme", 1, play.now_ms - 2_000),
    ];
    play.heartbeat(&mut web, whole(&list));
    let expected = [
        "denied acme at 3",
        "denied all at 5",
        "web: hold 1 has 2, 1 too many by acme",
        "web: hold 2 has 1, 1 too many by acme",
    ];
    assert_eq!(play.output(), expected);
    assert_eq!(play.total(), 5);
    play.heartbeat(&mut web, digest(held));
    assert!(play.output().is_empty());
}

#[test]
fn an_agent_that_returns_is_asked_at_once_what_it_holds() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 2))]);
    (0..4).for_each(|_| assert_eq!(play.tick(), Fate::Applied));
    play.ops(&mut web, &[(2, hold("acme", 1))]);
    let expected = ["web: list wanted", "web: hold 2 has 1"];
    assert_eq!(play.output(), expected);
    assert_eq!(play.total(), 1);
}

#[test]
fn a_successor_ends_its_old_epoch_at_once_and_for_good() {
    let mut play = Play::of(SANDBOX);
    let (mut old, mut new) = (agent("web", 1), agent("web", 2));
    play.ops(&mut old, &[(1, hold("acme", 3))]);
    let head = HeartbeatHead {
        replaces: Some(1),
        ..HeartbeatHead::default()
    };
    let heartbeat = play.heartbeat_bytes(&mut new, head, &[]);
    assert_eq!(play.apply(&heartbeat), Fate::Applied);
    assert_eq!(play.output(), ["open acme"]);
    assert_eq!(
        play.rulings.agents[0].change,
        AgentChange::Over { copies: 3 }
    );
    play.restart();
    let fate = play.ops(&mut old, &[(2, hold("acme", 1))]);
    assert_eq!(fate, Fate::EpochOver { entries: 1 });
    assert_eq!(
        play.output(),
        ["web: hold 2 has 0, refused: the agent's epoch is over"]
    );
    let list = [listed(1, "acme", 3, play.now_ms)];
    play.heartbeat(&mut old, whole(&list));
    assert_eq!(
        play.output(),
        ["web: hold 1 has 0, refused: the agent's epoch is over"]
    );
    assert_eq!(play.total(), 0);
    // Another name cannot end it, and an epoch does not end itself by naming itself.
    let mut job = agent("job", 3);
    play.ops(&mut new, &[(1, hold("acme", 1))]);
    let head = HeartbeatHead {
        replaces: Some(2),
        ..HeartbeatHead::default()
    };
    let heartbeat = play.heartbeat_bytes(&mut job, head, &[]);
    play.apply(&heartbeat);
    let own = HeartbeatHead { more: true, ..head };
    let heartbeat = play.heartbeat_bytes(&mut new, own, &[]);
    play.apply(&heartbeat);
    assert_eq!(play.total(), 1);
}

#[test]
fn a_graceful_stop_releases_everything() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    let stage = HoldAction::Transfer {
        copies: 1,
        to: TransferId(1),
        ttl: Span::from_secs(9),
    };
    play.ops(&mut web, &[(1, hold("acme", 3)), (1, stage)]);
    let head = HeartbeatHead {
        last: true,
        ..HeartbeatHead::default()
    };
    let heartbeat = play.heartbeat_bytes(&mut web, head, &[]);
    play.apply(&heartbeat);
    assert_eq!(play.output(), ["open acme"]);
    assert_eq!(play.total(), 1, "what is staged is nobody's");
}

#[test]
fn operations_and_heartbeats_apply_in_rising_sequence_only() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    let first = play.ops_bytes(&mut web, &[(1, hold("acme", 2))]);
    let second = play.ops_bytes(&mut web, &[(1, release(2))]);
    assert_eq!(play.apply(&second), Fate::Applied);
    assert_eq!(play.apply(&second), Fate::Duplicate { entries: 1 });
    assert_eq!(play.apply(&first), Fate::Overtaken { entries: 1 });
    assert_eq!(play.total(), 0, "a release is not followed by its hold");
}

#[test]
fn a_list_or_a_heartbeat_heals_a_lost_release() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 1)), (2, hold("acme", 1))]);
    let one = [listed(2, "acme", 1, play.now_ms)];
    play.heartbeat(&mut web, whole(&one));
    assert_eq!(play.total(), 1);
    let more = HeartbeatHead {
        more: true,
        ..HeartbeatHead::default()
    };
    let heartbeat = play.heartbeat_bytes(&mut web, more, &[]);
    play.apply(&heartbeat);
    assert_eq!(play.total(), 1, "there is more to come");
    let heartbeat = play.heartbeat_bytes(&mut web, HeartbeatHead::default(), &[]);
    play.apply(&heartbeat);
    assert_eq!(play.total(), 0);
}

#[test]
fn a_list_of_some_numbers_leaves_other_holds_unchanged() {
    let mut play = Play::of("[copies.sandbox]\nlimit = 100\n");
    let mut web = agent("web", 1);
    let ops: Vec<(u64, HoldAction<'_>)> = (1..=6).map(|number| (number, hold("acme", 1))).collect();
    play.ops(&mut web, &ops);
    let two = [listed(2, "acme", 1, play.now_ms)];
    let part = Part {
        holds: Holds::List {
            from: 1,
            upto: 3,
            listed: &two,
        },
        ..whole(&[])
    };
    play.heartbeat(&mut web, part);
    assert_eq!(play.total(), 4);
}

#[test]
fn a_heartbeat_gets_lost_verdicts_repeated() {
    let mut play = Play::of(SANDBOX);
    let (mut web, mut job) = (agent("web", 1), agent("job", 1));
    let reserve = HoldAction::Reserve {
        domain: "acme",
        copies: 2,
        min: 1,
    };
    let to = TransferId(3);
    let ttl = Span::from_secs(60);
    let stage = HoldAction::Transfer { copies: 1, to, ttl };
    play.ops(&mut job, &[(1, hold("acme", 1)), (1, stage)]);
    play.ops(
        &mut web,
        &[
            (1, reserve),
            (2, HoldAction::Seize { from: to }),
            (3, hold("new", 1)),
        ],
    );
    let in_use = [listed(3, "new", 1, play.now_ms)];
    let part = Part {
        awaiting: &[1, 2, 8],
        asked: &[3],
        ..whole(&in_use)
    };
    play.heartbeat(&mut web, part);
    let expected = [
        "web: hold 1 has 2",
        "web: hold 2 has 1 of acme",
        "web: hold 8 has 0",
        "web: hold 3 has 1",
    ];
    assert_eq!(play.output(), expected);
    let part = Part {
        awaiting: &[1, 2],
        ..digest(Holdings::default().with(3, 1))
    };
    play.heartbeat(&mut web, part);
    assert_eq!(play.output(), expected[..2]);
}

#[test]
fn a_heartbeat_claims_copies_whose_seize_was_lost() {
    let mut play = Play::of(SANDBOX);
    let (mut web, mut job) = (agent("web", 1), agent("job", 1));
    let to = TransferId(3);
    let ttl = Span::from_secs(60);
    let stage = HoldAction::Transfer { copies: 2, to, ttl };
    play.ops(&mut web, &[(1, hold("acme", 2)), (1, stage)]);
    let seized = |number, from| Listed {
        seized: Some(TransferId(from)),
        copies: 0,
        ..listed(number, "acme", 0, 0)
    };
    let list = [seized(5, 3), seized(6, 4)];
    play.heartbeat(&mut job, whole(&list));
    let expected = [
        "job: hold 5 has 2 of acme",
        "job: hold 6 has 0, refused: unknown transfer",
    ];
    assert_eq!(play.output(), expected);
    assert_eq!(play.total(), 2);
}

#[test]
fn a_hold_that_grew_too_old_ends_and_stays_so() {
    let mut play = Play::of("[copies.sandbox]\nlimit = 1\nmax_age = \"2s\"\n");
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 1))]);
    let start = play.now_ms;
    let list = [listed(1, "acme", 1, start)];
    for _ in 0..3 {
        play.tick();
        play.heartbeat(&mut web, whole(&list));
        assert!(play.output().is_empty());
    }
    play.tick();
    assert_eq!(
        play.output(),
        ["open acme", "web: hold 1 has 0, ended at its greatest age"].map(str::to_owned)
    );
    play.restart();
    play.heartbeat(&mut web, whole(&list));
    assert_eq!(play.output(), ["web: hold 1 has 0, ended earlier"]);
    play.ops(&mut web, &[(1, hold("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 1 has 0, ended earlier"]);
    assert_eq!(play.total(), 0);
}

#[test]
fn a_version_lifts_or_restates_denials_and_starts_none() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 3)), (2, hold("globex", 1))]);
    assert_eq!(play.output()[0], "denied acme at 3");
    play.version("[copies.sandbox]\nlimit = 2\n");
    assert_eq!(play.output(), ["denied acme at 2"]);
    play.version("[copies.sandbox]\nlimit = 2\n[rate.other]\nrate = \"1/s\"\n");
    assert!(play.output().is_empty(), "nothing has changed");
    play.version("[copies.sandbox]\nlimit = 1\ndomains = { acme = 9 }\n");
    assert_eq!(
        play.output(),
        ["open acme"],
        "globex is full, and denied from its next entry on"
    );
    play.ops(&mut web, &[(3, hold("globex", 1))]);
    assert_eq!(play.output()[0], "denied globex at 1");
    play.version("[namespace.\"*\"]\nignore_configured = true\n[copies.sandbox]\nlimit = 1\n");
    assert_eq!(play.output(), ["open globex"]);
    play.restart();
    play.ops(&mut web, &[(4, hold("globex", 1))]);
    assert_eq!(play.output(), ["web: hold 4 has 1, 1 too many by globex"]);
}

#[test]
fn two_agents_of_one_name_are_noticed_and_a_restart_is_not() {
    let mut play = Play::of(SANDBOX);
    let (mut one, mut other) = (agent("web", 1), agent("web", 2));
    let twins = |play: &Play| {
        let news = play.rulings.agents.iter();
        news.filter(|news| news.change == AgentChange::Twin).count()
    };
    play.heartbeat(&mut one, digest(Holdings::default()));
    for _ in 0..3 {
        play.tick();
        play.heartbeat(&mut other, digest(Holdings::default()));
        assert_eq!(twins(&play), 0, "the first has stopped");
    }
    let mut found = 0;
    for _ in 0..3 {
        play.tick();
        play.heartbeat(&mut one, digest(Holdings::default()));
        found += twins(&play);
        play.heartbeat(&mut other, digest(Holdings::default()));
        found += twins(&play);
    }
    assert!(1 < found, "{found}");
}
