//! Partitions that wait to be restored, for the threads that restore them.
//!
//! ```text
//! core  ── push ──> jobs, the untried ones first ── next ──> a thread ──> restored
//!                     ^                                         │
//!                     └── tried again after a moment ── failed ─┘
//! group ── assigned, revoked ──> which jobs are still wanted
//! ```
//!
//! Knows nothing of Kafka and of snapshots. What stays true: a partition that cannot be restored keeps a thread no
//! longer than one attempt takes while others wait; a job is forgotten once its partition was revoked, or has a newer
//! job.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::core::assignment::Known;

/// How long to wait before restoring a partition is tried again: Kafka may not answer at the moment.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How often the failure of one partition is logged.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// A partition to restore.
pub(super) struct RestoreJob {
    pub partition: u32,
    pub attempt: u64,
    pub known: Box<Known>,
    /// When it failed for the last time.
    failed: Option<Instant>,
    /// When a failure was logged for the last time.
    logged: Option<Instant>,
}

impl RestoreJob {
    pub fn new(partition: u32, attempt: u64, known: Box<Known>) -> Self {
        Self {
            partition,
            attempt,
            known,
            failed: None,
            logged: None,
        }
    }

    /// How long it has to wait before it is tried again.
    fn waits(&self, now: Instant) -> Duration {
        let due = self.failed.map(|failed| failed + RETRY_AFTER);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// Whether its failure is to be logged now.
    fn is_to_be_logged(&mut self, now: Instant) -> bool {
        let is_due = self.logged.is_none_or(|at| TELL_EVERY <= now - at);
        if is_due {
            self.logged = Some(now);
        }
        is_due
    }
}

/// The queue, shared by the threads.
#[derive(Default)]
pub(super) struct RestoreQueue {
    jobs: Mutex<RestoreJobs>,
    /// A job came or failed, or the queue was closed.
    changed: Condvar,
}

impl RestoreQueue {
    /// The group assigned these partitions to this process.
    pub fn assigned(&self, partitions: &[u32]) {
        self.lock().assigned(partitions);
    }

    /// The group gave these partitions to another process.
    pub fn revoked(&self, partitions: &[u32]) {
        self.lock().revoked(partitions);
    }

    /// The partitions that are assigned to this process, in order.
    pub fn ours(&self) -> Vec<u32> {
        self.lock().newest.keys().copied().collect()
    }

    pub fn push(&self, job: RestoreJob) {
        self.lock().push(job);
        self.changed.notify_one();
    }

    /// The next job; waits for it. `None` once the queue is closed.
    pub fn next(&self) -> Option<RestoreJob> {
        let mut jobs = self.lock();
        while !jobs.is_closed {
            let now = Instant::now();
            if let Some(job) = jobs.take(now) {
                return Some(job);
            }
            jobs = match jobs.waits(now) {
                Some(time) => {
                    let waited = self.changed.wait_timeout(jobs, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(jobs);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        None
    }

    /// A job failed: it is tried again later, if it is still wanted.
    pub fn failed(&self, mut job: RestoreJob, error: &dyn std::fmt::Display) {
        let now = Instant::now();
        if job.is_to_be_logged(now) {
            tracing::error!(partition = job.partition, %error, "a partition cannot be restored yet");
        }
        self.lock().failed(job, now);
        self.changed.notify_one();
    }

    /// Lets the threads end.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, RestoreJobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct RestoreJobs {
    /// The partitions of this process, and the newest attempt to restore each, if there was one.
    newest: BTreeMap<u32, Option<u64>>,
    waiting: VecDeque<RestoreJob>,
    is_closed: bool,
}

impl RestoreJobs {
    fn assigned(&mut self, partitions: &[u32]) {
        for partition in partitions {
            self.newest.entry(*partition).or_default();
        }
    }

    fn revoked(&mut self, partitions: &[u32]) {
        self.newest.retain(|of, _| !partitions.contains(of));
        self.forget_unwanted();
    }

    fn push(&mut self, job: RestoreJob) {
        // The core learns later than this queue that a partition was revoked.
        if let Some(newest) = self.newest.get_mut(&job.partition) {
            *newest = Some(job.attempt);
            self.waiting.push_back(job);
            self.forget_unwanted();
        }
    }

    fn failed(&mut self, mut job: RestoreJob, now: Instant) {
        job.failed = Some(now);
        self.waiting.push_back(job);
        self.forget_unwanted();
    }

    fn forget_unwanted(&mut self) {
        let newest = &self.newest;
        self.waiting
            .retain(|job| newest.get(&job.partition) == Some(&Some(job.attempt)));
    }

    /// Takes the first job that was not tried yet, or else the first that may be tried again.
    fn take(&mut self, now: Instant) -> Option<RestoreJob> {
        let mut jobs = self.waiting.iter();
        let untried = jobs.position(|job| job.failed.is_none());
        let is_due = |job: &RestoreJob| job.waits(now).is_zero();
        let at = untried.or_else(|| self.waiting.iter().position(is_due))?;
        self.waiting.remove(at)
    }

    /// How long until a job may be tried again; `None`: no job waits.
    fn waits(&self, now: Instant) -> Option<Duration> {
        self.waiting.iter().map(|job| job.waits(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limits::versions::LimitsBook;

    use super::*;

    fn job(partition: u32, attempt: u64) -> RestoreJob {
        let known = Known {
            book: LimitsBook::default(),
            limits_next: 0,
            before: None,
        };
        RestoreJob::new(partition, attempt, Box::new(known))
    }

    fn jobs(partitions: &[u32]) -> RestoreJobs {
        let mut jobs = RestoreJobs::default();
        jobs.assigned(partitions);
        for partition in partitions {
            jobs.push(job(*partition, 1));
        }
        jobs
    }

    /// The partition and the attempt of the job that is taken.
    fn taken(jobs: &mut RestoreJobs, now: Instant) -> Option<(u32, u64)> {
        let job = jobs.take(now)?;
        Some((job.partition, job.attempt))
    }

    #[test]
    fn partitions_that_cannot_be_restored_keep_no_other_waiting() {
        let mut jobs = jobs(&[0, 1, 2, 3]);
        let mut now = Instant::now();
        let mut restored = Vec::new();
        // Two threads; partitions 0 and 1 fail each time, after ten seconds.
        for _ in 0..3 {
            let both = [jobs.take(now), jobs.take(now)];
            now += Duration::from_secs(10);
            for job in both.into_iter().flatten() {
                match job.partition < 2 {
                    true => jobs.failed(job, now),
                    false => restored.push(job.partition),
                }
            }
        }
        assert_eq!(restored, [2, 3]);
    }

    #[test]
    fn a_failed_job_waits_a_moment_and_lets_new_ones_pass() {
        let mut jobs = jobs(&[0]);
        let now = Instant::now();
        let failed = jobs.take(now).expect("a job");
        assert_eq!(jobs.waits(now), None);
        jobs.failed(failed, now);
        assert_eq!(taken(&mut jobs, now), None);
        assert_eq!(jobs.waits(now), Some(RETRY_AFTER));
        jobs.assigned(&[1]);
        jobs.push(job(1, 1));
        let later = now + RETRY_AFTER;
        assert_eq!(taken(&mut jobs, later), Some((1, 1)));
        assert_eq!(taken(&mut jobs, later), Some((0, 1)));
    }

    #[test]
    fn a_job_ends_with_its_partition_or_a_newer_job() {
        let mut jobs = jobs(&[0, 1, 2]);
        let now = Instant::now();
        let later = now + RETRY_AFTER;
        let tried = [jobs.take(now), jobs.take(now), jobs.take(now)];
        let [of_0, of_1, of_2] = tried.map(|job| job.expect("a job"));
        jobs.failed(of_0, now);
        jobs.revoked(&[0, 1]);
        jobs.failed(of_1, now);
        // The core does not know yet that it was revoked.
        jobs.push(job(1, 2));
        jobs.push(job(2, 2));
        assert_eq!(taken(&mut jobs, later), Some((2, 2)));
        jobs.failed(of_2, later);
        assert_eq!(taken(&mut jobs, later + RETRY_AFTER), None);
        jobs.assigned(&[0]);
        jobs.push(job(0, 3));
        assert_eq!(taken(&mut jobs, later), Some((0, 3)));
    }

    #[test]
    fn threads_wait_for_jobs_until_the_queue_is_closed() {
        let queue = RestoreQueue::default();
        queue.assigned(&[4]);
        let got: Vec<u32> = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let jobs = std::iter::from_fn(|| queue.next());
                jobs.map(|job| job.partition)
                    .inspect(|_| queue.close())
                    .collect()
            });
            queue.push(job(4, 1));
            thread.join().expect("no panic")
        });
        assert_eq!((got, queue.ours()), (vec![4], vec![4]));
    }

    #[test]
    fn failures_of_a_partition_are_logged_once_a_minute() {
        let mut job = job(0, 1);
        let now = Instant::now();
        assert!(job.is_to_be_logged(now));
        assert!(!job.is_to_be_logged(now + Duration::from_secs(59)));
        assert!(job.is_to_be_logged(now + Duration::from_secs(60)));
    }
}
