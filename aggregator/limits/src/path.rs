//! The path to a place in a limits document, as faults and warnings print it.
//!
//! ```text
//! resource "api.search": domain "acme": tier[2].window
//! namespace "api": blind.local
//! engine: agent_timeout
//! ```
//!
//! A path borrows from its parent, so that a reading without faults builds no text at all.

use std::fmt;

/// How many characters of a name a path shows.
const NAME_CHARS_SHOWN: usize = 64;

/// One step on the way to a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathStep<'a> {
    /// The document itself.
    Document,
    /// A table with a fixed name, as `engine`.
    Section(&'static str),
    /// The same, but omitted in the paths through it: `domains` above `domain "acme"`.
    Through(&'static str),
    /// One of many, as `resource "api.search"`.
    Named(&'static str, &'a str),
    /// A field, as `window`.
    Field(&'a str),
    /// An item of a list that is shown by a singular name, as `tier[1]`; made by [`PathStep::item`], which numbers
    /// it.
    Item(&'static str, usize),
    /// An item of a list, from 1, after the list's name, as in `members[1]`.
    Nth(usize),
}

impl PathStep<'_> {
    /// An item of a list by its index. Windows and quotas are numbered from 0, as denials name them (`window:0`);
    /// tiers and all other items from 1.
    pub(super) fn item(name: &'static str, index: usize) -> Self {
        match name {
            "windows" | "quota" => Self::Item(name, index),
            _ => Self::Item(name, index + 1),
        }
    }
}

/// The steps to a place, the last first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    up: Option<&'a Path<'a>>,
    step: PathStep<'a>,
}

impl<'a> Path<'a> {
    pub(super) const DOCUMENT: Path<'static> = Path {
        up: None,
        step: PathStep::Document,
    };

    /// The path extended by one step.
    pub(super) fn then(&'a self, step: PathStep<'a>) -> Self {
        Self {
            up: Some(self),
            step,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut up = self.up;
        // A table that is omitted in paths (`domains`) is shown as the one above it.
        while let Some(Path {
            up: above,
            step: PathStep::Through(_),
        }) = up
        {
            up = *above;
        }
        if let Some(up) = up {
            up.fmt(f)?;
            let joint = match (up.step, self.step) {
                (PathStep::Document, _) | (_, PathStep::Nth(_)) => "",
                (
                    PathStep::Item(..) | PathStep::Field(_),
                    PathStep::Field(_) | PathStep::Item(..),
                ) => ".",
                _ => ": ",
            };
            f.write_str(joint)?;
        }
        match self.step {
            PathStep::Document => Ok(()),
            PathStep::Section(name) | PathStep::Through(name) => f.write_str(name),
            PathStep::Named(kind, name) => write!(f, "{kind} {}", Quoted(name)),
            PathStep::Field(name) => write!(f, "{}", PathKey(name)),
            PathStep::Item(name, number) => write!(f, "{name}[{number}]"),
            PathStep::Nth(number) => write!(f, "[{number}]"),
        }
    }
}

/// A name in quotes, cut if it is too long to read.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(NAME_CHARS_SHOWN) {
            None => write!(f, "{:?}", self.0),
            Some((cut, _)) => write!(f, "{:?}...", &self.0[..cut]),
        }
    }
}

/// A key in TOML: bare if possible.
struct PathKey<'a>(&'a str);

impl fmt::Display for PathKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if self.0.len() <= NAME_CHARS_SHOWN && !self.0.is_empty() && self.0.bytes().all(bare) {
            f.write_str(self.0)
        } else {
            Quoted(self.0).fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_printed_readably() {
        let document = Path::DOCUMENT;
        let resource = document.then(PathStep::Named("resource", "api.search"));
        let domain = resource.then(PathStep::Named("domain", "acme"));
        let tier = domain.then(PathStep::item("tier", 1));
        assert_eq!(
            tier.then(PathStep::Field("window")).to_string(),
            r#"resource "api.search": domain "acme": tier[2].window"#
        );
        let engine = document.then(PathStep::Section("engine"));
        assert_eq!(
            engine.then(PathStep::Field("agent timeout")).to_string(),
            r#"engine: "agent timeout""#
        );
        assert_eq!(document.to_string(), "");
    }

    #[test]
    fn a_name_that_fills_the_screen_is_cut() {
        let name = "é".repeat(400);
        let shown = Path::DOCUMENT
            .then(PathStep::Named("resource", &name))
            .to_string();
        assert!(shown.chars().count() < 90, "{shown}");
    }
}
