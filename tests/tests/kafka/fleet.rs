//! Aggregators that share partitions on a real Kafka: the processes, their output, and how partitions
//! move when one comes or goes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin::digests;
pub use tollgate_tests::twin::{LIMITS, WITHIN, get};

pub const PARTITIONS: u32 = 8;

/// A directory with the configuration of a fleet. Snapshots are frequent, and dead members are missed
/// soon.
pub fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("limits.toml"), LIMITS).expect("written");
    for (file, more) in [
        ("dynamic.toml", ""),
        ("static.toml", "\"group.instance.id\" = \"NAME\"\n"),
    ] {
        let text = format!(
            "[limits]\nfile = \"limits.toml\"\nfollow_file = true\n\
             [snapshot]\nevery = \"1s\"\nentries_max = 1000\n\
             [kafka]\npartitions = {PARTITIONS}\n[kafka.properties]\n\
             \"session.timeout.ms\" = \"1500\"\n\"heartbeat.interval.ms\" = \"300\"\n{more}"
        );
        std::fs::write(dir.path().join(file), text).expect("written");
    }
    dir
}

/// From now on no aggregator that starts in this directory follows a limits file.
pub fn follow_no_file(dir: &Path) {
    let config = format!("[kafka]\npartitions = {PARTITIONS}\n");
    std::fs::write(dir.join("dynamic.toml"), config).expect("written");
}

/// A reader of the records of a topic's partition from an offset on.
pub fn reader(kafka: &LocalKafka, topic: &str, partition: u32, from: Offset) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .set("group.id", topic)
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let number = i32::try_from(partition).expect("small");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, number, from)
        .expect("added");
    consumer.assign(&list).expect("assigned");
    consumer
}

/// Waits until a condition holds, polling it: other processes send no notification.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The exit codes of commands that run at the same time, in ascending order.
pub fn codes_of(commands: impl IntoIterator<Item = Command>) -> Vec<Option<i32>> {
    let start = |mut command: Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("starts")
    };
    let children: Vec<_> = commands.into_iter().map(start).collect();
    let ended = |mut child: Child| child.wait().expect("ended").code();
    let mut codes: Vec<_> = children.into_iter().map(ended).collect();
    codes.sort_unstable();
    codes
}

/// A command about the topics of a fleet: its exit code and its output.
pub fn command(kafka: &LocalKafka, prefix: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = tollgate()
        .args(args)
        .args(["--kafka", kafka.bootstrap(), "--topic-prefix", prefix])
        .args(["--partitions", &PARTITIONS.to_string()])
        .output()
        .expect("runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// One aggregator. It is killed when this is dropped.
pub struct Aggregator {
    pub name: String,
    pub http: SocketAddr,
    pub agents: SocketAddr,
    child: Child,
    _stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    pub output: Vec<String>,
}

impl Aggregator {
    /// Starts it, and waits until it listens.
    pub fn start(
        dir: &Path,
        kafka: &LocalKafka,
        prefix: &str,
        name: &str,
        is_static: bool,
    ) -> Self {
        let config = if is_static {
            let text = std::fs::read_to_string(dir.join("static.toml")).expect("there");
            let file = format!("{name}.toml");
            std::fs::write(dir.join(&file), text.replace("NAME", name)).expect("written");
            file
        } else {
            "dynamic.toml".to_owned()
        };
        Self::configured(dir, kafka, prefix, name, &config, None)
    }

    /// The same with a configuration of its own, and an environment variable.
    pub fn configured(
        dir: &Path,
        kafka: &LocalKafka,
        prefix: &str,
        name: &str,
        config: &str,
        variable: Option<(&str, &str)>,
    ) -> Self {
        let any = "127.0.0.1:0";
        let mut child = tollgate()
            .envs(variable)
            .current_dir(dir)
            .args(["serve", "--config", config, "--name", name, "--with-stdin"])
            .args(["--kafka", kafka.bootstrap(), "--topic-prefix", prefix])
            .args(["--http", any, "--agents", any, "--feed", any])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let stderr = child.stderr.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let none: SocketAddr = any.parse().expect("an address");
        let mut started = Self {
            name: name.to_owned(),
            http: none,
            agents: none,
            _stdin: child.stdin.take(),
            child,
            lines,
            output: Vec::new(),
        };
        let line = started.line_with("listening http=");
        let address = |key: &str| {
            let (_, rest) = line.split_once(&format!("{key}=")).expect("there");
            rest.split_whitespace()
                .next()
                .expect("one")
                .parse()
                .expect("an address")
        };
        (started.http, started.agents) = (address("http"), address("agents"));
        started
    }

    /// Waits for a line that contains `text`.
    pub fn line_with(&mut self, text: &str) -> String {
        let deadline = Instant::now() + WITHIN;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.output.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("{}: no {text:?} in:\n{}", self.name, self.output.join("\n")),
            }
        }
    }

    /// Its output so far.
    pub fn output(&mut self) -> &[String] {
        self.output.extend(self.lines.try_iter());
        &self.output
    }

    /// Kills it with `kill -9`.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        // The reader ends with the pipe.
        self.output.extend(self.lines.iter());
        std::mem::take(&mut self.output)
    }

    /// Stops it as an operator does, and expects it to succeed.
    pub fn stop(mut self) -> Vec<String> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("sent").success());
        let status = self.child.wait().expect("ended");
        self.output.extend(self.lines.iter());
        assert_eq!(status.code(), Some(0), "{}", self.output.join("\n"));
        std::mem::take(&mut self.output)
    }

    /// The partitions that it rules and announces, each with its offset and digest.
    pub fn rules(&self) -> BTreeMap<u32, (u64, String)> {
        digests(self.http)
            .into_iter()
            .filter(|digest| digest.stage == "ruling")
            .map(|digest| (digest.partition, (digest.offset, digest.digest)))
            .collect()
    }

    /// Whether it is ready and rules partitions.
    pub fn is_ready(&self) -> bool {
        get(self.http, "/readyz").is_some_and(|ready| ready["ready"] == true)
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // If a promise was broken, the output of the other side helps.
        if std::thread::panicking() {
            self.output.extend(self.lines.iter());
            eprintln!("{} said:\n{}", self.name, self.output.join("\n"));
        }
    }
}

/// Waits until these aggregators are ready and rule all partitions, each of them some. Returns how long
/// that took.
pub fn await_whole(fleet: &[&Aggregator]) -> Duration {
    let begun = Instant::now();
    loop {
        let of_each: Vec<Vec<u32>> = fleet
            .iter()
            .map(|aggregator| aggregator.rules().into_keys().collect())
            .collect();
        // An aggregator that has just started is ready and has no partitions yet.
        let shared = of_each.iter().all(|of_one| !of_one.is_empty());
        let ruled = of_each.concat();
        let all: BTreeSet<u32> = ruled.iter().copied().collect();
        let whole = all.len() == PARTITIONS as usize && ruled.len() == all.len();
        if whole && shared && fleet.iter().all(|aggregator| aggregator.is_ready()) {
            return begun.elapsed();
        }
        let names: Vec<&str> = fleet.iter().map(|a| a.name.as_str()).collect();
        assert!(begun.elapsed() < WITHIN, "{names:?} rule {ruled:?}");
        std::thread::yield_now();
    }
}

pub fn partitions_move_when_an_aggregator_comes_and_when_it_goes(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("fleet"));
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let first = start("agg-1");
    await_whole(&[&first]);
    assert_eq!(
        first.rules().len(),
        PARTITIONS as usize,
        "one rules them all"
    );

    let mut second = start("agg-2");
    await_whole(&[&first, &second]);
    let (of_first, of_second) = (first.rules(), second.rules());
    assert_eq!((of_first.len(), of_second.len()), (4, 4), "they share");
    assert!(
        of_first
            .keys()
            .all(|partition| !of_second.contains_key(partition))
    );

    let lines = first.stop().join("\n");
    assert_eq!(
        lines.matches(" revoked").count(),
        4,
        "given to the second: {lines}"
    );
    let took = await_whole(&[&second]);
    let restored = |lines: &[String]| {
        let restored = lines.iter().filter(|line| line.contains("catching up"));
        restored.count()
    };
    assert_eq!(restored(second.output()), PARTITIONS as usize);
    println!("taken over from one that left in {took:?}");

    let killed = second.kill();
    assert!(!killed.is_empty());
    let third = start("agg-3");
    let took = await_whole(&[&third]);
    println!("taken over from one that was killed in {took:?}");
}

/// A member asks for a session of 2 s. By default brokers accept none below 6 s.
pub fn an_aggregator_falls_back_to_a_longer_session(_: &LocalKafka) {
    let usual = LocalKafka::start_with("group.min.session.timeout.ms=6000");
    let kafka = usual.expect("another one starts");
    let (dir, prefix) = (directory(), kafka.fresh_name("session"));
    let write = |file: &str, more: &str| {
        let text = format!("[kafka]\npartitions = {PARTITIONS}\n[kafka.properties]\n{more}");
        std::fs::write(dir.path().join(file), text).expect("written");
    };
    write("plain.toml", "");
    write("short.toml", "\"session.timeout.ms\" = \"1500\"\n");
    let start =
        |name, config| Aggregator::configured(dir.path(), &kafka, &prefix, name, config, None);
    let mut plain = start("agg-1", "plain.toml");
    plain.line_with("the brokers accept no session timeout of 2 s");
    await_whole(&[&plain]);

    // A configured session is not changed; the refusal is logged.
    let mut short = start("agg-2", "short.toml");
    short.line_with("expected a session.timeout.ms between the brokers'");
    assert!(short.rules().is_empty());
}
