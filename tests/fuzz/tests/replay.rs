//! Replays what the fuzzer found and kept, and the seeds, through every target.

use std::fs;
use std::path::Path;

use tollgate_fuzz::TARGETS;

/// The kept inputs of a target, by file; none where it was not looked for yet.
fn kept(name: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let entries = fs::read_dir(&dir).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut kept: Vec<_> = paths
        .map(|path| {
            let bytes = fs::read(&path).expect("a kept input");
            (path.display().to_string(), bytes)
        })
        .collect();
    kept.sort();
    kept
}

#[test]
fn kept_inputs_violate_no_property() {
    let all = TARGETS.iter().map(|target| kept(target.name).len());
    assert!(100 < all.sum::<usize>(), "the corpus was found");
    for target in TARGETS {
        let kept = kept(target.name);
        for (file, bytes) in kept {
            // Of a test that fails the last line says by what.
            println!("{file}");
            (target.run)(&bytes);
        }
    }
}

#[test]
fn cut_or_altered_seeds_violate_no_property() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for (number, seed) in seeds.iter().enumerate() {
            println!("{} seed {number}", target.name);
            (target.run)(seed);
            let step = seed.len() / 16 + 1;
            for at in (0..seed.len()).step_by(step) {
                (target.run)(&seed[..at]);
                let mut altered = seed.clone();
                altered[at] ^= 1 << (at % 8);
                (target.run)(&altered);
            }
        }
    }
}

#[test]
fn the_corpus_is_small_and_of_known_targets() {
    const BYTES_MAX: u64 = 600 * 1024;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut bytes = 0;
    for dir in fs::read_dir(root).expect("the corpus") {
        let dir = dir.expect("an entry");
        let name = dir.file_name();
        let known = TARGETS.iter().any(|target| name == *target.name);
        assert!(known, "{}: of no target", dir.path().display());
        for file in fs::read_dir(dir.path()).expect("a target's directory") {
            bytes += file.expect("an entry").metadata().expect("a file").len();
        }
    }
    assert!(
        bytes <= BYTES_MAX,
        "{bytes} bytes, expected at most {BYTES_MAX}"
    );
}
