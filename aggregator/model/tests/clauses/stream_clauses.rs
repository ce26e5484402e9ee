//! The rules that concern one pair, each held by a test that quotes it.
//!
//! Knows nothing of records. What stays true: a test's name is the promise, its body the entries.

use tollgate_model::{
    Cause, DomainLimits, DomainOverride, End, EntryOutcome, FieldStated, InlineLimiter,
    ResourceLimits, StreamPair, Tier, Until, Window, normalize,
};

use crate::support::{MS, SECOND, limits, limits_hard, skippable, tier, window};

/// (granted, excess, late)
fn counts(outcome: &EntryOutcome) -> (u64, u64, u64) {
    (outcome.granted, outcome.excess, outcome.late)
}

fn of_windows(windows: &[Window]) -> DomainLimits {
    DomainLimits {
        windows: windows.to_vec(),
        ..DomainLimits::default()
    }
}

fn pair(tiers: &[Tier]) -> StreamPair {
    StreamPair::new(&limits(tiers))
}

#[test]
fn admitted_copies_count_up_to_twice_the_limit() {
    let mut pair = pair(&[tier(2, SECOND, 20 * SECOND, 0)]);
    let first = pair.entry(0, 7, false);
    assert_eq!((counts(&first), first.counted), ((2, 5, 0), 2));
    assert_eq!(first.tier_hits, 4);
    let after = pair.entry(SECOND + 1, 1, false);
    assert_eq!((counts(&after), after.tier_hits), ((1, 0, 0), 1));
}

#[test]
fn excess_keeps_a_window_closed_until_there_is_room() {
    let mut pair = StreamPair::new(&of_windows(&[window(2, SECOND)]));
    for at_us in [0, 300 * MS, 600 * MS] {
        pair.entry(at_us, 1, false);
    }
    let denied = pair.denied().unwrap();
    assert_eq!(denied.end, End::At(SECOND + 300 * MS + 1));
    assert_eq!(denied.cause, Cause::Window(0));
}

#[test]
fn unguarded_excess_is_only_tallied() {
    let mut pair = StreamPair::new(&of_windows(&[window(2, SECOND)]));
    let blind = pair.entry(0, 9, true);
    assert_eq!((counts(&blind), blind.counted), ((2, 7, 0), 0));
    assert_eq!(pair.standing().windows, [2]);
}

#[test]
fn a_settled_estimate_counts_at_most_its_cost() {
    // Ten were estimated, of which six counted; the cost was eight, or four.
    let mut pair = StreamPair::new(&of_windows(&[window(3, SECOND)]));
    pair.estimate(5, 10, false);
    assert_eq!(pair.standing().windows, [6]);
    assert_eq!(pair.clone().settle(6, 5, 10, 8).refunded, 0);
    assert_eq!(pair.settle(6, 5, 10, 4).refunded, 2);
    assert_eq!(pair.standing().windows, [4]);
}

#[test]
fn a_rule_may_forbid_refunds() {
    let mut limits = of_windows(&[window(3, SECOND)]);
    limits.no_refunds = true;
    let mut pair = StreamPair::new(&limits);
    pair.estimate(5, 3, false);
    assert_eq!(pair.settle(9, 5, 3, 0).refunded, 0);
    assert_eq!(pair.time_us(), Some(9), "it moves the pair's time");
    assert_eq!(pair.standing().windows, [3]);
}

#[test]
fn a_denial_starts_right_after_the_hit_that_fills_the_scope() {
    let mut pair = pair(&[tier(2, SECOND, 20 * SECOND, 0)]);
    assert_eq!(pair.entry(0, 1, false).denied, None);
    let filled = pair.entry(400 * MS, 1, false);
    assert_eq!(filled.denied_until(), Some(End::At(SECOND + 1)));
    assert_eq!(filled.denied.unwrap().cause, Cause::Tier(1));
}

#[test]
fn a_denial_names_the_hard_limit_that_caused_it() {
    let mut pair = StreamPair::new(&limits_hard(&[tier(9, SECOND, 20 * SECOND, 0)], 1));
    assert_eq!(pair.entry(0, 1, false).denied.unwrap().cause, Cause::Hard);
}

#[test]
fn within_a_pair_engine_time_never_runs_backwards() {
    let mut pair = pair(&[tier(3, SECOND, 20 * SECOND, 0)]);
    pair.entry(SECOND, 1, false);
    pair.entry(500 * MS, 1, false);
    assert_eq!(pair.time_us(), Some(SECOND));
}

#[test]
fn versions_do_not_move_a_pairs_time() {
    let same = limits(&[tier(3, SECOND, 20 * SECOND, 0)]);
    let mut pair = StreamPair::new(&same);
    pair.entry(SECOND, 1, false);
    pair.new_limits(9 * SECOND, &same);
    assert_eq!(pair.time_us(), Some(SECOND));
    assert_eq!(counts(&pair.entry(SECOND, 1, false)), (1, 0, 0));
}

#[test]
fn entries_that_are_wholly_excess_move_the_pairs_time_too() {
    let mut pair = pair(&[tier(1, SECOND, 2 * SECOND, 60 * SECOND)]);
    pair.entry(0, 1, false);
    assert_eq!(counts(&pair.entry(3 * SECOND, 1, false)), (0, 1, 0));
    assert_eq!(pair.time_us(), Some(3 * SECOND));
    // At 1.5 s tier 1 was active and empty; at the pair's time it cools down.
    assert_eq!(counts(&pair.entry(1500 * MS, 1, false)), (0, 0, 1));
}

#[test]
fn a_late_hit_needs_room_in_the_current_tier_at_the_pairs_time() {
    let mut pair = pair(&[tier(1, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 1, false);
    pair.entry(2 * SECOND, 1, false);
    // At its own stamp the window was empty; at the pair's time it is full.
    assert_eq!(counts(&pair.entry(1500 * MS, 1, false)), (0, 1, 0));
}

#[test]
fn a_late_hit_needs_room_under_the_hard_limit_at_the_pairs_time() {
    let mut pair = StreamPair::new(&limits_hard(&[tier(9, SECOND, 20 * SECOND, 0)], 1));
    pair.entry(0, 1, false);
    pair.entry(2 * SECOND, 1, false);
    assert_eq!(counts(&pair.entry(900 * MS, 1, false)), (0, 1, 0));
}

#[test]
fn a_late_hit_counts_under_its_own_stamp_and_so_leaves_first() {
    let mut pair = pair(&[tier(3, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 1, false);
    pair.entry(500 * MS, 1, false);
    let late = pair.entry(100 * MS, 1, false);
    assert_eq!((counts(&late), late.tier_hits), ((1, 0, 0), 3));
    assert_eq!(late.denied_until(), Some(End::At(SECOND + 1)));
    // An entry without hits changes nothing; it only reads the state.
    assert_eq!(pair.entry(SECOND + 1, 0, false).tier_hits, 2);
    let left = pair.entry(SECOND + 100 * MS + 1, 0, false);
    assert_eq!(left.tier_hits, 1, "the late one before that of 0.5");
}

#[test]
fn late_excess_is_debt_under_its_own_stamp() {
    let mut pair = pair(&[tier(1, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 1, false);
    pair.entry(1500 * MS, 1, false);
    let late = pair.entry(900 * MS, 1, false);
    assert_eq!(
        (counts(&late), late.counted, late.tier_hits),
        ((0, 1, 0), 1, 2)
    );
    assert_eq!(late.denied_until(), Some(End::At(2500 * MS + 1)));
}

#[test]
fn late_hits_outside_the_window_take_no_room_from_each_other() {
    let mut pair = pair(&[tier(2, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 1, false);
    pair.entry(5 * SECOND, 1, false);
    let late = pair.entry(SECOND, 50, false);
    assert_eq!(
        (counts(&late), late.tier_hits, late.denied),
        ((50, 0, 0), 1, None)
    );
}

#[test]
fn late_hits_outside_the_tiers_window_count_in_the_last_second() {
    let tiers = [tier(2, 10 * MS, 20 * SECOND, 0)];
    let mut pair = StreamPair::new(&limits_hard(&tiers, 4));
    pair.entry(0, 1, false);
    pair.entry(500 * MS, 1, false);
    let late = pair.entry(100 * MS, 50, false);
    assert_eq!(
        (counts(&late), pair.standing().hard),
        ((2, 48, 0), Some(8)),
        "two with room, four of debt"
    );
    assert_eq!(late.denied.unwrap().cause, Cause::Hard);
}

#[test]
fn a_late_hit_never_climbs_and_never_enters_a_tier() {
    let mut pair = pair(&[
        tier(1, SECOND, 20 * SECOND, 0),
        tier(5, SECOND, 5 * SECOND, 0),
    ]);
    pair.entry(SECOND, 1, false);
    pair.entry(SECOND + 1, 0, false);
    let late = pair.entry(SECOND, 3, false);
    assert_eq!((counts(&late), late.tier), ((0, 3, 0), 1));
    assert_eq!(
        late.denied, None,
        "tier 2 is open to a hit that is not late"
    );
}

#[test]
fn with_no_current_tier_a_late_hit_is_only_counted() {
    let mut pair = pair(&[tier(5, SECOND, SECOND, 0)]);
    pair.entry(0, 1, false);
    pair.entry(3 * SECOND, 0, false);
    let late = pair.entry(2 * SECOND, 4, false);
    assert_eq!((counts(&late), late.tier), ((0, 0, 4), 0));
}

#[test]
fn hits_older_than_the_tiers_entry_are_only_counted() {
    let mut pair = pair(&[tier(5, SECOND, 9 * SECOND, 0)]);
    pair.entry(500 * MS, 1, false);
    pair.entry(600 * MS, 1, false);
    assert_eq!(counts(&pair.entry(500 * MS - 1, 1, false)), (0, 0, 1));
    assert_eq!(counts(&pair.entry(500 * MS, 1, false)), (1, 0, 0));
}

#[test]
fn a_stamp_equal_to_the_pairs_time_is_not_late() {
    let mut pair = pair(&[
        tier(1, SECOND, 20 * SECOND, 0),
        tier(5, SECOND, 5 * SECOND, 0),
    ]);
    pair.entry(SECOND, 1, false);
    let climbs = pair.entry(SECOND, 1, false);
    assert_eq!((counts(&climbs), climbs.tier), ((1, 0, 0), 2));
}

#[test]
fn no_tiers_deny_for_ever_with_the_first_entry() {
    let mut pair = pair(&[]);
    let first = pair.entry(0, 1, false);
    assert_eq!(counts(&first), (0, 1, 0));
    assert_eq!(first.denied_until(), Some(End::Never));
    assert_eq!(first.denied.unwrap().cause, Cause::Tier(0));
    assert_eq!(pair.stays_until_us(), None);
}

#[test]
fn a_tier_keeps_its_state_when_only_its_limit_changes() {
    let mut pair = pair(&[tier(2, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 2, false);
    let lifted = pair.new_limits(MS, &limits(&[tier(5, SECOND, 20 * SECOND, 0)]));
    assert_eq!(lifted, None, "lifts at once");
    let next = pair.entry(2 * MS, 9, false);
    assert_eq!((counts(&next), next.tier_hits), ((3, 6, 0), 10));
}

#[test]
fn hits_are_never_trimmed_to_a_lowered_limit() {
    let mut pair = pair(&[tier(5, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 1, false);
    pair.entry(100 * MS, 4, false);
    let denied = pair.new_limits(200 * MS, &limits(&[tier(2, SECOND, 20 * SECOND, 0)]));
    // Four of five stay until 1.1 s; only then is there room below two.
    assert_eq!(denied.unwrap().end, End::At(SECOND + 100 * MS + 1));
}

#[test]
fn any_change_but_the_limits_empties_a_tier_and_all_above_it() {
    let low = tier(1, SECOND, 20 * SECOND, 0);
    let high = tier(1, SECOND, 9 * SECOND, 9 * SECOND);
    let changed = [
        tier(1, 2 * SECOND, 20 * SECOND, 0),
        tier(1, SECOND, 19 * SECOND, 0),
        tier(1, SECOND, 20 * SECOND, 1),
        skippable(1, SECOND, 20 * SECOND, 0),
    ];
    for new in changed {
        let mut pair = pair(&[low, high]);
        assert_eq!(pair.entry(0, 3, false).tier, 2);
        assert_eq!(pair.new_limits(MS, &limits(&[new, high])), None);
        assert_eq!(pair.entry(2 * MS, 3, false).granted, 2, "{new:?}");
    }
    let mut pair = pair(&[low, high]);
    pair.entry(0, 3, false);
    let kept = pair.new_limits(MS, &limits(&[tier(4, SECOND, 20 * SECOND, 0), high]));
    assert_eq!(
        kept.unwrap().cause,
        Cause::Tier(2),
        "limits alone change nothing"
    );
}

#[test]
fn shapes_are_compared_after_normalisation() {
    let mut pair = pair(&[tier(1, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 1, false);
    let never_active = tier(9, SECOND, 0, 0);
    let with_rest = tier(1, SECOND, 20 * SECOND + 7, 0);
    let kept = pair.new_limits(MS, &limits(&[never_active, with_rest]));
    assert_eq!(kept.unwrap().end, End::At(SECOND + 1));
}

#[test]
fn state_of_a_removed_constraint_is_forgotten() {
    let tiers = [tier(9, SECOND, 20 * SECOND, 0)];
    let mut pair = StreamPair::new(&limits_hard(&tiers, 4));
    pair.entry(0, 3, false);
    pair.new_limits(MS, &limits(&tiers));
    pair.new_limits(MS, &limits_hard(&tiers, 4));
    assert_eq!(pair.standing().hard, Some(0));
}

#[test]
fn a_hard_limit_keeps_what_counts_over_a_version() {
    let mut pair = StreamPair::new(&limits_hard(&[tier(3, SECOND, 20 * SECOND, 0)], 9));
    pair.entry(0, 3, false);
    pair.new_limits(MS, &limits_hard(&[tier(9, 5 * SECOND, 20 * SECOND, 0)], 4));
    let next = pair.entry(2 * MS, 9, false);
    assert_eq!((counts(&next), pair.standing().hard), ((1, 8, 0), Some(8)));
}

#[test]
fn denials_are_ruled_again_at_the_pairs_or_versions_time() {
    let slow = |limit| limits(&[tier(limit, SECOND, 10 * SECOND, 100 * SECOND)]);
    let mut pair = StreamPair::new(&slow(1));
    pair.entry(0, 1, false);
    pair.entry(9500 * MS, 1, false);
    let at_the_versions = pair.clone().new_limits(50 * SECOND, &slow(2));
    assert_eq!(at_the_versions.unwrap().end, End::At(110 * SECOND));
    let at_its_own = pair.new_limits(2 * SECOND, &slow(2));
    assert_eq!(at_its_own, None);
}

#[test]
fn a_version_starts_no_denial() {
    let mut pair = pair(&[tier(5, SECOND, 20 * SECOND, 0)]);
    pair.entry(0, 3, false);
    assert_eq!(
        pair.new_limits(MS, &limits(&[tier(2, SECOND, 20 * SECOND, 0)])),
        None
    );
    let next = pair.entry(2 * MS, 1, false);
    assert_eq!(next.denied_until(), Some(End::At(SECOND + 1)));
}

#[test]
fn a_closed_pair_is_denied_from_its_next_entry_even_a_late_one() {
    let mut pair = pair(&[tier(5, SECOND, 20 * SECOND, 0)]);
    pair.entry(500 * MS, 3, false);
    pair.new_limits(600 * MS, &limits(&[tier(2, SECOND, 20 * SECOND, 0)]));
    let next = pair.entry(0, 1, false);
    assert_eq!(counts(&next), (0, 0, 1));
    assert_eq!(next.denied_until(), Some(End::At(SECOND + 500 * MS + 1)));
}

#[test]
fn a_denial_ended_at_a_version_stays_ended_for_earlier_hits() {
    let one = limits(&[tier(1, SECOND, 20 * SECOND, 0)]);
    let mut pair = StreamPair::new(&one);
    pair.entry(0, 1, false);
    assert_eq!(pair.new_limits(2 * SECOND, &one), None);
    assert_eq!(pair.new_limits(500 * MS, &one), None);
}

#[test]
fn at_its_end_a_denial_is_not_in_force_any_more() {
    let one = limits(&[tier(1, SECOND, 20 * SECOND, 0)]);
    let mut pair = StreamPair::new(&one);
    pair.entry(0, 1, false);
    assert!(pair.clone().new_limits(SECOND, &one).is_some());
    assert_eq!(pair.new_limits(SECOND + 1, &one), None);
}

#[test]
fn a_field_that_a_domain_does_not_state_is_inherited() {
    let own = [tier(7, SECOND, SECOND, 0)];
    let tiers = DomainOverride {
        tiers: FieldStated::Own(own.to_vec()),
        ..DomainOverride::default()
    };
    let hard = DomainOverride {
        hard: FieldStated::Own(9),
        ..DomainOverride::default()
    };
    let closed = DomainOverride {
        tiers: FieldStated::Own(Vec::new()),
        ..DomainOverride::default()
    };
    let windows = DomainOverride {
        windows: FieldStated::Own(vec![window(3, SECOND)]),
        hard: FieldStated::Nothing,
        ..DomainOverride::default()
    };
    let names = ["tiers", "hard", "closed", "windows"].map(str::to_owned);
    let resource = ResourceLimits {
        default: limits_hard(&[tier(2, SECOND, SECOND, 0)], 5),
        domains: names
            .into_iter()
            .zip([tiers, hard, closed, windows])
            .collect(),
        global: None,
    };
    assert_eq!(resource.of("tiers"), limits_hard(&own, 5));
    assert_eq!(
        resource.of("hard"),
        limits_hard(resource.default.tiers(), 9)
    );
    assert_eq!(resource.of("closed"), limits_hard(&[], 5));
    assert_eq!(resource.of("other"), resource.default);
    let windows_alone = DomainLimits {
        windows: vec![window(3, SECOND)],
        ..DomainLimits::default()
    };
    assert_eq!(resource.of("windows"), windows_alone);
}

#[test]
fn an_instant_beyond_the_last_one_never_comes() {
    let for_ever = tier(1, u64::MAX, u64::MAX, 0);
    assert_eq!(normalize(&[for_ever]), [for_ever]);
    for never_again in [for_ever, tier(1, 1, 1, u64::MAX)] {
        let mut limiter = InlineLimiter::new(ResourceLimits {
            default: limits(&[never_again]),
            ..ResourceLimits::default()
        });
        let outcome = limiter.request(5, "d", 2, 1);
        assert_eq!(outcome.domain_until, Until::Never, "{never_again:?}");
    }
}
