//! The simulation's part of the ordinary test run: kept plans, some seconds of new seeds, the check that a run is a
//! function of its plan, and the options and output of the program `simulate`.

use std::env::VarError;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tollgate_tests::simulation::held::BACK_WITHIN_US;
use tollgate_tests::simulation::kept;
use tollgate_tests::simulation::plan::{Episode, Fault, Plan};
use tollgate_tests::simulation::runner::{Order, SeedSum, run_all};
use tollgate_tests::simulation::{Run, run};

/// How long new seeds are tried, after the kept plans.
const SOME_SECONDS: Duration = Duration::from_secs(8);

/// This seed and the ones after it are short.
const SHORT_SEED: u64 = 1;

/// The environment variable with the first seed.
const SEED_VARIABLE: &str = "TOLLGATE_SIMULATION_SEED";

/// The first seed: the requested one, or one from the clock.
fn first_seed(requested: Result<String, VarError>) -> Result<u64, String> {
    let text = match requested {
        Err(VarError::NotPresent) => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            return Ok(since.map_or(1, |since| since.as_secs()));
        }
        Err(VarError::NotUnicode(found)) => found.to_string_lossy().into_owned(),
        Ok(text) => text,
    };
    text.parse()
        .map_err(|_| format!("{SEED_VARIABLE}: found `{text}`, expected a whole number"))
}

/// Writes to the output of passing tests too; the harness keeps printed text to itself.
fn say(what: &str) {
    // A seed that cannot be written is no reason to fail.
    let _ = writeln!(std::io::stderr(), "simulation: {what}");
}

fn assert_good(sum: &SeedSum) {
    assert!(sum.is_good(), "{sum}");
}

#[test]
fn some_seconds_of_seeds_violate_no_law() {
    let first = first_seed(std::env::var(SEED_VARIABLE)).unwrap_or_else(|fault| panic!("{fault}"));
    say(&format!(
        "seeds from {first}: again with {SEED_VARIABLE}={first}"
    ));
    let order = Order {
        time: Some(SOME_SECONDS),
        kept: kept::in_the_tree().unwrap_or_else(|fault| panic!("{fault}")),
        workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        ..Order::of(first, u64::MAX)
    };
    let sum = run_all(&order, |_| Ok(())).expect("nothing is written");
    assert_good(&sum);
    assert_eq!(sum.kept, order.kept.len() as u64, "all that are kept run");
    assert!(sum.kept < sum.seeds, "no new seed was run");
    say(&sum.to_string());
}

#[test]
fn a_seed_that_is_no_number_is_refused() {
    assert_eq!(first_seed(Ok("17".to_owned())), Ok(17));
    for bad in ["abc", "", "-1", "1 "] {
        let fault = first_seed(Ok(bad.to_owned())).expect_err("no number");
        assert_eq!(
            fault,
            format!("TOLLGATE_SIMULATION_SEED: found `{bad}`, expected a whole number")
        );
    }
}

#[test]
fn a_seed_and_its_plan_give_the_same_trace() {
    // The first one holds copies. None of them is long.
    for seed in [3, 9, 11] {
        let one = run(Plan::draw(seed), true);
        let read = Plan::read(&Plan::draw(seed).json()).expect("it reads");
        assert_eq!(one.trace, run(read, true).trace, "seed {seed}");
        assert_eq!(one.hash, run(Plan::draw(seed), false).hash, "seed {seed}");
    }
}

#[test]
fn aggregators_with_wrong_wall_clocks_rule_the_same() {
    let is_jump = |one: &Episode| matches!(one.fault, Fault::OwnerClock { .. });
    let is_off = |plan: &Plan| plan.episodes.iter().any(is_jump);
    let plans = (1..).map(Plan::draw).filter(is_off);
    for plan in plans.filter(|plan| plan.length_us < 20_000_000).take(4) {
        let (off, right) = (
            run(plan.clone(), false),
            run(plan.with_right_owners(), false),
        );
        let seed = off.plan.seed;
        assert_eq!(off.digests, right.digests, "seed {seed}");
        let sums = |run: &Run| (run.decisions, run.refusals, run.returns);
        assert_eq!(sums(&off), sums(&right), "seed {seed}");
    }
}

#[test]
fn copies_of_dead_agents_return_within_the_stated_time() {
    let order = Order {
        time: Some(SOME_SECONDS),
        kills: true,
        ..Order::of(2, 8)
    };
    let sum = run_all(&order, |_| Ok(())).expect("nothing is written");
    assert_good(&sum);
    assert!(0 < sum.died_holding, "nobody died holding anything");
    assert!(0 < sum.back_within_us, "nothing came back");
    assert!(sum.back_within_us <= BACK_WITHIN_US);
}

fn simulate(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    let command = command.args(args.split_whitespace());
    command.output().expect("it runs")
}

/// The exit code, and the text on the standard error.
fn ended(args: &str) -> (Option<i32>, String) {
    let output = simulate(args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

fn printed(args: &str) -> String {
    let output = simulate(args);
    assert_eq!(output.status.code(), Some(0), "{args}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_seed_prints_a_line_and_a_run_can_be_resumed() {
    let whole = printed(&format!("--from {SHORT_SEED} --seeds 3 --workers 1"));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lines.jsonl");
    let out = format!("--workers 1 --out {}", path.display());
    let mut parts = String::new();
    for (from, seeds) in [(SHORT_SEED, 2), (SHORT_SEED + 2, 1)] {
        let nothing = printed(&format!("--from {from} --seeds {seeds} {out}"));
        assert_eq!(nothing, "");
        parts += &std::fs::read_to_string(&path).expect("it is written");
    }
    assert_eq!(parts, whole);
    for (line, seed) in whole.lines().zip(SHORT_SEED..) {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let expected = run(Plan::draw(seed), false);
        assert_eq!(line["seed"], seed);
        assert_eq!(line["ok"], true);
        assert_eq!(line["decisions"], expected.decisions);
        assert_eq!(line["hash"], format!("{:016x}", expected.hash));
        let faults = line["faults"].as_object().expect("by kind").values();
        let faults: u64 = faults.filter_map(Value::as_u64).sum();
        assert_eq!(faults, expected.plan.episodes.len() as u64);
    }
}

/// A plan that panics: it pushes a document that does not exist.
fn panics() -> Plan {
    let mut plan = Plan::draw(SHORT_SEED);
    plan.episodes.push(Episode {
        from_us: 500_000,
        to_us: 500_000,
        fault: Fault::Push { document: 1_000 },
    });
    plan
}

#[test]
fn a_plan_in_a_file_is_run_shown_and_shrunk() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, short) = (dir.path().join("plan.json"), dir.path().join("short.json"));
    let write = |text: &str| std::fs::write(&path, text).expect("it is written");
    write(&Plan::draw(SHORT_SEED).json());
    let file = format!("--plan {}", path.display());
    let seed = format!("--from {SHORT_SEED}");
    assert_eq!(printed(&file), printed(&format!("{seed} --seeds 1")));
    let (of_file, of_seed) = (format!("{file} --trace"), format!("{seed} --trace"));
    assert_eq!(printed(&of_file), printed(&of_seed));
    let (code, output) = ended(&format!("{file} --shrink {}", short.display()));
    assert_eq!(code, Some(64), "{output}");
    assert!(
        output.contains("found no violation, expected one"),
        "{output}"
    );
    write(&panics().json());
    let (code, output) = ended(&file);
    assert_eq!(code, Some(1), "{output}");
    let expected = format!("FAILED: seed {SHORT_SEED}: the program panicked: index out of bounds");
    assert!(output.contains(&expected), "{output}");
    let (code, output) = ended(&format!("{file} --shrink {}", short.display()));
    assert_eq!(code, Some(1), "{output}");
    let all = panics().episodes.len();
    assert!(
        output.contains(&format!("with 1 of {all} faults")),
        "{output}"
    );
    let shrunk = kept::read(&short).expect("it reads");
    assert_eq!(shrunk.episodes, panics().episodes[all - 1..]);
    let (code, output) = ended(&format!("--plan {} --trace", short.display()));
    assert_eq!(code, Some(1), "{output}");
}

#[test]
fn a_bad_plan_or_option_has_a_fitting_exit_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let nowhere = dir.path().join("no/where");
    let bad = dir.path().join("bad.json");
    let plan = Plan::draw(1)
        .json()
        .replace(r#""seed":"#, r#""sead":1,"seed":"#);
    std::fs::write(&bad, plan).expect("it is written");
    let of = |option: &str, path: &Path| format!("{option} {}", path.display());
    for (args, code, expected) in [
        (of("--plan", &nowhere), 66, "no/where: cannot be read: "),
        (
            of("--plan", &bad),
            65,
            "bad.json: is no plan: unknown field `sead`",
        ),
        (of("--from 1 --out", &nowhere), 73, "cannot be written: "),
        (of("--from 1 --shrink", &nowhere), 73, "cannot be written: "),
        ("--trace".to_owned(), 64, "found no --from or --plan"),
        ("--sead 1".to_owned(), 64, "unexpected argument '--sead'"),
        ("--from -1".to_owned(), 64, "unexpected argument '-1'"),
        ("--from x".to_owned(), 64, "invalid value 'x'"),
        ("--workers 0".to_owned(), 64, "invalid value '0'"),
        (
            "--trace --from 1 --seeds 2".to_owned(),
            64,
            "cannot be used with",
        ),
        (of("--from 1 --plan", &bad), 64, "cannot be used with"),
    ] {
        let (found, output) = ended(&args);
        assert_eq!(found, Some(code), "{args}: {output}");
        assert!(output.contains(expected), "{args}: {output}");
    }
    let help = printed("--help");
    for code in ["0", "1", "64", "65", "66", "73", "74"] {
        let is_told = |line: &str| line.split_whitespace().next() == Some(code);
        assert!(help.lines().any(is_told), "{code}: {help}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_line_that_cannot_be_written_is_a_failure() {
    for args in ["--seeds 1", "--trace"] {
        let full = std::fs::File::create("/dev/full").expect("it is there");
        let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
        let from = ["--from", "1"].into_iter().chain(args.split(' '));
        let command = command.args(from).stdout(full);
        let output = command.output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(74), "{args}: {stderr}");
        let expected = "what is printed cannot be written: No space left on device";
        assert!(stderr.contains(expected), "{args}: {stderr}");
    }
}
