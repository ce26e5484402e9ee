//! The testing kit for copies: limits, full scopes, and the aggregators' verdicts on holds.
//!
//! ```
//! use tollgate_agent::testing::{Ruling, TestAgent};
//!
//! let kit = TestAgent::new();
//! let sandbox = kit.agent().copies("sandbox");
//! kit.copies_limit("sandbox", 2);
//! let hold = sandbox.reserve("acme", 2)?;
//! assert!(sandbox.reserve("acme", 1).is_err());
//! assert_eq!(kit.held()[0].copies, 2);
//! kit.rule("sandbox", kit.held()[0].number, Ruling::Confirmed);
//! drop(hold);
//! assert!(kit.held().is_empty());
//! # Ok::<(), tollgate_agent::Refused>(())
//! ```
//!
//! Hold table, hold session and calls are those of any agent. Nothing is sent, and all verdicts come from the test.

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::{EVERYBODY, partition_of_resource};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::holds::Op;
use tollgate_shared::wire::public::{Kind, OnExcess, Public, PublicCopies, PublicGroup, Reserving};
use tollgate_shared::wire::statement::{self, Denial};
use tollgate_shared::wire::verdict::{EndedBy, HoldReason, HoldStatus, SeizedCopies, Verdict, Why};

use super::{PARTITIONS, TestAgent, TestState};
use crate::answer::Cause;
use crate::clock::Mono;
use crate::deny::ScopeChange;
use crate::scope::Scope;

/// The epoch of every agent of the kit.
pub(super) const EPOCH: u128 = 1;

/// A hold that the agent tracks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The resource.
    pub resource: String,
    /// The hold's number.
    pub number: u64,
    /// The hold's domain; empty while a seize waits for its verdict.
    pub domain: String,
    /// The hold's copies.
    pub copies: u32,
    /// Whether the copies are in use; if not, their verdict is awaited.
    pub in_use: bool,
}

/// A verdict of the aggregators on a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The hold counts, and was not too much.
    Confirmed,
    /// The hold counts, and this many of its copies were too many for this scope.
    Excess(u32, Scope),
    /// A strict reserve is granted, with this many copies.
    Granted(u32),
    /// A strict reserve is refused, because this scope is full.
    Full(Scope),
    /// A seize receives this many copies of a domain.
    Seized(String, u32),
    /// A seize finds nothing.
    NothingStaged,
    /// The hold is over: an operator ended it.
    Ended,
    /// The hold is over: it reached its greatest age.
    EndedByAge,
    /// The hold does not count: the aggregator tracks as many holds as it may.
    Uncounted,
    /// The aggregators have never ruled on the hold.
    NotHeld,
}

impl TestAgent {
    /// Limits a resource by copies: this many for each domain.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.copies_limit("reports", 1);
    /// let hold = reports.reserve("acme", 1);
    /// assert!(hold.is_ok() && reports.reserve("acme", 1).is_err());
    /// ```
    pub fn copies_limit(&self, resource: &str, limit: u64) {
        self.learn_copies(resource, |copies| copies.limit = limit);
    }

    /// Makes a resource strict: copies are used only once they are granted. While the agent is blind, calls are
    /// refused, unless [`TestAgent::when_blind`] changes that afterwards.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.strict("reports");
    /// assert!(reports.is_strict());
    /// ```
    pub fn strict(&self, resource: &str) {
        self.learn_copies(resource, |copies| copies.reserve = Reserving::Strict);
        self.when_blind(resource, super::WhenBlind::Closed);
    }

    /// Makes the agent ask for copies of a resource that were too many.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.give_back_excess("reports");
    /// assert!(reports.reserve("acme", 1).is_ok());
    /// ```
    pub fn give_back_excess(&self, resource: &str) {
        self.learn_copies(resource, |copies| copies.on_excess = OnExcess::GiveBack);
    }

    /// Puts domains into a group of a resource.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.group("reports", "trial", &["acme"]);
    /// kit.full_group("reports", "trial");
    /// assert!(reports.reserve("acme", 1).is_err());
    /// ```
    pub fn group(&self, resource: &str, group: &str, members: &[&str]) {
        let mut members: Vec<Box<str>> = members.iter().map(|one| (*one).into()).collect();
        members.sort();
        let group = PublicGroup {
            name: group.into(),
            limit: 1,
            members: Some(members.into()),
        };
        self.learn_copies(resource, |copies| {
            let mut groups = std::mem::take(&mut copies.groups).into_vec();
            groups.push(group);
            copies.groups = groups.into();
        });
    }

    /// States that all of a domain's copies are in use; [`TestAgent::lift`] ends that.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.full("reports", "acme");
    /// assert!(reports.reserve("acme", 1).is_err());
    /// ```
    pub fn full(&self, resource: &str, domain: &str) {
        self.say(
            resource,
            (&self.agent.shared().admit(domain), false),
            full(),
        );
    }

    /// States that all of a group's copies are in use.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.group("reports", "trial", &["acme"]);
    /// kit.full_group("reports", "trial");
    /// assert!(reports.reserve("acme", 1).is_err());
    /// ```
    pub fn full_group(&self, resource: &str, group: &str) {
        self.say(resource, (group, true), full());
    }

    /// States that a group has free copies again.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.group("reports", "trial", &["acme"]);
    /// kit.full_group("reports", "trial");
    /// kit.lift_group("reports", "trial");
    /// assert!(reports.reserve("acme", 1).is_ok());
    /// ```
    pub fn lift_group(&self, resource: &str, group: &str) {
        self.say(resource, (group, true), ScopeChange::Lifted);
    }

    /// States that all copies of a resource are in use.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// kit.full_resource("reports");
    /// assert!(reports.reserve("globex", 1).is_err());
    /// ```
    pub fn full_resource(&self, resource: &str) {
        self.say(resource, (EVERYBODY, false), full());
    }

    /// Every hold that the agent tracks, by resource and number.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// let _hold = reports.reserve("acme", 2);
    /// assert_eq!(kit.held()[0].copies, 2);
    /// ```
    pub fn held(&self) -> Vec<Held> {
        let mut state = self.state();
        self.sweep(&mut state);
        state
            .session
            .kept()
            .map(|(resource, number, domain, copies, in_use)| Held {
                resource: resource.to_owned(),
                number,
                domain: domain.to_owned(),
                copies,
                in_use,
            })
            .collect()
    }

    /// States a verdict on a hold, as the aggregators do.
    ///
    /// ```
    /// use tollgate_agent::testing::{Ruling, TestAgent};
    ///
    /// let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// let _hold = reports.reserve("acme", 2);
    /// let number = kit.held()[0].number;
    /// kit.rule("reports", number, Ruling::Uncounted);
    /// ```
    pub fn rule(&self, resource: &str, number: u64, ruling: Ruling) {
        let mut state = self.state();
        self.sweep(&mut state);
        let position = LogPosition {
            generation: 1,
            offset: state.next_offset,
            entry: 0,
        };
        state.next_offset += 1;
        let kept = state.session.kept().find(|kept| kept.1 == number);
        let copies = kept.map_or(0, |(_, _, _, copies, _)| copies);
        let now = self.agent.shared().clock.read_wall();
        let verdict = Verdict {
            partition: partition_of_resource(resource, PARTITIONS),
            position,
            epoch: EPOCH,
            resource: resource.into(),
            status: Some(status((number, copies), ruling, now)),
        };
        let now = self.agent.shared().clock.read();
        state.session.take_verdicts(vec![verdict], now);
    }

    fn sweep(&self, state: &mut TestState) {
        let shared = self.agent.shared();
        let mut notices = Vec::new();
        shared.hold_table.sweep(&mut notices);
        state.session.take(notices, shared.clock.read());
    }

    fn learn_copies(&self, resource: &str, change: impl FnOnce(&mut PublicCopies)) {
        self.learn(resource, |public| {
            let known = public.copies.take().unwrap_or(PublicCopies {
                limit: u64::MAX,
                agent_timeout: Span::from_secs(2),
                ..PublicCopies::default()
            });
            let mut copies = known;
            change(&mut copies);
            *public = Public {
                kind: Kind::Copies,
                copies: Some(copies),
                ..std::mem::take(public)
            };
        });
    }
}

fn full() -> ScopeChange {
    let denial = Denial {
        end: Timestamp::MAX,
        cause: Cause::Full,
        version: 1,
        limit: 1,
        window: Span::ZERO,
        most: u64::MAX,
    };
    ScopeChange::Denied(Mono::MAX, denial)
}

/// The status that states a ruling on a hold of these copies.
fn status((number, copies): (u64, u32), ruling: Ruling, now: Timestamp) -> HoldStatus {
    let counted = |copies| HoldStatus {
        number,
        copies,
        ..HoldStatus::default()
    };
    let over = |reason| HoldStatus {
        reason: Some(reason),
        ..counted(0)
    };
    match ruling {
        Ruling::Confirmed => counted(copies),
        Ruling::Excess(excess, scope) => HoldStatus {
            excess,
            scope: Some(scope_of(scope)),
            ..counted(copies)
        },
        Ruling::Granted(copies) => counted(copies),
        Ruling::Full(scope) => HoldStatus {
            scope: Some(scope_of(scope)),
            ..counted(0)
        },
        Ruling::Seized(domain, copies) => HoldStatus {
            seized: Some(SeizedCopies {
                domain: domain.into(),
                start: now,
            }),
            ..counted(copies)
        },
        Ruling::NothingStaged => over(HoldReason::Refused(Some(Op::Seize), Why::UnknownTransfer)),
        Ruling::Ended => over(HoldReason::Ended(EndedBy::Operator)),
        Ruling::EndedByAge => over(HoldReason::Ended(EndedBy::Age)),
        Ruling::Uncounted => over(HoldReason::Refused(Some(Op::Hold), Why::AtCapacity)),
        Ruling::NotHeld => counted(0),
    }
}

/// The scope in a statement. Only a group's name matters, and the kit calls it `group`.
fn scope_of(scope: Scope) -> statement::Scope {
    match scope {
        Scope::Pair => statement::Scope::Pair("domain".into()),
        Scope::Resource => statement::Scope::Resource,
        Scope::Group => statement::Scope::Group("group".into()),
    }
}
