//! Prints the table of all planted bugs, and of how many seeds it takes to find each.
//!
//! ```text
//! hunt                                   all bugs
//! hunt --bug tier-cleared --seeds 40     one bug, in at most 40 seeds
//! ```
//!
//! Exit codes: 0 if every bug was found, 1 if one was not, 64 if there is no bug of a given name.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use tollgate_shared::bugs::Bug;
use tollgate_tests::hunt::{Found, hunt};
use tollgate_tests::simulation::trace::NO_LAW;

/// A tenth of a run's time was spent in the system's allocator; the allocator does not influence the results.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Turns the bugs on, one at a time, and prints how many seeds it takes to find each.
#[derive(Debug, Parser)]
#[command(name = "hunt")]
struct Arguments {
    /// Of all bugs only these.
    #[arg(long = "bug", value_name = "NAME")]
    bugs: Vec<String>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// In so many seeds each bug has to be found.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// How many bugs are looked for at once.
    #[arg(long, default_value_t = 1)]
    workers: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let named = |bug: &&Bug| {
        let of_name = |name: &String| name == bug.name();
        arguments.bugs.is_empty() || arguments.bugs.iter().any(of_name)
    };
    let bugs: Vec<Bug> = Bug::ALL.iter().filter(named).copied().collect();
    if bugs.len() < arguments.bugs.len() {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        eprintln!(
            "--bug: no such bug, or twice the same; expected some of {}",
            names.join(", ")
        );
        return ExitCode::from(64);
    }
    // A panic counts as found; its message is not needed.
    std::panic::set_hook(Box::new(|_| {}));
    println!("| bug | what is wrong | seeds | found by |\n|---|---|---|---|");
    let (next, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = hunt(*bug, arguments.seed, arguments.seeds);
            missed.fetch_add(usize::from(found.is_none()), Ordering::Relaxed);
            println!("{}", row(*bug, found));
        }
    };
    // A bug is switched on for one thread.
    std::thread::scope(|scope| {
        for _ in 0..arguments.workers {
            scope.spawn(work);
        }
    });
    ExitCode::from(u8::from(0 < missed.into_inner()))
}

fn row(bug: Bug, found: Option<Found>) -> String {
    let (seeds, by) = match found {
        Some(Found { seeds, law, check }) if law == NO_LAW => (seeds.to_string(), check),
        Some(Found { seeds, law, check }) => (seeds.to_string(), format!("law {law}, {check}")),
        None => ("not found".to_owned(), String::new()),
    };
    format!("| `{}` | {} | {seeds} | {by} |", bug.name(), bug.what())
}
