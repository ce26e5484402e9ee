//! Tests of versions of rows that name pairs.

use tollgate_limits::Own;

use super::*;

fn hard(limit: &str) -> Own {
    Own {
        hard: Some(limit.into()),
        ..Own::default()
    }
}

#[test]
fn rows_rule_again_the_pairs_that_they_name_and_no_other() {
    let mut play = Play::of("[rate.\"api.search\"]\nhard = \"2/s\"\n");
    play.tick(0);
    play.hits("api.search", &["acme", "acme", "globex", "globex", "idle"]);
    let position = |play: &Play| {
        let live = play.engine.live_denials();
        live.map(|live| (live.domain.clone(), live.position.offset))
            .collect::<Vec<_>>()
    };
    let before = position(&play);
    play.rows(&[
        ("api.search", "acme", hard("5/s")),
        ("api.search", "idle", hard("1/s")),
        ("api.search", "nobody", hard("0/s")),
    ]);
    assert_eq!(play.output(), ["api.search acme: open"]);
    assert_eq!((play.engine.pairs(), before.len()), (3, 2));
    // It is closed by its row, but a version starts no denial.
    play.hits("api.search", &["idle", "acme"]);
    let counts = play.counts();
    assert_eq!((counts.granted, counts.excess), (1, 1));
    assert_eq!(play.output(), ["api.search idle: 1000001, hard"]);
    // Of an address there are several spellings, so its row is a step, and rules every denial again.
    play.now_ms += 500;
    play.rows(&[("api.search", "10.1.2.3", hard("5/s"))]);
    assert_eq!(play.output(), [""; 0]);
}

#[test]
fn a_pair_sleeps_through_any_number_of_rows() {
    let document = |tiers: &str| format!("[rate.\"api.search\"]\ntiers = [{tiers}]\n");
    let first = "{ limit = 9, window = \"1h\", active = \"2h\" }";
    let second = "{ limit = 19, window = \"1h\", active = \"2h\" }";
    let mut play = Play::of(&document(first));
    play.tick(0);
    play.hits("api.search", &["acme", "slow"]);
    play.version(&document(&format!("{first}, {second}")));
    for n in 0..600u64 {
        let domain = format!("tenant-{n}");
        play.rows(&[("api.search", &domain, hard("7/s"))]);
    }
    let chunks = play.engine.snapshot();
    let known = crate::support::known::Known(&play.versions, &play.acts);
    let restored = Engine::restore(0, 1, &chunks, &known).expect("a snapshot");
    assert_eq!(restored.digest(), play.engine.digest());
    play.engine = restored;
    // The first tier is unchanged, so its hit still counts; the row finds it as well.
    play.rows(&[("api.search", "slow", hard("3/s"))]);
    play.hits("api.search", &["acme", "slow", "slow", "slow"]);
    for (domain, tier_hits) in [("acme", 2), ("slow", 4)] {
        let view = play.engine.pair("api.search", domain).expect("known");
        assert_eq!(view.tier_hits, tier_hits, "{domain}");
    }
    assert_eq!(
        play.counts().excess,
        0,
        "a hard limit of a row counts from then on"
    );
}

#[test]
fn rows_that_forget_use_are_counted_at_once() {
    let mut play = Play::of("[rate.\"api.search\"]\nwindows = [\"9/1h\"]\n");
    play.tick(0);
    play.hits("api.search", &["acme", "globex"]);
    let rate = Own {
        rate: Some("1/s".into()),
        ..Own::default()
    };
    play.rows(&[("api.search", "acme", rate)]);
    let forgotten = play.rulings.counts.iter();
    let forgotten = forgotten.map(|of| of.counts.pairs_forgotten).sum::<u64>();
    assert_eq!(forgotten, 1);
}

#[test]
fn rows_of_many_pairs_are_ruled_in_slices() {
    let names: Vec<String> = (0..1_500).map(|n| format!("tenant-{n}")).collect();
    let all: Vec<&str> = names.iter().map(|name| &**name).collect();
    let mut play = Play::of("[rate.\"api.search\"]\nhard = \"1/s\"\n");
    play.tick(0);
    play.hits("api.search", &all);
    assert_eq!(play.output().len(), 1_500);
    let rows = all.iter().map(|name| ("api.search", *name, hard("2/s")));
    let rows: Vec<_> = rows.collect();
    play.rows(&rows);
    assert_eq!(play.output().len(), 1_500);
    assert_eq!(play.engine.live_denials().count(), 0);
}
