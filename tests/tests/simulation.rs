//! The simulation in the ordinary test run: kept seeds, new ones for some seconds, the promise that a run is a
//! function of its seed, and which arguments the program `simulate` accepts and refuses.

use std::env::VarError;
use std::io::{BufRead as _, BufReader, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_tests::simulation::held::BACK_WITHIN_US;
use tollgate_tests::simulation::history::command;
use tollgate_tests::simulation::kept::{self, PLANS};
use tollgate_tests::simulation::only::Only;
use tollgate_tests::simulation::plan::{Episode, Fault, PLAN_WAYS, Plan};
use tollgate_tests::simulation::swarm::{Order, Report, swarm};
use tollgate_tests::simulation::{Run, run};

/// How long new seeds are tried, after the kept ones.
const SOME_SECONDS: Duration = Duration::from_secs(8);

/// The runs of this seed and of the next ones are short.
const SHORT_SEED: u64 = 1;

/// The variable that sets the first seed.
const SEED_VARIABLE: &str = "TOLLGATE_SIMULATION_SEED";

/// The first seed: the requested one, or one from the clock.
fn first_seed(asked: Result<String, VarError>) -> Result<u64, String> {
    let text = match asked {
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

/// Prints something even if tests pass: the harness hides ordinary output.
fn say(what: &str) {
    // A failure to print the seed is no reason to fail.
    let _ = writeln!(std::io::stderr(), "simulation: {what}");
}

fn assert_none_failed(report: &Report) {
    if let Some(failed) = report.failed.first() {
        let (seed, way) = (failed.seed, failed.way);
        panic!(
            "seed {seed}: {}; see it with: simulate --way {way} --seed {seed} --trace",
            failed.violation
        );
    }
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
        ..Order::of(first, None)
    };
    let report = swarm(&order, |_| {}).expect("nothing is written");
    assert_none_failed(&report);
    assert!(
        report.proves_something(),
        "nobody was refused: that proves nothing"
    );
    assert_eq!(
        report.kept,
        order.kept.len() as u64,
        "all that are kept run"
    );
    assert!(report.kept < report.seeds, "no new seed was run");
    assert_eq!(
        report.missing(),
        [""; 0],
        "what so many seeds should have met"
    );
    say(&format!(
        "{} kept seeds, {} new ones, {} decisions",
        report.kept,
        report.seeds - report.kept,
        report.decisions
    ));
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
fn one_seed_gives_one_trace_byte_by_byte() {
    // The first one holds copies. None of them is long.
    for seed in [3, 9, 11] {
        let (one, other) = (run(Plan::draw(seed), true), run(Plan::draw(seed), true));
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert_eq!(one.hash, run(Plan::draw(seed), false).hash, "seed {seed}");
    }
}

#[test]
fn owners_whose_wall_clocks_are_off_rule_the_same() {
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
fn a_swarm_that_was_left_goes_on_and_comes_to_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = Some(dir.path().join("state.json"));
    let of = |seeds, state| Order {
        state,
        go_on: true,
        ..Order::of(SHORT_SEED, Some(seeds))
    };
    let (two, four) = (of(2, state.clone()), of(4, state.clone()));
    let left = swarm(&two, |_| {}).expect("it is written");
    assert_eq!(left.seeds, 2);
    let workers = NonZeroUsize::new(2).expect("two");
    let whole = swarm(
        &Order {
            workers,
            ..of(4, None)
        },
        |_| {},
    )
    .expect("nothing is written");
    let gone_on = swarm(&four, |_| {}).expect("it is read");
    let sums = |report: &Report| {
        let cover: Vec<_> = report.cover.all().collect();
        (
            report.seeds,
            report.decisions,
            report.refusals,
            report.faults.clone(),
            cover,
        )
    };
    assert_eq!(sums(&gone_on), sums(&whole));
    // Nothing is left to do, and nothing counts twice.
    let again = swarm(&four, |_| {}).expect("it is read");
    assert_eq!(sums(&again), sums(&whole));
    let other = swarm(
        &Order {
            first: SHORT_SEED + 1,
            ..four
        },
        |_| {},
    );
    let fault = other.expect_err("it is of another order").to_string();
    assert!(fault.contains("first seed"), "{fault}");
}

#[test]
fn what_agents_held_that_died_is_back_within_the_stated_time() {
    let order = Order {
        time: Some(SOME_SECONDS),
        kills: Some(60),
        ..Order::of(2, None)
    };
    let report = swarm(&order, |_| {}).expect("nothing is written");
    assert_none_failed(&report);
    assert!(0 < report.returns.kills, "nobody died holding anything");
    assert!(0 < report.returns.longest_us, "nothing came back");
    assert!(report.returns.longest_us <= BACK_WITHIN_US);
}

fn simulate(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    let command = command.args(args.split_whitespace());
    command.output().expect("it runs")
}

fn printed(args: &str) -> String {
    let output = simulate(args);
    assert_eq!(output.status.code(), Some(0), "{args}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn who_is_interrupted_tells_what_was_run() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    let command = command.args("--seed 1 --minutes 10 --go-on --workers 1".split(' '));
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    // It prints a line when it listens.
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it speaks");
    assert!(line.starts_with("seeds from 1"), "{line}");
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("there is `kill`").success());
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("\nviolations      0\n"), "{told}");
}

#[test]
fn options_of_which_one_would_be_ignored_are_refused() {
    for args in [
        "--hashes --seed 1 --minutes 1",
        "--hashes --seed 1 --decisions 1",
        "--hashes --seed 1 --go-on",
        "--hashes --seed 1 --format text",
        "--trace --seed 1 --seeds 2",
        "--trace --seed 1 --minutes 1",
        "--trace --seed 1 --go-on",
        "--trace --seed 1 --format json",
        "--trace --seed 1 --hashes",
        "--until-failure --seeds 1",
        "--until-failure --decisions 1",
        "--until-failure --kills 1",
        "--way 3 --kills 1",
        "--kept seeds.txt --kills 1",
        "--kept seeds.txt --seed 1 --trace",
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(64), "{args}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("cannot be used with"), "{args}: {said}");
    }
}

fn fault_of(args: &str) -> (Option<i32>, String) {
    let output = simulate(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn an_option_that_there_is_not_is_named() {
    let (code, said) = fault_of("--sead 1");
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("unexpected argument '--sead'"), "{said}");
}

#[test]
fn seeds_of_a_file_are_run_and_what_is_wrong_with_it_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("mine.txt");
    let with = || fault_of(&format!("--kept {}", file.display()));
    let (code, said) = with();
    assert_eq!(code, Some(66), "{said}");
    assert!(said.starts_with(&format!("{}: ", file.display())), "{said}");
    let write = |text: &str| std::fs::write(&file, text).expect("it is written");
    write("tollgate-simulation-seeds 1\n");
    let (code, said) = with();
    assert_eq!(code, Some(65), "{said}");
    let found = format!(
        "{}: line 1: found `tollgate-simulation-seeds 1`, expected `tollgate-simulation-seeds {PLANS}`",
        file.display()
    );
    assert!(said.contains(&found), "{said}");
    std::fs::write(&file, b"tollgate\nsimulation \xff seeds").expect("it is written");
    let (code, said) = with();
    assert_eq!(code, Some(65), "{said}");
    assert!(
        said.contains("line 2: found bytes that are no UTF-8"),
        "{said}"
    );
    write(&format!(
        "tollgate-simulation-seeds {PLANS}\n3 {SHORT_SEED} why it is here\n"
    ));
    let report = printed(&format!("--kept {} --format json", file.display()));
    let report: serde_json::Value = serde_json::from_str(&report).expect("it reads");
    assert_eq!(report["seeds"], 1);
}

#[test]
fn what_is_wrong_with_a_state_is_told_with_a_fitting_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let (state, nowhere) = (dir.path().join("state"), dir.path().join("no/where"));
    let with = |path: &Path| fault_of(&format!("--seed 1 --seeds 1 --state {}", path.display()));
    let (code, said) = with(&nowhere);
    assert_eq!(code, Some(73), "{said}");
    let expected = format!("--state: {}: cannot be written: ", nowhere.display());
    assert!(said.contains(&expected), "{said}");
    for (path, found) in [
        (dir.path(), "a directory"),
        (Path::new("/dev/full"), "a device, a pipe or a socket"),
        (Path::new("/dev/zero"), "a device, a pipe or a socket"),
    ] {
        let (code, said) = with(path);
        assert_eq!(code, Some(66), "{said}");
        let path = path.display();
        let expected =
            format!("--state: {path}: found {found}, expected a regular file, or none yet");
        assert!(said.contains(&expected), "{said}");
    }
    std::fs::write(&state, r#"{"schema": "another"}"#).expect("it is written");
    let (code, said) = with(&state);
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("found schema another, expected"), "{said}");
    std::fs::remove_file(&state).expect("it is there");
    assert_eq!(with(&state).0, Some(0));
    let of_another = format!("--seed 2 --seeds 1 --state {}", state.display());
    assert_eq!(fault_of(&of_another).0, Some(64));
}

#[test]
fn numbers_that_are_out_of_bounds_are_refused_with_what_may_be() {
    let seeds_max = i64::MAX as u64;
    for (args, (least, most)) in [
        ("--seed 9223372036854775808 --seeds 1", (0, seeds_max)),
        ("--seed -1", (0, seeds_max)),
        ("--seed x --trace", (0, seeds_max)),
        ("--seed 1 --seeds 18446744073709551615", (1, seeds_max)),
        ("--seeds 0", (1, seeds_max)),
        ("--minutes 307445734561825861", (1, 307_445_734_561_825_860)),
        ("--minutes -5", (1, 307_445_734_561_825_860)),
        ("--decisions 1e9", (1, u64::MAX)),
        ("--kills -1", (1, u64::MAX)),
        ("--workers 1025", (1, 1024)),
        ("--hashes --seed 18446744073709551615", (0, seeds_max)),
    ] {
        let expected = format!("expected a whole number from {least} to {most}");
        let (code, said) = fault_of(args);
        assert_eq!(code, Some(64), "{args}: {said}");
        assert!(said.contains(&expected), "{args}: {said}");
    }
}

#[test]
fn a_rate_out_of_range_or_of_nothing_is_refused_with_what_may_be() {
    for (args, expected) in [
        (
            "--rate lost=1.5",
            "found the share `1.5`, expected a number from 0 to 1",
        ),
        (
            "--rate late=0.5",
            "found the kind `late`, expected one of lost, doubled, refused",
        ),
        (
            "--rate lost=0.0000001",
            "found the share `0.0000001`, expected 0, or 0.000001 (one in a million) at least",
        ),
        ("--rate lost", "found `lost`, expected KIND=SHARE"),
        (
            "--rate lost=0 --rate lost=1",
            "--rate: found two rates of the kind `lost`, expected one",
        ),
        ("--rate lost=0 --kills 1", "cannot be used with"),
    ] {
        let (code, said) = fault_of(args);
        assert_eq!(code, Some(64), "{args}: {said}");
        assert!(said.contains(expected), "{args}: {said}");
    }
}

#[test]
fn rates_that_are_asked_for_stand_in_the_report_and_in_what_happens() {
    let lossy = format!("--seed {SHORT_SEED} --rate lost=0.5 --rate doubled=0");
    let trace = printed(&format!("{lossy} --trace"));
    assert!(trace.contains("Loss(Edge { agent: 0, owner: 0, way: Up }, 500000)"));
    assert!(!trace.contains("Duplication("));
    let report = printed(&format!("{lossy} --seeds 1"));
    assert!(
        report.contains("rates           lost=0.5 doubled=0\n"),
        "{report}"
    );
}

/// Its error output and exit code if its standard output is a full disk.
#[cfg(target_os = "linux")]
fn into_a_full_disk(args: &str) -> (Option<i32>, String) {
    let full = std::fs::File::create("/dev/full").expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    let command = command.args(args.split_whitespace()).stdout(full);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_printed_and_cannot_be_written_is_a_failure() {
    let of_one = format!("--seed {SHORT_SEED} --seeds 1");
    for args in [
        of_one.clone(),
        format!("{of_one} --format json"),
        format!("{of_one} --hashes"),
        format!("--seed {SHORT_SEED} --trace"),
        "--help".to_owned(),
    ] {
        let (code, said) = into_a_full_disk(&args);
        assert_eq!(code, Some(74), "{args}: {said}");
        let expected = "what is printed cannot be written: No space left on device";
        assert!(said.contains(expected), "{args}: {said}");
    }
}

#[test]
fn help_names_exit_codes_and_what_leaves_kept_seeds_out() {
    let help = printed("--help");
    for code in ["0", "1", "64", "65", "66", "73", "74", "77"] {
        let is_told = |line: &str| line.split_whitespace().next() == Some(code);
        assert!(help.lines().any(is_told), "{code}: {help}");
    }
    assert!(help.contains("not with --seed"), "{help}");
}

#[test]
fn a_plan_is_drawn_in_the_way_that_is_asked_for() {
    let hashes = |way: &str| printed(&format!("{way} --seed {SHORT_SEED} --seeds 1 --hashes"));
    assert_eq!(hashes(&format!("--way {PLANS}")), hashes(""));
    let third = run(Plan::draw_as(3, SHORT_SEED).expect("it is known"), false);
    assert_eq!(
        hashes("--way 3"),
        format!("{SHORT_SEED} {:016x}\n", third.hash)
    );
    let trace = printed(&format!("--way 3 --seed {SHORT_SEED} --trace"));
    assert!(trace.ends_with(&format!("hash {:016x}\n", third.hash)));
    let short_fleet = |seed: &u64| {
        let plan = Plan::draw(*seed);
        plan.fleet && plan.length_us < 20_000_000
    };
    let seed = (1..).find(short_fleet).expect("there are some");
    let anew = run(Plan::draw(seed).with_topic_anew(), false);
    assert_eq!(
        printed(&format!("--anew --seed {seed} --seeds 1 --hashes")),
        format!("{seed} {:016x}\n", anew.hash)
    );
    let output = simulate(&format!("--way {} --seed 1 --trace", PLANS + 1));
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ways = PLAN_WAYS.map(|way| way.to_string()).join(", ");
    assert!(
        said.contains(&format!("'{}'", PLANS + 1)) && said.contains(&format!("one of {ways}")),
        "{said}"
    );
}

#[test]
fn of_one_seed_some_faults_can_be_left_in_and_a_shortest_history_is_told_so() {
    let whole = printed(&format!("--seed {SHORT_SEED} --trace"));
    let faults = Plan::draw(SHORT_SEED).episodes.len();
    let all: Vec<_> = (0..faults).map(|number| number.to_string()).collect();
    let only = |numbers: &str| format!("--seed {SHORT_SEED} --only {numbers} --trace");
    assert_eq!(printed(&only(&all.join(","))), whole);
    let none = printed(&only("none"));
    assert!(!none.contains("  fault 0 for "), "{none}");
    // The command that is printed with a history is accepted, and plays the same plan.
    let order = Order {
        rates: vec!["doubled=0.5".parse().expect("a rate")],
        ..Order::of(SHORT_SEED, None)
    };
    let two: Only = "1,3".parse().expect("numbers");
    let told = command(&order, PLANS, SHORT_SEED, Some(&two));
    let shown = printed(told.strip_prefix("simulate ").expect("the program"));
    let plan = two.of(order.plan_of(PLANS, SHORT_SEED));
    assert_eq!(plan.episodes.len(), 2);
    assert!(shown.ends_with(&format!("hash {:016x}\n", run(plan, false).hash)));
    let (last, bad) = (faults - 1, only(&format!("0,{faults}")));
    for (args, expected) in [
        (
            bad.as_str(),
            format!("--only: found the fault {faults}, expected from 0 to {last}, or none"),
        ),
        (
            "--seed 1 --trace --only x",
            "found `x`, expected numbers of faults from 0, as 3,7, or none".to_owned(),
        ),
        ("--seed 1 --only 1 --hashes", "found no --trace".to_owned()),
        ("--seed 1 --only 1 --seeds 1", "found no --trace".to_owned()),
    ] {
        let (code, said) = fault_of(args);
        assert_eq!(code, Some(64), "{args}: {said}");
        assert!(said.contains(&expected), "{args}: {said}");
    }
}
