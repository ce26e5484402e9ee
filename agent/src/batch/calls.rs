//! A batch: entries for one partition on their way to the log, not yet encoded as a record.
//!
//! A record contains the instant of its sending and a sequence number, so it is encoded only then. Until then
//! its entries wait here, in a few vectors and one text.
//!
//! Knows nothing of sockets. What stays true: a batch fits into a record; and as long as a batch exists anywhere, its
//! partition queue and its bytes are accounted for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, HitKind, RESOURCES_MAX, Refused, Sender, write_hits};
use tollgate_shared::wire::statement::Cause;

use crate::resource::{NO_RESOURCE, ResourceId, Resources};

/// Bytes at which a batch is full. Larger batches save nothing more per hit, and this leaves more than ten times the
/// room in a record.
pub(crate) const BYTES_MAX: usize = 64 * 1024;

/// The most bytes that an entry takes in a record beside its name; a refund takes [`REFUND_BYTES`] more.
const ENTRY_BYTES: usize = 40;

/// The bytes of the estimate's stamp, and of the estimate.
const REFUND_BYTES: usize = 16;

/// The most bytes that an entry of refused calls takes beside its name.
const REFUSED_BYTES: usize = 80;

/// Batches of one partition queue that were handed over and are not done, and the bytes of all queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    pub(crate) queue: Arc<AtomicU32>,
    pub(crate) bytes: Arc<AtomicUsize>,
}

/// Accounts for a batch as long as it exists.
#[derive(Debug)]
struct Load {
    loads: Loads,
    bytes: usize,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.loads.queue.fetch_sub(1, Ordering::Relaxed);
        self.loads.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A name within the batch's text.
#[derive(Clone, Copy, Debug)]
struct Name {
    start: u32,
    end: u32,
}

/// Equal calls of one pair at one instant, on their way into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls<'a> {
    pub(crate) resource: ResourceId,
    pub(crate) domain: &'a str,
    pub(crate) at: Timestamp,
    /// Copies of each call.
    pub(crate) copies: u32,
    pub(crate) calls: u32,
    pub(crate) min: Option<u32>,
    pub(crate) kind: HitKind,
    pub(crate) unguarded: bool,
}

impl Calls<'_> {
    /// Whether other equal calls may be merged into the same entry.
    pub(crate) fn may_merge(&self) -> bool {
        self.min.is_none() && !matches!(self.kind, HitKind::Refund { .. })
    }
}

#[derive(Clone, Copy, Debug)]
struct CallEntry {
    /// The resource's index in the record.
    resource: u32,
    domain: Name,
    at: Timestamp,
    copies: u32,
    calls: u32,
    min: Option<u32>,
    kind: HitKind,
    unguarded: bool,
}

#[derive(Clone, Copy, Debug)]
struct RefusedEntry {
    /// The resource's index in the record.
    resource: u32,
    domain: Name,
    sum: RefusedSum,
}

/// Refused calls of one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedSum {
    pub(crate) calls: u64,
    pub(crate) copies: u64,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) cause: Cause,
    pub(crate) position: Option<LogPosition>,
}

/// Entries for one partition.
#[derive(Debug, Default)]
pub(crate) struct CallBatch {
    pub(crate) partition: u32,
    /// Calls in this batch that were let through.
    pub(crate) hits: u64,
    /// Calls in this batch that were refused.
    pub(crate) refused_calls: u64,
    text: String,
    entries: Vec<CallEntry>,
    refused: Vec<RefusedEntry>,
    /// The resources, by their index in the record.
    resources: Vec<ResourceId>,
    indices: HashMap<ResourceId, u32, RandomState>,
    /// The index that was looked up last: most batches have few resources.
    last_index: u32,
    names_bytes: usize,
    refunds_bytes: usize,
    load: Option<Load>,
}

impl CallBatch {
    pub(crate) fn new(partition: u32) -> Self {
        Self {
            partition,
            ..Self::default()
        }
    }

    /// An empty batch for the same partition, with as much room, within bounds, because the next batch is usually
    /// similar.
    pub(crate) fn next(&self) -> Self {
        const ENTRIES_MAX: usize = 256;
        Self {
            text: String::with_capacity(self.text.len().min(16 * ENTRIES_MAX)),
            entries: Vec::with_capacity(self.entries.len().min(ENTRIES_MAX)),
            ..Self::new(self.partition)
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.refused.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        BYTES_MAX <= self.bytes() || RESOURCES_MAX as usize <= self.resources.len()
    }

    /// About as many bytes as the batch's record will have.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
            + self.names_bytes
            + self.refunds_bytes
            + ENTRY_BYTES * self.entries.len()
            + REFUSED_BYTES * self.refused.len()
    }

    /// Adds an entry, and returns its number.
    pub(crate) fn push(&mut self, calls: &Calls<'_>) -> u32 {
        let resource = self.index_of(calls.resource);
        let domain = self.name(calls.domain);
        self.hits += u64::from(calls.calls);
        if matches!(calls.kind, HitKind::Refund { .. }) {
            self.refunds_bytes += REFUND_BYTES;
        }
        self.entries.push(CallEntry {
            resource,
            domain,
            at: calls.at,
            copies: calls.copies,
            calls: calls.calls,
            min: calls.min,
            kind: calls.kind,
            unguarded: calls.unguarded,
        });
        u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds calls to an entry if they are equal to the entry's calls. Returns whether they were added.
    pub(crate) fn merge(&mut self, number: u32, calls: &Calls<'_>) -> bool {
        let (text, resources) = (&self.text, &self.resources);
        let Some(entry) = self.entries.get_mut(number as usize) else {
            return false;
        };
        let same = resources.get(entry.resource as usize) == Some(&calls.resource)
            && entry.at == calls.at
            && entry.copies == calls.copies
            && entry.min.is_none()
            && entry.kind == calls.kind
            && entry.unguarded == calls.unguarded
            && text_of(text, entry.domain) == calls.domain;
        let Some(sum) = entry.calls.checked_add(calls.calls).filter(|_| same) else {
            return false;
        };
        entry.calls = sum;
        self.hits += u64::from(calls.calls);
        true
    }

    /// Adds refused calls of one pair.
    pub(crate) fn push_refused(&mut self, resource: ResourceId, domain: &str, sum: RefusedSum) {
        let resource = self.index_of(resource);
        let domain = self.name(domain);
        self.refused_calls += sum.calls;
        self.refused.push(RefusedEntry {
            resource,
            domain,
            sum,
        });
    }

    /// The index of a resource in the record, which contains each name once.
    fn index_of(&mut self, resource: ResourceId) -> u32 {
        // A name of at most 256 bytes, and its length.
        const NAME_BYTES: usize = 260;
        if self.resources.get(self.last_index as usize) == Some(&resource) {
            return self.last_index;
        }
        let next = u32::try_from(self.resources.len()).unwrap_or(u32::MAX);
        let index = *self.indices.entry(resource).or_insert(next);
        if index == next {
            self.resources.push(resource);
            self.names_bytes += NAME_BYTES;
        }
        self.last_index = index;
        index
    }

    fn resource(&self, index: u32) -> ResourceId {
        self.resources
            .get(index as usize)
            .copied()
            .unwrap_or(NO_RESOURCE)
    }

    fn name(&mut self, name: &str) -> Name {
        let start = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        self.text.push_str(name);
        Name {
            start,
            end: u32::try_from(self.text.len()).unwrap_or(u32::MAX),
        }
    }

    /// Every entry of calls that were let through.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Calls<'_>> {
        self.entries.iter().map(|one| Calls {
            resource: self.resource(one.resource),
            domain: text_of(&self.text, one.domain),
            at: one.at,
            copies: one.copies,
            calls: one.calls,
            min: one.min,
            kind: one.kind,
            unguarded: one.unguarded,
        })
    }

    /// Every entry of refused calls.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (ResourceId, &str, RefusedSum)> {
        self.refused.iter().map(|one| {
            (
                self.resource(one.resource),
                text_of(&self.text, one.domain),
                one.sum,
            )
        })
    }

    /// From here on the batch counts among those handed over.
    pub(crate) fn handed_over(&mut self, loads: &Loads) {
        let bytes = self.bytes();
        loads.queue.fetch_add(1, Ordering::Relaxed);
        loads.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.load = Some(Load {
            loads: loads.clone(),
            bytes,
        });
    }

    /// The batch was not accepted, and waits again where it came from.
    pub(crate) fn taken_back(&mut self) {
        self.load = None;
    }

    /// Writes the record.
    pub(crate) fn encode(&self, writer: &mut Writer, sender: &Sender<'_>, resources: &Resources) {
        let known: Vec<_> = self
            .resources
            .iter()
            .map(|id| resources.by_id(*id))
            .collect();
        // A number always has its resource; if it had not, its entries would get the name `(gone)`.
        let names: Vec<&str> = known
            .iter()
            .map(|one| one.as_ref().map_or("(gone)", |one| &*one.name))
            .collect();
        let hits = self.entries.iter().map(|one| Hit {
            resource: one.resource,
            domain: text_of(&self.text, one.domain),
            at: one.at,
            copies: one.copies,
            calls: one.calls,
            min: one.min,
            kind: one.kind,
            unguarded: one.unguarded,
        });
        let refused = self.refused.iter().map(|one| Refused {
            resource: one.resource,
            domain: text_of(&self.text, one.domain),
            calls: one.sum.calls,
            copies: one.sum.copies,
            first: one.sum.first,
            last: one.sum.last,
            cause: one.sum.cause,
            position: one.sum.position,
        });
        write_hits(writer, sender, &names, hits, refused);
    }
}

fn text_of(text: &str, name: Name) -> &str {
    text.get(name.start as usize..name.end as usize)
        .unwrap_or_default()
}
