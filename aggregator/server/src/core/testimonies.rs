//! Testimonies: those who rule one partition compare what they came to.
//!
//! ```text
//! first counted tick of each 10 s of log time, at X ── own digest behind X noted, and said in the partition
//! what another says of X                            ── compared with the one that was noted
//! ```
//!
//! Two groups rule every partition twice and say the same, because rulings are a function of the log. If
//! they do not, the machines or the builds disagree, and nobody would notice. A testimony stands behind the
//! record that it speaks of, in the partition that it is about: so it reaches all who rule that partition,
//! now or later, and nobody else; whoever takes a partition over compares with who had it before. Knows
//! nothing of how a digest is made. What stays true: nothing is ruled otherwise because of a testimony; but a state that
//! is doubted is not saved, nor one restored that is doubted before it is announced.

use std::collections::VecDeque;

use tollgate_engine::engine::{DIGEST_FORM, is_digest_due};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::record::RecordPen;
use tollgate_shared::wire::testimony::StateDigest;

use super::partition::Partition;
use super::partition::appends::AppendPurpose;
use super::partition::event::PartitionStep;
use tollgate_log::Stream;

/// How many of one's own digests are kept: what is said of an older one came more than two minutes late.
const NOTED_MAX: usize = 16;

/// What a partition's state was.
#[derive(Clone, Copy, Debug)]
struct Noted {
    offset: u64,
    rules: u32,
    digest: u128,
}

/// For so long of the log's time after a difference no snapshot is taken: somebody would restore from it,
/// and nobody knows which of the two is right.
const DOUBTED_FOR: Span = Span::from_secs(300);

/// How many snapshots are given up for older ones while a partition catches up. Each costs a replay.
const GIVEN_UP_MAX: u32 = 3;

/// What one partition's states were, as far as testimonies may still speak of them.
#[derive(Debug, Default)]
pub struct StateDigests {
    noted: VecDeque<Noted>,
    doubted_until: Timestamp,
}

impl StateDigests {
    fn note(&mut self, noted: Noted) {
        if self.noted.len() == NOTED_MAX {
            self.noted.pop_front();
        }
        self.noted.push_back(noted);
    }

    fn of(&self, offset: u64) -> Option<Noted> {
        self.noted
            .iter()
            .find(|noted| noted.offset == offset)
            .copied()
    }

    /// Whether somebody came to another state not long ago, by the log's time.
    pub fn are_doubted(&self, at: Timestamp) -> bool {
        at < self.doubted_until
    }
}

impl Partition {
    /// A tick was ruled: notes the state behind it where it is due, and says it where rulings are said.
    pub(super) fn testify(
        &mut self,
        offset: u64,
        log_time_before: Option<Timestamp>,
        step: &mut PartitionStep<'_>,
    ) {
        let (context, settings) = (step.context, step.context.settings);
        let Some(group) = &settings.group else {
            return;
        };
        if !is_digest_due(log_time_before, self.ruler.log_time()) {
            return;
        }
        let in_force = self.ruler.version();
        let version = context.limits.book.get(in_force);
        let noted = Noted {
            offset,
            rules: version.map_or(0, |version| version.limits.rules()),
            digest: self.ruler.state(),
        };
        self.testimonies.note(noted);
        // Who catches up has nothing to say that was not said when it happened. And behind an activation that ends its
        // key it would be refused; the next is due in 10 s.
        if !self.announcing || self.is_ending_its_key(context) {
            return;
        }
        let testimony = StateDigest {
            offset,
            rules: noted.rules,
            form: DIGEST_FORM,
            digest: noted.digest,
            group,
            owner: &settings.owner,
            instance: step.context.instance,
        };
        let record = RecordPen::new(context.writer(in_force), self.index).testimony(&testimony);
        self.append(Stream::Hits, record, AppendPurpose::Testimony, step);
    }

    /// Another has said what the state was: compares.
    pub(super) fn hear(&mut self, said: &StateDigest<'_>, step: &mut PartitionStep<'_>) {
        if said.instance == step.context.instance || said.form != DIGEST_FORM {
            return;
        }
        let Some(noted) = self.testimonies.of(said.offset) else {
            return;
        };
        if noted.rules != said.rules {
            return;
        }
        step.counters().states_compared += 1;
        if noted.digest == said.digest {
            return;
        }
        step.counters().states_differing += 1;
        tracing::error!(
            partition = self.index,
            offset = said.offset,
            rules = said.rules,
            ours = format!("{:032x}", noted.digest),
            theirs = format!("{:032x}", said.digest),
            group = said.group,
            owner = said.owner,
            "two who rule a partition came to different states: their machines or builds disagree"
        );
        self.doubt(step);
    }

    /// Nobody restores from a state that is doubted: none is saved, and one that was restored is given up
    /// for an older one while it catches up, since it may be the other's.
    fn doubt(&mut self, step: &mut PartitionStep<'_>) {
        self.testimonies.doubted_until = self.position.appended.saturating_add(DOUBTED_FOR);
        self.snapshots.drop_waiting();
        let Some(upto) = self.recovery.restored_upto.filter(|_| !self.announcing) else {
            return;
        };
        if GIVEN_UP_MAX <= self.recovery.given_up {
            return;
        }
        self.recovery.given_up += 1;
        self.recovery.restored_upto = None;
        tracing::warn!(
            partition = self.index,
            upto,
            "the snapshot that it was restored from is given up for an older one"
        );
        self.restore_older(upto, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_bounded_and_the_newest_stay() {
        let mut testimonies = StateDigests::default();
        for offset in 0..100 {
            testimonies.note(Noted {
                offset,
                rules: 1,
                digest: u128::from(offset),
            });
        }
        assert_eq!(testimonies.noted.len(), NOTED_MAX);
        assert!(testimonies.of(83).is_none());
        assert_eq!(testimonies.of(84).map(|noted| noted.digest), Some(84));
    }
}
