//! Tests of the faults of invalid documents.

use crate::Limits;

/// Checks that a document has exactly these faults, one line each.
#[track_caller]
fn refused(text: &str, faults: &str) {
    let found = Limits::parse(text).expect_err("the document is wrong");
    let expected: Vec<&str> = faults.trim().lines().map(str::trim).collect();
    let found = found.in_file("limits.toml").to_string();
    assert_eq!(found.lines().collect::<Vec<_>>(), expected, "\n{found}");
}

#[test]
fn all_faults_of_a_file_are_reported_together_each_by_its_path() {
    refused(
        r#"version = 2
rules = 7
[engine]
agent_timeout = "1700ms"
pairs_per_partition_max = 0
agent_timout = "2s"
[rate."api.search"]
hard = "600/m"
tiers = [
  { limit = 100, window = "0s", active = "1s" },
  { limit = -1, windwo = "1s", active = "1.5s" },
]
[rate."api.search".domains.acme]
global = "5/s"
"#,
        r#"
        limits.toml: version = 2: expected 1, the version of the format (line 1)
        limits.toml: rules = 7: expected 2, the rule set that this build implements (line 2)
        limits.toml: engine: agent_timeout = "1700ms": expected a whole number of half seconds from 1s to 1h, as "2s" (line 4)
        limits.toml: engine: pairs_per_partition_max = 0: expected a whole number from 1 to 4294967295 (line 5)
        limits.toml: engine: agent_timout: unknown field, did you mean `agent_timeout`? (line 6)
        limits.toml: resource "api.search": hard = "600/m": expected hits a second, as "200/s": hard and global limits have no other unit (line 8)
        limits.toml: resource "api.search": tier[1].window = "0s": expected a duration of at least 1ms (line 10)
        limits.toml: resource "api.search": tier[2].window: missing, expected a duration, as "1s" (line 11)
        limits.toml: resource "api.search": tier[2].limit = -1: expected a whole number of hits, from 0 to 4294967295 (line 11)
        limits.toml: resource "api.search": tier[2].windwo: unknown field, did you mean `window`? (line 11)
        limits.toml: resource "api.search": tier[2].active = "1.5s": expected "0s" (never active) or a duration from 1ms to 3650d (line 11)
        limits.toml: resource "api.search": domain "acme": global = "5/s": not allowed here, a global limit applies to all domains together (line 14)
        "#,
    );
}

#[test]
fn a_document_that_states_nothing_is_refused() {
    for text in [
        "",
        "\n",
        " \t\r\n",
        "# Tollgate\n\n  # limits",
        "\u{feff}# limits\n",
    ] {
        refused(
            text,
            "limits.toml: states nothing, expected at least `version = 1`: an empty file may be one that is being written",
        );
        assert!(Limits::parse_to_push(text).is_err(), "{text:?}");
        // A log may contain such a version.
        assert!(Limits::parse_logged(text).is_ok(), "{text:?}");
    }
    for text in ["version = 1", "\n# limits\nrules = 2\n", "[rate]"] {
        assert!(
            Limits::parse(text).is_ok() && Limits::parse_to_push(text).is_ok(),
            "{text:?}"
        );
    }
}

#[test]
fn ambiguous_or_unknown_subjects_are_refused() {
    refused(
        r#"
        [plans]
        gold = ["acme", "b", "acme"]
        silver = ["acme"]
        [rate.x]
        rate = "5/s"
        windows = ["5/s"]
        plans.gold.rate = "6/s"
        plans.silver.rate = "7/s"
        plans.sliver.rate = "7/s"
        [rate.y]
        hard = "5/s"
        [copies.x]
        limit = 1
        "#,
        r#"
        limits.toml: plan "gold"[3] = "acme": stands in this list twice (line 3)
        limits.toml: resource "x": rate = "5/s": given together with `windows`, expected one of the two (line 6)
        limits.toml: resource "x": domain "acme": in the plans "gold" and "silver", which both configure this resource, expected one of the two (line 9)
        limits.toml: resource "x": plan "sliver": no such plan, did you mean "silver"? (line 10)
        limits.toml: resource "x": configured both as `rate` and as `copies`, expected one of the two (line 13)
        "#,
    );
}

#[test]
fn names_are_proper_and_free_of_stars() {
    let long = "x".repeat(257);
    let text = format!(
        r#"
        namespace."api.v1".allow_unconfigured = true
        plans."" = []
        rate."api.*.x*".rate = "5/s"
        rate.x = {{ rate = "5/s", domains."a*".rate = "1/s" }}
        copies."{long}".limit = 1
        copies.y = {{ limit = 1, groups.g = {{ limit = 1, members = ["*", "a\u0000"] }} }}
        "#
    );
    let shown = "x".repeat(64);
    refused(
        &text,
        &format!(
            r#"
        limits.toml: namespace "api.v1": contains a dot, expected the part of a resource's name before its first dot (line 2)
        limits.toml: plan "": is empty, expected 1 to 256 bytes (line 3)
        limits.toml: resource "api.*.x*": has `*` elsewhere than at its end, expected a pattern as "api.*" or "*" (line 4)
        limits.toml: resource "x": domain "a*": contains `*`, which is reserved for patterns (line 5)
        limits.toml: resource "{shown}"...: has 257 bytes, expected at most 256 (line 6)
        limits.toml: resource "y": group "g": members[1] = "*": contains `*`, which is reserved for patterns (line 7)
        limits.toml: resource "y": group "g": members[2] = "a\0": contains the control character U+0000 (line 7)
        "#
        ),
    );
}

#[test]
fn values_of_another_kind_are_refused_where_they_stand() {
    refused(
        r#"
        engine = 5
        plans = { gold = "acme" }
        rate.a = "5/s"
        rate.b = { rate = 5, algorithm = "token_bucket", blind = { locl = "1/s" }, shadow = "no" }
        rate.c = { tiers = { limit = 1 } }
        rate.d = { tiers = [1], global = 7, blind = { local = "0/s" }, domains = [] }
        rate.e = { rate = "5/s", candidate = { global = "1/s", colour = "red" } }
        copies.f = { limit = "10", reserve = "maybe", on_excess = "drop", max_age = "1ms", blind = { local = "5/s" } }
        copies.g = { groups.h = { members = [5] } }
        "#,
        r#"
        limits.toml: engine = 5: expected a table (line 2)
        limits.toml: plan "gold" = "acme": expected a list of domains, as ["acme", "globex"] (line 3)
        limits.toml: resource "a" = "5/s": expected a table of limits (line 4)
        limits.toml: resource "b": rate = 5: expected a rate as "100/s", "6000/m", "5/15s", "0.5/s" or "10 per minute" (units s, m, h, d, w) (line 5)
        limits.toml: resource "b": algorithm = "token_bucket": not allowed here, the field of the limit implies it: `rate`, `windows`, `bucket`, `quota` or `tiers` (line 5)
        limits.toml: resource "b": blind.local: missing, expected a rate as "20/s" (line 5)
        limits.toml: resource "b": blind.locl: unknown field, did you mean `local`? (line 5)
        limits.toml: resource "b": shadow = "no": expected `true` or `false` (line 5)
        limits.toml: resource "c": tiers = {...}: expected a list of tiers, as [{ limit = 100, window = "1s", active = "1s" }] (line 6)
        limits.toml: resource "d": tier[1] = 1: expected a table as { limit = 100, window = "1s", active = "1s" } (line 7)
        limits.toml: resource "d": global = 7: expected hits a second, as "200/s" (line 7)
        limits.toml: resource "d": blind.local = "0/s": expected a rate from "1/s" to "4294967295/s" (or /m, /h, /d, /15s); to refuse all, blind = "closed" (line 7)
        limits.toml: resource "d": domains = [...]: expected a table (line 7)
        limits.toml: resource "e": candidate: global = "1/s": not allowed here, a candidate has limits of single domains only (line 8)
        limits.toml: resource "e": candidate: colour: unknown field, expected one of `rate`, `windows`, `bucket`, `tiers`, `hard`, `quota`, `zone`, `refunds` (line 8)
        limits.toml: resource "f": limit = "10": expected a whole number of copies, from 0 to 2^63-1 (line 9)
        limits.toml: resource "f": reserve = "maybe": expected "optimistic" or "strict" (line 9)
        limits.toml: resource "f": on_excess = "drop": expected "keep" or "give-back" (line 9)
        limits.toml: resource "f": max_age = "1ms": expected a duration from 500ms to 3650d, as "1h" (line 9)
        limits.toml: resource "f": blind = {...}: expected "open" or "closed" (a local rate says nothing about copies) (line 9)
        limits.toml: resource "g": limit: missing, expected copies of one domain, as 10 (line 10)
        limits.toml: resource "g": group "h": limit: missing, expected copies of all members together, as 4 (line 10)
        limits.toml: resource "g": group "h": members[1] = 5: expected a name in quotes (line 10)
        "#,
    );
}

#[test]
fn a_toml_fault_is_reported_beside_the_other_faults() {
    let faults = Limits::parse(
        "[rate.x]\nrate = \"5/s\"\nrate = \"6/s\"\n[rate.y]\nrate = \n[rate.z]\nrat = \"5/s\"\n",
    )
    .expect_err("it is not TOML");
    let report = faults.in_file("f").to_string();
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), 3, "{report}");
    assert!(
        lines[0].ends_with("rate stands in this document twice, expected once (line 3)"),
        "{report}"
    );
    assert!(lines[1].ends_with("(line 5)"), "{report}");
    assert_eq!(
        lines[2],
        "f: resource \"z\": rat: unknown field, did you mean `rate`? (line 7)"
    );
}

#[test]
fn too_many_faults_are_counted() {
    let text: String = (0..1_500).map(|n| format!("x{n} = 1\n")).collect();
    let faults = Limits::parse(&text).expect_err("no such fields");
    assert_eq!((faults.list.len(), faults.omitted), (1_000, 500));
    assert!(faults.to_string().ends_with("500 more faults"));
}

#[test]
fn bounds_are_kept_to_the_last_one() {
    let tier = r#"{ limit = 1, window = "1ms", active = "1ms", cooldown = "3650d" }"#;
    let tiers = |count: usize| format!("rate.x.tiers = [{}]", vec![tier; count].join(", "));
    assert!(Limits::parse(&tiers(64)).is_ok());
    refused(
        &tiers(65),
        r#"limits.toml: resource "x": tiers = [...]: expected at most 64 tiers (line 1)"#,
    );
    refused(
        r#"rate.x.tiers = [{ limit = 9223372036854775808, window = "999us", active = "999us", cooldown = "3651d" }]"#,
        r#"
        limits.toml: resource "x": tier[1].limit = 9223372036854775808: expected a whole number of hits, from 0 to 4294967295 (line 1)
        limits.toml: resource "x": tier[1].window = "999us": expected a duration of at least 1ms (line 1)
        limits.toml: resource "x": tier[1].active = "999us": expected "0s" (never active) or a duration from 1ms to 3650d (line 1)
        limits.toml: resource "x": tier[1].cooldown = "3651d": expected a duration, as "5m", at most 3650d (line 1)
        "#,
    );
    let engine = |timeout: &str| Limits::parse(&format!("engine.agent_timeout = {timeout:?}"));
    for (timeout, good) in [
        ("1s", true),
        ("1500ms", true),
        ("1h", true),
        ("999ms", false),
        ("1600ms", false),
        ("1h500ms", false),
    ] {
        assert_eq!(engine(timeout).is_ok(), good, "{timeout}");
    }
}

#[test]
fn a_document_beyond_the_bound_is_refused_unread() {
    let text = " ".repeat(crate::DOCUMENT_BYTES_MAX + 1);
    refused(
        &text,
        "limits.toml: 524289 bytes, expected at most 524288: limits of many domains belong beside the document, in rows \
         (tollgate limits import)",
    );
}

#[test]
fn a_rule_of_descriptors_is_refused_by_its_number() {
    let long = "x".repeat(244);
    refused(
        &format!(
            r#"
        [descriptors.edge]
        rules = [
          {{ keys = ["a", "=b"], resource = "x", domain = "y" }},
          {{ keys = ["a", "a=1"], resource = "x", domain = "{{a}}{{#2}}" }},
          {{ keys = ["a"], resource = "{{b}}", domain = 5, recrod = true }},
          {{ keys = ["a"], resource = "x" }},
        ]
        [descriptors.empty]
        [descriptors."{long}"]
        rules = []
        "#
        ),
        &format!(
            r#"
        limits.toml: descriptors "edge": rule[1].keys[2] = "=b": expected "KEY", "KEY=VALUE", "KEY=PREFIX*", "KEY!=VALUE" or "KEY!=PREFIX*" (line 4)
        limits.toml: descriptors "edge": rule[2].domain = "{{a}}{{#2}}": a key that stands in this rule twice, expected {{#N}} for the N-th entry (line 5)
        limits.toml: descriptors "edge": rule[3].resource = "{{b}}": expected {{KEY}} with one of the rule's keys, or {{#N}} for the N-th entry (line 6)
        limits.toml: descriptors "edge": rule[3].domain = 5: expected a name, or a text with {{KEY}} in it (line 6)
        limits.toml: descriptors "edge": rule[3].recrod: unknown field, did you mean `record`? (line 6)
        limits.toml: descriptors "edge": rule[4].domain: missing, expected a domain, as "{{remote_address}}" (line 7)
        limits.toml: descriptors "empty": rules: missing, expected a list of at most 96 rules, as [{{ keys = ["path"], resource = "edge", domain = "{{path}}" }}] (line 9)
        limits.toml: descriptors "{}"...: expected a name of at most 243 bytes (line 10)
        "#,
            "x".repeat(64)
        ),
    );
}
