//! Fuzz targets: decoders and parsers of what peers send and operators lay down, each as a function of bytes that
//! asserts what it promises.
//!
//! ```text
//! zmtp          a connection's bytes, in pieces           round trip, memory held
//! record        records of a partition                    round trip
//! link          messages between agent and aggregator     round trip
//! feed          frames, verdicts, announced, members      round trip
//! limits_log    chunks of documents, amendments           round trip
//! limits        limits documents                          what is printed reads as the same limits
//! snapshot      chunks of an engine                       what is restored is written as the same engine
//! names         escapes, networks, spans, rates           what is written is read as it was
//! journal       segments, snapshot files, descriptions    records as they were written, kept by an opening
//! export        files of a log's range, digested or not   records in order, or the place of a fault
//! access_log    lines of access logs, forms, patterns     a line says the same beside any other
//! csv           separated fields                          what is written is read as it was
//! jsonl         objects of JSON, in lines and arrays      what is written is read as it was
//! ```
//!
//! `cargo test` replays the kept inputs (`corpus/`) and the seeds; FUZZ.md says how to look for new ones.
//! What stays true: a target is total, deterministic, and asserts how much memory it takes.

mod export;
mod journal;
mod limits;
mod memory_disk;
mod names;
mod snapshot;
mod traffic;
mod wire;
mod zmtp;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which its directory in `corpus/` also has.
    pub name: &'static str,
    /// Tries one input; panics where a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with, made by what writes them.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "zmtp",
        run: zmtp::run,
        seeds: zmtp::seeds,
    },
    Target {
        name: "record",
        run: wire::record,
        seeds: wire::record_seeds,
    },
    Target {
        name: "link",
        run: wire::link,
        seeds: wire::link_seeds,
    },
    Target {
        name: "feed",
        run: wire::feed,
        seeds: wire::feed_seeds,
    },
    Target {
        name: "limits_log",
        run: wire::limits_log,
        seeds: wire::limits_log_seeds,
    },
    Target {
        name: "limits",
        run: limits::run,
        seeds: limits::seeds,
    },
    Target {
        name: "snapshot",
        run: snapshot::run,
        seeds: snapshot::seeds,
    },
    Target {
        name: "names",
        run: names::run,
        seeds: names::seeds,
    },
    Target {
        name: "journal",
        run: journal::run,
        seeds: journal::seeds,
    },
    Target {
        name: "export",
        run: export::run,
        seeds: export::seeds,
    },
    Target {
        name: "access_log",
        run: traffic::access_log,
        seeds: traffic::access_log_seeds,
    },
    Target {
        name: "csv",
        run: traffic::csv,
        seeds: traffic::csv_seeds,
    },
    Target {
        name: "jsonl",
        run: traffic::jsonl,
        seeds: traffic::jsonl_seeds,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// How much memory a decoder may hold at a time: so much, and so much for each byte of input.
#[derive(Clone, Copy, Debug)]
struct Memory {
    base: u64,
    per_byte: u64,
}

impl Memory {
    /// Runs a decoder on an input of `len` bytes, and asserts that it kept to this.
    fn holds<T>(self, len: usize, run: impl FnOnce() -> T) -> T {
        let mut result = None;
        let taken = allocation_counter::measure(|| result = Some(run()));
        let allowed = self.base + self.per_byte * len as u64;
        assert!(
            taken.bytes_max <= allowed,
            "{} bytes of memory for {len} bytes, expected at most {allowed}",
            taken.bytes_max
        );
        match result {
            Some(result) => result,
            None => unreachable!("it was run"),
        }
    }
}

/// Takes the first byte off as a choice; 0 for no input.
fn choice(bytes: &[u8]) -> (u8, &[u8]) {
    bytes
        .split_first()
        .map_or((0, bytes), |(first, rest)| (*first, rest))
}
