//! The simulation: the shipped code in a world with a simulated clock, network, disk and log.
//!
//! ```text
//! world        hosts, connections and the log on one clock, driven by one queue of events
//! plan         the plan of a seed or file: sizes, load, and the list of `faults`, drawn by `draw` and `draw_faults`
//! agent_host   an agent's process (shipped) and its clocks; `agent_transport` its connections, `agent_calls`
//!              the services that call it
//! owner_host   an aggregator's core (shipped), its clocks and connections; `owner_life` the begin and the end of its
//!              process, `owner_effects` its effects
//! operators    operators' acts: documents pushed, and amendments
//! log_host     the journal (shipped) on a disk in memory, or a log that several aggregators share (`shared_host`);
//!              `log_opening` what a journal has kept when it is opened
//! fleet        the assignment of partitions, where aggregators divide them
//! watch        the log ruled beside the aggregators: by a second engine, and by the independent models (`ruling`),
//!              of rates (`feeding`, `compare`) and of copies (`copies_feeding`, `copies_compare`); `entering` its
//!              limits
//! agent_holds  services that hold copies; `costs` services with costs that are known afterwards
//! received     what an agent has received, by the messages on the wire
//! arrivals, refusals, guards, accounts, held, ending, quiescent_effect
//!              the checks: they compare messages, the log, and states, and know nothing of the plan's faults
//! documents    the limits that operators push: `constraints` windows, buckets and quotas, `copy_limits` of copies
//! runner       many seeds, and a line of JSON for each; `kept` plans that failed once, `shrink` shorter ones
//! ```
//!
//! What stays true: a run is a function of its seed, on any build of one commit; a panic of the shipped
//! code is the result of its run.

mod accounts;
mod agent_calls;
mod agent_holds;
mod agent_host;
mod agent_transport;
mod arrivals;
mod awaited;
mod clock;
mod compare;
mod constraints;
mod copies_compare;
mod copies_feeding;
mod copy_limits;
mod costs;
mod coverage;
mod disk;
mod documents;
mod draw;
mod draw_faults;
mod ending;
mod entering;
mod fault_effects;
mod faults;
mod feeding;
mod fleet;
mod guards;
pub mod held;
pub mod kept;
mod log_host;
mod log_opening;
mod net;
mod operators;
mod owner_effects;
mod owner_host;
mod owner_life;
pub mod plan;
mod quiescent_effect;
pub mod random;
mod received;
mod refusals;
mod ruling;
pub mod runner;
mod sent_content;
mod shared_host;
pub mod shared_log;
pub mod shrink;
mod state_topic;
mod statements;
mod stopping;
pub mod trace;
mod watch;
mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coverage::Coverage;
use plan::Plan;
use trace::{NO_LAW, PANICKED, Violation};
use world::World;

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// The plan that was run.
    pub plan: Plan,
    /// The law that was violated, if any.
    pub violation: Option<Violation>,
    /// Calls decided: of rates, and for copies that need no grant before use.
    pub decisions: u64,
    /// Calls refused because of denials.
    pub refusals: u64,
    /// The return of the copies of dead processes.
    pub returns: held::Returns,
    /// The coverage.
    pub cover: Coverage,
    /// The final state of the log: the digest of each partition at the end.
    pub digests: Vec<u128>,
    /// A hash of all events.
    pub hash: u64,
    /// The trace of all events, if it was requested.
    pub trace: Option<String>,
}

/// Runs a plan. A panic fails the plan, as the violation of a law does.
pub fn run(plan: Plan, trace: bool) -> Run {
    let mut world = World::new(plan, trace);
    // The state after a panic is counted and reported, but the run does not continue.
    if let Err(why) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        world.violated(NO_LAW, PANICKED, message_of(&*why));
    }
    // These calls are counted separately, so that the end of the trace keeps its form.
    let granted: u64 = world.agents.iter().map(|host| host.holding.granted).sum();
    Run {
        violation: world.violation,
        decisions: world.decisions + granted,
        refusals: world.refusals,
        returns: world.returns,
        digests: world
            .watch
            .ruled
            .iter()
            .map(|ruled| ruled.engine.digest())
            .collect(),
        cover: world.watch.cover,
        hash: world.trace.hash(),
        trace: world.trace.into_text(),
        plan: world.plan,
    }
}

fn message_of(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| why.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_copies_are_counted_as_decisions() {
        let holds = |seed: &u64| {
            let plan = Plan::draw(*seed);
            plan.uses_copies() && plan.length_us < 16_000_000
        };
        let seed = (1..).find(holds).expect("there are some");
        let mut plan = Plan::draw(seed);
        for agent in &mut plan.agents {
            // No service calls for a rate.
            agent.calls_per_s = 0;
        }
        let run = run(plan, false);
        let taken = run.cover.of("copies taken");
        assert!(0 < taken, "seed {seed}: nothing was taken");
        assert_eq!(run.violation, None);
        assert_eq!(run.decisions, taken + run.refusals);
    }
}
