//! Parts of a benchmark in processes of their own: this program, started again.
//!
//! ```text
//! parent   tollgate-benches child NAME ARGUMENTS      stdin: lines; the child ends at the end of its input
//! child    JSON lines on stdout
//! ```
//!
//! What stays true: no child outlives its handle. If the parent is killed, the child sees the end
//! of its input, and [`end_with_parent`] then ends the child.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The argument that makes this program a child.
pub const CHILD: &str = "child";

/// A running child.
pub struct Part {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Starts a child.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(name: &str, args: &[String]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's path")?;
        let mut command = Command::new(program);
        command.arg(CHILD).arg(name).args(args);
        Self::spawn(name, &mut command)
    }

    /// Starts a child by a command of the caller's, which must in the end run this program.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn spawn(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let input = process.stdin.take();
        let output = process.stdout.take().context("the child's output")?;
        Ok(Self {
            name: name.to_owned(),
            process,
            input,
            output: BufReader::new(output),
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a line.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn send(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the child's input")?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .with_context(|| format!("telling {}", self.name))
    }

    /// Receives its next line.
    ///
    /// # Errors
    ///
    /// If it has ended, or sends something unexpected.
    pub fn receive<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("{} ended without an answer", self.name);
        }
        serde_json::from_str(&line).with_context(|| format!("{} printed {line:?}", self.name))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a child that answers with one line and ends.
///
/// # Errors
///
/// If it fails.
pub fn ask<T: DeserializeOwned>(name: &str, args: &[String]) -> anyhow::Result<T> {
    Part::start(name, args)?.receive()
}

/// Sends a line to the parent.
///
/// # Errors
///
/// If the parent has ended.
pub fn send_to_parent(line: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// The argument at this position.
///
/// # Errors
///
/// If it is missing or has another type.
pub fn argument<T: std::str::FromStr>(
    args: &[String],
    index: usize,
    what: &str,
) -> anyhow::Result<T> {
    let text = args
        .get(index)
        .with_context(|| format!("{what} is missing"))?;
    text.parse()
        .ok()
        .with_context(|| format!("{what}: {text:?}"))
}

/// Ends this process once the parent has ended, or has closed our input.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let mut line = String::new();
        while std::io::stdin()
            .lock()
            .read_line(&mut line)
            .is_ok_and(|read| 0 < read)
        {
            line.clear();
        }
        std::process::exit(0);
    });
}
