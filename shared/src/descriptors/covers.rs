//! Whether one pattern of descriptors matches all that another one does, so that a rule behind it never matches.
//!
//! ```text
//! path        covers  path=/search*             path=/s*    covers  path=/search
//! path!=/a    covers  path=/b, path!=/a*        path=/s*    does not cover  path=/*
//! ```
//!
//! Knows nothing of rules. What stays true: an entry that the covered pattern matches is matched by the covering one.

use super::{DescriptorRule, KeyPattern, Values};

impl KeyPattern {
    /// Whether every entry that the other pattern matches is matched by this one.
    pub fn covers(&self, other: &Self) -> bool {
        let is_covered = match (&self.values, &other.values) {
            (Values::Any, _) => true,
            (_, Values::Any) => false,
            // One value is matched, or it is not.
            (_, Values::One(value)) => return self.matches(&other.key, value),
            (Values::One(_), _) | (Values::AllButFrom(_), Values::AllBut(_)) => false,
            (Values::From(prefix), Values::From(longer)) => longer.starts_with(&**prefix),
            // All values but a few begin in other ways, too.
            (Values::From(_), Values::AllBut(_) | Values::AllButFrom(_)) => false,
            (Values::AllBut(one), Values::AllBut(other)) => one == other,
            (Values::AllBut(one), Values::From(prefix)) => !one.starts_with(&**prefix),
            (Values::AllBut(one), Values::AllButFrom(prefix)) => one.starts_with(&**prefix),
            (Values::AllButFrom(prefix), Values::From(other)) => {
                !other.starts_with(&**prefix) && !prefix.starts_with(&**other)
            }
            (Values::AllButFrom(prefix), Values::AllButFrom(other)) => prefix.starts_with(&**other),
        };
        self.key == other.key && is_covered
    }
}

impl DescriptorRule {
    /// Whether every descriptor that the other rule matches is matched by this one.
    pub fn covers(&self, other: &Self) -> bool {
        let mut keys = self.keys.iter().zip(&other.keys);
        self.keys.len() == other.keys.len() && keys.all(|(one, other)| one.covers(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_covering_pattern_matches_what_the_other_one_matches() {
        let texts = [
            "k", "k=", "k=a", "k=ab", "k=b", "k=a*", "k=ab*", "k=b*", "k!=", "k!=a", "k!=ab",
            "k!=b", "k!=a*", "k!=ab*", "k!=b*", "l=a",
        ];
        // They tell all these patterns apart.
        let values = ["", "a", "ab", "abc", "ac", "b", "bc", "c"];
        let patterns = texts.map(|text| KeyPattern::parse(text).expect("a pattern"));
        for (one, other) in patterns
            .iter()
            .flat_map(|one| patterns.iter().map(move |of| (one, of)))
        {
            let entries = ["k", "l"].map(|key| values.map(|value| (key, value)));
            let mut matched =
                { entries.concat().into_iter() }.filter(|(key, value)| other.matches(key, value));
            let expected = matched.all(|(key, value)| one.matches(key, value));
            assert_eq!(one.covers(other), expected, "{one} and {other}");
        }
    }
}
