//! Amendments as an audit tells them: what operators did, where in the log it came into force.
//!
//! ```text
//! amendment: partition 1, hits offset 20: version 18: lift api.search acme, by ann at …: a bug of ours
//! ```
//!
//! Knows nothing of what they did to rulings: the replay does. What stays true: an amendment is told once
//! for each partition that it was brought into, in the order of the log.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Timestamp;

use crate::range::Utc;
use tollgate_limits::versions::LimitsBook;
use tollgate_limits::versions::in_one_line;

/// An amendment that a pointer brought into a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BroughtAmendment {
    /// The partition.
    pub partition: u32,
    /// The pointer that brought it in.
    pub offset: u64,
    /// Its number among the versions.
    pub version: u64,
    /// What was done.
    pub amendment: String,
    /// Who.
    pub who: Box<str>,
    /// And why.
    pub why: Box<str>,
    /// When the log took it.
    pub at_us: u64,
}

/// The amendments behind the version `known` and up to `upto`, which a record at `offset` brought in.
pub fn brought(
    book: &LimitsBook,
    (known, upto): (Option<u64>, Option<u64>),
    (partition, offset): (u32, u64),
) -> Vec<BroughtAmendment> {
    let mut found = Vec::new();
    let mut next = book.after(known.unwrap_or(0));
    while let Some(version) = next.filter(|version| Some(version.number) <= upto) {
        if let Some(made) = version.made.as_ref().map(Arc::clone) {
            found.push(BroughtAmendment {
                partition,
                offset,
                version: version.number,
                amendment: in_one_line(&made.act),
                who: made.who.clone(),
                why: made.why.clone(),
                at_us: made.at.as_micros(),
            });
        }
        next = book.after(version.number);
    }
    found
}

impl fmt::Display for BroughtAmendment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partition,
            offset,
            version,
            amendment,
            who,
            why,
            at_us,
        } = self;
        let at = Utc(Timestamp::from_micros(*at_us));
        write!(
            f,
            "amendment: partition {partition}, hits offset {offset}: version {version}: {amendment}, \
             by {} at {at}: {}",
            escaped(who),
            escaped(why)
        )
    }
}
