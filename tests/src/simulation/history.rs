//! The shortest history that was found to fail as a seed did: for people, and as JSON.
//!
//! ```text
//! seed 118 with 1 of 12 faults (31 runs): law 5, each entry counts once at 3.200000 s: ...
//!   Shared, 2 partitions, 2 owners, 1 agents
//!   fault 7     1200000 us to    1900000 us  Crash { owner: 1, after: 17, in_disk: false, power: true }
//! see it with: simulate --way 7 --seed 118 --only 7 --trace
//! see all of the seed with: simulate --way 7 --seed 118 --trace
//! ```
//!
//! Knows nothing of how it is looked for. What stays true: both forms say the same.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::Episode;
use super::only::Only;
use super::run;
use super::shrink::{Shrunk, shrink};
use super::swarm::{Failed, Order};

/// The words that show one seed, or `only` some of its faults, event by event: the seed by its way, and as the order
/// has it made anew or at rates of its own.
pub fn command(order: &Order, way: u32, seed: u64, only: Option<&Only>) -> String {
    let mut words = format!("simulate --way {way}");
    // Writing to a String does not fail.
    if order.anew {
        let _ = write!(words, " --anew");
    }
    for rate in &order.rates {
        let _ = write!(words, " --rate {rate}");
    }
    let _ = write!(words, " --seed {seed}");
    if let Some(only) = only {
        let _ = write!(words, " --only {only}");
    }
    let _ = write!(words, " --trace");
    words
}

/// A seed that failed, and the shortest history that does the same.
#[derive(Debug)]
pub struct History {
    seed: u64,
    /// What shows all of it.
    whole: String,
    /// Faults of its plan.
    planned: usize,
    /// None: this build does not find it, since an earlier part of the swarm was by another one.
    shortest: Option<Shortest>,
}

#[derive(Debug)]
struct Shortest {
    shrunk: Shrunk,
    /// Which of the faults that were planned are left.
    only: Only,
    /// What shows it.
    command: String,
}

impl History {
    /// Looks for it, for so long at most.
    pub fn look_for(failed: &Failed, order: &Order, patience: Duration) -> Self {
        let plan = order.plan_of(failed.way, failed.seed);
        let found = run(plan.clone(), false).violation;
        let is_found = found.is_some_and(|found| found.check == failed.violation.check);
        let shrunk = is_found.then(|| shrink(&plan, &failed.violation, patience));
        Self::of(failed, order, &plan.episodes, shrunk)
    }

    fn of(failed: &Failed, order: &Order, planned: &[Episode], shrunk: Option<Shrunk>) -> Self {
        let command = |only: Option<&Only>| command(order, failed.way, failed.seed, only);
        Self {
            seed: failed.seed,
            whole: command(None),
            planned: planned.len(),
            shortest: shrunk.map(|shrunk| {
                let only = Only::left(planned, &shrunk.plan.episodes);
                Shortest {
                    command: command(Some(&only)),
                    only,
                    shrunk,
                }
            }),
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let (seed, see_all) = (self.seed, &self.whole);
        let Some(Shortest {
            shrunk,
            only,
            command,
        }) = &self.shortest
        else {
            return json!({"seed": seed, "found_by_this_build": false, "see": see_all});
        };
        let (plan, violation) = (&shrunk.plan, &shrunk.violation);
        let faults: Vec<Value> = only
            .numbers()
            .zip(&plan.episodes)
            .map(|(number, one)| {
                json!({
                    "number": number,
                    "from_us": one.from_us,
                    "to_us": one.to_us,
                    "kind": one.fault.kind(),
                    "fault": format!("{:?}", one.fault),
                })
            })
            .collect();
        json!({
            "seed": seed,
            "found_by_this_build": true,
            "runs": shrunk.runs,
            "law": violation.law,
            "check": violation.check,
            "at_us": violation.at_us,
            "what": violation.what,
            "log": format!("{:?}", plan.log),
            "partitions": plan.partitions,
            "owners": plan.owners,
            "agents": plan.agents.len(),
            "faults_planned": self.planned,
            "faults": faults,
            "see": command,
            "see_all": see_all,
        })
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, see_all) = (self.seed, &self.whole);
        let Some(Shortest {
            shrunk,
            only,
            command,
        }) = &self.shortest
        else {
            writeln!(f, "seed {seed}: this build does not find it")?;
            return writeln!(f, "see it with: {see_all}");
        };
        let plan = &shrunk.plan;
        writeln!(
            f,
            "seed {seed} with {} of {} faults ({} runs): {}",
            plan.episodes.len(),
            self.planned,
            shrunk.runs,
            shrunk.violation
        )?;
        writeln!(
            f,
            "  {:?}, {} partitions, {} owners, {} agents",
            plan.log,
            plan.partitions,
            plan.owners,
            plan.agents.len()
        )?;
        for (number, one) in only.numbers().zip(&plan.episodes) {
            let (from_us, to_us) = (one.from_us, one.to_us);
            writeln!(
                f,
                "  fault {number:<3} {from_us:>10} us to {to_us:>10} us  {:?}",
                one.fault
            )?;
        }
        writeln!(f, "see it with: {command}")?;
        writeln!(f, "see all of the seed with: {see_all}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::Fault;
    use super::super::plan::Plan;
    use super::super::trace::Violation;
    use super::*;

    fn failed() -> Failed {
        Failed {
            seed: 1,
            way: 3,
            violation: Violation {
                law: 3,
                at_us: 7,
                check: "a check".into(),
                what: "what".to_owned(),
            },
        }
    }

    #[test]
    fn both_forms_say_which_faults_are_left() {
        let planned: Vec<Episode> = (0..4)
            .map(|owner| Episode {
                from_us: 5,
                to_us: 9,
                fault: Fault::Stall { owner },
            })
            .collect();
        let mut plan = Plan::draw(1);
        plan.episodes = vec![planned[2].clone()];
        let order = Order {
            anew: true,
            rates: vec!["lost=0.25".parse().expect("a rate")],
            ..Order::of(1, None)
        };
        let shrunk = Shrunk {
            plan,
            violation: failed().violation,
            runs: 6,
        };
        let history = History::of(&failed(), &order, &planned, Some(shrunk));
        let (text, json) = (history.to_string(), history.json());
        assert!(
            text.starts_with("seed 1 with 1 of 4 faults (6 runs): law 3, a check"),
            "{text}"
        );
        assert!(
            text.contains("fault 2            5 us to          9 us  Stall { owner: 2 }"),
            "{text}"
        );
        assert_eq!(json["faults"][0]["number"], 2);
        assert_eq!(json["faults"][0]["kind"], "owner stalled");
        assert_eq!(json["faults"][0]["from_us"], 5);
        assert_eq!(
            (&json["faults_planned"], &json["runs"]),
            (&json!(4), &json!(6))
        );
        let see = "simulate --way 3 --anew --rate lost=0.25 --seed 1";
        let told = format!(
            "see it with: {see} --only 2 --trace\nsee all of the seed with: {see} --trace\n"
        );
        assert!(text.ends_with(&told), "{text}");
        assert_eq!(json["see"], format!("{see} --only 2 --trace"));
        assert_eq!(json["see_all"], format!("{see} --trace"));
    }

    #[test]
    fn what_this_build_does_not_find_is_told_as_that() {
        let history = History::of(&failed(), &Order::of(1, None), &[], None);
        assert_eq!(
            history.to_string(),
            "seed 1: this build does not find it\nsee it with: simulate --way 3 --seed 1 --trace\n"
        );
        assert_eq!(history.json()["found_by_this_build"], false);
    }
}
