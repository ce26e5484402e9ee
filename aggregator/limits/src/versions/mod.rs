//! The book of limits versions: records of the `limits` stream go in, versions come out.
//!
//! ```text
//! offset  record                  book
//! 0       (the stream's identity)
//! 1       document A, expects 0   version 1
//! 2       document B, expects 0   void: it expected 0, and 1 is in force
//! 3       act C, expects 1        version 3: document A, and what C did
//! ```
//!
//! An operator's amendment is a record and a version of its own. It leaves the document unchanged: its rows stand
//! beside every later document, and its switches over it, until an operator removes them.
//!
//! A version's number is its record's offset. A push is void if another version is in force than it expected, or if
//! its document has faults. So the log alone decides which of two pushes wins. Offset 0 cannot be a version, because
//! 0 means "none"; the stream's first record is its identity. Knows nothing of partitions and of who pushed.
//!
//! What stays true: the book is a function of the stream.

mod acts;
mod bans;
mod record_keys;
pub mod switches;
pub mod text;
mod void;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::{self, Act, Amendment};
use tollgate_shared::wire::limits_document::{self, LimitsDocument};
use tollgate_shared::wire::record::kind;
use tollgate_shared::wire::set_rows::SetRow;
use tollgate_shared::wire::{DecodeError, FieldFault, Reader};

pub use self::acts::{concerns, in_one_line, names_pairs, until_text};
pub use self::bans::{BanFilter, Bans, LastingBan, ListedBan};
use self::switches::Switches;
use self::text::Text;
pub use self::void::Void;
use crate::{Limits, Own, RULES, Revision};

/// One version.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its number.
    pub number: u64,
    /// The digest by which activations name it: BLAKE3 of its text, or of the amendment's record.
    pub digest: [u8; 32],
    /// The document in force, as it was pushed.
    pub text: Text,
    /// The effective limits: the document with the rows beside it, and the switches.
    pub limits: Arc<Limits>,
    /// The version whose limits these are: itself, or an earlier one if it is an act that leaves limits as they are.
    pub limits_of: u64,
    /// The operator's act, if it is an amendment.
    pub made: Option<Arc<Made>>,
}

/// An amendment: who did what, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Name of the operator.
    pub who: Box<str>,
    /// The operator's reason.
    pub why: Box<str>,
    /// When the log appended it.
    pub at: Timestamp,
    /// The act.
    pub act: Arc<Act>,
}

/// The result of entering a record.
#[derive(Clone, Debug)]
pub enum Entered {
    /// It is this version.
    Version {
        /// The push.
        push: u128,
        /// The version.
        version: Arc<Version>,
    },
    /// It is a version that only a later build can read: a partition in which it is activated stops.
    Newer {
        /// Its number.
        number: u64,
        /// This build's description of it.
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
    bans: Bans,
}

/// The document in force, without switches.
#[derive(Clone, Debug)]
struct Document {
    text: Text,
    limits: Arc<Limits>,
}

impl LimitsBook {
    /// The newest version that this build can read; `None` if nothing was ever pushed.
    pub fn latest(&self) -> Option<&Arc<Version>> {
        self.versions.values().next_back()
    }

    /// The number of the version in force at the end of what was read, even if only a later build can read it; 0:
    /// none.
    pub fn latest_number(&self) -> u64 {
        let newer = self.newer.last().copied().unwrap_or(0);
        self.latest().map_or(0, |version| version.number).max(newer)
    }

    /// The version with this number.
    pub fn get(&self, number: u64) -> Option<&Arc<Version>> {
        self.versions.get(&number)
    }

    /// All versions, ascending.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = &Arc<Version>> {
        self.versions.values()
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

    /// Drops versions below `number`, which no partition needs any more.
    pub fn forget_below(&mut self, number: u64) {
        if number <= self.latest_number() {
            self.versions = self.versions.split_off(&number);
        }
    }

    /// Drops operator and reason of an amendment. The act is needed as long as a partition may activate it, and the
    /// log has all of it. With reasons of a kilobyte this reduces the memory of reading a flood of amendments to a
    /// tenth.
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

    /// Enters a record of the stream. `None`: it is not about versions.
    ///
    /// # Errors
    ///
    /// If the record cannot be read.
    pub fn read(
        &mut self,
        offset: u64,
        appended: Timestamp,
        bytes: &[u8],
    ) -> Result<Option<Entered>, DecodeError> {
        match bytes.get(1).copied() {
            Some(kind::GENESIS) => Ok(None),
            Some(limits_document::KIND) => {
                let document = LimitsDocument::decode(bytes)?;
                Ok(Some(self.enter(offset, &document)))
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
            Some(other) => {
                // Of whatever is not a record at all, no build will know more.
                let mut reader = Reader::of_message(bytes)?;
                reader.byte("kind")?;
                reader.array("record")?;
                Ok(Some(self.newer(offset, format!("record kind {other}"))))
            }
            None => LimitsDocument::decode(bytes).map(|_| None),
        }
    }

    /// Notes a version that only a later build can read.
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
        self.bans.turn(&amendment.act, at, number);
        let before = self.latest().filter(|_| !amendment.act.is_limits());
        let version = Arc::new(Version {
            number,
            limits_of: before.map_or(number, |before| before.limits_of),
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

    /// The switches that override what documents state.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// The bans.
    pub fn bans(&self) -> &Bans {
        &self.bans
    }

    /// Enters a document with offset `offset`.
    pub fn enter(&mut self, offset: u64, pushed: &LimitsDocument<'_>) -> Entered {
        let push = pushed.push;
        match self.check_document(offset, pushed) {
            Ok(version) => {
                let version = Arc::new(version);
                self.versions.insert(version.number, Arc::clone(&version));
                Entered::Version { push, version }
            }
            Err(Void::Newer(why)) => self.newer(offset, why),
            Err(why) => void(push, why),
        }
    }

    fn check_document(
        &mut self,
        offset: u64,
        pushed: &LimitsDocument<'_>,
    ) -> Result<Version, Void> {
        if offset == 0 {
            return Err(Void::Zero);
        }
        let found = self.latest_number();
        let expected = pushed.expected;
        if expected != found {
            return Err(Void::Conflict { expected, found });
        }
        let limits = Limits::parse_logged(pushed.text).map_err(|faults| {
            let why = faults.to_string();
            match is_of_later_build(pushed.text) {
                true => Void::Newer(why),
                false => Void::Faults(why),
            }
        })?;
        let document = Document {
            text: Text::from(pushed.text),
            limits: self.beside_rows(limits)?,
        };
        let version = Version {
            number: offset,
            limits_of: offset,
            digest: document.text.digest(),
            text: document.text.clone(),
            limits: self.switches.over(&document.limits),
            made: None,
        };
        self.document = Some(document);
        Ok(version)
    }

    /// A new document with the rows that stand beside the one before.
    fn beside_rows(&self, limits: Limits) -> Result<Arc<Limits>, Void> {
        let limits = match &self.document {
            Some(before) => limits
                .with_rows_of(&before.limits)
                .map_err(|why| Void::Change(why.to_string()))?,
            None => limits,
        };
        Ok(Arc::new(limits))
    }
}

impl Document {
    /// The document with the rows of an act beside it. Most acts have none.
    fn changed(&self, act: &Act) -> Result<Self, Void> {
        let rows = act.rows();
        if rows.is_empty() {
            return Ok(self.clone());
        }
        let mut revision = Revision::of(&self.limits);
        for row in rows {
            revision
                .set(&row.resource, &row.domain, own_of(row).as_ref())
                .map_err(|why| Void::Change(why.to_string()))?;
        }
        Ok(Self {
            text: self.text.clone(),
            limits: Arc::new(revision.limits()),
        })
    }
}

/// A domain's own statement according to a row; `None`: the row is to be removed.
pub fn own_of(row: &SetRow) -> Option<Own> {
    let own = Own {
        rate: row.rate.clone(),
        hard: row.hard.clone(),
        limit: row.limit,
    };
    (own != Own::default()).then_some(own)
}

/// Whether a document states a format or a rule set above those that this build knows.
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

/// The digest that identifies versions: BLAKE3 of the text.
pub fn digest(text: &[u8]) -> [u8; 32] {
    *blake3::hash(text).as_bytes()
}

#[cfg(test)]
mod tests;
