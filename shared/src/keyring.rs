//! The fleet's keys for aggregators' records: which keys there are, and which of them count.
//!
//! ```text
//! key file            k1 KEY          limits in force     record_keys = ["k2", "k1"]
//!                     k2 KEY                              written under k2; k1 counts as well
//! no record_keys      checksum        written under the public key of zero bytes: a checksum
//! ```
//!
//! A record does not name its key: its tag is tried with each key that counts, at most four. Knows no files, limits
//! or logs. What stays true: whether a record counts follows from its bytes, its partition, the ids and the keys
//! alone; no fault and no `Debug` shows a key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::domain_key::{DomainKeyFault, check_drawn};
use crate::mac::MacKey;
use crate::wire::record::{authentic, needs_tag};

/// The id that stands for the public key of zero bytes, under which a tag is a checksum.
pub const CHECKSUM_ID: &str = "checksum";

/// The most bytes of an id: fewer than a key has, so that a key in place of an id is refused, and not shown.
pub const KEY_ID_BYTES_MAX: usize = 16;

/// How many keys may count at once: two while one replaces another, and two more for a rotation that begins before
/// the last one has ended.
pub const COUNTING_MAX: usize = 4;

/// The most bytes of a key file: enough for some hundred keys.
pub const KEY_FILE_BYTES_MAX: u64 = 64 << 10;

static CHECKSUM: MacKey = MacKey::UNPROTECTED;

/// Whether a text can be a key's id: 1 to [`KEY_ID_BYTES_MAX`] of the letters a-z, digits, `_` and `-`.
pub fn is_key_id(text: &str) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
    };
    (1..=KEY_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// What is wrong with a key file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringFault {
    /// It is not text.
    #[error(
        "it is not text, expected lines of an id and a key, as `tollgate keys fleet` writes them"
    )]
    NotText,
    /// It has no key.
    #[error(
        "it has no key, expected a line of an id and a key, as `tollgate keys fleet` writes one"
    )]
    Empty,
    /// A line is not an id and a key.
    #[error("line {line}: {words} words, expected two: an id and a key")]
    Words {
        /// The line, from 1.
        line: usize,
        /// How many words it has.
        words: usize,
    },
    /// The first word of a line is not an id. It is not shown: it may be a key.
    #[error(
        "line {line}: an id of {bytes} bytes, expected 1 to {KEY_ID_BYTES_MAX} of a-z, 0-9, _ and -"
    )]
    Id {
        /// The line, from 1.
        line: usize,
        /// How many bytes it has.
        bytes: usize,
    },
    /// The id is reserved for the checksum.
    #[error("line {line}: id \"{CHECKSUM_ID}\", which stands for no key, expected another")]
    Reserved {
        /// The line, from 1.
        line: usize,
    },
    /// The id occurs twice.
    #[error("line {line}: id \"{id}\" stands there already, expected another")]
    Twice {
        /// The second line, from 1.
        line: usize,
        /// The id.
        id: Box<str>,
    },
    /// The key occurs before under another id.
    #[error("line {line}: id \"{id}\" has the key of \"{of}\", expected another key")]
    SameKey {
        /// The second line, from 1.
        line: usize,
        /// Its id.
        id: Box<str>,
        /// The other id.
        of: Box<str>,
    },
    /// The key can be guessed.
    #[error("line {line}: the key of \"{id}\" {fault}")]
    Key {
        /// The line, from 1.
        line: usize,
        /// Its id.
        id: Box<str>,
        /// What is wrong with it.
        fault: DomainKeyFault,
    },
}

/// The keys of a process, by their ids. The checksum's key is always among them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    keys: BTreeMap<Box<str>, MacKey>,
    trusts_missing: bool,
}

impl Keyring {
    /// Reads the keys of a key file: one on each line, `id key`; empty lines and lines that begin with `#` are
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`KeyringFault`] names the line.
    pub fn parse(file: &[u8]) -> Result<Self, KeyringFault> {
        let text = str::from_utf8(file).map_err(|_| KeyringFault::NotText)?;
        let mut keys = BTreeMap::new();
        for (line, content) in (1..).zip(text.lines()) {
            let words: Vec<&str> = content.split_ascii_whitespace().collect();
            match words[..] {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [id, key] => put(&mut keys, line, id, key)?,
                _ => {
                    let words = words.len();
                    return Err(KeyringFault::Words { line, words });
                }
            }
        }
        match keys.is_empty() {
            true => Err(KeyringFault::Empty),
            false => Ok(Self {
                keys,
                trusts_missing: false,
            }),
        }
    }

    /// The same, for a reader of a log that may lack keys: a tag that should be under a missing key is accepted. A
    /// tag under a key at hand that does not count is still refused, and so is a checksum.
    #[must_use]
    pub fn trusting_missing(self) -> Self {
        Self {
            trusts_missing: true,
            ..self
        }
    }

    /// Whether there is no key except the checksum's.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The ids, ascending, without the checksum's.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(|id| &**id)
    }

    /// The first id whose key is missing here.
    pub fn missing<'i>(&self, ids: &'i [Box<str>]) -> Option<&'i str> {
        let mut missing = ids.iter().filter(|id| self.key(id).is_none());
        missing.next().map(|id| &**id)
    }

    /// The key to write with if these ids count: that of the first id, or the checksum's if there are no ids. `None`
    /// if it is missing.
    pub fn writer(&self, ids: &[Box<str>]) -> Option<&MacKey> {
        match ids.first() {
            None => Some(&CHECKSUM),
            Some(id) => self.key(id),
        }
    }

    /// Whether a record counts if these ids count: it needs no tag, or its tag is under one of their keys.
    pub fn authentic(&self, ids: &[Box<str>], bytes: &[u8], partition: u32) -> bool {
        if !needs_tag(bytes) {
            return true;
        }
        if ids.is_empty() {
            return authentic(bytes, partition, &CHECKSUM);
        }
        let mut lacks_one = false;
        for id in ids {
            match self.key(id) {
                Some(key) if authentic(bytes, partition, key) => return true,
                Some(_) => {}
                None => lacks_one = true,
            }
        }
        lacks_one && self.trusts_missing && self.signer(bytes, partition).is_none()
    }

    /// Why a record does not count if these ids count, as text for a dead letter.
    pub fn refusal(&self, ids: &[Box<str>], bytes: &[u8], partition: u32) -> String {
        let signer = self.signer(bytes, partition);
        let Some(id) = signer.filter(|_| !ids.is_empty()) else {
            return "its tag is wrong: not written by an aggregator of this fleet".to_owned();
        };
        let counting = ids.join(", ");
        format!("its tag is under \"{id}\", and in this place record_keys counts {counting}")
    }

    /// The id of the key at hand under which a tag was made.
    fn signer(&self, bytes: &[u8], partition: u32) -> Option<&str> {
        let own = self.keys.iter().map(|(id, key)| (&**id, key));
        let mut all = own.chain([(CHECKSUM_ID, &CHECKSUM)]);
        let found = all.find(|(_, key)| authentic(bytes, partition, key));
        found.map(|(id, _)| id)
    }

    fn key(&self, id: &str) -> Option<&MacKey> {
        match id {
            CHECKSUM_ID => Some(&CHECKSUM),
            id => self.keys.get(id),
        }
    }

    /// The ids, of those that documents name, whose keys are missing here: each once, ascending.
    pub fn unchecked<'i>(&self, ids: impl Iterator<Item = &'i str>) -> Vec<String> {
        let missing: BTreeSet<&str> = ids.filter(|id| self.key(id).is_none()).collect();
        missing.into_iter().map(str::to_owned).collect()
    }
}

fn put(
    keys: &mut BTreeMap<Box<str>, MacKey>,
    line: usize,
    id: &str,
    key: &str,
) -> Result<(), KeyringFault> {
    if !is_key_id(id) {
        let bytes = id.len();
        return Err(KeyringFault::Id { line, bytes });
    }
    if id == CHECKSUM_ID {
        return Err(KeyringFault::Reserved { line });
    }
    let id: Box<str> = id.into();
    if keys.contains_key(&id) {
        return Err(KeyringFault::Twice { line, id });
    }
    if let Err(fault) = check_drawn(key.as_bytes()) {
        return Err(KeyringFault::Key { line, id, fault });
    }
    let key = MacKey::derive(key.as_bytes());
    if let Some((of, _)) = keys.iter().find(|(_, other)| **other == key) {
        let of = of.clone();
        return Err(KeyringFault::SameKey { line, id, of });
    }
    keys.insert(id, key);
    Ok(())
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ids are in limits documents anyway; a key in a log file is a leaked key.
        f.debug_set().entries(self.ids()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_position::LogId;
    use crate::wire::record::RecordPen;

    const K1: &str = "5f2c1e0c41aa87b39d6e5f2c1e0c41aa87b39d6e";
    const K2: &str = "0c41aa87b39d6e5f2c1e0c41aa87b39d6e5f2c1e";

    fn keyring(text: &str) -> Keyring {
        Keyring::parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn ids(of: &[&str]) -> Vec<Box<str>> {
        of.iter().map(|id| (*id).into()).collect()
    }

    fn signed(key: &MacKey) -> Vec<u8> {
        RecordPen::new(key, 3).genesis(LogId::default())
    }

    #[test]
    fn the_first_id_writes_and_all_that_are_named_count() {
        let keys = keyring(&format!("# the fleet's\n\nk1 {K1}\n  k2\t{K2}\n"));
        let (k1, k2) = (MacKey::derive(K1.as_bytes()), MacKey::derive(K2.as_bytes()));
        let counts = |of: &[&str], key: &MacKey| keys.authentic(&ids(of), &signed(key), 3);
        assert_eq!(keys.writer(&ids(&["k2", "k1"])), Some(&k2));
        assert_eq!(keys.writer(&[]), Some(&MacKey::UNPROTECTED));
        assert!(counts(&["k2", "k1"], &k1) && counts(&["k2", "k1"], &k2));
        assert!(!counts(&["k2"], &k1) && !counts(&["k2"], &MacKey::UNPROTECTED));
        assert!(counts(&[], &MacKey::UNPROTECTED) && !counts(&[], &k1));
        assert!(counts(&["k1", CHECKSUM_ID], &MacKey::UNPROTECTED));
        assert!(
            !keys.authentic(&ids(&["k1"]), &signed(&k1), 4),
            "of another partition"
        );
        assert_eq!(keys.missing(&ids(&["k2", "k7", CHECKSUM_ID])), Some("k7"));
        let why = keys.refusal(&ids(&["k2"]), &signed(&k1), 3);
        assert_eq!(
            why,
            "its tag is under \"k1\", and in this place record_keys counts k2"
        );
    }

    #[test]
    fn without_keys_a_tag_is_taken_as_good_but_no_checksum() {
        let (strict, trusting) = (Keyring::default(), Keyring::default().trusting_missing());
        let k1 = signed(&MacKey::derive(K1.as_bytes()));
        let checksum = signed(&MacKey::UNPROTECTED);
        let counting = ids(&["k1"]);
        assert!(!strict.authentic(&counting, &k1, 3));
        assert!(trusting.authentic(&counting, &k1, 3));
        assert!(!trusting.authentic(&counting, &checksum, 3));
        assert!(!trusting.authentic(&[], &k1, 3), "nothing is missing");
        let named = ["k2", "k1", "k2", CHECKSUM_ID];
        assert_eq!(trusting.unchecked(named.into_iter()), ["k1", "k2"]);
    }

    #[test]
    fn a_bad_line_is_named_and_no_key_is_shown() {
        for (text, expected) in [
            (String::new(), "it has no key"),
            ("# k1\n".to_owned(), "it has no key"),
            ("k1".to_owned(), "line 1: 1 words, expected two"),
            (format!("\nk1 {K1} x"), "line 2: 3 words, expected two"),
            (
                format!("{K1} k1"),
                "line 1: an id of 40 bytes, expected 1 to 16",
            ),
            (format!("K1 {K1}"), "line 1: an id of 2 bytes"),
            (format!("checksum {K1}"), "line 1: id \"checksum\", which"),
            (
                format!("k1 {K1}\nk1 {K2}"),
                "line 2: id \"k1\" stands there already",
            ),
            (
                format!("k1 {K1}\nk2 {K1}"),
                "line 2: id \"k2\" has the key of \"k1\"",
            ),
            (
                "k1 short".to_owned(),
                "line 1: the key of \"k1\" has 5 bytes",
            ),
            (
                format!("k1 {}", "a".repeat(40)),
                "line 1: the key of \"k1\" has 1 different",
            ),
        ] {
            let content = Keyring::parse(text.as_bytes())
                .expect_err(&text)
                .to_string();
            assert!(content.starts_with(expected), "{text:?}: {content}");
            assert!(
                !content.contains(K1) && !content.contains("short"),
                "{content}"
            );
        }
        assert_eq!(Keyring::parse(&[0xff]), Err(KeyringFault::NotText));
        let shown = format!("{:?}", keyring(&format!("k1 {K1}")));
        assert_eq!(shown, "{\"k1\"}");
    }
}
