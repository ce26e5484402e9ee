//! An aggregator as a process of its own, and raw sockets to it that use only wire types.
//!
//! No test waits for a guessed time: each waits for an event, with a deadline.

#![allow(dead_code)]

pub mod export;
pub mod program;
pub mod tls;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::{Frame, Topic};
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Snapshot};
use zeromq::{Socket as _, SocketRecv as _, SocketSend as _, ZmqMessage};

/// How long anything may take before a test fails. Many tests may share two cores.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "5/m"
[rate."api.wide"]
rate = "1000000/s"
global = "3/s"
"#;

/// The command line's binary.
pub fn tollgate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    // Variables of the machine must not influence the tests.
    for (name, _) in std::env::vars() {
        if name.starts_with("TOLLGATE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A running aggregator. It is killed when this is dropped.
pub struct Served {
    pub child: Child,
    pub http: SocketAddr,
    pub agents: SocketAddr,
    pub feed: SocketAddr,
    lines: Receiver<String>,
    pub log_lines: Vec<String>,
}

/// A directory for one test, with a limits file.
pub fn directory(limits: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("limits.toml"), limits).unwrap();
    dir
}

/// An answer by HTTP: status and body.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// The value of a metric without labels in what `/metrics` answered.
pub fn metric(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")))?;
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Starts an aggregator in a directory, with its limits file and four partitions.
pub fn serve(dir: &Path, more: &[&str]) -> Served {
    let usual = ["--limits", "limits.toml", "--partitions", "4"];
    serve_of(dir, &[&usual, more].concat())
}

/// Starts an aggregator in a directory, on ports that the operating system chooses.
pub fn serve_of(dir: &Path, args: &[&str]) -> Served {
    let any = "127.0.0.1:0";
    let mut child = tollgate()
        .current_dir(dir)
        .args(["serve", "--http", any, "--agents", any, "--feed", any])
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let none = "127.0.0.1:0".parse().unwrap();
    let mut served = Served {
        child,
        http: none,
        agents: none,
        feed: none,
        lines,
        log_lines: Vec::new(),
    };
    let line = served.line_with("listening");
    let address = |key: &str| match serde_json::from_str::<serde_json::Value>(&line) {
        Ok(line) => line["fields"][key].as_str().unwrap().parse().unwrap(),
        Err(_) => {
            let (_, rest) = line.split_once(&format!("{key}=")).unwrap();
            rest.split_whitespace().next().unwrap().parse().unwrap()
        }
    };
    (served.http, served.agents, served.feed) =
        (address("http"), address("agents"), address("feed"));
    served
}

impl Served {
    /// Waits for a line on stderr that contains `text`.
    pub fn line_with(&mut self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.log_lines.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("no line with {text:?} in:\n{}", self.log_lines.join("\n")),
            }
        }
    }

    /// An answer by HTTP: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        get(self.http, path)
    }

    /// An answer that is JSON.
    pub fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Asks again and again until `found` accepts the answer.
    pub fn await_json(
        &self,
        path: &str,
        found: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let (_, body) = self.get(path);
            let value = serde_json::from_str(&body).unwrap();
            if found(&value) {
                return value;
            }
            assert!(Instant::now() < deadline, "{path} stays {value:#}");
            std::thread::yield_now();
        }
    }

    /// Waits until the aggregator is ready.
    pub fn await_ready(&self) {
        self.await_json("/readyz", |ready| ready["ready"] == true);
    }

    /// A metric's value.
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        metric(&text, name).unwrap_or_else(|| panic!("no metric {name} in:\n{text}"))
    }

    /// Closes its stderr, unread, as soon as it writes another line.
    pub fn close_stderr(&mut self) {
        (_, self.lines) = channel();
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the process to end; returns its status, and how long that took.
    pub fn await_end(&mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, began.elapsed());
            }
            assert!(
                began.elapsed() < DEADLINE,
                "it does not end:\n{}",
                self.log_lines.join("\n")
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end: exit code, stdout, stderr.
pub fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = tollgate().current_dir(dir).args(args).output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// The same for a command that is written in one line, without quotes.
pub fn run_line(dir: &Path, line: &str) -> (i32, String, String) {
    run(dir, &line.split_whitespace().collect::<Vec<_>>())
}

/// The same with an environment.
pub fn run_with(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = tollgate();
    command.current_dir(dir).args(args);
    for (name, value) in env {
        command.env(name, value);
    }
    let output = command.output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The present instant, by the wall clock.
pub fn wall() -> Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Timestamp::from_micros(since.as_micros() as u64)
}

/// An agent made by hand: a DEALER socket that speaks the link's protocol.
pub struct Dealer {
    socket: zeromq::DealerSocket,
    agent: String,
    secret: EpochSecret,
    sequences: [u64; 64],
    next: u64,
}

impl Dealer {
    /// An agent that has sent its hello; `life` distinguishes its processes.
    pub async fn connect(agents: SocketAddr, life: u8) -> Self {
        Self::named(agents, "by-hand", life).await
    }

    /// The same under a name.
    pub async fn named(agents: SocketAddr, agent: &str, life: u8) -> Self {
        let mut dealer = Self::silent(agents, agent, life).await;
        dealer.hello().await;
        dealer
    }

    /// An agent that has sent nothing.
    pub async fn silent(agents: SocketAddr, agent: &str, life: u8) -> Self {
        let mut socket = zeromq::DealerSocket::new();
        socket.connect(&format!("tcp://{agents}")).await.unwrap();
        Self {
            socket,
            agent: agent.to_owned(),
            secret: EpochSecret::new([life; 32]),
            sequences: [0; 64],
            next: 0,
        }
    }

    /// The sender of its batch with this sequence.
    pub fn sender(&self, sequence: u64) -> Sender<'_> {
        Sender {
            agent: &self.agent,
            epoch: self.secret.epoch(),
            sequence,
            sent: wall(),
        }
    }

    pub async fn send(&mut self, message: &FromAgent<'_>) {
        let mut writer = Writer::new();
        message.encode(&mut writer);
        self.send_raw(writer.as_slice()).await;
    }

    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.socket
            .send(ZmqMessage::from(bytes.to_vec()))
            .await
            .unwrap();
    }

    pub async fn receive(&mut self) -> FromAggregator {
        let message = tokio::time::timeout(DEADLINE, self.socket.recv()).await;
        let message = message.expect("an answer in time").unwrap();
        FromAggregator::decode(message.get(0).unwrap()).unwrap()
    }

    /// Sends, or returns that the connection has ended.
    pub async fn try_send(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let message = ZmqMessage::from(bytes.to_vec());
        self.socket.send(message).await.map_err(|_| ())
    }

    /// An answer; `None` once the connection has ended.
    pub async fn try_receive(&mut self) -> Option<FromAggregator> {
        // If its peer is gone, a socket receives nothing more, so silence means the end.
        let silence = Duration::from_secs(3);
        let message = tokio::time::timeout(silence, self.socket.recv())
            .await
            .ok()?
            .ok()?;
        FromAggregator::decode(message.get(0)?).ok()
    }

    /// Sends hello; returns the instance, and the feed's address.
    pub async fn hello(&mut self) -> (u128, u32, String) {
        let hello = FromAgent::Hello {
            nonce: 5,
            agent: &self.agent.clone(),
            secret: self.secret,
            before: None,
        };
        self.send(&hello).await;
        match self.receive().await {
            FromAggregator::Welcome {
                nonce: 5,
                instance,
                partitions,
                feeds,
                ..
            } => (instance, partitions, feeds[0].to_string()),
            other => panic!("{other:?}"),
        }
    }

    /// A batch of hits of one pair, all now, each an entry of its own.
    pub fn batch(
        &mut self,
        resource: &str,
        domain: &str,
        hits: usize,
        partitions: u32,
    ) -> (u32, Vec<u8>) {
        let partition = partition_of_pair(resource, domain, partitions);
        let sequence = &mut self.sequences[partition as usize];
        *sequence += 1;
        let sequence = *sequence;
        let sender = self.sender(sequence);
        let hit = Hit::one(0, domain, sender.sent, 1);
        let mut writer = Writer::new();
        let entries = std::iter::repeat_n(hit, hits).collect::<Vec<_>>();
        write_hits(
            &mut writer,
            &sender,
            &[resource],
            entries.into_iter(),
            [].into_iter(),
        );
        (partition, writer.as_slice().to_vec())
    }

    /// Appends hits of one pair, and waits until the log has them.
    pub async fn hit(&mut self, resource: &str, domain: &str, hits: usize, partitions: u32) -> u64 {
        let (partition, record) = self.batch(resource, domain, hits, partitions);
        self.append(partition, &record).await
    }

    pub async fn append(&mut self, partition: u32, record: &[u8]) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(&FromAgent::Append {
            id,
            partition,
            record,
        })
        .await;
        match self.receive().await {
            FromAggregator::Appended {
                id: found, offset, ..
            } if found == id => offset,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a snapshot, and returns all its parts.
    pub async fn ask(&mut self, resources: &[&str]) -> Vec<Snapshot> {
        let ask = FromAgent::Ask {
            nonce: 9,
            resources: resources.to_vec(),
        };
        self.send(&ask).await;
        let mut parts = Vec::new();
        loop {
            match self.receive().await {
                FromAggregator::Snapshot(part) => {
                    let more = part.more;
                    parts.push(part);
                    if !more {
                        return parts;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A subscriber to the control topic and those of [`LIMITS`]' resources.
pub struct Subscriber(zeromq::SubSocket);

impl Subscriber {
    pub async fn connect(feed: SocketAddr) -> Self {
        let mut socket = zeromq::SubSocket::new();
        socket.connect(&format!("tcp://{feed}")).await.unwrap();
        let resources = ["api.search", "api.wide"];
        let resources = resources.map(|one| Topic::of_resource(&[0; 16], one));
        for topic in resources.into_iter().chain([Topic::CONTROL]) {
            socket.subscribe(topic.as_text()).await.unwrap();
        }
        Self(socket)
    }

    /// The next frame.
    pub async fn frame(&mut self) -> (Topic, Frame) {
        let message = tokio::time::timeout(DEADLINE, self.0.recv()).await;
        let message = message.expect("a frame in time").unwrap();
        let topic = Topic::from_bytes(message.get(0).unwrap()).unwrap();
        (topic, Frame::decode(message.get(1).unwrap()).unwrap())
    }
}

/// The files of a directory tree, by name, for comparing before and after.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}
