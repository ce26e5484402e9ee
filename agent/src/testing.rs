//! The testing kit: an agent without network, with a clock moved by hand.
//!
//! ```
//! use std::time::Duration;
//! use tollgate_agent::testing::TestAgent;
//!
//! let kit = TestAgent::new();
//! let search = kit.agent().rate("api.search");
//! kit.deny("api.search", "acme", Duration::from_secs(5));
//! assert!(search.hit("acme").is_err());
//! kit.advance(Duration::from_secs(5));
//! assert!(search.hit("acme").is_ok());
//! assert_eq!(kit.recorded().len(), 2);
//! ```
//!
//! Deny list, recorder and calls are those of any agent; only clock, flusher and network are replaced.

mod copies;
mod rates;
mod recorded;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::{EVERYBODY, admit_domain, partition_of_pair};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::public::{BlindPolicy, Public, PublicTier};
use tollgate_shared::wire::statement::Denial;

use crate::agent::Agent;
use crate::agent_inner::AgentInner;
use crate::answer::Cause;
use crate::builder::AgentBuilder;
use crate::clock::{Clock, Mono};
use crate::deny::{DenyList, Lease, NEAR_MAX, NearList, ScopeChange, ScopeNotice};
use crate::flusher::Ending;
use crate::holds::news::HoldNews;
use crate::holds::{HoldSession, Origin};
use crate::recorder::{Drain, Happened};
use crate::resource::Resource;
use crate::timer::Timer;

pub use copies::{Held, Ruling};
pub use recorded::{Outcome, Recorded};

/// Partitions of the log that the kit pretends to have.
const PARTITIONS: u32 = 16;

/// The room for denials.
const DENIALS_MAX: usize = 4_096;

/// The time at the start: 2026-01-01.
const BEGINNING: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// An agent for tests. It ends when this is dropped, whatever handles live on.
#[derive(Debug)]
pub struct TestAgent {
    agent: Agent,
    moved: Arc<Notify>,
    state: Mutex<TestState>,
}

#[derive(Debug)]
struct TestState {
    deny: DenyList,
    near: NearList,
    lease: Lease,
    leases: Vec<Lease>,
    next_offset: u64,
    drain: Drain,
    recorded: Vec<Recorded>,
    session: HoldSession,
}

/// What a blind agent does with the calls of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBlind {
    /// Lets them through.
    Open,
    /// Refuses them.
    Closed,
    /// Lets this many hits of one domain through in each window.
    Local {
        /// Hits in each window.
        limit: u64,
        /// The length of the window.
        window: Duration,
    },
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        // The kit is in place of the agent's threads: what handles record from now on, nobody takes.
        self.agent.shared().end();
    }
}

impl Default for TestAgent {
    fn default() -> Self {
        Self::new()
    }
}

impl TestAgent {
    /// A test agent with a current watermark of every partition, and no denials.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// assert!(kit.agent().rate("api.search").hit("acme").is_ok());
    /// ```
    pub fn new() -> Self {
        Self::with_denials(DENIALS_MAX)
    }

    /// A test agent with room for this many denials.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::with_denials(1);
    /// kit.deny("api.search", "acme", Duration::from_secs(5));
    /// assert!(kit.agent().rate("api.search").hit("acme").is_err());
    /// ```
    pub fn with_denials(denials_max: usize) -> Self {
        Self::built(Agent::builder(), denials_max)
    }

    /// A test agent that calls `on_hold` when the state of a hold changes: see [`AgentBuilder::on_hold`].
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::with_on_hold(|news| println!("{:?}", news.change()));
    /// let _hold = kit.agent().copies("reports").reserve("acme", 1);
    /// ```
    pub fn with_on_hold(on_hold: impl Fn(&HoldNews<'_>) + Send + Sync + 'static) -> Self {
        Self::built(Agent::builder().on_hold(on_hold), DENIALS_MAX)
    }

    fn built(builder: AgentBuilder, denials_max: usize) -> Self {
        let moved = Arc::new(Notify::new());
        let clock = Arc::new(Clock::by_hand(BEGINNING));
        let builder = builder.denials_max(denials_max).recorder_bytes(1 << 20);
        let shared =
            Arc::new(builder.shared(clock, rand::random(), Timer::Hand(Arc::clone(&moved))));
        shared.resources.assume_limits_known();
        let deny = DenyList::new(Arc::clone(&shared.view), denials_max);
        let near = NearList::new(Arc::clone(&shared.view), NEAR_MAX);
        let lease = Lease::default();
        lease.renew(Mono::MAX);
        let leases = (0..PARTITIONS)
            .map(|_| Lease::default())
            .collect::<Vec<_>>();
        shared
            .liveness
            .set_partitions(PARTITIONS, leases.clone(), leases.clone());
        let origin = Origin {
            epoch: copies::EPOCH,
            replaces: None,
        };
        let mut session = builder.session(&shared, origin);
        session.set_partitions(PARTITIONS, shared.clock.read());
        let agent = Agent::of(AgentInner::new(
            shared,
            "test".to_owned(),
            Arc::new(Ending::default()),
            None,
        ));
        let state = TestState {
            deny,
            near,
            lease,
            leases,
            next_offset: 1,
            drain: Drain::default(),
            recorded: Vec::new(),
            session,
        };
        let kit = Self {
            agent,
            moved,
            state: Mutex::new(state),
        };
        kit.see_again();
        kit
    }

    /// The agent, to take handles from.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// assert!(kit.agent().copies("reports").reserve("acme", 1).is_ok());
    /// ```
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Moves the clock forwards; waiting calls look at it again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.deny("api.search", "acme", Duration::from_secs(5));
    /// kit.advance(Duration::from_secs(6));
    /// assert!(kit.agent().rate("api.search").hit("acme").is_ok());
    /// ```
    pub fn advance(&self, by: Duration) {
        let clock = &self.agent.shared().clock;
        clock.advance(Span::from_std(by));
        self.state().deny.expire(clock.read());
        self.moved.notify_waiters();
    }

    /// Denies a domain for this long, under a limit of 1 in that time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.deny("api.search", "acme", Duration::from_secs(5));
    /// assert!(kit.agent().rate("api.search").hit("acme").is_err());
    /// ```
    pub fn deny(&self, resource: &str, domain: &str, lasting: Duration) {
        let window = Span::from_std(lasting);
        let end = self.agent.shared().clock.read_wall().saturating_add(window);
        let denial = Denial {
            end,
            cause: Cause::Tier(1),
            version: 1,
            limit: 1,
            window,
            most: u64::MAX,
        };
        let until = self.agent.shared().clock.read().plus(window);
        let denied = ScopeChange::Denied(until, denial);
        self.say(
            resource,
            (&self.agent.shared().admit(domain), false),
            denied,
        );
    }

    /// Denies all domains for this long, as a global limit does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.deny_everybody("api.search", Duration::from_secs(5));
    /// assert!(kit.agent().rate("api.search").hit("globex").is_err());
    /// ```
    pub fn deny_everybody(&self, resource: &str, lasting: Duration) {
        let window = Span::from_std(lasting);
        let end = self.agent.shared().clock.read_wall().saturating_add(window);
        let denial = Denial {
            end,
            cause: Cause::Global,
            version: 1,
            limit: 1,
            window: Span::from_secs(1),
            most: u64::MAX,
        };
        let until = self.agent.shared().clock.read().plus(window);
        self.say(
            resource,
            (EVERYBODY, false),
            ScopeChange::Denied(until, denial),
        );
    }

    /// Ends a domain's denial before its time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.deny("api.search", "acme", Duration::from_secs(5));
    /// kit.lift("api.search", "acme");
    /// assert!(kit.agent().rate("api.search").hit("acme").is_ok());
    /// ```
    pub fn lift(&self, resource: &str, domain: &str) {
        self.say(
            resource,
            (&self.agent.shared().admit(domain), false),
            ScopeChange::Lifted,
        );
    }

    /// Makes the agent blind: from now on the policies `blind` apply, and no denial holds.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.go_blind();
    /// assert!(kit.agent().rate("api.search").hit("acme").is_ok_and(|allowed| allowed.blind()));
    /// ```
    pub fn go_blind(&self) {
        let state = self.state();
        state.lease.renew(Mono::ZERO);
        state
            .leases
            .iter()
            .for_each(|lease| lease.renew(Mono::ZERO));
        let liveness = &self.agent.shared().liveness;
        liveness.guard.set_partitions(PARTITIONS);
        liveness.update(self.agent.shared().clock.read());
    }

    /// Ends blindness: from now on every partition has a current watermark again.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.go_blind();
    /// kit.see_again();
    /// assert!(kit.agent().rate("api.search").hit("acme").is_ok_and(|allowed| !allowed.blind()));
    /// ```
    pub fn see_again(&self) {
        let state = self.state();
        state.lease.renew(Mono::MAX);
        state.leases.iter().for_each(|lease| lease.renew(Mono::MAX));
        let liveness = &self.agent.shared().liveness;
        liveness.guard.keep();
        liveness.update(self.agent.shared().clock.read());
    }

    /// Sets what a resource's calls get while the agent is blind. Default: open.
    ///
    /// ```
    /// use tollgate_agent::testing::{TestAgent, WhenBlind};
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.when_blind("api.search", WhenBlind::Closed);
    /// kit.go_blind();
    /// assert!(search.hit("acme").is_err());
    /// ```
    pub fn when_blind(&self, resource: &str, policy: WhenBlind) {
        let blind = match policy {
            WhenBlind::Open => BlindPolicy::Open,
            WhenBlind::Closed => BlindPolicy::Closed,
            WhenBlind::Local { limit, window } => BlindPolicy::Local {
                limit,
                window: Span::from_std(window),
            },
        };
        self.learn(resource, |public| public.blind = blind);
    }

    /// Sets a resource's limit, for header fields.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.limit("api.search", 100, Duration::from_secs(60));
    /// assert!(search.hit("acme").is_ok_and(|allowed| allowed.headers().rate_limit_policy().is_some()));
    /// ```
    pub fn limit(&self, resource: &str, limit: u64, window: Duration) {
        let tier = PublicTier {
            limit,
            window: Span::from_std(window),
        };
        self.learn(resource, |public| public.tiers = [tier].into());
    }

    /// Everything that was recorded since the start, thread by thread, in order.
    ///
    /// ```
    /// use tollgate_agent::testing::{Outcome, TestAgent};
    ///
    /// let kit = TestAgent::new();
    /// let _ = kit.agent().rate("api.search").hit("acme");
    /// assert_eq!(kit.recorded()[0].outcome, Outcome::Hit { copies: 1, min: None });
    /// ```
    pub fn recorded(&self) -> Vec<Recorded> {
        let shared = self.agent.shared();
        let mut state = self.state();
        let TestState {
            drain, recorded, ..
        } = &mut *state;
        drain.drain(&shared.recorder, |event| {
            let resource = shared.resources.by_id(event.resource);
            recorded.push(Recorded {
                resource: resource.map(|one| one.name.to_string()).unwrap_or_default(),
                domain: event.domain.to_owned(),
                at_us: event.at.as_micros(),
                outcome: match event.happened {
                    Happened::Hit { copies, min, .. } => Outcome::Hit { copies, min },
                    Happened::Estimate { copies, .. } => Outcome::Hit { copies, min: None },
                    Happened::Charge { copies } => Outcome::Charge { copies },
                    Happened::Refund {
                        estimated, actual, ..
                    } => Outcome::Refund { estimated, actual },
                    Happened::Refused { copies, cause, .. } => Outcome::Refused { copies, cause },
                },
            });
        });
        recorded.clone()
    }

    /// Discards what was recorded so far.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let _ = kit.agent().rate("api.search").hit("acme");
    /// kit.discard();
    /// assert!(kit.recorded().is_empty());
    /// ```
    pub fn discard(&self) {
        let mut state = self.state();
        let TestState {
            drain, recorded, ..
        } = &mut *state;
        drain.drain(&self.agent.shared().recorder, |_| {});
        recorded.clear();
    }

    fn say(&self, resource: &str, (domain, is_group): (&str, bool), what: ScopeChange) {
        let Some(resource) = self.resource(resource) else {
            return;
        };
        let mut state = self.state();
        let position = LogPosition {
            generation: 1,
            offset: state.next_offset,
            entry: 0,
        };
        state.next_offset += 1;
        let lease = state.lease.clone();
        let partition = partition_of_pair(&resource.name, domain, PARTITIONS);
        let notice = ScopeNotice {
            is_group,
            resource: &resource,
            domain,
            partition,
            position,
            change: what,
            lease: &lease,
            settled: None,
        };
        let now = self.agent.shared().clock.read();
        state.deny.take(&notice, now);
    }

    fn learn(&self, resource: &str, change: impl FnOnce(&mut Public)) {
        if let Some(resource) = self.resource(resource) {
            let mut public = Public::clone(&resource.public());
            change(&mut public);
            resource.learn(&public);
            self.state().deny.note_closed(&resource, &public.closed);
        }
    }

    fn resource(&self, name: &str) -> Option<Arc<Resource>> {
        let (resource, _) = self.agent.shared().resources.get(&admit_domain(name));
        if let Some(resource) = &resource {
            resource.set_joined();
        }
        resource
    }

    fn state(&self) -> MutexGuard<'_, TestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
