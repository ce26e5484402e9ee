//! Objects of JSON as rows: our own, and those that web servers and proxies log.
//!
//! ```text
//! {"t":1455944445.25,"resource":"api.search","domain":"acme"}
//! {"ts":1646861401.52,"request":{"client_ip":"203.0.113.7",…}}           Caddy
//! {"ClientHost":"203.0.113.7","StartUTC":"2026-11-20T10:00:00.25Z",…}    Traefik
//! ```
//!
//! A member is named by its path (`request.client_ip`), where a name with dots of its own comes first. Members that
//! nobody asked for are passed over. What stays true: a number is read as what it plainly is, with all its digits.

use std::borrow::Cow;

use serde_json::Value;

use super::clients::Clients;
use super::instant::{self, TimeUnit};
use super::{Columns, Row, Widths};

/// Paths of an instant, ours first.
const TIMES: &[&str] = &[
    "t",
    "ts",
    "StartUTC",
    "time",
    "timestamp",
    "@timestamp",
    "start_time",
    "time_iso8601",
    "time_local",
    "msec",
    "datetime",
    "date",
];

/// Paths of what proxies said of whom they forward for.
const FORWARDED: &[&str] = &[
    "http_x_forwarded_for",
    "x_forwarded_for",
    "xff",
    "request.headers.X-Forwarded-For",
    "request_X-Forwarded-For",
];

/// Paths of a client.
const CLIENTS: &[&str] = &[
    "domain",
    "request.client_ip",
    "client_ip",
    "ClientHost",
    "remote_addr",
    "request.remote_ip",
    "remote_ip",
    "request.remote_addr",
    "downstream_remote_address",
    "downstream_direct_remote_address",
    "ClientAddr",
    "client",
    "clientIp",
    "ip",
];

/// Which member is what.
#[derive(Clone, Debug)]
pub(super) struct Json {
    t: String,
    resource: Option<String>,
    forwarded: Option<String>,
    domain: Option<String>,
    copies: String,
    min: String,
    unit: TimeUnit,
    clients: Clients,
    /// The domain is a name of ours, not what some server calls its client.
    ours: bool,
}

impl Json {
    /// Looks at the first objects.
    ///
    /// # Errors
    ///
    /// A stated path that none of them has.
    pub fn of_first(
        objects: &[Value],
        columns: &Columns,
        client: Option<&str>,
        unit: TimeUnit,
        clients: &Clients,
    ) -> Result<Self, String> {
        let has = |path: &str| objects.iter().any(|object| text(object, path).is_some());
        let stated = |field: &str, name: &Option<String>| match name {
            Some(name) if !has(name) => Err(format!(
                "--column {field}={name}: none of the first {} objects has it, expected one of {}",
                objects.len(),
                members(objects)
            )),
            name => Ok(name.clone()),
        };
        let known = |paths: &[&str]| {
            paths
                .iter()
                .find(|path| has(path))
                .map(|path| (*path).to_owned())
        };
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
            None => stated_domain.or_else(|| known(CLIENTS)),
        };
        let is_guessed = client.is_none() && columns.domain.is_none();
        Ok(Self {
            t: stated("t", &columns.t)?
                .or_else(|| known(TIMES))
                .unwrap_or_else(|| "t".to_owned()),
            resource: stated("resource", &columns.resource)?.or_else(|| known(&["resource"])),
            forwarded: match is_guessed && domain.as_deref() != Some("domain") {
                true => known(FORWARDED),
                false => None,
            },
            ours: client.is_none() && !clients.is_stated() && domain.as_deref() == Some("domain"),
            domain,
            copies: stated("copies", &columns.copies)?.unwrap_or_else(|| "copies".to_owned()),
            min: stated("min", &columns.min)?.unwrap_or_else(|| "min".to_owned()),
            unit,
            clients: clients.clone(),
        })
    }

    /// Which member is the client.
    pub fn client(&self) -> Option<&str> {
        self.forwarded.as_deref().or(self.domain.as_deref())
    }

    /// The row of an object; or what was expected.
    pub fn parse<'a>(&self, line: &[u8]) -> Result<Row<'a>, &'static str> {
        let object = object(line).ok_or("an object of JSON")?;
        let at = text(&object, &self.t)
            .and_then(|text| instant::parse(&text, self.unit))
            .ok_or("an instant as t: a number since 1970, or a date as in RFC 3339")?;
        let count = |path: &str| match text(&object, path) {
            None => Ok(None),
            Some(text) => super::whole(&text).map(Some),
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
                let client = self.clients.of(forwarded.as_deref(), domain.as_deref());
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

/// The object of a text; nginx writes bytes as `\x22`, which is no JSON.
pub(super) fn object(line: &[u8]) -> Option<Value> {
    let value: Option<Value> = serde_json::from_slice(line).ok();
    let value = match value {
        Some(value) => value,
        None => serde_json::from_slice(&repaired(line)?).ok()?,
    };
    value.is_object().then_some(value)
}

/// The line with `\xHH` as JSON writes it; `None` if the line has no such escape.
fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let mut fixed = Vec::with_capacity(line.len() + 16);
    let mut rest = line;
    let mut any = false;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        fixed.extend_from_slice(&rest[..at]);
        match rest[at..] {
            [b'\\', b'x', one, other, ..]
                if one.is_ascii_hexdigit() && other.is_ascii_hexdigit() =>
            {
                any = true;
                fixed.extend_from_slice(&[b'\\', b'u', b'0', b'0', one, other]);
                rest = &rest[at + 4..];
            }
            _ => {
                let end = (at + 2).min(rest.len());
                fixed.extend_from_slice(&rest[at..end]);
                rest = &rest[end..];
            }
        }
    }
    fixed.extend_from_slice(rest);
    any.then_some(fixed)
}

/// What stands at a path, as text; nothing where it is null, or an object.
fn text(object: &Value, path: &str) -> Option<String> {
    let value = find(object, path)?;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        // Headers that may come more than once.
        Value::Array(values) => {
            let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            texts
                .filter(|texts| !texts.is_empty())
                .map(|texts| texts.join(", "))
        }
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

/// The paths that objects have, for a message.
fn members(objects: &[Value]) -> String {
    let mut paths = std::collections::BTreeSet::new();
    for object in objects {
        for (name, value) in object.as_object().into_iter().flatten() {
            match value.as_object() {
                Some(inner) => paths.extend(inner.keys().map(|key| format!("{name}.{key}"))),
                None => {
                    paths.insert(name.clone());
                }
            }
        }
    }
    let paths: Vec<String> = paths.into_iter().take(30).collect();
    paths.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Client and instant of an object, by what the first one shows.
    fn read(line: &str, columns: &Columns, client: Option<&str>) -> Result<(String, u64), String> {
        let first = [object(line.as_bytes()).expect("an object")];
        let json = Json::of_first(&first, columns, client, TimeUnit::Auto, &Clients::default())?;
        let row = json.parse(line.as_bytes())?;
        Ok((
            row.domain.unwrap_or_default().into_owned(),
            row.at.as_micros(),
        ))
    }

    #[test]
    fn what_servers_log_is_read_as_it_is() {
        let at = 1_763_632_800_250_000;
        for line in [
            r#"{"level":"info","ts":1763632800.25,"logger":"http.log.access","request":{"remote_ip":"10.0.0.5","client_ip":"203.0.113.7","headers":{"User-Agent":["curl"]}}}"#,
            r#"{"ClientAddr":"203.0.113.7:58420","ClientHost":"203.0.113.7","StartUTC":"2025-11-20T10:00:00.25Z","time":"2025-11-20T10:00:01Z"}"#,
            r#"{"time_local":"20/Nov/2025:10:00:00.25 +0000","remote_addr":"10.0.0.5","http_x_forwarded_for":"203.0.113.7, 10.0.0.4","request":"GET / HTTP/1.1"}"#,
            r#"{"time_iso8601":"2025-11-20T10:00:00.25+00:00","remote_addr":"203.0.113.7","http_x_forwarded_for":"-","agent":"\x22curl\x22"}"#,
            r#"{"start_time":"2025-11-20T10:00:00.250Z","x_forwarded_for":"203.0.113.7","downstream_remote_address":"10.0.0.5:44"}"#,
            r#"{"start_time":"2025-11-20T10:00:00.250Z","x_forwarded_for":null,"downstream_remote_address":"203.0.113.7:44"}"#,
        ] {
            let read = read(line, &Columns::default(), None);
            let read = read.as_ref().map(|(client, _)| client.as_str());
            assert_eq!(read, Ok("203.0.113.7"), "{line}");
        }
        let traefik = r#"{"ClientHost":"a","StartUTC":"2025-11-20T10:00:00.25Z","time":"2025-11-20T10:00:01Z"}"#;
        assert_eq!(
            read(traefik, &Columns::default(), None),
            Ok(("a".to_owned(), at))
        );
    }

    #[test]
    fn a_column_is_a_path_and_one_that_names_nothing_is_a_fault() {
        let line = r#"{"when":{"at":1},"who":{"user.name":7},"list":["a"],"n":"3"}"#;
        let columns = |t: &str, domain: &str| Columns {
            t: Some(t.to_owned()),
            domain: Some(domain.to_owned()),
            ..Columns::default()
        };
        let of = |t, domain| read(line, &columns(t, domain), None);
        assert_eq!(
            of("when.at", "who.user.name"),
            Ok(("7".to_owned(), 1_000_000))
        );
        assert_eq!(of("when.at", "list.0"), Ok(("a".to_owned(), 1_000_000)));
        let fault = of("when.on", "n").expect_err("no such path");
        assert!(
            fault.contains("--column t=when.on") && fault.contains("when.at"),
            "{fault}"
        );
        let fault = read(line, &columns("when.at", "n"), Some("ip")).expect_err("no such path");
        assert!(fault.contains("--client ip"), "{fault}");
    }
}
