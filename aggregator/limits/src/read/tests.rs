//! What a document may state, and what that means.

use tollgate_shared::time::Span;

use crate::{
    BlindPolicy, Excess, Limits, Mode, Rate, RateClass, Reserve, Tier, WarningKind, Window,
};

/// The document of the project's own description, with every kind of entry.
const WHOLE: &str = r#"
version = 1
rules = 2

[engine]
pairs_per_partition_max = 1_000_000
agent_timeout = "2s"

[namespace."*"]
allow_unconfigured = true
ignore_configured = false
blind = "open"
[namespace.api]
allow_unconfigured = false

[plans]
gold = ["acme", "globex"]

[rate."health.ping"]
rate = "100/s"

[rate."api.search"]
hard = "200/s"
global = "50000/s"
blind = { local = "20/s" }
tiers = [
  { limit = 100, window = "1s", active = "1s" },
  { limit = 500, window = "10s", active = "1m", cooldown = "5m", skippable = true },
]
[rate."api.search".plans.gold]
rate = "1000/s"
[rate."api.search".domains."203.0.113.7"]
rate = "5/s"
[rate."api.search".candidate]
rate = "80/s"

[rate."api.export"]
shadow = true
tiers = [{ limit = 5000, window = "5m", active = "5m", cooldown = "23h55m" }]

[copies.sandbox]
limit = 10
global = 400
reserve = "optimistic"
on_excess = "keep"
max_age = "1h"
blind = "closed"
domains = { acme = 50 }
groups.probation = { limit = 4, members = ["new-1", "new-2"] }
"#;

fn tier(limit: u64, window_s: u64, active_s: u64, cooldown_s: u64, skippable: bool) -> Tier {
    Tier {
        limit,
        window: Span::from_secs(window_s),
        active: Span::from_secs(active_s),
        cooldown: Span::from_secs(cooldown_s),
        skippable,
    }
}

fn class(tiers: &[Tier], hard: Option<u64>) -> RateClass {
    RateClass {
        tiers: Some(tiers.into()),
        hard,
        ..RateClass::default()
    }
}

/// A class of one window.
fn rate(limit: u64, window_s: u64, hard: Option<u64>) -> RateClass {
    let window = Span::from_secs(window_s);
    RateClass {
        windows: [Window { limit, window }].into(),
        hard,
        ..RateClass::default()
    }
}

fn parsed(text: &str) -> Limits {
    Limits::parse(text).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn a_whole_document_is_read() {
    let limits = parsed(WHOLE);
    assert_eq!(limits.engine().pairs_per_partition_max, 1_000_000);
    assert_eq!(limits.engine().agent_timeout, Span::from_secs(2));

    let ping = limits.class_of("health.ping", "anyone");
    assert_eq!(ping, Some(&rate(100, 1, None)));

    let search = limits.rate("api.search").expect("it is configured");
    let of = |domain| limits.class(search.class_of(domain));
    let tiers = [tier(100, 1, 1, 0, false), tier(500, 10, 60, 300, true)];
    assert_eq!(of("someone"), &class(&tiers, Some(200)));
    assert_eq!(of("globex"), &rate(1_000, 1, Some(200)));
    assert_eq!(of("203.0.113.7"), &rate(5, 1, Some(200)));
    assert_eq!(search.class_of("acme"), search.class_of("globex"));
    assert_eq!(search.global(), Some(50_000));
    let local = Rate {
        hits: 20,
        window: Span::from_secs(1),
    };
    assert_eq!(search.blind(), Some(BlindPolicy::Local(local)));
    assert_eq!(search.mode(), Mode::Enforced);

    let export = limits.rate("api.export").expect("it is configured");
    assert_eq!(export.mode(), Mode::Shadow);
    assert_eq!(
        limits.class(export.default_class()),
        &class(&[tier(5_000, 300, 300, 86_100, false)], None)
    );

    let sandbox = limits.copies("sandbox").expect("it is configured");
    assert_eq!((sandbox.limit, sandbox.global), (10, Some(400)));
    assert_eq!(
        (sandbox.limit_of("acme"), sandbox.limit_of("globex")),
        (50, 10)
    );
    assert_eq!(
        (sandbox.reserve, sandbox.on_excess),
        (Reserve::Optimistic, Excess::Keep)
    );
    assert_eq!(sandbox.max_age, Some(Span::from_secs(3_600)));
    assert_eq!(sandbox.blind, BlindPolicy::Closed);
    let groups: Vec<_> = sandbox
        .groups_of("new-2")
        .map(|(name, group)| (name, group.limit))
        .collect();
    assert_eq!(groups, [("probation", 4)]);
    assert_eq!(sandbox.groups_of("acme").count(), 0);
}

#[test]
fn a_candidate_replaces_the_default_and_not_overrides() {
    let limits = parsed(WHOLE);
    let search = limits.rate("api.search").expect("it is configured");
    let of = |domain| {
        search
            .candidate_class_of(domain)
            .map(|id| limits.class(id).clone())
    };
    assert_eq!(of("someone"), Some(rate(80, 1, Some(200))));
    assert_eq!(of("acme"), Some(rate(1_000, 1, Some(200))));
    assert_eq!(
        limits
            .rate("health.ping")
            .and_then(|r| r.candidate_class_of("x")),
        None
    );
}

#[test]
fn numbers_are_dense_and_ascend_with_names() {
    let limits = parsed(WHOLE);
    let names: Vec<&str> = limits.resources().iter().map(|r| r.name()).collect();
    assert_eq!(
        names,
        ["api.export", "api.search", "health.ping", "sandbox"]
    );
    for (position, resource) in limits.resources().iter().enumerate() {
        assert_eq!(resource.ix().0 as usize, position);
        assert_eq!(limits.resource(resource.name()), Some(resource));
    }
    assert_eq!(limits.rate("sandbox"), None);
    assert_eq!(limits.copies("api.search"), None);
    assert_eq!(limits.resource("api"), None);
}

#[test]
fn a_domain_beats_its_plan_beats_the_default_field_by_field() {
    let limits = parsed(
        r#"
        plans = { gold = ["a", "b", "c"] }
        [rate.x]
        rate = "1/s"
        hard = "10/s"
        plans.gold = { rate = "2/s", hard = "20/s" }
        domains.a = { rate = "3/s" }
        domains.b = { hard = "30/s" }
        domains.z = { hard = "40/s" }
        "#,
    );
    let of = |domain| limits.class_of("x", domain).cloned();
    let expect = |limit, hard| Some(rate(limit, 1, Some(hard)));
    assert_eq!(of("a"), expect(3, 20));
    assert_eq!(of("b"), expect(2, 30));
    assert_eq!(of("c"), expect(2, 20));
    assert_eq!(of("z"), expect(1, 40));
    assert_eq!(of("other"), expect(1, 10));
}

#[test]
fn resources_inherit_from_namespaces_and_these_from_the_star() {
    let limits = parsed(
        r#"
        [namespace."*"]
        allow_unconfigured = false
        blind = "closed"
        [namespace.api]
        ignore_configured = true
        [namespace.web]
        blind = { local = "6/m" }
        [rate."api.x"]
        rate = "1/s"
        [rate."web.x"]
        rate = "1/s"
        [rate."web.y"]
        rate = "1/s"
        blind = "open"
        "#,
    );
    let api = limits.namespace_of("api.unknown");
    assert!(!api.allow_unconfigured && api.ignore_configured);
    let other = limits.namespace_of("other");
    assert!(!other.allow_unconfigured && !other.ignore_configured);
    let blind = |name| limits.rate(name).and_then(|rate| rate.blind());
    let local = Rate {
        hits: 6,
        window: Span::from_secs(60),
    };
    assert_eq!(blind("api.x"), Some(BlindPolicy::Closed));
    assert_eq!(blind("web.x"), Some(BlindPolicy::Local(local)));
    assert_eq!(blind("web.y"), Some(BlindPolicy::Open));
}

#[test]
fn strict_copies_are_closed_while_blind_unless_configured() {
    let limits = parsed(
        r#"
        namespace."*".blind = "open"
        copies.a = { limit = 1, reserve = "strict" }
        copies.b = { limit = 1, reserve = "strict", blind = "open" }
        copies.c = { limit = 1 }
        "#,
    );
    let blind = |name| limits.copies(name).map(|copies| copies.blind);
    assert_eq!(blind("a"), Some(BlindPolicy::Closed));
    assert_eq!(blind("b"), Some(BlindPolicy::Open));
    assert_eq!(blind("c"), Some(BlindPolicy::Open));
}

#[test]
fn copies_are_lowered_to_the_global_limit_with_a_warning() {
    // Charon whitepaper, section 4.1; the effective limit of section 3.2 of the rules.
    let (limits, warnings) = Limits::parse_with_warnings(
        r#"
        plans.gold = ["g"]
        [copies.x]
        limit = 50
        global = 20
        plans.gold = 40
        domains = { small = 3, big = 30, even = 20 }
        groups.all = { limit = 21, members = ["small"] }
        "#,
    )
    .expect("the document is right");
    let x = limits.copies("x").expect("it is configured");
    assert_eq!(
        (
            x.limit,
            x.limit_of("big"),
            x.limit_of("small"),
            x.limit_of("g")
        ),
        (20, 20, 3, 20)
    );
    assert_eq!(x.groups["all"].limit, 20);
    let mut texts: Vec<String> = warnings.list.iter().map(ToString::to_string).collect();
    texts.sort();
    assert_eq!(
        texts,
        [
            r#"resource "x": domain "big": 30 is above the global limit, treated as 20"#,
            r#"resource "x": group "all": limit: 21 is above the global limit, treated as 20"#,
            r#"resource "x": limit: 50 is above the global limit, treated as 20"#,
            r#"resource "x": plan "gold": 40 is above the global limit, treated as 20"#,
        ]
    );
}

#[test]
fn normalisation_is_applied_with_a_warning() {
    let (limits, warnings) = Limits::parse_with_warnings(
        r#"
        [rate.x]
        tiers = [
          { limit = 5, window = "3s", active = "10s", cooldown = "1s" },
          { limit = 5, window = "1s", active = "0s" },
          { limit = 9, window = "20s", active = "7s" },
        ]
        domains.a.tiers = [{ limit = 1, window = "1s", active = "0s" }]
        "#,
    )
    .expect("the document is right");
    let tiers = [tier(5, 3, 9, 1, false), tier(9, 7, 7, 0, false)];
    assert_eq!(limits.class_of("x", "b"), Some(&class(&tiers, None)));
    assert_eq!(limits.class_of("x", "a"), Some(&class(&[], None)));
    let texts: Vec<String> = warnings.list.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#"resource "x": tier[1].active: "10s" is not a whole number of windows, treated as "9s""#,
            r#"resource "x": tier[2]: never active, left out"#,
            r#"resource "x": tier[3].window: "20s" is longer than the tier is active, treated as "7s""#,
            r#"resource "x": domain "a": tier[1]: never active, left out"#,
            r#"resource "x": domain "a": no tier is ever active, so these limits grant nothing"#,
            r#"resource "x": tier[2]: has no cooldown, so it adds to what is below it all the time: 14 in its window; for a burst expected a cooldown, or `bucket = { rate = "...", burst = ... }`"#,
        ]
    );
}

#[test]
fn an_unreachable_limit_is_warned_of() {
    let (_, warnings) = Limits::parse_with_warnings(
        r#"
        [rate.filled]
        hard = "10/s"
        tiers = [
          { limit = 20, window = "1s1us", active = "1s1us" },
          { limit = 1, window = "1s", active = "1s" },
        ]
        [rate.never]
        hard = "10/s"
        global = "9/s"
        tiers = [
          { limit = 11, window = "1s", active = "1s" },
          { limit = 30, window = "1s", active = "1s" },
        ]
        [rate.over]
        hard = "10/s"
        tiers = [
          { limit = 11, window = "1s", active = "1s", cooldown = "1s", skippable = true },
          { limit = 5, window = "1s", active = "1s" },
        ]
        [rate.over_in_name_only]
        hard = "10/s"
        tiers = [
          { limit = 11, window = "1s", active = "1s", skippable = true },
          { limit = 5, window = "1s", active = "1s" },
        ]
        [rate.passed_through]
        hard = "10/s"
        global = "10/s"
        tiers = [
          { limit = 10, window = "1s", active = "1s" },
          { limit = 0, window = "1s", active = "1s" },
          { limit = 1, window = "1s", active = "1s" },
        ]
        [rate.prison]
        tiers = [
          { limit = 5, window = "1s", active = "1s" },
          { limit = 0, window = "1s", active = "1m" },
        ]
        [rate.ban]
        rate = "0/s"
        [rate.big]
        tiers = [{ limit = 50000, window = "1m", active = "1m" }]
        windows = ["9000/h"]
        domains = { a.windows = ["8000/h"], b.windows = ["4096/s", "4097/m", "9000/h"], c.windows = ["4096/s", "4097/m", "9000/h"] }
        "#,
    )
    .expect("the document is right");
    let texts: Vec<String> = warnings.list.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#"resource "big": a domain at its limit takes about 64.0 KiB of state, above 64 KiB"#,
            r#"resource "big": domain "b": a domain at its limit takes about 96.1 KiB of state, above 64 KiB (and 1 more domain)"#,
            r#"resource "never": hard: "10/s" for one domain is above "9/s" for all together"#,
            r#"resource "never": tier[1].limit: 11 is never reached without excess: hard = "10/s" lets at most 10 through in a window"#,
            r#"resource "never": tier[2]: never reached without excess, tier[1] below it is never full"#,
            r#"resource "over": tier[1].limit: 11 is never reached without excess: hard = "10/s" lets at most 10 through in a window"#,
            r#"resource "over_in_name_only": tier[1].limit: 11 is never reached without excess: hard = "10/s" lets at most 10 through in a window"#,
            r#"resource "over_in_name_only": tier[2]: never reached without excess, tier[1] below it is never full"#,
            r#"resource "prison": tier[2]: never entered: a refused hit enters nothing (a prison grants one: limit = 1)"#,
        ]
    );
    assert!(matches!(
        warnings.list[0].kind,
        WarningKind::ManyBytes { bytes: 65_624 }
    ));
}
