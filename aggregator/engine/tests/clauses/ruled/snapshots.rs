//! Tests of frozen engines and of restored ones.

use super::*;

/// An engine whose state has content of every kind.
fn full() -> Play {
    let document = format!("{TWO}global = \"3/s\"\n");
    let mut play = Play::of(&document);
    play.tick(0);
    let domains: Vec<String> = (0..3_000).map(|n| format!("domain-{n}")).collect();
    let domains: Vec<&str> = domains.iter().map(String::as_str).collect();
    for some in domains.chunks(500) {
        play.hits("api.search", some);
        play.hits("api.search", &some[..200]);
        play.hits("api.search", &[some[0]; 90]);
    }
    let totals = pen().totals("api.search", (3, 10), &[Total::guarded(play.now_ms, 7)]);
    play.apply(&totals);
    play
}

#[test]
fn a_snapshot_is_restored_whole_or_not_at_all() {
    let mut play = full();
    let digest = play.engine.digest();
    let chunks = play.engine.snapshot();
    assert!(6 <= chunks.len());
    let restore = |chunks: &[Vec<u8>]| Engine::restore(0, 1, chunks, &play.versions);
    let restored = restore(&chunks).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(restored.digest(), digest);
    assert_eq!(restored.pairs(), play.engine.pairs());
    for missing in 0..chunks.len() {
        let mut some = chunks.clone();
        some.remove(missing);
        assert!(restore(&some).is_err(), "{missing}");
    }
    let fault = restore(&chunks[..2]).err();
    assert_eq!(fault, Some(SnapshotFault::CutOff { chunks: 2 }));
    let fault = Engine::restore(1, 3, &chunks, &play.versions).err();
    assert!(matches!(
        fault,
        Some(SnapshotFault::Partition { found: 0, .. })
    ));
    let fault = Engine::restore(0, 1, &chunks, &()).err();
    assert!(matches!(fault, Some(SnapshotFault::MissingVersion { .. })));
}

#[test]
fn broken_snapshots_are_found() {
    let mut play = full();
    let chunks = play.engine.snapshot();
    let mut seed = 12_345u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for _ in 0..400 {
        let mut broken = chunks.clone();
        let chunk = random(broken.len());
        let at = random(broken[chunk].len());
        match random(3) {
            0 => broken[chunk].truncate(at),
            1 => broken[chunk][at] ^= 1 << random(8),
            _ => broken[chunk].insert(at, random(256) as u8),
        }
        let restored = Engine::restore(0, 1, &broken, &play.versions);
        assert!(
            restored.is_err() || broken == chunks,
            "chunk {chunk} at {at}"
        );
    }
    let longer: Vec<Vec<u8>> = chunks.iter().cloned().chain([chunks[5].clone()]).collect();
    assert!(Engine::restore(0, 1, &longer, &play.versions).is_err());
}

#[test]
fn a_frozen_engine_does_not_change() {
    let mut play = full();
    let digest = play.engine.digest();
    let frozen = play.engine.freeze();
    play.hits("api.search", &["domain-0", "domain-1", "someone", "else"]);
    play.tick(900_000);
    assert_eq!(play.engine.pairs(), 0);
    let mut chunks = Vec::new();
    frozen.write(|chunk| chunks.push(chunk));
    let restored = Engine::restore(0, 1, &chunks, &play.versions);
    assert_eq!(restored.map(|engine| engine.digest()).ok(), Some(digest));
}
