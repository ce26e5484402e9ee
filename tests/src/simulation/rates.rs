//! Rates of faults that are asked for, in place of those that a seed draws.
//!
//! ```text
//! lost=0.05      of all messages between agents and owners one in twenty is lost, until the calm
//! doubled=0      none comes twice
//! refused=0.3    of all appends to the log of a fleet three in ten are refused, and half of those are taken all the same
//! ```
//!
//! Knows nothing of what a fault does. What stays true: every other fault is what the seed draws.

use std::fmt;
use std::str::FromStr;

use super::faults::{Edge, Episode, Fault, WAYS};
use super::plan::{LogPlan, Plan};
use super::random::CERTAIN_PPM;

/// What has a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rated {
    /// Messages that are lost.
    Lost,
    /// Messages that come twice.
    Doubled,
    /// Appends that the log of a fleet refuses.
    Refused,
}

/// All of them, by name.
const NAMES: [(Rated, &str); 3] = [
    (Rated::Lost, "lost"),
    (Rated::Doubled, "doubled"),
    (Rated::Refused, "refused"),
];

/// One rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Of what.
    pub of: Rated,
    /// So many in a million.
    pub ppm: u32,
}

/// What is wrong with a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateFault {
    /// It is none.
    #[error("found `{0}`, expected KIND=SHARE, as lost=0.05")]
    Form(String),
    /// There is no such kind.
    #[error("found the kind `{0}`, expected one of lost, doubled, refused")]
    Kind(String),
    /// It is out of range.
    #[error("found the share `{0}`, expected a number from 0 to 1")]
    Share(String),
    /// It would be counted as none.
    #[error("found the share `{0}`, expected 0, or 0.000001 (one in a million) at least")]
    Least(String),
    /// There are two of one kind.
    #[error("found two rates of the kind `{0}`, expected one")]
    Twice(&'static str),
}

impl Rated {
    fn name(self) -> &'static str {
        let mut names = NAMES.into_iter();
        names
            .find(|(of, _)| *of == self)
            .map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = f64::from(self.ppm) / f64::from(CERTAIN_PPM);
        write!(f, "{}={share}", self.of.name())
    }
}

impl FromStr for Rate {
    type Err = RateFault;

    fn from_str(text: &str) -> Result<Self, RateFault> {
        let form = || RateFault::Form(text.to_owned());
        let (kind, share) = text.split_once('=').ok_or_else(form)?;
        let found = NAMES.into_iter().find(|(_, name)| *name == kind);
        let (of, _) = found.ok_or_else(|| RateFault::Kind(kind.to_owned()))?;
        let fault = || RateFault::Share(share.to_owned());
        let number: f64 = share.parse().map_err(|_| fault())?;
        if !(0.0..=1.0).contains(&number) {
            return Err(fault());
        }
        if 0.0 < number && number < 1.0 / f64::from(CERTAIN_PPM) {
            return Err(RateFault::Least(share.to_owned()));
        }
        let ppm = (number * f64::from(CERTAIN_PPM)).round() as u32;
        Ok(Self { of, ppm })
    }
}

/// Looks whether each kind has one rate at most.
///
/// # Errors
///
/// [`RateFault::Twice`].
pub fn check(rates: &[Rate]) -> Result<(), RateFault> {
    for (_, name) in NAMES {
        let of_kind = rates.iter().filter(|rate| rate.of.name() == name);
        if 1 < of_kind.count() {
            return Err(RateFault::Twice(name));
        }
    }
    Ok(())
}

impl Plan {
    /// The same with rates that are asked for: from the beginning to the calm, everywhere.
    #[must_use]
    pub fn with_rates(mut self, rates: &[Rate]) -> Self {
        for rate in rates {
            self.episodes.retain(|one| !is_of(rate.of, &one.fault));
            if 0 < rate.ppm {
                let faults = self.faults_of(*rate);
                let to_us = self.calm_us();
                let episodes = faults.into_iter().map(|fault| Episode {
                    from_us: 0,
                    to_us,
                    fault,
                });
                self.episodes.extend(episodes);
            }
        }
        self.episodes.sort_by_key(|episode| episode.from_us);
        self
    }

    fn faults_of(&self, Rate { of, ppm }: Rate) -> Vec<Fault> {
        if of == Rated::Refused {
            let refused = Fault::Appends {
                refused_ppm: ppm,
                taken_ppm: CERTAIN_PPM / 2,
            };
            return Vec::from_iter((self.log == LogPlan::Shared).then_some(refused));
        }
        let mut faults = Vec::new();
        for agent in 0..self.agents.len() {
            for owner in 0..self.owners {
                for way in WAYS {
                    let edge = Edge { agent, owner, way };
                    faults.push(match of {
                        Rated::Doubled => Fault::Duplication(edge, ppm),
                        Rated::Lost | Rated::Refused => Fault::Loss(edge, ppm),
                    });
                }
            }
        }
        faults
    }
}

fn is_of(of: Rated, fault: &Fault) -> bool {
    match of {
        Rated::Lost => matches!(fault, Fault::Loss(..)),
        Rated::Doubled => matches!(fault, Fault::Duplication(..)),
        Rated::Refused => matches!(fault, Fault::Appends { .. }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_reads_as_it_is_written_and_what_is_wrong_is_said() {
        for text in ["lost=0.05", "lost=0.000001", "doubled=0", "refused=1"] {
            let rate: Rate = text.parse().expect("a rate");
            assert_eq!(rate.to_string(), text);
        }
        let said = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        let share = "expected a number from 0 to 1";
        for bad in ["1.01", "-0.1", "NaN", "inf", "x", ""] {
            assert_eq!(
                said(&format!("lost={bad}")),
                format!("found the share `{bad}`, {share}")
            );
        }
        for less in ["0.0000001", "0.00000099", "1e-300"] {
            let least = "expected 0, or 0.000001 (one in a million) at least";
            assert_eq!(
                said(&format!("lost={less}")),
                format!("found the share `{less}`, {least}")
            );
        }
        let kinds = "expected one of lost, doubled, refused";
        assert_eq!(said("late=0.1"), format!("found the kind `late`, {kinds}"));
        let form = "expected KIND=SHARE, as lost=0.05";
        assert_eq!(said("lost"), format!("found `lost`, {form}"));
        let rate = |ppm| Rate {
            of: Rated::Lost,
            ppm,
        };
        assert_eq!(check(&[rate(1), rate(2)]), Err(RateFault::Twice("lost")));
    }

    #[test]
    fn what_is_asked_for_is_everywhere_and_all_else_is_as_drawn() {
        let all: [Rate; 3] =
            ["lost=0.5", "doubled=0", "refused=0.25"].map(|rate| rate.parse().expect("a rate"));
        for seed in 0..100 {
            let drawn = Plan::draw(seed);
            let plan = drawn.clone().with_rates(&all);
            let others = |plan: &Plan| -> Vec<Episode> {
                let rated = |one: &&Episode| !all.iter().any(|rate| is_of(rate.of, &one.fault));
                plan.episodes.iter().filter(rated).cloned().collect()
            };
            assert_eq!(others(&plan), others(&drawn));
            let edges = plan.agents.len() * plan.owners * WAYS.len();
            let count = |of| {
                plan.episodes
                    .iter()
                    .filter(|one| is_of(of, &one.fault))
                    .count()
            };
            assert_eq!(count(Rated::Lost), edges);
            assert_eq!(count(Rated::Doubled), 0);
            assert_eq!(
                count(Rated::Refused),
                usize::from(plan.log == LogPlan::Shared)
            );
        }
    }
}
