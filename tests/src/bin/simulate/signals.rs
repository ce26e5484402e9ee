//! Who is interrupted: what is in hand is ended, and told. Who is interrupted twice ends at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use tokio::signal::unix::{SignalKind, signal};
use tollgate::exit::Exit;

/// Whether to stop, and by what.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Set by the first.
    pub stop: Arc<AtomicBool>,
    by: Arc<OnceLock<Exit>>,
}

impl Signals {
    /// Listens from now on, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Where the system has no thread, or no handler, to give.
    pub fn listen() -> io::Result<Self> {
        let signals = Self::default();
        let (ready, listens) = mpsc::channel();
        let heard = signals.clone();
        std::thread::Builder::new().spawn(move || {
            // Nobody waits any more where it is not ready.
            let _ = ready.send(heard.hear(&ready));
        })?;
        listens.recv().map_err(io::Error::other)?.map(|()| signals)
    }

    /// How it ends who was stopped.
    pub fn exit(&self) -> Option<Exit> {
        self.by.get().copied()
    }

    fn hear(&self, ready: &mpsc::Sender<io::Result<()>>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            let _ = ready.send(Ok(()));
            loop {
                let by = tokio::select! {
                    _ = interrupt.recv() => Exit::Interrupted,
                    _ = terminate.recv() => Exit::Terminated,
                };
                if self.by.set(by).is_err() {
                    std::process::exit(by as i32);
                }
                self.stop.store(true, Ordering::Relaxed);
                eprintln!("stopping when the seeds in hand are done; once more: at once");
            }
        })
    }
}
