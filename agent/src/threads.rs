//! The agent's threads, and what becomes of an agent if one of them panics.
//!
//! No thread is of use without the others: without the flusher no call is recorded, without the network thread no
//! denial arrives, without Kafka's neither. So a panic of one ends the agent, which is blind from then on: it lets calls
//! through, or refuses them, as the policy `blind` says. A panic of one of the network thread's tasks counts as a panic
//! of that thread. Knows nothing of what the threads do, and of Kafka's own threads. What stays true: a panic is
//! counted, published and logged, and nobody waits for a thread that is gone. If the host aborts on panics, the agent
//! cannot catch them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::callback;
use crate::flusher::Ending;
use crate::shared::Shared;
use crate::stats::Counters;

/// What an agent's threads end, if they panic.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    agent: Arc<str>,
    shared: Arc<Shared>,
    ending: Arc<Ending>,
}

impl Threads {
    /// The threads of an agent of this name.
    pub(crate) fn of(agent: &str, shared: &Arc<Shared>, ending: &Arc<Ending>) -> Self {
        Self {
            agent: agent.into(),
            shared: Arc::clone(shared),
            ending: Arc::clone(ending),
        }
    }

    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// If the machine starts none.
    pub(crate) fn start(
        &self,
        thread: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let threads = self.clone();
        let builder = std::thread::Builder::new().name(thread.to_owned());
        builder.spawn(move || {
            // What the work owned is gone after a panic; what it shared are atomics, and locks whose poison is ignored.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                threads.panicked(thread, &callback::text_of(&*panic));
                callback::drop_panic(panic);
            }
        })
    }

    /// Ends the agent at once. What the thread had taken and not passed on is lost, and counts nowhere; so does what
    /// calls record after a panic of the flusher.
    fn panicked(&self, thread: &'static str, why: &str) {
        let (agent, shared) = (&*self.agent, &*self.shared);
        Counters::add(&shared.counters.threads_panicked, 1);
        end(shared, &self.ending);
        shared.liveness.end(shared.clock.read());
        shared.news.notify_waiters();
        // The recorder of metrics, or the logger, may be what panicked. The network thread publishes nothing any more.
        #[cfg(feature = "metrics")]
        callback::call(&shared.counters, "metrics", || {
            crate::metrics::report(agent, &shared.stats());
        });
        callback::call(&shared.counters, "log", || {
            tracing::error!(agent, thread, panic = %why, "a thread panicked, which ends the agent");
        });
    }
}

/// Ends an agent's flusher, and after it the network thread; no hold is recorded any more.
pub(crate) fn end(shared: &Shared, ending: &Ending) {
    shared.end();
    ending.ask_to_end();
    shared.clock.wake_timekeeper();
    shared.hold_table.close();
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;
    use tollgate_shared::time::Timestamp;

    use super::*;
    use crate::builder::AgentBuilder;
    use crate::clock::Clock;
    use crate::deny::Lease;
    use crate::timer::Timer;

    #[cfg(feature = "testing")]
    #[test]
    fn an_agent_that_a_panic_ended_keeps_its_policies() {
        use crate::testing::{TestAgent, WhenBlind};

        let kit = TestAgent::new();
        let (rate, copies) = (kit.agent().rate("calls"), kit.agent().copies("reports"));
        for resource in ["calls", "reports"] {
            kit.when_blind(resource, WhenBlind::Closed);
        }
        assert!(rate.hit("acme").is_ok() && copies.reserve("acme", 1).is_ok());
        let threads = Threads::of("a", kit.agent().shared(), &Arc::new(Ending::default()));
        let panics = threads.start("tollgate-net", || panic!("a fault of ours"));
        panics.expect("a thread").join().expect("it is caught");
        assert!(rate.hit("acme").is_err() && copies.reserve("acme", 1).is_err());
    }

    #[test]
    fn a_panic_of_a_thread_ends_the_agent_and_is_counted() {
        let clock = Arc::new(Clock::by_hand(Timestamp::from_millis(5_000)));
        let timer = Timer::Hand(Arc::new(Notify::new()));
        let shared = Arc::new(AgentBuilder::default().shared(clock, 1, timer));
        let leases = vec![Lease::default()];
        leases[0].renew(crate::clock::Mono::MAX);
        shared.liveness.set_partitions(1, leases.clone(), leases);
        shared.liveness.update(shared.clock.read());
        assert_eq!(shared.stats().blind_for, None);

        let ending = Arc::new(Ending::default());
        let threads = Threads::of("a", &shared, &ending);
        let ends = threads.start("tollgate-net", || {}).expect("a thread");
        ends.join().expect("it ends");
        assert_eq!(
            (shared.stats().threads_panicked, ending.is_now()),
            (0, false)
        );

        let panics = threads.start("tollgate-net", || panic!("a fault of ours"));
        panics.expect("a thread").join().expect("it is caught");
        let stats = shared.stats();
        assert_eq!((stats.threads_panicked, stats.callbacks_panicked), (1, 0));
        assert!(stats.blind_for.is_some() && shared.has_ended() && ending.is_now());
    }
}
