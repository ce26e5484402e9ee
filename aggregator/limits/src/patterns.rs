//! Resources that are configured by pattern: which pattern a name belongs to.
//!
//! ```text
//! api.*    api.se*    *          api.search -> api.se*, the longest      web -> *
//! ```
//!
//! Knows nothing of limits. What stays true: names that are configured themselves are not looked up
//! here.

use std::collections::{BTreeMap, BTreeSet};

/// Patterns by the text before their `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    numbers: BTreeMap<Box<str>, usize>,
    /// Lengths of these texts that occur, longest first: at most as many look-ups as a name has bytes.
    lengths: Box<[usize]>,
}

impl Patterns {
    /// The patterns among `names`; a pattern's number is its position there.
    pub fn among<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let literal =
            |(number, name): (usize, &str)| Some((name.strip_suffix('*')?.into(), number));
        let numbers: BTreeMap<Box<str>, usize> = names.enumerate().filter_map(literal).collect();
        let lengths: BTreeSet<usize> = numbers.keys().map(|literal| literal.len()).collect();
        Self {
            numbers,
            lengths: lengths.into_iter().rev().collect(),
        }
    }

    /// The number of the longest pattern that a name matches.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        let of_length = |length: &usize| self.numbers.get(name.get(..*length)?).copied();
        self.lengths.iter().find_map(of_length)
    }
}

/// Whether a name is a pattern of resources of several namespaces: nothing before its `*` ends the first part of a name.
pub(super) fn spans_namespaces(name: &str) -> bool {
    name.strip_suffix('*')
        .is_some_and(|literal| !literal.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_literal_wins() {
        let patterns = Patterns::among(["*", "api.*", "api.search", "api.se*"].into_iter());
        assert_eq!(patterns.number_of("api.search"), Some(3));
        assert_eq!(patterns.number_of("api.export"), Some(1));
        assert_eq!(patterns.number_of("api"), Some(0));
        assert_eq!(Patterns::among(["a.*"].into_iter()).number_of("b.c"), None);
    }

    #[test]
    fn a_pattern_without_a_dot_spans_namespaces() {
        let spanning = ["*", "pay*", "pay.*", "pay.in*", "pay"];
        let spanning = spanning.map(spans_namespaces);
        assert_eq!(spanning, [true, true, false, false, false]);
    }
}
