//! One partition's queue: the batch that is being filled, and those that are full.
//!
//! Knows nothing of calls. What stays true: a batch that is handed over is accounted for; a batch that is not urgent
//! stays until the packer decides that it has waited long enough.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use tollgate_shared::time::Span;

use crate::batch::calls::{CallBatch, Loads};
use crate::clock::Mono;

/// With fewer batches in flight than this, a queue hands over at once.
const EAGER: u32 = 2;

/// With this many batches in flight or more, a queue hands nothing over. A courier's sequences may be 127 apart.
const LOAD_MAX: u32 = 100;

/// How long a queue that is not eager gathers.
pub(super) const GATHER: Span = Span::from_millis(5);

/// One partition's queue.
#[derive(Debug)]
pub(super) struct PartitionQueue {
    pub(super) open: CallBatch,
    pub(super) opened: Mono,
    /// Something in the open batch must not wait.
    pub(super) is_urgent: bool,
    /// Something in the open batch waits shortly.
    pub(super) waits_shortly: bool,
    pub(super) full: VecDeque<CallBatch>,
    /// Entries of the open batch, by the hash of pair and instant.
    pub(super) index: HashMap<u64, u32, RandomState>,
    pub(super) loads: Loads,
}

impl PartitionQueue {
    /// An empty queue; all queues share the count of their bytes in flight.
    pub(super) fn new(partition: u32, hash: RandomState, bytes: Arc<AtomicUsize>) -> Self {
        Self {
            open: CallBatch::new(partition),
            opened: Mono::ZERO,
            is_urgent: false,
            waits_shortly: false,
            full: VecDeque::new(),
            index: HashMap::with_hasher(hash),
            loads: Loads {
                queue: Arc::default(),
                bytes,
            },
        }
    }

    /// Whether nothing waits in the queue.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    /// Closes the open batch, and opens another.
    pub(super) fn close(&mut self) -> CallBatch {
        self.index.clear();
        (self.is_urgent, self.waits_shortly) = (false, false);
        let next = self.open.next();
        std::mem::replace(&mut self.open, next)
    }

    /// The batch that should go now; `last` ignores how much is in flight.
    pub(super) fn next(&mut self, now: Mono, last: bool) -> Option<CallBatch> {
        let load = self.loads.queue.load(Ordering::Relaxed);
        if LOAD_MAX <= load && !last {
            return None;
        }
        if let Some(full) = self.full.pop_front() {
            return Some(full);
        }
        let gathered = load < EAGER || GATHER <= now.since(self.opened);
        let is_due = (self.is_urgent && gathered) || last;
        (is_due && !self.open.is_empty()).then(|| self.close())
    }
}
