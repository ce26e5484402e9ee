//! The schema of documents for editors: it has every field in its place, and allows valid
//! documents.

#[path = "../../../tests/src/json_schema.rs"]
mod json_schema;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::read::TABLES;
use super::{Limits, parse_quota, parse_rate};
use json_schema::JsonSchema;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../config/limits.schema.json");
    serde_json::from_str(text).expect("JSON")
});

fn matches(pattern: &str, text: &str) -> bool {
    thread_local! {
        static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        let regex = known
            .entry(pattern.to_owned())
            .or_insert_with(|| Regex::new(pattern).expect("a pattern"));
        regex.is_match(text)
    })
}

/// The parts of a document that the schema does not allow.
pub(super) fn schema_faults(text: &str) -> Vec<String> {
    let document: Value = toml::from_str(text).expect("TOML");
    let schema = JsonSchema {
        document: &SCHEMA,
        matches,
    };
    schema.faults(&SCHEMA, &document)
}

fn names(table: &Value) -> BTreeSet<&str> {
    let properties = table["properties"].as_object();
    let properties = properties.expect("a table has properties");
    properties.keys().map(String::as_str).collect()
}

#[test]
fn the_schema_has_every_field_of_every_table_and_no_other() {
    for (pointer, fields) in TABLES {
        let table = SCHEMA.pointer(pointer);
        let table = table.unwrap_or_else(|| panic!("{pointer}: nothing is there"));
        assert_eq!(table["additionalProperties"], false, "{pointer}");
        assert_eq!(names(table), fields.iter().copied().collect(), "{pointer}");
        for (name, field) in table["properties"].as_object().into_iter().flatten() {
            let is_described = field["description"].is_string() || field["$ref"].is_string();
            assert!(is_described, "{pointer}: {name}");
        }
    }
    // Plans, domains and candidates have the fields of a resource's statement.
    let stated = &SCHEMA["definitions"]["stated"]["properties"];
    let resource = &SCHEMA["properties"]["rate"]["additionalProperties"]["properties"];
    for (name, field) in stated.as_object().expect("properties") {
        assert_eq!(&resource[name], field, "{name}");
    }
}

#[test]
fn the_schema_allows_all_documents_that_are_shipped() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cookbook = std::fs::read_dir(root.join("config/cookbook")).expect("a directory");
    let documents = cookbook.map(|entry| entry.expect("an entry").path());
    let mut documents: Vec<_> = documents
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    assert!(4 <= documents.len(), "{documents:?}");
    documents.extend(
        ["config/limits.toml", "aggregator/src/demo/limits.toml"].map(|path| root.join(path)),
    );
    for path in documents {
        let text = std::fs::read_to_string(&path).expect("a document");
        assert!(Limits::parse(&text).is_ok(), "{}", path.display());
        assert_eq!(
            schema_faults(&text),
            Vec::<String>::new(),
            "{}",
            path.display()
        );
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    for (text, fault) in [
        ("[rate.x]\nraet = \"5/s\"", ".rate.x.raet: "),
        ("[rates.x]\nrate = \"5/s\"", ".rates: "),
        ("[rate.x]\nrate = \"5 a second\"", ".rate.x.rate: "),
        ("[rate.x]\nhard = \"5/m\"", ".rate.x.hard: "),
        ("[rate.x]\nquota = \"5/decade\"", ".rate.x.quota: "),
        ("[rate.x]\nwindows = []", ".rate.x.windows: "),
        (
            "[rate.x.domains.d]\nglobal = \"5/s\"",
            ".rate.x.domains.d.global: ",
        ),
        (
            "[rate.x]\ntiers = [{ limit = 5, window = \"1s\" }]",
            ".rate.x.tiers: ",
        ),
        ("[rate.x]\nblind = \"shut\"", ".rate.x.blind: "),
        ("[copies.x]\nlimit = -1", ".copies.x.limit: "),
        ("[copies.x]\nglobal = 1", ".copies.x.limit: missing"),
        (
            "[copies.x]\nlimit = 1\nmax_age = \"1 hour\"",
            ".copies.x.max_age: ",
        ),
        (
            "[namespace.x]\nblind = { locl = \"5/s\" }",
            ".namespace.x.blind: ",
        ),
        (
            "[descriptors.x]\nrules = [{ keys = [], resource = \"r\", domain = \"d\" }]",
            ".descriptors.x.rules[0].keys: ",
        ),
        ("rules = 1", ".rules: "),
    ] {
        assert!(Limits::parse(text).is_err(), "{text}");
        let faults = schema_faults(text);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(faults[0].starts_with(fault), "{text}: {faults:?}");
    }
}

#[test]
fn the_schema_takes_rates_as_people_write_them() {
    let is_allowed = |field: &str, text: &str| {
        let document = format!("[rate.x]\n{field} = \"{text}\"");
        schema_faults(&document).is_empty()
    };
    for rate in [
        "100/s",
        "6_000/m",
        "3/w",
        "100/minute",
        "100 / hour",
        "100 per second",
        "5 per 15 seconds",
        "5/100ms",
        "40/1m30s",
        "10r/s",
        "10 r/m",
        "0.5/s",
        "2.0/s",
        "0.5/15s",
    ] {
        assert!(
            parse_rate(rate).is_some() && is_allowed("rate", rate),
            "{rate}"
        );
    }
    for rate in [
        "100", "/s", "100/", "-1/s", "10/S", "10rps", "1k/s", "1e3/s",
    ] {
        assert!(
            parse_rate(rate).is_none() && !is_allowed("rate", rate),
            "{rate}"
        );
    }
    for quota in ["1_000_000/month", "50_000 per day", "7/w", "1/y"] {
        assert!(
            parse_quota(quota).is_some() && is_allowed("quota", quota),
            "{quota}"
        );
    }
    for hard in [
        "200/s",
        "200 per second",
        "200/1s",
        "200/1000ms",
        "200/1000 ms",
    ] {
        for field in ["hard", "global"] {
            let document = format!("[rate.x]\n{field} = \"{hard}\"");
            assert!(Limits::parse(&document).is_ok(), "{document}");
            assert!(is_allowed(field, hard), "{document}");
        }
        let document = format!("[rate.x]\ndomains.acme.hard = \"{hard}\"");
        assert_eq!(schema_faults(&document), [""; 0], "{hard}");
    }
}
