//! Staged copies that an operator lets go: by their id, or with all copies of a domain.

use tollgate_engine::engine::Fate;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::holds::HoldAction;

use crate::hold;
use crate::play::{Play, RESOURCE, agent};

const ONE: TransferId = TransferId(7);
const OTHER: TransferId = TransferId(8);

fn by_id(transfer: TransferId) -> Act {
    Act::ReleaseTransfer {
        resource: RESOURCE.into(),
        transfer,
    }
}

fn all_of(domain: Option<&str>, agent: Option<&str>) -> Act {
    Act::ReleaseHolds {
        resource: RESOURCE.into(),
        domain: domain.map(Into::into),
        agent: agent.map(Into::into),
    }
}

fn stage(to: TransferId) -> HoldAction<'static> {
    let ttl = Span::from_secs(86_400);
    HoldAction::Transfer { copies: 1, to, ttl }
}

/// One copy of acme is held by web and one staged by it; the same of globex by job.
fn staged() -> Play {
    let mut play = Play::of("[copies.sandbox]\nlimit = 2\nglobal = 4\n");
    let (mut web, mut job) = (agent("web", 1), agent("job", 1));
    play.ops(&mut web, &[(1, hold("acme", 2)), (1, stage(ONE))]);
    play.ops(&mut job, &[(1, hold("globex", 2)), (1, stage(OTHER))]);
    assert_eq!(play.total(), 4);
    play
}

fn released(play: &Play) -> (u64, u64) {
    let counts = &play.rulings.copies;
    (counts.ended_by_operator, counts.transfers_ended_by_operator)
}

#[test]
fn staged_copies_released_by_id_cannot_be_seized() {
    let mut play = staged();
    let act = by_id(ONE);
    assert_eq!(play.engine.holds_meant(&act), 1);
    assert_eq!(play.amend(act.clone()), Fate::Applied);
    assert_eq!(play.output(), ["open acme", "open all"]);
    assert_eq!(released(&play), (0, 1));
    assert_eq!((play.copies_of("acme"), play.total()), (1, 3));
    play.restart();
    assert_eq!(play.engine.holds_meant(&act), 0);
    let mut job = agent("job", 2);
    play.ops(&mut job, &[(1, HoldAction::Seize { from: ONE })]);
    assert_eq!(
        play.output(),
        ["job: hold 1 has 0, refused: unknown transfer"]
    );
    // The hold from which they came is unchanged.
    let mut web = agent("web", 1);
    web.sequence = 9;
    play.ops(&mut web, &[(1, crate::release(1))]);
    assert_eq!(play.copies_of("acme"), 0);
}

#[test]
fn releasing_unstaged_copies_changes_nothing() {
    let mut play = staged();
    let elsewhere = Act::ReleaseTransfer {
        resource: "other".into(),
        transfer: ONE,
    };
    for act in [by_id(TransferId(9)), elsewhere] {
        assert_eq!(play.engine.holds_meant(&act), 0);
        play.amend(act);
        assert!(play.output().is_empty());
        assert_eq!((released(&play), play.total()), ((0, 0), 4));
    }
}

#[test]
fn clearing_a_domain_clears_its_staged_copies() {
    let mut play = staged();
    let act = all_of(Some("acme"), None);
    assert_eq!(play.engine.holds_meant(&act), 2);
    play.amend(act);
    let expected = [
        "open acme",
        "open all",
        "web: hold 1 has 0, ended by an operator",
    ];
    assert_eq!(play.output(), expected);
    assert_eq!(released(&play), (1, 1));
    assert_eq!((play.copies_of("acme"), play.copies_of("globex")), (0, 2));
    play.restart();
}

#[test]
fn clearing_an_agent_leaves_staged_copies() {
    for domain in [Some("acme"), None] {
        let mut play = staged();
        let act = all_of(domain, Some("web"));
        assert_eq!(play.engine.holds_meant(&act), 1);
        play.amend(act);
        assert_eq!(released(&play), (1, 0));
        assert_eq!((play.copies_of("acme"), play.total()), (1, 3));
    }
}

#[test]
fn clearing_a_resource_clears_every_hold() {
    let mut play = staged();
    assert_eq!(play.engine.holds_meant(&all_of(None, None)), 4);
    play.amend(all_of(None, None));
    assert_eq!((released(&play), play.total()), ((2, 2), 0));
}

#[test]
fn lifts_of_staged_copies_follow_those_of_holds() {
    let mut play = Play::of("[copies.sandbox]\nlimit = 1\n");
    let mut web = agent("web", 1);
    play.ops(&mut web, &[(1, hold("acme", 1)), (2, hold("globex", 1))]);
    play.ops(
        &mut web,
        &[(3, hold("initech", 1)), (3, stage(ONE)), (2, stage(OTHER))],
    );
    play.amend(all_of(None, None));
    let said = play.output();
    assert_eq!(said[0], "open acme");
    assert!(said.contains(&"open globex".to_owned()) && said.contains(&"open initech".to_owned()));
    let positions = play.rulings.statements.iter();
    let positions: Vec<u32> = positions
        .map(|said| said.statement.position.entry)
        .collect();
    assert_eq!(positions.len(), 3);
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
}
