//! The common parts of all benchmarks. Knows none of the benchmarks.
//!
//! ```text
//! stats     medians and ranges, ratios of interleaved rounds
//! clock     monotonic and thread CPU time           memory   resident bytes
//! figure    a value, its target, its peers          child    processes that never outlive the parent
//! report    for people, as JSON lines               results  RESULTS.md
//! machine   the conditions of a measurement         beside   programs built next to this one
//! calls     the cost of a call                      aggregator   an aggregator during a benchmark
//! kafka     a Kafka during a benchmark              serving    an aggregator that is killed and restarted
//! paced     an agent that offers calls at given instants
//! secured   keys for a fleet with TLS and tokens            peers    other limiters beside ours
//! ```

pub mod agents;
pub mod aggregator;
pub mod beside;
pub mod calls;
pub mod child;
pub mod clock;
pub mod figure;
// The tests' file, but not their crate: the crate would enable a feature of the agent, by which
// tests drive its clock, in the measured program.
#[path = "../../../tests/src/kafka/local.rs"]
pub mod kafka;
pub mod machine;
pub mod memory;
pub mod paced;
pub mod peers;
pub mod report;
pub mod results;
pub mod secured;
pub mod serving;
pub mod stats;

use figure::Figure;

/// A benchmark.
pub struct Bench {
    /// Its name.
    pub name: &'static str,
    /// What it measures, in a line.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&mut Session) -> anyhow::Result<()>,
}

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// What takes up to about a minute.
    Usual,
    /// Everything, however long it takes.
    Full,
}

/// One run of one benchmark: its task, and the figures so far.
pub struct Session {
    /// How much to measure.
    pub size: Size,
    /// Whether steps are printed on standard error.
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

    /// Whether to measure everything.
    pub fn is_full(&self) -> bool {
        self.size == Size::Full
    }

    /// Prints the current step, for a waiting user.
    pub fn step(&self, what: &str) {
        if self.tells_steps {
            eprintln!("{}: {what}", self.bench);
        }
    }

    /// Adds a figure.
    pub fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// The figures.
    pub fn into_figures(self) -> Vec<Figure> {
        self.figures
    }
}
