//! SIGHUP, which a terminal sends to its processes when it is closed.
//!
//! Knows nothing of what it ends. What stays true: under `nohup` it ends nothing.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signal.
pub struct HangUp(Option<Signal>);

impl HangUp {
    /// Catches it from now on, unless this process was started so that it ends nothing. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If signals cannot be received.
    pub fn caught() -> io::Result<Self> {
        Ok(Self(match ignores_hang_up() {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        }))
    }

    /// Waits for it.
    pub async fn received(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Whether this process was started so that a closed terminal does not end it, as by `nohup`.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1.
    mask.is_some_and(|mask| mask & 1 == 1)
}
