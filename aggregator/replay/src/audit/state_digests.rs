//! State digests of ruling aggregators, compared with the replay's.
//!
//! ```text
//! first counted tick of each 10 s of log time, at X ── the replay notes its digest behind X
//! a state digest about X                            ── compared with the noted one
//! ```
//!
//! Aggregators write state digests by the same rule, and each stands after the record that it is about.
//! Knows nothing of how a digest is computed. What stays true: digests of other formats or rule sets are
//! not compared.

use std::collections::VecDeque;

use tollgate_engine::engine::DIGEST_FORM;
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::state_digest::StateDigest;

use super::report::{Difference, DifferenceKind, PartitionAudit};
use crate::replay::{RecordResult, Replay};
use tollgate_engine::engine::is_digest_due;

/// How many of the replay's digests are kept: ten minutes of log time, several times what aggregators
/// keep.
const NOTED_MAX: usize = 64;

/// The replay's digests that records may still refer to.
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
    /// Takes a record that the replay has read at `offset`; `before` was the log time before it.
    pub fn take(
        &mut self,
        (offset, in_range): (u64, bool),
        before: Option<Timestamp>,
        (met, replay): (&RecordResult<'_>, &Replay),
        part: &mut PartitionAudit,
    ) {
        match met {
            RecordResult::Ruled(Record::Tick(_))
                if is_digest_due(before, replay.engine().log_time()) =>
            {
                self.note(offset, replay);
            }
            RecordResult::Ruled(Record::StateDigest(stated)) if in_range => {
                self.compare(offset, stated, part)
            }
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

    fn compare(&self, at: u64, stated: &StateDigest<'_>, part: &mut PartitionAudit) {
        let mut noted = self.noted.iter();
        let noted = noted.find(|noted| noted.offset == stated.offset);
        let Some(noted) =
            noted.filter(|noted| stated.form == DIGEST_FORM && noted.rules == stated.rules)
        else {
            let text = "state digests of aggregators that cannot be compared: of another digest format or rule set, \
                        or of a log position that the replay did not note";
            return part.remark("state_digests", 1, at, text);
        };
        if noted.digest == stated.digest {
            part.state_digests += 1;
            return;
        }
        let text = format!(
            "{} of group {} came to another state than the replay: digest {:032x}, expected {:032x}; stated at offset {at}",
            escaped(stated.aggregator),
            escaped(stated.group),
            stated.digest,
            noted.digest
        );
        let place = (part.partition, "hits", stated.offset);
        part.differs(Difference::of_record(
            DifferenceKind::StateDigest,
            place,
            text,
        ));
    }
}
