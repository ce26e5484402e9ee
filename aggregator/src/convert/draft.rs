//! A limits document under construction: resources, descriptor rules, and differences.
//!
//! Knows nothing of the source. What stays true: names of resources are distinct and valid in a document; a rule that
//! no document can express becomes a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;
use tollgate_limits::Limits;
use tollgate_shared::descriptors::{DescriptorRule, RULES_MAX};
use tollgate_shared::names::NAME_BYTES_MAX;

/// Something that a limits document cannot express in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its place in the source.
    pub place: String,
    /// The difference.
    pub text: String,
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LimitGrant {
    /// A sliding window, as `5/m`.
    Rate(String),
    /// A number per calendar period, as `5/month`.
    Quota(String),
    Unlimited,
}

impl LimitGrant {
    /// Whether a document may state it.
    pub fn is_in_range(&self) -> bool {
        let fields = self.fields(None);
        Limits::parse(&format!("version = 1\nrules = 2\n[rate.a]\n{fields}\n")).is_ok()
    }

    /// The fields of a resource, or of a domain that inherits another grant.
    fn fields(&self, inherited: Option<&Self>) -> String {
        let unstated = match (inherited, self) {
            (Some(Self::Rate(_)), Self::Quota(_)) => "rate = \"none\", ",
            (Some(Self::Quota(_)), Self::Rate(_)) => "quota = \"none\", ",
            _ => "",
        };
        match self {
            Self::Rate(rate) => format!("{unstated}rate = \"{rate}\""),
            Self::Quota(quota) => format!("{unstated}quota = \"{quota}\""),
            Self::Unlimited => match inherited {
                Some(Self::Quota(_)) => "quota = \"none\"".to_owned(),
                _ => "rate = \"none\"".to_owned(),
            },
        }
    }
}

/// What is expected of a rate that no document may state.
pub(super) const IN_RANGE: &str = "expected a rate of at most 4294967295 hits in at most 3650d";

/// A resource.
#[derive(Clone, Debug)]
pub(super) struct DraftResource {
    pub name: String,
    /// All of them apply.
    pub grants: Vec<LimitGrant>,
    pub shadow: bool,
    /// Domains with own grants.
    pub domains: Vec<(String, LimitGrant)>,
}

/// A document under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    names: BTreeSet<String>,
    resources: Vec<DraftResource>,
    /// Lines of the document, by the domain of the descriptors.
    rules: BTreeMap<String, Vec<String>>,
    differences: Vec<Difference>,
}

impl Draft {
    pub fn differs(&mut self, place: &str, text: impl Into<String>) {
        let (place, text) = (place.to_owned(), text.into());
        self.differences.push(Difference { place, text });
    }

    /// A name for a resource, similar to `wanted`.
    pub fn name(&mut self, wanted: &str) -> String {
        let plain: String = wanted
            .chars()
            .map(|c| match c {
                '*' => '~',
                // In a rule, braces enclose a key.
                '{' => '(',
                '}' => ')',
                c if c.is_control() => '?',
                c => c,
            })
            .collect();
        let mut number = 1;
        loop {
            let suffix = match number {
                1 => String::new(),
                number => format!("-{number}"),
            };
            let mut cut = plain.len().min(NAME_BYTES_MAX - suffix.len());
            while !plain.is_char_boundary(cut) {
                cut -= 1;
            }
            let name = format!("{}{suffix}", &plain[..cut]);
            if self.names.insert(name.clone()) {
                return name;
            }
            number += 1;
        }
    }

    pub fn add(&mut self, resource: DraftResource) {
        self.resources.push(resource);
    }

    /// Adds a rule, unless no document can express it. Returns whether it was added.
    pub fn rule(
        &mut self,
        place: &str,
        descriptors: &str,
        keys: &[String],
        (resource, domain): (&str, &str),
    ) -> bool {
        let texts: Vec<&str> = keys.iter().map(String::as_str).collect();
        if let Err(fault) = DescriptorRule::parse(&texts, resource, domain, false) {
            let text = format!("left out, no rule can express it: {fault}");
            self.differs(place, text);
            return false;
        }
        let rules = self.rules.entry(descriptors.to_owned()).or_default();
        if RULES_MAX <= rules.len() {
            let text = format!("left out: a domain of descriptors has at most {RULES_MAX} rules");
            self.differs(place, text);
            return false;
        }
        let keys: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
        rules.push(format!(
            "{{ keys = [{}], resource = {}, domain = {} }}",
            keys.join(", "),
            quoted(resource),
            quoted(domain)
        ));
        true
    }

    /// The document, and the differences.
    pub fn finish(self, name: &str) -> (String, Vec<Difference>) {
        let mut text = format!(
            "# Converted from {}.\nversion = 1\nrules = 2\n",
            name.escape_debug()
        );
        for resource in &self.resources {
            write_resource(&mut text, resource);
        }
        for (domain, rules) in &self.rules {
            let domain = quoted(domain);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n[descriptors.{domain}]\nrules = [");
            for rule in rules {
                let _ = writeln!(text, "  {rule},");
            }
            text.push_str("]\n");
        }
        (text, self.differences)
    }
}

fn write_resource(text: &mut String, resource: &DraftResource) {
    let name = quoted(&resource.name);
    let _ = writeln!(text, "\n[rate.{name}]");
    let rates = resource.grants.iter().filter_map(|grant| match grant {
        LimitGrant::Rate(rate) => Some(format!("\"{rate}\"")),
        LimitGrant::Quota(_) | LimitGrant::Unlimited => None,
    });
    let rates: Vec<String> = rates.collect();
    match &*resource.grants {
        [one] => {
            let _ = writeln!(text, "{}", one.fields(None));
        }
        _ => {
            let _ = writeln!(text, "windows = [{}]", rates.join(", "));
        }
    }
    if resource.shadow {
        text.push_str("shadow = true\n");
    }
    if !resource.domains.is_empty() {
        let _ = writeln!(text, "[rate.{name}.domains]");
    }
    for (domain, grant) in &resource.domains {
        let fields = grant.fields(resource.grants.first());
        let _ = writeln!(text, "{} = {{ {fields} }}", quoted(domain));
    }
}

/// The domain of a rule with these keys, built from these entries: named by their keys, or by their numbers if a key
/// occurs twice or has braces.
pub(super) fn domain_of(keys: &[&str], entries: impl Iterator<Item = usize>) -> String {
    let placeholder = |at: usize| {
        let key = keys.get(at).copied().unwrap_or_default();
        let same = keys.iter().filter(|other| **other == key).count();
        match same == 1 && !key.contains(['{', '}']) {
            true => format!("{{{key}}}"),
            false => format!("{{#{}}}", at + 1),
        }
    };
    let parts: Vec<String> = entries.map(placeholder).collect();
    match parts.is_empty() {
        true => "all".to_owned(),
        false => parts.join("|"),
    }
}

/// A text, as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
