//! How an agent is built: settings, their checks, and the two threads.
//!
//! Bad settings are errors; the network never is. What stays true: nothing connects before all settings
//! are known to be good.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use tokio::sync::{Notify, mpsc};
use tollgate_shared::names::check_name;

use crate::agent::{Agent, Inner};
use crate::clock::Clock;
use crate::courier::Courier;
use crate::deny::{DenyList, DenyView};
use crate::error::BuildError;
use crate::flusher::{self, Ending, Packer};
use crate::heard::{Heard, OnHeard};
use crate::listener::{Listener, Surroundings};
use crate::net::{self, Carrier, Hub};
use crate::recorder::Recorder;
use crate::resource::Resources;
use crate::shared::Shared;
use crate::sight::Sight;
use crate::stats::Counters;
use crate::timer::Timer;

/// Where an aggregator listens for agents unless told otherwise.
const AGGREGATOR_DEFAULT: &str = "127.0.0.1:7401";

/// Parcels between flusher and network thread: some for each partition.
const PARCELS_MAX: usize = 1_024;

/// Settings of an agent.
#[derive(Clone, Debug)]
#[must_use]
pub struct AgentBuilder {
    name: Option<String>,
    aggregators: Vec<String>,
    kafka: Option<String>,
    kafka_topic_prefix: String,
    kafka_properties: Vec<(String, String)>,
    key_file: Option<PathBuf>,
    kill_switch: bool,
    bounds: Bounds,
    on_heard: Option<OnHeard>,
}

/// What an agent may take of memory.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Eight bytes each in the filter, and about 200 for a denial that is there.
    denials: usize,
    resources: usize,
    threads: usize,
    /// Five thousand calls of ordinary names: five milliseconds of a million a second.
    ring_bytes: usize,
    /// Some hundred thousand entries.
    queue_bytes: usize,
}

impl Default for AgentBuilder {
    fn default() -> Self {
        Self {
            name: None,
            aggregators: Vec::new(),
            kafka: None,
            kafka_topic_prefix: "tollgate".to_owned(),
            kafka_properties: Vec::new(),
            key_file: None,
            kill_switch: false,
            bounds: Bounds {
                denials: 1 << 20,
                resources: 10_000,
                threads: 1_024,
                ring_bytes: 256 * 1024,
                queue_bytes: 16 << 20,
            },
            on_heard: None,
        }
    }
}

impl AgentBuilder {
    /// The agent's name, by which logs and metrics know it. Default: host name and process number.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// An aggregator's address for agents, `host:port`. May be called for several: all of them are
    /// listened to, and one that works carries the hits. Default: `127.0.0.1:7401`.
    pub fn aggregator(mut self, address: impl Into<String>) -> Self {
        self.aggregators.push(address.into());
        self
    }

    /// Sends hits straight into Kafka, at `host:port` (several with commas). Denials still come from
    /// aggregators.
    pub fn kafka(mut self, bootstrap: impl Into<String>) -> Self {
        self.kafka = Some(bootstrap.into());
        self
    }

    /// What the names of the fleet's topics begin with. Default: `tollgate`.
    pub fn kafka_topic_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.kafka_topic_prefix = prefix.into();
        self
    }

    /// A property of the Kafka client, by librdkafka's name.
    pub fn kafka_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.kafka_properties.push((name.into(), value.into()));
        self
    }

    /// The file with the fleet's key. Kept for the sealed feed: until frames are sealed it is only
    /// checked.
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_file = Some(path.into());
        self
    }

    /// Starts with the kill switch on: denials are grants. See [`Agent::kill_switch`].
    pub fn kill_switch_on(mut self) -> Self {
        self.kill_switch = true;
        self
    }

    /// Denials that are kept at most; beyond it scopes stay open, and are counted. Eight bytes each are
    /// taken at once. Default: 1,048,576.
    pub fn denials_max(mut self, denials: usize) -> Self {
        self.bounds.denials = denials;
        self
    }

    /// Resources that are limited at most; calls of others are let through. Default: 10,000.
    pub fn resources_max(mut self, resources: usize) -> Self {
        self.bounds.resources = resources;
        self
    }

    /// Threads whose calls are recorded at most; calls of others are decided, and counted as dropped.
    /// Default: 1,024.
    pub fn threads_max(mut self, threads: usize) -> Self {
        self.bounds.threads = threads;
        self
    }

    /// Bytes of each thread's buffer. Default: 256 KiB, which takes five thousand calls.
    pub fn recorder_bytes(mut self, bytes: usize) -> Self {
        self.bounds.ring_bytes = bytes;
        self
    }

    /// Bytes of records that wait for the log at most; beyond it new ones are dropped, and counted.
    /// Default: 16 MiB.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.bounds.queue_bytes = bytes;
        self
    }

    /// Calls back whenever the deny list has changed, on the network thread: it must not block.
    pub fn on_heard(mut self, on_heard: Arc<dyn Fn(&Heard<'_>) + Send + Sync>) -> Self {
        self.on_heard = Some(OnHeard(on_heard));
        self
    }

    /// Settings from the environment: `TOLLGATE_AGGREGATORS` (with commas), `TOLLGATE_KAFKA`,
    /// `TOLLGATE_KEY_FILE`, `TOLLGATE_AGENT_NAME`, `TOLLGATE_KILL_SWITCH` (`on` or `off`). What is not
    /// set, or empty, keeps its default.
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
        builder.key_file = variable("TOLLGATE_KEY_FILE")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
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

    /// Builds the agent, and starts its threads. Connects in the background: an agent without anybody
    /// to hear is blind, not broken.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for bad settings; the network is never among the reasons.
    pub fn build(self) -> Result<Agent, BuildError> {
        let name = self.checked_name()?;
        let aggregators = self.checked_aggregators()?;
        self.check_kafka(&name)?;
        self.check_bounds()?;
        if let Some(path) = &self.key_file {
            check_key(path)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(BuildError::Thread)?;
        let seed: u64 = rand::random();
        let epoch: u128 = rand::random();
        let clock = Arc::new(Clock::of_the_machine());
        let shared = Arc::new(self.shared(clock, seed, Timer::Runtime(runtime.handle().clone())));
        let around = Surroundings {
            agent: name.as_str().into(),
            epoch,
            clock: Arc::clone(&shared.clock),
            resources: Arc::clone(&shared.resources),
            sight: Arc::clone(&shared.sight),
            counters: Arc::clone(&shared.counters),
            on_heard: self.on_heard.clone(),
        };
        let deny = DenyList::new(Arc::clone(&shared.view), self.bounds.denials);
        let listener = Listener::new(around, deny, aggregators.len(), rand::random());
        let courier = Courier::new(&name, epoch, Arc::clone(&shared.resources));
        let (events, event_receiver) = mpsc::channel(net::EVENTS_MAX);
        let (parcels, parcel_receiver) = mpsc::channel(PARCELS_MAX);
        let (orders, order_receiver) = mpsc::channel(1);
        let ending = Arc::new(Ending::default());
        let (courier, carrier) = self.carrier(&name, courier, &events)?;
        let hub = {
            let _runtime = runtime.enter();
            Hub::new(
                Arc::clone(&shared),
                listener,
                courier,
                &aggregators,
                carrier,
                Arc::clone(&ending),
                &events,
            )
        };
        // Tasks and Kafka have theirs: with the last of them gone, no event comes any more.
        drop(events);
        std::thread::Builder::new()
            .name("tollgate-net".to_owned())
            .spawn(move || {
                runtime.block_on(hub.run(event_receiver, parcel_receiver, order_receiver))
            })
            .map_err(BuildError::Thread)?;
        let packer = Packer::new(Arc::clone(&shared.resources), self.bounds.queue_bytes);
        flusher::start(Arc::clone(&shared), packer, parcels, Arc::clone(&ending))
            .map_err(BuildError::Thread)?;
        Ok(Agent::of(Inner::new(shared, name, ending, Some(orders))))
    }

    pub(crate) fn shared(&self, clock: Arc<Clock>, seed: u64, timer: Timer) -> Shared {
        Shared {
            view: Arc::new(DenyView::new(self.bounds.denials)),
            sight: Arc::new(Sight::new(clock.read())),
            resources: Arc::new(Resources::new(seed, self.bounds.resources)),
            recorder: Recorder::new(self.bounds.ring_bytes, self.bounds.threads),
            counters: Arc::new(Counters::default()),
            kill_switch: AtomicBool::new(self.kill_switch),
            timer,
            news: Notify::new(),
            new_resource: Notify::new(),
            log_partitions: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            clock,
        }
    }

    fn checked_name(&self) -> Result<String, BuildError> {
        let name = self.name.clone().unwrap_or_else(default_name);
        match check_name(&name) {
            Ok(()) => Ok(name),
            Err(fault) => Err(BuildError::Name { name, fault }),
        }
    }

    fn checked_aggregators(&self) -> Result<Vec<String>, BuildError> {
        if self.aggregators.is_empty() {
            return Ok(vec![AGGREGATOR_DEFAULT.to_owned()]);
        }
        let mut checked: Vec<String> = Vec::new();
        for given in &self.aggregators {
            let address = given.strip_prefix("tcp://").unwrap_or(given);
            if !is_address(address) {
                return Err(BuildError::Aggregator {
                    address: given.clone(),
                });
            }
            if !checked.iter().any(|one| one == address) {
                checked.push(address.to_owned());
            }
        }
        Ok(checked)
    }

    fn check_kafka(&self, name: &str) -> Result<(), BuildError> {
        let Some(bootstrap) = &self.kafka else {
            return Ok(());
        };
        if !bootstrap.split(',').all(|one| is_address(one.trim())) {
            return Err(BuildError::Kafka {
                address: bootstrap.clone(),
            });
        }
        #[cfg(feature = "kafka")]
        return net::check_properties(bootstrap, name, &self.kafka_properties);
        #[cfg(not(feature = "kafka"))]
        {
            let _ = name;
            Err(BuildError::WithoutKafka {
                address: bootstrap.clone(),
            })
        }
    }

    #[cfg_attr(
        not(feature = "kafka"),
        allow(clippy::unnecessary_wraps, reason = "Kafka needs a thread")
    )]
    fn carrier(
        &self,
        name: &str,
        courier: Courier,
        events: &mpsc::Sender<net::Event>,
    ) -> Result<(Courier, Carrier), BuildError> {
        #[cfg(feature = "kafka")]
        if let Some(bootstrap) = &self.kafka {
            let topic = format!("{}.hits", self.kafka_topic_prefix);
            let kafka = net::Kafka::start(
                bootstrap,
                topic,
                name,
                &self.kafka_properties,
                events.clone(),
            )
            .map_err(BuildError::Thread)?;
            return Ok((courier.with_carrier_that_answers(), Carrier::Kafka(kafka)));
        }
        let _ = (name, events);
        Ok((courier, Carrier::Links))
    }

    fn check_bounds(&self) -> Result<(), BuildError> {
        let Bounds {
            denials,
            resources,
            threads,
            ring_bytes,
            queue_bytes,
        } = self.bounds;
        let bounds = [
            ("denials_max", denials, 1, 1 << 28, "1 to 268435456"),
            ("resources_max", resources, 1, 1 << 20, "1 to 1048576"),
            ("threads_max", threads, 1, 1 << 20, "1 to 1048576"),
            (
                "recorder_bytes",
                ring_bytes,
                4 << 10,
                1 << 30,
                "4096 to 1073741824",
            ),
            (
                "queue_bytes",
                queue_bytes,
                64 << 10,
                1 << 34,
                "65536 to 17179869184",
            ),
        ];
        match bounds
            .into_iter()
            .find(|(_, found, min, max, _)| found < min || max < found)
        {
            Some((setting, found, _, _, expected)) => Err(BuildError::Bound {
                setting,
                found,
                expected,
            }),
            None => Ok(()),
        }
    }
}

fn check_key(path: &Path) -> Result<(), BuildError> {
    let key = std::fs::read(path).map_err(|source| BuildError::KeyFile {
        path: path.to_owned(),
        source,
    })?;
    if !(16..=4_096).contains(&key.len()) {
        return Err(BuildError::KeyLength {
            path: path.to_owned(),
            bytes: key.len(),
        });
    }
    Ok(())
}

/// `host:port`, an IPv6 host in brackets.
fn is_address(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let brackets = host.starts_with('[') && host.ends_with(']');
    let is_host =
        !host.is_empty() && (brackets || !host.contains(':')) && !host.contains(['/', ' ', ',']);
    is_host && port.parse::<u16>().is_ok_and(|port| port != 0)
}

fn default_name() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|host| host.trim().to_owned())
        .filter(|host| host.len() <= 200 && check_name(host).is_ok())
        .unwrap_or_else(|| "agent".to_owned());
    format!("{host}-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<AgentBuilder, BuildError> {
        AgentBuilder::from_variables(|name| {
            variables
                .iter()
                .find(|(one, _)| *one == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    fn fault(variables: &[(&str, &str)]) -> String {
        of(variables)
            .and_then(AgentBuilder::build)
            .map(|_| ())
            .expect_err("a bad setting")
            .to_string()
    }

    #[test]
    fn the_environment_sets_everything() {
        let builder = of(&[
            ("TOLLGATE_AGGREGATORS", "a:7401, tcp://b:7402"),
            ("TOLLGATE_KAFKA", "k:9092"),
            ("TOLLGATE_AGENT_NAME", "checkout-7"),
            ("TOLLGATE_KILL_SWITCH", "on"),
        ])
        .expect("good settings");
        assert_eq!(
            builder.checked_aggregators().expect("addresses"),
            ["a:7401", "b:7402"]
        );
        assert_eq!(
            (builder.kafka.as_deref(), builder.kill_switch),
            (Some("k:9092"), true)
        );
        assert_eq!(builder.checked_name().expect("a name"), "checkout-7");
        let empty = of(&[
            ("TOLLGATE_AGGREGATORS", ""),
            ("TOLLGATE_KILL_SWITCH", "off"),
        ])
        .expect("as if not set");
        assert_eq!(
            empty.checked_aggregators().expect("the default"),
            [AGGREGATOR_DEFAULT]
        );
        assert!(check_name(&empty.checked_name().expect("the default")).is_ok());
    }

    #[test]
    fn bad_settings_are_told_by_value_and_what_was_expected() {
        let faults = [
            (
                ("TOLLGATE_AGGREGATORS", "localhost"),
                "aggregator \"localhost\": expected `host:port`, as in `127.0.0.1:7401`",
            ),
            (
                ("TOLLGATE_AGGREGATORS", "a:1,,b:2"),
                "aggregator \"\": expected `host:port`, as in `127.0.0.1:7401`",
            ),
            (
                ("TOLLGATE_KAFKA", "k:0"),
                "kafka \"k:0\": expected `host:port` or several with commas, as in `127.0.0.1:9092`",
            ),
            (
                ("TOLLGATE_AGENT_NAME", "a*"),
                "agent name \"a*\": contains `*`, which is reserved for patterns",
            ),
            (
                ("TOLLGATE_KILL_SWITCH", "maybe"),
                "TOLLGATE_KILL_SWITCH=\"maybe\": expected `on` or `off`",
            ),
            (
                ("TOLLGATE_KEY_FILE", "/nowhere/key"),
                "key file /nowhere/key: No such file or directory (os error 2)",
            ),
        ];
        for (variable, expected) in faults {
            assert_eq!(fault(&[variable]), expected);
        }
        let small = AgentBuilder::default()
            .queue_bytes(10)
            .build()
            .map(|_| ())
            .expect_err("too small");
        assert_eq!(
            small.to_string(),
            "queue_bytes = 10: expected 65536 to 17179869184"
        );
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_property_that_kafka_does_not_know_is_an_error_before_anything_connects() {
        let wrong = AgentBuilder::default()
            .kafka("127.0.0.1:9")
            .kafka_property("linger", "1");
        let fault = wrong
            .build()
            .map(|_| ())
            .expect_err("no such property")
            .to_string();
        assert!(
            fault.starts_with("kafka: ") && fault.contains("linger"),
            "{fault}"
        );
    }
}
