//! `tollgate limits convert`: converts configurations of other limiters, in their own formats.

use insta::assert_snapshot;
use tollgate_limits::Limits;

use crate::support::{directory, run};

/// The document, and the lines on settings without an equivalent.
pub fn converted(from: &str, text: &str) -> (String, String) {
    let dir = directory("");
    std::fs::write(dir.path().join("theirs.yaml"), text).expect("a file");
    let args = ["limits", "convert", "--from", from, "theirs.yaml"];
    let (code, document, differences) = run(dir.path(), &args);
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
    theirs.yaml: country=de*: `detailed_metric` has no equivalent, and is left out
    theirs.yaml: path.user: a month is one of the calendar here, and 30 days since 1970 in the original
    theirs.yaml: burst: `name` has no equivalent, and is left out
    theirs.yaml: burst: `replaces` has no equivalent, and is left out
    theirs.yaml: rate_limit: windows of seconds, minutes and hours slide here; in the original a new window begins with each unit
    "##);
}

/// In the form of Limitador: a list, with conditions and variables in both spellings.
const LIST: &str = r#"
- namespace: shop
  max_value: 1000
  seconds: 60
- namespace: shop
  id: posts
  name: posts a minute
  max_value: 5
  seconds: 60
  conditions: ["req_method == 'POST'"]
  variables: [user_id]
- namespace: shop
  id: hourly
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

    [rate."shop.path!=/health"]
    rate = "9/45s"

    [descriptors."shop"]
    rules = [
      { keys = ["generic_key=all"], resource = "shop.generic_key=all", domain = "all" },
      { keys = ["req_method=POST", "user_id"], resource = "shop.posts", domain = "{user_id}" },
      { keys = ["path!=/health"], resource = "shop.path!=/health", domain = "all" },
    ]
    "##);
    assert_snapshot!(differences, @r##"
    theirs.yaml: limit 2: "posts a minute" names nothing here: a resource has one name
    theirs.yaml: limit 3: "hourly" names nothing here: a resource has one name
    theirs.yaml: shop.generic_key=all: expects a descriptor with just the entries generic_key=all, in this order; the original accepts any descriptor that contains them, and counts in each limit that matches
    theirs.yaml: shop.posts: expects a descriptor with just the entries req_method=POST, user_id, in this order; the original accepts any descriptor that contains them, and counts in each limit that matches
    theirs.yaml: shop.path!=/health: expects a descriptor with just the entries path!=/health, in this order; the original accepts any descriptor that contains them, and counts in each limit that matches
    theirs.yaml: seconds: windows slide here; in the original the next window begins with the first request after the last window
    "##);
}

/// Conditions in several orders, with one key twice, with keys that are variables too, and values with braces.
const CONDITIONS: &str = r#"
- { namespace: shop, max_value: 1, seconds: 60, conditions: ["path == '/x/{id}'", "a == '1'"], variables: [user] }
- { namespace: shop, max_value: 2, seconds: 3600, conditions: ["a == '1' && path == '/x/{id}'"], variables: [user] }
- { namespace: shop, max_value: 3, seconds: 60, conditions: ["path != '/health'"], variables: [path, user] }
- { namespace: shop, max_value: 4, seconds: 60, conditions: ["a == '1'", "a == '2'"] }
- { namespace: shop, max_value: 5, seconds: 60, conditions: ["a == '1' || a == '2'"] }
- { namespace: shop, max_value: 6, seconds: 60, conditions: ["b != 'x*'"] }
- { namespace: 1.10, max_value: 7, seconds: 60, conditions: ["c == \"True\""], variables: ["descriptors[1].d"] }
- { namespace: 1.10, max_value: 8, seconds: 60, conditions: ["c == \"True\""] }
"#;

#[test]
fn conditions_keep_their_order_and_each_is_taken_over_or_named() {
    let (document, differences) = converted("limitador", CONDITIONS);
    let limits = Limits::parse(&document).expect("it is right");
    let of = |domain, entries: &[(&str, &str)]| limited_by(&limits, domain, entries);
    let (path, a) = (("path", "/x/{id}"), ("a", "1"));
    let user = ("user", "u");
    let both = of("shop", &[path, a, user]).expect("it is limited");
    assert_eq!(
        (&*both.2, both.0),
        ("u", vec![1, 2]),
        "windows of one resource"
    );
    assert_eq!(of("shop", &[a, path, user]), None, "in another order");
    let other = of("shop", &[("path", "/y"), user]).expect("it is limited");
    assert_eq!((&*other.2, other.0), ("/y|u", vec![3]));
    assert_eq!(of("shop", &[("path", "/health"), user]), None);
    assert_eq!(
        of("1.10", &[("c", "True")]).map(|found| found.0),
        Some(vec![8])
    );
    for expected in [
        "limit 4: left out: several conditions on `a`: expected one",
        "limit 5: left out: condition `a == '1' || a == '2'`: expected KEY == 'VALUE' or KEY != 'VALUE'",
        "limit 6: left out: condition `b != 'x*'`",
        "limit 7: left out: variable `descriptors[1].d`",
    ] {
        assert!(differences.contains(expected), "{expected}: {differences}");
    }
}

/// What limits a descriptor, as a gateway and the aggregators find it: hits of its windows, and the pair.
fn limited_by(
    limits: &Limits,
    domain: &str,
    entries: &[(&str, &str)],
) -> Option<(Vec<u64>, String, String)> {
    let public = limits.public(&format!("~descriptors.{domain}"), 1);
    let found = public
        .descriptors
        .iter()
        .find_map(|rule| rule.apply(entries))?;
    let resource = limits.rate(&found.resource).expect("it is configured");
    let stated = resource.limits_text_of(&found.domain);
    let numbers = stated.split('"').filter_map(|text| text.split_once('/'));
    let hits = numbers.filter_map(|(hits, _)| hits.parse().ok());
    let hits: Vec<u64> = hits.collect();
    // A resource without limits is not limited.
    (!hits.is_empty()).then_some((hits, found.resource, found.domain))
}

#[test]
fn a_span_that_is_too_long_is_a_fault_with_its_line() {
    let limit = "{ unit: year, unit_multiplier: 18446744073709551615, requests_per_unit: 7 }";
    let text = format!("domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {limit}\n");
    let dir = directory("");
    std::fs::write(dir.path().join("theirs.yaml"), text).expect("a file");
    let args = [
        "limits",
        "convert",
        "--from",
        "envoy-ratelimit",
        "theirs.yaml",
    ];
    let (code, _, fault) = run(dir.path(), &args);
    assert_ne!(code, 0, "{fault}");
    assert!(fault.contains("line 4"), "{fault}");
    assert!(
        fault.contains("expected at most 50539024859478223"),
        "{fault}"
    );
}

#[test]
fn limits_that_the_original_takes_for_one_are_named() {
    let list = "
- { namespace: shop, max_value: 5, seconds: 60, variables: [u] }
- { namespace: shop, max_value: 7, seconds: 3600, variables: [u] }
- { namespace: shop, max_value: 7, seconds: 60, variables: [u] }
";
    let (_, differences) = converted("limitador", list);
    let expected = "theirs.yaml: limit 3: with another max_value than an earlier limit";
    assert!(differences.contains(expected), "{differences}");
    assert!(!differences.contains("limit 2:"), "{differences}");
}

/// All cases that decide which limit is found: defaults, values, prefixes, exceptions, repeated keys, braces.
const LOOKED_UP: &str = "
domain: shop
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: a, value: x, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: a, value: 'y' }
  - { key: a, value: zz, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: a, value: zzz }
  - key: a
    value: 'z*'
    rate_limit: { unit: minute, requests_per_unit: 4 }
  - key: b
    descriptors:
      - { key: b, rate_limit: { unit: minute, requests_per_unit: 5 } }
      - { key: b, value: x, rate_limit: { unit: minute, requests_per_unit: 6 } }
      - { key: b, value: '{x}', rate_limit: { unit: minute, requests_per_unit: 7 } }
      - key: a
        value: '*'
        rate_limit: { unit: minute, requests_per_unit: 8 }
        descriptors:
          - { key: a, value: 1.10, rate_limit: { unit: minute, requests_per_unit: 9 } }
          - { key: b, value: True, rate_limit: { unit: minute, requests_per_unit: 10 } }
      - { key: a, rate_limit: { unit: minute, requests_per_unit: 11 } }
  - key: '{c}'
    descriptors:
      - { key: '{c}', value: yes, rate_limit: { unit: minute, requests_per_unit: 12 } }
      - { key: '{c}', rate_limit: { unit: minute, requests_per_unit: 13 } }
";

/// The original's reading of its configuration: every scalar is a text as it is written.
#[derive(serde::Deserialize)]
struct Node {
    key: String,
    value: Option<String>,
    rate_limit: Option<NodeLimit>,
    #[serde(default)]
    descriptors: Vec<Node>,
}

#[derive(serde::Deserialize)]
struct NodeLimit {
    requests_per_unit: u64,
}

#[derive(serde::Deserialize)]
struct Tree {
    descriptors: Vec<Node>,
}

/// The original's search for a limit: by value, then the first prefix, then the key alone, one level for each entry.
fn original(nodes: &[Node], entries: &[(&str, &str)]) -> Option<u64> {
    let ((key, value), rest) = entries.split_first()?;
    let of_key = || nodes.iter().filter(|node| node.key == *key);
    let exact = of_key().find(|node| node.value.as_deref() == Some(value));
    let is_prefix = |node: &&Node| {
        let prefix = node.value.as_deref().and_then(|of| of.strip_suffix('*'));
        prefix.is_some_and(|prefix| value.starts_with(prefix))
    };
    let found = exact.or_else(|| of_key().find(is_prefix));
    let found = found.or_else(|| of_key().find(|node| node.value.is_none()))?;
    match rest.is_empty() {
        true => found
            .rate_limit
            .as_ref()
            .map(|limit| limit.requests_per_unit),
        false => original(&found.descriptors, rest),
    }
}

#[test]
fn each_descriptor_finds_the_limit_that_the_original_finds() {
    let (document, _) = converted("envoy-ratelimit", LOOKED_UP);
    let limits = Limits::parse(&document).expect("it is right");
    let tree: Tree = serde_yaml_ng::from_str(LOOKED_UP).expect("YAML");
    let mut entries = Vec::new();
    for key in ["a", "b", "{c}"] {
        for value in [
            "x", "y", "zz", "zzz", "zq", "{x}", "1.10", "1.1", "True", "true", "yes",
        ] {
            entries.push((key, value));
        }
    }
    let mut descriptors: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
    let mut counts = std::collections::BTreeMap::new();
    let mut limited = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let longer = descriptors.iter().flat_map(|of| {
            let with = |entry: &(&'static str, &'static str)| [&**of, &[*entry]].concat();
            entries.iter().map(with)
        });
        descriptors = longer.collect();
        for descriptor in &descriptors {
            let expected = original(&tree.descriptors, descriptor);
            let found = limited_by(&limits, "shop", descriptor);
            let hits = found.as_ref().map(|(hits, ..)| hits.clone());
            assert_eq!(hits, expected.map(|hits| vec![hits]), "{descriptor:?}");
            limited.extend(expected);
            // As in the original, each descriptor has its own count.
            if let Some((_, resource, domain)) = found {
                let other = counts.insert((resource, domain), descriptor.clone());
                assert_eq!(other, None, "{descriptor:?}");
            }
        }
    }
    // A limit after a `*` is never found, in the original neither.
    let all = (1..=13).filter(|number| *number != 11);
    assert_eq!(limited, all.collect(), "each limit is found");
}

#[test]
fn spellings_of_one_address_are_values_of_their_own() {
    let limit = |n: u8| format!("rate_limit: {{ unit: minute, requests_per_unit: {n} }}");
    let value = |text: &str, n| format!("{{ key: ip, value: '{text}', {} }}", limit(n));
    let (upper, lower) = (value("2001:DB8::1", 1), value("2001:db8::1", 2));
    let other = format!("{{ key: ip, {} }}", limit(3));
    let text = format!("{{ domain: shop, descriptors: [{upper}, {lower}, {other}] }}");
    let (document, _) = converted("envoy-ratelimit", &text);
    let limits = Limits::parse(&document).expect("it is right");
    for (ip, expected) in [("2001:DB8::1", 1), ("2001:db8::1", 2), ("2001:db8:0::1", 3)] {
        let found = limited_by(&limits, "shop", &[("ip", ip)]).expect("it is limited");
        assert_eq!(found.0, [expected], "{ip}");
    }
}

#[test]
fn differences_of_a_converted_tree_are_named() {
    let limit = "rate_limit: { unit: minute, requests_per_unit: 1 }";
    for (nodes, expected) in [
        (
            format!("[{{ key: a, {limit}, quota_mode: yes }}]"),
            "a: `quota_mode` is a shadow here",
        ),
        (
            format!("[{{ key: 'a*', {limit} }}]"),
            "a*: left out: a key that ends in `*`",
        ),
        (
            format!("[{{ key: 'a!', value: x, {limit} }}]"),
            "a!=x: left out: a key that ends in `!`",
        ),
        (
            format!(
                "[{{ key: a, descriptors: [{{ key: b, {limit} }}] }}, {{ key: a, value: x, {limit} }}]"
            ),
            "a=x: in the original a descriptor that matches nothing below it is not limited; here one may match what \
             stands below `a`",
        ),
    ] {
        let text = format!("{{ domain: shop, descriptors: {nodes} }}");
        let (document, differences) = converted("envoy-ratelimit", &text);
        assert!(differences.contains(expected), "{differences}");
        let is_shadow = document.contains("shadow = true");
        assert_eq!(is_shadow, nodes.contains("quota_mode"), "{document}");
    }
}

#[test]
fn an_invalid_configuration_is_refused_with_its_place() {
    let dir = directory("");
    for (from, text, expected) in [
        ("limitador", "{", "theirs.yaml: "),
        (
            "limitador",
            "- { namespace: a, max_value: 1 }",
            "missing field `seconds`",
        ),
        (
            "limitador",
            "- { namespace: a, max_value: 1, seconds: 60 }\n- namespace: a\n  max_value: 1\n  seconds: 0\n",
            "limit 2: seconds = 0: expected at least 1 at line 4 column 12",
        ),
        (
            "envoy-ratelimit",
            "descriptors: []",
            "missing field `domain`",
        ),
        (
            "envoy-ratelimit",
            "domain: a\ndescriptors:\n- key: k\n  rate_limit:\n    unit: fortnight\n",
            "k: rate_limit.unit = \"fortnight\": expected second, minute, hour, day, week, month or year at line 5 column 11",
        ),
        (
            "envoy-ratelimit",
            "domain: a\ndescriptors:\n- key: j\n  descriptors:\n  - { key: k, value: x }\n  - { key: k, value: x }\n",
            "j.k=x: stands in this list twice at line 6 column 5",
        ),
        (
            "envoy-ratelimit",
            "{ domain: a, descriptors: [{ key: k, shadow_mode: maybe }] }",
            "\"maybe\": expected true or false",
        ),
    ] {
        std::fs::write(dir.path().join("theirs.yaml"), text).expect("a file");
        let args = ["limits", "convert", "--from", from, "theirs.yaml"];
        let (code, _, stderr) = run(dir.path(), &args);
        assert_eq!(code, 65, "{text}");
        assert!(stderr.contains(expected), "{text}: {stderr}");
    }
}
