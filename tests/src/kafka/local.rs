//! One broker, run by `deploy/kafka/local` as a child process.
//!
//! Knows nothing of tests and when to ignore them. What stays true: the child holds the other end of a pipe that
//! we never write to, and ends when our end is closed, so it ends with us even if we are killed.

use std::io::{BufRead, BufReader, Read};
use std::marker::PhantomData;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A Kafka of one node on loopback, with a directory and port of its own; dropping it ends it.
#[derive(Debug)]
pub struct LocalKafka {
    bootstrap: String,
    /// `Some` until the drop; closing it ends the child.
    stdin: Option<ChildStdin>,
    script: Child,
    /// The child's output; disconnected when the child has ended. The mutex makes the shared broker `Sync`; only
    /// the drop locks it.
    lines: Mutex<Receiver<String>>,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// This machine lacks what is needed (Java, Maven or its registry); nothing is broken.
    #[error("{reason}")]
    Absent {
        /// What is lacking, in the script's words.
        reason: String,
    },
    /// The script could not be run or watched.
    #[error("{SCRIPT}: cannot be run: {0}")]
    Io(#[from] std::io::Error),
    /// The script ended, or printed something else, before a broker answered.
    #[error(
        "{SCRIPT}: {status}, found {line:?} on stdout, expected `bootstrap=HOST:PORT`: {stderr}"
    )]
    Failed {
        /// How the script ended.
        status: ExitStatus,
        /// What it printed, if anything.
        line: Option<String>,
        /// What it wrote to stderr.
        stderr: String,
    },
    /// The script printed nothing in time.
    #[error("{SCRIPT}: no line within {READY_WITHIN:?}")]
    Late,
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kafka/local");

/// The script's own deadline for the broker is 120 s; the rest is for the first fetch of 43 MB.
const READY_WITHIN: Duration = Duration::from_secs(360);

/// What a short-lived broker is fastest with: the optimising compiler takes most of a core for its first half minute. A
/// busy broker stands still for up to half a second with these options.
const SOONEST: &str = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1";

/// The script gives the broker 10 s before it kills it.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The script's exit code for "Kafka is not available here".
const EXIT_ABSENT: i32 = 69;

impl LocalKafka {
    /// Starts a broker and waits until it answers; about 3 s, and more the first time, when Kafka is downloaded.
    /// Any number can run at once.
    ///
    /// # Errors
    ///
    /// [`StartError::Absent`] if the machine cannot run one; the others if it should.
    pub fn start() -> Result<Self, StartError> {
        Self::start_by(for_tests())
    }

    /// Starts a broker to measure with: with the script's garbage collector, and the heap of Kafka's own scripts. The
    /// others are started for tests, with what starts soonest.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_to_measure() -> Result<Self, StartError> {
        let mut command = Command::new(SCRIPT);
        command.arg("--with-stdin");
        command.env("KAFKA_HEAP_OPTS", "-Xms1g -Xmx1g");
        Self::start_by(command)
    }

    /// Starts a broker that keeps its data in `dir`, so that it continues an earlier broker's; at `port`, or at
    /// one that the system chooses for 0.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_in(dir: &Path, port: u16) -> Result<Self, StartError> {
        let mut command = for_tests();
        command.arg("--dir").arg(dir);
        if port != 0 {
            command.arg("--port").arg(port.to_string());
        }
        Self::start_by(command)
    }

    /// Starts a broker with a property that overrides the local settings.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_with(property: &str) -> Result<Self, StartError> {
        let mut command = for_tests();
        command.args(["--set", property]);
        Self::start_by(command)
    }

    /// Starts a broker that advertises another address, [`Self::bootstrap`], to clients; also returns its own
    /// address.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_behind(address: &str) -> Result<(Self, String), StartError> {
        // If the system chose the port, the broker would not print it beside the advertised address.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = for_tests();
        command.args(["--port", &port.to_string()]);
        command.args([
            "--set",
            &format!("advertised.listeners=CLIENTS://{address}"),
        ]);
        let mut kafka = Self::start_by(command)?;
        let own = std::mem::replace(&mut kafka.bootstrap, address.to_owned());
        Ok((kafka, own))
    }

    /// Starts a broker that authenticates clients by SASL/PLAIN, and allows these users what an ACL allows them
    /// and nothing else; each user's password is the name. Also returns an address without authentication, where
    /// everything is allowed.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_guarded(users: &[String]) -> Result<(Self, String), StartError> {
        // If the system chose the port, the broker would print only that of the open listener.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let guarded = format!("127.0.0.1:{port}");
        let known = users.iter().map(|user| format!(" user_{user}=\"{user}\""));
        let known: String = known.collect();
        let mut command = for_tests();
        for property in [
            format!("listeners=CLIENTS://127.0.0.1:0,GUARDED://{guarded},CONTROLLER://127.0.0.1:0"),
            "listener.security.protocol.map=CLIENTS:PLAINTEXT,GUARDED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
                .to_owned(),
            "sasl.enabled.mechanisms=PLAIN".to_owned(),
            format!(
                "listener.name.guarded.plain.sasl.jaas.config=\
                 org.apache.kafka.common.security.plain.PlainLoginModule required{known};"
            ),
            "super.users=User:ANONYMOUS".to_owned(),
            "allow.everyone.if.no.acl.found=false".to_owned(),
        ] {
            command.args(["--set", &property]);
        }
        let mut kafka = Self::start_by(command)?;
        let open = std::mem::replace(&mut kafka.bootstrap, guarded);
        Ok((kafka, open))
    }

    /// The one broker that this process's tests share, started by the first caller. It ends with the process.
    /// Tests keep apart by [`Self::fresh_name`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`], the same for every caller: it is tried once.
    pub fn shared() -> Result<&'static Self, &'static StartError> {
        static SHARED: OnceLock<Result<LocalKafka, StartError>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// The address for clients: `127.0.0.1:PORT`.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// A name for a topic, a group or a prefix that no other test of this process uses.
    #[must_use]
    pub fn fresh_name(&self, stem: &str) -> String {
        static NAMES_GIVEN: AtomicU64 = AtomicU64::new(0);
        format!("{stem}-{}", NAMES_GIVEN.fetch_add(1, Ordering::Relaxed))
    }

    /// Suspends it, like a machine that hangs, until the value is dropped.
    ///
    /// # Errors
    ///
    /// If its process is not found, or cannot be suspended.
    pub fn pause(&self) -> std::io::Result<Paused<'_>> {
        let broker = java_below(self.script.id())
            .ok_or_else(|| std::io::Error::other("the broker's process is not found"))?;
        kill_process(broker, Signal::STOP)?;
        Ok(Paused {
            broker,
            _of: PhantomData,
        })
    }

    fn start_by(mut command: Command) -> Result<Self, StartError> {
        let mut script = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = script.stdin.take();
        let lines = read_lines(script.stdout.take());
        let stderr = read_all(script.stderr.take());

        let line = match lines.recv_timeout(READY_WITHIN) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                stop(&mut script, stdin, &lines);
                return Err(StartError::Late);
            }
        };
        if let Some(bootstrap) = line
            .as_deref()
            .and_then(|line| line.strip_prefix("bootstrap="))
        {
            let bootstrap = bootstrap.to_owned();
            return Ok(Self {
                bootstrap,
                stdin,
                script,
                lines: Mutex::new(lines),
            });
        }
        stop(&mut script, stdin, &lines);
        let status = script.wait()?;
        let stderr = stderr.recv().unwrap_or_default().trim_end().to_owned();
        if status.code() == Some(EXIT_ABSENT) {
            return Err(StartError::Absent { reason: stderr });
        }
        Err(StartError::Failed {
            status,
            line,
            stderr,
        })
    }
}

/// A suspended broker.
#[derive(Debug)]
pub struct Paused<'a> {
    broker: Pid,
    /// The broker outlives this, so the process id cannot be reused.
    _of: PhantomData<&'a LocalKafka>,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // If it has ended, there is nothing to resume.
        let _ = kill_process(self.broker, Signal::CONT);
    }
}

/// The script that starts a broker for tests.
fn for_tests() -> Command {
    let mut command = Command::new(SCRIPT);
    command.arg("--with-stdin");
    command.env("KAFKA_JVM_PERFORMANCE_OPTS", SOONEST);
    command
}

/// The Java process that the script has started.
fn java_below(script: u32) -> Option<Pid> {
    let children = format!("/proc/{script}/task/{script}/children");
    let children = std::fs::read_to_string(children).ok()?;
    let mut numbers = children.split_whitespace();
    let is_java = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "java")
    };
    let java = numbers.find(is_java)?;
    Pid::from_raw(java.parse().ok()?)
}

impl Drop for LocalKafka {
    fn drop(&mut self) {
        let lines = self.lines.get_mut().unwrap_or_else(PoisonError::into_inner);
        stop(&mut self.script, self.stdin.take(), lines);
    }
}

/// Ends the script by closing its standard input, and by force if it does not react.
fn stop(script: &mut Child, stdin: Option<ChildStdin>, lines: &Receiver<String>) {
    drop(stdin);
    loop {
        match lines.recv_timeout(STOP_WITHIN) {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                // Fails only if it has just ended by itself, which is as good.
                let _ = script.kill();
                break;
            }
        }
    }
    // Nobody needs this error: callers that need the status ask for it.
    let _ = script.wait();
}

/// Lines as they come; disconnects at the end.
fn read_lines(stdout: Option<ChildStdout>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in stdout
            .map(BufReader::new)
            .into_iter()
            .flat_map(BufRead::lines)
        {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// All output, once the process has ended. Reads all along, so that a full pipe never blocks the script.
fn read_all(stderr: Option<ChildStderr>) -> Receiver<String> {
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stderr) = stderr {
            // What was read before an error is still worth showing.
            let _ = stderr.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn without_java_there_is_no_broker_and_a_reason() {
        let empty = tempfile::tempdir().unwrap();
        let mut command = Command::new(SCRIPT);
        command.arg("--with-stdin").env("JAVA_HOME", empty.path());
        match LocalKafka::start_by(command) {
            Err(StartError::Absent { reason }) => {
                assert!(reason.contains("bin/java: not found"), "{reason}");
            }
            other => panic!("expected an absent broker, found {other:?}"),
        }
    }

    #[test]
    fn a_broker_that_does_not_start_is_a_failure_and_not_absent() {
        match LocalKafka::start_by(sh("echo it broke >&2; exit 70")) {
            Err(StartError::Failed {
                status,
                line: None,
                stderr,
            }) => {
                assert_eq!((status.code(), stderr.as_str()), (Some(70), "it broke"));
            }
            other => panic!("expected a failure, found {other:?}"),
        }
    }

    #[test]
    fn another_line_than_the_bootstrap_line_is_refused() {
        match LocalKafka::start_by(sh("echo hello; cat")) {
            Err(StartError::Failed {
                line: Some(line), ..
            }) => assert_eq!(line, "hello"),
            other => panic!("expected a failure, found {other:?}"),
        }
    }

    #[test]
    fn a_started_program_ends_with_its_standard_input() {
        let dir = tempfile::tempdir().unwrap();
        let ended = dir.path().join("ended");
        let text = format!(
            "echo bootstrap=127.0.0.1:1; cat; touch '{}'",
            ended.display()
        );
        let kafka = LocalKafka::start_by(sh(&text)).unwrap();
        assert_eq!(kafka.bootstrap(), "127.0.0.1:1");
        assert!(!ended.exists());
        drop(kafka);
        assert!(
            ended.exists(),
            "the drop awaits the end, and ends it by standard input alone"
        );
    }
}
