//! The two readings agree where they must: no hit is late, and only granted hits are streamed.
//!
//! An in-line limiter decides; the hits that it lets through are streamed. The stream reading then finds no excess
//! and no late hit, and denies until exactly the instant at which the limiter is open again.

use proptest::prelude::*;
use tollgate_model::{Call, End, InlineLimiter, Limits, ResourceLimits, StreamPair, Until, ideal};

use crate::support::any_limits;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn calls_that_an_in_line_limiter_grants_are_never_excess(
        default in any_limits(1_000_000, true),
        calls in prop::collection::vec(0u64..400_000, 1..80),
    ) {
        let resource = ResourceLimits { default: default.clone(), ..ResourceLimits::default() };
        let mut limiter = InlineLimiter::new(resource.clone());
        let mut pair = StreamPair::new(&default);
        let (mut now_us, mut granted_calls) = (0, 0);
        let mut offered = Vec::new();
        for pause_us in calls {
            now_us += pause_us;
            let got = limiter.request(now_us, "d", 1, 1);
            offered.push(Call { at_us: now_us, resource: "r", domain: "d", copies: 1, min: 1 });
            if got.granted == 0 {
                // A hit that the limiter refused but that was let through is excess.
                let streamed = pair.clone().entry(now_us, 1, false);
                prop_assert_eq!((streamed.granted, streamed.excess), (0, 1));
                continue;
            }
            granted_calls += 1;
            let streamed = pair.entry(now_us, 1, false);
            prop_assert_eq!((streamed.granted, streamed.excess, streamed.late), (1, 0, 0));
            prop_assert_eq!(pair.standing(), got.standing);
            let denied_until = match got.domain_until {
                Until::Now => None,
                Until::At(at_us) => Some(End::At(at_us)),
                Until::Never => Some(End::Never),
            };
            prop_assert_eq!(streamed.denied_until(), denied_until);
        }
        let limits = Limits {
            resources: [("r".to_owned(), resource)].into(),
            ..Limits::default()
        };
        let counts = ideal(&limits, offered.iter().copied());
        let count = counts[&("r".to_owned(), "d".to_owned())];
        prop_assert_eq!((count.offered, count.let_through), (offered.len() as u64, granted_calls));
    }
}
