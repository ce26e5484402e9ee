//! The table of exit codes, and the failures of commands.

use std::process::ExitCode;

use tollgate_log::journal::OpenError;
use tollgate_server::ServeError;
use tollgate_server::record_keys::RecordKeyFault;
use tollgate_tls::TlsFault;

/// How a command ends. The numbers are those of `sysexits.h`, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; for commands without an end of their own, after SIGTERM or SIGINT.
    Done = 0,
    /// Ran well, but the answer is negative: differences, refused.
    No = 1,
    /// The command line is invalid.
    Usage = 64,
    /// The content of an input is invalid: limits, cases, an export.
    Data = 65,
    /// An input is missing or cannot be read.
    NoInput = 66,
    /// Kafka or the aggregator cannot be reached.
    Unavailable = 69,
    /// A bug in Tollgate.
    Software = 70,
    /// An output cannot be created.
    CantCreate = 73,
    /// An I/O error, or a full disk.
    Io = 74,
    /// A version conflict: try again.
    Conflict = 75,
    /// Not authorised.
    NotAuthorised = 77,
    /// The configuration is invalid, a port is taken, a topic does not match.
    Config = 78,
    /// The terminal of a one-shot command was closed.
    HungUp = 129,
    /// A one-shot command was interrupted.
    Interrupted = 130,
    /// A one-shot command was terminated.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failure of a command: its message and its exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is invalid: in its file, the environment, or only in flags.
    #[error("{0}")]
    Config(#[from] tollgate_server::config::OptionFaults),
    /// An input cannot be read.
    #[error("{name}: {source}")]
    Input {
        /// The input's name.
        name: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// An input is invalid; every line states a place and what was expected there.
    #[error("{0}")]
    Data(String),
    /// The command line is invalid in a way that its parser cannot check.
    #[error("{0}")]
    Usage(String),
    /// An output cannot be created.
    #[error("{name}: {source}")]
    Create {
        /// The output's name.
        name: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// An output exists, and is not overwritten.
    #[error("{0}")]
    Exists(String),
    /// Reading or writing failed.
    #[error("{name}: {source}")]
    Io {
        /// What was read or written.
        name: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The server cannot start, or ended by itself.
    #[error("{0}")]
    Serve(#[from] ServeError),
    /// The log cannot be opened, or no aggregator lets this process in.
    #[error("{text}")]
    Log {
        /// The exit code.
        exit: Exit,
        /// The message.
        text: String,
    },
    /// No aggregator answers at an address.
    #[error("{0}")]
    Unavailable(String),
    /// The reader of the output has closed it: there is nothing to report.
    #[error("the reader of the output closed it")]
    Unread,
    /// A gateway cannot listen.
    #[error("gateway: {0}")]
    Gateway(String),
    /// A demonstration could not be completed.
    #[error("demo: {0}")]
    Demo(String),
    /// A bug in Tollgate.
    #[error("bug: {0}")]
    Bug(String),
}

impl Failure {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(faults) if faults.are_of_no_file() => Exit::Usage,
            Self::Config(_) | Self::Gateway(_) => Exit::Config,
            Self::Input { .. } => Exit::NoInput,
            Self::Data(_) => Exit::Data,
            Self::Usage(_) => Exit::Usage,
            Self::Create { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => Exit::NotAuthorised,
                std::io::ErrorKind::StorageFull => Exit::Io,
                _ => Exit::CantCreate,
            },
            Self::Exists(_) => Exit::CantCreate,
            Self::Io { .. } => Exit::Io,
            Self::Log { exit, .. } => *exit,
            Self::Serve(error) => exit_of(error),
            Self::Unavailable(_) | Self::Demo(_) => Exit::Unavailable,
            Self::Unread => Exit::Done,
            Self::Bug(_) => Exit::Software,
        }
    }
}

impl From<tollgate_server::domains::KeyFileFault> for Failure {
    fn from(fault: tollgate_server::domains::KeyFileFault) -> Self {
        use tollgate_server::domains::KeyFileFault;

        match fault {
            KeyFileFault::Unreadable { name, source } => Self::Input {
                name: format!("domain key {name}"),
                source,
            },
            bad @ (KeyFileFault::Bad { .. } | KeyFileFault::File(_)) => Self::Data(bad.to_string()),
        }
    }
}

impl Failure {
    /// The failure to use a file with record keys, which the option `of` names.
    pub fn of_key_file(of: &str, fault: RecordKeyFault) -> Self {
        match fault {
            RecordKeyFault::File(TlsFault::Read { path, source }) => Self::Input {
                name: format!("{of}: {}", path.display()),
                source,
            },
            fault => Self::Data(format!("{of}: {fault}")),
        }
    }
}

#[cfg(feature = "kafka")]
impl From<tollgate_log::kafka::KafkaFault> for Failure {
    fn from(fault: tollgate_log::kafka::KafkaFault) -> Self {
        Self::Log {
            exit: exit_of_kafka(&fault),
            text: fault.to_string(),
        }
    }
}

fn exit_of(error: &ServeError) -> Exit {
    match error {
        ServeError::Bind { .. } | ServeError::Refused(_) => Exit::Config,
        ServeError::Journal(error) => exit_of_journal(error),
        #[cfg(feature = "kafka")]
        ServeError::Kafka(fault) => exit_of_kafka(fault),
        ServeError::LimitsUnreadable(_) => Exit::NoInput,
        ServeError::LimitsInvalid(_) => Exit::Data,
        ServeError::Io { .. } | ServeError::NotClosed(_) => Exit::Io,
        ServeError::Bug(_) => Exit::Software,
    }
}

fn exit_of_journal(error: &OpenError) -> Exit {
    let denied = |source: &std::io::Error| source.kind() == std::io::ErrorKind::PermissionDenied;
    match error {
        OpenError::CannotCreate { source, .. }
        | OpenError::NotWritable { source, .. }
        | OpenError::Io { source, .. }
            if denied(source) =>
        {
            Exit::NotAuthorised
        }
        OpenError::CannotCreate { .. } | OpenError::NotWritable { .. } => Exit::CantCreate,
        OpenError::InUse { .. } | OpenError::OtherPartitions { .. } => Exit::Config,
        OpenError::NotAJournal { .. } => Exit::NoInput,
        OpenError::Newer { .. } | OpenError::Corrupt(_) | OpenError::Damaged { .. } => Exit::Data,
        OpenError::Io { .. } => Exit::Io,
    }
}

#[cfg(feature = "kafka")]
fn exit_of_kafka(fault: &tollgate_log::kafka::KafkaFault) -> Exit {
    use tollgate_log::kafka::KafkaFault;

    match fault {
        KafkaFault::Unreachable { .. } => Exit::Unavailable,
        KafkaFault::NotAuthorised { .. } | KafkaFault::NotAuthenticated { .. } => {
            Exit::NotAuthorised
        }
        _ => Exit::Config,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let table = [
            (Exit::Done, 0),
            (Exit::No, 1),
            (Exit::Usage, 64),
            (Exit::Data, 65),
            (Exit::NoInput, 66),
            (Exit::Unavailable, 69),
            (Exit::Software, 70),
            (Exit::CantCreate, 73),
            (Exit::Io, 74),
            (Exit::Conflict, 75),
            (Exit::NotAuthorised, 77),
            (Exit::Config, 78),
            (Exit::HungUp, 129),
            (Exit::Interrupted, 130),
            (Exit::Terminated, 143),
        ];
        for (exit, code) in table {
            assert_eq!(exit as u8, code, "{exit:?}");
            let row = format!("| {code} |");
            let manual = include_str!("../../deploy/MANUAL.md");
            assert!(manual.contains(&row), "MANUAL.md has no row {row}");
        }
    }
}
