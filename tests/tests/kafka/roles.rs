//! The table of `deploy/kafka/ACLS.md`: with a role's rights everything that the role does works; without any one of
//! them the process names topic and operation, and goes on when the right is granted. Also authentication: a wrong
//! password is reported as such.
//!
//! One broker with many users: for each role one with the rights of the table, and one for each right that it lacks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin;

use crate::acls::{self, Acl, CREATE, DESCRIBE, DESCRIBE_CONFIGS, GROUP, READ, TOPIC, WRITE};
use crate::fleet::{Aggregator, PARTITIONS, await_whole, directory, until};

const TABLE: &str = include_str!("../../../deploy/kafka/ACLS.md");

const TOPICS: [&str; 6] = ["hits", "limits", "denials", "state", "members", "aside"];

const OPERATIONS: [(&str, i8); 5] = [
    ("Read", READ),
    ("Write", WRITE),
    ("Create", CREATE),
    ("Describe", DESCRIBE),
    ("DescribeConfigs", DESCRIBE_CONFIGS),
];

const PREFIX: &str = "roles";

/// Operation and topic.
type Right = (&'static str, &'static str);

/// The first cell of a role's row, and the prefix of its users' names.
const ROLES: [(&str, &str); 5] = [
    ("aggregator", "aggregator"),
    ("operator (`limits`", "operator"),
    ("auditor", "auditor"),
    ("agent with only Kafka's address", "alone"),
    ("agent with aggregators' addresses", "told"),
];

/// The rights on topics that the table gives a role.
fn rights_of(role: &str) -> Vec<Right> {
    let row = TABLE
        .lines()
        .find(|line| line.starts_with(&format!("| {role}")));
    let row = row.unwrap_or_else(|| panic!("{role:?} has no row"));
    let cells: Vec<&str> = row.split('|').skip(2).collect();
    let mut rights = Vec::new();
    for (topic, cell) in TOPICS.into_iter().zip(cells) {
        for word in cell.split([',', ' ']) {
            let known = OPERATIONS.iter().find(|(name, _)| *name == word);
            rights.extend(known.map(|(name, _)| (*name, topic)));
        }
    }
    // As in the paragraph below the table.
    if role == "aggregator" || role.starts_with("operator") {
        rights.extend(TOPICS.map(|topic| ("DescribeConfigs", topic)));
    }
    if role == "aggregator" {
        // (a): its limits come from a file.
        rights.push(("Write", "limits"));
    }
    rights
}

fn number(operation: &str) -> i8 {
    let found = OPERATIONS.iter().find(|(name, _)| *name == operation);
    found.expect("an operation").1
}

fn topic(word: &str) -> String {
    format!("{PREFIX}.{word}")
}

fn on_topic(user: &str, (operation, word): Right) -> Acl {
    Acl::of(user, (TOPIC, &topic(word)), number(operation))
}

fn on_prefix(user: &str, operation: i8) -> Acl {
    Acl::of(user, (TOPIC, PREFIX), operation).beginning()
}

fn on_groups(user: &str) -> Acl {
    Acl::of(user, (GROUP, "of-"), READ).beginning()
}

/// The user of a role that lacks a right.
fn without(name: &str, (operation, word): Right) -> String {
    format!("{name}-{operation}-{word}")
}

const MAKERS: [(&str, Option<i8>); 4] = [
    ("maker-Describe", Some(DESCRIBE)),
    ("maker-Create", Some(CREATE)),
    ("maker-DescribeConfigs", Some(DESCRIBE_CONFIGS)),
    ("maker", None),
];

/// The broker and its users' settings.
struct Stage {
    dir: tempfile::TempDir,
    kafka: LocalKafka,
    /// The address without authentication.
    open: String,
}

impl Stage {
    /// The stage that these trials share.
    fn shared() -> &'static Self {
        static SHARED: OnceLock<Stage> = OnceLock::new();
        SHARED.get_or_init(|| {
            let mut users: Vec<String> = vec!["aggregator-group".to_owned()];
            users.extend(MAKERS.map(|(user, _)| user.to_owned()));
            for (role, name) in ROLES {
                users.push(name.to_owned());
                users.extend(
                    rights_of(role)
                        .into_iter()
                        .map(|right| without(name, right)),
                );
            }
            let (kafka, open) = LocalKafka::start_guarded(&users).expect("a broker");
            let stage = Self {
                dir: directory(),
                kafka,
                open,
            };
            for user in &users {
                stage.introduce(user, user);
            }
            stage
        })
    }

    /// The properties with which a process authenticates as a user.
    fn properties(&self, user: &str) -> PathBuf {
        self.dir.path().join(format!("{user}.properties"))
    }

    fn introduce(&self, user: &str, password: &str) {
        let text = format!(
            "# who it is\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism = PLAIN\n\
             sasl.username = {user}\nsasl.password = {password}\n"
        );
        std::fs::write(self.properties(user), text).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(self.properties(user), mode).expect("set");
    }

    /// A command run by a user.
    fn command(&self, user: &str, args: &[&str]) -> Command {
        let mut command = tollgate();
        command
            .env("TOLLGATE_KAFKA_PROPERTIES_FILE", self.properties(user))
            .current_dir(self.dir.path())
            .args(args)
            .args(["--kafka", self.kafka.bootstrap(), "--topic-prefix", PREFIX]);
        command
    }

    /// A command's exit code and output.
    fn run(&self, user: &str, args: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command(user, args);
        if ["topics", "limits"].contains(&args[0]) {
            command.args(["--partitions", &PARTITIONS.to_string()]);
        }
        let output = command.output().expect("runs");
        let text = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&text).into_owned();
        (output.status.code(), printed)
    }

    /// Asserts that the command ends with 77 and names the right.
    fn refuses(&self, user: &str, args: &[&str], (operation, word): Right) {
        let (code, printed) = self.run(user, args);
        assert_eq!(code, Some(77), "{user}: {args:?}: {printed}");
        let names = |operation| printed.contains(&format!("`{}`: {operation}: ", topic(word)));
        // A user without any right on a topic does not see it, and the command reports that first.
        assert!(names(operation) || names("Describe"), "{user}: {printed}");
    }

    /// Configures an aggregator of a user, in a group of its own.
    fn configure(&self, user: &str) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("dynamic.toml")).expect("there");
        let text = text.replace("[kafka]\n", &format!("[kafka]\ngroup = \"of-{user}\"\n"));
        let file = format!("{user}.toml");
        std::fs::write(self.dir.path().join(&file), text).expect("written");
        file
    }

    fn aggregator(&self, user: &str) -> Aggregator {
        let config = self.configure(user);
        let file = self.properties(user).display().to_string();
        let variable = Some(("TOLLGATE_KAFKA_PROPERTIES_FILE", file.as_str()));
        let dir: &Path = self.dir.path();
        Aggregator::configured(dir, &self.kafka, PREFIX, user, &config, variable)
    }
}

/// Runs these in parallel, a few at once.
fn together(tasks: Vec<Box<dyn FnOnce() + Send + '_>>) {
    let mut tasks = tasks.into_iter().peekable();
    while tasks.peek().is_some() {
        std::thread::scope(|scope| {
            for task in tasks.by_ref().take(4) {
                scope.spawn(task);
            }
        });
    }
}

pub fn each_role_needs_exactly_the_documented_rights(_: &LocalKafka) {
    let stage = Stage::shared();
    topics_are_created_with_the_right_to_create(stage);
    let mut granted: Vec<Acl> = Vec::new();
    for (role, name) in ROLES {
        let rights = rights_of(role);
        granted.extend(rights.iter().map(|right| on_topic(name, *right)));
        for lacked in &rights {
            let rest = rights.iter().filter(|right| *right != lacked);
            granted.extend(rest.map(|right| on_topic(&without(name, *lacked), *right)));
            granted.extend((name == "aggregator").then(|| on_groups(&without(name, *lacked))));
        }
    }
    let rights = rights_of("aggregator");
    granted.extend(
        rights
            .iter()
            .map(|right| on_topic("aggregator-group", *right)),
    );
    granted.push(on_groups("aggregator"));
    acls::make(&stage.open, &granted);
    until("the broker knows", || {
        stage.run("operator", &["topics", "check"]).0 == Some(0)
    });
    commands_name_the_missing_right(stage);
    let full = stage.aggregator("aggregator");
    await_whole(&[&full]);
    let address = full.agents.to_string();
    std::thread::scope(|scope| {
        scope.spawn(move || agents_hit_by_their_rights(stage, &address));
        aggregators_that_start_name_the_missing_right(stage);
    });
    aggregators_go_on_when_granted_the_right(stage);
    full.stop();
}

/// (b) of the table.
fn topics_are_created_with_the_right_to_create(stage: &Stage) {
    let needed = [CREATE, DESCRIBE, DESCRIBE_CONFIGS];
    for (user, lacked) in MAKERS {
        let rights = needed.into_iter().filter(|right| Some(*right) != lacked);
        let granted: Vec<Acl> = rights.map(|right| on_prefix(user, right)).collect();
        acls::make(&stage.open, &granted);
    }
    for (user, lacked) in MAKERS {
        let (code, printed) = stage.run(user, &["topics", "create"]);
        match user.split_once('-') {
            Some((_, name)) => {
                assert_eq!((code, lacked.is_some()), (Some(77), true), "{printed}");
                assert!(
                    printed.contains(&format!(": {name}: ")),
                    "{user}: {printed}"
                );
            }
            None => assert_eq!(code, Some(0), "{printed}"),
        }
    }
}

fn commands_name_the_missing_right(stage: &Stage) {
    let push = ["limits", "push", "limits.toml", "--reason", "a trial"];
    for (user, args) in [
        ("operator", &push[..]),
        ("operator", &["limits", "list"]),
        ("auditor", &["audit"]),
    ] {
        let (code, printed) = stage.run(user, args);
        assert_eq!(code, Some(0), "{args:?}: {printed}");
    }
    let mut tasks: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    // A user who may write to no topic at all is refused as a producer: that error names no topic yet.
    let of_operator = rights_of("operator (`limits`").into_iter();
    for right in of_operator.filter(|right| *right != ("Write", "limits")) {
        tasks.push(Box::new(move || {
            let args: &[&str] = match right {
                ("Read", "limits") => &["limits", "list"],
                _ => &["topics", "check"],
            };
            stage.refuses(&without("operator", right), args, right);
        }));
    }
    for right in rights_of("auditor") {
        tasks.push(Box::new(move || {
            stage.refuses(&without("auditor", right), &["audit"], right);
        }));
    }
    together(tasks);
}

fn agents_hit_by_their_rights(stage: &Stage, aggregator: &str) {
    let to_it = ["--aggregator", aggregator];
    let hit = ["hit", "search", "acme", "-n", "60"];
    // A client that knows only Kafka finds this aggregator in the topic of members.
    let (code, printed) = stage.run("alone", &hit);
    assert_eq!(code, Some(1), "{printed}");
    let (code, printed) = stage.run("told", &[&hit[..], &to_it].concat());
    assert_eq!(code, Some(1), "{printed}");
    for right in rights_of("agent with only Kafka's address") {
        // A client that may not write still receives denials; one that finds no aggregator ends with 69.
        let (code, printed) = stage.run(&without("alone", right), &hit);
        let (operation, word) = right;
        assert!(matches!(code, Some(1 | 69)), "{printed}");
        assert!(
            printed.contains(&format!("`{}`: ", topic(word))),
            "{printed}"
        );
        assert!(printed.contains(operation), "{printed}");
    }
}

/// The checks when an aggregator starts.
fn aggregators_that_start_name_the_missing_right(stage: &Stage) {
    let at_start = rights_of("aggregator").into_iter().filter(|right| {
        // Without the right to write denials the topic is invisible. The topic of dead letters is optional.
        *right == ("Write", "denials") || (right.0 == "DescribeConfigs" && right.1 != "aside")
    });
    let mut tasks: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for right in at_start {
        tasks.push(Box::new(move || {
            let user = without("aggregator", right);
            let config = stage.configure(&user);
            let any = "127.0.0.1:0";
            let args = ["serve", "--config", &config, "--name", &user, "--http", any];
            let args = [&args[..], &["--agents", any, "--feed", any]].concat();
            stage.refuses(&user, &args, right);
        }));
    }
    together(tasks);
}

/// Aggregators that lack a right from the beginning: each names it, and works fully once it is granted.
fn aggregators_go_on_when_granted_the_right(stage: &Stage) {
    let mut tasks: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for right in [
        ("Read", "hits"),
        ("Write", "hits"),
        ("Read", "limits"),
        ("Read", "state"),
        ("Write", "state"),
        ("Read", "members"),
        ("Write", "members"),
        ("Write", "aside"),
    ] {
        tasks.push(Box::new(move || {
            let user = without("aggregator", right);
            let mut one = stage.aggregator(&user);
            let operation = match right {
                // Write is the user's only right on this topic, so without it the topic is invisible.
                ("Write", "aside") => "Describe",
                (operation, _) => operation,
            };
            let named = format!("`{}`: {operation}: ", topic(right.1));
            if right == ("Write", "state") {
                // Snapshots need new records; another aggregator's snapshots may have all earlier ones.
                one.line_with("all partitions are ruled");
                let address = one.agents.to_string();
                let hit = ["hit", "search", "state", "-n", "40", "--aggregator"];
                stage.run("told", &[&hit[..], &[&address]].concat());
            }
            if !one.output().iter().any(|line| line.contains(&named)) {
                one.line_with(&named);
            }
            if ["hits", "limits"].contains(&right.1) {
                let ready = twin::text(one.http, "/readyz").unwrap_or_default();
                assert!(ready.contains(&topic(right.1)), "{right:?}: {ready}");
            }
            acls::make(&stage.open, &[on_topic(&user, right)]);
            await_whole(&[&one]);
        }));
    }
    tasks.push(Box::new(move || {
        let user = "aggregator-group";
        let mut one = stage.aggregator(user);
        one.line_with(&format!("kafka group `of-{user}`: Read: "));
        acls::make(&stage.open, &[on_groups(user)]);
        await_whole(&[&one]);
    }));
    together(tasks);
}

pub fn a_wrong_password_is_reported(_: &LocalKafka) {
    let stage = Stage::shared();
    let wrong = "nobody-knows-this-one";
    stage.introduce(wrong, "at-all");
    let said_of = |args: &[&str]| {
        let (code, printed) = stage.run(wrong, args);
        assert_eq!(code, Some(77), "{args:?}: {printed}");
        assert!(
            printed.contains("Authentication failed"),
            "{args:?}: {printed}"
        );
        assert!(
            printed.contains("expected security.protocol, sasl.mechanism"),
            "{printed}"
        );
        assert!(
            !printed.contains("at-all"),
            "no password is told: {printed}"
        );
    };
    let (config, any) = (stage.configure(wrong), "127.0.0.1:0");
    said_of(&["topics", "check"]);
    said_of(&["limits", "list"]);
    said_of(&["audit"]);
    let serve = ["serve", "--config", &config, "--http", any];
    said_of(&[&serve[..], &["--agents", any, "--feed", any]].concat());
    let (code, printed) = stage.run(wrong, &["hit", "search", "acme"]);
    assert_eq!(code, Some(69), "{printed}");
    assert!(printed.contains("Authentication failed"), "{printed}");
    // The ordinary build has no TLS, and names the build that has.
    let tls = stage.properties("tls");
    std::fs::write(&tls, "security.protocol = SASL_SSL\n").expect("written");
    let (code, printed) = stage.run("tls", &["topics", "check"]);
    if code != Some(69) {
        assert_eq!(code, Some(78), "{printed}");
        assert!(printed.contains("the feature kafka-ssl"), "{printed}");
    }
}
