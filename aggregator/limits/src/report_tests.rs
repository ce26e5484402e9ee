//! Tests of the output of `tollgate check`, for people and for programs.

use super::{Limits, check};

const GOOD: &str = r#"
[plans]
gold = ["acme", "globex"]
[rate."api.search"]
hard = "200/s"
tiers = [{ limit = 100, window = "1s", active = "1500ms" }]
plans.gold.rate = "1000/s"
domains."203.0.113.7".rate = "5/s"
[copies.sandbox]
limit = 10
"#;

#[test]
fn a_good_document_is_printed_normalised_below_its_warnings() {
    let report = check(GOOD, "limits.toml");
    assert_eq!(
        report.to_string(),
        r#"# limits.toml: good, 2 resources, 3 warnings
# warning: resource "api.search": tier[1].active: "1s500ms" is not a whole number of windows, treated as "1s"
# warning: resource "api.search": domain "acme": rate: never reached without excess: 200 in "1s" lets at most 200 through in it (and 1 more domain)
# warning: resource "api.search": domain "203.0.113.7": each spelling of this address counts by itself, as ::ffff:192.0.2.1 beside 192.0.2.1: with `addresses` all of them count as one domain
#
# state of a domain at its limit, about:
#    2.4 KiB  api.search: a domain without an override
#    9.4 KiB  api.search: "acme" and 1 more
#    1.6 KiB  api.search: "203.0.113.7"

version = 1
rules = 2

[engine]
pairs_per_partition_max = 1000000
agent_timeout = "2s"
epochs_per_partition_max = 100000

[namespace."*"]
allow_unconfigured = true
ignore_configured = false
blind = "open"

[rate."api.search"]
tiers = [{ limit = 100, window = "1s", active = "1s" }]
hard = "200/s"
near = "20%"
blind = "open"
shadow = false

[rate."api.search".domains]
"203.0.113.7" = { rate = "5/s" }
acme = { rate = "1000/s" }
globex = { rate = "1000/s" }

[copies.sandbox]
limit = 10
reserve = "optimistic"
on_excess = "keep"
blind = "open"
"#
    );
    assert_eq!(Limits::parse(&report.to_string()), Limits::parse(GOOD));
}

#[test]
fn a_wrong_document_is_answered_with_its_faults() {
    let report = check("[rate.x]\nrat = \"5/s\"\n", "my.toml");
    assert_eq!(
        report.to_string(),
        "my.toml: resource \"x\": rat: unknown field, did you mean `rate`? (line 2)\n\
         my.toml: 1 fault\n"
    );
}

#[test]
fn programs_get_one_object() {
    let wrong = check("[rate.x]\nrate = \"5\"\n", "my.toml");
    let wrong = serde_json::to_value(wrong).expect("a report is plain data");
    assert_eq!(wrong["good"], false);
    let fault = serde_json::json!({
        "code": "value",
        "path": "resource \"x\": rate",
        "found": "\"5\"",
        "message": "expected a rate as \"100/s\", \"6000/m\", \"5/15s\", \"0.5/s\" or \"10 per minute\" (units s, m, h, d, w)",
        "line": 2,
        "column": 8,
    });
    assert_eq!(wrong["faults"], serde_json::json!([fault]));
    let good = check("rate.x.rate = \"5/s\"", "my.toml");
    let good = serde_json::to_value(good).expect("a report is plain data");
    assert_eq!(good["schema"], "tollgate.check/1");
    assert_eq!(good["good"], true);
    assert_eq!(
        good["resources"][0]["sizes"][0]["bytes_per_domain"],
        48 + 4 * 9
    );
    let changed = check("copies.x = { limit = 5, global = 3 }", "my.toml");
    let changed = serde_json::to_value(changed).expect("a report is plain data");
    let warning = serde_json::json!({
        "code": "lowered_to_global",
        "path": "resource \"x\": limit",
        "message": "5 is above the global limit, treated as 3",
        "before": "5",
        "after": "3",
        "further_domains": 0,
    });
    assert_eq!(changed["warnings"], serde_json::json!([warning]));
}

#[test]
fn only_the_greatest_of_many_kinds_of_limits_are_listed() {
    let mut text = String::from("[rate.x]\nrate = \"1/s\"\n");
    for n in 2..102 {
        text.push_str(&format!("domains.d{n}.rate = \"{n}/s\"\n"));
    }
    let report = check(&text, "limits.toml");
    let resource = &report.resources[0];
    assert_eq!((resource.sizes.len(), resource.sizes_omitted), (21, 80));
    assert_eq!(resource.sizes[0].domain, None);
    assert_eq!(resource.sizes[1].domain.as_deref(), Some("d101"));
    assert_eq!(resource.sizes[20].domain.as_deref(), Some("d82"));
}

/// Checks that the output for a document contains a text.
#[track_caller]
fn says(document: &str, text: &str) {
    let printed = check(document, "f").to_string();
    assert!(printed.contains(text), "{printed}\nhas not\n{text}");
}

#[test]
fn tiers_that_look_like_windows_are_warned_of() {
    let tier = |limit: u32, window: &str| {
        format!("{{ limit = {limit}, window = \"{window}\", active = \"{window}\" }}")
    };
    let tiers = |all: &[String]| format!("rate.x.tiers = [{}]", all.join(", "));
    let three = tiers(&[tier(10, "1s"), tier(100, "1m"), tier(1000, "1h")]);
    says(
        &three,
        "resource \"x\": tiers: tiers add up: one after the other they let 1110 through in the longest window, not \
         1000; if all of them are to hold at once, expected `windows` with the same numbers",
    );
    // A burst as a second tier of the same window is not a burst: it is always available.
    says(
        &tiers(&[tier(10, "1s"), tier(50, "1s")]),
        "resource \"x\": tier[2]: has no cooldown, so it adds to what is below it all the time: 60 in its window; for \
         a burst expected a cooldown, or `bucket = { rate = \"...\", burst = ... }`",
    );
}

#[test]
fn misleading_settings_are_explained() {
    for (document, text) in [
        (
            "[rate.api.search]\nrate = \"5/s\"",
            "resource \"api\": search: unknown field; the name of a resource with a dot needs quotes: expected \
             [rate.\"api.search\"] (line 1)",
        ),
        (
            "rate.x.windows = [\"100/s\", \"50/m\"]",
            "warning: resource \"x\": windows[0]: never reached without excess: 50 in \"1m\" lets at most 50 through in it",
        ),
        (
            "rate.x.hard = \"5/s\"\nrate.x.rate = \"900/m\"",
            "warning: resource \"x\": rate: never reached without excess: 5 in \"1s\" lets at most 300 through in it",
        ),
        (
            "rate.x.bucket = { rate = \"5/s\", burst = 0 }",
            "resource \"x\": bucket.burst = 0: expected a whole number of copies, from 1",
        ),
        (
            "rate.x = { quota = [\"9/day\"], zone = \"Europe/Berln\" }",
            "resource \"x\": zone = \"Europe/Berln\": no such time zone, did you mean \"Europe/Berlin\"?",
        ),
        (
            "rate.\"api.*.x\".rate = \"5/s\"",
            "resource \"api.*.x\": has `*` elsewhere than at its end, expected a pattern as \"api.*\" or \"*\"",
        ),
        (
            "rate.x = { rate = \"5/s\", domains.\"10.1.2.3/8\".rate = \"1/s\" }",
            "resource \"x\": domain \"10.1.2.3/8\": has address bits beyond its prefix length, expected \"10.0.0.0/8\"",
        ),
        (
            "rate.x = { rate = \"5/s\", domains.\"10.0.0.0/40\".rate = \"1/s\" }",
            "domain \"10.0.0.0/40\": expected a length of at most 32 (IPv4) or 128 (IPv6), as \"10.0.0.0/8\"",
        ),
        (
            "[rate.\"api.*\"]\nrate = \"5/s\"\n[rate.\"api.*\"]\nrate = \"6/s\"",
            "\"api.*\" stands in this document twice, expected once (line 3)",
        ),
        (
            "rate.\"api.*\".rate = \"5/s\"\ncopies.\"api.*\".limit = 4",
            "resource \"api.*\": contains `*`, which is reserved for patterns",
        ),
        (
            "rate.x = { rate = \"5/s\", domains = { \"10.0.0.0/8\" = { rate = \"1/s\" }, \"::ffff:10.0.0.0/104\" = \
             { rate = \"2/s\" } } }",
            "domain \"::ffff:10.0.0.0/104\": stands in this table twice: another entry is also \"10.0.0.0/8\"",
        ),
        ("rate.x.rate = \"0.3/s\"", "rate = \"3/10s\""),
        (
            "rate.x.rate = \"1/3000000000w\"",
            "resource \"x\": rate = \"1/3000000000w\": ",
        ),
        (
            "rate.x.bucket = { rate = \"7/11h\", burst = 4294967295 }",
            "resource \"x\": bucket",
        ),
        (
            "rate.x = { rate = \"5/s\", burst = 10 }",
            "resource \"x\": burst = 10: not allowed here, a bucket has a burst: expected bucket = { rate = \"100/s\", \
             burst = 500 } in place of `rate`",
        ),
    ] {
        says(document, text);
    }
}

#[test]
fn quotas_zones_and_names_that_mislead_are_warned_of() {
    for (document, text) in [
        (
            "rate.x.quota = [\"50/month\", \"60/day\"]",
            "warning: resource \"x\": quota[1]: never reached without excess: 50 in a month lets at most 50 through in it",
        ),
        (
            "rate.x.quota = [\"100/week\", \"60/month\"]",
            "warning: resource \"x\": quota[0]: not reached within a month, which has at most 60",
        ),
        (
            "rate.x = { rate = \"5/s\", zone = \"Europe/Berlin\" }",
            "warning: resource \"x\": zone: states when the periods of a quota begin, but there is no quota",
        ),
        (
            "rate.x = { rate = \"5/s\", domains.a.zone = \"Europe/Berlin\" }",
            "warning: resource \"x\": domain \"a\": zone: states when the periods",
        ),
        (
            "rate.x = { rate = \"5/s\", domains.\"10/8\".rate = \"1/s\" }",
            "warning: resource \"x\": domain \"10/8\": is a name, not a network, expected \"10.0.0.0/8\" if a network is meant",
        ),
        (
            "plans.p = [\"2001:db8/32\"]\nrate.x = { rate = \"5/s\", plans.p.rate = \"1/s\" }",
            "warning: plan \"p\"[1]: is a name, not a network, expected \"2001:db8::/32\" if a network is meant",
        ),
        (
            "rate.x = { rate = \"5/s\", addresses = { v4 = 24, v6 = 64 }, domains.\"203.0.113.9\".rate = \"1/s\" }",
            "warning: resource \"x\": domain \"203.0.113.9\": applies to all of \"203.0.113.0/24\", which `addresses` of this",
        ),
        (
            "plans.p = [\"2001:db8::9\"]\nrate.x = { rate = \"5/s\", addresses = { v4 = 32, v6 = 64 }, plans.p.rate = \"none\" }",
            "warning: resource \"x\": domain \"2001:db8::9\": applies to all of \"2001:db8::/64\"",
        ),
        (
            "copies.x = { limit = 4, groups.g = { limit = 2, members = [\"acme\", \"10.0.0.7\", \"10.0.0.0/8\"] } }",
            "warning: resource \"x\": group \"g\": members: \"10.0.0.0/8\" does not make its addresses members, expected",
        ),
        (
            "copies.x = { limit = 4, groups.g = { limit = 2, members = [\"::ffff:10.0.0.7\"] } }",
            "group \"g\": members: a member is spelt as calls do not spell it, expected \"10.0.0.7\"",
        ),
    ] {
        says(document, text);
    }
}

/// The warnings about a document.
#[track_caller]
fn warned(text: &str) -> Vec<String> {
    let report = check(text, "my.toml");
    assert!(report.good, "{report}");
    report.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn an_entry_that_does_not_let_its_domain_in_is_warned_of() {
    let text = r#"
[plans]
gold = ["globex", "hooli"]
[rate.list]
tiers = []
plans.gold.rate = "none"
[rate.list.domains]
acme.rate = "none"
closed.rate = "0/s"
empty.tiers = []
hard = { rate = "none", hard = "3/s" }
hooli.tiers = "none"
open = { rate = "none", tiers = "none" }
"#;
    let expected = "domain \"acme\": always refused: the resource lets in only domains with limits of their own, and \
                    this entry states none (tiers = \"none\" would let the domain in) (and 1 more domain)";
    assert_eq!(warned(text), [format!("resource \"list\": {expected}")]);
    let open = text.replace("tiers = []\nplans", "rate = \"5/s\"\nplans");
    assert_eq!(warned(&open), [""; 0]);
}

#[test]
fn addresses_that_count_by_their_spelling_are_warned_of() {
    let text = r#"
[rate.login]
rate = "9/m"
[rate.login.domains]
acme.rate = "5/m"
"10.0.0.0/8".rate = "5/m"
"192.0.2.1".rate = "0/m"
"192.0.2.2".rate = "none"
"192.0.2.3".rate = "5/m"
"2001:db8::1".rate = "6/m"
"#;
    let expected =
        "resource \"login\": domain \"192.0.2.3\": each spelling of this address counts by itself";
    let found = warned(text);
    assert!(found[0].starts_with(expected), "{found:?}");
    assert!(found[0].ends_with("(and 1 more domain)"), "{found:?}");
    assert_eq!(found.len(), 1, "{found:?}");
    let with = text.replace(
        "rate = \"9/m\"\n",
        "rate = \"9/m\"\naddresses = { v4 = 32, v6 = 128 }\n",
    );
    assert_eq!(warned(&with), [""; 0]);
}
