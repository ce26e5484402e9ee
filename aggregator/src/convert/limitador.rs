//! Limits of Limitador: a list, each with conditions and variables.
//!
//! ```text
//! - namespace: edge                                            [rate."edge.method=GET.user"]
//!   max_value: 5                                          ──>  rate = "5/m"
//!   seconds: 60                                                [descriptors.edge]
//!   conditions: ["descriptors[0]['method'] == 'GET'"]          rules = [{ keys = ["method=GET", "user"], … }]
//!   variables: ["descriptors[0]['user']"]
//! ```
//!
//! Limits with the same conditions and variables are windows of one resource. What stays true: a limit with a condition
//! that no rule can say is left out, since without it others would be limited, too.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::draft::{Draft, DraftResource, LimitGrant};

#[derive(Deserialize)]
struct Limit {
    namespace: String,
    max_value: u64,
    seconds: u64,
    name: Option<String>,
    id: Option<String>,
    conditions: Option<Vec<String>>,
    variables: Option<Vec<String>>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// What a descriptor has to have for a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Keys {
    /// With their values.
    conditions: Vec<(String, String)>,
    variables: Vec<String>,
}

/// What all requests are limited by that have nothing else to be told apart by.
const EVERY: (&str, &str) = ("generic_key", "all");

/// Reads a list of limits.
pub(super) fn read(text: &str) -> Result<Draft, String> {
    let limits: Vec<Limit> = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    let mut draft = Draft::default();
    let mut resources: Vec<(String, Keys, DraftResource)> = Vec::new();
    for (index, limit) in limits.iter().enumerate() {
        let place = format!("limit {}", index + 1);
        for key in limit.other.keys() {
            draft.differs(&place, format!("`{key}` has no equal, and is left out"));
        }
        let keys = match keys_of(limit) {
            Ok(keys) => keys,
            Err(text) => {
                draft.differs(&place, format!("left out: {text}"));
                continue;
            }
        };
        if limit.seconds == 0 {
            return Err(format!("{place}: seconds = 0: expected at least 1"));
        }
        let grant = LimitGrant::Rate(format!("{}/{}", limit.max_value, span(limit.seconds)));
        let known = resources
            .iter_mut()
            .find(|(namespace, of, _)| *namespace == limit.namespace && *of == keys);
        if let Some((_, _, resource)) = known {
            resource.grants.push(grant);
            continue;
        }
        let called = limit.id.as_ref().or(limit.name.as_ref());
        let called = called.cloned().unwrap_or_else(|| keys.texts().join("."));
        let name = draft.name(&format!("{}.{called}", limit.namespace));
        let resource = DraftResource {
            name,
            grants: vec![grant],
            shadow: false,
            domains: Vec::new(),
        };
        resources.push((limit.namespace.clone(), keys, resource));
    }
    // The first rule that matches counts, so those that say most go first.
    resources.sort_by_key(|(_, keys, _)| std::cmp::Reverse(keys.conditions.len()));
    for (namespace, keys, resource) in resources {
        lead(&mut draft, &namespace, &keys, resource);
    }
    let text = "windows slide here; in the original the next one begins when the first request after the last comes";
    draft.differs("seconds", text);
    Ok(draft)
}

fn lead(draft: &mut Draft, namespace: &str, keys: &Keys, resource: DraftResource) {
    let texts = keys.texts();
    let domain = match keys.variables.is_empty() {
        true => "all".to_owned(),
        false => {
            let variables = keys.variables.iter().map(|key| format!("{{{key}}}"));
            variables.collect::<Vec<_>>().join("|")
        }
    };
    let names = (&*resource.name, &*domain);
    if !draft.rule(&resource.name, namespace, &texts, names) {
        return;
    }
    let text = format!(
        "expects a descriptor with just the entries {}, in this order; the original takes any that has them, and \
         counts in each limit that matches",
        texts.join(", ")
    );
    draft.differs(&resource.name, text);
    draft.add(resource);
}

impl Keys {
    /// As a rule has them.
    fn texts(&self) -> Vec<String> {
        let conditions = self.conditions.iter();
        let conditions = conditions.map(|(key, value)| format!("{key}={value}"));
        conditions.chain(self.variables.iter().cloned()).collect()
    }
}

fn keys_of(limit: &Limit) -> Result<Keys, String> {
    let mut conditions = Vec::new();
    for condition in limit.conditions.iter().flatten() {
        for part in condition.split("&&") {
            let read = equality(part);
            let text = || format!("condition `{condition}`: expected KEY == 'VALUE'");
            conditions.push(read.ok_or_else(text)?);
        }
    }
    let mut variables = Vec::new();
    for variable in limit.variables.iter().flatten() {
        let text = || format!("variable `{variable}`: expected the key of an entry");
        variables.push(entry_key(variable).ok_or_else(text)?);
    }
    if conditions.is_empty() && variables.is_empty() {
        let (key, value) = EVERY;
        conditions.push((key.to_owned(), value.to_owned()));
    }
    conditions.sort();
    Ok(Keys {
        conditions,
        variables,
    })
}

/// `KEY == 'VALUE'`.
fn equality(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once("==")?;
    let value = unquoted(value.trim())?;
    // A `*` at the end would be read as a prefix.
    (!value.ends_with('*')).then_some((entry_key(key)?, value))
}

/// `descriptors[0]['KEY']`, `descriptors[0].KEY` or `KEY`.
fn entry_key(text: &str) -> Option<String> {
    let text = text.trim();
    let key = match text.strip_prefix("descriptors[0]") {
        None => text.to_owned(),
        Some(rest) => match rest.strip_prefix('.') {
            Some(key) => key.to_owned(),
            None => unquoted(rest.strip_prefix('[')?.strip_suffix(']')?)?,
        },
    };
    let is_plain = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    (!key.is_empty() && key.chars().all(is_plain)).then_some(key)
}

fn unquoted(text: &str) -> Option<String> {
    let inner = ['\'', '"'].iter().find_map(|quote| {
        let inner = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        (!inner.contains(*quote) && !inner.contains('\\')).then_some(inner)
    });
    inner.map(str::to_owned)
}

/// A number of seconds as a rate's unit.
fn span(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let found = units
        .iter()
        .find(|(length, _)| seconds.is_multiple_of(*length));
    match found.map_or((seconds, "s"), |(length, unit)| (seconds / length, *unit)) {
        (1, unit) => unit.to_owned(),
        (many, unit) => format!("{many}{unit}"),
    }
}
