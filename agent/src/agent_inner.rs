//! What an agent's clones, handles, holds and estimates share; its end is the agent's.
//!
//! Knows no calls. What stays true: the threads work for as long as anything is left that a call can be made with.

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::flusher::Ending;
use crate::net::AgentOrder;
use crate::shared::Shared;

/// Ends the threads when it is dropped: with the last clone of the agent, handle, hold or estimate.
pub(crate) struct AgentInner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: String,
    pub(crate) ending: Arc<Ending>,
    /// `None` if there are no threads.
    pub(crate) orders: Option<mpsc::Sender<AgentOrder>>,
}

impl fmt::Debug for AgentInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl AgentInner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        name: String,
        ending: Arc<Ending>,
        orders: Option<mpsc::Sender<AgentOrder>>,
    ) -> Self {
        Self {
            shared,
            name,
            ending,
            orders,
        }
    }
}

impl Drop for AgentInner {
    fn drop(&mut self) {
        // The driver notices that its channel of orders is closed; the flusher is asked here.
        self.ending.ask_to_end();
        self.shared.clock.wake_timekeeper();
        self.shared.end();
    }
}
