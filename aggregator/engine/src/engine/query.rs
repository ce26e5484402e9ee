//! Queries, which read an engine without changing it.
//!
//! Knows nothing of who asks. What stays true: every query takes `&self`, and does not show what has
//! ended by log time.

use std::sync::Arc;

use tollgate_shared::log_position::LogId;
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Scope, Statement};

use super::Engine;
use super::activations::rule_of_amended;
use super::denials::LiveDenial;
use super::holders::AgentProcess;
use super::rule::Rule;
use super::rulings::Stop;
use super::scopes::name_of;
use super::totals::class_of_everybody;
use crate::copies::{Copies, Miscount};
use crate::inline::tier_counts;
use crate::rules::calendar::period;
use crate::rules::request::{self, LimitedBy, number};
use crate::rules::window::CountsStamps as _;
use crate::rules::{State, tiers};
use crate::stream::Pair;
use tollgate_limits::{Bucket, Limits, RateClass};

/// The state of a pair at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairView {
    /// Its time: the greatest instant among its entries.
    pub time: Timestamp,
    /// The instant for which everything else in this view is computed.
    pub as_of: Timestamp,
    /// The version by which it would be ruled next; 0: none.
    pub version: u64,
    /// The current tier; 0: none.
    pub tier: usize,
    /// The current tier's limit.
    pub tier_limit: u64,
    /// Hits in the current tier's window.
    pub tier_hits: u64,
    /// Copies that count in the hard limit (for everybody: the global one); 0 without such a limit.
    pub last_second: u64,
    /// The hard limit (for everybody: the global one), if there is one.
    pub hard: Option<u64>,
    /// What counts in the hard limit, in each window and in each quota, in the order in which the rules
    /// check them.
    pub counts: Vec<Count>,
    /// The state of its bucket, if it has one.
    pub bucket: Option<BucketView>,
    /// Whether the hard limit, a window, a quota, a bucket or any of the tiers counts a copy.
    pub counts_any: bool,
    /// Copies that would be granted at once.
    pub remaining: u64,
    /// Its denial, if one is in force.
    pub denial: Option<LiveDenial>,
}

/// What counts in a window or a quota at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The constraint.
    pub of: LimitedBy,
    /// Its limit.
    pub limit: u64,
    /// The length of time over which it counts.
    pub span: Span,
    /// What counts, debt included.
    pub counted: u64,
    /// When it has room; [`Timestamp::MAX`]: never.
    pub opens: Timestamp,
}

/// The state of a bucket at a pair's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketView {
    /// The limits.
    pub bucket: Bucket,
    /// The level in units of 1/P: one copy is [`Bucket::copy_units`].
    pub level: i64,
    /// When it has room; [`Timestamp::MAX`]: never.
    pub opens: Timestamp,
    /// When it is full if no hit comes.
    pub full: Timestamp,
}

impl Count {
    /// The counts of a pair.
    pub fn of(class: &RateClass, state: &State, now: Timestamp) -> Vec<Self> {
        let hard = class.hard.map(|_| LimitedBy::Hard);
        let windows = (0..class.windows.len()).map(|index| LimitedBy::Window(number(index)));
        let names = hard.into_iter().chain(windows);
        let windows = class.sliding().zip(state.windows.iter()).zip(names);
        let windows = windows.map(|((window, stamps), of)| Self {
            of,
            limit: window.limit,
            span: window.window,
            counted: stamps.held(window.window, now),
            opens: window.opens(stamps, now),
        });
        let quotas = class.quotas.iter().zip(state.quotas.iter()).enumerate();
        let quotas = quotas.map(|(index, (quota, counted))| {
            let period = period(quota.unit, &quota.zone, now);
            Self {
                of: LimitedBy::Quota(number(index)),
                limit: quota.limit,
                span: period.ends.since(period.begins),
                counted: counted.counted(now),
                opens: counted.opens(quota, now),
            }
        });
        windows.chain(quotas).collect()
    }
}

impl BucketView {
    /// A pair's bucket, if it has one.
    pub fn of(class: &RateClass, state: &State, now: Timestamp) -> Option<Self> {
        let (bucket, level) = class.bucket.as_ref().zip(state.bucket.first())?;
        Some(Self {
            bucket: *bucket,
            level: level.level_at(bucket, now),
            opens: level.opens(bucket, now),
            full: level.full_at(bucket),
        })
    }
}

/// A violated invariant of copies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopiesFault {
    /// A count is not the sum of its holds.
    #[error("{resource}: {miscount}")]
    Miscount {
        /// The resource.
        resource: Arc<str>,
        /// The count.
        miscount: Miscount,
    },
    /// An agent has holds, but no heartbeats of it are expected.
    #[error("{resource}: agent {agent:?} sends no heartbeats, and holds copies")]
    HeldByTheGone {
        /// The resource.
        resource: Arc<str>,
        /// The agent.
        agent: Arc<str>,
    },
    /// A scope is denied, and has room.
    #[error("{resource}: {scope:?} is denied, and has room")]
    DeniedWithRoom {
        /// The resource.
        resource: Arc<str>,
        /// The scope.
        scope: Scope,
    },
}

impl Engine {
    /// The partition that it rules.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// The log's id, once known.
    pub fn log(&self) -> Option<LogId> {
        self.log
    }

    /// The offset of the last applied record.
    pub fn applied_upto(&self) -> Option<u64> {
        self.applied_upto
    }

    /// Log time: the append time of the last counted tick.
    pub fn log_time(&self) -> Option<Timestamp> {
        self.log_time
    }

    /// The latest instant that a counted tick or a version has brought in: what ended by then is over
    /// for every pair.
    pub fn now(&self) -> Timestamp {
        let log = self.log_time.unwrap_or_default();
        log.max(self.steps.newest().at)
    }

    /// Whether a hit of a domain at an instant is banned: all of its copies are excess then.
    pub fn is_banned(&self, resource: &str, domain: &str, at: Timestamp) -> bool {
        let identity = self.identities.of_resource(resource).of(domain);
        let amended = self.amended.of(identity, resource, domain);
        rule_of_amended(&self.steps.newest().limits, resource, amended).is_banned(at)
    }

    /// Why it has stopped, if it has.
    pub fn stopped(&self) -> Option<Stop> {
        self.stopped
    }

    /// The number of the limits version in force.
    pub fn version(&self) -> Option<u64> {
        self.steps.version()
    }

    /// The limits in force.
    pub fn limits(&self) -> &Arc<Limits> {
        &self.steps.newest().limits
    }

    /// Number of pairs that are ruled, including the resources' own ones.
    pub fn pairs(&self) -> u64 {
        self.table.alive().count()
    }

    /// Number of pairs in memory: those that are ruled, and evicted ones whose memory is not freed yet.
    /// Not a function of the log.
    pub fn pairs_in_memory(&self) -> usize {
        self.table.in_memory()
    }

    /// Number of agents' processes whose sequence numbers are remembered.
    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// The denials in force at [`Engine::now`], in an order that is the same on every machine.
    pub fn live_denials(&self) -> impl Iterator<Item = &LiveDenial> {
        self.denials.after(self.now()).map(|(_, live)| live)
    }

    /// The denied scopes of copy-limited resources, as they were stated, by resource.
    pub fn denied_scopes(&self) -> impl Iterator<Item = (&Arc<str>, Statement)> {
        self.holders.all().iter().flat_map(|held| {
            let statements = held.denied.statements();
            statements.map(|statement| (&held.name, statement))
        })
    }

    /// An upper bound on the number of denials in force.
    pub fn live_denials_max(&self) -> usize {
        let scopes = self.holders.all().iter().map(|held| held.denied.len());
        self.denials.len() + scopes.sum::<usize>()
    }

    /// The copy-limited resources of which copies were ever held here, by name.
    pub fn copies(&self) -> impl Iterator<Item = (&Arc<str>, &Copies)> {
        let all = self.holders.all().iter();
        all.map(|held| (&held.name, &held.copies))
    }

    /// Resources with totals of this partition's records, each with the offset of the last record
    /// totalled.
    pub fn totalled(&self) -> impl Iterator<Item = (&str, u64)> {
        self.last_totals.due()
    }

    /// The source offset of the last total of a partition that was applied here.
    pub fn applied_total(&self, resource: &str, source: u32) -> Option<u64> {
        self.last_totals.last_applied(resource, source)
    }

    /// How many epochs of agents send heartbeats, and how many are gone but not forgotten.
    pub fn agents(&self) -> (usize, usize) {
        let silence = &self.holders.silence;
        (silence.present().count(), silence.gone().count())
    }

    /// Whether an agent's epoch is gone.
    pub fn is_gone(&self, agent: &str, epoch: u128) -> bool {
        let name = agent.into();
        self.holders.silence.is_gone(&AgentProcess { name, epoch })
    }

    /// Counts all copies again, and checks whether a gone agent holds any.
    ///
    /// # Errors
    ///
    /// What is wrong, with the resource. An error means a bug.
    pub fn audit_copies(&self) -> Result<(), CopiesFault> {
        for (resource, copies) in self.copies() {
            copies.audit().map_err(|miscount| CopiesFault::Miscount {
                resource: resource.clone(),
                miscount,
            })?;
            for (agent, name, epoch, _) in copies.known_agents() {
                let process = AgentProcess {
                    name: name.into(),
                    epoch,
                };
                let lives = self.holders.silence.last_heartbeat_of(&process).is_some();
                if !lives && copies.copies_of(agent) != 0 {
                    return Err(CopiesFault::HeldByTheGone {
                        resource: resource.clone(),
                        agent: process.name,
                    });
                }
            }
        }
        for held in self.holders.all() {
            let open = held
                .denied
                .iter()
                .find(|(scope, _)| !held.copies.is_full(*scope));
            if let Some((scope, _)) = open {
                return Err(CopiesFault::DeniedWithRoom {
                    resource: held.name.clone(),
                    scope: name_of(scope),
                });
            }
        }
        Ok(())
    }

    /// Number of bans and pardons in force.
    pub fn amended(&self) -> usize {
        self.amended.len()
    }

    /// The state of a pair at its own time, as of its newest hit; `None` if it is not known.
    pub fn pair(&self, resource: &str, domain: &str) -> Option<PairView> {
        self.pair_as_of(resource, domain, Timestamp::ZERO)
    }

    /// The state of a pair at log time, or at its own time if that is later; `None` if it is not known.
    pub fn pair_now(&self, resource: &str, domain: &str) -> Option<PairView> {
        self.pair_as_of(resource, domain, self.now())
    }

    fn pair_as_of(&self, resource: &str, domain: &str, at: Timestamp) -> Option<PairView> {
        let identity = self.identities.of_resource(resource).of(domain);
        let mut stored = self.table.peek(identity)?;
        let newest = self.steps.newest();
        let (limits, nothing) = (&newest.limits, RateClass::inaccessible());
        let rule = Rule::of(limits, resource);
        let whole = class_of_everybody(rule.global());
        let class = if domain == EVERYBODY {
            self.steps.migrate_whole(&mut stored, resource);
            &whole
        } else {
            self.steps.migrate(&mut stored, resource, domain);
            let class = rule.class_of(limits, &nothing, domain);
            class.map_or(&nothing, |(class, _)| class)
        };
        let time = stored.pair.now();
        let as_of = time.max(at);
        stored.pair.state.forget(class, as_of);
        let state = &stored.pair.state;
        let tier = tiers::current(class, state, as_of);
        let (tier_limit, tier_hits) = tier_counts(class, state, tier, as_of);
        let counts = Count::of(class, state, as_of);
        let hard = (class.hard.is_some()).then(|| counts.first().map_or(0, |count| count.counted));
        let bucket = BucketView::of(class, state, as_of);
        let room = request::room(class, state, as_of, u64::MAX).copies;
        Some(PairView {
            time,
            as_of,
            version: newest.version,
            tier,
            tier_limit,
            tier_hits,
            last_second: hard.unwrap_or(0),
            hard: class
                .hard
                .filter(|_| domain != EVERYBODY || rule.global().is_some()),
            counts_any: counts.iter().any(|count| 0 < count.counted)
                || state
                    .tiers
                    .iter()
                    .any(|tier| tier.window.newest().is_some())
                || bucket.as_ref().is_some_and(|bucket| as_of < bucket.full),
            counts,
            bucket,
            remaining: tiers::room_for(class, state, as_of, room),
            denial: self.denials.get(identity, self.now()).cloned(),
        })
    }

    /// The state of a domain's pair under the version in force; `None` if the pair is not known.
    pub fn look(&self, resource: &str, domain: &str) -> Option<Pair> {
        let identity = self.identities.of_resource(resource).of(domain);
        let mut stored = self.table.peek(identity)?;
        self.steps.migrate(&mut stored, resource, domain);
        Some(stored.pair)
    }

    /// The state of everybody's use of a globally limited resource; `None` without totals.
    pub fn everybody(&self, resource: &str) -> Option<PairView> {
        self.pair(resource, EVERYBODY)
    }
}
