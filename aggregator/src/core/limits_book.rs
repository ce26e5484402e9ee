//! The book of limits versions: chunks of the `limits` stream go in, versions come out.
//!
//! ```text
//! offset  chunk                       book
//! 0       (the stream's identity)
//! 1       push A, 1 of 2, expects 0
//! 2       push B, 1 of 1, expects 0   version 2
//! 3       push A, 2 of 2              void: it expected 0, and 2 is in force
//! ```
//!
//! A version's number is the offset of the chunk that completed it. A push is void when another version
//! is in force than it expected, when its digest does not match, or when this build cannot read it. So
//! who won is decided by the log alone. Offset 0 cannot be a version, because 0 means "none"; the
//! stream's first record is its identity. Knows nothing of partitions and of who pushed.
//!
//! What stays true: every version's text is parsed once; the book is a function of the stream.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tollgate_engine::limits::{Limits, RULES};
use tollgate_shared::wire::limits_chunk::LimitsChunk;

/// Pushes that may be under way at once; beyond it the one begun first is void.
const PUSHES_MAX: usize = 64;

/// The most bytes of documents that are not complete; beyond it the push begun first is void. Twice
/// the largest document there may be would be too much to hold for nothing; this is 500 chunks.
const PARTS_BYTES_MAX: usize = 256 << 20;

/// One version.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its number.
    pub number: u64,
    /// BLAKE3 of its text.
    pub digest: [u8; 32],
    /// The document as it was pushed.
    pub text: Arc<str>,
    /// The document as it rules.
    pub limits: Arc<Limits>,
}

/// What became of a chunk.
#[derive(Clone, Debug)]
pub enum Entered {
    /// More chunks are to come.
    Part,
    /// It completed this version.
    Version {
        /// The push.
        push: u128,
        /// The version.
        version: Arc<Version>,
    },
    /// It completed a version that only a later build can read: a partition that comes under it stops.
    Newer {
        /// Its number.
        number: u64,
        /// What this build says of it.
        why: String,
    },
    /// Its push is void.
    Void {
        /// The push.
        push: u128,
        /// Why.
        why: Void,
    },
}

/// Why a push is void.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// Another version was in force.
    #[error("it expected version {expected}, and {found} is in force")]
    Conflict {
        /// What the pusher took to be in force.
        expected: u64,
        /// What was.
        found: u64,
    },
    /// Chunks contradict each other, or come twice or not at all.
    #[error("its chunks do not make one document")]
    Chunks,
    /// The text is not what the digest says.
    #[error("its text does not match its digest")]
    Digest,
    /// The text cannot be read.
    #[error("its document has faults: {0}")]
    Faults(String),
    /// The text is of a later format or rule set. Others rule by it, so that it is no void push.
    #[error("its document is of a later build: {0}")]
    Newer(String),
    /// Too much was under way.
    #[error("too many documents were under way")]
    Crowd,
    /// It would have number 0.
    #[error("offset 0 is not a version")]
    Zero,
}

/// The book.
#[derive(Clone, Debug, Default)]
pub struct LimitsBook {
    versions: BTreeMap<u64, Arc<Version>>,
    newer: BTreeSet<u64>,
    parts: Vec<Push>,
    parts_bytes: usize,
}

#[derive(Clone, Debug)]
struct Push {
    id: u128,
    count: u32,
    expected: u64,
    digest: [u8; 32],
    text: Vec<u8>,
    next: u32,
}

impl LimitsBook {
    /// The newest version that this build can read; none: nothing was ever pushed.
    pub fn latest(&self) -> Option<&Arc<Version>> {
        self.versions.values().next_back()
    }

    /// The number of the version in force at the end of what was read, be it one that only a later
    /// build can read; 0: none.
    pub fn latest_number(&self) -> u64 {
        let newer = self.newer.last().copied().unwrap_or(0);
        self.latest().map_or(0, |version| version.number).max(newer)
    }

    /// The version with this number.
    pub fn get(&self, number: u64) -> Option<&Arc<Version>> {
        self.versions.get(&number)
    }

    /// The first version above a number.
    pub fn after(&self, number: u64) -> Option<&Arc<Version>> {
        let above = (Bound::Excluded(number), Bound::Unbounded);
        self.versions
            .range(above)
            .next()
            .map(|(_, version)| version)
    }

    /// The first version above `known` and up to `to` that only a later build can read.
    pub fn newer_between(&self, known: u64, to: u64) -> Option<u64> {
        self.newer
            .iter()
            .copied()
            .find(|number| known < *number && *number <= to)
    }

    /// Lets go of versions below `number`: every partition has left them behind.
    pub fn forget_below(&mut self, number: u64) {
        if number <= self.latest_number() {
            self.versions = self.versions.split_off(&number);
        }
    }

    /// Enters a chunk that stands at `offset`.
    pub fn enter(&mut self, offset: u64, chunk: &LimitsChunk<'_>) -> Entered {
        let at = match self.parts.iter().position(|push| push.id == chunk.push) {
            Some(at) => at,
            None => {
                self.parts.push(Push {
                    id: chunk.push,
                    count: chunk.count,
                    expected: chunk.expected,
                    digest: chunk.digest,
                    text: Vec::new(),
                    next: 0,
                });
                self.parts.len() - 1
            }
        };
        let push = &mut self.parts[at];
        let fits = push.count == chunk.count
            && push.expected == chunk.expected
            && push.digest == chunk.digest
            && push.next == chunk.index;
        if !fits {
            self.take(at);
            return void(chunk.push, Void::Chunks);
        }
        push.text.extend_from_slice(chunk.bytes);
        push.next += 1;
        self.parts_bytes += chunk.bytes.len();
        if self.parts[at].next < chunk.count {
            return self.make_room();
        }
        let push = self.take(at);
        match self.judge(offset, push) {
            Ok(version) => {
                let version = Arc::new(version);
                self.versions.insert(version.number, Arc::clone(&version));
                Entered::Version {
                    push: chunk.push,
                    version,
                }
            }
            Err(Void::Newer(why)) => {
                self.newer.insert(offset);
                Entered::Newer {
                    number: offset,
                    why,
                }
            }
            Err(why) => void(chunk.push, why),
        }
    }

    fn take(&mut self, at: usize) -> Push {
        let push = self.parts.remove(at);
        self.parts_bytes -= push.text.len();
        push
    }

    fn make_room(&mut self) -> Entered {
        if self.parts.len() <= PUSHES_MAX && self.parts_bytes <= PARTS_BYTES_MAX {
            return Entered::Part;
        }
        let push = self.take(0);
        void(push.id, Void::Crowd)
    }

    fn judge(&self, offset: u64, push: Push) -> Result<Version, Void> {
        if offset == 0 {
            return Err(Void::Zero);
        }
        let found = self.latest_number();
        if push.expected != found {
            return Err(Void::Conflict {
                expected: push.expected,
                found,
            });
        }
        if digest(&push.text) != push.digest {
            return Err(Void::Digest);
        }
        let text =
            String::from_utf8(push.text).map_err(|_| Void::Faults("not UTF-8".to_owned()))?;
        let limits = Limits::parse(&text).map_err(|faults| match is_of_later_build(&text) {
            true => Void::Newer(faults.to_string()),
            false => Void::Faults(faults.to_string()),
        })?;
        Ok(Version {
            number: offset,
            digest: push.digest,
            text: text.into(),
            limits: Arc::new(limits),
        })
    }
}

/// Whether a document says that it is of a format or a rule set above those that this build knows.
fn is_of_later_build(text: &str) -> bool {
    let Ok(document) = text.parse::<toml::Table>() else {
        return false;
    };
    let above = |field: &str, known: u32| {
        let stated = document.get(field).and_then(toml::Value::as_integer);
        stated.is_some_and(|stated| i64::from(known) < stated)
    };
    above("version", FORMAT) || above("rules", RULES)
}

/// The format of limits documents that this build reads.
const FORMAT: u32 = 1;

fn void(push: u128, why: Void) -> Entered {
    Entered::Void { push, why }
}

/// The digest by which versions are told apart: BLAKE3 of the text.
pub fn digest(text: &[u8]) -> [u8; 32] {
    *blake3::hash(text).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::time::Timestamp;

    const ONE: &str = "version = 1\nrules = 1\n[rate.\"a\"]\nrate = \"1/s\"\n";
    const TWO: &str = "version = 1\nrules = 1\n[rate.\"a\"]\nrate = \"2/s\"\n";

    fn chunk<'a>(
        push: u128,
        (index, count): (u32, u32),
        expected: u64,
        whole: &str,
        bytes: &'a str,
    ) -> LimitsChunk<'a> {
        LimitsChunk {
            push,
            index,
            count,
            expected,
            digest: digest(whole.as_bytes()),
            who: "w",
            why: "y",
            at: Timestamp::ZERO,
            bytes: bytes.as_bytes(),
        }
    }

    fn why(entered: Entered) -> Void {
        match entered {
            Entered::Void { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_version_is_the_offset_of_its_last_chunk_and_that_decides_who_won() {
        let mut book = LimitsBook::default();
        let (head, tail) = ONE.split_at(10);
        assert!(matches!(
            book.enter(1, &chunk(1, (0, 2), 0, ONE, head)),
            Entered::Part
        ));
        let two = book.enter(2, &chunk(2, (0, 1), 0, TWO, TWO));
        assert!(matches!(two, Entered::Version { push: 2, version } if version.number == 2));
        let lost = book.enter(3, &chunk(1, (1, 2), 0, ONE, tail));
        assert_eq!(
            why(lost),
            Void::Conflict {
                expected: 0,
                found: 2
            }
        );
        assert_eq!(book.latest_number(), 2);
        assert_eq!(&*book.latest().unwrap().text, TWO);
    }

    #[test]
    fn what_does_not_make_one_readable_document_is_void() {
        let mut book = LimitsBook::default();
        assert_eq!(
            why(book.enter(0, &chunk(1, (0, 1), 0, ONE, ONE))),
            Void::Zero
        );
        assert_eq!(
            why(book.enter(1, &chunk(2, (1, 2), 0, ONE, ONE))),
            Void::Chunks
        );
        assert_eq!(
            why(book.enter(2, &chunk(3, (0, 1), 0, ONE, TWO))),
            Void::Digest
        );
        let bad = "version = 1\nrats = 1\n";
        let faults = why(book.enter(3, &chunk(4, (0, 1), 0, bad, bad)));
        assert!(matches!(faults, Void::Faults(text) if text.contains("rats")));
        assert_eq!(book.latest_number(), 0);
        assert_eq!(book.parts_bytes, 0);
    }

    #[test]
    fn documents_under_way_are_bounded() {
        let mut book = LimitsBook::default();
        for push in 0..PUSHES_MAX as u128 {
            let entered = book.enter(push as u64 + 1, &chunk(push, (0, 2), 0, ONE, "x"));
            assert!(matches!(entered, Entered::Part));
        }
        let crowd = book.enter(900, &chunk(900, (0, 2), 0, ONE, "x"));
        assert!(matches!(
            crowd,
            Entered::Void {
                push: 0,
                why: Void::Crowd
            }
        ));
        assert_eq!(book.parts.len(), PUSHES_MAX);
    }

    #[test]
    fn versions_are_found_in_order_and_forgotten_below() {
        let mut book = LimitsBook::default();
        for (offset, expected, text) in [(1, 0, ONE), (2, 1, TWO), (3, 2, ONE)] {
            book.enter(
                offset,
                &chunk(u128::from(offset), (0, 1), expected, text, text),
            );
        }
        let after = |book: &LimitsBook, number| book.after(number).map(|version| version.number);
        assert_eq!(
            [0, 1, 2, 3].map(|n| after(&book, n)),
            [Some(1), Some(2), Some(3), None]
        );
        book.forget_below(3);
        assert_eq!([0, 3].map(|n| after(&book, n)), [Some(3), None]);
    }

    #[test]
    fn a_document_of_a_later_build_is_a_version_that_this_one_cannot_follow() {
        let mut book = LimitsBook::default();
        let later = "version = 1\nrules = 2\n";
        let entered = book.enter(1, &chunk(1, (0, 1), 0, later, later));
        assert!(matches!(entered, Entered::Newer { number: 1, .. }));
        assert_eq!(book.newer_between(0, 5), Some(1));
        assert!(book.newer_between(1, 5).is_none() && book.latest().is_none());
        // Who pushes next has to know it.
        let lost = book.enter(2, &chunk(2, (0, 1), 0, ONE, ONE));
        assert_eq!(
            why(lost),
            Void::Conflict {
                expected: 0,
                found: 1
            }
        );
    }
}
