//! Compares the table with a plain map of histories, over entries, ticks and sweeps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_shared::time::Timestamp;

use super::*;
use crate::pairs::{Rest, mix, slot_of};
use crate::rules::picture::class;
use crate::stream::{Entry, Pair, STAYS};

fn identity(n: u64) -> Identity {
    Identity(mix(mix(1, n), 2))
}

/// A step of the comparison between the table and a plain map.
#[derive(Clone, Debug)]
enum Step {
    Entry {
        pair: u64,
        later_us: u64,
        copies: u64,
    },
    Tick {
        slots: u64,
    },
    Sweep {
        blocks: u32,
    },
    MakeRoom,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u64..12, 0u64..300_000, 1u64..3).prop_map(|(pair, later_us, copies)| {
            Step::Entry { pair: pair * pair / 4, later_us, copies }
        }),
        1 => (1u64..900).prop_map(|slots| Step::Tick { slots }),
        1 => (1u64..4).prop_map(|slots| Step::Tick { slots }),
        1 => (1u32..9).prop_map(|blocks| Step::Sweep { blocks }),
        1 => Just(Step::MakeRoom),
    ]
}

proptest! {
    #[test]
    fn a_table_is_a_plain_map(steps in prop::collection::vec(step(), 1..400)) {
        let class = class("200/20s | 90/1s active 2s cooldown 3s");
        let mut table = Table::new();
        let mut plain: BTreeMap<u64, (Pair, u64)> = BTreeMap::new();
        // Every other pair remembers nothing after a second: three slots.
        let rest = |pair: u64| if pair.is_multiple_of(2) { Rest::LONG } else { Rest::of_bits(0) };
        let rests = |pair: u64, leaves: u64, slot: u64| pair % 2 == 1 && leaves + 3 < slot + 1_200;
        let mut room_made = 0;
        let mut now = Timestamp::from_micros(1 << 50);
        let mut slot = slot_of(now);
        table.advance(slot);
        for step in steps {
            match step {
                Step::Entry { pair, later_us, copies } => {
                    now = Timestamp::from_micros(now.as_micros() + later_us);
                    let request = Entry { copies, ..Entry::default() };
                    let stays = slot_of(now.saturating_add(STAYS)) + pair % 3;
                    let leaves = stays.max(slot);
                    let opened = table.open(identity(pair));
                    prop_assert_eq!(opened == Opened::Known, plain.contains_key(&pair));
                    let working = table.working();
                    if opened == Opened::New {
                        *working = Stored { pair: Pair::of(&class), ..Stored::default() };
                    }
                    let got = working.pair.entry(&class, now, request);
                    (working.leaves, working.rest) = (stays, rest(pair));
                    prop_assert!(table.close());
                    let new = || (Pair::of(&class), 0);
                    let (kept, kept_leaves) = plain.entry(pair).or_insert_with(new);
                    prop_assert_eq!(got, kept.entry(&class, now, request));
                    *kept_leaves = leaves;
                    if rests(pair, leaves, room_made) {
                        plain.remove(&pair);
                    }
                }
                Step::Tick { slots } => {
                    slot += slots;
                    table.advance(slot);
                    plain.retain(|_, (_, leaves)| slot <= *leaves);
                }
                Step::Sweep { blocks } => table.sweep(blocks, 3),
                Step::MakeRoom => {
                    let before = plain.len();
                    plain.retain(|pair, (_, leaves)| !rests(*pair, *leaves, slot));
                    room_made = slot;
                    prop_assert_eq!(table.is_full(before as u64), plain.len() == before);
                    prop_assert_eq!(table.take_evicted(), (before - plain.len()) as u64);
                }
            }
            prop_assert_eq!(table.alive().count(), plain.len() as u64);
            let digest = plain.iter().fold(0u128, |sum, (n, (pair, leaves))| {
                let mut stored = Stored {
                    pair: pair.clone(),
                    leaves: *leaves,
                    rest: rest(*n),
                    ..Stored::default()
                };
                sum.wrapping_add(stored.digest(identity(*n), &mut Vec::new()))
            });
            prop_assert_eq!(table.alive().digest(), digest);
        }
        table.sweep(10_000, 10_000);
        table.sweep(10_000, 10_000);
        prop_assert_eq!(table.in_memory(), plain.len());
        prop_assert_eq!(table.freeze().pairs().count(), plain.len());
    }
}
