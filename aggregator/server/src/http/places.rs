//! The places of HTTP connections, and which connection makes room if all are taken.
//!
//! ```text
//! address A   1 idle since its answer, 2 new, 3 being answered      B   4 idle
//! a fifth of at most four                                           1 ends: A has most, and it is idle
//! ```
//!
//! What stays true: a new connection gets a place; an address with few connections loses none to one with more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::edge::HttpCounters;
use crate::edge::network;

/// The places of open connections.
pub(super) struct Places {
    max: usize,
    state: Mutex<PlacesState>,
}

#[derive(Default)]
struct PlacesState {
    last: u64,
    open: HashMap<u64, OpenConnections>,
}

struct OpenConnections {
    /// The address under which it counts.
    of: IpAddr,
    stage: ConnectionStage,
    /// The turn at which it entered this stage.
    since: u64,
    ended: Arc<Notify>,
}

/// What a connection is doing, in the order in which connections make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionStage {
    /// It was answered, and waits for its next request.
    Idle,
    /// It waits for its first request.
    New,
    /// It is being answered.
    Answered,
}

/// The place of one connection, which is freed when this is dropped.
pub(super) struct ConnectionPlace {
    pub(super) id: u64,
    /// Notified when another connection took the place.
    pub(super) ended: Arc<Notify>,
    /// Whether a request was answered.
    pub(super) answered: AtomicBool,
    places: Arc<Places>,
    counters: Arc<HttpCounters>,
}

impl PlacesState {
    /// The connection that makes room, from the address with the most connections.
    fn first_to_go(&self) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for open in self.open.values() {
            *counts.entry(open.of).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let of_most = self
            .open
            .iter()
            .filter(|(_, open)| counts[&open.of] == most);
        let first = of_most.min_by_key(|(_, open)| (open.stage, open.since));
        first.map(|(id, _)| *id)
    }
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            state: Mutex::default(),
        }
    }

    /// A place for a new connection; if none is free, that of another one.
    pub(super) fn enter(
        places: &Arc<Self>,
        address: IpAddr,
        counters: &Arc<HttpCounters>,
    ) -> ConnectionPlace {
        let mut state = places.state();
        if places.max <= state.open.len() {
            HttpCounters::add(&counters.turned_away);
            let first = state.first_to_go();
            if let Some(open) = first.and_then(|first| state.open.remove(&first)) {
                open.ended.notify_one();
            }
        }
        state.last += 1;
        let (id, ended) = (state.last, Arc::new(Notify::new()));
        let open = OpenConnections {
            of: network(address),
            stage: ConnectionStage::New,
            since: id,
            ended: Arc::clone(&ended),
        };
        state.open.insert(id, open);
        counters
            .open
            .store(state.open.len() as u64, Ordering::Relaxed);
        drop(state);
        ConnectionPlace {
            id,
            ended,
            answered: AtomicBool::new(false),
            places: Arc::clone(places),
            counters: Arc::clone(counters),
        }
    }

    /// Notes the new stage of a connection.
    pub(super) fn set(&self, id: u64, stage: ConnectionStage) {
        let mut state = self.state();
        state.last += 1;
        let now = state.last;
        if let Some(open) = state.open.get_mut(&id) {
            (open.stage, open.since) = (stage, now);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, PlacesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.open.remove(&self.id);
        self.counters
            .open
            .store(state.open.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(max: usize) -> (Arc<Places>, Arc<HttpCounters>) {
        (Arc::new(Places::new(max)), Arc::default())
    }

    #[test]
    fn idle_connections_make_room_before_new_and_busy_ones() {
        let (places, counters) = places(3);
        let enter = || Places::enter(&places, IpAddr::from([10, 0, 0, 1]), &counters);
        let ended = |place: &ConnectionPlace| !places.state().open.contains_key(&place.id);
        let [first, second, third] = [(); 3].map(|()| enter());
        places.set(first.id, ConnectionStage::Answered);
        places.set(second.id, ConnectionStage::Answered);
        places.set(second.id, ConnectionStage::Idle);
        let fourth = enter();
        assert!(ended(&second) && !ended(&third), "it was idle");
        let fifth = enter();
        assert!(ended(&third), "it waits longest for its first request");
        for place in [&fourth, &fifth] {
            places.set(place.id, ConnectionStage::Answered);
        }
        let sixth = enter();
        assert!(ended(&first) && !ended(&fourth), "it was answered longest");
        assert_eq!(counters.turned_away.load(Ordering::Relaxed), 3);
        drop((first, second, third, fourth, fifth));
        assert_eq!(counters.open.load(Ordering::Relaxed), 1);
        drop(sixth);
        assert!(places.state().open.is_empty());
    }

    #[test]
    fn the_address_with_most_makes_room() {
        let (places, counters) = places(3);
        let enter = |host| Places::enter(&places, IpAddr::from([10, 0, 0, host]), &counters);
        let ended = |place: &ConnectionPlace| !places.state().open.contains_key(&place.id);
        let probe = enter(1);
        places.set(probe.id, ConnectionStage::Idle);
        let (_busy, _more) = (enter(2), enter(2));
        for _ in 0..10 {
            let again = enter(2);
            places.set(again.id, ConnectionStage::Answered);
            assert!(!ended(&probe));
        }
    }
}
