//! New limits rule the denials in force again in slices, and snapshots share memory with the engine: work
//! in parts must have the result of work at once.

use tollgate_engine::engine::{Engine, Rulings};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::record::{LimitsActivation, Record};
use tollgate_shared::wire::statement::Cause;

use crate::support::known::Known;
use crate::support::play::{Play, pen};

/// More than two slices.
const DENIED: usize = 3_000;

fn rate(limit: u32, window_s: u32) -> String {
    format!(
        "[rate.\"api.search\"]\ntiers = [{{ limit = {limit}, window = \"{window_s}s\", active = \"90s\" }}]\n"
    )
}

/// So many domains, each denied until its first hit is a minute old.
fn denied() -> Play {
    let mut play = Play::of(&rate(2, 60));
    let names: Vec<String> = (0..DENIED)
        .map(|number| format!("tenant-{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    for said in [0, DENIED] {
        play.hits("api.search", &names);
        assert_eq!(play.output().len(), said);
        play.tick(1_000);
    }
    assert_eq!(play.engine.live_denials().count(), DENIED);
    play
}

/// A banned network has more denied addresses than a slice, and others are denied beside them.
#[test]
fn a_ban_of_a_network_is_applied_in_slices() {
    let address = |number: usize| format!("10.1.{}.{}", number / 250, number % 250);
    let mut play = Play::of(&rate(1, 60));
    let names: Vec<String> = (0..DENIED)
        .map(|number| match number % 3 {
            0 => format!("tenant-{number}"),
            _ => address(number),
        })
        .collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    play.hits("api.search", &names);
    play.tick(1_000);
    assert_eq!(play.engine.live_denials().count(), DENIED);

    let act = Act::Ban {
        resource: None,
        domain: "10.1.0.0/16".into(),
        until: Timestamp::MAX,
    };
    play.acts.insert(1_000, act.into());
    let digest = [0; 32];
    let activation = LimitsActivation {
        version: 1_000,
        digest,
    };
    let activation = pen().limits_activation(&activation);
    let record = Record::decode(&activation).expect("a record");
    play.rulings.clear();
    let appended = Timestamp::from_millis(play.now_ms);
    let (engine, rulings) = (&mut play.engine, &mut play.rulings);
    let known = Known(&play.versions, &play.acts);
    engine.begin(play.offset, appended, &record, &known, rulings);
    let (mut slices, mut longest, mut stated) = (0, 0, 0);
    while play.engine.has_more() {
        play.rulings.clear();
        play.engine.go_on(&mut play.rulings);
        slices += 1;
        longest = longest.max(play.rulings.statements.len());
        stated += play.rulings.statements.len();
    }
    assert!(longest <= 512 && DENIED / 512 <= slices, "{slices}");
    assert_eq!(stated, DENIED - DENIED / 3);
    let banned = play.engine.live_denials();
    let banned = banned.filter(|live| live.denial.cause == Cause::Banned);
    assert_eq!(banned.count(), stated);
}

/// Two versions of one activation: the first moves every end, the second lifts every denial.
fn two_versions(play: &mut Play) -> Vec<u8> {
    for (version, document) in [(1_000, rate(1, 60)), (1_001, rate(9, 60))] {
        let text = format!("version = 1\nrules = 2\n{document}");
        let limits = tollgate_limits::Limits::parse(&text);
        let limits = limits.unwrap_or_else(|faults| panic!("{faults}"));
        play.versions.insert(version, limits.into());
    }
    pen().limits_activation(&LimitsActivation {
        version: 1_001,
        digest: [0; 32],
    })
}

#[test]
fn slices_state_what_one_pass_would_before_the_next_record() {
    let (mut whole, mut sliced, mut hurried) = (denied(), denied(), denied());
    let activation = two_versions(&mut whole);
    two_versions(&mut sliced);
    two_versions(&mut hurried);
    whole.apply(&activation);
    assert!(!whole.engine.has_more());
    assert_eq!(whole.rulings.statements.len(), 2 * DENIED);

    let record = Record::decode(&activation).expect("a record");
    let begin = |play: &mut Play| {
        play.rulings.clear();
        let appended = Timestamp::from_millis(play.now_ms);
        let (engine, rulings) = (&mut play.engine, &mut play.rulings);
        engine.begin(play.offset, appended, &record, &play.versions, rulings);
        play.offset += 1;
    };
    begin(&mut sliced);
    let (mut slices, mut longest, mut statements) = (0, 0, Vec::new());
    let mut one = Rulings::new();
    while sliced.engine.has_more() {
        one.clear();
        sliced.engine.go_on(&mut one);
        slices += 1;
        longest = longest.max(one.statements.len());
        statements.append(&mut one.statements);
    }
    assert!(longest <= 512 && 2 * DENIED / 512 <= slices, "{slices}");
    assert_eq!(statements, whole.rulings.statements);
    assert_eq!(sliced.engine.digest(), whole.engine.digest());

    // A caller that does not apply the slices itself gets the same rulings.
    begin(&mut hurried);
    hurried.tick(700);
    whole.tick(700);
    assert_eq!(hurried.rulings.statements.len(), 2 * DENIED);
    assert_eq!(hurried.engine.digest(), whole.engine.digest());
}

#[test]
fn a_frozen_engine_keeps_its_denials_while_the_engine_goes_on() {
    let mut play = denied();
    let digest = play.engine.digest();
    let frozen = play.engine.freeze();
    let activation = two_versions(&mut play);
    play.apply(&activation);
    assert_eq!(play.engine.live_denials().count(), 0);

    let mut chunks = Vec::new();
    frozen.write(|chunk| chunks.push(chunk));
    let restored = Engine::restore(0, 1, &chunks, &play.versions);
    let mut restored = restored.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(restored.digest(), digest);
    assert_eq!(restored.live_denials().count(), DENIED);
    let positions: Vec<_> = restored.live_denials().map(|live| live.position).collect();
    assert_eq!(positions.len(), DENIED);

    // And it goes on like the original.
    let record = Record::decode(&activation).expect("a record");
    let appended = Timestamp::from_millis(play.now_ms);
    let mut rulings = Rulings::new();
    let offset = play.offset - 1;
    restored.apply(offset, appended, &record, &play.versions, &mut rulings);
    assert_eq!(rulings.statements, play.rulings.statements);
    assert_eq!(restored.digest(), play.engine.digest());
}
