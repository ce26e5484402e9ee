//! News of a demonstration's processes, in order; news that is not wanted yet is kept for later. Knows nothing of how
//! news is used. What stays true: no news is lost, except lines of the aggregator's log, of which the last ones are
//! kept.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::fleet::News;

/// Lines of the aggregator's log that are kept, to be shown if the demonstration fails.
const LINES_KEPT: usize = 20;

/// This process was asked to stop by the signal of this number.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted(pub i32);

/// News that has arrived and was not used yet.
pub struct Inbox {
    news: Receiver<News>,
    /// Taken from `news` while waiting for other news.
    put_by: VecDeque<News>,
    last_log: VecDeque<String>,
}

impl Inbox {
    /// An inbox for this receiver.
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

    /// The next news, or `None` if no news arrives in time.
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

    /// Waits for a time, keeping the news that arrives meanwhile.
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

    /// Waits for particular news, keeping all other for later.
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
