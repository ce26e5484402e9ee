//! What is asked for again although nobody says that it was missed: limits that refused somebody, and topics
//! that say nothing.

use tollgate_shared::time::Span;

use super::Listener;
use super::ledger::TopicKey;
use super::peer::Peer;
use crate::clock::Mono;
use crate::resource::ResourceId;
use crate::stats::Counters;

/// The least time between two asks for limits that refused somebody by what the agent holds itself. Where what
/// was asked for fits no more, the aggregators' denial comes and refuses instead; where more was asked for than
/// is left, it is asked again for as long as somebody does so.
const DOUBTED_EVERY: Span = Span::from_secs(5);

impl Listener {
    /// Asks one aggregator each for limits that refused somebody, in case they are others by now.
    pub(super) fn refresh_doubted(&mut self, now: Mono) {
        let refreshed = &self.refreshed;
        let is_due = |id: ResourceId| {
            let last = refreshed.get(&id);
            last.is_none_or(|last| DOUBTED_EVERY <= now.since(*last))
        };
        for resource in self.around.resources.take_doubted(is_due) {
            let may_know = |peer: &Peer| peer.link_up && peer.is_joined(TopicKey::Of(resource.id));
            let count = self.peers.len();
            // Each time another one, in case one lags behind.
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

    /// Topics that say nothing although denials of theirs are in the list are asked about: where one is in force,
    /// heartbeats say so, so it may have been lifted by a frame that was missed. Once a silence: another owner of
    /// the partition may have said it.
    pub(super) fn doubt_silent_topics(&mut self, index: usize, now: Mono) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let denied = self.deny.denied();
        let silent = peer.doubt_silent(denied, now);
        Counters::add(&self.around.counters.silent_topics, silent);
    }
}
