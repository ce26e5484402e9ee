//! Bans of domains on copies: denied until their end, whatever is released, and holds stay.

use tollgate_engine::engine::Fate;
use tollgate_shared::holdings::Holdings;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::heartbeat::Part;
use tollgate_shared::wire::holds::HoldAction;

use super::play::{Play, RESOURCE, agent};
use super::{SANDBOX, digest, hold, release};

fn until(play: &Play, after_ms: Option<u64>) -> Timestamp {
    after_ms.map_or(Timestamp::MAX, |ms| {
        Timestamp::from_millis(play.now_ms + ms)
    })
}

fn ban(play: &mut Play, resource: Option<&str>, after_ms: Option<u64>) -> Fate {
    let until = until(play, after_ms);
    play.amend(Act::Ban {
        resource: resource.map(Into::into),
        domain: "acme".into(),
        until,
    })
}

fn unban(play: &mut Play, resource: Option<&str>) -> Fate {
    play.amend(Act::Unban {
        resource: resource.map(Into::into),
        domain: "acme".into(),
    })
}

fn reserve(domain: &str, copies: u32) -> HoldAction<'_> {
    HoldAction::Reserve {
        domain,
        copies,
        min: 1,
    }
}

#[test]
fn a_banned_domain_is_granted_nothing_and_keeps_what_it_holds() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.tick();
    play.ops(&mut web, &[(1, hold("acme", 1))]);
    ban(&mut play, Some(RESOURCE), Some(60_000));
    assert_eq!(play.output(), ["banned acme"]);
    assert_eq!(play.copies_of("acme"), 1, "what is held stays held");
    play.ops(
        &mut web,
        &[
            (2, reserve("acme", 1)),
            (3, hold("acme", 1)),
            (4, reserve("b", 1)),
        ],
    );
    let expected = [
        "web: hold 2 has 0 by acme",
        "web: hold 3 has 1, 1 too many by acme",
        "web: hold 4 has 1",
    ];
    assert_eq!(play.output(), expected, "denied already, and said once");
    play.restart();
    let part = Part {
        asked: &[3],
        ..digest(Holdings::default().with(1, 1).with(3, 1).with(4, 1))
    };
    play.heartbeat(&mut web, part);
    assert_eq!(play.output(), ["web: hold 3 has 1, 1 too many by acme"]);
    assert_eq!(play.copies_of("acme"), 2, "what is in use counts");
    play.ops(&mut web, &[(1, release(1)), (3, release(1))]);
    assert!(play.output().is_empty(), "{:?}", play.output());
    play.restart();
    play.ops(&mut web, &[(5, reserve("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 5 has 0 by acme"]);
    unban(&mut play, Some(RESOURCE));
    assert_eq!(play.output(), ["open acme"]);
    play.ops(&mut web, &[(6, reserve("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 6 has 1"]);
    play.restart();
}

#[test]
fn a_ban_ends_by_itself_without_a_statement() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.tick();
    ban(&mut play, Some(RESOURCE), Some(900));
    play.tick();
    play.ops(&mut web, &[(1, reserve("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 1 has 0 by acme"]);
    play.tick();
    assert!(play.output().is_empty(), "{:?}", play.output());
    play.ops(&mut web, &[(2, reserve("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 2 has 1"]);
    assert_eq!(play.engine.amended(), 0);
}

#[test]
fn under_a_ban_and_full_room_alone_lifts_nothing() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.tick();
    play.ops(&mut web, &[(1, hold("acme", 3))]);
    ban(&mut play, Some(RESOURCE), Some(60_000));
    assert_eq!(play.output(), ["banned acme", "denied acme at 3"]);
    play.restart();
    play.ops(&mut web, &[(1, release(1))]);
    assert_eq!(play.output(), ["banned acme"], "in place of a lift");
    // Full again under the ban; still full when the ban is lifted.
    play.ops(&mut web, &[(2, hold("acme", 1))]);
    let expected = ["denied acme at 3", "web: hold 2 has 1, 1 too many by acme"];
    assert_eq!(play.output(), expected);
    unban(&mut play, Some(RESOURCE));
    assert_eq!(play.output(), ["open acme", "denied acme at 3"]);
    play.ops(&mut web, &[(2, release(1))]);
    assert_eq!(play.output(), ["open acme"]);
}

#[test]
fn a_banned_and_full_domain_stays_banned_when_its_copies_are_not_limited_any_more() {
    for later in ["", "[rate.sandbox]\nrate = \"9/s\"\n"] {
        for restarts in [false, true] {
            let mut play = Play::of(SANDBOX);
            play.tick();
            play.ops(&mut agent("web", 1), &[(1, hold("acme", 3))]);
            ban(&mut play, Some(RESOURCE), Some(60_000));
            assert_eq!(play.output(), ["banned acme", "denied acme at 3"]);
            if restarts {
                play.restart();
            }
            play.version(later);
            assert_eq!(play.output(), ["banned acme"], "in place of a lift");
            unban(&mut play, Some(RESOURCE));
            assert_eq!(play.output(), ["open acme"]);
        }
    }
}

#[test]
fn a_banned_and_full_domain_stays_denied_when_its_resource_is_refused() {
    let mut play = Play::of(SANDBOX);
    play.tick();
    play.ops(&mut agent("web", 1), &[(1, hold("acme", 3))]);
    ban(&mut play, Some(RESOURCE), Some(60_000));
    let refused = "[namespace.\"*\"]\nallow_unconfigured = false\n";
    play.version(refused);
    assert_eq!(play.output(), ["denied acme at 0"; 2], "in place of a lift");
    play.version(SANDBOX);
    assert_eq!(play.output(), ["banned acme"]);
}

#[test]
fn a_ban_everywhere_denies_copies_of_later_resources_too() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.tick();
    ban(&mut play, None, None);
    assert_eq!(play.output(), ["banned acme"]);
    play.version(&format!("{SANDBOX}[copies.other]\nlimit = 3\n"));
    assert!(play.output().is_empty(), "{:?}", play.output());
    play.ops_on(
        &mut web,
        "other",
        &[(1, reserve("acme", 1)), (2, reserve("b", 1))],
    );
    let expected = [
        "banned acme",
        "web: hold 1 has 0 by acme",
        "web: hold 2 has 1",
    ];
    assert_eq!(play.output(), expected, "denied from its next operation");
    unban(&mut play, None);
    assert_eq!(play.output(), ["open acme", "open acme"]);
    play.ops(&mut web, &[(3, reserve("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 3 has 1"]);
}

#[test]
fn a_namespace_that_ignores_denials_ignores_bans() {
    let mut play = Play::of(SANDBOX);
    let mut web = agent("web", 1);
    play.tick();
    ban(&mut play, Some(RESOURCE), None);
    let ignoring = "[namespace.sandbox]\nignore_configured = true\n";
    play.version(&format!("{ignoring}{SANDBOX}"));
    assert_eq!(play.output(), ["open acme"]);
    play.ops(&mut web, &[(1, reserve("acme", 1))]);
    assert_eq!(play.output(), ["web: hold 1 has 1"]);
    play.version(SANDBOX);
    play.ops(&mut web, &[(2, reserve("acme", 1))]);
    assert_eq!(play.output(), ["banned acme", "web: hold 2 has 0 by acme"]);
    assert_eq!(play.copies_of("acme"), 1);
}

#[test]
fn a_lifted_ban_of_an_unknown_resource_leaves_no_trace() {
    let mut play = Play::of(&format!(
        "[namespace.\"*\"]\nallow_unconfigured = false\n{SANDBOX}"
    ));
    play.tick();
    ban(&mut play, Some(RESOURCE), Some(60_000));
    assert_eq!(play.output(), ["banned acme"]);
    unban(&mut play, Some(RESOURCE));
    assert_eq!(play.output(), ["open acme"]);
}
