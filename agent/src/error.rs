//! What can be wrong with an agent's settings. The network is never among it.

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
        /// What was given.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// An aggregator's address is not `host:port`.
    #[error("aggregator {address:?}: expected `host:port`, as in `127.0.0.1:7401`")]
    Aggregator {
        /// What was given.
        address: String,
    },
    /// Kafka's address is not `host:port`.
    #[error(
        "kafka {address:?}: expected `host:port` or several with commas, as in `127.0.0.1:9092`"
    )]
    Kafka {
        /// What was given.
        address: String,
    },
    /// Kafka is configured, and the agent was built without the feature `kafka`.
    #[error("kafka {address:?}: this agent was built without the feature `kafka`")]
    WithoutKafka {
        /// What was given.
        address: String,
    },
    /// The Kafka client does not accept a property.
    #[error("kafka: {0}")]
    KafkaProperty(Box<str>),
    /// The file with properties of the Kafka client cannot be read.
    #[error("kafka properties {}: {source}", path.display())]
    KafkaPropertiesFile {
        /// Where it was looked for.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A line in the file with properties of the Kafka client is not `NAME=VALUE`.
    #[error("kafka properties {}: {fault}", path.display())]
    KafkaProperties {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        fault: PropertiesFault,
    },
    /// The key file cannot be read.
    #[error("key file {}: {source}", path.display())]
    KeyFile {
        /// Where it was looked for.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The key file is too short or too long.
    #[error("key file {}: has {bytes} bytes, expected 16 to 4096", path.display())]
    KeyLength {
        /// Where it is.
        path: PathBuf,
        /// How many it has.
        bytes: usize,
    },
    /// The domain key cannot be used.
    #[error("domain key {}: {fault}", path.display())]
    DomainKey {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        fault: DomainKeyFault,
    },
    /// The domain key cannot be read.
    #[error("domain key {}: {source}", path.display())]
    DomainKeyFile {
        /// Where it was looked for.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file for TLS, or the one with the token, cannot be used.
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Tls(Box<tollgate_tls::TlsFault>),
    /// Aggregators are found by Kafka, and no name was set that their certificates have to be for.
    #[cfg(feature = "tls")]
    #[error(
        "no TLS server name (TOLLGATE_TLS_SERVER_NAME), expected the one that the fleet's certificates are for"
    )]
    NoServerName,
    /// There is a certificate, a key or a server name, and no CA.
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
    /// The word by which a network is trusted is another.
    #[error("TOLLGATE_INSECURE={value:?}: expected `trusted-network`, or nothing")]
    Insecure {
        /// What was given.
        value: String,
    },
    /// The epoch file cannot be read or written.
    #[error("epoch file {}: {source}", path.display())]
    EpochFile {
        /// Where it is.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A switch is neither on nor off.
    #[error("{variable}={value:?}: expected `on` or `off`")]
    Switch {
        /// The environment variable.
        variable: &'static str,
        /// What it was set to.
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
        /// What was given.
        found: usize,
        /// What may be.
        expected: &'static str,
    },
    /// The operating system gave no thread.
    #[error("no thread for the agent: {0}")]
    Thread(std::io::Error),
}
