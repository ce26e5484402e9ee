//! Promises about all documents: what was read can be printed and read again, any input gets an
//! answer, and order and spelling change nothing.

use std::fmt::Write as _;

use proptest::prelude::*;
use tollgate_shared::networks::{NetworkName, network};

use super::schema_tests::schema_faults;
use super::{Limits, Own, Revision, check};

/// One resource's table, as a person might write it, with random names and values.
fn rate_resource() -> impl Strategy<Value = String> {
    let overrides = prop::collection::btree_map(domain(), limits(), 0..6);
    let blind = prop::sample::select(vec![
        "",
        "blind = \"open\"",
        "blind = \"closed\"",
        "blind = { local = \"7/m\" }",
    ]);
    let global = prop::option::of(0u64..99_999);
    let shadow = prop::sample::select(vec!["", "shadow = true", "shadow = false"]);
    (
        usual(),
        hard(),
        overrides,
        blind,
        global,
        shadow,
        prop::option::of(limits()),
    )
        .prop_map(
            |(usual, hard, overrides, blind, global, shadow, candidate)| {
                let usual = usual.replace("], bucket", "]\nbucket");
                let mut text = format!("{usual}\n{hard}\n{blind}\n{shadow}\nlarge_state = true\n");
                if let Some(global) = global {
                    let _ = writeln!(text, "global = \"{global}/s\"");
                }
                if let Some(candidate) = candidate {
                    let _ = writeln!(text, "candidate = {{ {candidate} }}");
                }
                for (domain, limits) in overrides {
                    let _ = writeln!(text, "domains.{domain:?} = {{ {limits} }}");
                }
                text
            },
        )
}

fn copies_resource() -> impl Strategy<Value = String> {
    let reserve =
        prop::sample::select(vec!["", "reserve = \"strict\"", "reserve = \"optimistic\""]);
    let members = prop::collection::btree_set(domain(), 0..4);
    let domains = prop::collection::btree_map(domain(), 0u64..99, 0..4);
    (
        0u64..99,
        prop::option::of(0u64..50),
        reserve,
        0u64..99,
        members,
        domains,
    )
        .prop_map(|(limit, global, reserve, group, members, domains)| {
            let mut text = format!("limit = {limit}\n{reserve}\n");
            if let Some(global) = global {
                let _ = writeln!(text, "global = {global}\nmax_age = \"{}s\"", global + 1);
            }
            let members: Vec<String> = members.iter().map(|m| format!("{m:?}")).collect();
            let members = members.join(", ");
            let _ = writeln!(
                text,
                "groups.g = {{ limit = {group}, members = [{members}] }}"
            );
            for (domain, limit) in domains {
                let _ = writeln!(text, "domains.{domain:?} = {limit}");
            }
            text
        })
}

/// Fields for one line: the usual constraint or `none`, a hard limit, quotas.
fn limits() -> impl Strategy<Value = String> {
    let hard = prop_oneof![
        3 => Just(String::new()),
        2 => (0u64..999).prop_map(|h| format!("hard = \"{h}/s\"")),
        1 => Just("hard = \"none\"".to_owned()),
    ];
    let none = prop::sample::select(vec![
        "",
        "rate = \"none\"",
        "bucket = \"none\"",
        "tiers = \"none\"",
    ]);
    let usual = prop_oneof![3 => usual(), 1 => none.prop_map(str::to_owned)];
    (usual, hard, quotas()).prop_map(|parts| {
        let parts = [parts.0, parts.1, parts.2];
        let texts: Vec<&str> = parts
            .iter()
            .map(String::as_str)
            .filter(|p| !p.is_empty())
            .collect();
        texts.join(", ")
    })
}

fn hard() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        (0u64..9_999).prop_map(|hard| format!("hard = \"{hard}/s\"")),
    ]
}

fn quotas() -> impl Strategy<Value = String> {
    let quota = (
        0u64..9_999,
        prop::sample::select(vec!["day", "week", "month", "year"]),
    )
        .prop_map(|(limit, unit)| format!("\"{limit}/{unit}\""));
    let zone = prop::sample::select(vec!["UTC", "+05:45", "Europe/Berlin", "America/St_Johns"]);
    let stated =
        (prop::collection::vec(quota, 1..3), prop::option::of(zone)).prop_map(|(quotas, zone)| {
            let zone = zone.map_or(String::new(), |zone| format!(", zone = \"{zone}\""));
            format!("quota = [{}]{zone}", quotas.join(", "))
        });
    prop_oneof![
        4 => Just(String::new()),
        2 => stated,
        1 => Just("quota = \"none\", refunds = false".to_owned()),
    ]
}

fn a_rate() -> impl Strategy<Value = String> {
    let unit = prop::sample::select(vec!["s", "m", "h", "d", "w", "15s", "1m30s", "250ms"]);
    (0u64..9_999, unit).prop_map(|(hits, unit)| format!("\"{hits}/{unit}\""))
}

fn usual() -> impl Strategy<Value = String> {
    let rate = a_rate().prop_map(|rate| format!("rate = {rate}"));
    let windows = || {
        prop::collection::vec(a_rate(), 1..4)
            .prop_map(|windows| format!("windows = [{}]", windows.join(", ")))
    };
    let bucket = || {
        (1u64..9_999, 1u64..99, 1u64..9_999).prop_map(|(hits, seconds, burst)| {
            format!("bucket = {{ rate = \"{hits}/{seconds}s\", burst = {burst} }}")
        })
    };
    let tiers = prop::collection::vec(tier(), 0..4)
        .prop_map(|tiers| format!("tiers = [{}]", tiers.join(", ")));
    let both = (windows(), bucket()).prop_map(|(w, b)| format!("{w}, {b}"));
    prop_oneof![rate, windows(), bucket(), tiers, both]
}

fn tier() -> impl Strategy<Value = String> {
    let span = || {
        prop_oneof![
            (1u64..9_999).prop_map(|ms| format!("{ms}ms")),
            (1_000u64..9_999_999).prop_map(|us| format!("{us}us")),
            (0u64..99, 0u64..99).prop_map(|(h, s)| format!("{h}h{}s", s + 1)),
        ]
    };
    let active = prop_oneof![9 => span(), 1 => Just("0s".to_owned())];
    (
        0u64..9_999,
        span(),
        active,
        prop::option::of(span()),
        any::<bool>(),
    )
        .prop_map(|(limit, window, active, cooldown, skippable)| {
            let cooldown = cooldown.map_or(String::new(), |c| format!(", cooldown = \"{c}\""));
            format!(
                "{{ limit = {limit}, window = \"{window}\", active = \"{active}\"{cooldown}, \
                 skippable = {skippable} }}"
            )
        })
}

/// Names with every kind of character that a name may have and a key must quote.
fn domain() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,3}",
        "[a-z0-9._:/ '#=\\[\\]{}-]{1,12}",
        // Rust's Debug and TOML's strings escape these alike.
        "[\"\\\\äß漢]{1,4}",
        // Networks in canonical spelling.
        (0u8..99, 8u8..33).prop_map(|(byte, bits)| match bits {
            32 => format!("10.0.0.{byte}"),
            bits => format!("{byte}.0.0.0/{bits}"),
        }),
    ]
    .prop_filter("names that are nearly networks", |name| {
        let nearly = [NetworkName::Length];
        let kind = network(name);
        !nearly.contains(&kind) && !matches!(kind, NetworkName::HostBits(_))
    })
}

fn document() -> impl Strategy<Value = String> {
    let rates = prop::collection::btree_map("[a-c](\\.[a-c]){0,1}\\*?", rate_resource(), 0..4);
    let copies = prop::collection::btree_map("[d-f](\\.[a-c]){0,1}", copies_resource(), 0..3);
    let switches = (any::<bool>(), any::<bool>());
    (rates, copies, switches, 1u64..9).prop_map(|(rates, copies, (allow, ignore), halves)| {
        let mut text = format!(
            "[engine]\nagent_timeout = \"{}ms\"\n[namespace.'*']\nallow_unconfigured = {allow}\n\
             [namespace.a]\nignore_configured = {ignore}\nblind = \"closed\"\n",
            1_000 + halves * 500
        );
        for (name, fields) in rates {
            let fields = match name.ends_with('*') {
                true => without_global(&fields),
                false => fields,
            };
            let _ = writeln!(text, "[rate.{name:?}]\n{fields}");
        }
        for (name, fields) in copies {
            let _ = writeln!(text, "[copies.{name:?}]\n{fields}");
        }
        text
    })
}

/// A pattern has no global limit: each of its resources is limited by itself.
fn without_global(fields: &str) -> String {
    let lines = fields.lines().filter(|line| !line.starts_with("global"));
    lines.collect::<Vec<_>>().join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn printed_limits_read_back_equal(text in document()) {
        let limits = Limits::parse(&text).map_err(|faults| {
            TestCaseError::fail(format!("{faults}\n{text}"))
        })?;
        let printed = limits.normalised_text();
        match Limits::parse_with_warnings(&printed) {
            Err(faults) => prop_assert!(false, "{}\n{}", faults, printed),
            Ok((again, _)) => {
                prop_assert_eq!(again.normalised_text(), printed);
                prop_assert_eq!(again, limits);
            }
        }
    }

    #[test]
    fn a_report_on_a_good_document_is_itself_that_document(text in document()) {
        let report = check(&text, "some.toml");
        prop_assert!(report.good);
        prop_assert_eq!(Limits::parse(&report.to_string()), Limits::parse(&text));
    }

    #[test]
    fn the_schema_allows_valid_documents(text in document()) {
        let limits = Limits::parse(&text).map_err(|f| TestCaseError::fail(f.to_string()))?;
        for text in [text, limits.normalised_text()] {
            prop_assert_eq!(schema_faults(&text), Vec::<String>::new(), "{}", text);
        }
    }

    #[test]
    fn every_class_is_used_by_a_domain(text in document()) {
        let limits = Limits::parse(&text).map_err(|f| TestCaseError::fail(f.to_string()))?;
        let mut used = vec![false; limits.classes().len()];
        for rate in limits.rates() {
            let default = rate.stated();
            for (domain, over) in rate.overrides() {
                let class = limits.class(rate.class_of(domain));
                let expected = over.stated.clone().over_default(default);
                prop_assert_eq!(class, &expected.class());
                prop_assert_eq!(rate.candidate_class_of(domain).is_some(), rate.candidate().is_some());
                used[over.class.0 as usize] = true;
                over.candidate.into_iter().for_each(|id| used[id.0 as usize] = true);
            }
            used[rate.default_class().0 as usize] = true;
            let candidate = rate.candidate_class_of("nobody has this name");
            candidate.into_iter().for_each(|id| used[id.0 as usize] = true);
        }
        prop_assert!(used.into_iter().all(|used| used));
        prop_assert!(limits.classes().windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_broken_document_gets_a_report(
        text in document(),
        breaks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte, how) in breaks {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let report = check(&text, "broken.toml");
        prop_assert_eq!(report.good, report.faults.is_empty());
        prop_assert!(report.faults.iter().all(|fault| fault.line != Some(0)));
        let _ = report.to_string();
    }

    #[test]
    fn any_text_gets_a_report(text in "\\PC{0,200}", lines in "([a-z.=\"\\[\\]{} 0-9*\\\\]{0,20}\n){0,8}") {
        let _ = (check(&text, "any").to_string(), check(&lines, "any").to_string());
    }
}

#[test]
fn order_and_spelling_change_nothing() {
    let one = Limits::parse(
        r#"
        plans = { gold = ["b", "a"], silver = ["d"] }
        [rate.y]
        rate = "6/m"
        [rate.x]
        rate = "1/s"
        plans.gold = { rate = "9/s" }
        plans.silver = { rate = "3/s" }
        domains.c = { rate = "2/s" }
        domains.d = { rate = "4/s" }
        "#,
    );
    // Other statements come first here, and one that only the plan stated is not used at all.
    let other = Limits::parse(
        r#"
        plans = { lead = ["d"], gold = ["c"] }
        [rate]
        x = { rate = "1/s", domains = { a.rate = "9/s", b.rate = "9/s" }, plans = { gold.rate = "2/s", lead.rate = "4/s" } }
        y.windows = ["6 per minute"]
        "#,
    );
    assert!(one.is_ok());
    assert_eq!(one, other);
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    for nest in ["[", "{ a = "] {
        let report = check(&format!("x = {}", nest.repeat(100_000)), "deep.toml");
        assert!(!report.good);
    }
}

#[test]
fn a_million_rows_outlast_a_change_of_document() {
    const DOMAINS: usize = 1_000_000;
    let document = |rate: u32| {
        let text = format!("[rate.x]\nrate = \"{rate}/s\"\ndomains.tenant-7.hard = \"3/s\"\n");
        Limits::parse(&text).expect("it is right")
    };
    let own = Own {
        rate: Some("9/s".into()),
        ..Own::default()
    };
    let mut revision = Revision::of(&document(1));
    for n in 0..DOMAINS {
        let set = revision.set("x", &format!("tenant-{n}"), Some(&own));
        set.expect("it can be set");
    }
    let limits = document(2)
        .with_rows_of(&revision.limits())
        .expect("they fit");
    let rate = limits.rate("x").expect("it is configured");
    assert_eq!(
        (limits.rows_len(), limits.rows().count()),
        (DOMAINS, DOMAINS)
    );
    let class = |domain| limits.class(rate.class_of(domain));
    assert_eq!(class("tenant-999999").windows[0].limit, 9);
    assert_eq!(class("tenant-1000000").windows[0].limit, 2);
    let both = class("tenant-7");
    assert_eq!((both.windows[0].limit, both.hard), (9, Some(3)));
}
