//! Tests of pairs that missed many versions.

use super::*;

/// A pair with one hit in a tier of an hour, and the document that limits it.
fn before_many_versions() -> (Play, impl Fn(u64, &str) -> String) {
    let document = |limit: u64, window: &str| {
        format!(
            "[rate.\"api.search\"]\ntiers = [{{ limit = {limit}, window = \"{window}\", active = \"2h\" }}]\n"
        )
    };
    let mut play = Play::of(&document(5, "1h"));
    play.hits("api.search", &["acme"]);
    play.now_ms += 5_000;
    (play, document)
}

#[test]
fn versions_that_do_not_change_a_pair_keep_its_state() {
    let (mut play, document) = before_many_versions();
    for n in 0..300 {
        play.version(&document(5 + n % 2, "1h"));
    }
    play.hits("api.search", &["acme"]);
    let view = play.engine.pair("api.search", "acme").expect("known");
    assert_eq!(view.tier_hits, 2);
}

#[test]
fn a_pair_changed_more_than_254_versions_ago_starts_empty() {
    let second = "{ limit = 9, window = \"1h\", active = \"2h\" }";
    for (versions, hits_left) in [(254, 1), (255, 0)] {
        let (mut play, document) = before_many_versions();
        // The first tier is unchanged, so while this version is kept its hit still counts.
        let two = document(5, "1h").replace("}]", &format!("}}, {second}]"));
        for _ in 0..=versions {
            play.version(&two);
        }
        let view = play.engine.pair("api.search", "acme").expect("known");
        assert_eq!(view.tier_hits, hits_left, "{versions}");
    }
}

/// What becomes of a pair with hits under `before` that next has hits under `after`, with as many versions between them that
/// change another resource alone.
fn ruled_after(others: u64, before: &str, after: &str) -> (Vec<String>, [u64; 3]) {
    let document = |limits: &str, other: u64| {
        format!("[rate.\"api.search\"]\n{limits}\n[rate.other]\nrate = \"{other}/s\"\n")
    };
    let mut play = Play::of(&document(before, 1));
    play.now_ms += 5;
    let hits = |play: &mut Play, copies: u32| {
        let at = Timestamp::from_millis(play.now_ms);
        play.next_batch("api.search", &[Hit::one(0, "acme", at, copies)]);
    };
    hits(&mut play, 4_000);
    for other in 1..=others {
        play.version(&document(after, other));
    }
    play.now_ms += 1_000;
    hits(&mut play, 1_001);
    let counts = play.counts();
    let counts = [counts.granted, counts.excess, counts.pairs_forgotten];
    (play.output(), counts)
}

#[test]
fn quotas_and_stamps_follow_however_many_versions_were_missed() {
    let day = "quota = \"5000/day\"";
    for (before, after) in [
        (day, "quota = [\"90000/month\", \"5000/day\"]"),
        (day, "quota = \"5000/month\""),
        (day, "quota = \"6000/day\""),
        (
            "quota = [\"4000/day\", \"5000/day\"]",
            "quota = [\"5001/day\", \"9000/day\"]",
        ),
        (
            "hard = \"9000/s\"",
            "hard = \"9000/s\"\nquota = \"1000/day\"",
        ),
        // Above 4,096 stamps are rounded down: the pair opens earlier.
        ("windows = [\"4000/10s\"]", "windows = [\"5000/10s\"]"),
    ] {
        let few = ruled_after(3, before, after);
        assert_eq!(ruled_after(300, before, after), few, "{before} to {after}");
    }
}
