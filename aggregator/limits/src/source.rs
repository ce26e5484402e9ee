//! The document as a tree in which every value has its position, and typed access to the values.
//!
//! Deserialising into a structure would stop at the first fault; reading limits goes on and
//! collects them all. So the raw form is the parser's own tree with spans, and each accessor here
//! (for a duration, a whole number, a table) returns `None` and notes the fault.
//!
//! Knows nothing of what the fields mean. What stays true: every requested value that is missing or
//! malformed has caused a fault.

use std::cell::RefCell;

use tollgate_shared::names::check_name;
use tollgate_shared::time::Span;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{FAULTS_MAX, Fault, FaultKind, Faults};
use super::path::{Path, PathStep, Quoted};
use super::settings::Rate;
use super::spelling::parse_rate;
use super::units::parse_span;

/// A fault whose position is still an offset into the text.
struct Note {
    at: Option<usize>,
    path: String,
    found: Option<String>,
    kind: FaultKind,
}

/// Collects faults while a document is read.
#[derive(Default)]
pub(super) struct Notes {
    notes: RefCell<Vec<Note>>,
    omitted: RefCell<u64>,
}

impl Notes {
    pub(super) fn is_empty(&self) -> bool {
        self.notes.borrow().is_empty()
    }

    /// Notes a fault at a place without a value.
    pub(super) fn add(&self, path: &Path<'_>, at: Option<usize>, kind: FaultKind) {
        self.add_found(path, at, None, kind);
    }

    fn add_found(
        &self,
        path: &Path<'_>,
        at: Option<usize>,
        found: Option<String>,
        kind: FaultKind,
    ) {
        let mut notes = self.notes.borrow_mut();
        if FAULTS_MAX <= notes.len() {
            *self.omitted.borrow_mut() += 1;
            return;
        }
        notes.push(Note {
            at,
            path: path.to_string(),
            found,
            kind,
        });
    }

    /// Adds the parser's faults. If there are any, the rest was read from what the parser could
    /// recover: other faults about missing values or on the same line give no new information.
    pub(super) fn add_syntax(&self, text: &str, errors: &[toml::de::Error]) {
        if errors.is_empty() {
            return;
        }
        let lines = LineStarts::of(text);
        let line_of = |at: Option<usize>| at.map(|at| lines.place(text, at).0);
        let broken: Vec<Option<u32>> = errors
            .iter()
            .map(|error| line_of(error.span().map(|span| span.start)))
            .collect();
        self.notes.borrow_mut().retain(|note| {
            let follows = matches!(
                note.kind,
                FaultKind::Missing { .. } | FaultKind::UnknownPlan { .. }
            );
            !follows && !broken.contains(&line_of(note.at))
        });
        for error in errors {
            let mut message = error.message().trim_end_matches('.').replace('\n', " ");
            let twice = error.span().filter(|_| message == "duplicate key");
            if let Some(key) = twice.and_then(|span| text.get(span)) {
                message = format!("{key} stands in this document twice, expected once");
            }
            let kind = FaultKind::Syntax {
                message: message.into(),
            };
            let at = error.span().map(|span| span.start);
            self.add(&Path::DOCUMENT, at, kind);
        }
    }

    /// The faults in the order of the document.
    pub(super) fn into_faults(self, text: &str) -> Faults {
        let lines = LineStarts::of(text);
        let mut notes = self.notes.into_inner();
        notes.sort_by_key(|note| note.at);
        let list = notes
            .into_iter()
            .map(|note| {
                let place = note.at.map(|at| lines.place(text, at));
                Fault {
                    path: note.path.into_boxed_str(),
                    found: note.found.map(String::into_boxed_str),
                    kind: note.kind,
                    line: place.map(|(line, _)| line),
                    column: place.map(|(_, column)| column),
                }
            })
            .collect();
        Faults {
            list,
            omitted: self.omitted.into_inner(),
        }
    }
}

/// Where the lines of a text begin.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(
            std::iter::once(0)
                .chain(ends.map(|(at, _)| at + 1))
                .collect(),
        )
    }

    /// Line and column of an offset, from 1; columns in characters.
    fn place(&self, text: &str, at: usize) -> (u32, u32) {
        let line = self.0.partition_point(|&start| start <= at);
        let start = self.0[line - 1];
        let column = text
            .get(start..at.min(text.len()))
            .map_or(0, |before| before.chars().count());
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (number(line), number(column + 1))
    }
}

/// A value and the path to it.
pub(super) struct Item<'p, 't> {
    value: &'t DeValue<'t>,
    at: usize,
    pub(super) path: Path<'p>,
    notes: &'p Notes,
}

impl<'p, 't> Item<'p, 't> {
    /// Notes that another value is required here.
    pub(super) fn expected(&self, expected: &'static str) {
        self.fault(FaultKind::Value { expected });
    }

    /// Notes a fault of this value.
    pub(super) fn fault(&self, kind: FaultKind) {
        self.notes
            .add_found(&self.path, Some(self.at), Some(shown(self.value)), kind);
    }

    fn some_or<T>(&self, value: Option<T>, expected: &'static str) -> Option<T> {
        if value.is_none() {
            self.expected(expected);
        }
        value
    }

    /// A whole number within bounds.
    pub(super) fn number(
        &self,
        bounds: std::ops::RangeInclusive<u64>,
        expected: &'static str,
    ) -> Option<u64> {
        let number = match self.value {
            DeValue::Integer(text) => u64::from_str_radix(text.as_str(), text.radix()).ok(),
            _ => None,
        };
        self.some_or(number.filter(|n| bounds.contains(n)), expected)
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self) -> Option<bool> {
        self.some_or(self.value.as_bool(), "`true` or `false`")
    }

    /// A duration within bounds.
    pub(super) fn span(
        &self,
        bounds: std::ops::RangeInclusive<Span>,
        expected: &'static str,
    ) -> Option<Span> {
        let span = self.value.as_str().and_then(parse_span);
        self.some_or(span.filter(|span| bounds.contains(span)), expected)
    }

    /// A rate that satisfies a condition.
    pub(super) fn rate(
        &self,
        condition: impl Fn(&Rate) -> bool,
        expected: &'static str,
    ) -> Option<Rate> {
        let rate = self.value.as_str().and_then(parse_rate);
        self.some_or(rate.filter(condition), expected)
    }

    /// One of some words.
    pub(super) fn one_of<T: Copy>(
        &self,
        choices: &[(&str, T)],
        expected: &'static str,
    ) -> Option<T> {
        let text = self.value.as_str();
        let found = choices.iter().find(|(word, _)| Some(*word) == text);
        self.some_or(found.map(|(_, meaning)| *meaning), expected)
    }

    /// A domain's name in the form that documents may use.
    pub(super) fn name(&self) -> Option<&'t str> {
        let name = self.some_or(self.value.as_str(), "a name in quotes")?;
        match check_name(name) {
            Ok(()) => Some(name),
            Err(fault) => {
                self.notes.add_found(
                    &self.path,
                    Some(self.at),
                    Some(Quoted(name).to_string()),
                    FaultKind::Name(fault),
                );
                None
            }
        }
    }

    /// The fields of a table.
    pub(super) fn table(&self, expected: &'static str) -> Option<Section<'p, 't>> {
        let table = self.some_or(self.value.as_table(), expected)?;
        Some(Section {
            table,
            at: self.at,
            path: self.path,
            notes: self.notes,
        })
    }

    /// Notes a fault of the place, without showing its value.
    pub(super) fn place_fault(&self, kind: FaultKind) {
        self.notes.add(&self.path, Some(self.at), kind);
    }

    /// The value, if it is a text.
    pub(super) fn text(&self) -> Option<&'t str> {
        self.value.as_str()
    }

    /// Whether the value is a table.
    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// One value of this list, by its number from 1.
    pub(super) fn nth<'s>(
        &'s self,
        value: &'t Spanned<DeValue<'t>>,
        number: usize,
    ) -> Item<'s, 't> {
        Item {
            value: value.get_ref(),
            at: value.span().start,
            path: self.path.then(PathStep::Nth(number)),
            notes: self.notes,
        }
    }

    /// The values of a list.
    pub(super) fn list(&self, expected: &'static str) -> Option<&'t [Spanned<DeValue<'t>>]> {
        Some(self.some_or(self.value.as_array(), expected)?)
    }
}

/// A table and the path to it.
#[derive(Clone, Copy)]
pub(super) struct Section<'p, 't> {
    table: &'t DeTable<'t>,
    at: usize,
    pub(super) path: Path<'p>,
    notes: &'p Notes,
}

impl<'p, 't> Section<'p, 't> {
    /// The whole document.
    pub(super) fn document(table: &'t DeTable<'t>, notes: &'p Notes) -> Self {
        Self {
            table,
            at: 0,
            path: Path::DOCUMENT,
            notes,
        }
    }

    /// Notes every field that is not among the known ones.
    pub(super) fn only(&self, known: &'static [&'static str]) {
        self.only_beside(known, &[]);
    }

    /// The same, but ignores the fields in `silent`, for which the caller has messages of its own.
    pub(super) fn only_beside(&self, known: &'static [&'static str], silent: &[&str]) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) && !silent.contains(&name) {
                let kind = FaultKind::UnknownField {
                    suggestion: nearest(name, known.iter().copied()),
                    known,
                };
                let path = self.path.then(PathStep::Field(name));
                self.notes.add(&path, Some(key.span().start), kind);
            }
        }
    }

    /// The raw value of a field, if it is there.
    pub(super) fn value(&self, field: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.get(field)
    }

    /// The value of a field, if it is there.
    pub(super) fn get<'s>(&'s self, field: &'s str) -> Option<Item<'s, 't>> {
        let value = self.value(field)?;
        Some(self.item(value, PathStep::Field(field)))
    }

    /// The value of a field that has to be there.
    pub(super) fn require<'s>(
        &'s self,
        field: &'s str,
        expected: &'static str,
    ) -> Option<Item<'s, 't>> {
        let item = self.get(field);
        if item.is_none() {
            self.missing(field, expected);
        }
        item
    }

    /// Notes that a field has to be there.
    pub(super) fn missing(&self, field: &str, expected: &'static str) {
        let path = self.path.then(PathStep::Field(field));
        self.notes
            .add(&path, Some(self.at), FaultKind::Missing { expected });
    }

    /// Notes a fault of something in this table that another item caused.
    pub(super) fn place_fault_below(&self, step: PathStep<'_>, by: &Item<'_, '_>, kind: FaultKind) {
        self.notes.add(&self.path.then(step), Some(by.at), kind);
    }

    /// A table in this one with a path step of its own, if it is there.
    pub(super) fn section(
        &self,
        name: &'static str,
        step: PathStep<'p>,
    ) -> Option<Section<'_, 't>> {
        self.item(self.value(name)?, step).table("a table")
    }

    /// A value of this table, or of a list in it, under the path step `step`.
    pub(super) fn item<'s>(
        &'s self,
        value: &'t Spanned<DeValue<'t>>,
        step: PathStep<'s>,
    ) -> Item<'s, 't> {
        Item {
            value: value.get_ref(),
            at: value.span().start,
            path: self.path.then(step),
            notes: self.notes,
        }
    }

    /// All fields, whose names the user chooses, as path steps of a kind.
    pub(super) fn named<'s>(
        &'s self,
        kind: &'static str,
    ) -> impl Iterator<Item = (&'t str, Item<'s, 't>)> {
        self.table.iter().map(move |(key, value)| {
            let name: &'t str = key.get_ref();
            let item = Item {
                at: key.span().start,
                ..self.item(value, PathStep::Named(kind, name))
            };
            (name, item)
        })
    }

    /// The same with checked names: invalid ones are noted as faults and left out.
    pub(super) fn checked<'s>(
        &'s self,
        kind: &'static str,
    ) -> impl Iterator<Item = (&'t str, Item<'s, 't>)> {
        self.named(kind)
            .filter(|(name, item)| match check_name(name) {
                Ok(()) => true,
                Err(fault) => {
                    item.place_fault(FaultKind::Name(fault));
                    false
                }
            })
    }
}

/// The candidate with the most similar spelling, if one is near: at most a third of the letters
/// differ, where swapped neighbours count once.
pub fn nearest<'k>(name: &str, candidates: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // A name that is far too long cannot be near, and comparing is quadratic in the length.
    const COMPARED_BYTES_MAX: usize = 64;
    if COMPARED_BYTES_MAX < name.len() {
        return None;
    }
    candidates
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// A value as messages show it.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => Quoted(text).to_string(),
        DeValue::Integer(number) => cut(&number.to_string()),
        DeValue::Float(number) => cut(number.as_str()),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(instant) => instant.to_string(),
        DeValue::Array(_) => "[...]".to_owned(),
        DeValue::Table(_) => "{...}".to_owned(),
    }
}

fn cut(number: &str) -> String {
    const CHARS_SHOWN: usize = 40;
    match number.char_indices().nth(CHARS_SHOWN) {
        None => number.to_owned(),
        Some((cut, _)) => format!("{}...", &number[..cut]),
    }
}

/// The tree of a text, as far as the parser could recover it, and the parser's faults.
pub(super) fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<toml::de::Error>) {
    DeTable::parse_recoverable(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_spellings_are_suggested() {
        let known = ["window", "limit", "hard"];
        let near = |name| nearest(name, known.into_iter());
        assert_eq!(near("windwo"), Some("window"));
        assert_eq!(near("limits"), Some("limit"));
        assert_eq!(near("Hard"), Some("hard"));
        assert_eq!(near("hxyz"), None);
        assert_eq!(near(""), None);
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "a\nää = 1\n";
        let lines = LineStarts::of(text);
        assert_eq!(lines.place(text, 0), (1, 1));
        assert_eq!(lines.place(text, text.find('=').unwrap_or(0)), (2, 4));
        assert_eq!(lines.place(text, text.len()), (3, 1));
    }
}
