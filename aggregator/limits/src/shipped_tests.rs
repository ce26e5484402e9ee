//! Tests of the files in `config/`: they read without a fault or a warning, name every option and
//! state the true defaults, and the cookbook's timelines are what the rules do.

use std::collections::BTreeMap;

use tollgate_model::{DomainLimits, InlineLimiter, ResourceLimits};

use super::read::all_fields;
use super::{EngineSettings, Limits, Namespace, RateClass};

const SHIPPED: &str = include_str!("../../../config/limits.toml");
const PENALTIES: &str = include_str!("../../../config/cookbook/penalties.toml");
const PUNISHMENT: &str = include_str!("../../../config/cookbook/punishment.toml");
const BATCH: &str = include_str!("../../../config/cookbook/batch.toml");

#[track_caller]
fn read(text: &str) -> Limits {
    let (limits, warnings) =
        Limits::parse_with_warnings(text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(warnings.list, []);
    limits
}

#[test]
fn the_shipped_limits_are_right_and_state_the_defaults() {
    let limits = read(SHIPPED);
    assert_eq!(limits.engine(), &EngineSettings::default());
    assert_eq!(limits.namespaces().default, Namespace::default());
    assert!(limits.rate("api.search").is_some());
}

#[test]
fn the_shipped_limits_name_every_option() {
    for field in all_fields() {
        let stated = SHIPPED.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        assert!(stated.into_iter().any(|word| word == field), "{field}");
    }
}

#[test]
fn the_penalties_rule_as_documented() {
    play(PENALTIES, "cookbook.penalties", 100);
    never_refused(PENALTIES, "cookbook.penalties", 4);
}

#[test]
fn the_punishment_rules_as_documented() {
    play(PUNISHMENT, "cookbook.punishment", 10);
    never_refused(PUNISHMENT, "cookbook.punishment", 4);
}

#[test]
fn the_batch_example_rules_as_documented() {
    play(BATCH, "cookbook.batch", 25);
}

/// The model's limiter under the limits of a document.
fn limiter(text: &str, resource: &str) -> InlineLimiter {
    let limits = read(text);
    let class = limits
        .class_of(resource, "anyone")
        .expect("it is configured");
    InlineLimiter::new(ResourceLimits {
        default: model_limits(class),
        domains: BTreeMap::new(),
        global: None,
    })
}

fn model_limits(class: &RateClass) -> DomainLimits {
    let tiers = class.tiers().iter().map(|tier| tollgate_model::Tier {
        limit: tier.limit,
        window_us: tier.window.as_micros(),
        active_us: tier.active.as_micros(),
        cooldown_us: tier.cooldown.as_micros(),
        skippable: tier.skippable,
    });
    DomainLimits {
        tiers: Some(tiers.collect()),
        hard: class.hard,
        ..DomainLimits::default()
    }
}

/// Makes `per_second` evenly spaced requests a second, and compares the result with the timeline in
/// the comments: lines that begin with a second and the hits let through in it.
fn play(text: &str, resource: &str, per_second: u64) {
    let expected: BTreeMap<u64, u64> = text.lines().filter_map(timeline_row).collect();
    assert!(text.contains(&format!(" {per_second} times a second, without a pause:")));
    assert!(4 <= expected.len());
    let mut limiter = limiter(text, resource);
    let (&last, _) = expected.last_key_value().expect("a timeline has rows");
    for second in 0..=last {
        let granted = ask(&mut limiter, second, per_second);
        if let Some(&expected) = expected.get(&second) {
            assert_eq!(granted, expected, "second {second}");
        }
    }
}

fn never_refused(text: &str, resource: &str, per_second: u64) {
    assert!(text.contains(&format!(
        "asks {per_second} times a second is never refused"
    )));
    let mut limiter = limiter(text, resource);
    for second in 0..120 {
        assert_eq!(
            ask(&mut limiter, second, per_second),
            per_second,
            "{second}"
        );
    }
}

fn ask(limiter: &mut InlineLimiter, second: u64, per_second: u64) -> u64 {
    (0..per_second)
        .map(|n| limiter.grant(second * 1_000_000 + n * 1_000_000 / per_second, "d", 1, 1))
        .sum()
}

fn timeline_row(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix('#')?.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}
