//! Amendments in an audit: what operators did, and where in the log it came into force.
//!
//! ```text
//! amendment: partition 1, hits offset 20: version 18: lift api.search acme, by ann at …: a bug of ours
//! ```
//!
//! Knows nothing of their effect on rulings, which the replay applies. What stays true: an amendment is
//! reported once for each partition in which it came into force, in the order of the log.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Timestamp;

use crate::range::Utc;
use tollgate_limits::versions::LimitsBook;
use tollgate_limits::versions::in_one_line;

/// An amendment that a limits activation brought into force in a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BroughtAmendment {
    /// The partition.
    pub partition: u32,
    /// The offset of the limits activation.
    pub offset: u64,
    /// Its version number.
    pub version: u64,
    /// What the operator did.
    pub amendment: String,
    /// The operator.
    pub who: Box<str>,
    /// The operator's reason.
    pub why: Box<str>,
    /// When the log appended the amendment, in microseconds since the epoch.
    pub at_us: u64,
}

/// The amendments after the version `known` and up to `upto`, which a record at `offset` brought into
/// force.
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
