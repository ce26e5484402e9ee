//! What a container's runtime puts around each line that a program wrote.
//!
//! ```text
//! {"log":"203.0.113.7 - - […]\n","stream":"stdout","time":"2025-11-20T10:00:00.1Z"}     Docker's json-file
//! 2025-11-20T10:00:00.123456789Z stdout F 203.0.113.7 - - […]                           CRI: containerd, CRI-O
//! ```
//!
//! Knows nothing of what the program writes. What stays true: a line that is not wrapped is left as it is.

use serde_json::Value;

/// How lines are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrap {
    /// As a member of an object.
    Docker,
    /// Behind an instant, a stream and a tag.
    Cri,
}

impl Wrap {
    /// How the first lines of a text are wrapped.
    pub fn of_first(head: &[u8]) -> Option<Self> {
        let first = head.split(|byte| *byte == b'\n');
        let first = first
            .map(super::lines::bare)
            .find(|line| !line.is_empty())?;
        let mut kinds = [Self::Docker, Self::Cri].into_iter();
        kinds.find(|kind| kind.inside(first).is_some())
    }

    /// What the program wrote; `None` if the line is not wrapped.
    pub fn inside(self, line: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Docker => {
                let object: Value = serde_json::from_slice(line).ok()?;
                object.get("stream").and_then(Value::as_str)?;
                object.get("time").and_then(Value::as_str)?;
                let log = object.get("log").and_then(Value::as_str)?;
                Some(log.as_bytes().to_vec())
            }
            Self::Cri => {
                let mut parts = line.splitn(4, |byte| *byte == b' ');
                let is_instant = parts.next()?.get(10) == Some(&b'T');
                let is_stream = matches!(parts.next()?, b"stdout" | b"stderr");
                let is_tag = matches!(parts.next()?, b"F" | b"P");
                let inside = parts.next()?;
                (is_instant && is_stream && is_tag).then(|| inside.to_vec())
            }
        }
    }

    /// All lines of a text without it.
    pub fn all_inside(self, text: &[u8]) -> Vec<u8> {
        let lines = text.split(|byte| *byte == b'\n').map(|line| {
            let inside = self.inside(super::lines::bare(line));
            inside
                .unwrap_or_else(|| line.to_vec())
                .trim_ascii_end()
                .to_vec()
        });
        lines.collect::<Vec<_>>().join(&b'\n')
    }
}
