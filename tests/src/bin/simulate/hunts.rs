//! The table of bugs put in by hand, one at a time, and of how many seeds find each.

use tollgate::exit::Exit;
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
