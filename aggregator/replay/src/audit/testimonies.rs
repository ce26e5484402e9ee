//! What owners said of their states, beside the replay's.
//!
//! ```text
//! first counted tick of each 10 s of log time, at X ── the replay's digest behind X noted
//! a testimony about X                               ── compared with the one that was noted
//! ```
//!
//! Owners testify by the same rule, and what they say stands behind the record that it speaks of. Knows
//! nothing of how a digest is made. What stays true: digests of other forms or rule sets are not compared.

use std::collections::VecDeque;

use tollgate_engine::engine::DIGEST_FORM;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::testimony::StateDigest;

use super::report::{Difference, DifferenceKind, PartitionAudit};
use crate::replay::{Met, Replay};
use tollgate_engine::engine::is_digest_due;

/// How many of the replay's digests are kept: ten minutes of log time, several times what owners keep.
const NOTED_MAX: usize = 64;

/// The replay's digests, as far as testimonies may still speak of them.
#[derive(Debug, Default)]
pub struct AuditedDigests {
    noted: VecDeque<Noted>,
}

#[derive(Debug)]
struct Noted {
    offset: u64,
    rules: u32,
    digest: u128,
}

impl AuditedDigests {
    /// Takes a record that the replay has met at `offset`; `before` was log time before it.
    pub fn take(
        &mut self,
        (offset, in_range): (u64, bool),
        before: Option<Timestamp>,
        (met, replay): (&Met<'_>, &Replay),
        part: &mut PartitionAudit,
    ) {
        match met {
            Met::Ruled(Record::Tick(_)) if is_digest_due(before, replay.engine().log_time()) => {
                self.note(offset, replay);
            }
            Met::Ruled(Record::Testimony(said)) if in_range => self.compare(offset, said, part),
            _ => {}
        }
    }

    fn note(&mut self, offset: u64, replay: &Replay) {
        let version = replay.engine().version();
        let version = version.and_then(|number| replay.book().get(number));
        if self.noted.len() == NOTED_MAX {
            self.noted.pop_front();
        }
        self.noted.push_back(Noted {
            offset,
            rules: version.map_or(0, |version| version.limits.rules()),
            digest: replay.engine().digest(),
        });
    }

    fn compare(&self, at: u64, said: &StateDigest<'_>, part: &mut PartitionAudit) {
        let mut noted = self.noted.iter();
        let noted = noted.find(|noted| noted.offset == said.offset);
        let Some(noted) =
            noted.filter(|noted| said.form == DIGEST_FORM && noted.rules == said.rules)
        else {
            let text = "testimonies of owners that cannot be compared: of another form of digest or rule set, \
                        or about a place that the replay did not note";
            return part.remark("testimonies", 1, at, text);
        };
        if noted.digest == said.digest {
            part.testimonies += 1;
            return;
        }
        let text = format!(
            "{} of group {} came to another state than the replay: digest {:032x}, expected {:032x}; said at offset {at}",
            said.owner, said.group, said.digest, noted.digest
        );
        let place = (part.partition, "hits", said.offset);
        part.differs(Difference::of_record(
            DifferenceKind::Testimony,
            place,
            text,
        ));
    }
}
