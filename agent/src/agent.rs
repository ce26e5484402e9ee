//! The agent: a service builds it once, and takes its handles from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_shared::descriptors::resource_of_rules;
use tollgate_shared::log_lines::excerpt;
use tollgate_shared::names::admit_domain;
use tollgate_shared::time::Span;

use crate::agent_inner::AgentInner;
use crate::answer::{Allowed, Denied};
use crate::copies::{Copies, Together, take_together};
use crate::descriptors::Descriptors;
use crate::net::AgentOrder;
use crate::rate::{self, Rate};
use crate::refused::Refused;
use crate::resource::{OF_COPIES, Resource};
use crate::stats::{Counters, Stats};

/// An agent: decides calls in this process, and talks to the aggregators in the background. Cheap to clone.
///
/// Handles that were taken from the agent, holds and estimates keep it at work, too. When the last of them and the last
/// clone are dropped, the agent's threads end at once, and records that were not sent are lost; [`Agent::shutdown`] sends
/// them first.
#[derive(Clone, Debug)]
pub struct Agent {
    inner: Arc<AgentInner>,
}

/// What happened to everything that an agent recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Calls that were let through and acknowledged by the log, since the agent's start.
    pub sent: u64,
    /// Calls that were let through and whose record was dropped anywhere, since the agent's start.
    pub dropped: u64,
}

/// A deadline later than any process lives for, where the caller states one that no clock has.
const NEVER: Duration = Duration::from_secs(1 << 32);

/// Whether the agent obeys denials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillSwitch {
    /// Denied calls are let through; everything is still recorded and counted.
    On,
    /// Denied calls are refused.
    Off,
}

impl Agent {
    pub(crate) fn of(inner: AgentInner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn shared(&self) -> &Arc<crate::shared::Shared> {
        &self.inner.shared
    }

    /// The agent's name.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let agent = Agent::builder().name("checkout-1").build()?;
    /// assert_eq!(agent.name(), "checkout-1");
    /// # Ok::<(), tollgate_agent::BuildError>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A handle for a rate-limited resource. Take handles at the start and keep them: the agent learns the resource's
    /// limits in the background. An invalid name is replaced by a valid one, as with domains. Beyond the bound on
    /// resources ([`AgentBuilder::resources_max`](crate::AgentBuilder::resources_max)) calls are let through,
    /// which a log line says; `Stats::resources_without_room` counts them.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// assert!(search.hit("acme").is_ok());
    /// ```
    pub fn rate(&self, resource: &str) -> Rate {
        Rate::new(self.resource(resource, 0), Arc::clone(&self.inner))
    }

    /// A handle for a copy-limited resource. As with [`Agent::rate`], take handles at the start and keep them. The
    /// agent learns in the background whether a resource is limited by rate or by copies.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// assert!(reports.reserve("acme", 1).is_ok());
    /// ```
    pub fn copies(&self, resource: &str) -> Copies {
        let resource = self.resource(resource, OF_COPIES);
        if !resource.is_joined_as_rate() {
            resource.set_flag(OF_COPIES, true);
        }
        Copies::new(resource, Arc::clone(&self.inner))
    }

    /// The rules that turn Envoy's descriptors of this domain into uses of resources: `[descriptors.NAME]` of the
    /// limits. The agent learns them in the background, like a resource's limits.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// use tollgate_agent::Applied;
    ///
    /// let rules = kit.agent().descriptors("envoy");
    /// let applied = rules.apply(&[("tenant", "acme")]);
    /// assert!(matches!(applied, Applied::NoRules), "none are known yet");
    /// ```
    pub fn descriptors(&self, domain: &str) -> Descriptors {
        let resource = self.resource(&resource_of_rules(domain), 0);
        Descriptors::new(resource, Arc::clone(&self.inner))
    }

    fn resource(&self, name: &str, flags: u32) -> Arc<Resource> {
        let shared = &self.inner.shared;
        let name = admit_domain(name);
        let (known, is_new) = shared.resources.get_with(&name, flags);
        if is_new {
            shared.new_resource.notify_one();
        }
        known.unwrap_or_else(|| {
            Counters::add(&shared.counters.resources_without_room, 1);
            if let Some(unsaid) = shared.resource_lines.may() {
                tracing::warn!(
                    resource = %excerpt(&name),
                    unsaid,
                    "there is no room for this resource (resources_max): its calls are let through, and not recorded"
                );
            }
            shared.resources.outside(&name)
        })
    }

    /// Waits until the agent has received a watermark of every partition, and the limits of every resource that has a
    /// handle; at most `max_wait`. Returns whether it has. Optional: without it an agent starts blind. Needs no async
    /// runtime.
    ///
    /// ```no_run
    /// # async fn example(agent: tollgate_agent::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let search = agent.rate("api.search");
    /// if !agent.ready(Duration::from_millis(500)).await {
    ///     println!("no aggregator is connected: calls are let through");
    /// }
    /// # let _ = search;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self, max_wait: Duration) -> bool {
        let shared = &self.inner.shared;
        let until = shared.clock.read().plus(Span::from_std(max_wait));
        loop {
            let news = shared.news.notified();
            let left = until.since(shared.clock.read());
            if shared.is_ready() {
                return true;
            }
            if left == Span::ZERO || shared.has_ended() {
                return false;
            }
            tokio::select! {
                () = news => {}
                () = shared.timer.sleep(left) => {}
            }
        }
    }

    /// May one hit of each pair proceed now? The agent checks all pairs first, then records all hits, or none.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let (search, everything) = (kit.agent().rate("api.search"), kit.agent().rate("api"));
    /// let _allowed = kit.agent().hit_all(&[(&search, "acme"), (&everything, "acme")])?;
    /// # Ok::<(), tollgate_agent::Denied>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If several pairs are denied: the denial that lasts longest.
    pub fn hit_all(&self, pairs: &[(&Rate, &str)]) -> Result<Allowed, Denied> {
        rate::hit_all(pairs)
    }

    /// May this many hits of each pair proceed now? The agent checks all pairs first, then records all hits, or none.
    /// A pair with 0 hits is checked for one hit, and nothing is recorded for it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let agent = kit.agent();
    /// let (calls, tokens) = (agent.rate("llm.calls"), agent.rate("llm.tokens"));
    /// # kit.deny("llm.tokens", "acme", Duration::from_secs(5));
    /// let refused = agent.hit_all_n(&[(&calls, "acme", 1), (&tokens, "acme", 1_250)]);
    /// assert!(refused.is_err(), "and the call is not counted");
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::TooMany`] for the first pair whose limits can never grant that many hits at once. Otherwise
    /// [`Refused::Denied`], with the denial that lasts longest.
    pub fn hit_all_n(&self, hits: &[(&Rate, &str, u32)]) -> Result<Allowed, Refused> {
        rate::hit_all_n(hits)
    }

    /// Takes copies of several resources, and makes at most one hit: all or none. The agent checks everything first,
    /// then takes the copies in their order, and makes the hit last, because a hit cannot be given back. If anything
    /// is refused, the refusals are recorded and nothing is taken. It can still fail halfway if another thread takes
    /// copies between the check and the taking.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let (cpu, gpu) = (kit.agent().copies("cpu"), kit.agent().copies("gpu"));
    /// let jobs = kit.agent().rate("jobs");
    /// let _both = kit.agent().reserve_all(
    ///     &[(&cpu, "acme", 4), (&gpu, "acme", 1)],
    ///     Some((&jobs, "acme")),
    /// )?;
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first refusal, of the hit or else of the copies in their order; copies that were taken before it are given
    /// back. If any of them is a [`Refused::Misuse`], that is returned before all refusals, and nothing is taken or
    /// recorded.
    pub fn reserve_all(
        &self,
        copies: &[(&Copies, &str, u32)],
        hit: Option<(&Rate, &str)>,
    ) -> Result<Together, Refused> {
        take_together(copies, hit)
    }

    /// The agent's counters and current state.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let _ = kit.agent().rate("api.search").hit("acme");
    /// println!("{} dropped", kit.agent().stats().hits_dropped());
    /// ```
    pub fn stats(&self) -> Stats {
        self.inner.shared.stats()
    }

    /// Makes this agent ignore denials, or obey them again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "acme", Duration::from_secs(60));
    /// use tollgate_agent::KillSwitch;
    ///
    /// let search = kit.agent().rate("api.search");
    /// assert!(search.hit("acme").is_err());
    /// kit.agent().kill_switch(KillSwitch::On);
    /// assert!(search.hit("acme").is_ok());
    /// ```
    pub fn kill_switch(&self, switch: KillSwitch) {
        self.inner
            .shared
            .kill_switch
            .store(switch == KillSwitch::On, Ordering::Relaxed);
    }

    /// Sends what was recorded and gives back what is held, until `deadline` at the latest, and ends the agent's
    /// threads. Copies that are still held after that no longer count. Needs no async runtime. Handles let every call
    /// through after that, whatever was denied and whatever `blind` states, except calls for strict copies; what they
    /// record is dropped and counted.
    ///
    /// ```no_run
    /// # async fn example(agent: tollgate_agent::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let flushed = agent.shutdown(Duration::from_secs(2)).await;
    /// println!("{} hits sent, {} dropped", flushed.sent, flushed.dropped);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self, deadline: Duration) -> Flushed {
        if let Some(orders) = &self.inner.orders {
            let now = tokio::time::Instant::now();
            let deadline = now.checked_add(deadline).unwrap_or(now + NEVER);
            self.inner.ending.ask_to_flush();
            self.inner.shared.clock.wake_timekeeper();
            let (done, wait) = oneshot::channel();
            // Fails if the network thread has ended, or another call is shutting the agent down.
            let _ = orders.send(AgentOrder::Flush { deadline, done }).await;
            let _ = wait.await;
        }
        let stats = self.stats();
        Flushed {
            sent: stats.hits_acknowledged,
            dropped: stats.hits_dropped(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn handles_holds_and_estimates_keep_their_agent_at_work() {
        type Keep = fn(&Agent) -> Box<dyn std::any::Any>;
        let keep: [Keep; 5] = [
            |agent| Box::new(agent.rate("r")),
            |agent| Box::new(agent.copies("c")),
            |agent| Box::new(agent.descriptors("d")),
            |agent| Box::new(agent.copies("c").reserve("acme", 1)),
            |agent| Box::new(agent.rate("r").hit_estimated("acme", 1)),
        ];
        for (n, keep) in keep.iter().enumerate() {
            let agent = Agent::builder().aggregator("127.0.0.1:1").build();
            let agent = agent.expect("the settings are right");
            let (shared, ending) = (&agent.inner.shared, &agent.inner.ending);
            let (shared, ending) = (Arc::clone(shared), Arc::clone(ending));
            let kept = keep(&agent);
            drop(agent);
            assert!(!shared.has_ended() && !ending.is_now(), "{n}");
            drop(kept);
            assert!(shared.has_ended() && ending.is_now(), "{n}");
        }
    }

    #[test]
    fn without_a_flusher_the_network_thread_ends() {
        let agent = Agent::builder().aggregator("127.0.0.1:1").build();
        let agent = agent.expect("the settings are right").inner;
        // As after a panic of the flusher, while handles of the agent live on.
        agent.ending.ask_to_end();
        agent.shared.clock.wake_timekeeper();
        let orders = agent.orders.as_ref().expect("it has threads");
        let begun = Instant::now();
        while !orders.is_closed() || !agent.shared.has_ended() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it still runs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
