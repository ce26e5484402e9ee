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

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate_engine::limits::NotChanged;
use tollgate_shared::names::{check_name, partition_of_pair, partition_of_resource};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_shared::wire::limits_chunk::REASON_BYTES_MAX;
use tollgate_shared::wire::statement::Cause;

use super::event::{Effect, Now, QueryId};
use super::limits_book::{Entered, Void, own_of};
use super::view::Reply;
use super::{Core, Purpose, draw_u128};
use crate::log::Stream;

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
        if let Err(refused) = self.look_at(proposal) {
            return self.answer_proposal(id, Err(refused));
        }
        let expected = self.limits.book.latest_number();
        let what = told(&proposal.act);
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
            act: proposal.act.clone(),
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

    /// Whether it can be done at all, as far as this process sees.
    fn look_at(&self, proposal: &Proposal) -> Result<(), Refused> {
        let not_now = |why: &str| Refused::NotNow { why: why.into() };
        if let Some(down) = &self.log_down {
            return Err(not_now(down));
        }
        if !self.limits.caught_up {
            return Err(not_now("limits are not read yet"));
        }
        if PROPOSALS_MAX <= self.proposals.0.len() {
            return Err(not_now("too many amendments are on their way"));
        }
        let found = self.limits.book.latest_number();
        if let Some(expected) = proposal.expected.filter(|expected| *expected != found) {
            return Err(Refused::Conflict { expected, found });
        }
        if REASON_BYTES_MAX < proposal.why.len() {
            return Err(Refused::Name {
                field: "why",
                name: format!("{} bytes", proposal.why.len()),
                fault: format!("expected at most {REASON_BYTES_MAX}"),
            });
        }
        check("who", &proposal.who)?;
        self.look_at_act(&proposal.act)
    }

    fn look_at_act(&self, act: &Act) -> Result<(), Refused> {
        match act {
            Act::Reset { resource, domain }
            | Act::Refund {
                resource, domain, ..
            } => {
                self.is_rate(resource)?;
                check("domain", domain)?;
                self.is_known(resource, domain)
            }
            Act::Pardon { resource, domain } => {
                self.is_rate(resource)?;
                check("domain", domain)?;
                self.can_pardon(resource, domain)
            }
            Act::Ban {
                resource, domain, ..
            } => {
                check("domain", domain)?;
                resource.as_ref().map_or(Ok(()), |of| self.is_limited(of))
            }
            Act::Unban { resource, domain } => {
                check("domain", domain)?;
                self.is_banned(resource.as_deref(), domain)
            }
            Act::ReleaseHold { resource, .. } | Act::ReleaseHolds { resource, .. } => {
                self.is_copies(resource)?;
                self.is_held(act)
            }
            Act::Switch { namespace, .. } => match &**namespace {
                super::switches::ALL => Ok(()),
                name => check("namespace", name),
            },
            Act::Set {
                resource, domain, ..
            } => {
                check("domain", domain)?;
                self.can_set(resource, act)
            }
        }
    }

    /// Whether the change makes limits, as whoever reads it will find.
    fn can_set(&self, resource: &str, act: &Act) -> Result<(), Refused> {
        let latest = self.limits.book.latest();
        let limits = latest.map(|version| &version.limits);
        let known = limits.is_some_and(|limits| limits.resource(resource).is_some());
        let (Some(limits), true) = (limits, known) else {
            return Err(self.unknown(resource, "rate or copies"));
        };
        let Some((domain, own)) = own_of(act) else {
            return Ok(());
        };
        match limits.with_own(resource, domain, own.as_ref()) {
            Ok(_) => Ok(()),
            Err(why @ NotChanged::Nothing(_)) => Err(Refused::Nothing {
                what: why.to_string(),
            }),
            Err(why) => Err(Refused::Name {
                field: "domain",
                name: domain.to_owned(),
                fault: why.to_string(),
            }),
        }
    }

    fn is_rate(&self, resource: &str) -> Result<(), Refused> {
        let limits = self.limits.book.latest().map(|version| &version.limits);
        match limits.and_then(|limits| limits.rate(resource)) {
            Some(_) => Ok(()),
            None => Err(self.unknown(resource, "rate")),
        }
    }

    fn is_limited(&self, resource: &str) -> Result<(), Refused> {
        match self.is_rate(resource).is_ok() || self.is_copies(resource).is_ok() {
            true => Ok(()),
            false => Err(self.unknown(resource, "rate or copies")),
        }
    }

    fn is_copies(&self, resource: &str) -> Result<(), Refused> {
        let limits = self.limits.book.latest().map(|version| &version.limits);
        match limits.and_then(|limits| limits.copies(resource)) {
            Some(_) => Ok(()),
            None => Err(self.unknown(resource, "copies")),
        }
    }

    fn unknown(&self, resource: &str, by: &'static str) -> Refused {
        Refused::UnknownResource {
            resource: resource.into(),
            by,
            version: self.limits.book.latest_number(),
        }
    }

    /// The partition of a pair, if it can be asked here.
    fn ruled(&self, index: u32) -> Option<&super::Partition> {
        let partition = self.partitions.get(index as usize)?;
        (partition.is_ours() && partition.why_not_ready().is_none()).then_some(partition)
    }

    fn is_known(&self, resource: &str, domain: &str) -> Result<(), Refused> {
        let index = partition_of_pair(resource, domain, self.settings.partitions);
        match self.ruled(index) {
            Some(partition) if partition.ruler.pair(resource, domain).is_none() => {
                Err(Refused::Nothing {
                    what: format!("{resource} {domain}: nothing is remembered of this pair"),
                })
            }
            // Another rules it; if there is nothing to change there, nothing changes.
            _ => Ok(()),
        }
    }

    fn can_pardon(&self, resource: &str, domain: &str) -> Result<(), Refused> {
        let index = partition_of_pair(resource, domain, self.settings.partitions);
        let Some(partition) = self.ruled(index) else {
            return Ok(());
        };
        let why = match partition.ruler.denial(resource, domain) {
            None => "it is not denied",
            Some(denial) if denial.cause == Cause::Banned => "it is banned: see `tollgate unban`",
            Some(denial) if denial.end == Timestamp::MAX => {
                "its limits never let it in: see `tollgate limits`"
            }
            Some(_) => return Ok(()),
        };
        Err(Refused::Nothing {
            what: format!("{resource} {domain}: {why}"),
        })
    }

    fn is_banned(&self, resource: Option<&str>, domain: &str) -> Result<(), Refused> {
        let count = self.settings.partitions;
        let asked: Vec<_> = match resource {
            Some(resource) if self.is_copies(resource).is_ok() => {
                vec![partition_of_resource(resource, count)]
            }
            Some(resource) => vec![partition_of_pair(resource, domain, count)],
            None => (0..count).collect(),
        };
        let asked: Option<Vec<_>> = asked.into_iter().map(|index| self.ruled(index)).collect();
        let is_banned = asked.is_none_or(|asked| {
            let mut asked = asked.into_iter();
            asked.any(|partition| partition.ruler.is_banned(resource, domain))
        });
        match is_banned {
            true => Ok(()),
            false => Err(Refused::Nothing {
                what: format!("{} {domain}: it is not banned", resource.unwrap_or("*")),
            }),
        }
    }

    fn is_held(&self, act: &Act) -> Result<(), Refused> {
        let (Act::ReleaseHold { resource, .. } | Act::ReleaseHolds { resource, .. }) = act else {
            return Ok(());
        };
        let index = partition_of_resource(resource, self.settings.partitions);
        match self.ruled(index) {
            Some(partition) if partition.ruler.holds_meant(act) == 0 => Err(Refused::Nothing {
                what: format!("{resource}: there is no such hold"),
            }),
            _ => Ok(()),
        }
    }
}

fn check(field: &'static str, name: &str) -> Result<(), Refused> {
    check_name(name).map_err(|fault| Refused::Name {
        field,
        name: name.into(),
        fault: fault.to_string(),
    })
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

/// An act in one line.
pub fn told(act: &Act) -> String {
    let name = act.name();
    match act {
        Act::Reset { resource, domain } | Act::Pardon { resource, domain } => {
            format!("{name} {resource} {domain}")
        }
        Act::Refund {
            resource,
            domain,
            hits,
        } => format!("{name} {resource} {domain} {hits}"),
        Act::Ban {
            resource,
            domain,
            until,
        } => {
            let until = match *until {
                Timestamp::MAX => "until it is taken back".to_owned(),
                until => match jiff::Timestamp::from_microsecond(until.as_micros() as i64) {
                    Ok(at) => format!("until {at}"),
                    Err(_) => format!("until {} us", until.as_micros()),
                },
            };
            format!("{name} {} {domain} {until}", everywhere(resource))
        }
        Act::Unban { resource, domain } => format!("{name} {} {domain}", everywhere(resource)),
        Act::ReleaseHold {
            resource,
            agent,
            epoch,
            number,
        } => format!("{name} {resource} {agent}/{epoch:032x}/{number}"),
        Act::ReleaseHolds {
            resource,
            domain,
            agent,
        } => format!(
            "{name} {resource}: all of domain {}, agent {}",
            domain.as_deref().unwrap_or("*"),
            agent.as_deref().unwrap_or("*")
        ),
        Act::Set {
            resource,
            domain,
            rate,
            hard,
            limit,
        } => {
            let said = [
                rate.as_ref().map(|rate| format!("rate {rate}")),
                hard.as_ref().map(|hard| format!("hard {hard}")),
                limit.map(|limit| format!("limit {limit}")),
            ];
            let said: Vec<String> = said.into_iter().flatten().collect();
            match said.is_empty() {
                true => format!("{name} {resource} {domain}: nothing of its own"),
                false => format!("{name} {resource} {domain}: {}", said.join(", ")),
            }
        }
        Act::Switch {
            namespace,
            ignore_configured,
            allow_unconfigured,
        } => {
            let said = |switch: &Option<bool>| match switch {
                Some(on) => on.to_string(),
                None => "as the document says".to_owned(),
            };
            format!(
                "{name} namespace {namespace}: ignore_configured {}, allow_unconfigured {}",
                said(ignore_configured),
                said(allow_unconfigured)
            )
        }
    }
}

fn everywhere(resource: &Option<Box<str>>) -> &str {
    resource.as_deref().unwrap_or("*")
}
