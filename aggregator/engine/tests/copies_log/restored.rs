//! Engines that were restored, and frozen ones that are written while the engine goes on.

use tollgate_engine::engine::Engine;
use tollgate_shared::wire::holds::HoldAction;

use crate::play::{Play, agent};
use crate::{hold, release};

/// Enough for several chunks of every table.
const HOLDS: u64 = 3_000;

#[test]
fn a_frozen_engine_keeps_its_holds_while_the_engine_goes_on() {
    let mut play = Play::of("[copies.sandbox]\nlimit = 2\n");
    let mut web = agent("web", 1);
    let names: Vec<String> = (0..HOLDS / 3).map(|n| format!("domain-{n}")).collect();
    let taken: Vec<(u64, HoldAction<'_>)> = (1..=HOLDS)
        .zip(names.iter().cycle().map(|name| hold(name, 1)))
        .collect();
    play.ops(&mut web, &taken);
    let before = (play.engine.digest(), play.total());
    let frozen = play.engine.freeze();
    // Holds end and others begin, of new domains, in the slots that came free.
    let others: Vec<String> = (1..=HOLDS).map(|n| format!("other-{n}")).collect();
    let changed: Vec<(u64, HoldAction<'_>)> = (1..=HOLDS)
        .zip(&others)
        .step_by(2)
        .flat_map(|(number, name)| [(number, release(1)), (HOLDS + number, hold(name, 2))])
        .collect();
    play.ops(&mut web, &changed);
    assert_ne!((play.engine.digest(), play.total()), before);

    let mut chunks = Vec::new();
    frozen.write(|chunk| chunks.push(chunk));
    let restored = Engine::restore(0, 1, &chunks, &play.versions);
    let restored = restored.unwrap_or_else(|fault| panic!("{fault}"));
    let total: u64 = restored.copies().map(|(_, of)| of.total().copies).sum();
    assert_eq!((restored.digest(), total), before);
    let miscounts = restored.copies().map(|(_, of)| of.audit());
    assert_eq!(miscounts.collect::<Result<Vec<()>, _>>(), Ok(vec![()]));
}

/// The engine's statements and verdicts, with their log positions.
fn positions(play: &Play) -> Vec<(String, u32)> {
    let statements = play.rulings.statements.iter();
    let verdicts = play.rulings.verdicts.iter();
    let said = statements.map(|said| said.statement.position.entry);
    play.output()
        .into_iter()
        .zip(said.chain(verdicts.map(|due| due.position.entry)))
        .collect()
}

#[test]
fn releases_before_a_restore_do_not_move_log_positions() {
    // `other` comes before `sandbox`, so statements about it come first.
    let limits = "[copies.other]\nlimit = 3\n[copies.sandbox]\nlimit = 1\n";
    let said = |restored: bool, gone: bool| {
        let mut play = Play::of(limits);
        let (mut web, mut job) = (agent("web", 1), agent("job", 1));
        play.ops_on(&mut web, "other", &[(1, hold("acme", 1))]);
        play.ops_on(&mut web, "other", &[(1, release(1))]);
        play.ops(&mut web, &[(2, hold("acme", 1))]);
        play.ops(&mut job, &[(1, hold("new", 1))]);
        if restored {
            play.restart();
        }
        if gone {
            let mut said = Vec::new();
            for _ in 0..5 {
                play.tick();
                said.extend(positions(&play));
            }
            return said;
        }
        play.heartbeat_without_parts(&mut web);
        positions(&play)
    };
    for gone in [true, false] {
        assert!(!said(false, gone).is_empty());
        assert_eq!(said(false, gone), said(true, gone), "gone: {gone}");
    }
}

/// One of two logs lacked twelve minutes of ticks, and an agent.
#[test]
fn missing_records_leave_the_digest_in_the_end() {
    let limits = "[copies.sandbox]\nlimit = 2\n";
    let (mut whole, mut behind) = (Play::of(limits), Play::of(limits));
    let mut old = agent("old", 1);
    whole.ops(&mut old, &[(1, hold("acme", 1))]);
    for _ in 0..1_500 {
        whole.tick();
    }
    behind.skip_to(&whole);
    let mut later = [&mut whole, &mut behind].map(|play| {
        let (mut web, mut job) = (agent("web", 1), agent("job", 1));
        play.ops(&mut job, &[(1, hold("acme", 1))]);
        let mut digests = Vec::new();
        for _ in 0..1_300 {
            play.heartbeat_without_parts(&mut web);
            play.tick();
            digests.push(play.engine.digest());
        }
        digests
    });
    let behind = later[1].pop();
    assert_ne!(behind, later[0].first().copied());
    assert_eq!(behind, later[0].pop());
}
