//! The rules of a domain of descriptors in public limits, by which a gateway determines resources and domains.
//!
//! A rule that this build cannot read makes the whole unreadable: without it, requests that it should match would
//! match another rule, and be counted elsewhere.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::named::{Name, list};
use super::public::GROUPS_BYTES_MAX;
use crate::descriptors::{DescriptorRule, KEYS_MAX, RULE_BYTES_MAX, RULES_MAX, TEXT_BYTES_MAX};
use crate::names::NAME_BYTES_MAX;

// However long its rules are, a domain of descriptors fits into the bytes for a resource's groups.
const _: () = assert!(RULES_MAX * RULE_BYTES_MAX < GROUPS_BYTES_MAX);

// The texts of rules are read like names.
const _: () = assert!(TEXT_BYTES_MAX == NAME_BYTES_MAX);

/// A rule in the form for reading.
#[derive(Deserialize)]
struct RuleRead<'a> {
    #[serde(borrow, deserialize_with = "list::<_, _, KEYS_MAX>")]
    keys: Box<[Name<'a>]>,
    resource: Name<'a>,
    domain: Name<'a>,
    #[serde(default)]
    records: bool,
}

/// A rule in the form for writing.
#[derive(Serialize)]
struct RuleWritten<'a> {
    keys: Vec<String>,
    resource: &'a str,
    domain: &'a str,
    records: bool,
}

pub(super) fn deserialize<'de, D>(deserializer: D) -> Result<Box<[DescriptorRule]>, D::Error>
where
    D: Deserializer<'de>,
{
    let rules: Box<[RuleRead<'de>]> = list::<_, _, RULES_MAX>(deserializer)?;
    let rule = |rule: &RuleRead<'de>| {
        let keys: Vec<&str> = rule.keys.iter().map(|Name(key)| *key).collect();
        let (resource, domain) = (rule.resource.0, rule.domain.0);
        DescriptorRule::parse(&keys, resource, domain, rule.records).map_err(D::Error::custom)
    };
    rules.iter().map(rule).collect()
}

pub(super) fn serialize<S>(rules: &[DescriptorRule], serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
{
    serializer.collect_seq(rules.iter().map(|rule| RuleWritten {
        keys: rule.keys().iter().map(ToString::to_string).collect(),
        resource: rule.resource().text(),
        domain: rule.domain().text(),
        records: rule.records(),
    }))
}
