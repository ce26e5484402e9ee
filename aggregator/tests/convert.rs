//! `tollgate limits convert`: what becomes of configurations of other limiters, in their own formats.

mod support;

use insta::assert_snapshot;
use support::{directory, run};
use tollgate_limits::Limits;

/// The document, and what was said of what has no equal in it.
fn converted(from: &str, text: &str) -> (String, String) {
    let dir = directory("");
    std::fs::write(dir.path().join("theirs.yaml"), text).expect("a file");
    let asked = ["limits", "convert", "--from", from, "theirs.yaml"];
    let (code, document, differences) = run(dir.path(), &asked);
    assert_eq!(code, 0, "{differences}");
    let limits = Limits::parse(&document);
    assert!(limits.is_ok(), "{limits:?}\n{document}");
    (document, differences)
}

/// In the form of envoyproxy/ratelimit: nested keys, values with limits of their own, one without, a ban, a shadow.
const TREE: &str = "
domain: shop
descriptors:
  - key: tenant
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: tenant
    value: acme
    rate_limit: { unit: minute, requests_per_unit: 300 }
  - key: tenant
    value: internal
  - key: country
    value: 'de*'
    rate_limit: { unit: hour, requests_per_unit: 50 }
    detailed_metric: true
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: { unit: day, requests_per_unit: 100 }
      - key: user
        value: bot
        rate_limit: { unit: second, requests_per_unit: 0 }
  - key: path
    descriptors:
      - key: user
        rate_limit: { unit: month, requests_per_unit: 9000 }
      - key: user
        value: tester
        shadow_mode: true
        rate_limit: { unit: second, requests_per_unit: 5 }
      - key: user
        value: probe
        rate_limit: { unlimited: true }
  - key: burst
    rate_limit: { unit: minute, unit_multiplier: 5, requests_per_unit: 7, name: b, replaces: [{ name: a }] }
";

#[test]
fn a_tree_of_descriptors_becomes_resources_and_rules() {
    let (document, differences) = converted("envoy-ratelimit", TREE);
    assert_snapshot!(document, @r##"
    # Converted from theirs.yaml.
    version = 1
    rules = 2

    [rate."shop.plan=free.user"]
    quota = "100/day"
    [rate."shop.plan=free.user".domains]
    "bot" = { quota = "none", rate = "0/s" }

    [rate."shop.country=de~"]
    rate = "50/h"

    [rate."shop.tenant"]
    rate = "20/m"
    [rate."shop.tenant".domains]
    "acme" = { rate = "300/m" }
    "internal" = { rate = "none" }

    [rate."shop.path.user=tester"]
    rate = "5/s"
    shadow = true

    [rate."shop.path.user=probe"]
    rate = "none"

    [rate."shop.path.user"]
    quota = "9000/month"

    [rate."shop.burst"]
    rate = "7/5m"

    [descriptors."shop"]
    rules = [
      { keys = ["plan=free", "user"], resource = "shop.plan=free.user", domain = "{user}" },
      { keys = ["country=de*"], resource = "shop.country=de~", domain = "{country}" },
      { keys = ["tenant"], resource = "shop.tenant", domain = "{tenant}" },
      { keys = ["path", "user=tester"], resource = "shop.path.user=tester", domain = "{path}" },
      { keys = ["path", "user=probe"], resource = "shop.path.user=probe", domain = "{path}" },
      { keys = ["path", "user"], resource = "shop.path.user", domain = "{path}|{user}" },
      { keys = ["burst"], resource = "shop.burst", domain = "{burst}" },
    ]
    "##);
    assert_snapshot!(differences, @r##"
    theirs.yaml: country=de*: `detailed_metric` has no equal, and is left out
    theirs.yaml: path.user: a month is one of the calendar here, and 30 days since 1970 in the original
    theirs.yaml: burst: `name` has no equal, and is left out
    theirs.yaml: burst: `replaces` has no equal, and is left out
    theirs.yaml: rate_limit: windows of seconds, minutes and hours slide here; in the original a new one begins with each unit
    "##);
}

/// In the form of Limitador: a list, with conditions and variables in both spellings.
const LIST: &str = r#"
- namespace: shop
  max_value: 1000
  seconds: 60
- namespace: shop
  id: posts
  max_value: 5
  seconds: 60
  conditions: ["req_method == 'POST'"]
  variables: [user_id]
- namespace: shop
  max_value: 40
  seconds: 3600
  conditions: ["descriptors[0]['req_method'] == \"POST\""]
  variables: ["descriptors[0].user_id"]
- namespace: shop
  max_value: 9
  seconds: 45
  conditions: ["descriptors[0]['path'] != '/health'"]
"#;

#[test]
fn a_list_of_limits_becomes_resources_and_rules() {
    let (document, differences) = converted("limitador", LIST);
    assert_snapshot!(document, @r##"
    # Converted from theirs.yaml.
    version = 1
    rules = 2

    [rate."shop.generic_key=all"]
    rate = "1000/m"

    [rate."shop.posts"]
    windows = ["5/m", "40/h"]

    [descriptors."shop"]
    rules = [
      { keys = ["generic_key=all"], resource = "shop.generic_key=all", domain = "all" },
      { keys = ["req_method=POST", "user_id"], resource = "shop.posts", domain = "{user_id}" },
    ]
    "##);
    assert_snapshot!(differences, @r##"
    theirs.yaml: limit 4: left out: condition `descriptors[0]['path'] != '/health'`: expected KEY == 'VALUE'
    theirs.yaml: shop.generic_key=all: expects a descriptor with just the entries generic_key=all, in this order; the original takes any that has them, and counts in each limit that matches
    theirs.yaml: shop.posts: expects a descriptor with just the entries req_method=POST, user_id, in this order; the original takes any that has them, and counts in each limit that matches
    theirs.yaml: seconds: windows slide here; in the original the next one begins when the first request after the last comes
    "##);
}

#[test]
fn what_is_no_configuration_is_refused_by_its_place() {
    let dir = directory("");
    for (from, text, expected) in [
        ("limitador", "{", "theirs.yaml: "),
        (
            "limitador",
            "- { namespace: a, max_value: 1 }",
            "missing field `seconds`",
        ),
        (
            "envoy-ratelimit",
            "descriptors: []",
            "missing field `domain`",
        ),
        (
            "envoy-ratelimit",
            "{ domain: a, descriptors: [{ key: k, rate_limit: { unit: fortnight } }] }",
            "k: rate_limit.unit = \"fortnight\": expected second, minute",
        ),
    ] {
        std::fs::write(dir.path().join("theirs.yaml"), text).expect("a file");
        let asked = ["limits", "convert", "--from", from, "theirs.yaml"];
        let (code, _, said) = run(dir.path(), &asked);
        assert_eq!(code, 65, "{text}");
        assert!(said.contains(expected), "{text}: {said}");
    }
}
