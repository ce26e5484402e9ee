//! From settings to a running agent: its state, its two threads, and Kafka's where hits go there.
//!
//! What stays true: nothing connects before all settings are known to be good.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use tokio::sync::{Notify, mpsc};
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::time::Span;

use super::{AgentBuilder, epochs};
use crate::agent::Agent;
use crate::agent_inner::AgentInner;
use crate::clock::Clock;
use crate::courier::Courier;
use crate::deny::{DenyList, DenyView, NEAR_MAX, NearList};
use crate::error::BuildError;
use crate::feed_liveness::Liveness;
use crate::flusher::{self, Ending, Packer};
use crate::holds::{HoldSession, HoldTable, Origin};
use crate::listener::{Listener, ListenerContext};
use crate::log_lines::LogLines;
use crate::net::{self, Carrier, Driver, Sockets};
use crate::recorder::Recorder;
use crate::resource::Resources;
use crate::shared::{Shared, TransferIds};
use crate::stats::Counters;
use crate::threads::Threads;
use crate::timer::Timer;
use crate::urgency::Urgency;

/// The bound on batches between flusher and network thread: some for each partition.
const BATCHES_MAX: usize = 1_024;

/// The bound on groups of hold operations between the two. Each group may be as long as the full hold table, and
/// while groups wait, the hold table fills up to its bound.
const NOTICES_MAX: usize = 2;

/// The runtime of the network thread.
fn runtime() -> Result<tokio::runtime::Runtime, BuildError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(BuildError::Thread)
}

/// Runs the driver as a task. Its tasks wake it for each message, and waking the future of `block_on` is a system call,
/// even on its own thread.
fn run_on(runtime: &tokio::runtime::Runtime, driver: impl Future<Output = ()> + Send + 'static) {
    let ended = runtime.block_on(runtime.spawn(driver));
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}

impl AgentBuilder {
    /// Builds the agent, and starts its threads. The agent connects in the background: while it reaches no
    /// aggregator, it is blind, not broken.
    ///
    /// ```
    /// use tollgate_agent::Agent;
    ///
    /// let agent = Agent::builder().name("checkout-1").build()?;
    /// assert!(Agent::builder().name("").build().is_err());
    /// # let _ = agent;
    /// # Ok::<(), tollgate_agent::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] for invalid settings; never because of the network.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        let name = self.checked_name()?;
        let aggregators = self.checked_aggregators()?;
        self.read_kafka_properties()?;
        self.check_kafka(&name)?;
        self.check_bounds()?;
        let credentials = self.credentials(&aggregators)?;
        let domain_key = self.domain_key_file.as_deref();
        let domain_key = domain_key.map(super::checks::read_domain_key).transpose()?;
        let runtime = runtime()?;
        let seed: u64 = rand::random();
        let secret = EpochSecret::new(rand::random());
        let epoch_file = self.epoch_file.as_deref();
        let succession = epoch_file.map(|path| epochs::succeed(path, secret));
        let succession = succession.transpose()?.unwrap_or_default();
        let secrets = (secret, succession.before);
        let clock = Arc::new(Clock::of_the_machine());
        let mut shared = self.shared(clock, seed, Timer::Runtime(runtime.handle().clone()));
        shared.domain_key = domain_key;
        let shared = Arc::new(shared);
        let (listener, courier, session) =
            self.thinkers(&shared, &name, secrets, aggregators.len(), rand::random());
        let (events, event_receiver) = mpsc::channel(net::EVENTS_MAX);
        let (batches, batch_receiver) = mpsc::channel(BATCHES_MAX);
        let (notice_sender, notice_receiver) = mpsc::channel(NOTICES_MAX);
        let (orders, order_receiver) = mpsc::channel(1);
        let ending = Arc::new(Ending::default());
        let threads = Threads::of(&name, &shared, &ending);
        let (courier, carrier) = self.carrier((&name, &threads), courier, &events)?;
        let driver = {
            let _runtime = runtime.enter();
            let sockets = Sockets::start(
                &aggregators,
                listener.topic(),
                carrier,
                &events,
                (&shared.counters, credentials),
            );
            Driver::new(Arc::clone(&shared), listener, (courier, session), sockets)
        };
        // Tasks and Kafka have senders of their own: when the last of these is dropped, the channel of events closes.
        drop(events);
        let packer = self.packer(&shared);
        let work = (batch_receiver, notice_receiver);
        let run = driver.run(event_receiver, work, order_receiver, Arc::clone(&ending));
        let net = threads.start("tollgate-net", move || {
            let _locked = succession.lock;
            run_on(&runtime, run);
        });
        net.map_err(BuildError::Thread)?;
        let flusher = threads.start("tollgate-flush", {
            let (shared, ending) = (Arc::clone(&shared), Arc::clone(&ending));
            move || flusher::run(&shared, packer, &(batches, notice_sender), &ending)
        });
        flusher.map_err(BuildError::Thread)?;
        Ok(Agent::of(AgentInner::new(
            shared,
            name,
            ending,
            Some(orders),
        )))
    }

    /// The parts of an agent, for a simulation that drives them by hand.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated<W: net::Transport>(
        self,
        identity: &super::Identity,
        aggregators: usize,
        wall: tollgate_shared::time::Timestamp,
        transport: W,
    ) -> (Agent, Driver<W>, flusher::Flusher) {
        let clock = Arc::new(Clock::by_hand(wall));
        let timer = Timer::Hand(Arc::new(Notify::new()));
        let mut shared = self.shared(clock, identity.seed, timer);
        // Each run of an agent has an epoch of its own, so transfer ids derived from it are unique.
        shared.transfers = TransferIds::Counted(
            identity.secret.epoch(),
            std::sync::atomic::AtomicU64::new(0),
        );
        let shared = Arc::new(shared);
        let name = identity.name.clone();
        let secrets = (identity.secret, None);
        let (listener, courier, session) =
            self.thinkers(&shared, &name, secrets, aggregators, identity.nonce);
        let driver = Driver::new(Arc::clone(&shared), listener, (courier, session), transport);
        let packer = self.packer(&shared);
        let agent = Agent::of(AgentInner::new(
            shared,
            name,
            Arc::new(Ending::default()),
            None,
        ));
        (agent, driver, flusher::Flusher::new(packer))
    }

    /// The packer of an agent's calls.
    pub(crate) fn packer(&self, shared: &Shared) -> Packer {
        let urgency = Arc::clone(&shared.urgency);
        let resources = Arc::clone(&shared.resources);
        Packer::new(resources, urgency, self.bounds.queue_bytes)
    }

    fn thinkers(
        &self,
        shared: &Arc<Shared>,
        name: &str,
        (secret, before): (EpochSecret, Option<EpochSecret>),
        aggregators: usize,
        nonce: u64,
    ) -> (Listener, Courier, HoldSession) {
        let origin = Origin::new(secret, before);
        let around = ListenerContext {
            agent: name.into(),
            secret,
            before,
            clock: Arc::clone(&shared.clock),
            resources: Arc::clone(&shared.resources),
            mosts: Arc::clone(&shared.mosts),
            liveness: Arc::clone(&shared.liveness),
            counters: Arc::clone(&shared.counters),
            on_statement: self.on_statement.clone(),
            on_near: self.on_near.clone(),
        };
        let deny = DenyList::new(Arc::clone(&shared.view), self.bounds.denials);
        let near = NearList::new(Arc::clone(&shared.view), NEAR_MAX);
        let listener = Listener::new(around, (deny, near), aggregators, nonce);
        let courier = Courier::new(name, origin.epoch, Arc::clone(&shared.resources));
        (listener, courier, self.session(shared, origin))
    }

    /// The agent's hold session.
    pub(crate) fn session(&self, shared: &Shared, origin: Origin) -> HoldSession {
        HoldSession::new(
            origin,
            Arc::clone(&shared.resources),
            Arc::clone(&shared.counters),
            Arc::clone(&shared.revoked),
            self.on_hold.clone(),
        )
    }

    pub(crate) fn shared(&self, clock: Arc<Clock>, seed: u64, timer: Timer) -> Shared {
        let view = Arc::new(DenyView::new(self.bounds.denials));
        let recorder = Recorder::new(self.bounds.ring_bytes, self.bounds.threads);
        let relaxed = Span::from_std(self.flush_relaxed);
        let urgency = Urgency::new(Arc::clone(&view), relaxed, recorder.room());
        Shared {
            urgency: Arc::new(urgency),
            view,
            liveness: Arc::new(Liveness::new(clock.read())),
            resources: Arc::new(Resources::new(seed, self.bounds.resources)),
            mosts: Arc::default(),
            recorder,
            hold_table: HoldTable::new(self.bounds.holds),
            revoked: Arc::default(),
            counters: Arc::new(Counters::default()),
            kill_switch: AtomicBool::new(self.kill_switch),
            domain_key: None,
            timer,
            news: Notify::new(),
            new_resource: Notify::new(),
            log_partitions: AtomicU32::new(0),
            resource_lines: LogLines::default(),
            ended: AtomicBool::new(false),
            transfers: TransferIds::Random,
            clock,
        }
    }

    #[cfg_attr(
        not(feature = "kafka"),
        allow(clippy::unnecessary_wraps, reason = "Kafka needs a thread")
    )]
    fn carrier(
        &self,
        (name, threads): (&str, &Threads),
        courier: Courier,
        events: &mpsc::Sender<net::DriverEvent>,
    ) -> Result<(Courier, Carrier), BuildError> {
        #[cfg(feature = "kafka")]
        if let Some(bootstrap) = &self.kafka {
            if self.aggregators.is_empty() {
                let topic = format!("{}.members", self.kafka_topic_prefix);
                let whose = (name, threads);
                net::Kafka::find_members(bootstrap, topic, whose, &self.kafka_properties, events)
                    .map_err(BuildError::Thread)?;
            }
            let topic = format!("{}.hits", self.kafka_topic_prefix);
            let kafka = net::Kafka::start(
                bootstrap,
                topic,
                (name, threads),
                &self.kafka_properties,
                events.clone(),
            )?;
            return Ok((courier.with_carrier_that_answers(), Carrier::Kafka(kafka)));
        }
        let _ = (name, threads, events);
        Ok((courier, Carrier::Links))
    }
}
