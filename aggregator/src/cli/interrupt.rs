//! SIGINT, SIGTERM, SIGHUP and SIGXFSZ in commands that run for a while.
//!
//! ```text
//! a file that is being written     removed, then the command ends with 130, 143 or 129
//! a command that goes on for ever  asks whether it is to stop, completes its result, and ends with 0
//! a file beyond `ulimit -f`        cannot be written, as on a full disk (SIGXFSZ would kill the command)
//! ```
//!
//! `hit`, `demo`, `serve` and `gateway` have handlers of their own. Under `nohup` a closed terminal ends nothing. What
//! stays true: a command that a signal ends leaves no temporary file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};
use crate::hang_up::HangUp;

/// How often a command that waits looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The temporary files of this process.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether a signal ends the command.
static IS_ENDED_BY_SIGNALS: Mutex<bool> = Mutex::new(false);

/// Creates a file that a signal removes if it ends the command.
///
/// # Errors
///
/// If it cannot be created.
pub fn create_temporary(path: &Path) -> io::Result<File> {
    let mut files = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::create(path)?;
    files.push(path.to_owned());
    Ok(file)
}

/// From now on, a signal removes temporary files and ends the command.
///
/// # Errors
///
/// If signals cannot be received.
pub fn end_on_signal() -> io::Result<()> {
    let mut is_set = IS_ENDED_BY_SIGNALS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !*is_set {
        on_signals(end)?;
        *is_set = true;
    }
    Ok(())
}

fn end(exit: Exit) {
    // The lock is held until the end, so no other file is created.
    let files = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    for file in &*files {
        // A complete one has got its name.
        let _ = std::fs::remove_file(file);
    }
    std::process::exit(exit as i32);
}

/// Whether a command is to stop.
#[derive(Clone, Debug, Default)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Is made by the first signal; a second one ends the process, whatever it does.
    ///
    /// # Errors
    ///
    /// [`Failure::Io`] if signals cannot be received.
    pub fn on_signal() -> Result<Self, Failure> {
        let request = Self::default();
        let made = request.clone();
        let heard = on_signals(move |exit| {
            if made.0.swap(true, Ordering::Relaxed) {
                end(exit);
            }
        });
        heard.map_err(|source| Failure::Io {
            name: "signals".to_owned(),
            source,
        })?;
        Ok(request)
    }

    /// Whether it was made.
    pub fn is_made(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for a time, or until it is made; returns whether it is made.
    pub fn wait(&self, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        while !self.is_made() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
        true
    }

    /// Waits until it is made.
    pub async fn made(&self) {
        while !self.is_made() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Calls `each` for each signal, on a thread of its own, with the exit code of a command that the signal ends.
fn on_signals(mut each: impl FnMut(Exit) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = HangUp::caught()?;
    // It stays caught when its receiver is dropped.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    drop(guard);
    let wait = move || loop {
        let exit = runtime.block_on(async {
            tokio::select! {
                () = hang_up.received() => Exit::HungUp,
                _ = interrupt.recv() => Exit::Interrupted,
                _ = terminate.recv() => Exit::Terminated,
            }
        });
        each(exit);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)?;
    Ok(())
}
