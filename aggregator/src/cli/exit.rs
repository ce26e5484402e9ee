//! The one table of exit codes, and what a command fails with.

use std::process::ExitCode;

/// How a command ends. The numbers are those of `sysexits.h` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; for `serve`, after SIGTERM or SIGINT.
    Done = 0,
    /// Ran well, and the answer is no: differences, refused.
    No = 1,
    /// The command line is wrong.
    Usage = 64,
    /// The content of an input is bad: limits, cases, an export.
    Data = 65,
    /// An input is missing or cannot be read.
    NoInput = 66,
    /// Kafka or the aggregator cannot be reached.
    Unavailable = 69,
    /// Our bug.
    Software = 70,
    /// An output cannot be created.
    CantCreate = 73,
    /// An I/O error, or a full disk.
    Io = 74,
    /// A version conflict: try again.
    Conflict = 75,
    /// Not authorised.
    NotAuthorised = 77,
    /// The configuration is wrong, a port is taken, a topic does not match.
    Config = 78,
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

/// A command failed: what to say, and how to end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is wrong: in its file, in the environment, or in flags alone.
    #[error("{0}")]
    Config(#[from] crate::config::Faults),
    /// An input cannot be read.
    #[error("{name}: {source}")]
    Input {
        /// The input's name.
        name: String,
        /// Why not.
        source: std::io::Error,
    },
    /// An input was read and is bad; every line says a place and what was expected there.
    #[error("{0}")]
    Data(String),
    /// The limits file cannot be read, and there is nothing else to rule by.
    #[error("{0}")]
    LimitsUnreadable(String),
    /// The command line is wrong in a way that its parser cannot know.
    #[error("{0}")]
    Usage(String),
    /// An output cannot be created.
    #[error("{name}: {source}")]
    Create {
        /// The output's name.
        name: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Reading or writing failed under way.
    #[error("{name}: {source}")]
    Io {
        /// What was read or written.
        name: String,
        /// What happened.
        source: std::io::Error,
    },
    /// An address cannot be bound.
    #[error("{option}: cannot listen on {address}: {source}")]
    Bind {
        /// The option that names the address.
        option: &'static str,
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The log cannot be opened.
    #[error("{text}")]
    Log {
        /// How to end.
        exit: Exit,
        /// What the log says.
        text: String,
    },
    /// Nobody answers at an address.
    #[error("{0}")]
    Unavailable(String),
    /// Who reads our output went away: nothing to say.
    #[error("nobody reads the output any more")]
    Unread,
    /// A demonstration could not be brought to its end.
    #[error("demo: {0}")]
    Demo(String),
    /// Our bug.
    #[error("bug: {0}")]
    Bug(String),
}

impl Failure {
    /// How the process ends.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(faults) if faults.are_of_flags() => Exit::Usage,
            Self::Config(_) | Self::Bind { .. } => Exit::Config,
            Self::Input { .. } | Self::LimitsUnreadable(_) => Exit::NoInput,
            Self::Data(_) => Exit::Data,
            Self::Usage(_) => Exit::Usage,
            Self::Create { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => Exit::NotAuthorised,
                _ => Exit::CantCreate,
            },
            Self::Io { .. } => Exit::Io,
            Self::Log { exit, .. } => *exit,
            Self::Unavailable(_) | Self::Demo(_) => Exit::Unavailable,
            Self::Unread => Exit::Done,
            Self::Bug(_) => Exit::Software,
        }
    }
}

impl From<crate::domains::KeyFileFault> for Failure {
    fn from(fault: crate::domains::KeyFileFault) -> Self {
        use crate::domains::KeyFileFault;

        match fault {
            KeyFileFault::Unreadable { name, source } => Self::Input {
                name: format!("domain key {name}"),
                source,
            },
            bad @ KeyFileFault::Bad { .. } => Self::Data(bad.to_string()),
        }
    }
}

#[cfg(feature = "kafka")]
impl From<crate::log::kafka::KafkaFault> for Failure {
    fn from(fault: crate::log::kafka::KafkaFault) -> Self {
        use crate::log::kafka::KafkaFault;
        let exit = match fault {
            KafkaFault::Unreachable { .. } => Exit::Unavailable,
            KafkaFault::NotAuthorised { .. } | KafkaFault::NotAuthenticated { .. } => {
                Exit::NotAuthorised
            }
            _ => Exit::Config,
        };
        Self::Log {
            exit,
            text: fault.to_string(),
        }
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
            (Exit::Interrupted, 130),
            (Exit::Terminated, 143),
        ];
        for (exit, code) in table {
            assert_eq!(exit as u8, code, "{exit:?}");
        }
    }
}
