//! The simulation: the shipped code in a world whose clock, network, disk and log are made up.
//!
//! ```text
//! world        hosts, wires and the log on one clock, driven by one `queue` of events
//! plan         what a seed stands for, or a file: sizes, load, and the list of `faults`; `draw` and `draw_faults` how it
//!              is drawn
//! agent_host   an agent's process (shipped) and its clocks; `agent_wires` its connections, `agent_calls`
//!              the services that call it
//! owner_host   an aggregator's core (shipped), its clocks and connections; `owner_effects` what it asks for
//! operators    what people do by hand: documents pushed, and amendments
//! log_host     the journal (shipped) on a disk in memory, or a log that several owners share (`shared_host`)
//! fleet        who rules which partition, where owners share them out
//! watch        the log ruled beside the owners: by a second engine, and by the independent models (`ruling`), of rates
//!              (`feeding`, `compare`) and of copies (`copies_feeding`, `copies_compare`); limits that come into it
//!              (`entering`)
//! agent_holds  services that hold copies; `costs` those whose costs are known afterwards
//! refusals, heard, accounts, held, leases, ending, refused_at_end, told_soon, calm_effect
//!              what is checked; `ticks` what an owner may take the log's time to be
//! guards       whether calls are guarded, by what came over the wire
//! documents    limits that are pushed: `constraints` windows, buckets and quotas, `copy_limits` of copies
//! runner       many seeds, and a line of JSON for each; `kept` plans that failed once, `shrink` shorter ones
//! ```
//!
//! What stays true: a run is a function of its seed, on any build of one commit; where the shipped code panics, that
//! is what its run came to.

pub mod accounts;
pub mod agent_calls;
pub mod agent_holds;
pub mod agent_host;
pub mod agent_wires;
mod awaited;
mod befalling;
mod calm_effect;
pub mod clock;
pub mod compare;
pub mod constraints;
mod copies_compare;
mod copies_feeding;
pub mod copy_limits;
mod costs;
pub mod coverage;
pub mod disk;
pub mod documents;
mod draw;
mod draw_faults;
pub mod ending;
mod entering;
pub mod event;
pub mod faults;
mod feeding;
pub mod fleet;
mod guards;
mod heard;
pub mod held;
pub mod kept;
mod leases;
pub mod log_host;
pub mod net;
pub mod operators;
pub mod owner_effects;
pub mod owner_host;
pub mod plan;
mod queue;
pub mod random;
pub mod refusals;
mod refused_at_end;
mod ruling;
pub mod runner;
mod said;
mod shared_host;
pub mod shared_log;
pub mod shrink;
mod state_topic;
mod stopping;
mod ticks;
mod told_soon;
pub mod trace;
pub mod watch;
pub mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coverage::Coverage;
use plan::Plan;
use trace::{NO_LAW, PANICKED, Violation};
use world::World;

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// Its plan, as it was run.
    pub plan: Plan,
    /// What was against a law, if anything.
    pub violation: Option<Violation>,
    /// Calls decided: of rates, and for copies that need not be granted first.
    pub decisions: u64,
    /// Calls refused under denials.
    pub refusals: u64,
    /// What became of what the dead held.
    pub returns: held::Returns,
    /// What was met.
    pub cover: Coverage,
    /// What the log came to: the digest of each partition at the end.
    pub digests: Vec<u128>,
    /// A number that stands for everything that happened.
    pub hash: u64,
    /// Everything that happened, where it was asked for.
    pub trace: Option<String>,
}

/// Runs a plan. A panic is a failure of it as a broken law is.
pub fn run(plan: Plan, trace: bool) -> Run {
    let mut world = World::new(plan, trace);
    // What the panic left is counted and told, and never gone on with.
    if let Err(why) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        world.violated(NO_LAW, PANICKED, message_of(&*why));
    }
    // They are counted apart, since what the trace ends with stays what it was.
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
    fn copies_that_are_granted_are_decisions_as_those_that_are_refused() {
        let holds = |seed: &u64| {
            let plan = Plan::draw(*seed);
            plan.uses_copies() && plan.length_us < 16_000_000
        };
        let seed = (1..).find(holds).expect("there are some");
        let mut plan = Plan::draw(seed);
        for agent in &mut plan.agents {
            // Nobody calls for a rate.
            agent.calls_per_s = 0;
        }
        let run = run(plan, false);
        let taken = run.cover.of("copies taken");
        assert!(0 < taken, "seed {seed}: nothing was taken");
        assert_eq!(run.violation, None);
        assert_eq!(run.decisions, taken + run.refusals);
    }
}
