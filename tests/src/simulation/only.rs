//! Which faults of a plan are left in: a shortest history, as it is asked for again.
//!
//! ```text
//! --only 3,7      the fourth fault and the eighth, in the order in which the plan has them, and no other
//! --only none     none at all
//! ```
//!
//! The numbers are those by which the trace of the whole seed calls its faults. Knows nothing of how a history was
//! shortened. What stays true: whatever else a plan has is left as it is, and so is each fault that is left in.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::faults::Episode;
use super::plan::Plan;

/// How it is written that there are none.
const NONE: &str = "none";

/// The numbers of what is left in, from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only(BTreeSet<usize>);

/// What is wrong with such numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnlyFault {
    /// They are none.
    #[error("found `{0}`, expected numbers of faults from 0, as 3,7, or none")]
    Form(String),
    /// The plan has no such fault.
    #[error("found the fault {found}, expected {}", expected(*faults))]
    Range {
        /// The number.
        found: usize,
        /// How many the plan has.
        faults: usize,
    },
}

fn expected(faults: usize) -> String {
    match faults.checked_sub(1) {
        None => format!("{NONE}: this seed's plan has no faults"),
        Some(last) => format!("from 0 to {last}, or {NONE}: this seed's plan has {faults}"),
    }
}

impl Only {
    /// The numbers of those that are left of what was planned, where others were taken out.
    pub fn left(planned: &[Episode], left: &[Episode]) -> Self {
        let mut planned = planned.iter().enumerate();
        let number = |one: &Episode| planned.find(|(_, planned)| *planned == one);
        Self(
            left.iter()
                .filter_map(number)
                .map(|(number, _)| number)
                .collect(),
        )
    }

    /// Each, in order.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Looks whether the plan has all of them.
    ///
    /// # Errors
    ///
    /// [`OnlyFault::Range`].
    pub fn check(&self, plan: &Plan) -> Result<(), OnlyFault> {
        let faults = plan.episodes.len();
        match self.0.last() {
            Some(found) if faults <= *found => Err(OnlyFault::Range {
                found: *found,
                faults,
            }),
            _ => Ok(()),
        }
    }

    /// The plan with no others.
    pub fn of(&self, mut plan: Plan) -> Plan {
        let mut number = 0..;
        let is_left = |_: &Episode| number.next().is_some_and(|number| self.0.contains(&number));
        plan.episodes.retain(is_left);
        plan
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(NONE);
        }
        let numbers: Vec<_> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

impl FromStr for Only {
    type Err = OnlyFault;

    fn from_str(text: &str) -> Result<Self, OnlyFault> {
        if text == NONE {
            return Ok(Self::default());
        }
        let numbers: Result<_, _> = text.split(',').map(str::parse).collect();
        numbers
            .map(Self)
            .map_err(|_| OnlyFault::Form(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::faults::Fault;
    use super::super::run;
    use super::super::shrink::shrink;
    use super::super::trace::PANICKED;
    use super::*;

    /// It is short.
    const SEED: u64 = 3;

    #[test]
    fn numbers_read_as_they_are_written_and_what_is_wrong_is_said() {
        for text in ["none", "0", "3,7,11"] {
            let only: Only = text.parse().expect("numbers");
            assert_eq!(only.to_string(), text);
        }
        for bad in ["", "3,", "-1", "all", "3;7", "none,3"] {
            let said = bad.parse::<Only>().unwrap_err().to_string();
            let expected = "expected numbers of faults from 0, as 3,7, or none";
            assert_eq!(said, format!("found `{bad}`, {expected}"));
        }
    }

    #[test]
    fn what_is_out_of_range_is_told_with_what_there_is() {
        let mut plan = Plan::draw(SEED);
        let faults = plan.episodes.len();
        let only = |number: usize| Only(BTreeSet::from([0, number]));
        assert_eq!(only(faults - 1).check(&plan), Ok(()));
        let said = only(faults).check(&plan).unwrap_err().to_string();
        let expected = format!(
            "found the fault {faults}, expected from 0 to {}, or none: this seed's plan has {faults}",
            faults - 1
        );
        assert_eq!(said, expected);
        plan.episodes.clear();
        let said = only(0).check(&plan).unwrap_err().to_string();
        let expected = "found the fault 0, expected none: this seed's plan has no faults";
        assert_eq!(said, expected);
        assert_eq!(Only::default().check(&plan), Ok(()));
    }

    #[test]
    fn the_numbers_of_a_shortest_history_give_it_again() {
        let mut planned = Plan::draw(SEED);
        // A document that there is not, which panics; there are two of them, as like as can be.
        let missing = Episode {
            from_us: 500_000,
            to_us: 500_000,
            fault: Fault::Push { document: 1_000 },
        };
        planned.episodes.push(missing.clone());
        planned.episodes.push(missing);
        let violation = run(planned.clone(), false).violation.expect("it panics");
        assert_eq!(violation.check, PANICKED);
        let shrunk = shrink(&planned, &violation, Duration::from_secs(60));
        let only = Only::left(&planned.episodes, &shrunk.plan.episodes);
        assert_eq!(only.0.len(), 1, "{only}");
        let again = only.of(planned);
        assert_eq!(again.episodes, shrunk.plan.episodes);
        assert_eq!(run(again, false).violation, Some(shrunk.violation));
    }
}
