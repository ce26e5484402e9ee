//! The rows: limits, the calls offered to them, and the targets of the figures.
//!
//! Two targets cannot be reached by any limiter of single pairs, and stay as they were stated. In a burst of ten
//! times the limit over a steady tenant, an in-line limiter lets some 7,000 calls through and not 80: a copy that
//! comes free goes to the next caller, and in ten of eleven cases that is the burst. And four calls at one instant
//! that find two free copies are all let through, in each window again, wherever agents decide without asking. A
//! bucket subtracts that from what comes later, a window does not.

use crate::harness::Size;

/// Calls of one size, evenly spaced, made by several processes.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub domain: &'static str,
    pub agents: u64,
    pub after_ms: u64,
    /// How long it lasts; `None`: until the row ends.
    pub for_ms: Option<u64>,
    /// The time between calls of all agents together.
    pub period_us: u64,
    pub copies: u32,
    pub phase: Phase,
}

/// The phase of the agents in a flow.
#[derive(Clone, Copy, Debug)]
pub enum Phase {
    /// Agents call one after the other, evenly spaced.
    InTurn,
    /// All agents call at one instant.
    AtOnce,
}

/// One limit and the calls offered to it. The figures are of the last flow.
pub struct Row {
    pub name: &'static str,
    /// The resource's limits.
    pub limits: &'static str,
    pub flows: &'static [Flow],
    /// How long calls are offered, in seconds: usually, and with `--full`.
    pub length_s: (u64, u64),
    /// How many copies the limit allows in any span of `window_us`.
    pub allowed: u64,
    pub window_us: u64,
    pub goals: &'static [Goal],
}

/// The target of a figure: the greatest value allowed.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// Overshoot of the median window, in percent.
    Median(f64),
    /// Overshoot of all windows together, in percent.
    Whole(f64),
    /// Overshoot of the worst window, in percent.
    Worst(f64),
}

impl Goal {
    /// The target for the median window, if this is one.
    pub fn median(&self) -> Option<f64> {
        match self {
            Self::Median(most) => Some(*most),
            _ => None,
        }
    }

    /// The target for all windows, if this is one.
    pub fn whole(&self) -> Option<f64> {
        match self {
            Self::Whole(most) => Some(*most),
            _ => None,
        }
    }

    /// The target for the worst window, if this is one.
    pub fn worst(&self) -> Option<f64> {
        match self {
            Self::Worst(most) => Some(*most),
            _ => None,
        }
    }
}

impl Row {
    /// How long its calls are offered.
    pub fn length_ms(&self, size: Size) -> u64 {
        let (usual, full) = self.length_s;
        1_000
            * match size {
                Size::Usual => usual,
                Size::Full => full,
            }
    }

    /// The most that any span of the window may let through, if denials arrive within this delay.
    pub fn bound(&self, delay_us: u64) -> u64 {
        let within_delay = |flow: &Flow| delay_us.div_ceil(flow.period_us) * u64::from(flow.copies);
        let one_call = |flow: &Flow| flow.agents * u64::from(flow.copies);
        self.allowed
            + self.flows.iter().map(within_delay).sum::<u64>()
            + self.flows.iter().map(one_call).sum::<u64>()
    }
}

/// Rows that are offered at once, each with agents and a resource of its own.
pub struct Round {
    pub name: &'static str,
    pub rows: &'static [Row],
}

impl Round {
    /// Every flow, with the number of its row and its number in the row.
    pub fn flows(&self) -> impl Iterator<Item = (usize, usize, Flow)> {
        let rows = self.rows.iter().enumerate();
        rows.flat_map(|(row, of)| {
            let flows = of.flows.iter().enumerate();
            flows.map(move |(flow, of)| (row, flow, *of))
        })
    }
}

/// Single calls, of agents in turn, from the start to the end of the row.
const fn flow(agents: u64, period_us: u64) -> Flow {
    Flow {
        domain: "acme",
        agents,
        after_ms: 0,
        for_ms: None,
        period_us,
        copies: 1,
        phase: Phase::InTurn,
    }
}

/// Calls of several copies, of one agent.
const fn weighted(period_us: u64, copies: u32) -> Flow {
    Flow {
        copies,
        for_ms: Some(10_000),
        ..flow(1, period_us)
    }
}

/// 10,000 single calls a second on top of a steady flow.
const fn burst(agents: u64, after_ms: u64, for_ms: u64) -> Flow {
    Flow {
        after_ms,
        for_ms: Some(for_ms),
        ..flow(agents, 100)
    }
}

const SECOND_US: u64 = 1_000_000;
const TEN_SECONDS_US: u64 = 10 * SECOND_US;

const fn per_ten_seconds(name: &'static str, flows: &'static [Flow]) -> Row {
    Row {
        name,
        limits: "rate = \"1000/10s\"",
        flows,
        length_s: (20, 1_000),
        allowed: 1_000,
        window_us: TEN_SECONDS_US,
        goals: &[Goal::Median(0.1)],
    }
}

const fn weighted_row(name: &'static str, flows: &'static [Flow]) -> Row {
    Row {
        name,
        limits: "rate = \"100/s\"",
        flows,
        length_s: (10, 10),
        allowed: 100,
        window_us: SECOND_US,
        goals: &[],
    }
}

/// The round that warms up a broker: for some 30 s under the heaviest load of those below it compiles its code, on most
/// of a core that everything else shares.
pub const WARM_UP: Round = Round {
    name: "warming up",
    rows: &[Row {
        length_s: (40, 40),
        ..per_ten_seconds("warming up", &[flow(1, 1_010), burst(8, 0, 40_000)])
    }],
};

/// A limit with many copies, and twice as many calls.
pub const OVERSHOOT: &[Round] = &[
    Round {
        name: "1,000 per 10 s at 2,000/s, 2 agents",
        rows: &[per_ten_seconds(
            "1,000 per 10 s at 2,000/s from 2 agents",
            &[flow(2, 500)],
        )],
    },
    Round {
        name: "1,000 per 10 s at 2,000/s, 4 agents",
        rows: &[per_ten_seconds(
            "1,000 per 10 s at 2,000/s from 4 agents",
            &[flow(4, 500)],
        )],
    },
    Round {
        name: "1,000 per 10 s at 2,000/s, 16 agents",
        rows: &[per_ten_seconds(
            "1,000 per 10 s at 2,000/s from 16 agents",
            &[flow(16, 500)],
        )],
    },
];

/// All other rounds.
pub const BURSTS: &[Round] = &[
    Round {
        name: "a burst over a steady tenant, 1,000/s",
        rows: &[steady_and_burst(
            "990/s steady under 1,000/s, then 10,000/s more for 8 s",
            &[flow(1, 1_010), burst(1, 4_000, 8_000)],
        )],
    },
    Round {
        name: "the same by 8 agents",
        rows: &[steady_and_burst(
            "the same, offered by 8 agents",
            &[flow(1, 1_010), burst(8, 4_000, 8_000)],
        )],
    },
    Round {
        name: "weighted calls, and a burst under 100/s",
        rows: WEIGHTED,
    },
    Round {
        name: "small limits",
        rows: SMALL,
    },
    Round {
        name: "large bucket",
        rows: &[Row {
            name: "bucket of 5,000 at 1,000/s, 10,000/s for 5 s from 8 agents",
            limits: "bucket = { rate = \"1000/s\", burst = 5000 }",
            flows: &[flow(8, 100)],
            length_s: (5, 20),
            allowed: 6_000,
            window_us: SECOND_US,
            goals: &[],
        }],
    },
    Round {
        name: "windows",
        rows: &[Row {
            name: "1,000/s and 3,000/10s, 10,000/s from 8 agents",
            limits: "windows = [\"1000/s\", \"3000/10s\"]",
            flows: &[flow(8, 100)],
            length_s: (6, 60),
            allowed: 1_000,
            window_us: SECOND_US,
            goals: &[],
        }],
    },
    Round {
        name: "tiers",
        rows: &[Row {
            name: "tiers of 1,000/s and, for 1 s in 3, 2,000/s; 10,000/s from 8 agents",
            limits: "tiers = [{ limit = 1000, window = \"1s\", active = \"1s\" }, \
                     { limit = 2000, window = \"1s\", active = \"1s\", cooldown = \"2s\" }]",
            flows: &[flow(8, 100)],
            length_s: (6, 60),
            allowed: 3_000,
            window_us: SECOND_US,
            goals: &[],
        }],
    },
    Round {
        name: "quota",
        rows: &[Row {
            name: "quota of 5,000 a month, 10,000/s from 8 agents",
            limits: "quota = [\"5000/month\"]",
            flows: &[flow(8, 100)],
            length_s: (3, 10),
            allowed: 5_000,
            window_us: TEN_SECONDS_US,
            goals: &[],
        }],
    },
    Round {
        name: "global",
        rows: &[Row {
            name: "global 1,000/s, another domain steady at 990/s, 10,000/s from 8 agents",
            limits: "global = \"1000/s\"",
            flows: &[
                Flow {
                    domain: "globex",
                    ..flow(1, 1_010)
                },
                burst(8, 3_000, 4_000),
            ],
            length_s: (8, 8),
            allowed: 1_000,
            window_us: SECOND_US,
            goals: &[],
        }],
    },
];

/// What is let through has no target: the calls of the burst take the places of the steady ones, so that an ideal
/// limiter lets 7,300 to 7,600 of them through, too. The report shows both figures.
const fn steady_and_burst(name: &'static str, flows: &'static [Flow]) -> Row {
    Row {
        name,
        limits: "rate = \"1000/s\"",
        flows,
        length_s: (14, 14),
        allowed: 1_000,
        window_us: SECOND_US,
        goals: &[],
    }
}

const WEIGHTED: &[Row] = &[
    Row {
        name: "99/s steady under 100/s, then 1,000/s more for 8 s",
        limits: "rate = \"100/s\"",
        flows: &[
            flow(1, 10_101),
            Flow {
                period_us: 1_000,
                ..burst(1, 4_000, 8_000)
            },
        ],
        length_s: (14, 14),
        allowed: 100,
        window_us: SECOND_US,
        goals: &[],
    },
    weighted_row(
        "calls of 60 copies, 20 a second for 10 s, under 100/s",
        &[weighted(50_000, 60)],
    ),
    weighted_row(
        "calls of 7 copies, 1,000 copies a second, under 100/s",
        &[weighted(7_000, 7)],
    ),
    weighted_row(
        "calls of 33 copies, 1,000 copies a second, under 100/s",
        &[weighted(33_000, 33)],
    ),
    weighted_row(
        "calls of 51 copies, 1,000 copies a second, under 100/s",
        &[weighted(51_000, 51)],
    ),
    weighted_row(
        "calls of 101 copies, 1,010 copies a second, under 100/s",
        &[weighted(100_000, 101)],
    ),
];

const fn small(
    name: &'static str,
    limits: &'static str,
    flows: &'static [Flow],
    goals: &'static [Goal],
) -> Row {
    Row {
        name,
        limits,
        flows,
        length_s: (30, 60),
        allowed: 10,
        window_us: SECOND_US,
        goals,
    }
}

/// 100 calls a second from four agents against a limit of ten a second.
const SMALL: &[Row] = &[
    small(
        "10/s at 100/s from 4 agents",
        "rate = \"10/s\"",
        &[flow(4, 10_000)],
        &[Goal::Whole(1.0), Goal::Worst(20.0)],
    ),
    small(
        "10/s at 100/s, 4 agents at one instant",
        "rate = \"10/s\"",
        &[AT_ONCE],
        &[Goal::Whole(2.0)],
    ),
    Row {
        allowed: 20,
        ..small(
            "bucket of 10 at 10/s, 100/s, 4 agents at one instant",
            "bucket = { rate = \"10/s\", burst = 10 }",
            &[AT_ONCE],
            &[Goal::Whole(2.0)],
        )
    },
    small(
        "a tier of 10/s at 100/s from 4 agents",
        "tiers = [{ limit = 10, window = \"1s\", active = \"1s\" }]",
        &[flow(4, 10_000)],
        &[Goal::Whole(1.0), Goal::Worst(20.0)],
    ),
    small(
        "global 10/s at 100/s from 4 agents, a domain each two",
        "global = \"10/s\"",
        &[
            Flow {
                domain: "globex",
                ..flow(2, 20_000)
            },
            flow(2, 20_000),
        ],
        &[Goal::Whole(1.0), Goal::Worst(20.0)],
    ),
];

/// Four calls every 40 ms.
const AT_ONCE: Flow = Flow {
    phase: Phase::AtOnce,
    ..flow(4, 10_000)
};

#[cfg(test)]
mod tests {
    use tollgate_limits::Limits;

    use super::*;

    #[test]
    fn a_bound_adds_one_delay_and_one_call_an_agent() {
        const FLOWS: &[Flow] = &[Flow {
            copies: 7,
            ..flow(2, 1_000)
        }];
        let row = weighted_row("row", FLOWS);
        assert_eq!(row.bound(5_000), 100 + 5 * 7 + 2 * 7);
    }

    #[test]
    fn every_row_has_limits_that_parse_and_time_for_its_flows() {
        for round in OVERSHOOT.iter().chain(BURSTS).chain([&WARM_UP]) {
            for row in round.rows {
                let text = format!(
                    "version = 1\nrules = 2\n[rate.\"effect.row\"]\n{}\n",
                    row.limits
                );
                assert!(Limits::parse(&text).is_ok(), "{}", row.name);
                let end_ms = |flow: &Flow| flow.after_ms + flow.for_ms.unwrap_or(0);
                let last_ms = row.flows.iter().map(end_ms).max();
                assert!(last_ms <= Some(row.length_ms(Size::Usual)), "{}", row.name);
            }
        }
    }
}
