//! Questions of the listener although nothing shows that it missed anything: about limits that refused a call, and
//! about silent topics.

use tollgate_shared::time::Span;

use super::Listener;
use super::ledger::TopicKey;
use super::peer::Peer;
use crate::clock::Mono;
use crate::resource::ResourceId;
use crate::stats::Counters;

/// The least time between two questions about limits that refused a call. If the limits allow fewer copies than the
/// agent thinks, the aggregators' denial arrives and refuses instead. If a call wants more copies than are left, the
/// agent asks again for as long as there are such calls.
const DOUBTED_EVERY: Span = Span::from_secs(5);

impl Listener {
    /// For each resource whose limits refused a call, asks one aggregator, because the limits may have changed.
    pub(super) fn refresh_doubted(&mut self, now: Mono) {
        let refreshed = &self.refreshed;
        let is_due = |id: ResourceId| {
            let last = refreshed.get(&id);
            last.is_none_or(|last| DOUBTED_EVERY <= now.since(*last))
        };
        for resource in self.around.resources.take_doubted(is_due) {
            let may_know = |peer: &Peer| peer.link_up && peer.is_joined(TopicKey::Of(resource.id));
            let count = self.peers.len();
            // Another aggregator each time, because one may lag behind.
            self.next_doubted = self.next_doubted.wrapping_add(1);
            let from = self.next_doubted;
            let mut turn = (0..count).map(|one| from.wrapping_add(one) % count);
            let found = turn.find(|one| self.peers.get(*one).is_some_and(may_know));
            match found.and_then(|one| self.peers.get_mut(one)) {
                Some(peer) => {
                    self.refreshed.insert(resource.id, now);
                    peer.wanted.insert(resource.id);
                }
                None => self.around.resources.doubt_limits(&resource),
            }
        }
    }

    /// Asks about topics that are silent although the list has denials of them. Heartbeats show that such a topic's
    /// partition is ruled, so the denial may have been lifted by a frame that was lost. Once for each silence:
    /// another aggregator of the partition may have announced it.
    pub(super) fn doubt_silent_topics(&mut self, index: usize, now: Mono) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let denied = self.deny.denied();
        let silent = peer.doubt_silent(denied, now);
        Counters::add(&self.around.counters.silent_topics, silent);
    }
}
