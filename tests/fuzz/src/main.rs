//! The fuzzer: `TARGET=name SEEDS=DIR tollgate-fuzz [libFuzzer's options] [directory of inputs…]`.
//!
//! One program for all targets, so that there is one build. It first writes the target's seeds into
//! DIR. See FUZZ.md; `tests/fuzz/run` calls it.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;
use std::{env, fs, process};

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = env::var("TARGET").unwrap_or_default();
    tollgate_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("TARGET={name:?}: expected one of {}", names.join(", "));
        process::exit(2);
    })
});

fuzz_target!(
    init: lay_seeds(),
    |bytes: &[u8]| (TARGET.run)(bytes)
);

fn lay_seeds() {
    let Some(dir) = env::var_os("SEEDS").map(PathBuf::from) else {
        return;
    };
    for (number, seed) in (TARGET.seeds)().iter().enumerate() {
        if let Err(error) = fs::write(dir.join(format!("seed-{number}")), seed) {
            eprintln!("{}: {error}", dir.display());
            process::exit(2);
        }
    }
}
