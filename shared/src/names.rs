//! Names of resources, domains and agents, and the partition that a pair belongs to.
//!
//! Two checks: names that people write (files, command line) are refused with a reason if they are invalid;
//! names that callers pass at run time are replaced, because a refused name would let the caller choose to
//! be unlimited. Knows nothing of limits.

use std::borrow::Cow;
use std::fmt::Write as _;

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher as _;

/// The most bytes a resource's, a domain's or an agent's name may have.
pub const NAME_BYTES_MAX: usize = 256;

/// The domain under which a resource's global limit is ruled. No caller can have this name: the checks
/// below refuse or rename such a domain.
pub const EVERYBODY: &str = "*";

/// The name under which callers with an empty domain are limited together.
pub const EMPTY_DOMAIN: &str = "(empty)";

/// The name under which callers with the domain `*` are limited together.
pub const STAR_DOMAIN: &str = "(star)";

/// A fault of a name that a person wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// It has no bytes.
    #[error("is empty, expected 1 to {NAME_BYTES_MAX} bytes")]
    Empty,
    /// It has more than [`NAME_BYTES_MAX`] bytes.
    #[error("has {bytes} bytes, expected at most {NAME_BYTES_MAX}")]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// It contains `*`, which is reserved for patterns.
    #[error("contains `*`, which is reserved for patterns")]
    Star,
    /// A domain has no bytes: its callers are limited under another name.
    #[error(
        "is empty, expected 1 to {NAME_BYTES_MAX} bytes; callers with an empty domain are limited as {EMPTY_DOMAIN}"
    )]
    EmptyDomain,
    /// A domain is [`EVERYBODY`]: callers with this domain are limited under another name.
    #[error(
        "stands for all domains together; callers with this domain are limited as {STAR_DOMAIN}"
    )]
    StarDomain,
    /// It contains a control character.
    #[error("contains the control character U+{code:04X}")]
    Control {
        /// The character's code point.
        code: u32,
    },
}

/// Checks the name of a resource, a domain or an agent that a person wrote.
///
/// # Errors
///
/// [`NameFault`] says what is wrong; its text fits after the name in a message.
pub fn check_name(name: &str) -> Result<(), NameFault> {
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    if NAME_BYTES_MAX < name.len() {
        return Err(NameFault::TooLong { bytes: name.len() });
    }
    if name.contains('*') {
        return Err(NameFault::Star);
    }
    match name.chars().find(|c| c.is_control()) {
        Some(control) => Err(NameFault::Control {
            code: control as u32,
        }),
        None => Ok(()),
    }
}

/// Checks a domain that an operator names. An operator may ban, lift and view every domain under which
/// callers may be limited, including names with control characters and stars.
///
/// # Errors
///
/// [`NameFault`] for a name under which no caller is limited.
pub fn check_domain(domain: &str) -> Result<(), NameFault> {
    match domain.len() {
        0 => Err(NameFault::EmptyDomain),
        bytes if NAME_BYTES_MAX < bytes => Err(NameFault::TooLong { bytes }),
        _ if domain == EVERYBODY => Err(NameFault::StarDomain),
        _ => Ok(()),
    }
}

/// The domain under which a caller's domain is limited: itself if possible.
///
/// One comparison of the length and of the first byte for an ordinary name. An empty name becomes
/// [`EMPTY_DOMAIN`], `*` becomes [`STAR_DOMAIN`], and a name above [`NAME_BYTES_MAX`] becomes a prefix of
/// it and a 128-bit hash of the whole name, so that two long names stay different.
pub fn admit_domain(domain: &str) -> Cow<'_, str> {
    match domain.len() {
        0 => Cow::Borrowed(EMPTY_DOMAIN),
        1 if domain == EVERYBODY => Cow::Borrowed(STAR_DOMAIN),
        1..=NAME_BYTES_MAX => Cow::Borrowed(domain),
        _ => Cow::Owned(shortened(domain)),
    }
}

/// A name of at most [`NAME_BYTES_MAX`] bytes for a longer one.
fn shortened(domain: &str) -> String {
    const HASH_CHARS: usize = 32;
    let mut cut = NAME_BYTES_MAX - HASH_CHARS - 1;
    while !domain.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut hasher = SipHasher13::new();
    hasher.write(domain.as_bytes());
    let hash = hasher.finish128().as_u128();
    let mut name = String::with_capacity(NAME_BYTES_MAX);
    name.push_str(&domain[..cut]);
    name.push('~');
    // Writing to a String cannot fail.
    let _ = write!(name, "{hash:032x}");
    name
}

/// The namespace of a resource: the part before its first dot, or the whole name.
pub fn namespace(resource: &str) -> &str {
    resource.split('.').next().unwrap_or(resource)
}

/// The byte between resource and domain in a pair's key. It does not occur in UTF-8, so no two pairs have
/// one key.
pub const PAIR_SEPARATOR: u8 = 0xFF;

/// The partition that rules a pair: murmur2 over `resource 0xFF domain`, as Kafka's own default partitioner
/// computes it for a record's key, so that any Kafka client can find it.
///
/// `partitions` must not be zero; zero is treated as one.
pub fn partition_of_pair(resource: &str, domain: &str, partitions: u32) -> u32 {
    // Names above the bound do not occur here; if one did, its tail would only be ignored in the choice of
    // a partition.
    let resource = &resource.as_bytes()[..resource.len().min(NAME_BYTES_MAX)];
    let domain = &domain.as_bytes()[..domain.len().min(NAME_BYTES_MAX)];
    // Clearing memory for the longest names would cost more than all the rest does for usual ones.
    let hash = if resource.len() + domain.len() < USUAL_KEY_BYTES {
        hash_of_pair::<USUAL_KEY_BYTES>(resource, domain)
    } else {
        hash_of_pair::<{ 2 * NAME_BYTES_MAX + 1 }>(resource, domain)
    };
    to_partition(hash, partitions)
}

/// An upper bound on the length of most pairs' keys.
const USUAL_KEY_BYTES: usize = 64;

/// The hash of a pair whose key has at most `N` bytes; the key is built on the stack.
fn hash_of_pair<const N: usize>(resource: &[u8], domain: &[u8]) -> u32 {
    let mut key = [0u8; N];
    let len = resource.len() + 1 + domain.len();
    key[..resource.len()].copy_from_slice(resource);
    key[resource.len()] = PAIR_SEPARATOR;
    key[resource.len() + 1..len].copy_from_slice(domain);
    murmur2(&key[..len])
}

/// The partition that rules what belongs to a whole resource: its global limit and its holds.
pub fn partition_of_resource(resource: &str, partitions: u32) -> u32 {
    to_partition(murmur2(resource.as_bytes()), partitions)
}

fn to_partition(hash: u32, partitions: u32) -> u32 {
    (hash & 0x7fff_ffff) % partitions.max(1)
}

/// Murmur2, 32 bits, with the seed of Kafka's default partitioner
/// (`org.apache.kafka.common.utils.Utils.murmur2`).
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut h = SEED ^ (data.len() as u32);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        h = h.wrapping_mul(M);
        h ^= k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (index, &byte) in rest.iter().enumerate() {
            h ^= u32::from(byte) << (8 * index);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_is_kafkas() {
        // Values of Kafka's own UtilsTest.testMurmur2.
        let cases: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ];
        for (text, expected) in cases {
            assert_eq!(murmur2(text.as_bytes()) as i32, expected, "{text}");
        }
    }

    #[test]
    fn an_ordinary_domain_is_itself_and_costs_nothing() {
        assert!(matches!(admit_domain("acme"), Cow::Borrowed("acme")));
        let longest = "x".repeat(NAME_BYTES_MAX);
        assert!(matches!(admit_domain(&longest), Cow::Borrowed(_)));
    }

    #[test]
    fn no_spelling_of_a_domain_escapes_its_limits() {
        assert_eq!(admit_domain(""), EMPTY_DOMAIN);
        assert_eq!(admit_domain("*"), STAR_DOMAIN);
        let one = admit_domain(&"é".repeat(300)).into_owned();
        let other = admit_domain(&("é".repeat(299) + "e")).into_owned();
        assert!(one.len() <= NAME_BYTES_MAX && other.len() <= NAME_BYTES_MAX);
        assert_ne!(one, other);
        assert_eq!(one, admit_domain(&"é".repeat(300)));
    }

    #[test]
    fn written_names_are_checked() {
        assert_eq!(check_name(""), Err(NameFault::Empty));
        assert_eq!(check_name("a*"), Err(NameFault::Star));
        assert_eq!(check_name("a\nb"), Err(NameFault::Control { code: 10 }));
        assert_eq!(
            check_name(&"x".repeat(257)),
            Err(NameFault::TooLong { bytes: 257 })
        );
        assert_eq!(check_name("api.search"), Ok(()));
    }

    #[test]
    fn the_partition_of_a_pair_is_kafkas_hash_of_its_names() {
        assert_eq!(partition_of_pair("a", "b", 1), 0);
        let spread: std::collections::BTreeSet<u32> = (0..1_000)
            .map(|n| partition_of_pair("api.search", &format!("t{n}"), 16))
            .collect();
        assert_eq!(spread.len(), 16);
        // Keys of every length, above and below the usual one.
        for resource in [1, 30, NAME_BYTES_MAX].map(|len| "r".repeat(len)) {
            for domain in (0..=NAME_BYTES_MAX).map(|len| "d".repeat(len)) {
                let key = [resource.as_bytes(), &[0xff], domain.as_bytes()].concat();
                let partition = partition_of_pair(&resource, &domain, 1 << 20);
                assert_eq!(partition, to_partition(murmur2(&key), 1 << 20));
            }
        }
        assert_eq!(namespace("api.search"), "api");
        assert_eq!(namespace("plain"), "plain");
    }
}
