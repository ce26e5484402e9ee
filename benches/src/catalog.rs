//! The table of benchmarks, and of the child processes that they run in this program.
//!
//! A new benchmark is a file under `benches` and a line here. The order is that of the report.

use crate::benches::{
    comeback, copies, copies_lift, copies_return, cores, cost, doors, effect, engine, fanout,
    fleet, hit, holds, pairs, propagation,
};
use crate::harness::{Bench, paced};

/// Every benchmark, in the order of the report.
pub const BENCHES: &[Bench] = &[
    Bench {
        name: "engine",
        about: "decode and apply batches of hits, one core; the longest pauses",
        run: engine::run,
    },
    Bench {
        name: "cores",
        about: "what a second thread brings to ruling a journal, and to an audit of it",
        run: cores::run,
    },
    Bench {
        name: "pairs",
        about: "resident bytes of a pair, and of a further hit",
        run: pairs::run,
    },
    Bench {
        name: "holds",
        about: "hold operations at 100,000 domains, one core; bytes of a live hold",
        run: holds::run,
    },
    Bench {
        name: "hit",
        about: "what a call costs, let through and refused; with the log stalled and gone",
        run: hit::run,
    },
    Bench {
        name: "cost",
        about: "CPU of all processes a decision, at everyday rates and at none, beside its peers",
        run: cost::run,
    },
    Bench {
        name: "copies",
        about: "what it costs to take a copy and give it back, beside a semaphore",
        run: copies::run,
    },
    Bench {
        name: "copies-return",
        about: "from the kill of an agent that holds to the lift that its copies make",
        run: copies_return::run,
    },
    Bench {
        name: "copies-lift",
        about: "from a release in one process to a copy that another, which was denied, may take",
        run: copies_lift::run,
    },
    Bench {
        name: "propagation",
        about: "from the call that fills a window to the deny list of the slowest of eight agents",
        run: propagation::run,
    },
    Bench {
        name: "doors",
        about: "a call from C, LuaJIT, Go and Python by the agent in the process; with the aggregator killed",
        run: doors::languages,
    },
    Bench {
        name: "rls",
        about: "a decision of the gateway for Envoy's rate limit filter, over loopback, beside envoyproxy/ratelimit",
        run: doors::rls,
    },
    Bench {
        name: "gateway",
        about: "a decision of the gateway for a web server, by HTTP over a Unix socket",
        run: doors::gateway,
    },
    Bench {
        name: "fanout",
        about: "a frame of the feed to 8, 100 and 5,000 subscribers, beside the zeromq crate's PUB",
        run: fanout::run,
    },
    Bench {
        name: "comeback",
        about: "a thousand agents whose aggregator is killed and started again: until all hear",
        run: comeback::run,
    },
    Bench {
        name: "overshoot",
        about: "1,000 per 10 s at 2,000/s from 2, 4 and 16 agents, beside an ideal in-line limiter",
        run: effect::overshoot,
    },
    Bench {
        name: "effect",
        about: "what is let through of calls far above a limit: bursts, weighted calls, every constraint",
        run: effect::run,
    },
    Bench {
        name: "effect-kafka",
        about: "the rows of overshoot and effect, on a real Kafka",
        run: effect::on_kafka,
    },
    Bench {
        name: "pipeline",
        about: "agents, a real Kafka, an aggregator: hits ruled a second, and what each of them takes",
        run: fleet::pipeline,
    },
    Bench {
        name: "recovery",
        about: "a million live pairs on Kafka: killed, and ruling again, or taken over",
        run: fleet::recovery,
    },
    Bench {
        name: "catch-up",
        about: "a minute of 100,000 hits a second without an aggregator, and the log's end again",
        run: fleet::catch_up,
    },
];

/// A part of a benchmark that runs in a process of its own.
pub struct ChildPart {
    /// The name by which its parent starts it.
    pub name: &'static str,
    /// Runs it with its arguments.
    pub run: fn(&[String]) -> anyhow::Result<()>,
}

/// Every such part.
pub const CHILDREN: &[ChildPart] = &[
    ChildPart {
        name: "pairs-engine",
        run: pairs::child_engine,
    },
    ChildPart {
        name: "pairs-flood",
        run: pairs::child_flood,
    },
    ChildPart {
        name: "pairs-governor",
        run: pairs::child_governor,
    },
    ChildPart {
        name: "holds-memory",
        run: holds::child_memory,
    },
    ChildPart {
        name: "hit-gone",
        run: hit::child_gone,
    },
    ChildPart {
        name: "hit-syscalls",
        run: hit::child_syscalls,
    },
    ChildPart {
        name: "cost-agent",
        run: cost::child_agent,
    },
    ChildPart {
        name: "cost-redis",
        run: cost::child_redis,
    },
    ChildPart {
        name: "cost-gubernator",
        run: cost::child_gubernator,
    },
    ChildPart {
        name: "cost-ratelimit",
        run: cost::child_ratelimit,
    },
    ChildPart {
        name: "copies-holder",
        run: copies_return::child_holder,
    },
    ChildPart {
        name: "copies-lift-agent",
        run: copies_lift::child_agent,
    },
    ChildPart {
        name: "fanout-publisher",
        run: fanout::child_publisher,
    },
    ChildPart {
        name: "fanout-subscribers",
        run: fanout::child_subscribers,
    },
    ChildPart {
        name: "comeback-agents",
        run: comeback::child_agents,
    },
    ChildPart {
        name: "propagation-agent",
        run: propagation::child_agent,
    },
    ChildPart {
        name: paced::PACED_AGENT,
        run: paced::child_agent,
    },
    ChildPart {
        name: "fleet-agent",
        run: fleet::child_agent,
    },
];

/// The benchmark of this name.
pub fn find(name: &str) -> Option<&'static Bench> {
    BENCHES.iter().find(|bench| bench.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_benchmarks_are_distinct() {
        let mut names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        names.extend(["all", "list"]);
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(find("engine").is_some_and(|bench| bench.name == "engine"));
        assert!(find("all").is_none());
    }
}
