//! `[descriptors.NAME]`: reads the rules by which Envoy's descriptors are uses of resources.
//!
//! Knows nothing of the resources' limits: a rule may name a resource that is not configured. What stays true:
//! rules are in the order of the document.

use tollgate_shared::descriptors::{
    DescriptorRule, KeyPattern, RULES_MAX, RuleFault, Template, check_keys, resource_of_rules,
};
use tollgate_shared::names::NAME_BYTES_MAX;

use super::ResourceReading;
use crate::descriptors::Descriptors;
use crate::fault::FaultKind;
use crate::path::PathStep;
use crate::source::{Item, Section};
use crate::warning::WarningKind;

pub(super) const DESCRIPTORS_FIELDS: &[&str] = &["rules"];

pub(super) const RULE_FIELDS: &[&str] = &["keys", "resource", "domain", "record"];

pub(super) fn read_descriptors(
    document: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
) -> Descriptors {
    let mut all = Descriptors::new();
    let Some(section) = document.section("descriptors", PathStep::Through("descriptors")) else {
        return all;
    };
    for (name, item) in section.checked("descriptors") {
        // Agents ask for the rules under a longer name.
        if NAME_BYTES_MAX < resource_of_rules(name).len() {
            let expected = "a name of at most 243 bytes";
            item.place_fault(FaultKind::Value { expected });
        }
        all.insert(name.into(), read_rules(&item, reading));
    }
    all
}

fn read_rules(item: &Item<'_, '_>, reading: &ResourceReading<'_, '_>) -> Box<[DescriptorRule]> {
    const EXPECTED: &str = "a list of at most 96 rules, as [{ keys = [\"path\"], resource = \"edge\", domain = \"{path}\" }]";
    let Some(section) = item.table("a table with `rules`") else {
        return Box::default();
    };
    section.only(DESCRIPTORS_FIELDS);
    let Some(list) = section.require("rules", EXPECTED) else {
        return Box::default();
    };
    let values = list.list(EXPECTED).unwrap_or_default();
    if RULES_MAX < values.len() {
        list.expected(EXPECTED);
        return Box::default();
    }
    let mut rules: Vec<DescriptorRule> = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let rule = section.item(value, PathStep::item("rule", index));
        let Some(read) = read_rule(&rule) else {
            continue;
        };
        if let Some(first) = rules.iter().position(|other| other.covers(&read)) {
            let first = first + 1;
            let kind = WarningKind::RuleNeverMatches { first };
            reading.warnings.add(&rule.path, kind);
        }
        rules.push(read);
    }
    rules.into()
}

fn read_rule(item: &Item<'_, '_>) -> Option<DescriptorRule> {
    let section =
        item.table("a rule, as { keys = [\"path\"], resource = \"edge\", domain = \"{path}\" }")?;
    section.only(RULE_FIELDS);
    let keys = section
        .require("keys", "a list of keys, as [\"path\", \"method=POST\"]")
        .and_then(|item| read_keys(&item));
    let resource = section.require("resource", "a resource, as \"edge.{path}\"");
    let domain = section.require("domain", "a domain, as \"{remote_address}\"");
    let records = section.get("record").map(|item| item.boolean());
    let keys = keys?;
    let resource = read_template(&resource?, &keys);
    let domain = read_template(&domain?, &keys);
    // The keys were checked before.
    DescriptorRule::new(keys, resource?, domain?, records.unwrap_or(Some(false))?).ok()
}

fn read_keys(item: &Item<'_, '_>) -> Option<Vec<KeyPattern>> {
    let values = item.list("a list of keys, as [\"path\", \"method=POST\"]")?;
    let mut keys = Vec::new();
    let mut is_right = true;
    for (index, value) in values.iter().enumerate() {
        let key = item.nth(value, index + 1);
        match KeyPattern::parse(key.text().unwrap_or_default()) {
            Ok(pattern) => keys.push(pattern),
            Err(fault) => {
                key.fault(FaultKind::Rule(fault));
                is_right = false;
            }
        }
    }
    if let (true, Err(fault)) = (is_right, check_keys(&keys)) {
        item.fault(FaultKind::Rule(fault));
        is_right = false;
    }
    is_right.then_some(keys)
}

fn read_template(item: &Item<'_, '_>, keys: &[KeyPattern]) -> Option<Template> {
    let text = item.text().ok_or(RuleFault::Empty);
    let template = text.and_then(|text| Template::parse(text, keys));
    template
        .map_err(|fault| item.fault(FaultKind::Rule(fault)))
        .ok()
}
