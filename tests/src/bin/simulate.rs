//! Runs the simulation: many seeds, with a line of JSON for each, or one seed with its trace.
//!
//! ```text
//! simulate                                  the kept plans, and a hundred seeds after a new one
//! simulate --seconds 3600 --out long.jsonl  as many seeds as an hour allows
//! simulate --from 4711 --seeds 100000       seeds from this one on, without the kept plans: resumes a run
//! simulate --kills --seconds 60             plans about agents that die while they hold copies
//! simulate --from 118 --trace               one seed, event by event
//! simulate --from 118 --shrink short.json   the plan with the fewest faults that fails as the seed does
//! simulate --plan short.json --trace        the plan in a file, event by event
//! ```
//!
//! `--help` lists the exit codes. Lines contain no times: two builds of one commit print
//! the same with `--workers 1`.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tollgate::exit::Exit;
use tollgate_tests::simulation::kept;
use tollgate_tests::simulation::plan::Plan;
use tollgate_tests::simulation::run;
use tollgate_tests::simulation::runner::{Order, run_all};
use tollgate_tests::simulation::shrink::shrink;

/// A tenth of a run's time was spent in the system's allocator; the allocator does not influence the results.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of seeds if no option states it.
const SEEDS: u64 = 100;

/// How long a shorter plan is searched for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often progress is shown on a terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The same if the output is not a terminal.
const PROGRESS_IN_FILES_EVERY: Duration = Duration::from_secs(60);

const AFTER_HELP: &str = "\
A run has no state but its lines: Ctrl-C ends it, and --from with the next seed resumes it.

Exit codes:
   0  nothing is wrong
   1  a law is violated, the program panicked, something was never met, or nobody was refused
  64  usage
  65  a plan does not read
  66  a plan's file cannot be read
  73  the file of --out or --shrink cannot be created
  74  what is printed cannot be written";

/// Runs the shipped code in a simulated world, seed by seed, and checks the laws.
#[derive(Debug, Parser)]
#[command(name = "simulate", after_help = AFTER_HELP)]
struct Arguments {
    /// The first seed, and no kept plans before it; default: the kept plans, and then a seed by the clock.
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// How many seeds; default: 100, where `--seconds` does not say when to end.
    #[arg(long)]
    seeds: Option<u64>,
    /// For how long new seeds are begun at most. Kept plans are run however long they take.
    #[arg(long)]
    seconds: Option<u64>,
    /// How many seeds are run at once; default: as many as there are cores.
    #[arg(long)]
    workers: Option<NonZeroUsize>,
    /// Where the lines go; default: they are printed.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seeds stand for plans about agents that die while they hold copies.
    #[arg(long)]
    kills: bool,
    /// Run the plan in this file, and no seeds.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "seeds", "seconds", "kills"])]
    plan: Option<PathBuf>,
    /// Show the one seed, or plan, as a log of events.
    #[arg(long, conflicts_with_all = ["seeds", "seconds", "workers", "out", "shrink"])]
    trace: bool,
    /// Write the plan with the fewest faults that fails as the one seed, or plan, does.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "seconds", "workers", "out"])]
    shrink: Option<PathBuf>,
}

/// The exit code and the reason, if nothing was run, or not to its end.
type Failed = (Exit, String);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let is_wrong = error.use_stderr();
            // If the text cannot be printed, only the exit code reports the error.
            let printed = error.print();
            return match (is_wrong, printed) {
                (true, _) => Exit::Usage,
                (false, Ok(())) => Exit::Done,
                (false, Err(_)) => Exit::Io,
            }
            .into();
        }
    };
    let exit = carry_out(&arguments).unwrap_or_else(|(exit, why)| {
        eprintln!("{why}");
        exit
    });
    exit.into()
}

fn carry_out(arguments: &Arguments) -> Result<Exit, Failed> {
    let order = order(arguments)?;
    if !arguments.trace && arguments.shrink.is_none() {
        return many(&order, arguments.out.as_deref());
    }
    let plan = match (arguments.from, order.kept.first()) {
        (Some(seed), _) => order.draw(seed),
        (None, Some(plan)) if arguments.plan.is_some() => plan.clone(),
        _ => {
            let why = "--trace, --shrink: found no --from or --plan beside it, expected one";
            return Err((Exit::Usage, why.to_owned()));
        }
    };
    match &arguments.shrink {
        Some(path) => shorten(plan, path),
        None => show(plan),
    }
}

fn order(arguments: &Arguments) -> Result<Order, Failed> {
    let kept = match (&arguments.plan, arguments.from, arguments.kills) {
        (Some(path), ..) => {
            vec![kept::read(path).map_err(|fault| (exit_of(&fault), fault.to_string()))?]
        }
        (None, None, false) => {
            kept::in_the_tree().map_err(|fault| (exit_of(&fault), fault.to_string()))?
        }
        _ => Vec::new(),
    };
    let seeds = match (arguments.seeds, arguments.seconds) {
        (Some(seeds), _) => seeds,
        (None, _) if arguments.plan.is_some() => 0,
        (None, Some(_)) => u64::MAX,
        (None, None) => SEEDS,
    };
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Ok(Order {
        kept,
        time: arguments.seconds.map(Duration::from_secs),
        workers: arguments.workers.unwrap_or_else(cores),
        kills: arguments.kills,
        ..Order::of(arguments.from.unwrap_or_else(seed_of_the_clock), seeds)
    })
}

fn exit_of(fault: &kept::PlanFault) -> Exit {
    match fault {
        kept::PlanFault::Read { .. } => Exit::NoInput,
        kept::PlanFault::Form { .. } => Exit::Data,
    }
}

fn seed_of_the_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs())
}

/// Runs many seeds, and prints their lines and their sum.
fn many(order: &Order, out: Option<&Path>) -> Result<Exit, Failed> {
    let mut to: Box<dyn Write + Send> = match out {
        Some(path) => Box::new(create(path)?),
        None => Box::new(io::stdout()),
    };
    eprintln!("seeds from {}, {} at once", order.from, order.workers);
    let every = match io::stderr().is_terminal() {
        true => PROGRESS_EVERY,
        false => PROGRESS_IN_FILES_EVERY,
    };
    let (began, mut shown, mut seeds, mut failed) = (Instant::now(), Instant::now(), 0_u64, 0_u64);
    let sum = run_all(order, |line| {
        (seeds, failed) = (seeds + 1, failed + u64::from(!line.ok));
        if every <= shown.elapsed() {
            shown = Instant::now();
            let seconds = began.elapsed().as_secs();
            eprintln!("{seconds} s: {seeds} seeds, {failed} failed");
        }
        to.write_all(line.json().as_bytes())
            .and_then(|()| to.flush())
    });
    let sum = match sum {
        Ok(sum) => sum,
        // The reader of the output closed it, as `head` does, and needs no more.
        Err(why) if why.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Done),
        Err(why) => return Err(unprinted(&why)),
    };
    eprint!("{sum}");
    Ok(match sum.is_good() {
        true => Exit::Done,
        false => Exit::No,
    })
}

fn create(path: &Path) -> Result<File, Failed> {
    File::create(path).map_err(|why| {
        let why = format!("{}: cannot be written: {why}", path.display());
        (Exit::CantCreate, why)
    })
}

fn unprinted(why: &io::Error) -> Failed {
    let why = format!("what is printed cannot be written: {why}");
    (Exit::Io, why)
}

/// Runs one plan, and prints its trace.
fn show(plan: Plan) -> Result<Exit, Failed> {
    let run = run(plan, true);
    let text = format!("{}hash {:016x}\n", run.trace.unwrap_or_default(), run.hash);
    if let Some(violation) = &run.violation {
        eprintln!("seed {}: {violation}", run.plan.seed);
    }
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(unprinted(&why)),
        _ if run.violation.is_some() => Ok(Exit::No),
        _ => Ok(Exit::Done),
    }
}

/// Writes a shorter plan that fails in the same way.
fn shorten(plan: Plan, path: &Path) -> Result<Exit, Failed> {
    let mut file = create(path)?;
    let run = run(plan, false);
    let Some(violation) = run.violation else {
        let why = format!("seed {}: found no violation, expected one", run.plan.seed);
        return Err((Exit::Usage, why));
    };
    eprintln!("seed {}: {violation}", run.plan.seed);
    // The place of the panic was printed; shrinking repeats it many times.
    std::panic::set_hook(Box::new(|_| {}));
    let shrunk = shrink(&run.plan, &violation, PATIENCE);
    let (left, all) = (shrunk.plan.episodes.len(), run.plan.episodes.len());
    eprintln!(
        "with {left} of {all} faults ({} runs): {}",
        shrunk.runs, shrunk.violation
    );
    file.write_all(shrunk.plan.json().as_bytes())
        .map_err(|why| unprinted(&why))?;
    Ok(Exit::No)
}
