//! One partition's lane: the parcel that is being filled, and those that are full.
//!
//! Knows nothing of calls. What stays true: a parcel that is handed over is accounted for; what is not urgent
//! stays until somebody says that it has waited long enough.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use tollgate_shared::time::Span;

use crate::batch::calls::{CallBatch, Loads};
use crate::clock::Mono;

/// Parcels under way with which a lane still hands over at once.
const EAGER: u32 = 2;

/// Parcels under way beyond which a lane hands nothing over. A courier may have sequences 127 apart.
const LOAD_MAX: u32 = 100;

/// How long a lane that is not eager gathers.
pub(super) const GATHER: Span = Span::from_millis(5);

/// A lane.
#[derive(Debug)]
pub(super) struct PartitionQueue {
    pub(super) open: CallBatch,
    pub(super) opened: Mono,
    /// Something in the open parcel is not to wait.
    pub(super) is_urgent: bool,
    pub(super) full: VecDeque<CallBatch>,
    /// Entry of the open parcel by the hash of pair and instant.
    pub(super) index: HashMap<u64, u32, RandomState>,
    pub(super) loads: Loads,
}

impl PartitionQueue {
    /// One with nothing in it; all lanes have their bytes under way in common.
    pub(super) fn new(partition: u32, hash: RandomState, bytes: Arc<AtomicUsize>) -> Self {
        Self {
            open: CallBatch::new(partition),
            opened: Mono::ZERO,
            is_urgent: false,
            full: VecDeque::new(),
            index: HashMap::with_hasher(hash),
            loads: Loads {
                lane: Arc::default(),
                bytes,
            },
        }
    }

    /// Whether nothing waits in it.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    /// Closes the open parcel; there is another.
    pub(super) fn close(&mut self) -> CallBatch {
        self.index.clear();
        self.is_urgent = false;
        let next = self.open.next();
        std::mem::replace(&mut self.open, next)
    }

    /// The parcel that should go now; `last`: whatever is under way.
    pub(super) fn next(&mut self, now: Mono, last: bool) -> Option<CallBatch> {
        let load = self.loads.lane.load(Ordering::Relaxed);
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
