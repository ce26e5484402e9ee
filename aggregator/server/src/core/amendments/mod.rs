//! Amendments on their way: an operator's word is looked at, appended to the `limits` stream, and
//! answered once the log says what became of it.
//!
//! ```text
//! lift api.search acme, expecting 17   is it denied at all? appended; the log has it as 18; its
//!                                      partition was pointed at it: done, in force
//! the same, expecting 16               refused: 17 is in force
//! ```
//!
//! Knows nothing of HTTP and of what acts do. What stays true: what is refused here changes nothing;
//! what was appended is judged by the log alone, whatever was asked first.

mod looks;

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::{Act, Amendment};

use super::event::{Effect, Now, QueryId};
use super::view::Reply;
use super::{Core, Purpose, draw_u128};
use tollgate_limits::versions::{Entered, Void, in_one_line};
use tollgate_log::Stream;

/// Amendments on their way at once.
const PROPOSALS_MAX: usize = 64;

/// How long an answer waits for the partitions of this process to come under the amendment.
const IN_FORCE_WITHIN: Span = Span::from_secs(2);

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What.
    pub act: Act,
    /// Who.
    pub who: String,
    /// And why.
    pub why: String,
    /// The version that has to be in force; none: whichever is.
    pub expected: Option<u64>,
    /// Says what would be done.
    pub dry_run: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AmendmentView {
    /// The form's name.
    pub schema: &'static str,
    /// What was done.
    pub amendment: String,
    /// Its number among the versions; of a dry run the version in force.
    pub version: u64,
    /// The version that was in force before.
    pub expected: u64,
    /// False: it was a dry run.
    pub done: bool,
    /// Whether all partitions that this process rules are under it.
    pub in_force: bool,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another version is in force.
    #[error("it expected version {expected}, and {found} is in force: look at it, and try again")]
    Conflict {
        /// What was expected.
        expected: u64,
        /// What is in force.
        found: u64,
    },
    /// A name is none.
    #[error("{field} {name:?}: {fault}")]
    Name {
        /// Which.
        field: &'static str,
        /// As it was given.
        name: String,
        /// What is wrong with it.
        fault: String,
    },
    /// The resource is not limited in that way.
    #[error("resource {resource:?}: not limited by {by} in version {version}")]
    UnknownResource {
        /// The resource.
        resource: String,
        /// `rate` or `copies`.
        by: &'static str,
        /// The version in force.
        version: u64,
    },
    /// There is nothing that it could change.
    #[error("{what}")]
    Nothing {
        /// Why.
        what: String,
    },
    /// Not now.
    #[error("{why}")]
    NotNow {
        /// Why.
        why: String,
    },
}

impl Refused {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::Name { .. } => "bad_name",
            Self::UnknownResource { .. } => "unknown_resource",
            Self::Nothing { .. } => "nothing_to_do",
            Self::NotNow { .. } => "unavailable",
        }
    }
}

/// Those that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Proposals(BTreeMap<u128, Waiting>);

#[derive(Debug)]
struct Waiting {
    id: QueryId,
    what: String,
    expected: u64,
    /// Its number, once the log has it, and since when.
    entered: Option<(u64, Span)>,
}

impl Core {
    /// Takes an operator's word, and answers now or later.
    pub(super) fn propose(&mut self, now: Now, id: QueryId, proposal: &Proposal) {
        let spelt = self.spelt(&proposal.act);
        let looked = spelt.and_then(|spelt| {
            let act = spelt.unwrap_or_else(|| proposal.act.clone());
            self.look_at(proposal, &act)?;
            Ok(act)
        });
        let act = match looked {
            Ok(act) => act,
            Err(refused) => return self.answer_proposal(id, Err(refused)),
        };
        let expected = self.limits.book.latest_number();
        let what = in_one_line(&act);
        if proposal.dry_run {
            let view = view(what, expected, expected, false, false);
            return self.answer_proposal(id, Ok(view));
        }
        let push = draw_u128(&mut self.random);
        let mut writer = Writer::new();
        Amendment {
            push,
            expected,
            who: &proposal.who,
            why: &proposal.why,
            act,
        }
        .encode(&mut writer);
        tracing::info!(
            who = proposal.who,
            why = proposal.why,
            "an operator asks: {what}"
        );
        let waiting = Waiting {
            id,
            what,
            expected,
            entered: None,
        };
        self.proposals.0.insert(push, waiting);
        let record = writer.as_slice().to_vec();
        self.append(Stream::Limits, 0, record, Purpose::Amendment(push));
        self.counters.amendments += 1;
        self.proposals_turn(now);
    }

    /// The log could not take it, or did not say so.
    pub(super) fn proposal_failed(&mut self, push: u128, why: &str) {
        if let Some(waiting) = self.proposals.0.remove(&push) {
            let why = format!("the log did not take it ({why}): look at what is in force");
            self.answer_proposal(waiting.id, Err(Refused::NotNow { why }));
        }
    }

    /// The log says what became of a push, which may be one of these.
    pub(super) fn amendment_entered(&mut self, now: Now, entered: &Entered) {
        match entered {
            Entered::Version { push, version } => {
                if let Some(waiting) = self.proposals.0.get_mut(push) {
                    waiting.entered = Some((version.number, now.clock));
                }
            }
            Entered::Void { push, why } => {
                let Some(waiting) = self.proposals.0.remove(push) else {
                    return;
                };
                self.counters.amendments_void += 1;
                let refused = match why {
                    Void::Conflict { expected, found } => Refused::Conflict {
                        expected: *expected,
                        found: *found,
                    },
                    why => Refused::NotNow {
                        why: why.to_string(),
                    },
                };
                self.answer_proposal(waiting.id, Err(refused));
            }
            Entered::Part | Entered::Newer { .. } => {}
        }
    }

    /// Answers those whose amendment is in force here, and those that have waited for long enough.
    pub(super) fn proposals_turn(&mut self, now: Now) {
        if self.proposals.0.is_empty() {
            return;
        }
        let ruled = |version: u64| {
            let mut ours = self.partitions.iter().filter(|p| p.is_ours());
            ours.all(|p| version <= p.ruler.version() && !p.ruler.has_more())
        };
        let done: Vec<(u128, u64, bool)> = self
            .proposals
            .0
            .iter()
            .filter_map(|(push, waiting)| {
                let (version, since) = waiting.entered?;
                let in_force = ruled(version);
                let late = since.saturating_add(IN_FORCE_WITHIN) <= now.clock;
                (in_force || late).then_some((*push, version, in_force))
            })
            .collect();
        for (push, version, in_force) in done {
            if let Some(waiting) = self.proposals.0.remove(&push) {
                let view = view(waiting.what, version, waiting.expected, true, in_force);
                self.answer_proposal(waiting.id, Ok(view));
            }
        }
    }

    fn answer_proposal(&mut self, id: QueryId, answer: Result<AmendmentView, Refused>) {
        self.effects.push(Effect::Reply {
            id,
            reply: Box::new(Reply::Amended(answer)),
        });
    }
}

fn view(
    amendment: String,
    version: u64,
    expected: u64,
    done: bool,
    in_force: bool,
) -> AmendmentView {
    AmendmentView {
        schema: "tollgate.amendment/1",
        amendment,
        version,
        expected,
        done,
        in_force,
    }
}
