//! What all benchmarks have in common, and what it is not: none of them knows another.
//!
//! ```text
//! stats     medians and ranges, ratios of interleaved rounds
//! clock     monotonic and thread CPU time           memory   resident bytes
//! figure    a value, its target, its peers          child    processes that never stay behind
//! report    for people, as JSON lines               results  RESULTS.md
//! machine   where and of what it was measured       beside   programs built next to this one
//! calls     what a call costs                       aggregator   one for the time of a benchmark
//! kafka     the same of a Kafka                 owner    an aggregator that is killed and started again
//! paced     an agent that offers calls at given instants
//! secured   keys for a fleet with TLS and tokens
//! ```

pub mod agents;
pub mod aggregator;
pub mod beside;
pub mod calls;
pub mod child;
pub mod clock;
pub mod figure;
// The same file that tests have, and not their crate: with it would come a feature of the agent, by which
// tests drive its clock, into what is measured.
#[path = "../../../tests/src/kafka/local.rs"]
pub mod kafka;
pub mod machine;
pub mod memory;
pub mod owner;
pub mod paced;
pub mod redis;
pub mod report;
pub mod results;
pub mod secured;
pub mod stats;

use figure::Figure;

/// A benchmark.
pub struct Bench {
    /// How it is called.
    pub name: &'static str,
    /// What it measures, in a line.
    pub about: &'static str,
    /// Measures it.
    pub run: fn(&mut Session) -> anyhow::Result<()>,
}

/// How much is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// What ends within about a minute.
    Usual,
    /// Everything, however long it takes.
    Full,
}

/// One run of one benchmark: what it is to do, and the figures it has given so far.
pub struct Session {
    /// How much is to be measured.
    pub size: Size,
    /// Whether steps are told on standard error.
    pub tells_steps: bool,
    bench: &'static str,
    figures: Vec<Figure>,
}

impl Session {
    /// A run of the benchmark of this name.
    pub fn new(bench: &'static str, size: Size, tells_steps: bool) -> Self {
        Self {
            size,
            tells_steps,
            bench,
            figures: Vec::new(),
        }
    }

    /// Whether everything is to be measured.
    pub fn is_full(&self) -> bool {
        self.size == Size::Full
    }

    /// Tells what is being done, for whoever waits.
    pub fn step(&self, what: &str) {
        if self.tells_steps {
            eprintln!("{}: {what}", self.bench);
        }
    }

    /// Adds a figure.
    pub fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// What was measured.
    pub fn into_figures(self) -> Vec<Figure> {
        self.figures
    }
}
