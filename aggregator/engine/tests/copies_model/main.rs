//! The engine's copies beside the slow model, which recounts everything, over random limits,
//! operations, ticks and versions.
//!
//! After every step: the same answer; the same counts, holds and staged copies; no count that is not the sum
//! of its holds; no holds of an agent that is gone; a refused operation changed nothing; the statements
//! about scopes are true; and an engine that was written and restored does and states the same. Fails with
//! the seed and the shrunk steps.

mod compare;
mod driver;
mod statements;

use std::collections::BTreeMap;

use driver::{AGENTS, DOMAINS, Driver, Op};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use tollgate_model::copies::HoldLimits;

fn domain() -> impl Strategy<Value = String> {
    (0..DOMAINS.len()).prop_map(|n| DOMAINS[n].to_owned())
}

fn agent() -> std::ops::Range<usize> {
    0..AGENTS.len()
}

fn limits() -> impl Strategy<Value = HoldLimits> {
    let group = || (0u64..12, btree_set(domain(), 0..4));
    let groups = (
        option::of(group()),
        option::of(group()),
        option::of(group()),
    );
    (
        0u64..10,
        option::weighted(0.7, 0u64..20),
        option::weighted(0.5, 1u64..30),
        prop_oneof![3 => Just(1_000usize), 1 => 0usize..8],
        btree_map(domain(), 0u64..12, 0..3),
        groups,
    )
        .prop_map(|(domain, global, max_age, kept_max, domains, groups)| {
            let named = [("g0", groups.0), ("g1", groups.1), ("g2", groups.2)];
            HoldLimits {
                domain,
                global,
                max_age_us: max_age.map(|age| age * driver::STEP),
                kept_max,
                domains,
                groups: named
                    .into_iter()
                    .filter_map(|(name, group)| Some((name.to_owned(), group?)))
                    .collect::<BTreeMap<_, _>>(),
            }
        })
}

fn op() -> impl Strategy<Value = Op> {
    let hold = || (agent(), 0u64..6);
    let numbers = || vec(0u64..6, 0..3);
    let listed = (
        0u64..6,
        domain(),
        0u32..6,
        0u64..20,
        any::<bool>(),
        option::weighted(0.3, 0u128..3),
    );
    // A list of all numbers, or of some.
    let range = prop_oneof![2 => Just((0, u64::MAX)), 1 => (0u64..4, 2u64..6)];
    prop_oneof![
        8 => (hold(), domain(), 0u32..4, 0u32..8)
            .prop_map(|(hold, domain, min, copies)| Op::Reserve { hold, domain, min, copies }),
        8 => (hold(), domain(), 0u32..8)
            .prop_map(|(hold, domain, copies)| Op::Hold { hold, domain, copies }),
        8 => (hold(), 0u32..5).prop_map(|(hold, copies)| Op::Release { hold, copies }),
        6 => (hold(), 0u32..5, 0u128..3, prop_oneof![3 => 0u64..8, 1 => 20u64..60])
            .prop_map(|(hold, copies, id, ttl)| Op::Transfer { hold, copies, id, ttl }),
        6 => (hold(), 0u128..3).prop_map(|(hold, id)| Op::Seize { hold, id }),
        2 => hold().prop_map(|hold| Op::EndHold { hold }),
        1 => (0u128..3).prop_map(|id| Op::EndTransfer { id }),
        4 => (agent(), vec(listed, 0..5), numbers(), range).prop_map(
            |(agent, mut listed, awaiting, numbers)| {
                listed.retain(|entry| (numbers.0..=numbers.1).contains(&entry.0));
                Op::FullHeartbeat { agent, listed, awaiting, numbers }
            }),
        4 => (agent(), 0u8..64, 0u32..2)
            .prop_map(|(agent, without, less)| Op::EchoHeartbeat { agent, without, less }),
        3 => (agent(), any::<bool>(), numbers())
            .prop_map(|(agent, right, awaiting)| Op::DigestOutcome { agent, right, awaiting }),
        4 => agent().prop_map(|agent| Op::Gone { agent }),
        1 => agent().prop_map(|agent| Op::Over { agent }),
        1 => agent().prop_map(|agent| Op::Forget { agent }),
        6 => (0u64..6, proptest::bool::weighted(0.15)).prop_map(|(steps, back)| Op::Tick { steps, back }),
        3 => limits().prop_map(|limits| Op::Limits { limits }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_agrees_with_the_model(first in limits(), ops in vec(op(), 1..80)) {
        let mut driver = Driver::under(first);
        for (step, op) in ops.iter().enumerate() {
            driver.step(op).map_err(|why| {
                TestCaseError::fail(format!("step {step}, {op:?}: {why}"))
            })?;
        }
    }
}
