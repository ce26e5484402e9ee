//! JSON objects as rows: Tollgate's own, and those that web servers and proxies log.
//!
//! ```text
//! {"t":1455944445.25,"resource":"api.search","domain":"acme"}
//! {"ts":1646861401.52,"request":{"client_ip":"203.0.113.7",…}}           Caddy
//! {"ClientHost":"203.0.113.7","StartUTC":"2026-11-20T10:00:00.25Z",…}    Traefik
//! ```
//!
//! A path names a member (`request.client_ip`); a member whose own name has dots takes precedence. Other members are
//! ignored. What stays true: a number is read exactly, with all its digits.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use tollgate_shared::time::Timestamp;

use super::clients::{Clients, Header};
use super::instant::{self, Instants};
use super::names::{self, text_of};
use super::repair::repaired;
use super::{Columns, Row, Widths};

/// Earlier instants, before 1990, are not taken for a request's unless the user states it: they are durations in
/// seconds.
const PLAUSIBLE: Timestamp = Timestamp::from_micros(631_152_000_000_000);

/// Names of members that are instants whatever they hold.
const SURELY_TIMES: [&str; 3] = ["t", "ts", "timestamp"];

/// How deep members are searched.
const DEPTH_MAX: usize = 4;

/// The members by their role.
#[derive(Clone, Debug)]
pub(super) struct Json {
    t: String,
    /// The date, if `t` is a time of day.
    date: Option<String>,
    resource: Option<String>,
    forwarded: Option<String>,
    domain: Option<String>,
    copies: String,
    min: String,
    instants: Instants,
    clients: Clients,
    /// Some text precedes each object in its line.
    is_behind: bool,
    /// That text holds the instant, since the objects have none.
    is_at_before: bool,
    /// The domain is Tollgate's own name, not a client in a server's log.
    ours: bool,
}

impl Json {
    /// Examines the first objects.
    ///
    /// # Errors
    ///
    /// A stated path that none of them has.
    pub fn of_first(
        objects: &[Value],
        columns: &Columns,
        client: Option<&str>,
        instants: &Instants,
        clients: &Clients,
    ) -> Result<Self, String> {
        let has = |path: &str| objects.iter().any(|object| text(object, path).is_some());
        // As jq and JSONPath write a path.
        let plain = |name: &str| {
            let inner = name.strip_prefix('$').unwrap_or(name).strip_prefix('.');
            let inner = inner.filter(|inner| !has(name) && has(inner));
            inner.unwrap_or(name).to_owned()
        };
        let stated = |field: &str, name: &Option<String>| match name.as_deref().map(plain) {
            Some(name) if !has(&name) => Err(format!(
                "--column {field}={name}: none of the first {} objects has it, expected one of {}",
                objects.len(),
                members(objects)
            )),
            name => Ok(name),
        };
        let client = client.map(plain);
        let client = client.as_deref();
        let leaves = leaves(objects);
        let known = |names: &[&str]| find_named(&leaves, names, &|_, _| true);
        let date = known(&[names::DATE]);
        let guessed = || time_member(objects, &leaves, instants).or_else(|| date.clone());
        let t = stated("t", &columns.t)?.or_else(guessed);
        let is_at_before = t.is_none();
        let t = t.unwrap_or_else(|| "t".to_owned());
        let stated_domain = stated("domain", &columns.domain)?;
        if let Some(client) = client.filter(|client| !has(client)) {
            return Err(format!(
                "--client {client}: none of the first {} objects has it, expected one of {}",
                objects.len(),
                members(objects)
            ));
        }
        let domain = match client {
            Some(client) => Some(client.to_owned()),
            None => stated_domain.or_else(|| known(names::CLIENTS)),
        };
        let is_guessed = client.is_none() && columns.domain.is_none();
        Ok(Self {
            date: date.filter(|date| *date != t),
            t,
            resource: stated("resource", &columns.resource)?.or_else(|| known(&["resource"])),
            forwarded: match is_guessed {
                true => forwarded(&leaves, domain.as_deref()),
                false => None,
            },
            ours: client.is_none() && !clients.is_stated() && domain.as_deref() == Some("domain"),
            domain,
            copies: stated("copies", &columns.copies)?.unwrap_or_else(|| "copies".to_owned()),
            min: stated("min", &columns.min)?.unwrap_or_else(|| "min".to_owned()),
            instants: instants.clone(),
            is_behind: false,
            is_at_before,
            clients: clients.of_file(),
        })
    }

    /// The same, for lines with some text before each object.
    pub fn behind(self) -> Self {
        Self {
            is_behind: true,
            ..self
        }
    }

    /// How clients are identified, with the counter.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The member that is the client.
    pub fn client(&self) -> Option<&str> {
        self.forwarded.as_deref().or(self.domain.as_deref())
    }

    /// The row of an object.
    ///
    /// # Errors
    ///
    /// What was expected.
    pub fn parse<'a>(&self, line: &[u8]) -> Result<Row<'a>, &'static str> {
        let whole = line;
        let line = match self.is_behind {
            true => behind(line),
            false => line,
        };
        let object = object(line).ok_or("an object of JSON")?;
        let before = whole.get(..whole.len() - line.len()).unwrap_or_default();
        let at = match self.is_at_before {
            true => self.at(&object).or_else(|| self.at_before(before)),
            false => self.at(&object),
        };
        let at = at.ok_or(
            "an instant as t: a number since 1970, or a date as in RFC 3339 (or --time-format)",
        )?;
        let count = |path: &str| match text(&object, path) {
            Some(text) => super::whole(&text).map(Some),
            None if find(&object, path).is_some_and(|value| !value.is_null()) => Err(super::COPIES),
            None => Ok(None),
        };
        let widths = Widths {
            copies: count(&self.copies)?,
            min: count(&self.min)?,
        };
        let (copies, min) = widths.checked()?;
        let named = |path: &Option<String>| path.as_deref().and_then(|path| text(&object, path));
        let domain = named(&self.domain);
        let domain = match self.ours {
            true => domain,
            false => {
                let forwarded = named(&self.forwarded);
                let client = match self.forwarded.as_deref() {
                    Some(path) => {
                        let (list, peer) = (forwarded.as_deref(), domain.as_deref());
                        self.clients.of(Header::of(path), list, peer)
                    }
                    None => domain
                        .as_deref()
                        .and_then(|domain| self.clients.named(domain)),
                };
                client.map(Cow::into_owned)
            }
        };
        Ok(Row {
            at,
            resource: named(&self.resource).map(Cow::Owned),
            domain: domain.map(Cow::Owned),
            copies,
            min,
        })
    }
}

impl Json {
    /// The instant in the first words before an object, as Caddy's console writes it.
    fn at_before(&self, before: &[u8]) -> Option<Timestamp> {
        let text = str::from_utf8(before).ok()?.trim_start_matches(['[', '"']);
        let is_end = |c: char| matches!(c, ' ' | '\t' | ']' | '"');
        let mut ends = text
            .match_indices(is_end)
            .map(|(at, _)| &text[..at])
            .take(3);
        // A day alone is not an instant, nor is a short number.
        let is_whole =
            |head: &&str| head.contains(':') || 10 <= head.len() && !head.contains(['-', '/']);
        let mut ends = ends.by_ref().filter(is_whole);
        ends.find_map(|head| self.instants.parse(head).filter(|at| PLAUSIBLE <= *at))
    }

    fn at(&self, object: &Value) -> Option<Timestamp> {
        let time = text(object, &self.t)?;
        self.instants.of_row(&time).or_else(|| {
            let date = text(object, self.date.as_deref()?)?;
            instant::of_parts(&date, &time)
        })
    }
}

/// The member with the instant of a request.
fn time_member(
    objects: &[Value],
    leaves: &[(String, Vec<String>)],
    instants: &Instants,
) -> Option<String> {
    let is_instant = |name: &str, path: &str| {
        let texts = objects.iter().filter_map(|object| text(object, path));
        let mut read = texts.map(|text| instants.of_row(&text));
        read.next().flatten().is_some_and(|at| {
            PLAUSIBLE <= at || instants.are_stated() || SURELY_TIMES.contains(&name)
        })
    };
    let has_time = |name: &str, path: &str| {
        let mut texts = objects.iter().filter_map(|object| text(object, path));
        is_instant(name, path) && texts.next().is_some_and(|text| text.contains(':'))
    };
    find_named(leaves, names::TIMES, &is_instant)
        .or_else(|| find_named(leaves, &[names::DATE], &has_time))
        // Small numbers, or a time of day with its date in another member.
        .or_else(|| find_named(leaves, &["time"], &|_, _| true))
}

/// The member in which proxies name their client. `None` if a member is the client itself: Tollgate's own, or the
/// result of a proxy's own checks (Caddy's `client_ip` beside `remote_ip`), which is better than the header it came
/// from.
fn forwarded(leaves: &[(String, Vec<String>)], domain: Option<&str>) -> Option<String> {
    let known = |names: &[&str]| find_named(leaves, names, &|_, _| true);
    let is_made_out = domain == Some("domain") || known(&["requestclientip"]).is_some();
    match is_made_out {
        true => None,
        false => known(names::FORWARDED),
    }
}

/// The paths of all members that are not objects, in the order of the first object that has them, with their names in
/// plain spelling: of the whole path, and of the ends of it.
fn leaves(objects: &[Value]) -> Vec<(String, Vec<String>)> {
    let (mut leaves, mut known) = (Vec::new(), HashSet::new());
    for object in objects {
        let mut paths = Vec::new();
        walk(object, &mut Vec::new(), &mut paths);
        for parts in paths {
            let path = parts.join(".");
            if known.insert(path.clone()) {
                leaves.push((path, names::ends(&parts)));
            }
        }
    }
    leaves
}

fn walk<'v>(value: &'v Value, at: &mut Vec<&'v str>, paths: &mut Vec<Vec<&'v str>>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        at.push(name);
        match value {
            Value::Object(_) if at.len() < DEPTH_MAX && !is_of_mongo(value) => {
                walk(value, at, paths);
            }
            _ => paths.push(at.clone()),
        }
        at.pop();
    }
}

/// The path with the first of these names that exists: as a whole path, or else as the end of one.
fn find_named(
    leaves: &[(String, Vec<String>)],
    names: &[&str],
    takes: &dyn Fn(&str, &str) -> bool,
) -> Option<String> {
    let find = |is: &dyn Fn(&[String], &str) -> bool| {
        names.iter().find_map(|name| {
            let mut leaves = leaves.iter();
            leaves.find(|(path, ends)| is(ends, name) && takes(name, path))
        })
    };
    let whole = find(&|ends, name| ends.first().is_some_and(|end| end == name));
    let found = whole.or_else(|| find(&|ends, name| ends.iter().any(|end| end == name)));
    found.map(|(path, _)| path.clone())
}

/// Whether a value is an object whose only member is MongoDB's type of the value.
fn is_of_mongo(value: &Value) -> bool {
    let object = value.as_object();
    object.is_some_and(|object| object.len() == 1 && object.keys().all(|key| key.starts_with('$')))
}

/// The object in a line after other text, such as the head of syslog.
pub(super) fn behind(line: &[u8]) -> &[u8] {
    let brace = line.iter().position(|byte| *byte == b'{');
    &line[brace.unwrap_or(0)..]
}

/// The object in a text; repairs invalid JSON of some programs.
pub(super) fn object(line: &[u8]) -> Option<Value> {
    let value: Option<Value> = serde_json::from_slice(line).ok();
    let value = match value {
        Some(value) => value,
        None => {
            let text = text_of(line);
            let repaired = repaired(text.as_bytes());
            let bytes = repaired.as_deref().unwrap_or(text.as_bytes());
            serde_json::from_slice(bytes).ok()?
        }
    };
    value.is_object().then_some(value)
}

/// The value at a path, as text; `None` if it is null, or an object.
fn text(object: &Value, path: &str) -> Option<String> {
    let value = find(object, path)?;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(plain_number(number)),
        Value::Bool(is) => Some(is.to_string()),
        // Headers that may occur more than once.
        Value::Array(values) => {
            let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            texts
                .filter(|texts| !texts.is_empty())
                .map(|texts| texts.join(", "))
        }
        Value::Object(object) if is_of_mongo(value) => match object.values().next()? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        },
        Value::Null | Value::Object(_) => None,
    }
}

fn find<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    if let Some(found) = value.get(path) {
        return Some(found);
    }
    let mut dots = path.match_indices('.');
    dots.find_map(|(dot, _)| {
        let (first, rest) = (&path[..dot], &path[dot + 1..]);
        let inner = match value {
            Value::Array(values) => values.get(first.parse::<usize>().ok()?)?,
            _ => value.get(first)?,
        };
        find(inner, rest).or_else(|| inner.get(rest.parse::<usize>().ok()?))
    })
}

/// A number in plain notation: 3, 3.0 and 0.3e1 are the same.
fn plain_number(number: &serde_json::Number) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}

/// The paths that objects have, for a message.
pub(super) fn members(objects: &[Value]) -> String {
    const SHOWN_MAX: usize = 30;
    let paths = leaves(objects).into_iter().map(|(path, _)| path);
    paths.take(SHOWN_MAX).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
