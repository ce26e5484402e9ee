//! The news of a demonstration's processes, one after the other, and whatever is not wanted yet kept for
//! later. Knows nothing of what is done about them. What stays true: no news is lost but lines of the
//! aggregator's log, of which the last ones are kept.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::fleet::News;

/// Lines of the aggregator's log that are kept, to be shown if the demonstration fails.
const LINES_KEPT: usize = 20;

/// Somebody asked us to stop: the number of the signal.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted(pub i32);

/// What has been said and not been heard yet.
pub struct Inbox {
    news: Receiver<News>,
    /// Taken from `news` while waiting for something else.
    put_by: VecDeque<News>,
    last_log: VecDeque<String>,
}

impl Inbox {
    /// One that hears what is said there.
    pub fn new(news: Receiver<News>) -> Self {
        Self {
            news,
            put_by: VecDeque::new(),
            last_log: VecDeque::new(),
        }
    }

    /// The last lines of the aggregator's log.
    pub fn last_log(&self) -> impl Iterator<Item = &String> {
        self.last_log.iter()
    }

    /// The next news, or none within the time.
    pub fn next(&mut self, within: Duration) -> anyhow::Result<Option<News>> {
        if let Some(news) = self.put_by.pop_front() {
            return Ok(Some(news));
        }
        match self.news.recv_timeout(within) {
            Ok(News::Interrupted(signal)) => Err(Interrupted(signal).into()),
            Ok(News::Logged(line)) => {
                self.last_log.push_back(line);
                if LINES_KEPT < self.last_log.len() {
                    self.last_log.pop_front();
                }
                Ok(None)
            }
            Ok(news) => Ok(Some(news)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// Lets time pass, keeping for later what is said meanwhile.
    pub fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let put_by = std::mem::take(&mut self.put_by);
        let until = Instant::now() + time;
        let mut later = put_by;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Some(news) = self.next(left)? {
                later.push_back(news);
            }
        }
        self.put_by = later;
        Ok(())
    }

    /// Waits for something to be said, keeping everything else for later.
    pub fn wait_for<T>(
        &mut self,
        within: Duration,
        what: &str,
        mut wanted: impl FnMut(&News) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + within;
        let mut later = VecDeque::new();
        let found = loop {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                bail!("waited {} s for {what}", within.as_secs());
            };
            if let Some(news) = self.next(left)? {
                match wanted(&news)? {
                    Some(found) => break found,
                    None => later.push_back(news),
                }
            }
        };
        later.append(&mut self.put_by);
        self.put_by = later;
        Ok(found)
    }
}
