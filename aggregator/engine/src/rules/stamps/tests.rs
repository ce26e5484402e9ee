//! Compares windows of stamps with a plain list of hits, over random takes, cuts and aims.

use proptest::prelude::*;

use super::*;

/// A step of the comparison.
#[derive(Clone, Debug)]
enum Step {
    Take { at_us: u64, hits: u64 },
    Forget { span_us: u64, now_us: u64 },
    Aim { nth: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..120u64, 0..4u64).prop_map(|(at_us, hits)| Step::Take { at_us, hits }),
        2 => (100..130u64, 1..3u64).prop_map(|(at_us, hits)| Step::Take { at_us, hits }),
        1 => (0..60u64, 0..150u64).prop_map(|(span_us, now_us)| Step::Forget { span_us, now_us }),
        2 => (0..60u64).prop_map(|nth| Step::Aim { nth }),
    ]
}

fn agrees(stamps: &Stamps, plain: &[u64]) {
    let mut sorted = plain.to_vec();
    sorted.sort_unstable();
    assert_eq!(stamps.hits(), sorted.len() as u64);
    assert_eq!(stamps.is_empty(), sorted.is_empty());
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    assert_eq!(micros(stamps.oldest()), sorted.first().copied());
    assert_eq!(micros(stamps.newest()), sorted.last().copied());
    for nth in 1..=sorted.len() + 1 {
        let expected = sorted.len().checked_sub(nth).map(|index| sorted[index]);
        assert_eq!(micros(stamps.nth_newest(nth as u64)), expected, "{nth}");
    }
    for now_us in 0..160 {
        for span_us in [0, 1, 17, 59, u64::MAX] {
            let left = |at_us: &&u64| at_us.saturating_add(span_us) < now_us;
            let expected = sorted.len() - sorted.iter().filter(left).count();
            let held = stamps.held(Span::from_micros(span_us), Timestamp::from_micros(now_us));
            assert_eq!(held, expected as u64, "span {span_us} at {now_us}");
        }
    }
    let mut anew = Stamps::new();
    sorted
        .iter()
        .for_each(|at_us| anew.take(Timestamp::from_micros(*at_us), 1));
    assert_eq!(stamps.clone().sum(), anew.sum());
    assert_eq!(
        stamps.runs().collect::<Vec<_>>(),
        anew.runs().collect::<Vec<_>>()
    );
}

proptest! {
    #[test]
    fn a_window_is_a_plain_list_of_hits(steps in prop::collection::vec(step(), 0..60)) {
        let (mut stamps, mut plain) = (Stamps::new(), Vec::new());
        stamps.sum();
        for step in steps {
            match step {
                Step::Take { at_us, hits } => {
                    stamps.take(Timestamp::from_micros(at_us), hits);
                    plain.extend((0..hits).map(|_| at_us));
                }
                Step::Forget { span_us, now_us } => {
                    stamps.forget(Span::from_micros(span_us), Timestamp::from_micros(now_us));
                    plain.retain(|at_us| now_us <= at_us + span_us);
                }
                Step::Aim { nth } => stamps.aim(nth),
            }
            agrees(&stamps, &plain);
        }
    }
}

#[test]
fn a_long_queue_keeps_its_memory_within_twice_what_it_holds() {
    let (mut stamps, window) = (Stamps::new(), Span::from_micros(100_000));
    for n in 0..100_000u64 {
        let now = Timestamp::from_micros(n * 100);
        stamps.take(now, 1 + n % 2);
        stamps.forget(window, now);
        if n % 9_973 == 0 {
            let in_window = n.min(1_000) + 1;
            assert_eq!(stamps.runs().count() as u64, in_window);
        }
    }
    assert!(stamps.bytes.len() < 2 * 4 * 1_001, "{}", stamps.bytes.len());
}

#[test]
fn late_hits_among_many_runs_are_found_from_the_nearest_step() {
    let (mut stamps, mut farthest) = (Stamps::new(), 0);
    for n in 0..20_000u64 {
        stamps.take(Timestamp::from_micros(n * 1_000), 1);
        // Hits of an agent whose batches arrive half a second later.
        if let Some(late) = (n * 1_000).checked_sub(500_003) {
            stamps.take(Timestamp::from_micros(late), 1);
        }
        let from = stamps
            .steps
            .before(stamps.newest_us)
            .map_or(0, |mark| mark.at);
        let rest = stamps.bytes.len() - from;
        assert!(
            rest <= 2 * steps::STEP_BYTES + 32,
            "{rest} bytes without a step"
        );
        farthest = farthest.max(from);
    }
    assert!(30_000 < farthest);
    assert_eq!(stamps.hits(), 20_000 + 19_499);
    let read = |stamps: &Stamps| {
        let mut bytes = Vec::new();
        stamps.write(stamps.newest().unwrap(), &mut bytes);
        let mut again = Stamps::new();
        again
            .read(stamps.newest().unwrap(), &bytes, &mut 0)
            .map(|()| again)
    };
    // A restored window has no steps; the first late hit creates them.
    let mut restored = read(&stamps).unwrap();
    for window in [&mut stamps, &mut restored] {
        window.take(Timestamp::from_micros(19_000_500), 7);
        let step = window.steps.before(19_000_500).unwrap();
        assert!(30_000 < step.at, "{step:?}");
    }
    assert!(stamps.runs().eq(restored.runs()));
}

#[test]
fn a_hit_at_the_last_instant_never_expires() {
    let mut stamps = Stamps::new();
    stamps.take(Timestamp::from_micros(3), 1);
    stamps.take(Timestamp::MAX, 2);
    assert_eq!(stamps.held(Span::MAX, Timestamp::MAX), 3);
    assert_eq!(stamps.held(Span::ZERO, Timestamp::MAX), 2);
    assert_eq!(stamps.nth_newest(1), Some(Timestamp::MAX));
    assert_eq!(stamps.nth_newest(0), None);
}
