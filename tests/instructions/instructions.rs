//! How many instructions the steps of every call take: a guard against code that becomes slower by accident,
//! which no clock on a busy machine could be.
//!
//! ```text
//! instructions                    runs `valgrind --tool=callgrind instructions count STEP` for each step
//! instructions count STEP         runs the step, of which callgrind counts the calls in `count_these`
//! ```
//!
//! The build is that of tests, so the figures are not those of a release (RESULTS.md has those), but they are the
//! same on each machine: callgrind simulates a processor. Ignored if valgrind is missing; with
//! `TOLLGATE_PROGRAMS=required` that fails instead. What stays true: a step that needs a twentieth more than its
//! bound fails, and so does one that needs a quarter less, for then the bound guards nothing.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Trial};
use tollgate_agent::testing::TestAgent;
use tollgate_engine::{Engine, Rulings};
use tollgate_limits::Limits;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen};

/// The argument that makes this program the counted one.
const COUNT: &str = "count";

/// A step, and its cost.
struct Step {
    name: &'static str,
    /// Instructions of one call or entry, in the profile of tests.
    instructions: f64,
    /// Calls or entries that are counted.
    units: u32,
    run: fn(),
}

const STEPS: [Step; 8] = [
    Step {
        name: "hit",
        instructions: 482.0,
        units: CALLS,
        run: hit,
    },
    Step {
        name: "refused",
        instructions: 826.0,
        units: CALLS,
        run: refused,
    },
    Step {
        name: "hold",
        instructions: 728.0,
        units: CALLS,
        run: hold,
    },
    Step {
        name: "decode",
        instructions: 586.0,
        units: ENTRIES * BATCHES,
        run: decode,
    },
    Step {
        name: "apply_window",
        instructions: 5568.0,
        units: ENTRIES * BATCHES,
        run: || apply("rate = \"100/s\""),
    },
    Step {
        name: "apply_tier",
        instructions: 5842.0,
        units: ENTRIES * BATCHES,
        run: || apply("tiers = [{ limit = 100, window = \"1s\", active = \"1s\" }]"),
    },
    Step {
        name: "apply_bucket",
        instructions: 4266.0,
        units: ENTRIES * BATCHES,
        run: || apply("bucket = { rate = \"100/s\", burst = 100 }"),
    },
    Step {
        name: "apply_quota",
        instructions: 4532.0,
        units: ENTRIES * BATCHES,
        run: || apply("quota = [\"1_000_000/day\"]"),
    },
];

const CALLS: u32 = 4_000;
const PAIRS: u32 = 200;
const ENTRIES: u32 = 500;
const BATCHES: u32 = 8;
const RESOURCE: &str = "api.search";
const BEGIN_US: u64 = 1_700_000_000_000_000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(COUNT) {
        let name = words.next().unwrap_or_default();
        let step = STEPS.iter().find(|step| step.name == name);
        let Some(step) = step else {
            return ExitCode::FAILURE;
        };
        (step.run)();
        return ExitCode::SUCCESS;
    }
    let is_required = std::env::var("TOLLGATE_PROGRAMS").is_ok_and(|value| value == "required");
    let is_there = Command::new("valgrind").arg("--version").output().is_ok();
    let trials = STEPS.iter().map(|step| {
        Trial::ignorable_test(format!("instructions_of_{}", step.name), move || {
            match (is_there, is_required) {
                (true, _) => check(step)
                    .map(|()| Completion::Completed)
                    .map_err(Into::into),
                (false, true) => Err("TOLLGATE_PROGRAMS=required, and valgrind: not found".into()),
                (false, false) => Ok(Completion::ignored_with("valgrind: not found")),
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn check(step: &Step) -> Result<(), String> {
    let counted = counted(step)? / f64::from(step.units);
    let (least, most) = (step.instructions * 0.75, step.instructions * 1.05);
    match least <= counted && counted <= most {
        true => Ok(()),
        false => Err(format!(
            "{counted:.0} instructions, expected {least:.0} to {most:.0}: what has changed? If that is meant, change \
             the bound here"
        )),
    }
}

/// The instructions of all calls of a step.
fn counted(step: &Step) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*count_these*")
        .arg(program)
        .args([COUNT, step.name])
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("{}: {text}", output.status))
}

/// Runs the counted work. Callgrind finds this function by its name, which must be unique.
#[inline(never)]
fn count_these(work: &mut dyn FnMut()) {
    work();
}

fn names() -> Vec<String> {
    (0..PAIRS)
        .map(|number| format!("tenant-{number}"))
        .collect()
}

fn hit() {
    calls(|_, _| {}, true);
}

fn refused() {
    let deny = |agent: &TestAgent, domain: &str| {
        agent.deny(RESOURCE, domain, Duration::from_secs(60));
    };
    calls(deny, false);
}

fn calls(prepare: impl Fn(&TestAgent, &str), pass: bool) {
    let agent = TestAgent::new();
    let rate = agent.agent().rate(RESOURCE);
    let names = names();
    for name in &names {
        // Create the pair before counting.
        let _ = rate.hit(name);
        prepare(&agent, name);
        let _ = rate.hit(name);
    }
    for _ in 0..CALLS / PAIRS {
        agent.discard();
        let mut passed = 0;
        count_these(&mut || passed = names.iter().filter(|name| rate.hit(name).is_ok()).count());
        assert_eq!(passed, if pass { names.len() } else { 0 });
    }
}

/// Copies that are taken and given back at once.
fn hold() {
    let agent = TestAgent::new();
    let copies = agent.agent().copies(RESOURCE);
    agent.copies_limit(RESOURCE, 100);
    let names = names();
    for round in 0..=CALLS / PAIRS {
        agent.discard();
        let mut taken = 0;
        let mut all = || {
            taken = names
                .iter()
                .filter(|name| copies.reserve(name, 1).is_ok())
                .count()
        };
        // The first round creates the pairs.
        match round {
            0 => all(),
            _ => count_these(&mut all),
        }
        assert_eq!(taken, names.len());
    }
}

fn decode() {
    for batch in batches(0) {
        count_these(&mut || {
            let decoded = Record::decode(&batch);
            assert!(std::hint::black_box(decoded).is_ok());
        });
    }
}

fn apply(constraint: &str) {
    let text = format!("version = 1\nrules = 2\n[rate.\"{RESOURCE}\"]\n{constraint}\n");
    let limits = Limits::parse(&text).expect("limits");
    let versions = BTreeMap::from([(1, Arc::new(limits))]);
    let mut engine = Engine::new(0, 1);
    // As of an aggregator that serves agents.
    let mut rulings = Rulings {
        tells_near: true,
        ..Rulings::default()
    };
    let pen = || RecordPen::new(&MacKey::UNPROTECTED, 0);
    let log = LogId {
        generation: 1,
        random: 0x5EED,
    };
    let activation = LimitsActivation {
        version: 1,
        digest: [0; 32],
    };
    let before = [pen().genesis(log), pen().limits_activation(&activation)];
    // The first batches create the pairs.
    let (first, counted) = (batches(0), batches(BATCHES));
    let is_counted = (before.len() + first.len()) as u64;
    let records = before.iter().chain(&first).chain(&counted);
    for (offset, bytes) in (0..).zip(records) {
        let record = Record::decode(bytes).expect("a record");
        let at = Timestamp::from_micros(BEGIN_US + 1_000 * offset);
        rulings.clear();
        let mut ruled = || engine.apply(offset, at, &record, &versions, &mut rulings);
        match is_counted <= offset {
            true => count_these(&mut ruled),
            false => ruled(),
        }
    }
    assert_eq!(engine.pairs(), u64::from(PAIRS));
}

/// Batches of one agent beginning at a sequence number, each with hits on all pairs in turn.
fn batches(from: u32) -> Vec<Vec<u8>> {
    let names = names();
    let of = |number: u32| {
        let sent = Timestamp::from_micros(BEGIN_US + 1_000 * u64::from(number));
        let sender = Sender {
            agent: "counted",
            epoch: 7,
            sequence: 1 + u64::from(number),
            sent,
        };
        let domains: Vec<&String> = names.iter().cycle().take(ENTRIES as usize).collect();
        let hits = domains.iter().map(|name| Hit::one(0, name, sent, 1));
        let mut writer = Writer::default();
        let refused = std::iter::empty::<Refused<'_>>();
        write_hits(&mut writer, &sender, &[RESOURCE], hits, refused);
        writer.as_slice().to_vec()
    };
    (from..from + BATCHES).map(of).collect()
}
