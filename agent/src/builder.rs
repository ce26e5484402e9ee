//! How an agent is built: by settings, of which each has a default.
//!
//! Bad settings are errors; the network never is.

mod checks;
mod epochs;
#[cfg(feature = "simulation")]
mod identity;
mod security;
mod start;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::Agent;
use crate::error::BuildError;
use crate::heard::{Heard, Near, OnHeard, OnNear};
use crate::holds::news::HoldNews;
use crate::holds::{HOLDS_MAX, OnHold};
#[cfg(feature = "simulation")]
pub use identity::Identity;
use security::Security;

/// Settings of an agent.
#[derive(Clone, Debug)]
#[must_use]
pub struct AgentBuilder {
    name: Option<String>,
    aggregators: Vec<String>,
    kafka: Option<String>,
    kafka_topic_prefix: String,
    kafka_properties: Vec<(String, String)>,
    kafka_properties_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    domain_key_file: Option<PathBuf>,
    security: Security,
    kill_switch: bool,
    bounds: AgentBounds,
    on_heard: Option<OnHeard>,
    on_near: Option<OnNear>,
    on_hold: Option<OnHold>,
    epoch_file: Option<PathBuf>,
    flush_relaxed: Duration,
}

/// What an agent may take of memory.
#[derive(Clone, Copy, Debug)]
struct AgentBounds {
    /// Eight bytes each in the filter, and about 200 for a denial that is there.
    denials: usize,
    resources: usize,
    threads: usize,
    /// Some thirteen thousand calls of ordinary names: as many milliseconds of a million a second, for
    /// which the flusher may be kept from its core.
    ring_bytes: usize,
    /// Some hundred thousand entries.
    queue_bytes: usize,
    /// About 250 bytes each, while they last.
    holds: usize,
}

impl Default for AgentBuilder {
    fn default() -> Self {
        Self {
            name: None,
            aggregators: Vec::new(),
            kafka: None,
            kafka_topic_prefix: "tollgate".to_owned(),
            kafka_properties: Vec::new(),
            kafka_properties_file: None,
            key_file: None,
            domain_key_file: None,
            security: Security::default(),
            kill_switch: false,
            bounds: AgentBounds {
                denials: 1 << 20,
                resources: 10_000,
                threads: 1_024,
                ring_bytes: 512 * 1024,
                queue_bytes: 16 << 20,
                holds: HOLDS_MAX,
            },
            on_heard: None,
            on_near: None,
            on_hold: None,
            epoch_file: None,
            flush_relaxed: Duration::from_millis(25),
        }
    }
}

impl Agent {
    /// Settings, to build an agent from.
    ///
    /// ```
    /// use tollgate_agent::Agent;
    ///
    /// let agent = Agent::builder().name("checkout-1").aggregator("127.0.0.1:7401").build()?;
    /// # Ok::<(), tollgate_agent::BuildError>(())
    /// ```
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    /// An agent with settings from the environment: see [`AgentBuilder::from_env`].
    ///
    /// ```no_run
    /// # fn start() -> Result<(), tollgate_agent::BuildError> {
    /// use tollgate_agent::Agent;
    ///
    /// let agent = Agent::from_env()?;
    /// # let _ = agent;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] for bad settings; never because of the network.
    pub fn from_env() -> Result<Self, BuildError> {
        AgentBuilder::from_env()?.build()
    }
}

impl AgentBuilder {
    /// The agent's name, by which logs and metrics know it. Default: host name and process number.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().name("checkout-1");
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// An aggregator's address for agents, `host:port`. May be called for several: all of them are
    /// listened to, and one that works carries the hits. A name may stand for several addresses: all of them
    /// are, and those that it stands for later. Of a fleet any one is enough: it knows the others. Default:
    /// those that Kafka knows, where hits go there, and `127.0.0.1:7401` where they do not.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().aggregator("tollgate-1:7401").aggregator("tollgate-2:7401");
    /// ```
    pub fn aggregator(mut self, address: impl Into<String>) -> Self {
        self.aggregators.push(address.into());
        self
    }

    /// Sends hits straight into Kafka, at `host:port` (several with commas). Denials still come from
    /// aggregators.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().kafka("kafka-1:9092,kafka-2:9092");
    /// ```
    pub fn kafka(mut self, bootstrap: impl Into<String>) -> Self {
        self.kafka = Some(bootstrap.into());
        self
    }

    /// What the names of the fleet's topics begin with. Default: `tollgate`.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().kafka("kafka:9092").kafka_topic_prefix("limits");
    /// ```
    pub fn kafka_topic_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.kafka_topic_prefix = prefix.into();
        self
    }

    /// A property of the Kafka client, by librdkafka's name.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().kafka("kafka:9092").kafka_property("linger.ms", "2");
    /// ```
    pub fn kafka_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.kafka_properties.push((name.into(), value.into()));
        self
    }

    /// A file with properties of the Kafka client, NAME=VALUE on each line: how to reach a Kafka that asks who
    /// one is, with passwords that stand nowhere else. What [`Self::kafka_property`] says beats it. Read where
    /// hits go to Kafka, and not otherwise.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder()
    ///     .kafka("kafka:9092")
    ///     .kafka_properties_file("/etc/tollgate/kafka.properties");
    /// ```
    pub fn kafka_properties_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.kafka_properties_file = Some(path.into());
        self
    }

    /// The file with the fleet's key. No build uses it yet: it is only checked. What protects the connections to
    /// aggregators is [`Self::tls_ca_file`] and [`Self::token_file`].
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().key_file("/etc/tollgate/fleet.key");
    /// ```
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_file = Some(path.into());
        self
    }

    /// The file with the fleet's domain key: every domain is replaced by a keyed hash before it is recorded,
    /// so that no name of one is in the log, on the network or with the aggregators. All agents of a fleet
    /// have the same key, or a domain is limited as often as there are keys. A call costs some hundred
    /// nanoseconds more, and allocates no more. Who asks for a domain by its name later needs the key.
    /// Default: names stand in the log.
    ///
    /// It keeps names from who reads the log, not how much each of the hashed uses and when; and who has the
    /// key can try names.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().domain_key_file("/etc/tollgate/domain.key");
    /// ```
    pub fn domain_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.domain_key_file = Some(path.into());
        self
    }

    /// Starts with the kill switch on: denials are grants. See [`Agent::kill_switch`].
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().kill_switch_on();
    /// ```
    pub fn kill_switch_on(mut self) -> Self {
        self.kill_switch = true;
        self
    }

    /// Denials that are kept at most; beyond it scopes stay open, and are counted. Eight bytes each are
    /// taken at once. Default: 1,048,576.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().denials_max(100_000);
    /// ```
    pub fn denials_max(mut self, denials: usize) -> Self {
        self.bounds.denials = denials;
        self
    }

    /// Resources that are limited at most; calls of others are let through. Default: 10,000.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().resources_max(50);
    /// ```
    pub fn resources_max(mut self, resources: usize) -> Self {
        self.bounds.resources = resources;
        self
    }

    /// Threads whose calls are recorded at most; calls of others are decided, and counted as dropped.
    /// Default: 1,024.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().threads_max(64);
    /// ```
    pub fn threads_max(mut self, threads: usize) -> Self {
        self.bounds.threads = threads;
        self
    }

    /// Bytes of each thread's buffer. Default: 512 KiB, which takes some
    /// thirteen thousand calls.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().recorder_bytes(128 * 1024);
    /// ```
    pub fn recorder_bytes(mut self, bytes: usize) -> Self {
        self.bounds.ring_bytes = bytes;
        self
    }

    /// Bytes of records that wait for the log at most; beyond it new ones are dropped, and counted.
    /// Default: 16 MiB.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().queue_bytes(4 << 20);
    /// ```
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.bounds.queue_bytes = bytes;
        self
    }

    /// Holds that are on record at most, of however many domains; beyond it copies are let through, and nobody
    /// counts them. Default: 262,144.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().holds_max(10_000);
    /// ```
    pub fn holds_max(mut self, holds: usize) -> Self {
        self.bounds.holds = holds;
        self
    }

    /// How long calls wait that are not urgent, at most a second; zero: none does. Default: 25 ms.
    ///
    /// Calls of pairs that are far from their limits travel together, which costs the agent and the aggregators a
    /// fraction of what each by itself does. Calls of pairs near their limits or denied lately, bursts that could
    /// soon fill a limit, large calls and holds are sent within a millisecond whatever this is. A longer wait costs
    /// less, and the first denial of a pair that many agents begin to use at once comes so much later.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder()
    ///     .flush_relaxed(std::time::Duration::from_millis(100));
    /// ```
    pub fn flush_relaxed(mut self, wait: Duration) -> Self {
        self.flush_relaxed = wait;
        self
    }

    /// The file in which this agent leaves its epoch to its successor, and finds that of the one before
    /// it: what that one still held when it died is then given back as soon as this one uses the
    /// resource, instead of after the silence of a dead agent. One file for each agent, never shared.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().name("worker-1").epoch_file("/var/lib/worker-1/epoch");
    /// ```
    pub fn epoch_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.epoch_file = Some(path.into());
        self
    }

    /// Calls back whenever the aggregators say of a hold that it was too much, is over, or does not
    /// count; on the network thread: it must not block. A panic of it is counted
    /// ([`Stats::callbacks_panicked`](crate::Stats::callbacks_panicked)) and logged, and the agent goes on.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_hold(|news| {
    ///     println!("{} of {}: {:?}", news.number(), news.resource(), news.change());
    /// });
    /// ```
    pub fn on_hold(mut self, on_hold: impl Fn(&HoldNews<'_>) + Send + Sync + 'static) -> Self {
        self.on_hold = Some(OnHold(Arc::new(on_hold)));
        self
    }

    /// Calls back whenever the deny list has changed, on the network thread: it must not block. Panics are
    /// as with [`Self::on_hold`].
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_heard(|heard| {
    ///     println!("{} of {}: {:?}", heard.domain().unwrap_or("everybody"), heard.resource(), heard.change());
    /// });
    /// ```
    pub fn on_heard(mut self, on_heard: impl Fn(&Heard<'_>) + Send + Sync + 'static) -> Self {
        self.on_heard = Some(OnHeard(Arc::new(on_heard)));
        self
    }

    /// Calls back when a pair that this agent uses comes near its limit (`near` of the limits: a fifth of the
    /// least one is left, by default), once until it is no longer near; on the network thread: it must not
    /// block. Panics are as with [`Self::on_hold`].
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_near(|near| {
    ///     println!("{} has {} of {} left", near.domain(), near.remaining(), near.limit());
    /// });
    /// ```
    pub fn on_near(mut self, on_near: impl Fn(&Near<'_>) + Send + Sync + 'static) -> Self {
        self.on_near = Some(OnNear(Arc::new(on_near)));
        self
    }

    /// Settings from the environment: `TOLLGATE_AGGREGATORS` (with commas), `TOLLGATE_KAFKA`,
    /// `TOLLGATE_KAFKA_PROPERTIES_FILE`, `TOLLGATE_KEY_FILE`, `TOLLGATE_AGENT_NAME`, `TOLLGATE_KILL_SWITCH` (`on` or `off`),
    /// `TOLLGATE_EPOCH_FILE`, `TOLLGATE_DOMAIN_KEY_FILE`, `TOLLGATE_TLS_CA_FILE`, `TOLLGATE_TLS_SERVER_NAME`,
    /// `TOLLGATE_TLS_CERT_FILE`, `TOLLGATE_TLS_KEY_FILE`, `TOLLGATE_TOKEN_FILE`, `TOLLGATE_INSECURE`
    /// (`trusted-network`). What is not set, or empty, keeps its default.
    ///
    /// ```no_run
    /// # fn start() -> Result<(), tollgate_agent::BuildError> {
    /// use tollgate_agent::AgentBuilder;
    ///
    /// let agent = AgentBuilder::from_env()?.name("checkout-1").build()?;
    /// # let _ = agent;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] for what cannot be read.
    pub fn from_env() -> Result<Self, BuildError> {
        Self::from_variables(std::env::var_os::<&str>)
    }

    fn from_variables(
        variable: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Self, BuildError> {
        let text = |name: &'static str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
            Some(Err(_)) => Err(BuildError::Unreadable { variable: name }),
        };
        let mut builder = Self::default();
        if let Some(addresses) = text("TOLLGATE_AGGREGATORS")? {
            builder.aggregators = addresses
                .split(',')
                .map(|one| one.trim().to_owned())
                .collect();
        }
        builder.kafka = text("TOLLGATE_KAFKA")?;
        builder.name = text("TOLLGATE_AGENT_NAME")?;
        builder.kafka_properties_file = variable("TOLLGATE_KAFKA_PROPERTIES_FILE")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        builder.key_file = variable("TOLLGATE_KEY_FILE")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        builder.domain_key_file = variable("TOLLGATE_DOMAIN_KEY_FILE")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        builder.epoch_file = variable("TOLLGATE_EPOCH_FILE")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        builder.security = Security::from_variables(&text)?;
        builder.kill_switch = match text("TOLLGATE_KILL_SWITCH")?.as_deref() {
            None | Some("off" | "0" | "false") => false,
            Some("on" | "1" | "true") => true,
            Some(value) => {
                return Err(BuildError::Switch {
                    variable: "TOLLGATE_KILL_SWITCH",
                    value: value.to_owned(),
                });
            }
        };
        Ok(builder)
    }
}
