//! Tapes of a few calls, whatever their order and runs.

use super::*;

/// Calls with stamps in random order, from a generator of its own.
fn calls(count: u64, spread: u64) -> Vec<Call> {
    let mut seed = 3u64;
    let next = |n| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
        Call {
            at: Timestamp::from_micros(n * 7 + (seed >> 40) % spread),
            pair: n as u32,
            copies: 1 + (seed >> 60) as u32,
            min: (seed >> 62) as u32,
            kind: match seed >> 56 & 7 {
                0 => CallKind::Refused,
                1 => CallKind::Estimate {
                    stamp: Timestamp::from_micros(seed >> 20),
                },
                2 => CallKind::Charge,
                3 => CallKind::Refund {
                    stamp: Timestamp::from_micros(seed >> 30),
                    actual: seed as u32,
                },
                _ => CallKind::LetThrough,
            },
        }
    };
    (0..count).map(next).collect()
}

fn played(calls: &[Call], order: PlayOrder, run: usize) -> Vec<Call> {
    let mut recorder = Recorder::with_runs_of(order, run);
    for call in calls {
        recorder.push(*call).expect("written");
    }
    let mut played = Vec::new();
    recorder
        .wind()
        .play(&mut |call| played.push(*call))
        .expect("read");
    played
}

#[test]
fn calls_come_by_stamp_and_then_in_recorded_order() {
    for spread in [1, 20, 5_000, 200_000] {
        let calls = calls(10_000, spread);
        let mut sorted = calls.clone();
        sorted.sort_by_key(|call| call.at);
        for run in [10, 1_000, 4_097, 10_000, 1 << 20] {
            assert!(
                played(&calls, PlayOrder::Stamps, run) == sorted,
                "{spread} {run}"
            );
            assert!(
                played(&calls, PlayOrder::Recorded, run) == calls,
                "{spread} {run}"
            );
        }
    }
    assert_eq!(played(&[], PlayOrder::Stamps, 10), []);
}

/// The stamps in milliseconds at which calls of files with these stamps are played.
fn spread(files: &[&[u64]], spread: bool) -> Vec<(u64, u32)> {
    let mut recorder = Recorder::with_runs_of(PlayOrder::Stamps, 3).spread(spread);
    for (pair, file) in files.iter().enumerate() {
        recorder.begin_file().expect("written");
        for ms in *file {
            let call = Call {
                at: Timestamp::from_millis(*ms),
                pair: pair as u32,
                copies: 1,
                min: 1,
                kind: CallKind::LetThrough,
            };
            recorder.push(call).expect("written");
        }
    }
    let mut played = Vec::new();
    let tape = recorder.wind();
    tape.play(&mut |call| played.push((call.at.as_micros() / 1_000, call.pair)))
        .expect("read");
    played
}

#[test]
fn calls_stamped_in_whole_seconds_are_spread_over_them() {
    let whole: &[u64] = &[61_000, 62_000, 61_000, 61_000, 61_000, 63_000, 62_000];
    let fine: &[u64] = &[61_000, 61_300, 61_300];
    let stamps = |played: Vec<(u64, u32)>| played.into_iter().map(|(ms, _)| ms).collect::<Vec<_>>();
    assert_eq!(
        stamps(spread(&[whole], true)),
        [61_000, 61_250, 61_500, 61_750, 62_000, 62_500, 63_000]
    );
    assert_eq!(
        stamps(spread(&[whole], false)),
        [61_000, 61_000, 61_000, 61_000, 62_000, 62_000, 63_000]
    );
    assert_eq!(
        spread(&[whole, fine], true)[..7],
        [
            (61_000, 0),
            (61_000, 1),
            (61_250, 0),
            (61_300, 1),
            (61_300, 1),
            (61_500, 0),
            (61_750, 0)
        ]
    );
    assert_eq!(
        stamps(spread(&[&[60_000, 60_000, 120_000]], true)),
        [60_000, 90_000, 120_000]
    );
}

#[test]
fn files_of_whole_seconds_are_spread_together() {
    let servers: [&[u64]; 3] = [&[61_000, 62_000], &[61_000, 62_000], &[61_000, 62_000]];
    assert_eq!(
        spread(&servers, true),
        [
            (61_000, 0),
            (61_333, 1),
            (61_666, 2),
            (62_000, 0),
            (62_333, 1),
            (62_666, 2)
        ]
    );
    // Each file's calls are distributed over the whole second, also those of a second in which the file was rotated.
    let rotated: [&[u64]; 2] = [
        &[60_500, 61_000, 61_000, 61_000, 61_000, 62_000],
        &[61_000, 61_000],
    ];
    let whole: [&[u64]; 2] = [&rotated[0][1..], rotated[1]];
    assert_eq!(
        spread(&whole, true),
        [
            (61_000, 0),
            (61_166, 1),
            (61_333, 0),
            (61_500, 0),
            (61_666, 1),
            (61_833, 0),
            (62_000, 0)
        ]
    );
    // A file of finer stamps is played as it is written, and a file of whole minutes by itself.
    assert_eq!(
        spread(&rotated, true)[..4],
        [(60_500, 0), (61_000, 0), (61_000, 0), (61_000, 0)]
    );
    assert_eq!(
        spread(
            &[
                &[60_000, 120_000],
                &[61_000, 62_000],
                &[60_000, 60_000, 180_000]
            ],
            true
        ),
        [
            (60_000, 0),
            (61_000, 1),
            (62_000, 1),
            (80_000, 2),
            (100_000, 2),
            (120_000, 0),
            (180_000, 2)
        ]
    );
}

/// How the stamps of calls one second apart look if those with the numbers `finer` are finer.
fn unspread(order: PlayOrder, finer: &[u64]) -> Vec<Unspread> {
    let mut recorder = Recorder::new(order).spread(true);
    for second in 0..30 {
        let finer = 250 * u64::from(finer.contains(&second));
        let call = Call {
            at: Timestamp::from_millis(1_000 * second + finer),
            pair: 0,
            copies: 1,
            min: 1,
            kind: CallKind::LetThrough,
        };
        recorder.push(call).expect("memory");
    }
    recorder.wind().unspread()
}

#[test]
fn whole_seconds_that_are_not_spread_are_reported() {
    assert_eq!(unspread(PlayOrder::Stamps, &[]), []);
    assert_eq!(unspread(PlayOrder::Recorded, &[]), [Unspread::AsRecorded]);
    let (whole, calls) = (28, 30);
    assert_eq!(
        unspread(PlayOrder::Stamps, &[3, 4]),
        [Unspread::Mixed { whole, calls }]
    );
    assert_eq!(unspread(PlayOrder::Stamps, &[3, 4, 5, 6]), []);
}

#[test]
fn skipped_calls_keep_their_place_and_are_not_played() {
    let mut recorder = Recorder::with_runs_of(PlayOrder::Stamps, 3).spread(true);
    for n in 0..4u32 {
        let at = Timestamp::from_millis(61_000);
        let (pair, copies, min) = (n, 1, 1);
        let call = Call {
            at,
            pair,
            copies,
            min,
            kind: CallKind::LetThrough,
        };
        match n % 2 {
            0 => recorder.pass_over(at),
            _ => recorder.push(call),
        }
        .expect("written");
    }
    recorder
        .pass_over(Timestamp::from_millis(62_000))
        .expect("written");
    let tape = recorder.wind();
    assert_eq!(tape.extent().entries, 2);
    let mut played = Vec::new();
    tape.play(&mut |call| played.push((call.pair, call.at.as_micros())))
        .expect("read");
    assert_eq!(played, [(1, 61_250_000), (3, 61_750_000)]);
}

#[test]
fn the_extent_says_how_far_stamps_step_back() {
    let mut recorder = Recorder::new(PlayOrder::Stamps);
    for at in [5, 9, 4, 9, 7, 12] {
        let at = Timestamp::from_micros(at);
        let (pair, copies, min) = (0, 1, 1);
        let kind = CallKind::LetThrough;
        let call = Call {
            at,
            pair,
            copies,
            min,
            kind,
        };
        recorder.push(call).expect("memory");
    }
    let extent = recorder.wind().extent();
    assert_eq!((extent.first.as_micros(), extent.last.as_micros()), (4, 12));
    assert_eq!(
        (extent.stepped_back, extent.stepped_back_max.as_micros()),
        (2, 5)
    );
}
