//! What can be wrong with an agent's settings. An unreachable network is never an error.

use std::path::PathBuf;

use tollgate_shared::domain_key::DomainKeyFault;
use tollgate_shared::kafka_properties::PropertiesFault;
use tollgate_shared::names::NameFault;

/// Why an agent was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The agent's name is not valid.
    #[error("agent name {name:?}: {fault}")]
    Name {
        /// The name in the settings.
        name: String,
        /// Why it is invalid.
        fault: NameFault,
    },
    /// An aggregator's address is not `host:port`.
    #[error("aggregator {address:?}: expected `host:port`, as in `127.0.0.1:7401`")]
    Aggregator {
        /// The address in the settings.
        address: String,
    },
    /// Kafka's address is not `host:port`.
    #[error(
        "kafka {address:?}: expected `host:port` or several with commas, as in `127.0.0.1:9092`"
    )]
    Kafka {
        /// The address in the settings.
        address: String,
    },
    /// Kafka is configured, and the agent was built without the feature `kafka`.
    #[error("kafka {address:?}: this agent was built without the feature `kafka`")]
    WithoutKafka {
        /// Kafka's address in the settings.
        address: String,
    },
    /// The Kafka client does not accept a property.
    #[error("kafka: {0}")]
    KafkaProperty(Box<str>),
    /// The file with properties of the Kafka client cannot be read.
    #[error("kafka properties {}: {source}", path.display())]
    KafkaPropertiesFile {
        /// Where the agent looked for it.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A line in the file with properties of the Kafka client is not `NAME=VALUE`.
    #[error("kafka properties {}: {fault}", path.display())]
    KafkaProperties {
        /// The file.
        path: PathBuf,
        /// What is wrong with the line.
        fault: PropertiesFault,
    },
    /// The domain key cannot be used.
    #[error("domain key {}: {fault}", path.display())]
    DomainKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with the key.
        fault: DomainKeyFault,
    },
    /// The domain key cannot be read.
    #[error("domain key {}: {source}", path.display())]
    DomainKeyFile {
        /// Where the agent looked for it.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file for TLS, or the token file, cannot be used.
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Tls(Box<tollgate_tls::TlsFault>),
    /// Kafka has the aggregators' addresses, and no name was set for their certificates.
    #[cfg(feature = "tls")]
    #[error(
        "no TLS server name (TOLLGATE_TLS_SERVER_NAME), expected the one that the fleet's certificates are for"
    )]
    NoServerName,
    /// A certificate, a key or a server name is set without a CA file.
    #[cfg(feature = "tls")]
    #[error(
        "a TLS certificate, key or server name without a CA file, expected TOLLGATE_TLS_CA_FILE beside it"
    )]
    NoCaFile,
    /// TLS or a token is configured, and the agent was built without the feature `tls`.
    #[cfg(not(feature = "tls"))]
    #[error(
        "TLS or a token file is configured, and this agent was built without the feature `tls`"
    )]
    WithoutTls,
    /// `TOLLGATE_INSECURE` has a value other than `trusted-network`.
    #[error("TOLLGATE_INSECURE={value:?}: expected `trusted-network`, or nothing")]
    Insecure {
        /// The value found.
        value: String,
    },
    /// The epoch file cannot be read or written.
    #[error("epoch file {}: {source}", path.display())]
    EpochFile {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A switch is neither `on` nor `off`.
    #[error("{variable}={value:?}: expected `on` or `off`")]
    Switch {
        /// The environment variable.
        variable: &'static str,
        /// The value found.
        value: String,
    },
    /// An environment variable is not UTF-8.
    #[error("{variable}: is not UTF-8")]
    Unreadable {
        /// The environment variable.
        variable: &'static str,
    },
    /// A bound is out of its range.
    #[error("{setting} = {found}: expected {expected}")]
    Bound {
        /// The setting.
        setting: &'static str,
        /// The value in the settings.
        found: usize,
        /// The values allowed.
        expected: &'static str,
    },
    /// The operating system could not start a thread.
    #[error("no thread for the agent: {0}")]
    Thread(std::io::Error),
}
