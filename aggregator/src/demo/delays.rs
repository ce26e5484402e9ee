//! Delays from calls that filled windows to the refusals by agents.
//!
//! ```text
//! denial   filled at   ends     agent 1 entered it at   agent 2
//! 7.3      10.000      11.000   10.002                  10.003      delay 3 ms
//! 7.9      10.001      11.001   10.002                  -           not received; refused by 8.0, which covers it
//! 8.0      10.150      11.150   10.152                  10.152      delay 2 ms, and 151 for 7.9
//! ```
//!
//! An agent may never enter a denial because a later one of the same pair overtakes it; then the denial takes
//! effect there only when the later one arrives. A window may be full before the call that fills it in the log, if the
//! log stands still and calls from before reach it later. What stays true: the longest delay includes such denials; a denial
//! that an agent never entered adds none unless a later one arrived before its end.

use std::collections::{BTreeMap, HashMap};

use tollgate_model::End;

/// A denial of a pair, in the order of the log.
#[derive(Clone, Copy, Debug)]
struct Filled {
    /// Partition, offset, entry.
    place: DenialPlace,
    /// When the call that filled the window was made, by the monotonic clock.
    at_ns: u64,
    /// How long the pair was denied from then on; `None`: for ever.
    for_us: Option<u64>,
}

/// Partition, offset and entry of a denial.
pub(super) type DenialPlace = (u32, u64, u32);

/// When an agent entered each denial.
pub(super) type EnteredDenials = HashMap<DenialPlace, u64>;

/// Denials of pairs, to be measured.
#[derive(Debug, Default)]
pub(super) struct Delays {
    by_pair: BTreeMap<(String, String), Vec<Filled>>,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    /// For each denial that every agent entered, the delay of the slowest, in microseconds.
    pub each_us: Vec<u64>,
    /// Denials that some agent did not enter.
    pub unheard: u64,
    /// The longest time during which an agent did not refuse although the pair was denied.
    pub longest_us: u64,
}

impl Delays {
    /// Adds the next denial of a pair: the call that caused it, and its end by the wall clock.
    pub fn add(
        &mut self,
        pair: (String, String),
        place: DenialPlace,
        (at_ns, at_wall_us): (u64, u64),
        end: End,
    ) {
        let for_us = match end {
            End::At(end_us) => Some(end_us.saturating_sub(at_wall_us)),
            End::Never => None,
        };
        self.by_pair.entry(pair).or_default().push(Filled {
            place,
            at_ns,
            for_us,
        });
    }

    /// The number of denials.
    pub fn count(&self) -> u64 {
        self.by_pair.values().map(|all| all.len() as u64).sum()
    }

    /// The delays, given when each agent entered which denial.
    pub fn measure(&self, entered: &[EnteredDenials]) -> Measured {
        let mut measured = Measured::default();
        for denials in self.by_pair.values() {
            for denial in denials {
                let each = entered.iter().map(|of| of.get(&denial.place).copied());
                match each.collect::<Option<Vec<u64>>>() {
                    Some(all) if !all.is_empty() => {
                        let slowest = all.into_iter().max().unwrap_or(0);
                        measured.each_us.push(since_us(denial, slowest));
                    }
                    _ => measured.unheard += 1,
                }
            }
            for of_agent in entered {
                let longest = longest_us(denials, of_agent);
                measured.longest_us = measured.longest_us.max(longest);
            }
        }
        measured
    }
}

/// One agent's calls of a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeCalls<'a> {
    /// When they were made, by the monotonic clock, in order.
    pub at_ns: &'a [u64],
    /// How many of them the log had when the denial was stated.
    pub in_log: usize,
    /// How many it has in the end: a call that never reaches it fills nothing.
    pub in_log_at_end: usize,
}

/// When a window was full in fact, given the call that filled it in the log.
///
/// Calls that were made before and reach the log later count at their own instants, so that the window was full that
/// many calls earlier.
pub(super) fn full_at_ns<'a>(filled_ns: u64, agents: impl Iterator<Item = MadeCalls<'a>>) -> u64 {
    let before = |calls: MadeCalls<'a>| {
        let before = calls.at_ns.partition_point(|at_ns| *at_ns <= filled_ns);
        let missing = before.min(calls.in_log_at_end).saturating_sub(calls.in_log);
        (&calls.at_ns[..before], missing)
    };
    let agents: Vec<_> = agents.map(before).collect();
    let missing: usize = agents.iter().map(|(_, missing)| missing).sum();
    let newest = |(calls, _): &(&'a [u64], usize)| calls.len().saturating_sub(1 + missing);
    let newest = agents.iter().flat_map(|of| &of.0[newest(of)..]);
    let mut made: Vec<u64> = newest.copied().collect();
    made.sort_unstable();
    let full = made.len().saturating_sub(1 + missing);
    made.get(full).copied().unwrap_or(filled_ns)
}

/// The longest time from a denial of one pair until one agent refused by it or by a later one.
fn longest_us(denials: &[Filled], entered: &EnteredDenials) -> u64 {
    let (mut longest, mut next_ns) = (0, None::<u64>);
    for denial in denials.iter().rev() {
        let own_ns = entered.get(&denial.place).copied();
        next_ns = own_ns.into_iter().chain(next_ns).min();
        let waited_us = next_ns.map(|at_ns| since_us(denial, at_ns));
        let in_force = |us: &u64| own_ns.is_some() || denial.for_us.is_none_or(|of| *us <= of);
        longest = waited_us.filter(in_force).unwrap_or(0).max(longest);
    }
    longest
}

fn since_us(denial: &Filled, at_ns: u64) -> u64 {
    at_ns.saturating_sub(denial.at_ns) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Denials of one pair for a second each, filled at these milliseconds; `entered`: when agents entered which.
    fn measured(filled_ms: &[u64], entered: &[&[(usize, u64)]]) -> Measured {
        let mut delays = Delays::default();
        for (number, ms) in filled_ms.iter().enumerate() {
            let place = (0, number as u64, 0);
            let pair = ("r".into(), "acme".into());
            let end = End::At(ms * 1_000 + 1_000_000);
            delays.add(pair, place, (ms * MS, ms * 1_000), end);
        }
        let of_agent = |entered: &&[(usize, u64)]| {
            let all = entered.iter();
            all.map(|(number, ms)| ((0, *number as u64, 0), ms * MS))
                .collect()
        };
        let entered: Vec<EnteredDenials> = entered.iter().map(of_agent).collect();
        delays.measure(&entered)
    }

    #[test]
    fn calls_that_reach_the_log_late_fill_a_window_all_the_same() {
        let (first, second) = ([10, 20, 30, 40], [15, 25, 35, 45]);
        let of = |at_ns, in_log, in_log_at_end| MadeCalls {
            at_ns,
            in_log,
            in_log_at_end,
        };
        let full_of = |agents: [MadeCalls<'_>; 2]| full_at_ns(35, agents.into_iter());
        let full = |in_log| full_of([of(&first, in_log, 4), of(&second, 3, 4)]);
        assert_eq!(full(3), 35, "all calls up to then are in the log");
        // Two calls at 20 and 30 are not: the window was full with the one at 25.
        assert_eq!(full(1), 25);
        assert_eq!(full(0), 20);
        // Calls that the log never has excuse nothing.
        assert_eq!(full_of([of(&first, 1, 1), of(&second, 3, 4)]), 35);
        let none = std::iter::empty();
        assert_eq!(full_at_ns(35, none), 35);
    }

    #[test]
    fn the_slowest_agent_counts() {
        let of = measured(&[10], &[&[(0, 12)], &[(0, 13)]]);
        assert_eq!(
            (of.each_us, of.unheard, of.longest_us),
            (vec![3_000], 0, 3_000)
        );
    }

    #[test]
    fn a_denial_that_a_later_one_replaced_waited_for_that_one() {
        let of = measured(&[10, 160], &[&[(0, 12), (1, 161)], &[(1, 162)]]);
        assert_eq!(
            (of.each_us, of.unheard, of.longest_us),
            (vec![2_000], 1, 152_000)
        );
    }

    #[test]
    fn calls_after_the_end_of_a_denial_measure_no_delay() {
        let of = measured(&[10, 1_500], &[&[(1, 1_501)]]);
        assert_eq!(
            (of.each_us, of.unheard, of.longest_us),
            (vec![1_000], 1, 1_000)
        );
        assert_eq!(measured(&[10], &[&[]]).longest_us, 0);
    }
}
