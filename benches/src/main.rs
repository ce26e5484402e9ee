//! The command: runs benchmarks, prints their figures, and records them.
//!
//! ```text
//! tollgate-benches list                   lists the benchmarks
//! tollgate-benches NAME… [--full]         runs some
//! tollgate-benches all                    runs all and records them in RESULTS.md
//! ```
//!
//! A missed target is reported and is not a failure: people judge the figures.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser;
use tollgate_benches::catalog::{BENCHES, CHILDREN, find};
use tollgate_benches::harness::child::CHILD;
use tollgate_benches::harness::machine::Provenance;
use tollgate_benches::harness::report::{self, Format};
use tollgate_benches::harness::{Bench, Session, Size, results};

/// Measures Tollgate and its peers in the same run.
#[derive(Debug, Parser)]
#[command(name = "tollgate-benches")]
struct Args {
    /// Benchmarks by name, or `all`, or `list`.
    #[arg(required = true)]
    names: Vec<String>,
    /// How to print figures.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Measure everything, however long it takes: 10 million pairs, 100 windows.
    #[arg(long)]
    full: bool,
    /// Record the figures in benches/RESULTS.md; `all` always does.
    #[arg(long)]
    record: bool,
    /// Do not print steps on standard error.
    #[arg(short, long)]
    quiet: bool,
}

/// The exit code for wrong use of the command line, as in every program of this project.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(CHILD) {
        return ended(run_child(&arguments.collect::<Vec<_>>()));
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    if args.names == ["list"] {
        for Bench { name, about, .. } in BENCHES {
            println!("{name:<13} {about}");
        }
        return ExitCode::SUCCESS;
    }
    match chosen(&args.names) {
        Ok(benches) => ended(measure(&args, &benches)),
        Err(name) => {
            let known: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
            eprintln!(
                "no benchmark {name:?}: expected all, list, {}",
                known.join(", ")
            );
            ExitCode::from(USAGE)
        }
    }
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Bench>, &str> {
    if names == ["all"] {
        return Ok(BENCHES.iter().collect());
    }
    names
        .iter()
        .map(|name| find(name).ok_or(name.as_str()))
        .collect()
}

fn measure(args: &Args, benches: &[&'static Bench]) -> anyhow::Result<()> {
    let records = args.record || args.names == ["all"];
    if cfg!(debug_assertions) {
        anyhow::ensure!(
            !records,
            "built without --release: nothing that is worth recording"
        );
        eprintln!("built without --release: these figures mean nothing");
    }
    let provenance = Provenance::here();
    let tells_steps = !args.quiet && std::io::stderr().is_terminal();
    let mut failed = Vec::new();
    for bench in benches {
        let size = if args.full { Size::Full } else { Size::Usual };
        let mut session = Session::new(bench.name, size, tells_steps);
        let ran = (bench.run)(&mut session);
        let figures = session.into_figures();
        // Print what was measured before a failure, but do not record it. Later benchmarks run all the same.
        report::print(
            &mut std::io::stdout().lock(),
            args.format,
            bench.name,
            &figures,
        )?;
        match ran {
            // All of them take more than an hour: one that is done is not lost with those after it.
            Ok(()) if records => {
                let path = results::record(BENCHES, &[(bench.name, figures)], &provenance)?;
                eprintln!("{}: recorded in {}", bench.name, path.display());
            }
            Ok(()) => {}
            Err(error) => {
                eprintln!("{}: {error:#}", bench.name);
                failed.push(bench.name);
            }
        }
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn run_child(arguments: &[String]) -> anyhow::Result<()> {
    let Some((name, args)) = arguments.split_first() else {
        anyhow::bail!("{CHILD} of which name?");
    };
    match CHILDREN.iter().find(|part| part.name == name) {
        Some(part) => (part.run)(args),
        None => anyhow::bail!("no part {name:?}"),
    }
}
