//! One broker, run by `deploy/kafka/local` as a child process.
//!
//! Knows nothing of tests and when to ignore them. What stays true: the child holds the other end
//! of a pipe that we never write to, and ends when ours is closed, so it ends with us even if we
//! are killed.

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

/// A Kafka of one node on loopback, of its own directory and port; gone when dropped.
#[derive(Debug)]
pub struct LocalKafka {
    bootstrap: String,
    /// `Some` until the drop; closing it is what ends the child.
    stdin: Option<ChildStdin>,
    script: Child,
    /// What the child prints; disconnected when the child is gone. In a mutex for the shared broker's
    /// sake, who would not be `Sync` otherwise; only the drop looks in.
    lines: Mutex<Receiver<String>>,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// This machine lacks what it takes (Java, Maven or its registry); nothing is broken.
    #[error("{reason}")]
    Absent {
        /// What is lacking, as the script says it.
        reason: String,
    },
    /// The script could not be run, or not be watched.
    #[error("{SCRIPT}: cannot be run: {0}")]
    Io(#[from] std::io::Error),
    /// The script ended, or said something else, before a broker answered.
    #[error("{SCRIPT}: {status}, found {line:?} on stdout, expected `bootstrap=HOST:PORT`: {said}")]
    Failed {
        /// How the script ended.
        status: ExitStatus,
        /// What it printed, if anything.
        line: Option<String>,
        /// What it wrote to stderr.
        said: String,
    },
    /// Nothing was heard in time.
    #[error("{SCRIPT}: no line within {READY_WITHIN:?}")]
    Late,
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kafka/local");

/// The script's own deadline for the broker is 120 s; the rest is for the first fetch of 43 MB.
const READY_WITHIN: Duration = Duration::from_secs(360);

/// The script gives the broker 10 s before it kills it.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The script's exit code for "Kafka cannot be had here".
const EXIT_ABSENT: i32 = 69;

impl LocalKafka {
    /// Starts a broker and waits until it answers; about 3 s, and more the first time, when it is
    /// fetched. Any number can run at once.
    ///
    /// # Errors
    ///
    /// [`StartError::Absent`] where the machine cannot run one; the others where it should.
    pub fn start() -> Result<Self, StartError> {
        let mut command = Command::new(SCRIPT);
        command.arg("--with-stdin");
        Self::start_by(command)
    }

    /// Starts a broker that keeps what it has in `dir`, so that one that was there before goes on; at
    /// `port`, or at one that the system chooses for 0.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_in(dir: &Path, port: u16) -> Result<Self, StartError> {
        let mut command = Command::new(SCRIPT);
        command.arg("--with-stdin").arg("--dir").arg(dir);
        if port != 0 {
            command.arg("--port").arg(port.to_string());
        }
        Self::start_by(command)
    }

    /// Starts a broker with a property over what it has here.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_with(property: &str) -> Result<Self, StartError> {
        let mut command = Command::new(SCRIPT);
        command.args(["--with-stdin", "--set", property]);
        Self::start_by(command)
    }

    /// Starts a broker that tells clients another address, [`Self::bootstrap`], and says what its own is.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_behind(address: &str) -> Result<(Self, String), StartError> {
        // One that the system chooses the broker would not say beside the other address.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(SCRIPT);
        command.args(["--with-stdin", "--port", &port.to_string()]);
        command.args([
            "--set",
            &format!("advertised.listeners=CLIENTS://{address}"),
        ]);
        let mut kafka = Self::start_by(command)?;
        let own = std::mem::replace(&mut kafka.bootstrap, address.to_owned());
        Ok((kafka, own))
    }

    /// Starts a broker that asks who one is, by SASL/PLAIN, and lets these users do what an ACL allows them and
    /// nothing else; each has its name for a password. Says at which address nobody is asked, and all is allowed.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_guarded(users: &[String]) -> Result<(Self, String), StartError> {
        // One that the system chooses is found out of the open listener alone.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let guarded = format!("127.0.0.1:{port}");
        let known = users.iter().map(|user| format!(" user_{user}=\"{user}\""));
        let known: String = known.collect();
        let mut command = Command::new(SCRIPT);
        command.arg("--with-stdin");
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

    /// The one broker that this process's tests share, started by the first that asks. It ends with
    /// the process. Tests stay apart by [`Self::fresh_name`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`], the same for everyone who asks: it is tried once.
    pub fn shared() -> Result<&'static Self, &'static StartError> {
        static SHARED: OnceLock<Result<LocalKafka, StartError>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Where clients connect: `127.0.0.1:PORT`.
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

    /// Has it stand still, as a machine that hangs, until the value is dropped.
    ///
    /// # Errors
    ///
    /// Where its process is not found, or cannot be stopped.
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
        let said = read_all(script.stderr.take());

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
        let said = said.recv().unwrap_or_default().trim_end().to_owned();
        if status.code() == Some(EXIT_ABSENT) {
            return Err(StartError::Absent { reason: said });
        }
        Err(StartError::Failed { status, line, said })
    }
}

/// A broker that stands still.
#[derive(Debug)]
pub struct Paused<'a> {
    broker: Pid,
    /// It outlives this, so that the number is that of nobody else.
    _of: PhantomData<&'a LocalKafka>,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // One that is gone need not go on.
        let _ = kill_process(self.broker, Signal::CONT);
    }
}

/// The process of Java that the script has started.
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

/// Ends the script by ending its standard input, and by force should it not listen.
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
    // Nobody is left to whom an error could matter: the status is asked for where it does.
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

/// All of it, once it has ended. Read all along, so that a full pipe never holds the script up.
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
    fn without_java_a_broker_is_absent_and_the_reason_says_so() {
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
                said,
            }) => {
                assert_eq!((status.code(), said.as_str()), (Some(70), "it broke"));
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
    fn what_was_started_ends_with_its_standard_input() {
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
