//! Settings of an agent; each has a default.
//!
//! Invalid settings are errors; an unreachable network never is.

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
use crate::events::{Near, OnNear, OnStatement, StatementEvent};
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
    domain_key_file: Option<PathBuf>,
    security: Security,
    kill_switch: bool,
    bounds: AgentBounds,
    on_statement: Option<OnStatement>,
    on_near: Option<OnNear>,
    on_hold: Option<OnHold>,
    epoch_file: Option<PathBuf>,
    flush_relaxed: Duration,
}

/// Bounds on the memory of an agent.
#[derive(Clone, Copy, Debug)]
struct AgentBounds {
    /// Ten bytes each in the filter, and about 200 bytes for each denial in force.
    denials: usize,
    resources: usize,
    threads: usize,
    /// About thirteen thousand calls of ordinary names. At a million calls a second that lasts thirteen milliseconds,
    /// during which the flusher may not get a core.
    ring_bytes: usize,
    /// About a hundred thousand entries.
    queue_bytes: usize,
    /// About 250 bytes each, until released.
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
            on_statement: None,
            on_near: None,
            on_hold: None,
            epoch_file: None,
            flush_relaxed: Duration::from_millis(60),
        }
    }
}

impl Agent {
    /// Starts building an agent.
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

    /// Builds an agent with settings from the environment: see [`AgentBuilder::from_env`].
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
    /// [`BuildError`] for invalid settings; never because of the network.
    pub fn from_env() -> Result<Self, BuildError> {
        AgentBuilder::from_env()?.build()
    }
}

impl AgentBuilder {
    /// The agent's name, which logs and metrics show. Default: host name and process number.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().name("checkout-1");
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// An aggregator's address for agents, `host:port`. May be called several times: the agent listens to all
    /// aggregators, and sends hits to one that works. If a host name has several addresses, the agent uses all of
    /// them, and those that are added later. One address of a fleet is enough, because each aggregator knows the
    /// others. Default: if hits go to Kafka, the aggregators that are registered there; otherwise `127.0.0.1:7401`.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().aggregator("tollgate-1:7401").aggregator("tollgate-2:7401");
    /// ```
    pub fn aggregator(mut self, address: impl Into<String>) -> Self {
        self.aggregators.push(address.into());
        self
    }

    /// Sends hits straight into Kafka, at `host:port` (several separated by commas). Denials still come from
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

    /// The prefix of the names of the fleet's topics. Default: `tollgate`.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().kafka("kafka:9092").kafka_topic_prefix("limits");
    /// ```
    pub fn kafka_topic_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.kafka_topic_prefix = prefix.into();
        self
    }

    /// A property of the Kafka client, by its name in librdkafka.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().kafka("kafka:9092").kafka_property("linger.ms", "2");
    /// ```
    pub fn kafka_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.kafka_properties.push((name.into(), value.into()));
        self
    }

    /// A file with properties of the Kafka client, NAME=VALUE on each line: how to reach a Kafka that requires
    /// authentication, with passwords that stand nowhere else. A property set by [`Self::kafka_property`] overrides
    /// it. The agent reads the file only if hits go to Kafka.
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

    /// The file with the fleet's domain key. With it, the agent replaces every domain by a keyed hash before
    /// recording it, so that no domain's name is in the log, on the network or in an aggregator. All agents of a
    /// fleet need the same key; otherwise a domain is limited once for each key. A call takes some hundred
    /// nanoseconds longer, and allocates no more. An operator who later looks up a domain by its name needs the key.
    /// Default: the log contains names.
    ///
    /// The hash hides names from readers of the log. It does not hide how much each hashed domain uses, and when. A
    /// reader with the key can try names.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().domain_key_file("/etc/tollgate/domain.key");
    /// ```
    pub fn domain_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.domain_key_file = Some(path.into());
        self
    }

    /// Starts with the kill switch on: denied calls are let through. See [`Agent::kill_switch`].
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().kill_switch_on();
    /// ```
    pub fn kill_switch_on(mut self) -> Self {
        self.kill_switch = true;
        self
    }

    /// The most denials that the agent keeps. Beyond it further denials are ignored and counted. The agent allocates
    /// ten bytes for each at the start. Default: 1,048,576.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().denials_max(100_000);
    /// ```
    pub fn denials_max(mut self, denials: usize) -> Self {
        self.bounds.denials = denials;
        self
    }

    /// The most resources that are limited; calls of further resources are let through. Default: 10,000.
    ///
    /// An aggregator ends a feed of more topics than its `feed.subscriptions_max` (20,100) and says so: for more than
    /// 15,000 resources raise that to as many and 5,000.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().resources_max(50);
    /// ```
    pub fn resources_max(mut self, resources: usize) -> Self {
        self.bounds.resources = resources;
        self
    }

    /// The most threads whose calls are recorded; calls of further threads are decided, and counted as dropped.
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

    /// Bytes of each thread's buffer. Default: 512 KiB, enough for about thirteen thousand calls.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().recorder_bytes(128 * 1024);
    /// ```
    pub fn recorder_bytes(mut self, bytes: usize) -> Self {
        self.bounds.ring_bytes = bytes;
        self
    }

    /// The most bytes of records that may wait for the log; beyond it new records are dropped and counted. Default:
    /// 16 MiB.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().queue_bytes(4 << 20);
    /// ```
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.bounds.queue_bytes = bytes;
        self
    }

    /// The most holds that the agent tracks, over all domains; beyond it copies are let through, and not counted
    /// against any limit, but for copies of strict resources, which are refused ([`Refused::Uncounted`](crate::Refused)).
    /// Default: 262,144.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().holds_max(10_000);
    /// ```
    pub fn holds_max(mut self, holds: usize) -> Self {
        self.bounds.holds = holds;
        self
    }

    /// How long calls that are not urgent wait before the agent sends them: at most a second; zero sends all at once.
    /// Default: 60 ms.
    ///
    /// Calls of pairs that are far from their limits are sent together, which costs the agent and the aggregators a
    /// fraction of sending each by itself. Calls of pairs near their limits or denied lately, bursts that could soon
    /// fill a limit, large calls and holds are sent within a millisecond, whatever this setting is. A longer wait
    /// costs less, but delays by as much the first denial of a pair that many agents begin to use at once.
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

    /// The file in which this agent stores its epoch for its successor, and finds its predecessor's at its start.
    /// Copies that the predecessor still held when it died are then given back as soon as this agent uses the
    /// resource, instead of after `agent_timeout`. One file for each agent: the agent locks a file beside it while it
    /// lives, and another one with the same file, as of a forked process, does without.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().name("worker-1").epoch_file("/var/lib/worker-1/epoch");
    /// ```
    pub fn epoch_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.epoch_file = Some(path.into());
        self
    }

    /// Calls `on_hold` whenever the aggregators state that a hold was too much, is over, or does not count. The
    /// callback runs on the network thread and must not block. If it panics, the agent counts that
    /// ([`Stats::callbacks_panicked`](crate::Stats::callbacks_panicked)), logs it, and goes on.
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

    /// Calls `on_statement` whenever the deny list has changed. The callback runs on the network thread and must not
    /// block. Panics are handled as with [`Self::on_hold`].
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| {
    ///     println!("{} of {}: {:?}", event.domain().unwrap_or("everybody"), event.resource(), event.change());
    /// });
    /// ```
    pub fn on_statement(
        mut self,
        on_statement: impl Fn(&StatementEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_statement = Some(OnStatement(Arc::new(on_statement)));
        self
    }

    /// Calls `on_near` when a domain comes near its limit (`near` of the limits; by default, when a fifth of the least
    /// limit is left) on a resource that this agent uses, also if only other agents called for that domain. It is
    /// called once until the domain is no longer near. The callback runs on the network thread and must not block.
    /// Panics are handled as with [`Self::on_hold`].
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

    /// Settings from the environment: `TOLLGATE_AGGREGATORS` (separated by commas), `TOLLGATE_KAFKA`,
    /// `TOLLGATE_KAFKA_PROPERTIES_FILE`, `TOLLGATE_AGENT_NAME`, `TOLLGATE_KILL_SWITCH` (`on` or `off`),
    /// `TOLLGATE_EPOCH_FILE`, `TOLLGATE_DOMAIN_KEY_FILE`, `TOLLGATE_TLS_CA_FILE`, `TOLLGATE_TLS_SERVER_NAME`,
    /// `TOLLGATE_TLS_CERT_FILE`, `TOLLGATE_TLS_KEY_FILE`, `TOLLGATE_TOKEN_FILE`, `TOLLGATE_INSECURE`
    /// (`trusted-network`). A variable that is unset or empty keeps its default.
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
    /// [`BuildError`] for a variable that cannot be read.
    pub fn from_env() -> Result<Self, BuildError> {
        Self::from_env_without(&[])
    }

    /// The same, but these variables count as unset: for a program with flags of its own in their place.
    ///
    /// ```no_run
    /// # fn start() -> Result<(), tollgate_agent::BuildError> {
    /// use tollgate_agent::AgentBuilder;
    ///
    /// let builder = AgentBuilder::from_env_without(&["TOLLGATE_AGGREGATORS"])?;
    /// let agent = builder.aggregator("tollgate-1:7401").build()?;
    /// # let _ = agent;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] for another variable that cannot be read.
    pub fn from_env_without(variables: &[&str]) -> Result<Self, BuildError> {
        Self::from_variables(|name| match variables.contains(&name) {
            true => None,
            false => std::env::var_os(name),
        })
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
