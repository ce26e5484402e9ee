//! Tests of what agents learn of limits.

use tollgate_shared::time::Span;

use super::*;

#[test]
fn limits_that_grant_nothing_are_refused_by_the_agent() {
    let limits = Limits::parse(
        r#"
            [rate.closed]
            tiers = []
            [rate.zero]
            rate = "0/s"
            [rate.none]
            rate = "5/s"
            hard = "0/s"
            [rate.some]
            tiers = []
            domains.acme.rate = "5/s"
            [rate.shown]
            tiers = []
            shadow = true
            [rate.open]
            rate = "1/s"
            "#,
    )
    .expect("it is right");
    let refused: Vec<&str> = ["closed", "zero", "none", "some", "shown", "open"]
        .into_iter()
        .filter(|resource| limits.public(resource, 1).refused)
        .collect();
    assert_eq!(refused, ["closed", "zero", "none"]);
}

#[test]
fn what_agents_learn_is_compared_whatever_they_use() {
    let base = r#"
            [namespace.api]
            blind = "closed"
            [rate."api.*"]
            rate = "5/s"
            domains.acme.rate = "6/s"
            [copies.box]
            limit = 3
            [descriptors.envoy]
            rules = [{ keys = ["tenant"], resource = "api.x", domain = "{tenant}" }]
            "#;
    let parse = |text: &str| Limits::parse(text).unwrap_or_else(|faults| panic!("{faults}"));
    let limits = parse(base);
    let equals = |from: &str, to: &str| {
        assert!(base.contains(from), "{from}");
        let other = parse(&base.replace(from, to));
        let equal = limits.is_public_equal(&other);
        assert_eq!(equal, other.is_public_equal(&limits), "{to}");
        equal
    };
    assert!(equals("[namespace.api]", "[namespace.api]"));
    let one_more = "domains.acme.rate = \"6/s\"\ndomains.zeta.rate = \"5/s\"";
    assert!(equals("domains.acme.rate = \"6/s\"", one_more));
    for (from, to) in [
        ("\"closed\"", "\"open\""),
        ("rate = \"5/s\"", "rate = \"4/s\""),
        ("limit = 3", "limit = 3\nreserve = \"strict\""),
        (
            "[copies.box]",
            "[rate.\"api.own\"]\nrate = \"1/s\"\n[copies.box]",
        ),
        (
            "[copies.box]",
            "[namespace.old]\nignore_configured = true\n[copies.box]",
        ),
        ("\"api.x\"", "\"api.y\""),
    ] {
        assert!(!equals(from, to), "{to}");
    }
}

/// A pattern for all namespaces, beside namespaces that state `blind` otherwise than all others.
const SPANNING: &str = r#"
            [namespace."*"]
            blind = { local = "7/s" }
            [namespace.pay]
            blind = "closed"
            [namespace.op]
            blind = "open"
            [rate."*"]
            rate = "100/s"
            [rate."o*"]
            rate = "10/s"
            [rate."pay.own"]
            rate = "1/s"
            "#;

#[test]
fn a_pattern_leaves_blind_to_the_namespace_of_each_name() {
    let limits = Limits::parse(SPANNING).expect("it is right");
    let local = PublicBlind::Local {
        limit: 7,
        window: Span::from_secs(1),
    };
    for (resource, blind) in [
        ("pay.own", PublicBlind::Closed),
        ("pay.x", PublicBlind::Closed),
        ("pay", PublicBlind::Closed),
        ("op.x", PublicBlind::Open),
        ("of", local),
        ("web.x", local),
    ] {
        assert_eq!(limits.public(resource, 1).blind, blind, "{resource}");
        assert_eq!(public_blind(limits.blind_of(resource)), blind, "{resource}");
    }
    let open = SPANNING.replace("\"closed\"", "\"open\"");
    let open = Limits::parse(&open).expect("it is right");
    assert!(!open.is_public_equal(&limits));
    let printed = limits.normalised_text();
    assert_eq!(Limits::parse(&printed), Ok(limits), "{printed}");
    let stated =
        "[namespace.pay]\nblind = \"closed\"\n[rate.\"*\"]\nrate = \"1/s\"\nblind = \"open\"\n";
    let stated = Limits::parse(stated).expect("it is right");
    assert_eq!(stated.public("pay.x", 1).blind, PublicBlind::Open);
}

const OF_BOTH_KINDS: &str = r#"
            [namespace.api]
            allow_unconfigured = false
            blind = "closed"
            [namespace.old]
            ignore_configured = true
            [rate."api.search"]
            hard = "200/s"
            global = "500/s"
            blind = { local = "6/m" }
            tiers = [{ limit = 5, window = "2s", active = "4s", cooldown = "1s" }]
            domains.acme.rate = "9/s"
            [rate."api.export"]
            rate = "1/s"
            shadow = true
            [rate."old.thing"]
            rate = "1/s"
            [copies."api.box"]
            limit = 3
            global = 7
            reserve = "strict"
            on_excess = "give-back"
            max_age = "1h"
            groups.new = { limit = 2, members = ["b", "a"] }
            groups.all = { limit = 9, members = ["a"] }
            "#;

/// What agents learn of a resource of this document.
fn public(resource: &str) -> Public {
    let limits = Limits::parse(OF_BOTH_KINDS).expect("it is right");
    limits.public(resource, 7)
}

#[test]
fn agents_learn_no_limits_of_single_domains() {
    let search = Public {
        version: 7,
        kind: Kind::Rate,
        tiers: [PublicTier {
            limit: 5,
            window: Span::from_secs(2),
        }]
        .into(),
        hard: Some(200),
        most: Some(9),
        least: Some(0),
        global: Some(500),
        has_overrides: true,
        blind: PublicBlind::Local {
            limit: 6,
            window: Span::from_secs(60),
        },
        refused: false,
        ignored: false,
        ..Public::default()
    };
    assert_eq!(public("api.search"), search);
    assert!(public("api.export").ignored && !public("api.export").has_overrides);
    assert!(public("old.thing").ignored);
    assert_eq!(public("api.search").copies, None);
    let unknown = public("api.unknown");
    assert_eq!((unknown.kind, unknown.refused), (Kind::Unconfigured, true));
    assert_eq!(unknown.blind, PublicBlind::Closed);
    assert!(!public("web").refused);
}

#[test]
fn agents_learn_the_groups_of_copies_with_their_members() {
    assert_eq!(public("api.box").kind, Kind::Copies);
    assert_eq!(public("api.box").blind, PublicBlind::Closed);
    let group = |name: &str, limit, members: &[&str]| PublicGroup {
        name: name.into(),
        limit,
        members: Some(members.iter().map(|name| (*name).into()).collect()),
    };
    let sandbox = PublicCopies {
        limit: 3,
        global: Some(7),
        reserve: Reserving::Strict,
        on_excess: OnExcess::GiveBack,
        max_age: Some(Span::from_secs(3_600)),
        agent_timeout: Span::from_secs(2),
        groups: [group("all", 7, &["a"]), group("new", 2, &["a", "b"])].into(),
    };
    assert_eq!(public("api.box").copies, Some(sandbox));
}

#[test]
fn agents_apply_the_least_limit_sooner_where_notices_are_late() {
    let limits = Limits::parse(
        r#"
            [rate.plain]
            windows = ["100/s", "500/m"]
            bucket = { rate = "50/s", burst = 80 }
            domains.acme.rate = "40/s"
            domains.prison.rate = "0/s"
            [rate.late]
            rate = "100/s"
            global = "1000/s"
            near = "5%"
            [rate.listed]
            tiers = []
            domains.acme.rate = "100/s"
            [rate.never]
            rate = "100/s"
            near = "0%"
            [rate.early]
            rate = "100/s"
            near = "60%"
            [rate.open]
            hard = "none"
            rate = "none"
            global = "70/s"
            "#,
    )
    .expect("it is right");
    let of = |name| {
        let public = limits.public(name, 1);
        (public.least, public.global)
    };
    assert_eq!(
        of("plain"),
        (Some(40), None),
        "a single domain that is granted nothing is left out"
    );
    assert_eq!(of("late"), (Some(25), Some(250)));
    assert_eq!(of("never"), (Some(0), None));
    assert_eq!(of("listed"), (Some(100), None), "agents know who is listed");
    assert_eq!(of("early"), (Some(100), None));
    assert_eq!(of("open"), (None, Some(70)));
}

#[test]
fn agents_learn_what_no_domain_may_exceed_with_overrides() {
    let limits = Limits::parse(
        "version = 1\nrules = 2\n[copies.box]\nlimit = 3\nglobal = 90\ndomains = { a = 50, b = 1 }\n\
         [copies.few]\nlimit = 3\ndomains = { a = 2 }\n[copies.one]\nlimit = 3\n",
    )
    .expect("it is right");
    let greatest = |limits: &Limits, name| {
        let copies = limits.public(name, 1).copies;
        copies.and_then(|copies| copies.global)
    };
    assert_eq!(greatest(&limits, "box"), Some(50));
    assert_eq!(greatest(&limits, "few"), Some(3), "the default is above it");
    assert_eq!(greatest(&limits, "one"), None, "it is the default");
    let own = |limit| crate::Own {
        limit: Some(limit),
        ..crate::Own::default()
    };
    let raised = limits
        .with_own("box", "c", Some(&own(900)))
        .expect("it may");
    assert_eq!(
        greatest(&raised, "box"),
        Some(90),
        "and what is changed since"
    );
}

#[test]
fn members_that_do_not_fit_are_left_out_group_by_group() {
    let limits = Limits::parse(
        "version = 1\nrules = 2\n[copies.box]\nlimit = 3\n\
         groups.a = { limit = 2, members = [\"one\", \"two\", \"three\"] }\n\
         groups.b = { limit = 2, members = [\"one\"] }\n",
    )
    .expect("it is right");
    let copies = limits.copies("box").expect("box");
    let public_group = |bytes| {
        let groups = public_groups(copies, bytes);
        let members = |group: &PublicGroup| group.members.as_ref().map(|of| of.len());
        groups.iter().map(members).collect::<Vec<_>>()
    };
    assert_eq!(public_group(1_000), [Some(3), Some(1)]);
    assert_eq!(public_group(107), [None, Some(1)]);
    assert_eq!(public_group(98), [None, None]);
    assert_eq!(public_group(49), [None]);
    assert_eq!(public_group(48), []);
}
