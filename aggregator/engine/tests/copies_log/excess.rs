//! The excess of a hold is repeated to an agent that missed the verdict.

use tollgate_engine::engine::Fate;
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::time::Span;
use tollgate_shared::wire::heartbeat::{Listed, Part};
use tollgate_shared::wire::holds::HoldAction;

use crate::play::{Play, Sending, agent};
use crate::{SANDBOX, digest, hold, listed, release, whole};

/// The answer to an agent that asks for the verdicts of its holds, which have these copies.
fn ask_for_verdicts(play: &mut Play, web: &mut Sending, holds: &[(u64, u32)]) -> Vec<String> {
    let none = Holdings::default();
    let held = holds
        .iter()
        .fold(none, |held, (number, copies)| held.with(*number, *copies));
    let part = Part {
        asked: &[1, 2, 3],
        ..digest(held)
    };
    play.heartbeat(web, part);
    play.output()
}

#[test]
fn a_lost_excess_verdict_is_repeated_while_it_is_held() {
    let mut play = Play::of(&SANDBOX.replace(
        "groups.probation",
        "groups.europe = { limit = 5, members = [\"new\"] }\ngroups.probation",
    ));
    let (mut web, mut job) = (agent("web", 1), agent("job", 1));
    play.ops(&mut job, &[(1, hold("new", 1))]);
    let taken = [hold("new", 3), hold("old", 1), hold("acme", 2)];
    play.ops(
        &mut web,
        &[1, 2, 3].into_iter().zip(taken).collect::<Vec<_>>(),
    );
    let verdicts = [
        "web: hold 1 has 3, 2 too many by group probation",
        "web: hold 2 has 1",
        "web: hold 3 has 2, 2 too many by all",
    ];
    let output = play.output().into_iter();
    let to_web = output.filter(|output| output.contains("web:"));
    assert_eq!(to_web.collect::<Vec<_>>(), verdicts);
    // Also by an engine that was restored, and under limits in which the group has another number.
    play.restart();
    play.version(&SANDBOX.replace(
        "groups.probation",
        "groups.a = { limit = 2, members = [\"b\"] }\ngroups.probation",
    ));
    play.output();
    let again = ask_for_verdicts(&mut play, &mut web, &[(1, 3), (2, 1), (3, 2)]);
    assert_eq!(again, verdicts);
    // The excess is released first.
    play.ops(&mut web, &[(1, release(1)), (3, release(1))]);
    play.restart();
    let again = ask_for_verdicts(&mut play, &mut web, &[(1, 2), (2, 1), (3, 1)]);
    assert_eq!(again[0], "web: hold 1 has 2, 1 too many by group probation");
    assert_eq!(again[2], "web: hold 3 has 1, 1 too many by all");
    play.ops(&mut web, &[(1, release(1))]);
    let again = ask_for_verdicts(&mut play, &mut web, &[(1, 1), (2, 1), (3, 1)]);
    assert_eq!(again[0], "web: hold 1 has 1");
    // A new hold under the same number is ruled anew.
    play.ops(&mut job, &[(1, release(1))]);
    play.ops(&mut web, &[(3, hold("old", 1))]);
    assert_eq!(play.output(), ["web: hold 3 has 1"]);
    let again = ask_for_verdicts(&mut play, &mut web, &[(1, 1), (2, 1), (3, 1)]);
    assert_eq!(again[2], "web: hold 3 has 1");
    play.restart();
}

#[test]
fn seized_copies_may_be_excess_when_their_agent_returns() {
    let mut play = Play::of(SANDBOX);
    let (mut web, mut job) = (agent("web", 1), agent("job", 1));
    let (to, ttl) = (TransferId(3), Span::from_secs(60));
    let stage = HoldAction::Transfer { copies: 2, to, ttl };
    play.ops(&mut web, &[(1, hold("acme", 2)), (1, stage)]);
    let seized = Listed {
        seized: Some(to),
        copies: 0,
        ..listed(5, "acme", 0, 0)
    };
    let list = [seized];
    play.heartbeat(&mut job, whole(&list));
    assert_eq!(play.output().last().unwrap(), "job: hold 5 has 2 of acme");
    (0..4).for_each(|_| assert_eq!(play.tick(), Fate::Applied));
    assert_eq!(play.total(), 0);
    // Another agent takes the copies that came back.
    play.ops(&mut web, &[(2, hold("acme", 2))]);
    let held = Holdings::default().with(5, 2);
    play.heartbeat(&mut job, digest(held));
    assert_eq!(play.output().last().unwrap(), "job: list wanted");
    play.heartbeat(&mut job, whole(&list));
    let output = play.output();
    let too_many = "job: hold 5 has 2 of acme, 1 too many by acme";
    assert!(output.iter().any(|output| output == too_many), "{output:?}");
    play.restart();
    let asked = &[5];
    play.heartbeat(
        &mut job,
        Part {
            asked,
            ..digest(held)
        },
    );
    assert_eq!(
        play.output(),
        ["job: hold 5 has 2 of acme, 1 too many by acme"]
    );
    play.restart();
}
