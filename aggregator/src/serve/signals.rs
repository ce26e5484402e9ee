//! Signals: SIGTERM and SIGINT end the process in order, SIGHUP has the limits file read again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::exit::Failure;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Stop.
    Stop,
    /// Read the limits file again.
    ReadLimits,
}

/// The signals of this process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Begins to catch them.
    ///
    /// # Errors
    ///
    /// Where the operating system does not let us.
    pub fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|source| Failure::Io {
                name: "signals".to_owned(),
                source,
            })
        };
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hang_up.recv() => Asked::ReadLimits,
        }
    }
}
