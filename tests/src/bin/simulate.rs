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
//! simulate --seed 118 --only 3,7 --trace with two of its faults alone: so a shortest history is told
//! simulate --seed 1 --seeds 50 --hashes each seed's number that stands for all that happened: every build
//!                                       of one commit prints the same
//! simulate --rate lost=0.3              a third of all messages is lost, whatever the seeds draw
//! simulate --seed 118 --seeds 1         one seed; where it fails, the shortest history that does
//! ```
//!
//! Exit codes stand at the end of `--help`. What is taken has a file of its own, in a directory: beside this one it
//! would be a program.

#[path = "simulate/arguments.rs"]
mod arguments;
#[path = "simulate/signals.rs"]
mod signals;

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arguments::{Arguments, Format};
use clap::Parser as _;
use signals::Signals;
use tollgate::exit::Exit;
use tollgate_tests::simulation::history::History;
use tollgate_tests::simulation::kept::{self, SeedsFault};
use tollgate_tests::simulation::only::OnlyFault;
use tollgate_tests::simulation::rates::{self, RateFault};
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

/// Why nothing was run, or what it came to is not written down.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Seeds(#[from] SeedsFault),
    #[error("--state: {0}")]
    State(#[from] SoFarFault),
    #[error("--rate: {0}")]
    Rates(#[from] RateFault),
    #[error("--only: {0}")]
    Only(#[from] OnlyFault),
    #[error("--only: found no --trace beside it, expected one")]
    OnlyUntraced,
    #[error("what is printed cannot be written: {0}")]
    Printed(io::Error),
    #[error("signals cannot be listened to: {0}")]
    Signals(io::Error),
}

impl Fault {
    fn exit(&self) -> Exit {
        let state = match self {
            Self::Seeds(SeedsFault::Read { .. }) => return Exit::NoInput,
            Self::Seeds(_) => return Exit::Data,
            Self::Rates(_) | Self::Only(_) | Self::OnlyUntraced => return Exit::Usage,
            Self::Printed(_) | Self::Signals(_) => return Exit::Io,
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
    // The parser would ask for it only where nothing stands against it.
    if arguments.only.is_some() && !arguments.trace {
        return Err(Fault::OnlyUntraced);
    }
    if let (true, Some(seed)) = (arguments.trace, arguments.seed) {
        return show(seed, arguments);
    }
    if let (true, Some(first)) = (arguments.hashes, arguments.seed) {
        return hashes(first, arguments);
    }
    long(arguments)
}

/// Many seeds.
fn long(arguments: &Arguments) -> Result<Exit, Fault> {
    let signals = Signals::listen().map_err(Fault::Signals)?;
    let order = Order {
        stop: Arc::clone(&signals.stop),
        ..order(arguments)?
    };
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
    // What was interrupted need not have come to anything yet.
    let is_stopped = signals.exit().is_some() && report.failed.is_empty();
    let is_good = report.is_good() || is_stopped;
    let unwritten = report.unwritten.map(Fault::from);
    let exit = ended(is_good, [printed.err(), unwritten]);
    Ok(match (exit, signals.exit()) {
        (Exit::Done, Some(by)) => by,
        (exit, _) => exit,
    })
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

fn seed_of_the_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs())
}

fn show(seed: u64, arguments: &Arguments) -> Result<Exit, Fault> {
    let order = looked_at(seed, arguments);
    let mut plan = order.plan_of(order.way(), seed);
    if let Some(only) = &arguments.only {
        only.check(&plan)?;
        plan = only.of(plan);
    }
    let run = run(plan, true);
    let trace = run.trace.unwrap_or_default();
    let printed = say(&format!("{trace}hash {:016x}\n", run.hash));
    let good = run.violation.is_none();
    if let Some(violation) = run.violation {
        eprintln!("seed {seed}: {violation}");
    }
    Ok(ended(good, [printed.err(), None]))
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
