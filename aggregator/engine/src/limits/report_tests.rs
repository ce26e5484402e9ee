//! What `tollgate check` prints, for people and for programs.

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
fn a_good_document_is_printed_normalised_under_what_is_worth_a_look() {
    let report = check(GOOD, "limits.toml");
    assert_eq!(
        report.to_string(),
        r#"# limits.toml: good, 2 resources, 2 warnings
# warning: resource "api.search": tier[1].active: "1s500ms" is not a whole number of windows, rules as "1s"
# warning: resource "api.search": domain "acme": rate: never reached: 200 in "1s" lets at most 200 through in it (and 1 more domain)
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
        "message": "5 is above the global limit, rules as 3",
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
