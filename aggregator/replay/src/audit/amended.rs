//! Amendments in an audit: what operators did, and where in the log it came into force.
//!
//! ```text
//! amendment: partition 1, hits offset 20: version 18: lift api.search acme, by ann at …: a bug of ours
//! ```
//!
//! Knows nothing of their effect on rulings, which the replay applies. What stays true: an amendment is
//! reported once, by the first partition in which it came into force, in the order of the log.

use std::collections::BTreeMap;
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
    /// The first partition.
    pub partition: u32,
    /// In how many partitions it came into force: each brings it into force by itself.
    pub partitions: u64,
    /// The offset of the limits activation there.
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
                partitions: 1,
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

/// The amendments of all partitions, each once.
pub fn of_all<'a>(parts: impl Iterator<Item = &'a BroughtAmendment>) -> Vec<BroughtAmendment> {
    let mut all: BTreeMap<u64, BroughtAmendment> = BTreeMap::new();
    for part in parts {
        all.entry(part.version)
            .and_modify(|one| one.partitions += part.partitions)
            .or_insert_with(|| part.clone());
    }
    all.into_values().collect()
}

impl fmt::Display for BroughtAmendment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partition,
            partitions,
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
        )?;
        match partitions {
            1 => Ok(()),
            count => write!(f, " (in {count} partitions)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_listed_once_however_many_partitions_have_it() {
        let brought = |partition, version| BroughtAmendment {
            partition,
            partitions: 1,
            offset: 20,
            version,
            amendment: "lift r acme".to_owned(),
            who: "ann".into(),
            why: "a bug of ours".into(),
            at_us: 0,
        };
        let parts = [brought(0, 18), brought(0, 19), brought(1, 18)];
        let all = of_all(parts.iter());
        let counted = all.iter().map(|one| (one.version, one.partitions));
        assert_eq!(counted.collect::<Vec<_>>(), [(18, 2), (19, 1)]);
        assert!(
            all[0]
                .to_string()
                .ends_with(": a bug of ours (in 2 partitions)")
        );
        assert!(all[1].to_string().ends_with(": a bug of ours"));
    }
}
