//! Candidates: three engines rule one log, the first with a candidate beside its limits, the second with the limits
//! alone, the third with the candidate in their place. The first must state what the second states, and count what
//! the third counts.

use proptest::prelude::*;
use tollgate_engine::engine::{CandidateCounts, Counts, Engine};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::{Hit, HitKind};
use tollgate_shared::wire::statement::StatementKind;

use crate::support;
use crate::support::log::START_US;
use crate::support::play::Play;

const DOMAINS: [&str; 3] = ["acme", "globex", "hooli"];

/// Pairs of limits of every kind: the real ones and the candidate's.
const REAL: [&str; LIMITS] = [
    "tiers = [{ limit = 4, window = \"2s\", active = \"2s\" }, { limit = 6, window = \"5s\", active = \"9s\", cooldown = \"7s\" }]",
    "rate = \"5/s\"\nhard = \"4/s\"",
    "windows = [\"3/s\", \"9/10s\"]",
    "bucket = { rate = \"2/s\", burst = 5 }",
    "quota = [\"30/day\"]",
    "bucket = { rate = \"2/s\", burst = 6 }\nquota = [\"20/day\", \"60/week\"]\nrefunds = false",
];
const CANDIDATE: [&str; LIMITS] = [
    "tiers = [{ limit = 3, window = \"3s\", active = \"3s\" }, { limit = 5, window = \"4s\", active = \"8s\", cooldown = \"6s\", skippable = true }]",
    "rate = \"40/m\"\nhard = \"6/s\"",
    "windows = [\"2/s\", \"12/10s\", \"20/m\"]",
    "bucket = { rate = \"1/s\", burst = 8, debt = 2 }",
    "quota = [\"9/day\"]\nzone = \"Europe/Berlin\"",
    "bucket = { rate = \"3/s\", burst = 4, debt = 9 }\nquota = [\"40/day\", \"50/week\"]\nrefunds = true",
];
/// The number of these pairs.
const LIMITS: usize = 6;

/// `hooli` has limits of its own, which override the candidate as they override the default.
fn document(real: usize, candidate: Option<usize>, in_place: bool) -> String {
    let own = "[rate.search.domains.hooli]\nhard = \"2/s\"\n";
    match candidate {
        Some(candidate) if in_place => {
            // A candidate inherits what it does not state; these documents state the same fields.
            format!("[rate.search]\n{}\n{own}", CANDIDATE[candidate])
        }
        Some(candidate) => format!(
            "[rate.search]\n{}\n[rate.search.candidate]\n{}\n{own}",
            REAL[real], CANDIDATE[candidate]
        ),
        None => format!("[rate.search]\n{}\n{own}", REAL[real]),
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Hit,
    Charge,
    Estimate,
    /// Settles the domain's last estimate at no cost.
    Settle,
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => Just(Call::Hit),
        1 => Just(Call::Charge),
        2 => Just(Call::Estimate),
        1 => Just(Call::Settle),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Hits(Vec<(usize, u64, u32, Option<u32>, Call)>),
    Pause(u64),
    Version(usize),
    Act(Act),
    Restore,
}

fn any_act() -> impl Strategy<Value = Act> {
    let (resource, domain) = (|| "search".into(), |at: usize| DOMAINS[at].into());
    prop_oneof![
        (0usize..3).prop_map(move |at| Act::Reset {
            resource: resource(),
            domain: domain(at)
        }),
        (0usize..3).prop_map(move |at| Act::Pardon {
            resource: resource(),
            domain: domain(at)
        }),
        (0usize..3, 1u64..4).prop_map(move |(at, hits)| Act::Refund {
            resource: resource(),
            domain: domain(at),
            hits
        }),
        (0usize..3, 1u64..20).prop_map(move |(at, until_s)| Act::Ban {
            resource: Some(resource()),
            domain: domain(at),
            until: Timestamp::from_micros(START_US + until_s * 1_000_000),
        }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let min = prop::option::of(1u32..3);
    let hit = (0usize..3, 0u64..4_000, 1u32..3, min, any_call());
    prop_oneof![
        8 => prop::collection::vec(hit, 1..6).prop_map(Step::Hits),
        6 => (1u64..2_500).prop_map(Step::Pause),
        1 => Just(Step::Pause(700_000)),
        1 => (0usize..LIMITS).prop_map(Step::Version),
        1 => any_act().prop_map(Step::Act),
        1 => Just(Step::Restore),
    ]
}

/// The same log, ruled with a candidate, without it, and by it alone.
struct Three {
    beside: Play,
    real: Play,
    candidate: Play,
    overruled: bool,
    pardoned: bool,
    /// Whether some version had a quota.
    had_quota: bool,
    /// By domain: the stamp and the copies of its last estimate.
    estimates: [Option<(Timestamp, u32)>; 3],
}

impl Three {
    fn new() -> Self {
        Self {
            beside: Play::of(&document(0, Some(0), false)),
            real: Play::of(&document(0, None, false)),
            candidate: Play::of(&document(0, Some(0), true)),
            overruled: false,
            pardoned: false,
            had_quota: false,
            estimates: [None; 3],
        }
    }

    fn all(&mut self) -> [&mut Play; 3] {
        [&mut self.beside, &mut self.real, &mut self.candidate]
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Hits(hits) => self.hits(hits),
            Step::Pause(ms) => {
                for play in self.all() {
                    play.tick(*ms);
                }
            }
            Step::Version(to) => {
                self.had_quota |= CANDIDATE[*to].contains("quota");
                self.beside.version(&document(*to, Some(*to), false));
                self.real.version(&document(*to, None, false));
                self.candidate.version(&document(*to, Some(*to), true));
            }
            Step::Act(act) => {
                self.overruled |= matches!(act, Act::Ban { .. } | Act::Pardon { .. });
                self.pardoned |= matches!(act, Act::Pardon { .. });
                for play in self.all() {
                    play.amend(act.clone());
                }
            }
            Step::Restore => {
                let chunks = self.beside.engine.snapshot();
                let restored = Engine::restore(0, 1, &chunks, &self.beside.versions);
                let restored = restored.unwrap_or_else(|fault| panic!("{fault}"));
                assert_eq!(restored.digest(), self.beside.engine.digest());
                self.beside.engine = restored;
                return;
            }
        }
        assert_eq!(self.beside.rulings.statements, self.real.rulings.statements);
        assert_eq!(self.beside.engine.pairs(), self.real.engine.pairs());
        // A ban adds a pair for the domain it names, and a candidate does not. And a version that adds or removes a
        // quota rules denied pairs again, which changes how long they stay; a candidate denies nobody.
        if !self.overruled && !self.had_quota {
            let expected = self.candidate.engine.pairs();
            assert_eq!(self.beside.engine.candidate_pairs(), expected);
        }
    }

    /// The hit of a call at an instant; `None` if there is nothing left to settle.
    fn hit(
        &mut self,
        (domain, copies, min): (usize, u32, Option<u32>),
        at: Timestamp,
        call: Call,
    ) -> Option<Hit<'static>> {
        let estimate = &mut self.estimates[domain];
        let (kind, copies) = match call {
            Call::Hit => (HitKind::Hit, copies),
            Call::Charge => (HitKind::Charge, copies),
            Call::Estimate => {
                *estimate = Some((at, copies));
                (HitKind::Estimate, copies)
            }
            Call::Settle => {
                let (made, estimated) = estimate.take()?;
                let kind = HitKind::Refund {
                    made,
                    estimated,
                    actual: 0,
                };
                (kind, estimated)
            }
        };
        let min = min.filter(|_| kind == HitKind::Hit);
        Some(Hit {
            min: min.map(|min| min.min(copies)),
            kind,
            ..Hit::one(0, DOMAINS[domain], at, copies)
        })
    }

    fn hits(&mut self, hits: &[(usize, u64, u32, Option<u32>, Call)]) {
        let now_ms = self.beside.now_ms;
        let made = hits
            .iter()
            .filter_map(|&(domain, age_ms, copies, min, call)| {
                let at = Timestamp::from_millis(now_ms - age_ms.saturating_sub(2_000));
                self.hit((domain, copies, min), at, call)
            });
        let hits: Vec<Hit<'_>> = made.collect();
        if hits.is_empty() {
            return;
        }
        let denied = |play: &Play, domain: &str| {
            let mut live = play.engine.live_denials();
            live.any(|live| live.domain.as_deref() == Some(domain))
        };
        let before: Vec<bool> = DOMAINS
            .iter()
            .map(|domain| denied(&self.candidate, domain))
            .collect();
        // In its place the candidate would have refused its excess, but for costs, which are charged afterwards.
        let of_candidate = hits.iter().map(|hit| Hit {
            unguarded: hit.kind != HitKind::Charge,
            ..*hit
        });
        let of_candidate: Vec<Hit<'_>> = of_candidate.collect();
        self.beside.next_batch("search", &hits);
        self.real.next_batch("search", &hits);
        self.candidate.next_batch("search", &of_candidate);
        let counts = self.beside.counts();
        let without = Counts {
            candidate: CandidateCounts::default(),
            ..counts
        };
        assert_eq!(without, self.real.counts());
        if self.pardoned {
            // A pardon forgives the debt of a denied pair, and a candidate denies nobody.
            return;
        }
        let (said, expected) = (counts.candidate, self.candidate.counts());
        let excess = self.candidate.rulings.excess.iter();
        let of_charges = excess.filter(|(n, _)| hits[*n as usize].kind == HitKind::Charge);
        let charged: u64 = of_charges.map(|(_, copies)| copies).sum();
        assert_eq!(
            (said.granted, said.excess, said.late),
            (
                expected.granted + charged,
                expected.excess - charged,
                expected.late
            )
        );
        assert_eq!(said.closed as usize, self.beside.rulings.candidates.len());
        if self.overruled {
            // Bans and pardons affect statements, and a candidate states nothing.
            return;
        }
        let stated = &self.candidate.rulings.statements;
        for closed in &self.beside.rulings.candidates {
            let same = stated.iter().any(|said| {
                said.statement.position == closed.position
                    && matches!(&said.statement.kind, StatementKind::Denied(denial) if denial.end == closed.end)
            });
            assert!(same, "{closed:?}: {stated:?}");
        }
        for (domain, before) in DOMAINS.iter().zip(before) {
            let mut closed = self.beside.rulings.candidates.iter();
            let closed = closed.any(|closed| *closed.domain == **domain);
            assert!(before || !denied(&self.candidate, domain) || closed);
        }
    }
}

proptest! {
    #![proptest_config(support::cases(300))]

    #[test]
    fn a_candidate_counts_what_it_would_state_and_changes_nothing(
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut three = Three::new();
        for step in &steps {
            three.step(step);
        }
    }
}

#[test]
fn a_candidate_counts_new_and_avoided_refusals() {
    let mut play = Play::of(
        "[rate.a]\nrate = \"9/s\"\n[rate.a.candidate]\nrate = \"2/s\"\n[rate.b]\nrate = \"2/s\"\n[rate.b.candidate]\nrate = \"3/s\"\n",
    );
    play.hits("a", &["acme"; 5]);
    let counts = play.counts();
    assert!(play.output().is_empty());
    assert_eq!((counts.granted, counts.candidate.granted), (5, 2));
    assert_eq!((counts.candidate.newly, counts.candidate.no_longer), (3, 0));
    assert_eq!(
        (counts.candidate.closed, play.rulings.candidates.len()),
        (1, 1)
    );
    assert_eq!(&*play.rulings.candidates[0].domain, "acme");
    play.hits("b", &["acme"; 5]);
    let counts = play.counts();
    assert_eq!((counts.granted, counts.candidate.granted), (2, 3));
    assert_eq!((counts.candidate.newly, counts.candidate.no_longer), (0, 1));
    // The candidate ends with a version that has none, and its pairs with time.
    assert_eq!(play.engine.candidate_pairs(), 2);
    play.version("[rate.a]\nrate = \"9/s\"\n");
    play.hits("a", &["acme"]);
    assert_eq!(play.counts().candidate, CandidateCounts::default());
    play.tick(1_300_000);
    assert_eq!(play.engine.candidate_pairs(), 0);
}

#[test]
fn a_candidate_refuses_no_cost_that_is_known_afterwards() {
    let mut play = Play::of("[rate.a]\nrate = \"9/s\"\n[rate.a.candidate]\nrate = \"2/s\"\n");
    let charge = Hit {
        kind: HitKind::Charge,
        ..Hit::one(0, "acme", Timestamp::from_millis(play.now_ms), 5)
    };
    play.next_batch("a", &[charge]);
    let counts = play.counts().candidate;
    assert_eq!((counts.granted, counts.excess, counts.newly), (5, 0, 0));
    // It counts, so the next call is one that the candidate refuses.
    play.hits("a", &["acme"]);
    let counts = play.counts().candidate;
    assert_eq!((counts.granted, counts.excess, counts.newly), (0, 1, 1));
}

#[test]
fn a_candidate_that_is_exceeded_all_the_time_would_refuse_what_is_above_it() {
    let mut play = Play::of("[rate.a]\nrate = \"50/s\"\n[rate.a.candidate]\nrate = \"5/s\"\n");
    let (mut granted, mut refused) = (0, 0);
    // Six calls a second for twenty seconds: of seven calls, five have room.
    for _ in 0..120 {
        play.tick(166);
        play.hits("a", &["acme"]);
        let counts = play.counts().candidate;
        granted += counts.granted;
        refused += counts.excess;
    }
    assert_eq!((granted, refused), (86, 34));
}

#[test]
fn candidates_have_a_cap_of_their_own() {
    let mut play = Play::of(
        "[engine]\npairs_per_partition_max = 2\n[rate.a]\nrate = \"9/s\"\n[rate.a.candidate]\nrate = \"2/s\"\n",
    );
    play.hits("a", &["acme", "globex", "hooli"]);
    let counts = play.counts();
    assert_eq!((counts.granted, counts.at_cap), (2, 1));
    assert_eq!((counts.candidate.granted, counts.candidate.at_cap), (2, 0));
}
