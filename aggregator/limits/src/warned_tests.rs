//! Tests of warnings: documents that are valid, and what `tollgate check` says of them.
//!
//! Knows nothing of how a warning is found. What stays true: each test has a document beside it that is not warned of.

use super::check;

/// The warnings about a document.
#[track_caller]
fn warned(text: &str) -> Vec<String> {
    let report = check(text, "my.toml");
    assert!(report.good, "{report}");
    report.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_decimal_rate_that_becomes_a_burst_is_warned_of() {
    let of = |rate: &str| warned(&format!("rate.x.windows = [\"9000/m\", \"{rate}\"]"));
    let expected = "resource \"x\": windows[1]: treated as \"10001/10s\", all of which may come at once: a number with \
                    decimal places is whole hits in a longer window";
    assert_eq!(of("1000.1/s")[0], expected);
    for rate in ["0.5/s", "0.25/m", "2.0/s", "100/s"] {
        let found = of(rate);
        assert!(!found.iter().any(|of| of.contains("at once")), "{found:?}");
    }
    let bucket = "rate.x.bucket = { rate = \"100.5/s\", burst = 200 }";
    assert_eq!(warned(bucket), [""; 0]);
}

/// What is warned of, by the code of the warning and the resource.
fn beyond(text: &str) -> bool {
    let report = check(text, "my.toml");
    assert!(report.good, "{report}");
    let mut codes = report.warnings.iter().map(|of| of.kind.code());
    codes.any(|code| code == "closed_beyond_bound")
}

#[test]
fn closed_lists_of_every_kind_are_warned_of_beyond_their_bounds() {
    let domains = |count: u32, value: &str| {
        let of = |n: u32| format!("tenant-{n:06} = {value}\n");
        (0..count).map(of).collect::<String>()
    };
    let networks = |count: u32, value: &str| {
        let of = |n: u32| format!("\"10.{}.{}.0/24\" = {value}\n", n / 256, n % 256);
        (0..count).map(of).collect::<String>()
    };
    let copies = |domains: &str| format!("[copies.j]\nlimit = 5\n[copies.j.domains]\n{domains}");
    let rate = |domains: &str| format!("[rate.r]\nrate = \"5/s\"\n[rate.r.domains]\n{domains}");
    let (zero, nine) = ("{ rate = \"0/s\" }", "{ rate = \"9/s\" }");
    let one = "\"2001:db8::/32\" = ";
    for (text, is_beyond) in [
        (copies(&domains(3_000, "0")), true),
        (copies(&domains(1_000, "0")), false),
        (copies(&networks(600, "0")), true),
        (copies(&networks(500, "0")), false),
        (rate(&networks(600, zero)), true),
        (rate(&networks(500, zero)), false),
        (rate(&format!("{}{one}{zero}", domains(10_001, nine))), true),
        (rate(&format!("{}{one}{zero}", domains(9_000, nine))), false),
        (
            rate(&format!("{}acme = {zero}", domains(10_001, nine))),
            false,
        ),
        (copies(&format!("{}acme = 0", domains(10_001, "9"))), true),
        (copies(&format!("{}{one}0", domains(10_001, "9"))), true),
        (copies(&domains(10_001, "9")), false),
    ] {
        let shown = text.lines().last().unwrap_or_default();
        assert_eq!(beyond(&text), is_beyond, "{} bytes, {shown}", text.len());
    }
    // Wider ones beside them are learnt first, and contain the others.
    let wide = format!("{}\"10.0.0.0/8\" = 0", networks(600, "0"));
    assert!(!beyond(&copies(&wide)));
}

#[test]
fn a_candidate_that_grants_nothing_is_warned_of() {
    let of = |candidate: &str| {
        warned(&format!(
            "rate.x = {{ domains.acme.rate = \"9/s\", candidate = {{ {candidate} }} }}"
        ))
    };
    let expected = "resource \"x\": candidate: grants nothing, because the resource states no limit itself; promoted, it \
                    would be the only limits of the resource and let all in (tiers = \"none\" in the candidate has that \
                    effect already now)";
    assert_eq!(of("hard = \"5/s\""), [expected]);
    for candidate in [
        "rate = \"5/s\"",
        "hard = \"5/s\", tiers = \"none\"",
        "tiers = []",
    ] {
        assert_eq!(of(candidate), [""; 0], "{candidate}");
    }
    // There, promoting it closes the resource, too.
    let stated = "rate.x = { tiers = [], candidate.hard = \"5/s\" }";
    assert_eq!(warned(stated), [""; 0]);
}

#[test]
fn a_rule_that_earlier_ones_cover_is_warned_of() {
    let of = |keys: &[&str]| {
        let rule =
            |keys: &&str| format!("{{ keys = [{keys}], resource = \"edge\", domain = \"all\" }}");
        let rules: Vec<String> = keys.iter().map(rule).collect();
        warned(&format!(
            "rate.edge.rate = \"5/s\"\ndescriptors.d.rules = [{}]",
            rules.join(", ")
        ))
    };
    let covered = "descriptors \"d\": rule[2]: never matches: rule[1] matches all that it does, and comes first";
    for keys in [
        ["\"path\"", "\"path=/search*\""],
        ["\"path=/s*\"", "\"path=/search\""],
        ["\"path=/s*\", \"method\"", "\"path=/s*\", \"method=GET\""],
        ["\"path!=/a\"", "\"path=/b\""],
        ["\"path!=/a*\"", "\"path!=/*\""],
        ["\"path!=/a\"", "\"path!=/a*\""],
        ["\"path\"", "\"path\""],
    ] {
        assert_eq!(of(&keys), [covered], "{keys:?}");
    }
    for keys in [
        ["\"path=/search\"", "\"path=/s*\""],
        ["\"path\"", "\"path\", \"method\""],
        ["\"path\"", "\"route=/search\""],
        ["\"path!=/a*\"", "\"path!=/a\""],
        ["\"path!=/a\"", "\"path=/*\""],
    ] {
        assert_eq!(of(&keys)[..], [""; 0], "{keys:?}");
    }
}

#[test]
fn a_rule_for_a_resource_without_limits_is_warned_of() {
    let of = |resource: &str| {
        warned(&format!(
            "rate.\"api.search\".rate = \"5/s\"\nrate.\"web.*\".rate = \"5/s\"\ncopies.jobs.limit = 4\n\
             descriptors.d.rules = [{{ keys = [\"path\"], resource = \"{resource}\", domain = \"all\" }}]"
        ))
    };
    let expected =
        "descriptors \"d\": rule[1]: resource \"api.serach\": has no limits in this document";
    assert_eq!(of("api.serach"), [expected]);
    for resource in ["api.search", "web.x", "jobs", "api.{path}"] {
        assert_eq!(of(resource), [""; 0], "{resource}");
    }
}

#[test]
fn a_plan_without_effect_is_warned_of() {
    let text = "plans = { gold = [\"acme\"], none = [], unused = [\"globex\"] }\nrate.x = { rate = \"9/s\", plans = { \
                gold = { rate = \"99/s\" }, none = { rate = \"1/s\" } } }\n";
    let expected = [
        "plan \"none\": has no members",
        "plan \"unused\": no resource states limits for it",
    ];
    assert_eq!(warned(text), expected);
    let copies = format!("{text}copies.y = {{ limit = 4, plans.unused = 9 }}\n");
    assert_eq!(warned(&copies), expected[..1]);
}

#[test]
fn copies_of_an_address_count_by_its_spelling() {
    let of = |limits: &str| {
        warned(&format!(
            "copies.x = {{ limit = 9, domains = {{ {limits} }} }}"
        ))
    };
    let found = of("\"192.0.2.1\" = 5, \"2001:db8::1\" = 6, acme = 7");
    let expected = "resource \"x\": domain \"192.0.2.1\": each spelling of this address holds copies by itself, as \
                    ::ffff:192.0.2.1 beside 192.0.2.1: callers have to pass addresses in one spelling (and 1 more \
                    domain)";
    assert_eq!(found, [expected]);
    // What may have no copies has none in any spelling.
    assert_eq!(of("\"192.0.2.1\" = 0, \"10.0.0.0/8\" = 5"), [""; 0]);
}

#[test]
fn a_window_that_never_binds_is_named_as_it_is_stated() {
    let of = |limits: &str| {
        let found = warned(&format!("[rate.x]\nhard = \"5/s\"\n{limits}"));
        assert_eq!(found.len(), 1, "{found:?}");
        let (path, _) = found[0].split_once(": never reached").expect("it says so");
        path.to_owned()
    };
    assert_eq!(of("rate = \"9/s\""), "resource \"x\": rate");
    assert_eq!(of("windows = [\"9/s\"]"), "resource \"x\": windows[0]");
    assert_eq!(of("windows = \"9/s\""), "resource \"x\": windows[0]");
    for (limits, expected) in [
        (
            "rate = \"2/s\"\ndomains.a.windows = [\"9/s\"]",
            "domain \"a\": windows[0]",
        ),
        (
            "windows = [\"2/s\"]\ndomains.a.rate = \"9/s\"",
            "domain \"a\": rate",
        ),
        (
            "rate = \"2/s\"\ncandidate.windows = [\"9/s\"]",
            "candidate: windows[0]",
        ),
    ] {
        assert_eq!(of(limits), format!("resource \"x\": {expected}"));
    }
}

#[test]
fn too_many_bytes_are_named_with_their_line() {
    let windows: Vec<String> = (1..=16).map(|n| format!("\"{n}000000/{n}h\"")).collect();
    let windows = format!("windows = [{}]", windows.join(", "));
    let of = |text: &str| {
        let report = check(text, "my.toml");
        let lines: Vec<Option<u32>> = report.faults.iter().map(|fault| fault.line).collect();
        assert!(
            report.to_string().contains("of state, expected"),
            "{report}"
        );
        lines
    };
    assert_eq!(of(&format!("\n[rate.x]\n{windows}")), [Some(2)]);
    let domain = format!("[rate.x]\nrate = \"1/s\"\n[rate.x.domains.acme]\n{windows}");
    assert_eq!(of(&domain), [Some(3)]);
}

#[test]
fn tiers_that_are_never_active_say_whom_they_refuse() {
    let text = "[rate.x]\ntiers = [{ limit = 1, window = \"1s\", active = \"0s\" }]\ndomains.acme.rate = \"5/s\"\n";
    let expected = "resource \"x\": no tier is ever active, so these limits grant nothing";
    assert_eq!(warned(text)[1], expected);
}

#[test]
fn a_table_of_a_fixed_zone_is_warned_of() {
    for zone in ["UTC", "+01:00"] {
        let text = format!(
            "zones.\"{zone}\".offsets = [\"+02:00\"]\nrate.x = {{ quota = \"9/day\", zone = \"{zone}\" }}\n"
        );
        let expected =
            format!("zone \"{zone}\": this table has no effect: the zone's name states its offset");
        assert_eq!(warned(&text), [expected]);
    }
    let own =
        "zones.Home.offsets = [\"+02:00\"]\nrate.x = { quota = \"9/day\", zone = \"Home\" }\n";
    assert_eq!(warned(own), [""; 0]);
}

#[test]
fn names_with_characters_that_nobody_sees_are_warned_of() {
    let of = |name: &str| {
        warned(&format!(
            "rate.x = {{ rate = \"5/s\", domains.\"{name}\".rate = \"9/s\" }}"
        ))
    };
    for name in [
        "acme ",
        " acme",
        "ac\u{200b}me",
        "\u{feff}acme",
        "acme\u{a0}",
        "ac\u{ad}me",
    ] {
        let found = of(name);
        let expected = "has white space at an end, or a character that is not seen: calls have to pass the same name";
        assert!(
            found.len() == 1 && found[0].ends_with(expected),
            "{name:?} {found:?}"
        );
    }
    for name in [
        "acme",
        "acme inc",
        "日本",
        "é",
        "\u{1f469}\u{200d}\u{1f680}",
    ] {
        assert_eq!(of(name), [""; 0], "{name}");
    }
    let plan = "plans.p = [\"acme \"]\nrate.x = { rate = \"5/s\", plans.p.rate = \"9/s\" }\n";
    assert_eq!(warned(plan).len(), 1);
}
