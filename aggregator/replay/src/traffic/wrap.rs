//! Text that programs put around each line of another program.
//!
//! ```text
//! {"log":"203.0.113.7 - - […]\n","stream":"stdout","time":"2025-11-20T10:00:00.1Z"}     Docker's json-file
//! {"MESSAGE":"203.0.113.7 - - […]","__REALTIME_TIMESTAMP":"1763632800100000"}           journalctl -o json
//! 2025-11-20T10:00:00.123456789Z stdout F 203.0.113.7 - - […]                           CRI: containerd, CRI-O
//! access.log:203.0.113.7 - - […]                                                        grep (`prefix`)
//! ```
//!
//! Knows nothing of the wrapped lines' content. What stays true: a line that is not wrapped is left unchanged.

use serde_json::Value;

use super::lines::bare;
use super::names::{CLIENTS, FORWARDED, ends, plain};
use super::prefix::{Prefix, has_stamp};

/// How lines are wrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrap {
    /// As a member of Docker's object.
    Docker,
    /// As this member of an object that names no client itself.
    Member(&'static str),
    /// After an instant, a stream and a tag.
    Cri,
    /// After another prefix.
    Behind(Prefix),
}

/// Members in which log collectors put a line.
const MEMBERS: [&str; 8] = [
    "MESSAGE",
    "message",
    "@message",
    "log",
    "line",
    "msg",
    "textPayload",
    "_raw",
];

/// How lines are wrapped, from the outside in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wraps(Vec<Wrap>);

/// How many programs may have wrapped a line.
const WRAPS_MAX: usize = 3;

impl Wraps {
    /// How the first lines of a text are wrapped.
    pub fn of_first(head: &[u8]) -> Self {
        let mut wraps = Self::default();
        let mut lines: Vec<Vec<u8>> = head
            .split(|byte| *byte == b'\n')
            .map(|line| bare(line).to_vec())
            .filter(|line| !line.is_empty())
            .collect();
        while wraps.0.len() < WRAPS_MAX {
            let Some(wrap) = Wrap::of_lines(&lines) else {
                break;
            };
            for line in &mut lines {
                if let Some(inside) = wrap.inside(line) {
                    *line = bare(&inside).to_vec();
                }
            }
            wraps.0.push(wrap);
        }
        wraps
    }

    /// Whether lines are not wrapped.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The wrapped line; `None` if the line is not wrapped.
    pub fn inside(&self, line: &[u8]) -> Option<Vec<u8>> {
        let mut found: Option<Vec<u8>> = None;
        for wrap in &self.0 {
            let outer = bare(found.as_deref().unwrap_or(line));
            if let Some(inside) = wrap.inside(outer) {
                found = Some(inside);
            }
        }
        found
    }

    /// A text with all its lines unwrapped.
    pub fn all_inside(&self, text: &[u8]) -> Vec<u8> {
        let lines = text.split(|byte| *byte == b'\n').map(|line| {
            let inside = self.inside(bare(line));
            inside
                .unwrap_or_else(|| line.to_vec())
                .trim_ascii_end()
                .to_vec()
        });
        lines.collect::<Vec<_>>().join(&b'\n')
    }
}

impl Wrap {
    fn of_lines(lines: &[Vec<u8>]) -> Option<Self> {
        let first = lines.first()?;
        let mut kinds = [Self::Docker, Self::Cri].into_iter();
        let of_first = kinds.find(|kind| kind.inside(first).is_some());
        of_first
            .or_else(|| member_of(lines).map(Self::Member))
            .or_else(|| Prefix::of_first(lines.iter().map(Vec::as_slice)).map(Self::Behind))
    }

    fn inside(&self, line: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Docker => {
                let object: Value = serde_json::from_slice(line).ok()?;
                object.get("stream").and_then(Value::as_str)?;
                object.get("time").and_then(Value::as_str)?;
                let log = object.get("log").and_then(Value::as_str)?;
                Some(log.as_bytes().to_vec())
            }
            Self::Member(name) => {
                let object: Value = serde_json::from_slice(line).ok()?;
                let text = object.get(name).and_then(Value::as_str)?;
                Some(text.as_bytes().to_vec())
            }
            Self::Cri => {
                let mut parts = line.splitn(4, |byte| *byte == b' ');
                let is_instant = parts.next()?.get(10) == Some(&b'T');
                let is_stream = matches!(parts.next()?, b"stdout" | b"stderr");
                let is_tag = matches!(parts.next()?, b"F" | b"P");
                let inside = parts.next()?;
                (is_instant && is_stream && is_tag).then(|| inside.to_vec())
            }
            Self::Behind(prefix) => prefix.rest(line).map(<[u8]>::to_vec),
        }
    }
}

/// The member in which most objects have a row of an access log, in objects that name no client themselves.
fn member_of(lines: &[Vec<u8>]) -> Option<&'static str> {
    if !lines.first()?.starts_with(b"{") {
        return None;
    }
    let objects: Vec<Option<Value>> = lines
        .iter()
        .map(|line| serde_json::from_slice(line).ok())
        .collect();
    let has = |object: &Value, member: &str| {
        let text = object.get(member).and_then(Value::as_str);
        text.is_some_and(|text| has_stamp(text.as_bytes())) && !names_client(object)
    };
    let mut members = MEMBERS.into_iter();
    members.find(|member| {
        let with = objects
            .iter()
            .flatten()
            .filter(|object| has(object, member));
        lines.len() < 2 * with.count()
    })
}

/// Whether an object names a client itself. Deeper in it, such a name may be that of the logging machine.
fn names_client(object: &Value) -> bool {
    const OF_ANYBODY: [&str; 6] = ["ip", "ipaddress", "user", "userid", "domain", "client"];
    let mut members = object.as_object().into_iter().flatten();
    members.any(|(name, value)| {
        let is_known = |name: &str| CLIENTS.contains(&name) || FORWARDED.contains(&name);
        let mut inner = value.as_object().into_iter().flat_map(|inner| inner.keys());
        is_known(&plain(name))
            || inner.any(|inner| {
                let ends = ends(&[name, inner]);
                let mut ends = ends.iter().map(String::as_str);
                ends.any(|end| is_known(end) && !OF_ANYBODY.contains(&end))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "203.0.113.7 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"";

    fn inside(line: &str) -> Option<String> {
        let text = format!("{line}\n{line}\n");
        let inside = Wraps::of_first(text.as_bytes()).inside(line.as_bytes())?;
        Some(String::from_utf8_lossy(&inside).into_owned())
    }

    #[test]
    fn a_line_is_found_within_its_collectors_envelope() {
        let escaped = ROW.replace('"', "\\\"");
        for line in [
            format!("{{\"MESSAGE\":\"{escaped}\",\"__REALTIME_TIMESTAMP\":\"1763632800100000\"}}"),
            format!("{{\"host\":{{\"ip\":[\"10.0.0.1\"]}},\"message\":\"{escaped}\"}}"),
            format!(
                "{{\"labels\":{{\"job\":\"web\"}},\"line\":\"{escaped}\",\"timestamp\":\"x\"}}"
            ),
            format!("app.log:{{\"log\":\"{escaped}\",\"stream\":\"stdout\",\"time\":\"x\"}}"),
            format!("web-1  | 2025-11-20T10:00:00.123456789Z {ROW}"),
            format!("[pod/web-7d9/nginx] 2025-11-20T10:00:00.123456789Z {ROW}"),
            format!("syslog.1:Nov 20 10:00:00 web1 nginx: {ROW}"),
        ] {
            assert_eq!(inside(&line).as_deref(), Some(ROW), "{line}");
        }
    }

    #[test]
    fn an_object_that_names_a_client_is_a_row_itself() {
        let line = "{\"time\":\"2025-11-20T10:00:00Z\",\"client_ip\":\"203.0.113.7\",\"message\":\"203.0.113.9 - - [20/Nov/2025:10:00:00 +0000]\"}";
        assert_eq!(inside(line), None);
        let line = "{\"source\":{\"ip\":\"203.0.113.7\"},\"message\":\"203.0.113.7 - - [20/Nov/2025:10:00:00 +0000]\"}";
        assert_eq!(inside(line), None);
        assert_eq!(
            inside("{\"t\":1,\"domain\":\"acme\",\"msg\":\"hello\"}"),
            None
        );
    }
}
