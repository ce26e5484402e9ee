//! Why a server cannot start, or ended by itself.

use std::io;
use std::net::SocketAddr;

use tollgate_log::journal::OpenError;

/// Why a server cannot start, or ended by itself. The caller chooses the process's exit code.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be bound.
    #[error("{option}: cannot listen on {address}: {source}")]
    Bind {
        /// The option that names the address.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The journal cannot be opened.
    #[error("{0}")]
    Journal(OpenError),
    /// Kafka cannot be the log.
    #[cfg(feature = "kafka")]
    #[error("{0}")]
    Kafka(#[from] tollgate_log::kafka::KafkaFault),
    /// The configuration asks for something that this build or this fleet does not have.
    #[error("{0}")]
    Refused(String),
    /// The limits file cannot be read, and there is no other limits version.
    #[error("{0}")]
    LimitsUnreadable(String),
    /// The limits file is invalid, and there is no other limits version.
    #[error("{0}")]
    LimitsInvalid(String),
    /// A thread, a signal handler or a runtime could not be created.
    #[error("{name}: {source}")]
    Io {
        /// What could not be created.
        name: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The log could not be closed in order when the process was to stop.
    #[error("the log could not be closed in order: {0}")]
    NotClosed(String),
    /// A bug in Tollgate.
    #[error("bug: {0}")]
    Bug(String),
}
