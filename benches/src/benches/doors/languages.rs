//! A call from another language to the agent in its process: connected, and with the aggregator killed.
//!
//! ```text
//! C        cc                 agent/c/examples/cost.c          the floor of the two below it
//! LuaJIT   luajit             deploy/gateways/lua/cost.lua
//! Go       go 1.24, cc        agent/go/cost
//! Python   python3, maturin   agent/python/examples/cost.py
//! ```
//!
//! Each of these programs measures by itself: blocks of a thousand calls, a million calls a second, 1,000 domains.
//! This benchmark kills the aggregator after each round, and restarts it after the next. How many calls the log has
//! acknowledged shows whether a round ran with an aggregator or without. If this machine lacks what a language needs,
//! that is reported in place of its figures.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use super::{ROUNDS, UNCHANGED};
use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::figure::{Figure, Target};
use crate::harness::peers::StartError;

const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.free\"]\nrate = \"100000000/s\"\n";
const ROUNDS_FULL: usize = 7;
/// The acknowledged share of a connected round's calls, in percent. With less, the agent was still connecting; with
/// more, it was still sending what it had kept.
const AT_WORK: std::ops::RangeInclusive<f64> = 80.0..=120.0;
/// How many rounds of two seconds an agent may take to find a restarted aggregator.
const UNTIL_AT_WORK_MAX: usize = 15;

/// A language whose calls are measured.
struct Language {
    name: &'static str,
    call_ns_max: Option<f64>,
    /// Builds its program and returns the command.
    program: fn(&Kit) -> Result<Command, StartError>,
}

const LANGUAGES: &[Language] = &[
    Language {
        name: "C",
        call_ns_max: None,
        program: c,
    },
    Language {
        name: "LuaJIT",
        call_ns_max: Some(40.0),
        program: lua,
    },
    Language {
        name: "Go",
        call_ns_max: Some(60.0),
        program: go,
    },
    Language {
        name: "Python",
        call_ns_max: Some(120.0),
        program: python,
    },
];

/// Runs the benchmark.
///
/// # Errors
///
/// If a program exists and fails, a call is refused, or a round is neither connected nor without aggregator as
/// planned.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let kit = Kit::new()?;
    for language in LANGUAGES {
        session.step(&format!("building for {}", language.name));
        let outcome = match (language.program)(&kit) {
            Ok(mut command) => measure(session, language, &mut command),
            Err(StartError::Absent { reason }) => {
                for figure in absent(language, &reason) {
                    session.add(figure);
                }
                Ok(())
            }
            Err(StartError::Failed(error)) => Err(error),
        };
        outcome.with_context(|| language.name.to_owned())?;
    }
    Ok(())
}

fn names(language: &Language) -> [String; 2] {
    let name = language.name;
    [
        format!("{name}, a call"),
        format!("{name}, a call with the aggregator killed, against at work"),
    ]
}

fn absent(language: &Language, why: &str) -> [Figure; 2] {
    let [call, ratio] = names(language);
    let call = Figure::absent(call, "ns", why);
    let call = match language.call_ns_max {
        Some(most) => call.target(Target::AtMost(most)),
        None => call,
    };
    [call, Figure::absent(ratio, "×", why).target(UNCHANGED)]
}

/// Alternates rounds with an aggregator and without.
fn measure(
    session: &mut Session,
    language: &Language,
    command: &mut Command,
) -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(LIMITS, 16)?;
    let mut caller = CostCaller::start(command.args([&*aggregator.agents, "rounds"]))?;
    let rounds = if session.is_full() {
        ROUNDS_FULL
    } else {
        ROUNDS
    };
    let (mut well, mut gone) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        session.step(&format!("{}, round {round} of {rounds}", language.name));
        well.push(caller.at_work()?);
        aggregator.kill()?;
        // This round still includes what the aggregator had acknowledged when it was killed.
        caller.round()?;
        let without = caller.round()?;
        ensure!(
            without.acknowledged_percent == 0.0,
            "acknowledged by a killed aggregator: {without:?}"
        );
        gone.push(without);
        if round < rounds {
            aggregator.again()?;
        }
    }
    report(session, language, &well, &gone);
    Ok(())
}

fn report(session: &mut Session, language: &Language, well: &[CallCost], gone: &[CallCost]) {
    let ns = |rounds: &[CallCost]| rounds.iter().map(|one| one.call_ns).collect::<Vec<_>>();
    let least = |rounds: &[CallCost]| {
        let recorded = rounds.iter().map(|one| one.recorded_percent);
        recorded.fold(100.0, f64::min)
    };
    let (at_work, without) = (ns(well), ns(gone));
    let tenth = well.iter().map(|one| one.tenth_ns).fold(f64::MAX, f64::min);
    let [call, ratio] = names(language);
    let recorded = (least(well), least(gone));
    if let Some(figure) = Figure::of_rounds(call, "ns", &at_work) {
        let figure = figure
            .peer("with the aggregator killed", &without)
            .note(format!(
                "recorded {:.2} % and more of a round's calls, with the aggregator killed {:.2} %; the fastest tenth of \
                 the blocks: {tenth:.1} ns",
                recorded.0, recorded.1
            ));
        session.add(match language.call_ns_max {
            Some(most) => figure.target(Target::AtMost(most)),
            None => figure,
        });
    }
    if let Some(figure) = Figure::of_ratio(ratio, &without, &at_work) {
        session.add(figure.target(UNCHANGED));
    }
}

/// A program's report of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CallCost {
    call_ns: f64,
    tenth_ns: f64,
    recorded_percent: f64,
    acknowledged_percent: f64,
}

impl CallCost {
    /// Parses a line such as `C: 46.1 ns a call (a tenth: 44.0), 100.00 % recorded, 99.10 % acknowledged, 0 refused`.
    fn read(line: &str) -> Option<Self> {
        let (_, numbers) = line.split_once(": ")?;
        let (call, rest) = numbers.split_once(" ns a call (a tenth: ")?;
        let (tenth, rest) = rest.split_once("), ")?;
        let (recorded, rest) = rest.split_once(" % recorded, ")?;
        let (acknowledged, rest) = rest.split_once(" % acknowledged, ")?;
        // Refused calls take another path, so there must be none.
        (rest.trim_end() == "0 refused").then_some(())?;
        Some(Self {
            call_ns: call.parse().ok()?,
            tenth_ns: tenth.parse().ok()?,
            recorded_percent: recorded.parse().ok()?,
            acknowledged_percent: acknowledged.parse().ok()?,
        })
    }
}

/// A running program, which measures a round for each line that it receives.
struct CostCaller {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl CostCaller {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let input = process.stdin.take().context("its input")?;
        let output = process.stdout.take().context("its output")?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
        })
    }

    fn round(&mut self) -> anyhow::Result<CallCost> {
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? != 0, "it ended");
        CallCost::read(&line).with_context(|| format!("expected a round's cost, and not {line:?}"))
    }

    /// A round with a connected aggregator.
    fn at_work(&mut self) -> anyhow::Result<CallCost> {
        let mut last = None;
        for _ in 0..UNTIL_AT_WORK_MAX {
            let round = self.round()?;
            // The first round creates threads and pairs, and compiles code.
            if last.is_some() && AT_WORK.contains(&round.acknowledged_percent) {
                return Ok(round);
            }
            last = Some(round);
        }
        bail!("no aggregator acknowledges what was called: {last:?}")
    }
}

impl Drop for CostCaller {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The workspace, and the directory of builds during the benchmark.
struct Kit {
    root: PathBuf,
    dir: tempfile::TempDir,
}

impl Kit {
    fn new() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        Ok(Self {
            root: root.canonicalize()?,
            dir: tempfile::Builder::new()
                .prefix("tollgate-bench-")
                .tempdir()?,
        })
    }

    /// The directory of the C library: built by cargo if cargo started this program, else the one beside this
    /// program.
    fn library(&self) -> anyhow::Result<PathBuf> {
        let prefix = self.dir.path().join("prefix");
        if !prefix.exists() {
            let mut install = Command::new(self.root.join("agent/c/install"));
            install.arg(&prefix);
            let ours = std::env::current_exe().context("this program's path")?;
            if let (None, Some(built)) = (std::env::var_os("CARGO"), ours.parent()) {
                install.arg(built);
            }
            succeed(&mut install)?;
        }
        Ok(prefix)
    }
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {stderr}");
    Ok(())
}

/// An error that names what this machine lacks, unless a program exists and succeeds.
fn need(program: &str, arguments: &[&str], what: &str) -> Result<(), StartError> {
    let mut command = Command::new(program);
    succeed(command.args(arguments)).map_err(|_| StartError::Absent {
        reason: format!("{what}: not found"),
    })
}

fn c(kit: &Kit) -> Result<Command, StartError> {
    need("cc", &["--version"], "cc")?;
    let prefix = kit.library()?;
    let program = kit.dir.path().join("cost-c");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11", "-o"])
        .args([&program, &kit.root.join("agent/c/examples/cost.c")])
        .arg(format!("-I{}/include", prefix.display()))
        .arg(format!("-L{}/lib", prefix.display()))
        .arg("-ltollgate_c");
    succeed(&mut cc)?;
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix.join("lib"));
    Ok(command)
}

fn lua(kit: &Kit) -> Result<Command, StartError> {
    need("luajit", &["-v"], "luajit")?;
    let door = kit.root.join("deploy/gateways/lua");
    let mut command = Command::new("luajit");
    command
        .arg(door.join("cost.lua"))
        .env("LUA_PATH", format!("{}/?.lua", door.display()))
        .env("LD_LIBRARY_PATH", kit.library()?.join("lib"));
    Ok(command)
}

fn go(kit: &Kit) -> Result<Command, StartError> {
    if !go_is_new_enough() {
        return Err(StartError::Absent {
            reason: format!("go 1.{GO_MINOR_MIN} or later: not found"),
        });
    }
    need("cc", &["--version"], "cc, for go")?;
    need("pkg-config", &["--version"], "pkg-config, for go")?;
    let lib = kit.library()?.join("lib");
    let program = kit.dir.path().join("cost-go");
    let mut go = Command::new("go");
    go.args(["build", "-o"])
        .arg(&program)
        .arg("./cost")
        .current_dir(kit.root.join("agent/go"))
        .env("PKG_CONFIG_PATH", lib.join("pkgconfig"))
        // Go's cache keys builds by these flags, not by the answers of pkg-config.
        .env("CGO_LDFLAGS", format!("-L{}", lib.display()))
        .env("GOPROXY", "off");
    succeed(&mut go)?;
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", lib);
    Ok(command)
}

/// From this minor version on, C calls that do not call back cost no more than necessary.
const GO_MINOR_MIN: u32 = 24;

fn go_is_new_enough() -> bool {
    let version = Command::new("go").args(["env", "GOVERSION"]).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let minor = version.ok().and_then(|version| {
        let minor = version.strip_prefix("go1.")?.trim().split('.').next()?;
        minor.parse::<u32>().ok()
    });
    minor.is_some_and(|minor| GO_MINOR_MIN <= minor)
}

/// Uses a wheel of its own, because `agent/python/check` builds one without optimisation.
fn python(kit: &Kit) -> Result<Command, StartError> {
    let package = kit.root.join("agent/python");
    let venv = package.join("target/venv/bin/python");
    let python = if venv.exists() {
        venv
    } else {
        "python3".into()
    };
    let name = python.display().to_string();
    need(
        &name,
        &["-c", "import maturin, pip"],
        "maturin, which agent/python/check installs,",
    )?;
    let (wheel, site) = (kit.dir.path().join("wheel"), kit.dir.path().join("site"));
    let mut maturin = Command::new(&python);
    maturin
        .args(["-m", "maturin", "build", "--release", "--quiet", "--out"])
        .arg(&wheel)
        .args(["--interpreter", &name])
        .current_dir(&package);
    succeed(&mut maturin)?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"])
        .args(["--disable-pip-version-check", "--find-links"])
        .arg(&wheel)
        .arg("--target")
        .args([&*site, Path::new("tollgate")]);
    succeed(&mut pip)?;
    let mut command = Command::new(&python);
    command
        .arg(package.join("examples/cost.py"))
        .env("PYTHONPATH", site);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_read_as_programs_print_it() {
        let line = "Go: 46.1 ns a call (a tenth: 44.0), 100.00 % recorded, 99.10 % acknowledged, 0 refused\n";
        let expected = CallCost {
            call_ns: 46.1,
            tenth_ns: 44.0,
            recorded_percent: 100.0,
            acknowledged_percent: 99.1,
        };
        assert_eq!(CallCost::read(line), Some(expected));
        assert_eq!(
            CallCost::read(&line.replace("0 refused", "3 refused")),
            None
        );
        assert_eq!(CallCost::read("usage: cost ADDRESS"), None);
    }

    #[test]
    fn figures_that_a_machine_cannot_give_have_a_reason() {
        let missing = need("no-such-program", &["--version"], "no-such-program");
        let Err(StartError::Absent { reason }) = missing else {
            panic!("{missing:?}");
        };
        for figure in absent(&LANGUAGES[1], &reason) {
            assert_eq!(figure.verdict(), "NOT MEASURED");
            assert_eq!(figure.remark(), Some("no-such-program: not found"));
        }
    }
}
