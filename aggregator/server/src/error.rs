//! Why a server cannot start, or ended by itself.

use std::io;
use std::net::SocketAddr;

use tollgate_log::journal::OpenError;

/// Why a server cannot start, or ended by itself. Whoever runs it chooses what that means for a process.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be bound.
    #[error("{option}: cannot listen on {address}: {source}")]
    Bind {
        /// The option that names the address.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The journal cannot be opened.
    #[error("{0}")]
    Journal(OpenError),
    /// Kafka cannot be the log.
    #[cfg(feature = "kafka")]
    #[error("{0}")]
    Kafka(#[from] tollgate_log::kafka::KafkaFault),
    /// The configuration asks for what this build or this fleet does not have.
    #[error("{0}")]
    Refused(String),
    /// The limits file cannot be read, and there is nothing else to rule by.
    #[error("{0}")]
    LimitsUnreadable(String),
    /// The limits file was read and is invalid, and there is nothing else to rule by.
    #[error("{0}")]
    LimitsInvalid(String),
    /// A thread, a signal handler or a runtime cannot be had.
    #[error("{name}: {source}")]
    Io {
        /// What cannot be had.
        name: String,
        /// What happened.
        source: io::Error,
    },
    /// Our bug.
    #[error("bug: {0}")]
    Bug(String),
}
