//! Operators: the documents that they push, and their acts by hand.
//!
//! ```text
//! operator-3 asks aggregator 1     ban api.search acme      amendment ──> log ──> activation ──> ruled
//!            gets the answer       version 18, in force     18 is in the log, and is the ban
//!            or                    it is not denied         the log has nothing of operator-3
//! ```
//!
//! The object of an act is chosen when its time has come: a pair that is denied, a hold that counts. Knows nothing
//! of the effects of acts. What stays true: the answer to an operator agrees with the log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_engine::copies::Copies;
use tollgate_limits::versions::in_one_line;
use tollgate_server::core::amendments::{AmendmentRefused, Proposal};
use tollgate_server::core::event::{Event as CoreEvent, QueryId};
use tollgate_server::core::view::{Query, Reply};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::amendment::Act;

use super::copy_limits::COPIES;
use super::documents::{DOMAINS, Document, RESOURCES};
use super::plan::draw_pair;
use super::random::Random;
use super::watch::Watch;
use super::world::{Frozen, World};

/// The kinds of acts by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Does {
    /// Forgets a pair's tiers and windows.
    Reset,
    /// Lifts a denial.
    Pardon,
    /// Takes granted hits out again.
    Refund,
    /// Denies a domain on one resource.
    Ban,
    /// Denies a domain everywhere.
    BanEverywhere,
    /// Lifts a ban.
    Unban,
    /// Ends a hold, or releases a staged transfer.
    ReleaseHold,
    /// Ends all holds of a domain, an agent, or a resource.
    ReleaseHolds,
    /// Sets a namespace's switch. The model has no switches, so those of rates are not set.
    Switch,
}

/// All kinds.
pub const DOES: [Does; 9] = [
    Does::Reset,
    Does::Pardon,
    Does::Refund,
    Does::Ban,
    Does::BanEverywhere,
    Does::Unban,
    Does::ReleaseHold,
    Does::ReleaseHolds,
    Does::Switch,
];

impl Does {
    /// Whether it concerns copies only.
    pub fn is_about_copies(self) -> bool {
        matches!(self, Self::ReleaseHold | Self::ReleaseHolds | Self::Switch)
    }
}

/// Operators' acts that are not answered yet, by query.
#[derive(Debug, Default)]
pub(super) struct Operators {
    last: u64,
    asked: BTreeMap<u64, Act>,
}

/// The coverage counter of an act.
pub(super) fn counter_of(act: &Act) -> &'static str {
    match act {
        Act::Reset { .. } => "act: reset",
        Act::Pardon { .. } => "act: pardon",
        Act::Refund { .. } => "act: refund",
        Act::Ban { resource: None, .. } => "act: ban everywhere",
        Act::Ban { .. } => "act: ban on a resource",
        Act::Unban { .. } => "act: ban taken back",
        Act::ReleaseHold { .. } | Act::ReleaseTransfer { .. } => "act: hold released",
        Act::ReleaseHolds { .. } => "act: all holds released",
        Act::Switch { .. } | Act::Set(_) | Act::SetMany(_) => "act: switch",
    }
}

impl Watch {
    /// The act of an operator in the log, with its version.
    pub(super) fn made_by(&self, who: &str) -> Option<(u64, &Act)> {
        let found = self.made.iter().find(|(_, made)| *made.who == *who);
        found.map(|(number, made)| (*number, &*made.act))
    }

    /// Everything that was ever banned.
    fn banned(&self) -> Vec<(Option<Box<str>>, Box<str>)> {
        let bans = self.made.values().filter_map(|made| match &*made.act {
            Act::Ban {
                resource, domain, ..
            } => Some((resource.clone(), domain.clone())),
            _ => None,
        });
        bans.collect()
    }
}

/// The name of a query's operator: each act has its own operator.
fn name_of(query: u64) -> String {
    format!("operator-{query}")
}

/// A pair as calls draw it.
fn pair(random: &mut Random) -> (Box<str>, Box<str>) {
    let (r, d) = draw_pair(random);
    (RESOURCES[r].into(), DOMAINS[d].into())
}

impl World {
    /// Gives a document to every aggregator; a document that was read once stays the file's content.
    pub(super) fn push(&mut self, document: usize) {
        let text = self.plan.documents[document].text();
        for owner in 0..self.owners.len() {
            self.owners[owner].file = text.clone();
            match self.plan.is_plain {
                true => self.owner_reads_file(owner),
                // Not all at once, and later on hosts that are frozen.
                false => {
                    let us = self.random.spread(1, 200_000);
                    let process = Some(Frozen::Owner(owner));
                    self.schedule(self.now_us + us, process, move |world| {
                        world.owner_reads_file(owner);
                    });
                }
            }
        }
    }

    /// Performs an operator's act.
    pub(super) fn operator_acts(&mut self, owner: usize, does: Does, draw: u64) {
        let mut random = Random::of(draw, "act", 0);
        let Some(act) = self.meant(does, &mut random) else {
            return;
        };
        if !self.owners[owner].is_up() {
            return;
        }
        self.operators.last += 1;
        let query = self.operators.last;
        let proposal = Proposal {
            act: act.clone(),
            ban_lasts: None,
            who: name_of(query),
            why: "the simulation".to_owned(),
            expected: match random.below(8) {
                0 => Some(self.watch.latest_version()),
                1 => Some(1),
                _ => None,
            },
            dry_run: random.one_in(12),
        };
        self.event(&[60, owner as u64, query], || {
            let expected = proposal.expected;
            format!(
                "operator-{query} tells owner {owner}: {}, expecting {expected:?}",
                in_one_line(&act)
            )
        });
        self.operators.asked.insert(query, act);
        let id = QueryId(query);
        let query = Query::Amend(Box::new(proposal));
        self.step(owner, CoreEvent::Query { id, query });
    }

    /// Checks the answer to an operator against the log: "done" means that the act is in the
    /// log, "refused" that it is not.
    pub(super) fn operator_is_told(&mut self, owner: usize, id: QueryId, reply: &Reply) {
        let Reply::Amended(answer) = reply else {
            return;
        };
        let Some(act) = self.operators.asked.remove(&id.0) else {
            let what = format!("owner {owner} answers query {} twice", id.0);
            return self.violated(5, "an operator is answered once", what);
        };
        let found = self.watch.made_by(&name_of(id.0));
        let (met, code, is_true) = match answer {
            Ok(view) if view.done => {
                let met = view.in_force.then_some("act in force");
                (met, 1, found == Some((view.version, &act)))
            }
            Ok(_) => (Some("act dry-run"), 2, found.is_none()),
            // The log may have stored the act although it answered that it had not.
            Err(AmendmentRefused::NotNow { .. }) => (None, 3, true),
            Err(AmendmentRefused::Conflict { .. }) => (None, 4, found.is_none()),
            Err(_) => (Some("act pointless"), 5, found.is_none()),
        };
        let what = format!("owner {owner} tells operator-{}: {answer:?}", id.0);
        if !is_true {
            let what = format!("{what}; the log has {found:?}");
            return self.violated(5, "an operator is told what the log says", what);
        }
        if let Some(met) = met {
            self.see(met);
        }
        self.event(&[61, owner as u64, id.0, code], || what);
    }

    /// Chooses the object of an act.
    fn meant(&self, does: Does, random: &mut Random) -> Option<Act> {
        Some(match does {
            Does::Reset | Does::Pardon | Does::Refund => {
                let (resource, domain) = self.denied_pair(random).unwrap_or_else(|| pair(random));
                match does {
                    Does::Reset => Act::Reset { resource, domain },
                    Does::Pardon => Act::Pardon { resource, domain },
                    _ => Act::Refund {
                        resource,
                        domain,
                        hits: random.spread(1, 100),
                    },
                }
            }
            Does::Ban => {
                let (resource, domain) = pair(random);
                let of_copies = self.may_ban_copies() && random.one_in(3);
                let of_copies = of_copies.then(|| *random.pick(&COPIES));
                // Another partition bans domains on a resource without limits.
                let of_copies = of_copies.filter(|name| self.watch.limits_copies_of(name));
                Act::Ban {
                    resource: Some(of_copies.map_or(resource, Into::into)),
                    domain,
                    until: self.until(random),
                }
            }
            Does::BanEverywhere if !self.may_ban_copies() && self.plan.uses_copies() => {
                return None;
            }
            Does::BanEverywhere => Act::Ban {
                resource: None,
                domain: pair(random).1,
                until: self.until(random),
            },
            Does::Unban => {
                let (resource, domain) = match self.watch.banned() {
                    bans if bans.is_empty() || random.one_in(8) => {
                        let (resource, domain) = pair(random);
                        (Some(resource), domain)
                    }
                    bans => random.pick(&bans).clone(),
                };
                Act::Unban { resource, domain }
            }
            Does::ReleaseHold => {
                let staged = random.one_in(3).then(|| self.staged(random)).flatten();
                staged.or_else(|| self.hold(random))?
            }
            Does::ReleaseHolds => self.holds(random)?,
            Does::Switch => {
                let namespace = random.pick(&COPIES).split('.').next()?.into();
                Act::Switch {
                    namespace,
                    ignore_configured: random.one_in(2).then_some(true),
                    allow_unconfigured: None,
                }
            }
        })
    }

    /// Whether a ban may concern copies: a banned domain takes a place among the pairs, which the model does not
    /// know for copies, so its count would differ where places are few.
    fn may_ban_copies(&self) -> bool {
        self.plan.uses_copies() && !self.plan.documents.iter().any(Document::is_narrow)
    }

    /// Mostly a near end, by the log's clock; sometimes none.
    fn until(&self, random: &mut Random) -> Timestamp {
        match random.below(4) {
            0 => Timestamp::MAX,
            _ => {
                let lasts = Span::from_micros(random.spread(50_000, 10_000_000));
                self.log_clock.wall(self.now_us).saturating_add(lasts)
            }
        }
    }

    /// Mostly a pair that is denied now.
    fn denied_pair(&self, random: &mut Random) -> Option<(Box<str>, Box<str>)> {
        if random.one_in(4) {
            return None;
        }
        let mut denied = Vec::new();
        for ruled in &self.watch.ruled {
            let now_us = ruled.engine.now().as_micros();
            for (scope, statements) in ruled.model.all_statements() {
                let last = statements.last().and_then(|one| one.denied);
                if let (Some(denial), Some(domain)) = (last, &scope.domain)
                    && denial.end.is_after(now_us)
                {
                    denied.push((scope.resource.as_str().into(), domain.as_str().into()));
                }
            }
        }
        (!denied.is_empty()).then(|| random.pick(&denied).clone())
    }

    /// An act that ends a staged transfer.
    fn staged(&self, random: &mut Random) -> Option<Act> {
        self.one_of(random, |resource, copies, _, acts| {
            acts.extend(copies.staged().map(|one| Act::ReleaseTransfer {
                resource: resource.into(),
                transfer: one.id,
            }));
        })
    }

    /// An act that ends a hold of the log; rarely one of a hold that does not exist.
    fn hold(&self, random: &mut Random) -> Option<Act> {
        self.one_of(random, |resource, copies, random, acts| {
            acts.extend(copies.oldest_first().map(|held| Act::ReleaseHold {
                resource: resource.into(),
                agent: held.agent.into(),
                epoch: held.epoch,
                number: held.id.number + u64::from(random.one_in(20)),
            }));
        })
    }

    /// An act that ends all holds of a resource, or those of a domain or an agent.
    fn holds(&self, random: &mut Random) -> Option<Act> {
        let Act::ReleaseHold {
            resource, agent, ..
        } = self.hold(random)?
        else {
            return None;
        };
        Some(Act::ReleaseHolds {
            resource,
            domain: random.one_in(2).then(|| pair(random).1),
            agent: random.one_in(2).then_some(agent),
        })
    }

    /// One of the acts that have an object, over the copies of all partitions.
    fn one_of(
        &self,
        random: &mut Random,
        put: impl Fn(&str, &Copies, &mut Random, &mut Vec<Act>),
    ) -> Option<Act> {
        let mut acts = Vec::new();
        for ruled in &self.watch.ruled {
            for (resource, copies) in ruled.engine.copies() {
                put(resource, copies, random, &mut acts);
            }
        }
        (!acts.is_empty()).then(|| random.pick(&acts).clone())
    }
}
