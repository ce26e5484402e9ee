//! Checks of settings, before anything is started.
//!
//! What stays true: a file that a setting names is opened only if it is a regular one, since a pipe in its place could
//! hold up the start of the host for ever.

use std::io::{self, Read as _};
use std::path::Path;

use tollgate_shared::domain_key::DomainKey;
use tollgate_shared::file_mode::check_regular;
use tollgate_shared::kafka_properties;
use tollgate_shared::names::check_name;

use super::{AgentBounds, AgentBuilder};
use crate::error::BuildError;
#[cfg(feature = "kafka")]
use crate::net;

/// The default address at which an aggregator listens for agents.
const AGGREGATOR_DEFAULT: &str = "127.0.0.1:7401";

impl AgentBuilder {
    pub(super) fn checked_name(&self) -> Result<String, BuildError> {
        let name = self.name.clone().unwrap_or_else(default_name);
        match check_name(&name) {
            Ok(()) => Ok(name),
            Err(fault) => Err(BuildError::Name { name, fault }),
        }
    }

    pub(super) fn checked_aggregators(&self) -> Result<Vec<String>, BuildError> {
        // Kafka has the aggregators' addresses.
        if self.aggregators.is_empty() && self.kafka.is_some() {
            return Ok(Vec::new());
        }
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

    pub(super) fn check_kafka(&self, name: &str) -> Result<(), BuildError> {
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

    /// Puts the file's properties before those set one by one, which override them.
    pub(super) fn read_kafka_properties(&mut self) -> Result<(), BuildError> {
        let (Some(path), Some(_)) = (&self.kafka_properties_file, &self.kafka) else {
            return Ok(());
        };
        let unread = |source| BuildError::KafkaPropertiesFile {
            path: path.clone(),
            source,
        };
        check_regular(&std::fs::metadata(path)).map_err(unread)?;
        let text = std::fs::read_to_string(path).map_err(unread)?;
        let of_file = kafka_properties::parse(&text);
        let mut properties = of_file.map_err(|fault| BuildError::KafkaProperties {
            path: path.clone(),
            fault,
        })?;
        if kafka_properties::has_secret(&properties) {
            check_kept(&std::fs::metadata(path).map_err(unread)?).map_err(unread)?;
        }
        properties.append(&mut self.kafka_properties);
        self.kafka_properties = properties;
        Ok(())
    }

    pub(super) fn check_bounds(&self) -> Result<(), BuildError> {
        let AgentBounds {
            denials,
            resources,
            threads,
            ring_bytes,
            queue_bytes,
            holds,
        } = self.bounds;
        let relaxed_ms = usize::try_from(self.flush_relaxed.as_millis()).unwrap_or(usize::MAX);
        let bounds = [
            ("flush_relaxed", relaxed_ms, 0, 1_000, "0 to 1000 ms"),
            ("denials_max", denials, 1, 1 << 28, "1 to 268435456"),
            ("holds_max", holds, 64, 1 << 24, "64 to 16777216"),
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

/// The bytes of a file that other users must not be able to read.
fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    check_regular(&std::fs::metadata(path))?;
    let mut file = std::fs::File::open(path)?;
    check_kept(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether the other users of the machine cannot read the file.
fn check_kept(metadata: &std::fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = metadata.permissions().mode();
        tollgate_shared::file_mode::check_secret(mode).map_err(io::Error::other)?;
    }
    #[cfg(not(unix))]
    let _ = metadata;
    Ok(())
}

pub(super) fn read_domain_key(path: &Path) -> Result<DomainKey, BuildError> {
    let key = read_secret(path).map_err(|source| BuildError::DomainKeyFile {
        path: path.to_owned(),
        source,
    })?;
    DomainKey::derive(&key).map_err(|fault| BuildError::DomainKey {
        path: path.to_owned(),
        fault,
    })
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
    use std::ffi::OsString;

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
    fn bad_settings_are_named_with_what_was_expected() {
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
                ("TOLLGATE_DOMAIN_KEY_FILE", "/nowhere/key"),
                "domain key /nowhere/key: No such file or directory (os error 2)",
            ),
            (
                ("TOLLGATE_DOMAIN_KEY_FILE", "/dev/null"),
                "domain key /dev/null: not a regular file",
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

    #[test]
    fn a_pipe_in_place_of_a_file_is_a_fault() {
        let name = format!("tollgate-pipe-{}", std::process::id());
        let pipe = std::env::temp_dir().join(name);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let path = pipe.display().to_string();
        for (variable, setting) in [
            ("TOLLGATE_DOMAIN_KEY_FILE", "domain key"),
            ("TOLLGATE_KAFKA_PROPERTIES_FILE", "kafka properties"),
        ] {
            let fault = fault(&[(variable, &path), ("TOLLGATE_KAFKA", "k:9092")]);
            assert_eq!(fault, format!("{setting} {path}: not a regular file"));
        }
        std::fs::remove_file(&pipe).expect("removed");
    }

    #[test]
    fn calls_wait_a_second_at_most() {
        let builder = AgentBuilder::default().flush_relaxed(std::time::Duration::from_secs(2));
        let fault = builder.build().map(|_| ()).expect_err("too long");
        assert_eq!(
            fault.to_string(),
            "flush_relaxed = 2000: expected 0 to 1000 ms"
        );
    }

    #[test]
    fn kafka_properties_from_a_file_come_before_single_ones() {
        let name = format!("tollgate-properties-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let of_file_of = |mode, text: &str| {
            std::fs::write(&file, text).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&file, mode).expect("set");
            let mut builder = of(&[
                ("TOLLGATE_KAFKA", "k:9092"),
                (
                    "TOLLGATE_KAFKA_PROPERTIES_FILE",
                    &file.display().to_string(),
                ),
            ])
            .expect("good settings")
            .kafka_property("client.rack", "b");
            builder.read_kafka_properties().map(|()| builder)
        };
        let of_file = |text: &str| of_file_of(0o600, text);
        let builder = of_file("# who\nsasl.password = p=w\nclient.rack=a\n").expect("read");
        let expected = [
            ("sasl.password", "p=w"),
            ("client.rack", "a"),
            ("client.rack", "b"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(builder.kafka_properties, expected);
        // A file that everybody can read may contain any property except a password.
        assert!(of_file_of(0o644, "client.rack=a\n").is_ok());
        let exposed = of_file_of(0o644, "sasl.password=p\n");
        let exposed = exposed.map(|_| ()).expect_err("exposed").to_string();
        assert!(exposed.contains(": mode 0644 lets every user"), "{exposed}");
        let fault = of_file("sasl.password p")
            .map(|_| ())
            .expect_err("no property");
        std::fs::remove_file(&file).expect("removed");
        let fault = fault.to_string();
        let expected = ": line 1: expected NAME=VALUE, or # and a remark";
        assert!(fault.ends_with(expected), "{fault}");
        // Without Kafka the file is not read.
        let none = of(&[("TOLLGATE_KAFKA_PROPERTIES_FILE", "/nowhere/file")]);
        assert!(none.expect("good settings").read_kafka_properties().is_ok());
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn an_unknown_kafka_property_fails_before_any_connection() {
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
