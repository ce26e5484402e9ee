//! The processes of a demonstration: starts them, reads their lines, sends them commands, and always ends them.
//!
//! Every child's standard input is a pipe from this process: however this process ends, children read its end and
//! stop. What stays true: dropping a child's handle ends the child.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::holder::HolderNotice;
use super::player::PlayerNotice;

/// Variables that children get beside this process's environment: how they reach each other.
pub static CHILDREN_FIND: OnceLock<Vec<(&'static str, OsString)>> = OnceLock::new();

/// How often to check whether a child that was asked to stop has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// News of children, and signals to this process.
#[derive(Debug)]
pub enum News {
    /// An aggregator listens on these addresses.
    Listening(Addresses),
    /// A line of an aggregator's log.
    Logged(String),
    /// A notice of an agent: its counts.
    Agent(usize, PlayerNotice),
    /// A notice of a process that holds copies: what it holds.
    Holder(usize, HolderNotice),
    /// A child's output has ended.
    Ended(Who),
    /// This process was asked to stop: 2 for SIGINT, 15 for SIGTERM.
    Interrupted(i32),
}

/// The child whose output it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The aggregator with this number.
    Aggregator(u32),
    /// The agent with this index.
    Agent(usize),
    /// The holder with this index.
    Holder(usize),
}

/// The addresses of an aggregator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// HTTP.
    pub http: String,
    /// Agents.
    pub agents: String,
    /// The feed.
    pub feed: String,
}

impl Addresses {
    /// Parses the line with which an aggregator reports its addresses.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("listening ")?;
        let of = |key: &str| {
            rest.split_whitespace()
                .find_map(|word| word.strip_prefix(key))
                .map(str::to_owned)
        };
        Some(Self {
            http: of("http=")?,
            agents: of("agents=")?,
            feed: of("feed=")?,
        })
    }
}

/// A child process that ends when its handle is dropped.
#[derive(Debug)]
pub struct ChildGuard {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl ChildGuard {
    /// Starts this program with other arguments, and reads its lines in the background.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn agent(index: usize, args: &[String], news: Sender<News>) -> io::Result<Self> {
        let notice = move |line: &str| Some(News::Agent(index, serde_json::from_str(line).ok()?));
        Self::telling(args, notice, news, Who::Agent(index))
    }

    /// Starts a process that holds copies.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn holder(index: usize, args: &[String], news: Sender<News>) -> io::Result<Self> {
        let notice = move |line: &str| Some(News::Holder(index, serde_json::from_str(line).ok()?));
        Self::telling(args, notice, news, Who::Holder(index))
    }

    fn telling(
        args: &[String],
        parse: impl Fn(&str) -> Option<News> + Send + 'static,
        news: Sender<News>,
        who: Who,
    ) -> io::Result<Self> {
        let (mut kept, stdout, _) = Self::start(args, Stdio::piped(), Stdio::inherit())?;
        kept.reads(stdout, parse, news, who);
        Ok(kept)
    }

    /// Starts an aggregator, number `number` of this demonstration.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn aggregator(number: u32, args: &[String], news: Sender<News>) -> io::Result<Self> {
        let (mut kept, _, stderr) = Self::start(args, Stdio::null(), Stdio::piped())?;
        kept.reads(
            stderr,
            |line| {
                Some(
                    Addresses::parse(line)
                        .map_or_else(|| News::Logged(line.to_owned()), News::Listening),
                )
            },
            news,
            Who::Aggregator(number),
        );
        Ok(kept)
    }

    #[allow(
        clippy::type_complexity,
        reason = "the three ends of one child, taken apart at once"
    )]
    fn start(
        args: &[String],
        stdout: Stdio,
        stderr: Stdio,
    ) -> io::Result<(
        Self,
        Option<std::process::ChildStdout>,
        Option<std::process::ChildStderr>,
    )> {
        let mut child = Command::new(std::env::current_exe()?)
            .envs(CHILDREN_FIND.get().into_iter().flatten().cloned())
            .args(args)
            // This process parses its lines.
            .env("TOLLGATE_TELEMETRY_LOG_FORMAT", "text")
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok((Self { child, stdin }, stdout, stderr))
    }

    fn reads(
        &mut self,
        from: Option<impl io::Read + Send + 'static>,
        parse: impl Fn(&str) -> Option<News> + Send + 'static,
        news: Sender<News>,
        who: Who,
    ) {
        let Some(from) = from else { return };
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if parse(&line).is_some_and(|one| news.send(one).is_err()) {
                    return;
                }
            }
            let _ = news.send(News::Ended(who));
        });
    }

    /// Sends it a line. If the child is gone, that is noticed elsewhere.
    pub fn send_line(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// Closes its input: there is no more to do.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop, and kills it if it has not stopped in time. Returns its status if it stopped by itself.
    pub fn stop(&mut self, within: Duration) -> Option<ExitStatus> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let status = self.wait(within);
        if status.is_none() {
            self.kill();
        }
        status
    }

    /// Waits for its end.
    pub fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                _ => return None,
            }
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The directory of a demonstration's journal and notes; removed when the handle is dropped.
///
/// # Errors
///
/// If it cannot be created.
pub fn place() -> io::Result<tempfile::TempDir> {
    // It may contain passwords for Kafka.
    let ours_alone = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .prefix("tollgate-demo-")
        .permissions(ours_alone)
        .tempdir()
}

/// A path as an argument.
pub fn arg(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregator_says_where_it_listens() {
        let line = "2026-11-21T10:00:00Z  INFO tollgate_server::serve: listening http=127.0.0.1:1 agents=127.0.0.1:2 feed=127.0.0.1:3";
        let addresses = Addresses::parse(line).expect("the line");
        assert_eq!(
            (
                addresses.http.as_str(),
                addresses.agents.as_str(),
                addresses.feed.as_str()
            ),
            ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
        );
        assert_eq!(Addresses::parse("listening nowhere"), None);
    }
}
