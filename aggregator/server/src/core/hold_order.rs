//! The order in which operators see all holds and staged copies, over all resources, and a position in it.
//!
//! ```text
//! start        resource   holder
//! 12:00:01.5   gpu        job, epoch 7, number 3
//! 12:00:01.5   sandbox    transfer 00…ab              staged copies come before held ones
//! 12:00:01.5   sandbox    web, epoch 9, number 1
//! ```
//!
//! Knows nothing of filters. What stays true: the order depends only on what is held, so that a page goes on
//! where the one before it ended, whichever aggregator answers and whatever was taken or released meanwhile.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_engine::copies::{Copies, HoldView as Held, StagedView, TransferId};
use tollgate_shared::time::Timestamp;

/// The holder of copies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// The copies are staged, under this id.
    Staged(TransferId),
    /// An agent holds them.
    Agent {
        /// The agent's name.
        name: Box<str>,
        /// Its epoch.
        epoch: u128,
        /// The number that the epoch gave to the hold.
        number: u64,
    },
}

/// A position in the order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldCursor {
    /// When the copies were taken.
    pub start: Timestamp,
    /// The resource.
    pub resource: Box<str>,
    /// Who holds the copies.
    pub holder: Holder,
}

/// A resource whose holds are listed.
pub(super) struct OrderSource<'a> {
    pub resource: &'a str,
    pub partition: u32,
    /// The log's time in that partition.
    pub now: Timestamp,
    pub copies: &'a Copies,
}

/// The entry at a position.
pub(super) enum OrderEntry<'a> {
    Held(Held<'a>),
    Staged(StagedView<'a>),
}

/// Which kinds of entries are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds {
    pub held: bool,
    pub staged: bool,
}

/// As [`HoldCursor`], with names borrowed from an entry.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OrderKey<'a> {
    start: Timestamp,
    resource: &'a str,
    holder: KeyHolder<'a>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum KeyHolder<'a> {
    Staged(TransferId),
    Agent(&'a str, u128, u64),
}

impl<'a> OrderKey<'a> {
    fn of(resource: &'a str, entry: &OrderEntry<'a>) -> Self {
        let (start, holder) = match entry {
            OrderEntry::Held(held) => {
                let holder = KeyHolder::Agent(held.agent, held.epoch, held.id.number);
                (held.start, holder)
            }
            OrderEntry::Staged(staged) => (staged.start, KeyHolder::Staged(staged.id)),
        };
        Self {
            start,
            resource,
            holder,
        }
    }

    fn of_cursor(cursor: &'a HoldCursor) -> Self {
        Self {
            start: cursor.start,
            resource: &cursor.resource,
            holder: match &cursor.holder {
                Holder::Staged(id) => KeyHolder::Staged(*id),
                Holder::Agent {
                    name,
                    epoch,
                    number,
                } => KeyHolder::Agent(name, *epoch, *number),
            },
        }
    }
}

impl HoldCursor {
    /// The position of an entry.
    pub(super) fn of(resource: &str, entry: &OrderEntry<'_>) -> Self {
        let (start, holder) = match entry {
            OrderEntry::Held(held) => {
                let holder = Holder::Agent {
                    name: held.agent.into(),
                    epoch: held.epoch,
                    number: held.id.number,
                };
                (held.start, holder)
            }
            OrderEntry::Staged(staged) => (staged.start, Holder::Staged(staged.id)),
        };
        Self {
            start,
            resource: resource.into(),
            holder,
        }
    }
}

/// The next entry of a walk, which is named by its index.
struct Next<'a> {
    key: OrderKey<'a>,
    walk: usize,
    entry: OrderEntry<'a>,
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Next<'_> {}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The entries of one kind of one source, and the index of that source.
type Walk<'a> = (usize, Box<dyn Iterator<Item = OrderEntry<'a>> + 'a>);

/// Everything in some sources after a position, in order, each with the index of its source.
pub(super) fn behind<'a>(
    sources: &'a [OrderSource<'a>],
    after: Option<&'a HoldCursor>,
    kinds: Kinds,
) -> impl Iterator<Item = (usize, OrderEntry<'a>)> + 'a {
    let from = after.map_or(Timestamp::ZERO, |after| after.start);
    let mut walks: Vec<Walk<'a>> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        if kinds.held {
            let held = source.copies.oldest_first_from(from).map(OrderEntry::Held);
            walks.push((index, Box::new(held)));
        }
        if kinds.staged {
            let staged = source.copies.staged_by_start(from).map(OrderEntry::Staged);
            walks.push((index, Box::new(staged)));
        }
    }
    let after = after.map(OrderKey::of_cursor);
    let step = move |walks: &mut [Walk<'a>], walk: usize| {
        let (index, entries) = walks.get_mut(walk)?;
        let resource = sources.get(*index)?.resource;
        entries.find_map(|entry| {
            let key = OrderKey::of(resource, &entry);
            let is_behind = after.as_ref().is_none_or(|after| *after < key);
            is_behind.then_some(Reverse(Next { key, walk, entry }))
        })
    };
    let mut heap: BinaryHeap<_> = (0..walks.len())
        .filter_map(|walk| step(&mut walks, walk))
        .collect();
    std::iter::from_fn(move || {
        let Reverse(first) = heap.pop()?;
        heap.extend(step(&mut walks, first.walk));
        let (index, _) = walks.get(first.walk)?;
        Some((*index, first.entry))
    })
}
