//! States survive being stored, broken bytes are refused, and small states are small.

use proptest::prelude::*;
use tollgate_shared::time::Span;

use super::*;
use crate::rules::picture::class;
use crate::stream::Entry;
use tollgate_limits::{Tier, Window};

fn stored() -> impl Strategy<Value = Stored> {
    let hits = prop::collection::vec((0u64..3_000_000, 1u64..4), 1..40);
    let (tiers, windows) = (0usize..18, 0usize..10);
    (hits, tiers, windows, 0usize..4, 0u64..3, 0u32..400).prop_map(
        |(hits, tiers, windows, others, stated, ordinal)| {
            let tier = Tier {
                limit: 5,
                window: Span::from_secs(2),
                active: Span::from_secs(2),
                cooldown: Span::ZERO,
                skippable: true,
            };
            let window = Window {
                limit: 4,
                window: Span::from_secs(1),
            };
            let others = match others {
                0 => class(""),
                1 => class("quota 9/day | quota 20/year"),
                2 => class("bucket 2/3s burst 4 debt 9"),
                _ => class("quota 3/month | bucket 1/1s burst 1000 debt 1"),
            };
            let class = RateClass {
                tiers: (tiers != 17).then(|| vec![tier; tiers].into()),
                windows: vec![window; windows].into(),
                ..others
            };
            let mut pair = Pair::of(&class);
            for (at, copies) in hits {
                let entry = Entry {
                    copies,
                    estimated: at % 3 == 0,
                    ..Entry::default()
                };
                pair.entry(&class, Timestamp::from_micros(1 << 40 | at), entry);
            }
            let leaves = leaves_at_least(pair.now()) + stated * 7;
            let stated = [
                None,
                Some(Timestamp::MAX),
                Some(Timestamp::from_micros(1 << 41)),
            ];
            let stated = stated[leaves as usize % 3];
            Stored {
                pair,
                ordinal,
                print: (ordinal * 160) as u16,
                stated,
                leaves,
                rest: Rest::of_bits(u64::from(ordinal)),
            }
        },
    )
}

proptest! {
    #[test]
    fn a_state_survives_being_stored(mut stored in stored()) {
        let mut buffer = Vec::new();
        let mut bytes = Vec::new();
        stored.write(&mut bytes);
        let (mut read, mut at) = (Stored::default(), 0);
        prop_assert!(read.read(&bytes, &mut at).is_some());
        prop_assert_eq!(at, bytes.len());
        let digest = stored.digest(Identity(5), &mut buffer);
        prop_assert_eq!(read.digest(Identity(5), &mut buffer), digest);
        let mut again = Vec::new();
        read.write(&mut again);
        prop_assert_eq!(&again, &bytes);
        let head = Head::read(&bytes, &mut 0).expect("a head");
        let stay = (head.stay.leaves, head.stay.rest);
        prop_assert_eq!((stay, head.ordinal), ((stored.leaves, stored.rest), stored.ordinal));
        for cut in 0..bytes.len() {
            prop_assert!(Stored::default().read(&bytes[..cut], &mut 0).is_none());
        }
    }

    #[test]
    fn broken_bytes_are_rejected_or_round_trip(
        stored in stored(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        stored.write(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let (mut read, mut end) = (Stored::default(), 0);
        if read.read(&bytes, &mut end).is_some() {
            let mut again = Vec::new();
            read.write(&mut again);
            prop_assert_eq!(&again[..], &bytes[..end]);
        }
    }
}

fn bytes_of(limits: &str) -> usize {
    let class = class(limits);
    let mut pair = Pair::of(&class);
    let now = Timestamp::from_micros(1_795_000_000_000_000);
    let entry = Entry {
        copies: 1,
        ..Entry::default()
    };
    pair.entry(&class, now, entry);
    let stored = Stored {
        leaves: slot_of(pair.stays_until()),
        rest: Rest::LONG,
        pair,
        ordinal: 3,
        print: u16::MAX,
        stated: None,
    };
    let mut bytes = Vec::new();
    stored.write(&mut bytes);
    bytes.len()
}

#[test]
fn one_tier_or_window_with_one_hit_fits_the_smallest_block() {
    for limits in ["5/10s", "window 5/10s"] {
        let bytes = bytes_of(limits);
        assert!(bytes <= 16, "{limits}: {bytes}");
    }
}

#[test]
fn a_bucket_or_quota_of_any_period_takes_at_most_48_bytes() {
    let identity = 16;
    for limits in [
        "quota 1000000000/year",
        "bucket 1/31536000s burst 1000 debt 1000",
        "bucket 4294967291/1s burst 100000 debt 100000",
    ] {
        let bytes = bytes_of(limits);
        assert!(bytes + identity <= 48, "{limits}: {bytes}");
    }
}
