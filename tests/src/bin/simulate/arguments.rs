//! What `simulate` takes, and what its help says: exit codes, too.
//!
//! Knows nothing of what is done with it. What stays true: an option that would be ignored beside another is refused,
//! and what is found and cannot be is told with what may be.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use tollgate_tests::simulation::only::Only;
use tollgate_tests::simulation::plan::PLAN_WAYS;
use tollgate_tests::simulation::rates::Rate;

/// What `--help` ends with.
const AFTER_HELP: &str = "\
Seeds that failed once and are kept in the tree run first, but not with --seed, which looks at what it names alone, \
nor with --kept, --kills or --rate.

Exit codes:
   0  nothing is wrong
   1  a law is violated, the program panicked, something was never met, or nobody was refused
  64  usage, as options of which one would be ignored, or a --state of another order
  65  seeds.txt, or the file of --kept or --state, is bad, or of another version
  66  the file of --kept or --state cannot be read, or --state is no regular file
  73  the file of --state cannot be written, found before the first seed
  74  what is printed, or the file of --state later on, cannot be written
  77  as 73, where a right is missing
 130  interrupted (143: terminated), and no seed had failed until then: the report is of what was run";

/// Seeds that may be named: with as many behind them as may be asked for, there is no end to them.
const SEED_MAX: u64 = i64::MAX as u64;

/// More minutes are more seconds than there are.
const MINUTES_MAX: u64 = u64::MAX / 60;

/// Each is a thread with a world of its own, and nobody has as many cores.
const WORKERS_MAX: u64 = 1024;

/// Runs the shipped code in a simulated world, seed by seed, and checks the laws.
#[derive(Debug, Parser)]
#[command(name = "simulate", after_help = AFTER_HELP)]
pub struct Arguments {
    /// How many seeds; default: 100, where nothing else says when to end.
    #[arg(long, allow_negative_numbers = true, value_parser = number(1..=SEED_MAX))]
    pub seeds: Option<u64>,
    /// The first seed, and no kept ones before it; default: from the clock.
    #[arg(long, allow_negative_numbers = true, value_parser = number(0..=SEED_MAX))]
    pub seed: Option<u64>,
    /// Run the seeds of this file in place of those that are kept in the tree, and no new ones unless it is said how
    /// many; it reads as `tests/src/simulation/seeds.txt` does.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["state", "kills", "rates"])]
    pub kept: Option<PathBuf>,
    /// For how long new seeds are begun at most; with `--seeds`, `--decisions` or `--kills` it ends earlier where
    /// those are done. Kept seeds are run however long they take.
    #[arg(long, allow_negative_numbers = true, value_parser = number(1..=MINUTES_MAX))]
    pub minutes: Option<u64>,
    /// Go on until a seed fails.
    #[arg(long, conflicts_with_all = ["seeds", "decisions", "kills"])]
    pub until_failure: bool,
    /// Go on after a seed that fails, and name all of them in the end.
    #[arg(long, conflicts_with = "until_failure")]
    pub go_on: bool,
    /// Go on until there were so many decisions, too.
    #[arg(long, conflicts_with = "kills", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub decisions: Option<u64>,
    /// How many seeds are run at once; default: as many as there are cores.
    #[arg(long, allow_negative_numbers = true, value_parser = number(1..=WORKERS_MAX))]
    pub workers: Option<u64>,
    /// A file that says how far it is, written every ten seconds: where there is one, it is gone on with.
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Draw plans in this way: those of kept seeds, and of failures that are told, are of one each; default: the
    /// present one.
    #[arg(long, allow_negative_numbers = true, value_parser = way, conflicts_with = "kills")]
    pub way: Option<u32>,
    /// Make the topic anew once, in seeds that have a fleet.
    #[arg(long)]
    pub anew: bool,
    /// A rate of a fault from the beginning to the calm, in place of what seeds draw: of messages `lost` or `doubled`,
    /// or of appends `refused` by the log of a fleet; as lost=0.05. For several kinds it is said several times. Seeds
    /// that have a journal have no such log: where all have, `refused` changes nothing.
    #[arg(long = "rate", value_name = "KIND=SHARE", conflicts_with = "kills")]
    pub rates: Vec<Rate>,
    /// Kill agents that hold copies again and again, until so many have died.
    #[arg(long, conflicts_with = "seeds", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    pub kills: Option<u64>,
    /// Show one seed's run as a log of events.
    #[arg(long, requires = "seed", conflicts_with_all = [
        "seeds", "minutes", "until_failure", "go_on", "decisions", "workers", "state", "kept", "format",
    ])]
    pub trace: bool,
    /// Of the seed's faults leave in only these, as 3,7, or none, by the numbers that the trace of the whole seed has: a
    /// shortest history is told with them. All else is as the seed draws it. It takes `--trace`.
    #[arg(long, value_name = "NUMBERS", allow_negative_numbers = true)]
    pub only: Option<Only>,
    /// Print each seed's number that stands for everything that happened.
    #[arg(long, requires = "seed", conflicts_with_all = [
        "trace", "minutes", "until_failure", "go_on", "decisions", "workers", "state", "kept", "kills", "format",
    ])]
    pub hashes: bool,
    /// How the report is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Reads a number; what else is found, below 0 too, is told with what may be.
fn number(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let found = text.parse().ok().filter(|found| bounds.contains(found));
        let (least, most) = (bounds.start(), bounds.end());
        found.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

fn way(text: &str) -> Result<u32, String> {
    let found = text.parse().ok().filter(|way| PLAN_WAYS.contains(way));
    found.ok_or_else(|| {
        let known: Vec<_> = PLAN_WAYS.iter().map(u32::to_string).collect();
        format!("expected one of {}", known.join(", "))
    })
}
