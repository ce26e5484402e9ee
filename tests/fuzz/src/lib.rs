//! Fuzz targets: decoders and parsers of input from peers and operators, each as a function of bytes that asserts
//! its promises.
//!
//! ```text
//! zmtp          a connection's bytes, in pieces           round trip, memory held
//! record        records of a partition                    round trip
//! link          messages between agent and aggregator     round trip
//! feed          frames, verdicts, announced, members      round trip
//! limits_log    chunks of documents, amendments           round trip
//! limits        limits documents                          printed and parsed again, the limits are the same
//! snapshot      chunks of an engine                       a restored engine is written as the same chunks
//! names         escapes, networks, spans, rates           written and parsed again, the value is the same
//! journal       segments, snapshot files, descriptions    records as they were written, kept by an opening
//! export        files of a log's range, digested or not   records in order, or the position of a fault
//! access_log    lines of access logs, forms, patterns     a line is read the same beside any other
//! csv           separated fields                          written and parsed again, rows are the same
//! jsonl         objects of JSON, in lines and arrays      written and parsed again, rows are the same
//! ```
//!
//! `cargo test` replays the kept inputs (`corpus/`) and the seeds; FUZZ.md describes the search for new ones.
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
    /// Its name, which is also that of its directory in `corpus/`.
    pub name: &'static str,
    /// Runs one input; panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Initial inputs, made by the matching encoders.
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

/// How much memory a decoder may hold at a time: a fixed part, and a part per byte of input.
#[derive(Clone, Copy, Debug)]
struct Memory {
    base: u64,
    per_byte: u64,
}

impl Memory {
    /// Runs a decoder on an input of `len` bytes, and asserts that it kept within this bound.
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

/// Splits off the first byte as a choice; 0 for empty input.
fn choice(bytes: &[u8]) -> (u8, &[u8]) {
    bytes
        .split_first()
        .map_or((0, bytes), |(first, rest)| (*first, rest))
}
