//! Runs the simulation: many seeds, or one of them to be looked at.
//!
//! ```text
//! simulate                              a hundred seeds from a new one on
//! simulate --minutes 60                 as many as an hour takes
//! simulate --kills 100000               until so many agents have died while they held copies
//! simulate --seed 1 --seeds 100000 --decisions 1000000000 --go-on --state long.json
//!                                       on all cores; ended at any time and begun again with the same words it
//!                                       goes on where it was
//! simulate --seed 118 --trace           one seed, event by event
//! simulate --way 3 --seed 118 --trace   the same, of a plan as it was drawn in an earlier way: kept seeds are of such
//! simulate --seed 1 --seeds 50 --hashes each seed's number that stands for all that happened: every build
//!                                       of one commit prints the same
//! simulate --rate lost=0.3              a third of all messages is lost, whatever the seeds draw
//! simulate --seed 118 --seeds 1         one seed; where it fails, the shortest history that does
//! simulate --bugs --seeds 10000         bugs put in by hand, and the seeds that find each (feature `bugs`)
//! ```
//!
//! Exit codes stand in [`AFTER_HELP`], which `--help` ends with.

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use tollgate::cli::exit::Exit;
use tollgate_tests::simulation::history::History;
use tollgate_tests::simulation::kept::{self, SeedsFault};
use tollgate_tests::simulation::plan::PLAN_WAYS;
use tollgate_tests::simulation::rates::{self, Rate, RateFault};
use tollgate_tests::simulation::so_far::{self, SoFarFault};
use tollgate_tests::simulation::swarm::{Order, Report, swarm};
use tollgate_tests::simulation::{run, told};

/// A tenth of a run's time went into the system's allocator; what is allocated decides nothing.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The seeds of a run that says nothing else.
const SEEDS: u64 = 100;

/// How long a shortest history is looked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The same where nobody watches.
const PROGRESS_IN_FILES_EVERY: Duration = Duration::from_secs(60);

/// What `--help` ends with.
const AFTER_HELP: &str = "\
Seeds that failed once and are kept in the tree run first, but not with --seed, which looks at what it names alone, \
nor with --kept, --kills or --rate. With the feature `bugs` there is --bugs, which looks for each of the bugs that are put in by hand.

Exit codes:
   0  nothing is wrong
   1  a law is violated, the program panicked, something was never met, or nobody was refused
  64  usage: options of which one would be ignored are refused, too, and a --state of another order
  65  seeds.txt, or the file of --kept or of --state, is bad, or of another version
  66  the file of --kept or of --state cannot be read, or that of --state is a directory, a device or a pipe
  73  the file of --state cannot be written, found before the first seed
  74  the file of --state could not be written any more, the report is of all that was run; or what is printed cannot
      be written, unless nobody reads it any more
  77  as 73, where a right is missing";

/// Seeds that may be named: with as many behind them as may be asked for, there is no end to them.
const SEED_MAX: u64 = i64::MAX as u64;

/// More minutes are more seconds than there are.
const MINUTES_MAX: u64 = u64::MAX / 60;

/// Each is a thread with a world of its own, and nobody has as many cores.
const WORKERS_MAX: u64 = 1024;

/// Why nothing was run, or what it came to is not written down.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Seeds(#[from] SeedsFault),
    #[error("--state: {0}")]
    State(#[from] SoFarFault),
    #[error("--rate: {0}")]
    Rates(#[from] RateFault),
    #[error("what is printed cannot be written: {0}")]
    Printed(io::Error),
}

impl Fault {
    fn exit(&self) -> Exit {
        let state = match self {
            Self::Seeds(SeedsFault::Read { .. }) => return Exit::NoInput,
            Self::Seeds(_) => return Exit::Data,
            Self::Rates(_) => return Exit::Usage,
            Self::Printed(_) => return Exit::Io,
            Self::State(state) => state,
        };
        match state {
            SoFarFault::Read { .. } | SoFarFault::NoFile { .. } => Exit::NoInput,
            SoFarFault::Create { why, .. } => match why.kind() {
                ErrorKind::PermissionDenied => Exit::NotAuthorised,
                _ => Exit::CantCreate,
            },
            SoFarFault::Write { .. } => Exit::Io,
            SoFarFault::Unreadable { .. } | SoFarFault::Version { .. } | SoFarFault::Way { .. } => {
                Exit::Data
            }
            SoFarFault::Other { .. } => Exit::Usage,
        }
    }
}

/// Runs the shipped code in a simulated world, seed by seed, and checks the laws.
#[derive(Debug, Parser)]
#[command(name = "simulate", after_help = AFTER_HELP)]
struct Arguments {
    /// How many seeds; default: 100, where nothing else says when to end.
    #[arg(long, allow_negative_numbers = true, value_parser = number(1..=SEED_MAX))]
    seeds: Option<u64>,
    /// The first seed, and no kept ones before it; default: from the clock.
    #[arg(long, allow_negative_numbers = true, value_parser = number(0..=SEED_MAX))]
    seed: Option<u64>,
    /// Run the seeds of this file in place of those that are kept in the tree, and no new ones unless it is said how
    /// many; it reads as `tests/src/simulation/seeds.txt` does.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["state", "kills", "rates"])]
    kept: Option<PathBuf>,
    /// For how long new seeds are begun at most; with `--seeds`, `--decisions` or `--kills` it ends earlier where
    /// those are done. Kept seeds are run however long they take.
    #[arg(long, allow_negative_numbers = true, value_parser = number(1..=MINUTES_MAX))]
    minutes: Option<u64>,
    /// Go on until a seed fails.
    #[arg(long, conflicts_with_all = ["seeds", "decisions", "kills"])]
    until_failure: bool,
    /// Go on after a seed that fails, and name all of them in the end.
    #[arg(long, conflicts_with = "until_failure")]
    go_on: bool,
    /// Go on until there were so many decisions, too.
    #[arg(long, conflicts_with = "kills", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    decisions: Option<u64>,
    /// How many seeds are run at once; default: as many as there are cores.
    #[arg(long, allow_negative_numbers = true, value_parser = number(1..=WORKERS_MAX))]
    workers: Option<u64>,
    /// A file that says how far it is, written every ten seconds: where there is one, it is gone on with.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Draw plans in this way: those of kept seeds, and of failures that are told, are of one each; default: the
    /// present one.
    #[arg(long, allow_negative_numbers = true, value_parser = way, conflicts_with = "kills")]
    way: Option<u32>,
    /// Make the topic anew once, in seeds that have a fleet.
    #[arg(long)]
    anew: bool,
    /// A rate of a fault from the beginning to the calm, in place of what seeds draw: of messages `lost` or `doubled`,
    /// or of appends `refused` by the log of a fleet; as lost=0.05. For several kinds it is said several times. Seeds
    /// that have a journal have no such log: where all have, `refused` changes nothing.
    #[arg(long = "rate", value_name = "KIND=SHARE", conflicts_with = "kills")]
    rates: Vec<Rate>,
    /// Kill agents that hold copies again and again, until so many have died.
    #[arg(long, conflicts_with = "seeds", allow_negative_numbers = true, value_parser = number(1..=u64::MAX))]
    kills: Option<u64>,
    /// Show one seed's run as a log of events.
    #[arg(long, requires = "seed", conflicts_with_all = [
        "seeds", "minutes", "until_failure", "go_on", "decisions", "workers", "state", "kept", "format",
    ])]
    trace: bool,
    /// Put bugs in by hand, one at a time, and print how many seeds it takes to find each.
    #[cfg(feature = "bugs")]
    #[arg(long, conflicts_with_all = [
        "trace", "hashes", "minutes", "until_failure", "go_on", "decisions", "workers", "state", "kept", "way",
        "anew", "rates", "kills", "format",
    ])]
    bugs: bool,
    /// Of all bugs only this one.
    #[cfg(feature = "bugs")]
    #[arg(long, requires = "bugs")]
    bug: Option<String>,
    /// Print each seed's number that stands for everything that happened.
    #[arg(long, requires = "seed", conflicts_with_all = [
        "trace", "minutes", "until_failure", "go_on", "decisions", "workers", "state", "kept", "kills", "format",
    ])]
    hashes: bool,
    /// How the report is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn main() -> ExitCode {
    let carried_out = match Arguments::try_parse() {
        Ok(arguments) => carry_out(&arguments),
        Err(error) if error.use_stderr() => {
            // That it is wrong is said by the exit code, too.
            let _ = error.print();
            Ok(Exit::Usage)
        }
        Err(help) => is_read(help.print()).map(|_| Exit::Done),
    };
    let exit = carried_out.unwrap_or_else(|fault| {
        eprintln!("{fault}");
        fault.exit()
    });
    exit.into()
}

fn carry_out(arguments: &Arguments) -> Result<Exit, Fault> {
    rates::check(&arguments.rates)?;
    if let (true, Some(seed)) = (arguments.trace, arguments.seed) {
        return show(seed, arguments);
    }
    if let (true, Some(first)) = (arguments.hashes, arguments.seed) {
        return hashes(first, arguments);
    }
    #[cfg(feature = "bugs")]
    if arguments.bugs {
        return hunts::table(arguments);
    }
    long(arguments)
}

/// Many seeds.
fn long(arguments: &Arguments) -> Result<Exit, Fault> {
    let order = order(arguments)?;
    let first = order.first;
    eprintln!("seeds from {first}, {} at once", order.workers);
    let mut shown = Instant::now();
    let every = match std::io::stderr().is_terminal() {
        true => PROGRESS_EVERY,
        false => PROGRESS_IN_FILES_EVERY,
    };
    let report = swarm(&order, |report| {
        if every <= shown.elapsed() {
            shown = Instant::now();
            eprintln!(
                "{} s: {} seeds, {} decisions ({} a second of one core), {} died holding, failed {:?}",
                report.elapsed.as_secs(),
                report.seeds,
                report.decisions,
                told::per_second(report),
                report.returns.kills,
                report
                    .failed
                    .iter()
                    .map(|failed| failed.seed)
                    .collect::<Vec<_>>(),
            );
        }
    })?;
    let printed = tell(&report, &order, arguments.format);
    let is_good = report.is_good();
    let unwritten = report.unwritten.map(Fault::from);
    Ok(ended(is_good, [printed.err(), unwritten]))
}

/// How it ends: what is against a law counts for more than what could not be written, which is told all the same.
fn ended(is_good: bool, unwritten: [Option<Fault>; 2]) -> Exit {
    let exits = unwritten.into_iter().flatten().map(|fault| {
        eprintln!("{fault}");
        fault.exit()
    });
    let exits: Vec<_> = exits.collect();
    match is_good {
        true => exits.first().copied().unwrap_or(Exit::Done),
        false => Exit::No,
    }
}

/// The report, and of the first seed that failed the shortest history that does the same: that is told where the
/// report cannot be written, too.
fn tell(report: &Report, order: &Order, format: Format) -> Result<(), Fault> {
    let first = order.first;
    let history = || {
        let failed = report.failed.first()?;
        eprintln!("seed {}: {}", failed.seed, failed.violation);
        eprintln!("looking for the shortest history that does the same ...");
        // Where the program panics has been said; it does so many times now.
        std::panic::set_hook(Box::new(|_| {}));
        Some(History::look_for(failed, order, PATIENCE))
    };
    match format {
        Format::Text => {
            let printed = say(&told::text(first, report));
            if let Some(history) = history() {
                eprint!("{history}");
            }
            printed.map(drop)
        }
        Format::Json => {
            let json = told::json(first, report, history().as_ref());
            say(&format!("{json}\n")).map(drop)
        }
    }
}

fn order(arguments: &Arguments) -> Result<Order, Fault> {
    let known = match &arguments.state {
        Some(path) => so_far::first_seed(path)?,
        None => None,
    };
    let first = arguments.seed.or(known).unwrap_or_else(seed_of_the_clock);
    let seeds = match arguments {
        Arguments {
            kept: Some(_),
            seeds: None,
            minutes: None,
            decisions: None,
            ..
        } => Some(0),
        Arguments {
            seeds: None,
            minutes: None,
            kills: None,
            decisions: None,
            ..
        } => Some(SEEDS),
        Arguments { seeds, .. } => *seeds,
    };
    Ok(Order {
        decisions: arguments.decisions,
        time: arguments
            .minutes
            .map(|minutes| Duration::from_secs(60 * minutes)),
        until_failure: arguments.until_failure,
        // One seed is looked at alone.
        // What they tell is of their own rates.
        kept: match (
            &arguments.kept,
            arguments.seed,
            arguments.kills,
            &arguments.rates[..],
        ) {
            (Some(path), ..) => kept::in_file(path)?,
            (None, None, None, []) => kept::in_the_tree()?,
            _ => Vec::new(),
        },
        kills: arguments.kills,
        go_on: arguments.go_on,
        anew: arguments.anew,
        rates: arguments.rates.clone(),
        way: arguments.way,
        workers: match arguments
            .workers
            .and_then(|count| NonZeroUsize::new(usize::try_from(count).ok()?))
        {
            Some(count) => count,
            None => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        },
        state: arguments.state.clone(),
        ..Order::of(first, seeds)
    })
}

/// Prints; whether anybody reads on: who does not, as `head`, has read enough.
fn say(text: &str) -> Result<bool, Fault> {
    let mut out = io::stdout().lock();
    is_read(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

fn is_read(printed: io::Result<()>) -> Result<bool, Fault> {
    match printed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Fault::Printed(error)),
    }
}

/// A seed that violates a law prints its number too, and says so.
fn hashes(first: u64, arguments: &Arguments) -> Result<Exit, Fault> {
    let seeds = arguments.seeds.unwrap_or(SEEDS);
    let order = looked_at(first, arguments);
    let mut good = true;
    // Neither is above half of what there is.
    for seed in first..first + seeds {
        let run = run(order.plan_of(order.way(), seed), false);
        let printed = say(&format!("{seed} {:016x}\n", run.hash));
        if let Some(violation) = run.violation {
            eprintln!("seed {seed}: {violation}");
            good = false;
        }
        match printed {
            Ok(true) => {}
            Ok(false) => break,
            Err(fault) => return Ok(ended(good, [Some(fault), None])),
        }
    }
    Ok(ended(good, [None, None]))
}

/// What says which plans seeds that are looked at alone stand for.
fn looked_at(first: u64, arguments: &Arguments) -> Order {
    Order {
        kills: arguments.kills,
        anew: arguments.anew,
        rates: arguments.rates.clone(),
        way: arguments.way,
        ..Order::of(first, None)
    }
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

fn seed_of_the_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs())
}

fn show(seed: u64, arguments: &Arguments) -> Result<Exit, Fault> {
    let order = looked_at(seed, arguments);
    let run = run(order.plan_of(order.way(), seed), true);
    let trace = run.trace.unwrap_or_default();
    let printed = say(&format!("{trace}hash {:016x}\n", run.hash));
    let good = run.violation.is_none();
    if let Some(violation) = run.violation {
        eprintln!("seed {seed}: {violation}");
    }
    Ok(ended(good, [printed.err(), None]))
}

#[cfg(feature = "bugs")]
mod hunts {
    //! The table of bugs put in by hand.

    use tollgate::cli::exit::Exit;
    use tollgate_shared::bugs::Bug;
    use tollgate_tests::simulation::bugs::hunt;
    use tollgate_tests::simulation::trace::NO_LAW;

    use super::{Arguments, Fault, say};

    /// In so many seeds each bug has to be found.
    const SEEDS_MAX: u64 = 10_000;

    /// Prints the table; fails where a bug is not found.
    pub fn table(arguments: &Arguments) -> Result<Exit, Fault> {
        let named = |bug: &&Bug| arguments.bug.as_ref().is_none_or(|name| name == bug.name());
        let bugs: Vec<Bug> = Bug::ALL.iter().filter(named).copied().collect();
        if bugs.is_empty() {
            let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
            eprintln!("--bug: no such bug, expected one of {}", names.join(", "));
            return Ok(Exit::Usage);
        }
        // What panics is found; where it does is not of interest.
        std::panic::set_hook(Box::new(|_| {}));
        let (first, seeds) = (arguments.seed.unwrap_or(1), arguments.seeds);
        let mut all_found = true;
        say("| bug | what is wrong | seeds | found by |\n|---|---|---|---|\n")?;
        for bug in bugs {
            let found = hunt(bug, first, seeds.unwrap_or(SEEDS_MAX));
            let (needed, by) = match found {
                Some(found) => (
                    found.seeds.to_string(),
                    match found.law {
                        NO_LAW => found.check,
                        law => format!("law {law}, {}", found.check),
                    },
                ),
                None => {
                    all_found = false;
                    ("not found".to_owned(), String::new())
                }
            };
            let (name, what) = (bug.name(), bug.what());
            say(&format!("| `{name}` | {what} | {needed} | {by} |\n"))?;
        }
        Ok(match all_found {
            true => Exit::Done,
            false => Exit::No,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_another_version_are_bad_input() {
        let fault =
            Fault::from(kept::parse("seeds.txt", "tollgate-simulation-seeds 0\n").unwrap_err());
        assert_eq!(fault.exit(), Exit::Data);
        assert!(fault.to_string().starts_with("seeds.txt: line 1: found"));
    }
}
