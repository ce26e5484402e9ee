//! Domains as keyed hashes, for the log of a fleet that keeps domains' names out of it.
//!
//! ```text
//! acme ── key ──> h~5f2c1e~0c41…                 "h~", the key's id, "~", 128 bits of keyed BLAKE3
//! ```
//!
//! With the key, a domain whose name is known can be found in the log; an unknown name can only be guessed.
//! Knows no files and no logs. What stays true: one name has one hash under one key, on every machine and
//! in every release, because people look for it in logs years later.

use std::fmt;

/// The fewest bytes of a key: too many to guess.
pub const DOMAIN_KEY_BYTES_MIN: usize = 32;

/// The most bytes of a key.
pub const DOMAIN_KEY_BYTES_MAX: usize = 4_096;

/// A key with fewer different bytes is a placeholder: 32 random hexadecimal digits have about fourteen
/// different ones.
const DIFFERENT_BYTES_MIN: usize = 8;

/// The prefix of every hashed domain.
pub const HASHED_PREFIX: &str = "h~";
const ID_CHARS: usize = 6;
const HASH_CHARS: usize = 32;
const TEXT_BYTES: usize = HASHED_PREFIX.len() + ID_CHARS + 1 + HASH_CHARS;

/// What is wrong with a domain key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainKeyFault {
    /// It is too short to be secret, or too long.
    #[error(
        "has {bytes} bytes, expected {DOMAIN_KEY_BYTES_MIN} to {DOMAIN_KEY_BYTES_MAX} drawn at random, \
         as `openssl rand -hex 32` draws"
    )]
    Length {
        /// How many bytes it has, without white space at its end.
        bytes: usize,
    },
    /// It was not drawn at random.
    #[error(
        "has {different} different bytes, expected some drawn at random, as `openssl rand -hex 32` draws"
    )]
    Placeholder {
        /// How many different bytes it has.
        different: usize,
    },
}

/// Checks whether these bytes may be a key: long enough, and random as far as can be seen.
///
/// # Errors
///
/// [`DomainKeyFault`] if they can be guessed.
pub(crate) fn check_drawn(key: &[u8]) -> Result<(), DomainKeyFault> {
    let bytes = key.len();
    if !(DOMAIN_KEY_BYTES_MIN..=DOMAIN_KEY_BYTES_MAX).contains(&bytes) {
        return Err(DomainKeyFault::Length { bytes });
    }
    let mut seen = [false; 256];
    key.iter().for_each(|byte| seen[usize::from(*byte)] = true);
    let different = seen.iter().filter(|seen| **seen).count();
    match different < DIFFERENT_BYTES_MIN {
        true => Err(DomainKeyFault::Placeholder { different }),
        false => Ok(()),
    }
}

/// The key under which domains are hashed. All agents of a fleet share it; apart from them only people who
/// look for a domain by its name need it.
#[derive(Clone, PartialEq, Eq)]
pub struct DomainKey {
    key: [u8; 32],
    id: [u8; ID_CHARS],
}

/// A domain as it is in the log: text of 41 bytes, a name like any other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashedDomain([u8; TEXT_BYTES]);

impl DomainKey {
    /// The key in a file with these bytes. White space at its end is ignored: editors add it.
    ///
    /// # Errors
    ///
    /// [`DomainKeyFault`] if it is not secret enough.
    pub fn derive(file: &[u8]) -> Result<Self, DomainKeyFault> {
        let file = file.trim_ascii_end();
        check_drawn(file)?;
        let id = blake3::derive_key("tollgate 2026-11 domain key id", file);
        let mut text = [0; ID_CHARS];
        write_hex(&id[..ID_CHARS / 2], &mut text);
        Ok(Self {
            key: blake3::derive_key("tollgate 2026-11 domain key", file),
            id: text,
        })
    }

    /// An id of the key that does not reveal it: six hexadecimal digits.
    pub fn id(&self) -> &str {
        as_text(&self.id)
    }

    /// The hash of a domain for the log. Some hundred nanoseconds, and no allocation.
    ///
    /// The domain must have been through [`admit_domain`](crate::names::admit_domain).
    pub fn hash(&self, domain: &str) -> HashedDomain {
        let hash = blake3::keyed_hash(&self.key, domain.as_bytes());
        let mut text = [0; TEXT_BYTES];
        let (prefix, rest) = text.split_at_mut(HASHED_PREFIX.len());
        prefix.copy_from_slice(HASHED_PREFIX.as_bytes());
        let (id, rest) = rest.split_at_mut(ID_CHARS);
        id.copy_from_slice(&self.id);
        let (tilde, hex) = rest.split_at_mut(1);
        tilde.copy_from_slice(b"~");
        write_hex(&hash.as_bytes()[..HASH_CHARS / 2], hex);
        HashedDomain(text)
    }
}

impl fmt::Debug for DomainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key in a log file is a leaked key; its id is in the log anyway.
        write!(f, "DomainKey({})", self.id())
    }
}

impl HashedDomain {
    /// The text.
    pub fn as_str(&self) -> &str {
        as_text(&self.0)
    }
}

impl fmt::Debug for HashedDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The id of the key under which a domain was hashed, if the domain looks like a hash.
pub fn hashed_under(domain: &str) -> Option<&str> {
    let (id, hash) = domain.strip_prefix(HASHED_PREFIX)?.split_once('~')?;
    let is_hex = |text: &str, chars: usize| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == chars && text.bytes().all(digit)
    };
    (is_hex(id, ID_CHARS) && is_hex(hash, HASH_CHARS)).then_some(id)
}

/// Two digits for each byte; `text` has room for them.
fn write_hex(bytes: &[u8], text: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(text.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// Text from bytes that are all ASCII.
fn as_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::check_name;

    const FILE: &[u8] = b"5f0c3e6f4f0b4b5a8c1d2e3f40516273\n";

    #[test]
    fn a_hash_is_stable_and_names_its_key() {
        let key = DomainKey::derive(FILE).expect("a key");
        // In logs since 2026-11: with another value nothing would be found in them.
        assert_eq!(
            key.hash("acme").as_str(),
            "h~b62946~02ee61ada105e621513770d8c991d76f"
        );
        assert_eq!(hashed_under(key.hash("acme").as_str()), Some(key.id()));
        assert_ne!(key.hash("acme"), key.hash("acmf"));
        assert_eq!(check_name(key.hash("acme").as_str()), Ok(()));
        let bare = DomainKey::derive(FILE.trim_ascii_end()).expect("a key");
        assert_eq!(key, bare, "white space at the end");
        let mut other = FILE.to_vec();
        other[3] ^= 1;
        let other = DomainKey::derive(&other).expect("a key");
        assert_ne!(key.id(), other.id());
        assert_ne!(
            key.hash("acme").as_str().rsplit('~').next(),
            other.hash("acme").as_str().rsplit('~').next()
        );
    }

    #[test]
    fn a_key_that_hides_nothing_is_refused() {
        let fault = |file: &[u8]| DomainKey::derive(file).expect_err("no key");
        assert_eq!(fault(b""), DomainKeyFault::Length { bytes: 0 });
        let short = [&FILE[..31], b"   \n"].concat();
        assert_eq!(fault(&short), DomainKeyFault::Length { bytes: 31 });
        assert_eq!(fault(&[7; 4_097]), DomainKeyFault::Length { bytes: 4_097 });
        assert_eq!(
            fault(&[b'x'; 64]),
            DomainKeyFault::Placeholder { different: 1 }
        );
    }

    #[test]
    fn text_that_only_looks_like_a_hash_is_a_name() {
        for name in [
            "acme",
            "h~",
            "h~5f2c1e~",
            "h~5f2c1~0123456789abcdef0123456789abcdef",
            "h~5f2c1e~0123456789abcdef0123456789abcdeF",
            "h~5f2c1e~0123456789abcdef0123456789abcdef0",
        ] {
            assert_eq!(hashed_under(name), None, "{name}");
        }
        assert_eq!(
            hashed_under("h~5f2c1e~0123456789abcdef0123456789abcdef"),
            Some("5f2c1e")
        );
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = DomainKey::derive(FILE).expect("a key");
        assert_eq!(format!("{key:?}"), format!("DomainKey({})", key.id()));
    }
}
