//! The shortest history that was found to fail as a seed did: for people, and as JSON.
//!
//! ```text
//! seed 118 with 1 of 12 faults (31 runs): law 5, each entry counts once at 3.200000 s: ...
//!   Shared, 2 partitions, 2 owners, 1 agents
//!      1200000 us to    1900000 us  Crash { owner: 1, after: 17, in_disk: false, power: true }
//! see it with: simulate --way 7 --seed 118 --trace
//! ```
//!
//! Knows nothing of how it is looked for. What stays true: both forms say the same.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::rates::Rate;
use super::run;
use super::shrink::{Shrunk, shrink};
use super::swarm::{Failed, Order};

/// A seed that failed, and the shortest history that does the same.
#[derive(Debug)]
pub struct History {
    seed: u64,
    way: u32,
    anew: bool,
    rates: Vec<Rate>,
    /// Faults of its plan.
    planned: usize,
    /// None: this build does not find it, since an earlier part of the swarm was by another one.
    shrunk: Option<Shrunk>,
}

impl History {
    /// Looks for it, for so long at most.
    pub fn look_for(failed: &Failed, order: &Order, patience: Duration) -> Self {
        let plan = order.plan_of(failed.way, failed.seed);
        let found = run(plan.clone(), false).violation;
        let is_found = found.is_some_and(|found| found.check == failed.violation.check);
        Self {
            seed: failed.seed,
            way: failed.way,
            anew: order.anew,
            rates: order.rates.clone(),
            planned: plan.episodes.len(),
            shrunk: is_found.then(|| shrink(&plan, &failed.violation, patience)),
        }
    }

    fn command(&self) -> String {
        let Self { seed, way, .. } = self;
        let anew = if self.anew { "--anew " } else { "" };
        let rates = self.rates.iter().map(|rate| format!("--rate {rate} "));
        let rates: String = rates.collect();
        format!("simulate --way {way} {anew}{rates}--seed {seed} --trace")
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let Some(shrunk) = &self.shrunk else {
            return json!({"seed": self.seed, "found_by_this_build": false, "see": self.command()});
        };
        let (plan, violation) = (&shrunk.plan, &shrunk.violation);
        let faults: Vec<Value> = plan
            .episodes
            .iter()
            .map(|one| {
                json!({
                    "from_us": one.from_us,
                    "to_us": one.to_us,
                    "kind": one.fault.kind(),
                    "fault": format!("{:?}", one.fault),
                })
            })
            .collect();
        json!({
            "seed": self.seed,
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
            "see": self.command(),
        })
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed;
        match &self.shrunk {
            None => writeln!(f, "seed {seed}: this build does not find it")?,
            Some(shrunk) => {
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
                for one in &plan.episodes {
                    let (from_us, to_us) = (one.from_us, one.to_us);
                    writeln!(f, "  {from_us:>10} us to {to_us:>10} us  {:?}", one.fault)?;
                }
            }
        }
        writeln!(f, "see it with: {}", self.command())
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::{Episode, Fault};
    use super::super::plan::Plan;
    use super::super::trace::Violation;
    use super::*;

    #[test]
    fn both_forms_say_which_faults_are_left() {
        let mut plan = Plan::draw(1);
        plan.episodes = vec![Episode {
            from_us: 5,
            to_us: 9,
            fault: Fault::Stall { owner: 0 },
        }];
        let violation = Violation {
            law: 3,
            at_us: 7,
            check: "a check".into(),
            what: "what".to_owned(),
        };
        let history = History {
            seed: 1,
            way: 3,
            anew: true,
            rates: vec!["lost=0.25".parse().expect("a rate")],
            planned: 4,
            shrunk: Some(Shrunk {
                plan,
                violation,
                runs: 6,
            }),
        };
        let (text, json) = (history.to_string(), history.json());
        assert!(
            text.starts_with("seed 1 with 1 of 4 faults (6 runs): law 3, a check"),
            "{text}"
        );
        assert!(
            text.contains("5 us to          9 us  Stall { owner: 0 }"),
            "{text}"
        );
        assert_eq!(json["faults"][0]["kind"], "owner stalled");
        assert_eq!(json["faults"][0]["from_us"], 5);
        assert_eq!(
            (&json["faults_planned"], &json["runs"]),
            (&json!(4), &json!(6))
        );
        let see = "simulate --way 3 --anew --rate lost=0.25 --seed 1 --trace";
        assert!(text.ends_with(&format!("see it with: {see}\n")), "{text}");
        assert_eq!(json["see"], see);
    }

    #[test]
    fn what_this_build_does_not_find_is_told_as_that() {
        let history = History {
            seed: 1,
            way: 7,
            anew: false,
            rates: Vec::new(),
            planned: 4,
            shrunk: None,
        };
        assert!(
            history
                .to_string()
                .starts_with("seed 1: this build does not find it\n")
        );
        assert_eq!(history.json()["found_by_this_build"], false);
    }
}
