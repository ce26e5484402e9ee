//! Amendments on their way: an operator's proposal is checked, appended to the stream `limits`, and
//! answered once the log has delivered it and decided on it.
//!
//! ```text
//! lift api.search acme, expecting 17   is it denied at all? appended; the log has it as version 18;
//!                                      the partition activated version 18: done, in force
//! the same, expecting 16               refused: version 17 is in force
//! ```
//!
//! Knows nothing of HTTP and of what acts do. What stays true: a proposal that is refused here changes nothing;
//! whether an appended one takes effect depends on the log alone, whatever the check before it found.

mod looks;

use std::collections::BTreeMap;

use tollgate_api::amend::AmendmentView;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::{Act, Amendment};

use super::environment::{Environment, Purpose};
use super::event::{Now, QueryId};
use super::partition::Partition;
use super::queries::Views;
use super::view::Reply;
use tollgate_limits::versions::{Entered, Void, in_one_line, until_text};
use tollgate_log::Stream;

/// Amendments on their way at once.
const PROPOSALS_MAX: usize = 64;

/// How long an answer waits until the partitions of this process have activated the amendment's version.
const IN_FORCE_WITHIN: Span = Span::from_secs(2);

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The act.
    pub act: Act,
    /// For a ban that was asked for so long, in place of an end: it lasts so long by log time, too, which may be ahead.
    pub ban_lasts: Option<Span>,
    /// The operator.
    pub who: String,
    /// The operator's reason.
    pub why: String,
    /// The version that has to be in force; `None`: any version.
    pub expected: Option<u64>,
    /// Only report what would be done.
    pub dry_run: bool,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmendmentRefused {
    /// Another version is in force.
    #[error("it expected version {expected}, and {found} is in force: look at it, and try again")]
    Conflict {
        /// The version that the proposal expected.
        expected: u64,
        /// The version in force.
        found: u64,
    },
    /// A name is invalid.
    #[error("{field} {name:?}: {fault}")]
    Name {
        /// The field of the proposal.
        field: &'static str,
        /// The name, as the proposal has it.
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
    /// There is nothing that the act could change.
    #[error("{what}")]
    Nothing {
        /// Why.
        what: String,
    },
    /// As many bans last as are allowed.
    #[error(
        "{found} bans and pardons last in a partition, expected fewer than {most}: end some, or ban their network"
    )]
    TooMany {
        /// How many bans and pardons there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// It cannot be done at the moment.
    #[error("{why}")]
    NotNow {
        /// Why.
        why: String,
    },
}

impl AmendmentRefused {
    /// The refusal's code, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::Name { .. } => "bad_name",
            Self::UnknownResource { .. } => "unknown_resource",
            Self::Nothing { .. } => "nothing_to_do",
            Self::TooMany { .. } => "too_many_bans",
            Self::NotNow { .. } => "unavailable",
        }
    }
}

/// An act that can be carried out.
#[derive(Debug)]
pub(super) struct CheckedAct {
    act: Act,
    /// For the answer: the ban in force that this one ends sooner.
    shortens: Option<String>,
}

/// Amendments whose operators wait for an answer, by push.
#[derive(Debug, Default)]
pub(super) struct Proposals(BTreeMap<u128, Waiting>);

#[derive(Debug)]
struct Waiting {
    id: QueryId,
    what: String,
    expected: u64,
    /// Its version, once the log has it, and since when.
    entered: Option<(u64, Span)>,
}

impl Proposals {
    /// Whether as many amendments are on their way as are allowed.
    fn is_full(&self) -> bool {
        PROPOSALS_MAX <= self.0.len()
    }

    /// Refuses a proposal, answers a dry run, or appends the amendment and answers later. Returns whether it was
    /// appended.
    pub(super) fn propose(
        &mut self,
        id: QueryId,
        proposal: &Proposal,
        looked: Result<CheckedAct, AmendmentRefused>,
        in_force: u64,
        env: &mut Environment,
    ) -> bool {
        let CheckedAct { act, shortens } = match looked {
            Ok(checked) => checked,
            Err(refused) => {
                let is_full = matches!(refused, AmendmentRefused::TooMany { .. });
                env.out.tally.counters.bans_refused += u64::from(is_full);
                env.reply(id, Reply::Amended(Err(refused)));
                return false;
            }
        };
        let what = in_one_line(&act) + &shortens.unwrap_or_default();
        if proposal.dry_run {
            let view = view(what, in_force, in_force, false, false);
            env.reply(id, Reply::Amended(Ok(view)));
            return false;
        }
        let push = env.draw_u128();
        let mut writer = Writer::new();
        Amendment {
            push,
            expected: in_force,
            who: &proposal.who,
            why: &proposal.why,
            act,
        }
        .encode(&mut writer);
        tracing::info!(
            who = proposal.who,
            why = proposal.why,
            "requested by an operator: {what}"
        );
        let waiting = Waiting {
            id,
            what,
            expected: in_force,
            entered: None,
        };
        self.0.insert(push, waiting);
        let record = writer.as_slice().to_vec();
        env.append(Stream::Limits, 0, record, Purpose::Amendment(push));
        env.out.tally.counters.amendments += 1;
        true
    }

    /// The log could not take the amendment, or did not acknowledge it.
    pub(super) fn failed(&mut self, push: u128, why: &str, env: &mut Environment) {
        if let Some(waiting) = self.0.remove(&push) {
            let why = format!("the log did not accept it ({why}): check what is in force");
            env.reply(
                waiting.id,
                Reply::Amended(Err(AmendmentRefused::NotNow { why })),
            );
        }
    }

    /// The log has decided on a push, which may be one of these.
    pub(super) fn entered(&mut self, now: Now, entered: &Entered, env: &mut Environment) {
        match entered {
            Entered::Version { push, version } => {
                if let Some(waiting) = self.0.get_mut(push) {
                    waiting.entered = Some((version.number, now.clock));
                }
            }
            Entered::Void { push, why } => {
                let Some(waiting) = self.0.remove(push) else {
                    return;
                };
                env.out.tally.counters.amendments_void += 1;
                let refused = match why {
                    Void::Conflict { expected, found } => AmendmentRefused::Conflict {
                        expected: *expected,
                        found: *found,
                    },
                    why => AmendmentRefused::NotNow {
                        why: why.to_string(),
                    },
                };
                env.reply(waiting.id, Reply::Amended(Err(refused)));
            }
            Entered::Newer { .. } => {}
        }
    }

    /// Answers operators whose amendment is in force here, and those that have waited for [`IN_FORCE_WITHIN`].
    pub(super) fn turn(&mut self, now: Now, partitions: &[Partition], env: &mut Environment) {
        if self.0.is_empty() {
            return;
        }
        let ruled = |version: u64| {
            let mut ours = partitions.iter().filter(|p| p.is_ours());
            ours.all(|partition| partition.is_under(version))
        };
        let done: Vec<(u128, u64, bool)> = self
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
            if let Some(waiting) = self.0.remove(&push) {
                let view = view(waiting.what, version, waiting.expected, true, in_force);
                env.reply(waiting.id, Reply::Amended(Ok(view)));
            }
        }
    }
}

impl Views<'_> {
    /// The act with its domain as the resource limits it, or why the proposal is refused, as far as this process
    /// knows.
    pub(super) fn looked_at(&self, proposal: &Proposal) -> Result<CheckedAct, AmendmentRefused> {
        let spelt = self.spelt(&proposal.act)?;
        let act = spelt.unwrap_or_else(|| proposal.act.clone());
        let act = self.lasting(act, proposal.ban_lasts);
        self.look_at(proposal, &act)?;
        let shortens = self.shortened_by(&act);
        Ok(CheckedAct { act, shortens })
    }

    /// That a ban replaces one that would have lasted longer; `None` if it does not.
    fn shortened_by(&self, act: &Act) -> Option<String> {
        let Act::Ban {
            resource,
            domain,
            until,
        } = act
        else {
            return None;
        };
        let before = { self.limits.book.bans() }.get(resource.as_deref(), domain)?;
        let (version, end) = (before.version, until_text(before.until));
        (*until < before.until)
            .then(|| format!(" (sooner than that of version {version}, {end}, which it replaces)"))
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
        schema: "tollgate.amendment/1".into(),
        amendment,
        version,
        expected,
        done,
        in_force,
    }
}
