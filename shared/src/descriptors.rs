//! Rules that map Envoy's descriptors to a resource and a domain.
//!
//! ```text
//! keys ["path=/api/*", "remote_address"]   resource "edge.api"   domain "{remote_address}"
//!
//! [path: /api/search, remote_address: 203.0.113.7]      edge.api, 203.0.113.7
//! [path: /home, remote_address: 203.0.113.7]            no match: another path
//! [path: /api/search]                                   no match: an entry is missing
//! ```
//!
//! A descriptor is a list of entries, each a key and a value. A rule matches a descriptor with as many entries as it
//! has keys, in the same order; the first rule that matches counts. One key may occur several times, as Envoy's
//! `generic_key` and `header_match` do: `{#2}` is the value of the second entry, whatever its key. Knows nothing of
//! limits, gRPC or files. What stays true: a parsed rule expands for every descriptor that it matches.

mod covers;

use std::fmt;

/// The most rules of one domain of descriptors: even with the longest texts they take fewer bytes than public limits
/// may have ([`GROUPS_BYTES_MAX`](crate::wire::public::GROUPS_BYTES_MAX)).
pub const RULES_MAX: usize = 96;

/// The most keys of a rule.
pub const KEYS_MAX: usize = 8;

/// The most bytes of a key with its value, and of the template of a resource or a domain.
pub const TEXT_BYTES_MAX: usize = 256;

/// Bytes of a text's head in a message.
const TEXT_HEAD: usize = 3;

/// Bytes of the names of a rule's fields in a message, and of its values that are not texts.
const RULE_HEADS: usize = 32;

/// The most bytes of a rule in a message.
pub const RULE_BYTES_MAX: usize = RULE_HEADS + (KEYS_MAX + 2) * (TEXT_BYTES_MAX + TEXT_HEAD);

/// The prefix of the names under which agents ask for rules, which take precedence over a resource of that name.
const RESERVED: &str = "~descriptors.";

/// The name under which agents ask for the rules of a domain of descriptors, as they ask for a resource's limits.
pub fn resource_of_rules(descriptors: &str) -> String {
    format!("{RESERVED}{descriptors}")
}

/// The domain of descriptors whose rules have this name; `None` if it is not a name of rules.
pub fn rules_of_resource(resource: &str) -> Option<&str> {
    resource.strip_prefix(RESERVED)
}

/// What is wrong with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// It has no keys, or too many.
    #[error("expected 1 to {KEYS_MAX} keys")]
    Keys,
    /// A text is too long.
    #[error("expected at most {TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// A control character.
    #[error("expected no control characters")]
    Control,
    /// A key without a name, or a pattern that no value can match.
    #[error("expected \"KEY\", \"KEY=VALUE\", \"KEY=PREFIX*\", \"KEY!=VALUE\" or \"KEY!=PREFIX*\"")]
    Key,
    /// A placeholder for a key that occurs several times in the rule.
    #[error("a key that stands in this rule twice, expected {{#N}} for the N-th entry")]
    Ambiguous,
    /// An empty text for a resource or a domain.
    #[error("expected a name, or a text with {{KEY}} in it")]
    Empty,
    /// A brace that does not enclose one of the rule's keys.
    #[error("expected {{KEY}} with one of the rule's keys, or {{#N}} for the N-th entry")]
    Placeholder,
}

/// The values that an entry may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Values {
    Any,
    One(Box<str>),
    From(Box<str>),
    AllBut(Box<str>),
    AllButFrom(Box<str>),
}

/// A key, and the values that it may have: `path`, `method=POST`, `path=/api/*`, `method!=GET`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPattern {
    key: Box<str>,
    values: Values,
}

impl KeyPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// [`RuleFault`] for a pattern without a name, or one that is too long.
    pub fn parse(text: &str) -> Result<Self, RuleFault> {
        check_text(text)?;
        let (key, values) = match text.split_once('=') {
            None => (text, Values::Any),
            Some((key, value)) => match (key.strip_suffix('!'), value.strip_suffix('*')) {
                (None, Some("")) => (key, Values::Any),
                (None, Some(prefix)) => (key, Values::From(prefix.into())),
                (None, None) => (key, Values::One(value.into())),
                // `KEY!=*` would exclude every value.
                (Some(_), Some("")) => return Err(RuleFault::Key),
                (Some(key), Some(prefix)) => (key, Values::AllButFrom(prefix.into())),
                (Some(key), None) => (key, Values::AllBut(value.into())),
            },
        };
        if key.is_empty() {
            return Err(RuleFault::Key);
        }
        Ok(Self {
            key: key.into(),
            values,
        })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn matches(&self, key: &str, value: &str) -> bool {
        *self.key == *key
            && match &self.values {
                Values::Any => true,
                Values::One(one) => **one == *value,
                Values::From(prefix) => value.starts_with(&**prefix),
                Values::AllBut(one) => **one != *value,
                Values::AllButFrom(prefix) => !value.starts_with(&**prefix),
            }
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.values {
            Values::Any => f.write_str(&self.key),
            Values::One(value) => write!(f, "{}={value}", self.key),
            Values::From(prefix) => write!(f, "{}={prefix}*", self.key),
            Values::AllBut(value) => write!(f, "{}!={value}", self.key),
            Values::AllButFrom(prefix) => write!(f, "{}!={prefix}*", self.key),
        }
    }
}

/// A text in which `{KEY}`, or `{#N}` for the N-th entry, is replaced by the value of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Template {
    text: Box<str>,
    parts: Box<[TemplatePart]>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TemplatePart {
    Text(Box<str>),
    /// The value of the entry at this position.
    Value(usize),
}

impl Template {
    /// Reads a text for a rule with these keys.
    ///
    /// # Errors
    ///
    /// [`RuleFault`] for an empty text, one that is too long, or a placeholder that does not identify an entry.
    pub fn parse(text: &str, keys: &[KeyPattern]) -> Result<Self, RuleFault> {
        if text.is_empty() {
            return Err(RuleFault::Empty);
        }
        check_text(text)?;
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (before, behind) = match rest.split_once('{') {
                Some((before, behind)) => (before, Some(behind)),
                None => (rest, None),
            };
            if before.contains('}') {
                return Err(RuleFault::Placeholder);
            }
            if !before.is_empty() {
                parts.push(TemplatePart::Text(before.into()));
            }
            let Some(behind) = behind else {
                break;
            };
            let (key, behind) = behind.split_once('}').ok_or(RuleFault::Placeholder)?;
            parts.push(TemplatePart::Value(entry_of(key, keys)?));
            rest = behind;
        }
        Ok(Self {
            text: text.into(),
            parts: parts.into(),
        })
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn expand(&self, entries: &[(&str, &str)]) -> String {
        let parts = self.parts.iter().map(|part| match part {
            TemplatePart::Text(text) => text,
            // A rule is only expanded for a descriptor that it matches, which has an entry for each key.
            TemplatePart::Value(at) => entries.get(*at).map_or("", |(_, value)| value),
        });
        parts.collect()
    }
}

/// A rule: which descriptors are uses of which resource, on behalf of which domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DescriptorRule {
    keys: Box<[KeyPattern]>,
    resource: Template,
    domain: Template,
    records: bool,
}

/// The use that a descriptor stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The resource.
    pub resource: String,
    /// The domain.
    pub domain: String,
    /// Whether its hits are only recorded, never refused.
    pub records: bool,
}

impl DescriptorRule {
    /// A rule of checked parts. `records`: matching uses have already happened, so they are recorded and never
    /// refused.
    ///
    /// # Errors
    ///
    /// [`RuleFault::Keys`] for no keys or too many.
    pub fn new(
        keys: Vec<KeyPattern>,
        resource: Template,
        domain: Template,
        records: bool,
    ) -> Result<Self, RuleFault> {
        check_keys(&keys)?;
        Ok(Self {
            keys: keys.into(),
            resource,
            domain,
            records,
        })
    }

    /// The same from texts.
    ///
    /// # Errors
    ///
    /// [`RuleFault`] says what is wrong with them.
    pub fn parse(
        keys: &[&str],
        resource: &str,
        domain: &str,
        records: bool,
    ) -> Result<Self, RuleFault> {
        let patterns = keys.iter().map(|key| KeyPattern::parse(key));
        let keys = patterns.collect::<Result<Vec<_>, _>>()?;
        let resource = Template::parse(resource, &keys)?;
        let domain = Template::parse(domain, &keys)?;
        Self::new(keys, resource, domain, records)
    }

    /// The keys that a descriptor must have, in their order.
    pub fn keys(&self) -> &[KeyPattern] {
        &self.keys
    }

    /// The template of the resource.
    pub fn resource(&self) -> &Template {
        &self.resource
    }

    /// The template of the domain.
    pub fn domain(&self) -> &Template {
        &self.domain
    }

    /// Whether matching uses are only recorded, never refused.
    pub const fn records(&self) -> bool {
        self.records
    }

    /// An upper bound on its bytes in a message.
    pub fn announced_bytes(&self) -> usize {
        let keys = self.keys.iter().map(|key| match &key.values {
            Values::Any => key.key.len(),
            Values::One(value)
            | Values::From(value)
            | Values::AllBut(value)
            | Values::AllButFrom(value) => key.key.len() + value.len() + "!=*".len(),
        });
        let texts = [self.resource.text.len(), self.domain.text.len()];
        let texts = keys.chain(texts);
        RULE_HEADS + texts.map(|bytes| bytes + TEXT_HEAD).sum::<usize>()
    }

    /// The use that a descriptor with these entries stands for. `None`: the rule does not match it.
    pub fn apply(&self, entries: &[(&str, &str)]) -> Option<Matched> {
        let is_match = self.keys.len() == entries.len()
            && self
                .keys
                .iter()
                .zip(entries)
                .all(|(pattern, (key, value))| pattern.matches(key, value));
        is_match.then(|| Matched {
            resource: self.resource.expand(entries),
            domain: self.domain.expand(entries),
            records: self.records,
        })
    }
}

fn check_text(text: &str) -> Result<(), RuleFault> {
    match text.len() <= TEXT_BYTES_MAX {
        false => Err(RuleFault::TooLong),
        true if text.contains(char::is_control) => Err(RuleFault::Control),
        true => Ok(()),
    }
}

/// The entry that a placeholder stands for: by key, or the N-th.
fn entry_of(placeholder: &str, keys: &[KeyPattern]) -> Result<usize, RuleFault> {
    let keyed = keys.iter().enumerate();
    let mut named = keyed.filter(|(_, one)| *one.key == *placeholder);
    match (named.next(), named.next()) {
        (Some((at, _)), None) => Ok(at),
        (Some(_), Some(_)) => Err(RuleFault::Ambiguous),
        (None, _) => {
            let number = placeholder.strip_prefix('#');
            let number = number.and_then(|number| number.parse::<usize>().ok());
            let at = number.and_then(|number| number.checked_sub(1));
            at.filter(|at| *at < keys.len())
                .ok_or(RuleFault::Placeholder)
        }
    }
}

/// Whether a rule may have these keys.
///
/// # Errors
///
/// [`RuleFault::Keys`] for no keys or too many.
pub const fn check_keys(keys: &[KeyPattern]) -> Result<(), RuleFault> {
    match keys.len() {
        1..=KEYS_MAX => Ok(()),
        _ => Err(RuleFault::Keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(keys: &[&str], resource: &str, domain: &str) -> DescriptorRule {
        DescriptorRule::parse(keys, resource, domain, false).expect("a rule")
    }

    #[test]
    fn a_rule_matches_by_keys_values_and_prefixes_in_order() {
        let rule = rule(
            &["method=POST", "path=/api/*", "remote_address"],
            "edge.{method}",
            "{remote_address}|{path}",
        );
        let matched = |entries: &[(&str, &str)]| {
            let matched = rule.apply(entries)?;
            Some(format!("{} {}", matched.resource, matched.domain))
        };
        let [post, path] = [("method", "POST"), ("path", "/api/x")];
        let address = ("remote_address", "203.0.113.7");
        assert_eq!(
            matched(&[post, path, address]).as_deref(),
            Some("edge.POST 203.0.113.7|/api/x")
        );
        for other in [
            &[post, path][..],
            &[post, path, address, ("more", "x")],
            &[path, post, address],
            &[("method", "GET"), path, address],
            &[post, ("path", "/home"), address],
            &[post, ("route", "/api/x"), address],
            &[],
        ] {
            assert_eq!(matched(other), None, "{other:?}");
        }
    }

    #[test]
    fn values_are_put_in_as_they_are() {
        let rule = rule(&["a", "b"], "r", "{a}{b}-{a}");
        let matched = rule.apply(&[("a", "{b}"), ("b", "")]).expect("it matches");
        assert_eq!(matched.domain, "{b}-{b}");
    }

    #[test]
    fn the_same_key_may_stand_in_a_descriptor_twice() {
        let rule = rule(
            &["generic_key=slow", "generic_key", "tenant"],
            "edge.{#2}",
            "{tenant}",
        );
        let matched = |entries: &[(&str, &str)]| {
            let matched = rule.apply(entries)?;
            Some(format!("{} {}", matched.resource, matched.domain))
        };
        let (slow, post, acme) = (
            ("generic_key", "slow"),
            ("generic_key", "post"),
            ("tenant", "acme"),
        );
        let found = matched(&[slow, post, acme]);
        assert_eq!(found.as_deref(), Some("edge.post acme"));
        assert_eq!(matched(&[post, slow, acme]), None, "in another order");
        assert_eq!(matched(&[slow, acme]), None, "just once");
        // If a key has the form of an entry's number, the placeholder means the key.
        let named = DescriptorRule::parse(&["a", "#1"], "r", "{#1}{#2}", false).expect("a rule");
        let matched = named.apply(&[("a", "x"), ("#1", "y")]).expect("it matches");
        assert_eq!(matched.domain, "yy");
    }

    #[test]
    fn a_key_may_have_all_values_but_one() {
        let matches = |key: &str, value: &str| {
            let rule = rule(&[key], "r", "d");
            rule.apply(&[("path", value)]).is_some()
        };
        assert!(matches("path!=/health", "/api"));
        assert!(!matches("path!=/health", "/health"));
        assert!(matches("path!=/in/*", "/api"));
        assert!(!matches("path!=/in/*", "/in/x"));
        let no_entry = rule(&["path!=/health"], "r", "d").apply(&[("other", "x")]);
        assert_eq!(no_entry, None, "it has to have the key");
    }

    #[test]
    fn an_impossible_rule_is_refused() {
        let long = "k".repeat(TEXT_BYTES_MAX + 1);
        for (keys, resource, domain, fault) in [
            (&[][..], "r", "d", RuleFault::Keys),
            (&["k"; KEYS_MAX + 1], "r", "d", RuleFault::Keys),
            (&["=x"], "r", "d", RuleFault::Key),
            (&[""], "r", "d", RuleFault::Key),
            (&["k", "k=1"], "r", "{k}", RuleFault::Ambiguous),
            (&["k!=*"], "r", "d", RuleFault::Key),
            (&["!=x"], "r", "d", RuleFault::Key),
            (&["k"], "r", "{#2}", RuleFault::Placeholder),
            (&["k"], "r", "{#0}", RuleFault::Placeholder),
            (&["k"], "r", "{#}", RuleFault::Placeholder),
            (&[&*long], "r", "d", RuleFault::TooLong),
            (&["k"], "", "d", RuleFault::Empty),
            (&["k"], "r", "{other}", RuleFault::Placeholder),
            (&["k=\u{1}"], "r", "d", RuleFault::Control),
            (&["k"], "r}", "d", RuleFault::Placeholder),
            (&["k"], "{k", "d", RuleFault::Placeholder),
        ] {
            let found = DescriptorRule::parse(keys, resource, domain, false);
            assert_eq!(found, Err(fault), "{keys:?} {resource} {domain}");
        }
    }

    #[test]
    fn a_pattern_is_printed_as_it_is_read() {
        for text in [
            "path",
            "path=",
            "path=/api",
            "path=/api/*",
            "path=a=b",
            "path!=/api",
            "path!=/api/*",
        ] {
            let pattern = KeyPattern::parse(text).expect("a pattern");
            assert_eq!(pattern.to_string(), text);
        }
        let any = KeyPattern::parse("path=*").expect("a pattern");
        assert_eq!(any.to_string(), "path");
    }

    #[test]
    fn rules_have_a_name_that_no_resource_has() {
        assert_eq!(rules_of_resource(&resource_of_rules("edge")), Some("edge"));
        assert_eq!(rules_of_resource("edge"), None);
    }
}
