//! Tests of what a denial names as its cause.

use super::*;

#[test]
fn of_two_full_limits_a_denial_names_the_one_that_lasts_longer() {
    for (limits, named) in [
        ("windows = [\"2/s\", \"4/10s\"]", "window:1"),
        ("windows = [\"4/10s\", \"2/s\"]", "window:0"),
        ("rate = \"4/10s\"\nhard = \"2/s\"", "window:0"),
        ("rate = \"2/s\"\nquota = \"4/day\"", "quota:0"),
    ] {
        let mut play = Play::of(&format!("[rate.\"api.search\"]\n{limits}\n"));
        play.hits("api.search", &["acme", "acme"]);
        assert!(
            !play.output()[0].ends_with(named),
            "{limits}: only one is full"
        );
        play.tick(2_000);
        play.hits("api.search", &["acme", "acme"]);
        let output = play.output();
        assert!(output[0].ends_with(named), "{limits}: {output:?}");
    }
}

#[test]
fn without_tiers_a_resource_is_inaccessible() {
    let mut play = Play::of("[rate.\"api.search\"]\ntiers = []\n");
    play.hits("api.search", &["acme"]);
    assert_eq!(play.output(), ["api.search acme: never, inaccessible"]);
    play.tick(100_000_000);
    assert_eq!(play.engine.pairs(), 1, "a denied pair stays");
    play.version(TWO);
    assert_eq!(play.output(), ["api.search acme: open"]);
    play.tick(700_000);
    assert_eq!(play.engine.pairs(), 0);
}
