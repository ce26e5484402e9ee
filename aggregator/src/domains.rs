//! Domains for who types their names, where the log has keyed hashes of them.
//!
//! ```text
//! explain api.search acme          ── key ──> asks for h~5f2c1e~0c41…
//! [rate.x.domains.acme]            ── key ──> [rate.x.domains."h~5f2c1e~0c41…"], and that goes to the log
//! h~5f2c1e~0c41… copied from a list           stays, if it is of this key
//! ```
//!
//! Nobody else in this program knows the key: logs, engines, views and HTTP have hashes alone. What stays
//! true: a name that is typed with a key does not leave this room; and hashes of two keys, or names beside
//! hashes, are not taken for one fleet's.

use std::collections::HashSet;
use std::mem::{replace, take};
use std::path::Path;
use std::str::FromStr as _;

use tollgate_shared::domain_key::{DomainKey, DomainKeyFault, HASHED_PREFIX, hashed_under};
use tollgate_shared::names::admit_domain;
use toml_edit::{Array, DocumentMut, Item, Key, TableLike, Value};

/// What domains are called in the log.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    /// None: by their names.
    key: Option<DomainKey>,
}

/// Why a domain key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileFault {
    /// It cannot be read.
    #[error("domain key {name}: {source}")]
    Unreadable {
        /// The file.
        name: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// It is none.
    #[error("domain key {name}: {fault}")]
    Bad {
        /// The file.
        name: String,
        /// What is wrong with it.
        fault: DomainKeyFault,
    },
}

/// Why a name cannot stand for a domain of this fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mixture {
    /// It is a hash under another key.
    #[error(
        "\"{domain}\" is hashed under the key {found}, expected a name, or a hash under {expected}"
    )]
    OtherKey {
        /// The domain.
        domain: String,
        /// The id of its key.
        found: String,
        /// The id of the one that was given.
        expected: String,
    },
    /// Two keys in one document.
    #[error("domains are hashed under the keys {one} and {other}, expected those of one")]
    TwoKeys {
        /// The id of the one.
        one: String,
        /// The id of the other.
        other: String,
    },
    /// Names beside hashes.
    #[error(
        "\"{name}\" stands beside domains that are hashed under the key {key}, and would be nobody's: \
         expected --domain-key, which hashes it"
    )]
    Clear {
        /// The first of the names.
        name: String,
        /// The id of the others' key.
        key: String,
    },
    /// A domain by its name and by its hash.
    #[error("\"{domain}\" stands there by its name and by its hash")]
    Twice {
        /// The domain.
        domain: String,
    },
}

impl Domains {
    /// Reads a domain key.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or keeps nothing secret.
    pub fn read(path: &Path) -> Result<Self, KeyFileFault> {
        let name = || path.display().to_string();
        let file = std::fs::read(path).map_err(|source| KeyFileFault::Unreadable {
            name: name(),
            source,
        })?;
        let key = DomainKey::derive(&file).map_err(|fault| KeyFileFault::Bad {
            name: name(),
            fault,
        })?;
        Ok(Self { key: Some(key) })
    }

    /// What a domain is called in the log.
    ///
    /// # Errors
    ///
    /// Where it is a hash under another key.
    pub fn of(&self, domain: &str) -> Result<String, Mixture> {
        let Some(key) = &self.key else {
            return Ok(domain.to_owned());
        };
        match hashed_under(domain) {
            Some(id) if id == key.id() => Ok(domain.to_owned()),
            Some(id) => Err(Mixture::OtherKey {
                domain: domain.to_owned(),
                found: id.to_owned(),
                expected: key.id().to_owned(),
            }),
            None => Ok(key.hash(&admit_domain(domain)).as_str().to_owned()),
        }
    }

    /// A limits document as it may stand in the log: its domains hashed, everything else as it was, comments
    /// included. One that is no TOML stays as it is, for its reader to refuse.
    ///
    /// # Errors
    ///
    /// Where its domains are not one fleet's.
    pub fn document(&self, text: String) -> Result<String, Mixture> {
        // Without a key nothing is to be changed, and where nothing can be a hash, nothing can be mixed up. (A
        // hash may be spelt with escapes.)
        if self.key.is_none() && !text.contains(HASHED_PREFIX) && !text.contains('\\') {
            return Ok(text);
        }
        let Ok(mut document) = DocumentMut::from_str(&text) else {
            return Ok(text);
        };
        let mut found = Found::default();
        let mut changed = false;
        each_domain(&mut document, &mut |domain| {
            let called = self.of(domain)?;
            found.take(&called)?;
            changed |= called != domain;
            Ok(called)
        })?;
        found.are_alike()?;
        Ok(match changed {
            true => document.to_string(),
            false => text,
        })
    }
}

/// The domains of a document, as they come.
#[derive(Default)]
struct Found {
    name: Option<String>,
    key: Option<String>,
}

impl Found {
    fn take(&mut self, domain: &str) -> Result<(), Mixture> {
        let Some(id) = hashed_under(domain) else {
            self.name.get_or_insert_with(|| domain.to_owned());
            return Ok(());
        };
        match &self.key {
            Some(one) if one != id => Err(Mixture::TwoKeys {
                one: one.clone(),
                other: id.to_owned(),
            }),
            Some(_) => Ok(()),
            None => {
                self.key = Some(id.to_owned());
                Ok(())
            }
        }
    }

    fn are_alike(self) -> Result<(), Mixture> {
        match (self.name, self.key) {
            (Some(name), Some(key)) => Err(Mixture::Clear { name, key }),
            _ => Ok(()),
        }
    }
}

type Calling<'c> = &'c mut dyn FnMut(&str) -> Result<String, Mixture>;

/// Calls every domain of a document what `call` says. What is not where documents have it is passed over.
fn each_domain(document: &mut DocumentMut, call: Calling<'_>) -> Result<(), Mixture> {
    if let Some(plans) = document.get_mut("plans").and_then(Item::as_table_like_mut) {
        for (_, plan) in plans.iter_mut() {
            each_of_list(plan, call)?;
        }
    }
    for kind in ["rate", "copies"] {
        let resources = document.get_mut(kind).and_then(Item::as_table_like_mut);
        for (_, resource) in resources.into_iter().flat_map(|table| table.iter_mut()) {
            let Some(resource) = resource.as_table_like_mut() else {
                continue;
            };
            each_key(resource, call)?;
            let candidate = resource.get_mut("candidate");
            if let Some(candidate) = candidate.and_then(Item::as_table_like_mut) {
                each_key(candidate, call)?;
            }
            let groups = resource.get_mut("groups").and_then(Item::as_table_like_mut);
            for (_, group) in groups.into_iter().flat_map(|table| table.iter_mut()) {
                let group = group.as_table_like_mut();
                if let Some(members) = group.and_then(|group| group.get_mut("members")) {
                    each_of_list(members, call)?;
                }
            }
        }
    }
    Ok(())
}

fn each_of_list(list: &mut Item, call: Calling<'_>) -> Result<(), Mixture> {
    let values = list.as_array_mut().into_iter().flat_map(Array::iter_mut);
    for value in values {
        if let Some(domain) = value.as_str() {
            let mut called = Value::from(call(domain)?);
            *called.decor_mut() = value.decor().clone();
            *value = called;
        }
    }
    Ok(())
}

/// The keys of the table `domains` in a resource, in their order.
///
/// All keys are found, then all values are taken out, then all are put in again: taking one key after the other
/// from the front would move those behind it each time, which took minutes where there were 100,000.
fn each_key(resource: &mut dyn TableLike, call: Calling<'_>) -> Result<(), Mixture> {
    let Some(domains) = resource.get_mut("domains") else {
        return Ok(());
    };
    let Some(table) = domains.as_table_like() else {
        return Ok(());
    };
    let mut seen = HashSet::new();
    let mut keys = Vec::new();
    let mut changed = false;
    for (domain, _) in table.iter() {
        let called = call(domain)?;
        changed |= called != domain;
        let key = match table.key(domain) {
            Some(key) => as_called(key, &called),
            None => Key::new(&called),
        };
        if !seen.insert(called) {
            let domain = domain.to_owned();
            return Err(Mixture::Twice { domain });
        }
        keys.push(key);
    }
    if !changed {
        return Ok(());
    }
    match domains {
        Item::Table(table) => {
            let items: Vec<Item> = table.iter_mut().map(|(_, item)| take(item)).collect();
            table.clear();
            for (key, item) in keys.iter().zip(items) {
                table.insert_formatted(key, item);
            }
        }
        Item::Value(Value::InlineTable(table)) => {
            let none = || Value::from(false);
            let values = table.iter_mut().map(|(_, value)| replace(value, none()));
            let values: Vec<Value> = values.collect();
            table.clear();
            for (key, value) in keys.iter().zip(values) {
                table.insert_formatted(key, value);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Another key, with what stood around it.
fn as_called(key: &Key, called: &str) -> Key {
    if key.get() == called {
        return key.clone();
    }
    Key::new(called)
        .with_leaf_decor(key.leaf_decor().clone())
        .with_dotted_decor(key.dotted_decor().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_engine::limits::Limits;

    fn domains(file: &[u8]) -> Domains {
        Domains {
            key: Some(DomainKey::derive(file).expect("a key")),
        }
    }

    const KEY: &[u8] = b"5f0c3e6f4f0b4b5a8c1d2e3f40516273";
    const OTHER: &[u8] = b"6f0c3e6f4f0b4b5a8c1d2e3f40516273";

    const DOCUMENT: &str = r#"version = 1
rules = 2
[plans]
gold = ["acme", "globex"] # ours
[rate."api.search"]
rate = "100/s"
[rate."api.search".plans.gold]
rate = "1000/s"
[rate."api.search".domains."203.0.113.7"] # a crawler
rate = "5/s"
[rate."api.search".domains.zeta]
rate = "6/s"
[copies.sandbox]
limit = 10
domains = { acme = 50, b = 4 }
groups.probation = { limit = 4, members = ["new-1", "new-2"] }
"#;

    #[test]
    fn every_domain_of_a_document_is_hashed_and_nothing_else_changes() {
        let domains = domains(KEY);
        let hashed = domains.document(DOCUMENT.to_owned()).expect("one fleet's");
        let mut expected = DOCUMENT.to_owned();
        let of = |name: &str| format!("\"{}\"", domains.of(name).expect("a name"));
        for (name, quoted) in [
            ("acme", "[\"acme\""),
            ("globex", ", \"globex\"]"),
            ("203.0.113.7", "\"203.0.113.7\""),
            ("zeta", ".zeta]"),
            ("acme", "{ acme"),
            ("b", " b ="),
            ("new-1", "\"new-1\""),
            ("new-2", "\"new-2\""),
        ] {
            let bare = quoted.trim_matches(|c| "[]{},. =".contains(c));
            assert_eq!(expected.matches(quoted).count(), 1, "{quoted}");
            expected = expected.replace(quoted, &quoted.replace(bare, &of(name)));
        }
        assert_eq!(hashed, expected);
        assert!(Limits::parse(&hashed).is_ok(), "{hashed}");
        // Again it is itself, with the key and without.
        assert_eq!(domains.document(hashed.clone()).as_ref(), Ok(&hashed));
        assert_eq!(Domains::default().document(hashed.clone()), Ok(hashed));
    }

    #[test]
    fn names_and_hashes_of_two_keys_are_not_one_fleets() {
        let (ours, theirs) = (domains(KEY), domains(OTHER));
        let hash = ours.of("acme").expect("a name");
        assert_eq!(ours.of(&hash).as_ref(), Ok(&hash), "copied from a list");
        assert!(matches!(theirs.of(&hash), Err(Mixture::OtherKey { .. })));
        let plan = |names: &[&str]| format!("[plans]\ngold = {names:?}\n");
        let none = Domains::default();
        let other = theirs.of("acme").expect("a name");
        let two = none.document(plan(&[&hash, &other]));
        assert!(matches!(two, Err(Mixture::TwoKeys { .. })), "{two:?}");
        let mixed = none.document(plan(&[&hash, "globex"]));
        assert!(matches!(mixed, Err(Mixture::Clear { .. })), "{mixed:?}");
        assert!(ours.document(plan(&[&hash, "globex"])).is_ok());
        let twice = format!("[copies.s]\nlimit = 1\ndomains = {{ acme = 1, \"{hash}\" = 2 }}\n");
        let twice = ours.document(twice);
        assert!(matches!(twice, Err(Mixture::Twice { .. })), "{twice:?}");
        assert_eq!(
            none.document("no toml =".to_owned()).as_deref(),
            Ok("no toml =")
        );
    }
}
