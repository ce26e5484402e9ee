//! Signals: SIGTERM and SIGINT shut the process down, SIGHUP reads the limits file again. SIGXFSZ, which would kill the
//! process, does nothing: a write beyond the allowed length of a file (`ulimit -f`) then fails like one to a full disk.

use rustix::process::Signal as SignalNumber;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::ServeError;

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
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
    /// Resolves when standard input has ended; `None` if that is ignored.
    stdin: Option<oneshot::Receiver<()>>,
}

impl Signals {
    /// Begins to catch signals, and the end of standard input if `with_stdin`.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    pub fn catch(with_stdin: bool) -> Result<Self, ServeError> {
        let catch = |kind| {
            signal(kind).map_err(|source| ServeError::Io {
                name: "signals".to_owned(),
                source,
            })
        };
        // It stays caught when its receiver is dropped.
        drop(catch(SignalKind::from_raw(SignalNumber::XFSZ.as_raw()))?);
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
            stdin: with_stdin.then(end_of_stdin),
        })
    }

    /// The next request.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            () = ended(&mut self.stdin) => SignalRequest::Stop,
            _ = self.hang_up.recv() => SignalRequest::ReadLimits,
        }
    }
}

async fn ended(stdin: &mut Option<oneshot::Receiver<()>>) {
    match stdin {
        Some(stdin) => drop(stdin.await),
        None => std::future::pending().await,
    }
}

fn end_of_stdin() -> oneshot::Receiver<()> {
    let (ended, receiver) = oneshot::channel();
    // A thread, because standard input cannot be awaited on every system; it ends with the process.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    receiver
}
