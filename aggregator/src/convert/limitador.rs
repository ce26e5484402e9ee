//! Limits of Limitador: a list, each with conditions and variables.
//!
//! ```text
//! - namespace: edge                                            [rate."edge.method=GET.user"]
//!   max_value: 5                                          ──>  rate = "5/m"
//!   seconds: 60                                                [descriptors.edge]
//!   conditions: ["descriptors[0]['method'] == 'GET'"]          rules = [{ keys = ["method=GET", "user"], … }]
//!   variables: ["descriptors[0]['user']"]
//! ```
//! Limits with the same conditions and variables are windows of one resource. Entries are expected in the order in
//! which the limit has its conditions and then its variables. What stays true: a limit with a condition that no
//! rule can express is left out, since without the condition other requests would be limited as well.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::draft::{Draft, DraftResource, IN_RANGE, LimitGrant, domain_of};
use super::position::{YamlStep, located};

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

/// A requirement on the entry of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Condition {
    key: String,
    value: String,
    /// Every value except this one matches.
    is_not: bool,
}

impl Condition {
    /// Its text in a rule.
    fn text(&self) -> String {
        let operator = if self.is_not { "!=" } else { "=" };
        format!("{}{operator}{}", self.key, self.value)
    }
}

/// What a descriptor needs to match a limit, in the order of the source.
#[derive(Clone, Debug)]
struct Keys {
    conditions: Vec<Condition>,
    variables: Vec<String>,
}

/// The entry for limits without conditions and variables, which apply to all requests.
const EVERY: (&str, &str) = ("generic_key", "all");

/// Reads a list of limits.
pub(super) fn read(text: &str) -> Result<Draft, String> {
    let limits: Vec<Limit> = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    let mut draft = Draft::default();
    let mut resources: Vec<(String, Keys, DraftResource)> = Vec::new();
    for (index, limit) in limits.iter().enumerate() {
        let place = format!("limit {}", index + 1);
        for key in limit.other.keys() {
            draft.differs(
                &place,
                format!("`{key}` has no equivalent, and is left out"),
            );
        }
        let keys = match keys_of(limit) {
            Ok(keys) => keys,
            Err(text) => {
                draft.differs(&place, format!("left out: {text}"));
                continue;
            }
        };
        let grant = grant_of(limit, &place).map_err(|(field, fault)| {
            located(text, &[YamlStep::Item(index), YamlStep::Key(field)], &fault)
        })?;
        let known = resources
            .iter_mut()
            .find(|(namespace, of, _)| *namespace == limit.namespace && of.are_like(&keys));
        let called = limit.id.as_ref().or(limit.name.as_ref());
        let without_place = match (&known, &limit.id, &limit.name) {
            (Some(_), ..) => called,
            (None, Some(_), name) => name.as_ref(),
            (None, None, _) => None,
        };
        if let Some(text) = without_place {
            draft.differs(
                &place,
                format!("{text:?} names nothing here: a resource has one name"),
            );
        }
        if let Some((_, _, resource)) = known {
            if resource
                .grants
                .iter()
                .any(|other| is_other_value(other, &grant))
            {
                let text = "with another max_value than an earlier limit, and the rest alike: in the original the two are one \
                            limit, with one of the two values; here both apply";
                draft.differs(&place, text);
            }
            resource.grants.push(grant);
            continue;
        }
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
    // The first rule that matches counts, so the most specific ones come first.
    resources.sort_by_key(|(_, keys, _)| std::cmp::Reverse(keys.rank()));
    for (namespace, keys, resource) in resources {
        lead(&mut draft, &namespace, &keys, resource);
    }
    let text = "windows slide here; in the original the next window begins with the first request after the last window";
    draft.differs("seconds", text);
    Ok(draft)
}

/// The grant of a limit, or the field with a fault.
fn grant_of(limit: &Limit, place: &str) -> Result<LimitGrant, (&'static str, String)> {
    if limit.seconds == 0 {
        let fault = format!("{place}: seconds = 0: expected at least 1");
        return Err(("seconds", fault));
    }
    let grant = LimitGrant::Rate(format!("{}/{}", limit.max_value, span(limit.seconds)));
    if grant.is_in_range() {
        return Ok(grant);
    }
    let (field, value) = match u32::try_from(limit.max_value) {
        Ok(_) => ("seconds", limit.seconds),
        Err(_) => ("max_value", limit.max_value),
    };
    Err((field, format!("{place}: {field} = {value}: {IN_RANGE}")))
}

/// Whether two rates have the same window, and not the same number of hits.
fn is_other_value(one: &LimitGrant, other: &LimitGrant) -> bool {
    match (one, other) {
        (LimitGrant::Rate(one), LimitGrant::Rate(other)) => {
            let window = |rate: &str| rate.split_once('/').map(|(_, window)| window.to_owned());
            one != other && window(one) == window(other)
        }
        _ => false,
    }
}

fn lead(draft: &mut Draft, namespace: &str, keys: &Keys, resource: DraftResource) {
    let texts = keys.texts();
    let domain = keys.domain();
    let names = (&*resource.name, &*domain);
    if !draft.rule(&resource.name, namespace, &texts, names) {
        return;
    }
    let text = format!(
        "expects a descriptor with just the entries {}, in this order; the original accepts any descriptor that contains \
         them, and counts in each limit that matches",
        texts.join(", ")
    );
    draft.differs(&resource.name, text);
    draft.add(resource);
}

impl Keys {
    /// Their texts in a rule.
    fn texts(&self) -> Vec<String> {
        let conditions = self.conditions.iter().map(Condition::text);
        conditions.chain(self.free().map(str::to_owned)).collect()
    }

    /// The variables without a condition.
    fn free(&self) -> impl Iterator<Item = &str> {
        let is_free = |variable: &&String| !self.conditions.iter().any(|one| one.key == **variable);
        self.variables.iter().filter(is_free).map(String::as_str)
    }

    /// The domain, which separates their counts.
    fn domain(&self) -> String {
        let conditions = self.conditions.iter().map(|one| &*one.key);
        let keys: Vec<&str> = conditions.chain(self.free()).collect();
        let entry = |variable: &String| keys.iter().position(|key| key == variable);
        domain_of(&keys, self.variables.iter().filter_map(entry))
    }

    /// Whether both match the same descriptors, and count them alike.
    fn are_like(&self, other: &Self) -> bool {
        let sorted = |keys: &Self| {
            let mut keys = keys.clone();
            keys.conditions.sort();
            keys.variables.sort();
            (keys.conditions, keys.variables)
        };
        sorted(self) == sorted(other)
    }

    /// How specific they are: required values count before excluded ones.
    fn rank(&self) -> (usize, usize) {
        let equal = self.conditions.iter().filter(|one| !one.is_not);
        (equal.count(), self.conditions.len())
    }
}

fn keys_of(limit: &Limit) -> Result<Keys, String> {
    let mut conditions: Vec<Condition> = Vec::new();
    for condition in limit.conditions.iter().flatten() {
        for part in condition.split("&&") {
            let text =
                || format!("condition `{condition}`: expected KEY == 'VALUE' or KEY != 'VALUE'");
            let read = comparison(part).ok_or_else(text)?;
            if conditions
                .iter()
                .any(|other| other.key == read.key && *other != read)
            {
                let key = read.key;
                return Err(format!("several conditions on `{key}`: expected one"));
            }
            if !conditions.contains(&read) {
                conditions.push(read);
            }
        }
    }
    let mut variables = Vec::new();
    for variable in limit.variables.iter().flatten() {
        let text = || format!("variable `{variable}`: expected the key of an entry");
        let key = entry_key(variable).ok_or_else(text)?;
        if !variables.contains(&key) {
            variables.push(key);
        }
    }
    if conditions.is_empty() && variables.is_empty() {
        let (key, value) = EVERY;
        conditions.push(Condition {
            key: key.to_owned(),
            value: value.to_owned(),
            is_not: false,
        });
    }
    Ok(Keys {
        conditions,
        variables,
    })
}

/// `KEY == 'VALUE'`, or `KEY != 'VALUE'`.
fn comparison(text: &str) -> Option<Condition> {
    let (key, rest) = text.split_at(text.find(['=', '!'])?);
    let (is_not, value) = match (rest.strip_prefix("=="), rest.strip_prefix("!=")) {
        (Some(value), _) => (false, value),
        (None, Some(value)) => (true, value),
        (None, None) => return None,
    };
    let value = unquoted(value.trim())?;
    // A `*` at the end would be read as a prefix.
    (!value.ends_with('*')).then_some(Condition {
        key: entry_key(key)?,
        value,
        is_not,
    })
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
