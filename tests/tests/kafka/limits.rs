//! `tollgate limits` on a real Kafka: pushes, two at once, a revert, and what aggregators report of it.

use rdkafka::{Message as _, Offset};
use serde_json::Value;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::{
    Aggregator, LIMITS, PARTITIONS, WITHIN, await_whole, codes_of, follow_no_file, get, reader,
    until,
};

struct Pusher<'k> {
    kafka: &'k LocalKafka,
    prefix: String,
    dir: tempfile::TempDir,
}

impl Pusher<'_> {
    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = tollgate();
        command
            .current_dir(self.dir.path())
            .arg("limits")
            .args(["--kafka", self.kafka.bootstrap()])
            .args(["--topic-prefix", &self.prefix])
            .args(["--partitions", &PARTITIONS.to_string()])
            .args(args);
        command
    }

    /// A command's exit code and output.
    fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(args).output().expect("runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text + &errors)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).expect("written");
    }

    fn push(&self, file: &str, more: &[&str]) -> (Option<i32>, Value) {
        let (code, text) = self.run(
            &[
                &["push", file, "--reason", "test", "--format", "json"],
                more,
            ]
            .concat(),
        );
        (
            code,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }
}

pub fn limits_are_pushed_listed_compared_and_rolled_back(kafka: &LocalKafka) {
    let pusher = Pusher {
        kafka,
        prefix: kafka.fresh_name("limits"),
        dir: crate::fleet::directory(),
    };
    pusher.write("a.toml", LIMITS);
    pusher.write("b.toml", &LIMITS.replace("20/s", "30/s"));
    pusher.write(
        "bad.toml",
        "version = 1\nrules = 2\n[rate.x]\nrate = \"often\"\n",
    );

    let (one, two) = documents_are_pushed_once(&pusher);
    versions_are_compared_shown_and_rolled_back(&pusher, one, two);
    changes_of_the_version_in_force(&pusher);
    a_candidate_is_promoted(&pusher);

    of_two_pushes_at_once_one_wins(&pusher);

    // An aggregator that follows no file rules by what was pushed.
    let latest = latest(&pusher);
    follow_no_file(pusher.dir.path());
    let one = Aggregator::start(pusher.dir.path(), kafka, &pusher.prefix, "agg-1", false);
    await_whole(&[&one]);
    let limits = get(one.http, "/v1/limits").expect("an answer");
    assert_eq!(limits["version"].as_u64(), Some(latest));
    rows_of_a_file_are_one_small_record(&pusher, &one);
}

/// Pushes two documents, among others that are refused or in force already; returns their versions.
fn documents_are_pushed_once(pusher: &Pusher<'_>) -> (u64, u64) {
    let (code, text) = pusher.push("bad.toml", &[]);
    assert_eq!(code, Some(65), "{text}");
    let (code, first) = pusher.push("a.toml", &[]);
    assert_eq!(
        (code, &first["pushed"]),
        (Some(0), &Value::Bool(true)),
        "{first}"
    );
    let one = first["version"].as_u64().expect("a version");
    let (code, again) = pusher.push("a.toml", &[]);
    assert_eq!(
        (code, &again["pushed"]),
        (Some(0), &Value::Bool(false)),
        "in force already"
    );

    let (code, text) = pusher.push("b.toml", &["--expect-version", "77"]);
    assert_eq!(code, Some(75), "{text}");
    let (code, dry) = pusher.push("b.toml", &["--dry-run"]);
    assert_eq!((code, dry["version"].as_u64()), (Some(0), Some(one)));
    let (code, text) = pusher.run(&["push", "b.toml", "--reason", "a test", "--dry-run"]);
    let expected = format!("version {one} is in force; another one would be pushed\n");
    assert_eq!((code, text.contains(&expected)), (Some(0), true), "{text}");
    let (code, second) = pusher.push("b.toml", &["--by", "ann"]);
    let two = second["version"].as_u64().expect("a version");
    assert_eq!((code, one < two), (Some(0), true), "{second}");
    (one, two)
}

fn versions_are_compared_shown_and_rolled_back(pusher: &Pusher<'_>, one: u64, two: u64) {
    let (code, text) = pusher.run(&["diff", &one.to_string()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("-global = \"20/s\"\n+global = \"30/s\""),
        "{text}"
    );
    let (code, text) = pusher.run(&["diff", &one.to_string(), "--format", "json"]);
    let view: serde_json::Value = serde_json::from_str(text.trim()).expect("one object");
    assert_eq!(
        (code, view["differs"].as_bool()),
        (Some(1), Some(true)),
        "{view}"
    );
    assert_eq!(
        (view["from"].as_u64(), view["to"].as_u64()),
        (Some(one), Some(two))
    );
    let (code, text) = pusher.run(&["show", &one.to_string()]);
    assert_eq!((code, text.trim()), (Some(0), LIMITS.trim()));
    let back = ["rollback", &one.to_string(), "--reason", "too many"];
    let (code, text) = pusher.run(&back);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = pusher.run(&["diff", &one.to_string()]);
    assert_eq!(text, "", "as it was");
    let (code, text) = pusher.run(&[]);
    assert_eq!((code, text.lines().count()), (Some(0), 3), "{text}");
    assert!(text.contains(": too many"), "{text}");
    assert_eq!(text.matches(" ann").count(), 1, "{text}");
}

/// The log lets one win; the other gets an error, unless it came after.
fn of_two_pushes_at_once_one_wins(pusher: &Pusher<'_>) {
    for round in 0..3 {
        let pushes: Vec<_> = (0..2)
            .map(|n| {
                let file = format!("race-{n}.toml");
                pusher.write(&file, &format!("# {round} {n}\n{LIMITS}"));
                let mut push = pusher.command(&["push", &file, "--reason", "race"]);
                push.args(["--expect-version", &latest(pusher).to_string()]);
                push
            })
            .collect();
        let codes = codes_of(pushes);
        assert_eq!(codes, [Some(0), Some(75)], "round {round}");
    }
}

/// A version that changes some rows is one record with those rows, whatever the document's size.
fn rows_of_a_file_are_one_small_record(pusher: &Pusher<'_>, one: &Aggregator) {
    // In the topic, a push that lost a race follows the version in force. Push another version, so
    // that the next record follows its predecessor directly.
    let set = ["set", "search", "--domain", "first", "--rate", "4/s"];
    let (code, text) = pusher.run(&[&set[..], &["--reason", "x"]].concat());
    assert_eq!(code, Some(0), "{text}");
    let before = latest(pusher);
    pusher.write(
        "three.csv",
        "resource,domain,rate,hard\nsearch,acme,9/s,\nsearch,\"globex, inc\",8/s,21/s\nsearch,acme,,30/s\n",
    );
    let import = ["import", "three.csv", "--reason", "a list"];
    let (code, text) = pusher.run(&[&import[..], &["--dry-run"]].concat());
    assert_eq!((code, latest(pusher)), (Some(0), before), "{text}");
    let (code, text) = pusher.run(&import);
    assert_eq!((code, latest(pusher)), (Some(0), before + 1), "{text}");
    let record = limits_record(pusher, before + 1);
    assert!(record.len() < 300, "{} bytes", record.len());
    let act = Amendment::decode(&record).expect("an amendment").act;
    assert!(
        matches!(&act, Act::SetMany(rows) if rows.len() == 3),
        "{act:?}"
    );
    let (_, text) = pusher.run(&["list"]);
    assert!(
        text.contains("set search acme: rate 9/s; and 2 more"),
        "{text}"
    );

    until("it is in force", || {
        get(one.http, "/v1/limits")
            .is_some_and(|limits| limits["version"].as_u64() == Some(before + 1))
    });
    let limits = get(one.http, "/v1/limits").expect("an answer");
    let normalised = limits["normalised"].as_str().expect("a text");
    let document: toml::Table = normalised.parse().expect("a document");
    let domains = &document["rate"]["search"]["domains"];
    let hard = |domain: &str| domains[domain]["hard"].as_str();
    assert_eq!(hard("acme"), Some("30/s"), "{normalised}");
    assert_eq!(hard("globex, inc"), Some("21/s"), "{normalised}");
    let (_, rows) = pusher.run(&["show", "--rows"]);
    for row in ["search,acme,9/s,30/s,", "search,\"globex, inc\",8/s,21/s,"] {
        assert!(rows.lines().any(|line| line == row), "{rows}");
    }
    let (_, shown) = pusher.run(&["show"]);
    let shown = shown.split("tollgate: ").next().expect("a document");
    assert_eq!(limits["text"].as_str().map(str::trim), Some(shown.trim()));
    // The same import again is in force already.
    let (code, text) = pusher.run(&import);
    assert_eq!((code, latest(pusher)), (Some(0), before + 1), "{text}");
    assert!(text.contains("in force already"), "{text}");
}

/// A record of the limits topic, as stored.
fn limits_record(pusher: &Pusher<'_>, offset: u64) -> Vec<u8> {
    let topic = format!("{}.limits", pusher.prefix);
    let reader = reader(pusher.kafka, &topic, 0, Offset::Offset(offset as i64));
    let record = reader.poll(WITHIN).expect("in time").expect("a record");
    record.payload().expect("a value").to_vec()
}

/// Promotes with one command, once, and only under the expected version.
fn a_candidate_is_promoted(pusher: &Pusher<'_>) {
    let with = format!("{LIMITS}\n[rate.search.candidate]\nrate = \"3/s\"\n");
    pusher.write("candidate.toml", &with);
    let (code, text) = pusher.push("candidate.toml", &[]);
    assert_eq!(code, Some(0), "{text}");
    let promote = ["promote", "search", "--reason", "it fits"];
    let (code, text) = pusher.run(&[&promote[..], &["--expect-version", "1"]].concat());
    assert_eq!(code, Some(75), "{text}");
    let (code, text) = pusher.run(&promote);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = pusher.run(&["show"]);
    let document = text.split("tollgate: ").next().expect("a document");
    let document: toml::Table = document.parse().expect("a document");
    let search = &document["rate"]["search"];
    assert_eq!(search["rate"].as_str(), Some("3/s"), "{text}");
    assert!(search.get("candidate").is_none(), "{text}");
    let (code, text) = pusher.run(&promote);
    assert_eq!(code, Some(65), "{text}");
}

/// Single domains, and many of them from a file; invalid input pushes nothing.
fn changes_of_the_version_in_force(pusher: &Pusher<'_>) {
    let before = latest(pusher);
    let set = ["set", "search", "--domain", "acme", "--rate", "7/s"];
    let (code, text) = pusher.run(&[&set[..], &["--reason", "acme pays"]].concat());
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        latest(pusher),
        before + 1,
        "one record, whatever the document is like"
    );
    let (_, text) = pusher.run(&["list"]);
    assert!(text.contains("set search acme: rate 7/s"), "{text}");
    let (_, text) = pusher.run(&["diff", &before.to_string()]);
    let added: Vec<&str> = text.lines().filter(|line| line.starts_with('+')).collect();
    assert!(added.contains(&"+search,acme,7/s,,"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("-[")), "{text}");

    pusher.write(
        "many.csv",
        "resource,domain,rate,hard\nsearch,acme,9/s,\nsearch,\"globex, inc\",8/s,20/s\n",
    );
    let import = ["import", "many.csv", "--reason", "a list"];
    let (code, text) = pusher.run(&import);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = pusher.run(&["show", "--rows"]);
    assert!(text.contains("search,acme,9/s,,"), "{text}");
    assert!(text.contains("search,\"globex, inc\",8/s,20/s,"), "{text}");

    // Two changes of the same version at once: the log lets one win.
    let expected = latest(pusher).to_string();
    let set = |rate| {
        let set = ["set", "search", "--domain", "twice", "--rate", rate];
        let more = ["--reason", "race", "--expect-version", &expected];
        pusher.command(&[&set[..], &more].concat())
    };
    assert_eq!(codes_of(["5/s", "6/s"].map(set)), [Some(0), Some(75)]);

    let now = latest(pusher);
    pusher.write("bad.csv", "resource,domain,rate\nsearch,acme,often\n");
    for bad in [
        &["import", "bad.csv"][..],
        &["set", "nobody", "--domain", "acme", "--rate", "1/s"],
        &["set", "search", "--domain", "stranger", "--remove"],
    ] {
        let (code, text) = pusher.run(&[bad, &["--reason", "x"]].concat());
        assert_eq!(code, Some(65), "{text}");
    }
    let remove = [
        "set", "search", "--domain", "acme", "--remove", "--reason", "left",
    ];
    let (code, text) = pusher.run(&[&remove[..], &["--expect-version", "1"]].concat());
    assert_eq!(code, Some(75), "{text}");
    assert_eq!(latest(pusher), now, "nothing was pushed");
    let (code, text) = pusher.run(&remove);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = pusher.run(&["show", "--rows"]);
    assert!(!text.contains("acme") && text.contains("globex"), "{text}");
    let back = ["rollback", &now.to_string(), "--reason", "it stays"];
    let (code, text) = pusher.run(&back);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = pusher.run(&["show", "--rows"]);
    assert!(text.contains("acme"), "{text}");
}

fn latest(pusher: &Pusher<'_>) -> u64 {
    let (_, text) = pusher.run(&["list", "--format", "json"]);
    let last = text.lines().last().expect("a version");
    let version: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(version["in_force"], true);
    version["version"].as_u64().expect("a number")
}
