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
//! An operator's amendment is a record and a version of its own: it leaves the document as it is, or
//! changes what domains have of their own in it; its switches stay over every later document until they
//! are taken back.
//!
//! A version's number is the offset of the chunk that completed it. A push is void when another version
//! is in force than it expected, when its digest does not match, or when this build cannot read it. So
//! who won is decided by the log alone. Offset 0 cannot be a version, because 0 means "none"; the
//! stream's first record is its identity. Knows nothing of partitions and of who pushed.
//!
//! What stays true: every version's text is parsed once, here or beforehand ([`parsed`]); the book is a function of the stream.

mod acts;
pub mod edit;
mod fold;
pub mod parsed;
mod record_keys;
pub mod switches;
pub mod text;
mod void;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::{self, Act, Amendment};
use tollgate_shared::wire::limits_chunk::{self, LimitsChunk};
use tollgate_shared::wire::record::kind;
use tollgate_shared::wire::{DecodeError, FieldFault};

pub use self::acts::in_one_line;
use self::edit::change_of;
pub use self::edit::own_of;
use self::parsed::{ParseOutcome, Parsed};
use self::switches::Switches;
use self::text::Text;
pub use self::void::Void;
use crate::{Limits, RULES, Revision};

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
    /// By which pointers name it: BLAKE3 of its text, or of the amendment's record.
    pub digest: [u8; 32],
    /// The document in force: as it was pushed, with what was changed of it since.
    pub text: Text,
    /// The document as it rules, switches included.
    pub limits: Arc<Limits>,
    /// What an operator did, if it is an amendment.
    pub made: Option<Arc<Made>>,
}

/// An amendment: who did what, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Who.
    pub who: Box<str>,
    /// And why.
    pub why: Box<str>,
    /// When the log took it.
    pub at: Timestamp,
    /// What.
    pub act: Arc<Act>,
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

/// The book.
#[derive(Clone, Debug, Default)]
pub struct LimitsBook {
    versions: BTreeMap<u64, Arc<Version>>,
    newer: BTreeSet<u64>,
    document: Option<Document>,
    switches: Switches,
    parts: Vec<Push>,
    parts_bytes: usize,
    parsed: Parsed,
    /// How many documents were not parsed here.
    prepared: u64,
}

/// The document in force, without switches.
#[derive(Clone, Debug)]
struct Document {
    text: Text,
    limits: Arc<Limits>,
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
    /// A book of nothing, which takes what was prepared for it.
    pub fn with(parsed: Parsed) -> Self {
        Self {
            parsed,
            ..Self::default()
        }
    }

    /// Where documents may be prepared for it.
    pub fn preparing(&self) -> Parsed {
        self.parsed.clone()
    }

    /// How many documents it did not have to parse.
    pub const fn prepared(&self) -> u64 {
        self.prepared
    }

    /// What the text of this digest says.
    pub fn parse(&mut self, text: &str, digest: &[u8; 32]) -> ParseOutcome {
        match self.parsed.take(digest) {
            Some(outcome) => {
                self.prepared += 1;
                outcome
            }
            None => Limits::parse_logged(text).map(Arc::new),
        }
    }

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

    /// Lets go of who made an amendment and why: what they did is needed as long as a partition may come under it,
    /// and the log has all of it. With words of a kilobyte a flood of amendments is read again in a tenth of the
    /// memory.
    pub fn keep_act_alone(&mut self, number: u64) {
        let Some(version) = self.versions.get_mut(&number) else {
            return;
        };
        if let Some(made) = &version.made {
            let made = Made {
                who: "".into(),
                why: "".into(),
                at: made.at,
                act: Arc::clone(&made.act),
            };
            let version = Arc::make_mut(version);
            version.made = Some(Arc::new(made));
        }
    }

    /// Enters a record of the stream. None: it is not about versions.
    ///
    /// # Errors
    ///
    /// Where the record cannot be read.
    pub fn read(
        &mut self,
        offset: u64,
        appended: Timestamp,
        bytes: &[u8],
    ) -> Result<Option<Entered>, DecodeError> {
        match bytes.get(1).copied() {
            Some(kind::GENESIS) => Ok(None),
            Some(limits_chunk::KIND) => {
                let chunk = LimitsChunk::decode(bytes)?;
                Ok(Some(self.enter(offset, &chunk)))
            }
            Some(amendment::KIND) => match Amendment::decode(bytes) {
                Ok(amendment) => Ok(Some(self.amend(offset, appended, bytes, &amendment))),
                Err(error)
                    if error.field == "act" && matches!(error.fault, FieldFault::Kind { .. }) =>
                {
                    Ok(Some(self.newer(offset, error.to_string())))
                }
                Err(error) => Err(error),
            },
            Some(other) if other & kind::SKIPPABLE != 0 => Ok(None),
            Some(other) => Ok(Some(self.newer(offset, format!("record kind {other}")))),
            None => LimitsChunk::decode(bytes).map(|_| None),
        }
    }

    /// A version that only a later build can read.
    fn newer(&mut self, number: u64, why: String) -> Entered {
        self.newer.insert(number);
        Entered::Newer { number, why }
    }

    /// Enters an amendment.
    fn amend(
        &mut self,
        number: u64,
        at: Timestamp,
        record: &[u8],
        amendment: &Amendment<'_>,
    ) -> Entered {
        let push = amendment.push;
        let found = self.latest_number();
        if amendment.expected != found {
            let expected = amendment.expected;
            return void(push, Void::Conflict { expected, found });
        }
        let Some(document) = &self.document else {
            return void(push, Void::Nothing);
        };
        let document = match document.changed(&amendment.act) {
            Ok(document) => document,
            Err(why) => return void(push, why),
        };
        self.switches.turn(&amendment.act);
        let version = Arc::new(Version {
            number,
            digest: digest(record),
            text: document.text.clone(),
            limits: self.switches.over(&document.limits),
            made: Some(Arc::new(Made {
                who: amendment.who.into(),
                why: amendment.why.into(),
                at,
                act: Arc::new(amendment.act.clone()),
            })),
        });
        self.document = Some(document);
        self.versions.insert(version.number, Arc::clone(&version));
        Entered::Version { push, version }
    }

    /// The switches that are turned over what documents say.
    pub fn switches(&self) -> &Switches {
        &self.switches
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
            Err(Void::Newer(why)) => self.newer(offset, why),
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

    fn judge(&mut self, offset: u64, push: Push) -> Result<Version, Void> {
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
        let limits =
            self.parse(&text, &push.digest)
                .map_err(|faults| match is_of_later_build(&text) {
                    true => Void::Newer(faults.to_string()),
                    false => Void::Faults(faults.to_string()),
                })?;
        let document = Document {
            text: Text::whole(text.into(), push.digest),
            limits,
        };
        let version = Version {
            number: offset,
            digest: push.digest,
            text: document.text.clone(),
            limits: self.switches.over(&document.limits),
            made: None,
        };
        self.document = Some(document);
        Ok(version)
    }
}

impl Document {
    /// The document as an act leaves it. Most leave it as it is.
    fn changed(&self, act: &Act) -> Result<Self, Void> {
        let rows = act.rows();
        if rows.is_empty() {
            return Ok(self.clone());
        }
        let text = self.text.changed(rows.iter().map(change_of).collect());
        // What a domain has left when its own is taken away, a plan may say; and only the document knows.
        if rows.iter().any(|row| own_of(row).is_none()) && text.may_have_plans() {
            let whole = text.read().map_err(|why| Void::Change(why.to_string()))?;
            let limits =
                Limits::parse_logged(&whole).map_err(|why| Void::Change(why.to_string()))?;
            let limits = Arc::new(limits);
            return Ok(Self { text, limits });
        }
        let mut revision = Revision::of(&self.limits);
        for row in rows {
            revision
                .set(&row.resource, &row.domain, own_of(row).as_ref())
                .map_err(|why| Void::Change(why.to_string()))?;
        }
        let limits = Arc::new(revision.limits());
        Ok(Self { text, limits })
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
mod tests;
