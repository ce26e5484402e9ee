//! Denials that are older than the snapshot from which the log is read: with the log's beginning, and without.

use std::time::Instant;

use tollgate_log::{Chunks, Stream};
use tollgate_replay::explain::{Explanation, Question, explain as explained};
use tollgate_replay::source::journal::JournalSource;
use tollgate_replay::source::{Cursor, ReadStep, Source, SourceError};
use tollgate_shared::keyring::Keyring;

use super::*;
use crate::explain_copies::{sandbox, take, until};
use crate::support::DEADLINE;

const LASTING: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 3
[rate."api.quota"]
quota = ["3/year"]
"#;

/// A log whose partition has lost its first records.
struct Shortened {
    source: JournalSource,
    partition: u32,
    first: u64,
}

/// A cursor that reports a gap first.
struct BehindGap {
    gap: Option<ReadStep>,
    rest: Box<dyn Cursor>,
}

impl Cursor for BehindGap {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        match self.gap.take() {
            Some(gap) => Ok(gap),
            None => self.rest.read(),
        }
    }
}

impl Source for Shortened {
    fn name(&self) -> String {
        self.source.name()
    }

    fn partitions(&self) -> u32 {
        self.source.partitions()
    }

    fn open(
        &self,
        stream: Stream,
        partition: u32,
        wanted: u64,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let next = self.first;
        let is_gone = (stream, partition) == (Stream::Hits, self.partition) && wanted < next;
        let rest = self
            .source
            .open(stream, partition, wanted.max(next * u64::from(is_gone)))?;
        let gap = is_gone.then_some(ReadStep::Gone { wanted, next });
        Ok(Box::new(BehindGap { gap, rest }))
    }

    fn snapshots(&self, partition: u32) -> Vec<u64> {
        let all = self.source.snapshots(partition).into_iter();
        all.filter(|upto| self.first <= upto + 1).collect()
    }

    fn snapshot(&self, partition: u32, upto: u64) -> Result<Chunks, SourceError> {
        self.source.snapshot(partition, upto)
    }
}

fn pair(resource: &str, at: Option<Timestamp>) -> Question {
    Question::Pair {
        resource: resource.to_owned(),
        domain: Some("acme".to_owned()),
        at,
    }
}

/// A journal in which `acme` has used up its quota and its copies, and the codes of both denials; its aggregator has
/// taken snapshots since, and ended.
async fn written() -> (tempfile::TempDir, [Code; 2]) {
    let dir = directory(LASTING);
    std::fs::write(dir.path().join("t.toml"), "[snapshot]\nevery = \"1s\"\n").unwrap();
    let mut served = serve(dir.path(), &["--config", "t.toml"]);
    served.await_ready();
    let mut dealer = Dealer::connect(served.agents, b'q').await;
    let offset = dealer.hit("api.quota", "acme", 3, PARTITIONS).await;
    let partition = partition_of_pair("api.quota", "acme", PARTITIONS);
    let quota: Code = format!("{partition}-{offset}-2-1").parse().expect("a code");
    let (_web, copies) = sandbox(&served, "web").await;
    let _held = take(&copies, "acme", 3).await;
    let full = until(&copies, "acme", true).await.expect("full");
    let codes = [quota, full.code().expect("stated")];
    let source = JournalSource::open(&dir.path().join("tollgate-data")).expect("a journal");
    let end = Instant::now() + DEADLINE;
    for code in codes {
        let is_in = |upto: &u64| code.position.offset <= *upto;
        while !source.snapshots(code.partition).iter().any(is_in) {
            assert!(Instant::now() < end, "no snapshot has {code}");
            std::thread::yield_now();
        }
    }
    served.signal("TERM");
    served.await_end();
    (dir, codes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_from_before_the_snapshot_is_explained() {
    let (dir, [quota, full]) = written().await;
    // A question about an instant is answered from a snapshot that is a quarter of an hour older, or more.
    let at = wall().saturating_add(Span::from_secs(1_200));
    let at = at.as_micros().to_string();
    let log = ["--journal", "tollgate-data"];
    for (resource, code, reason) in [("api.quota", quota, "quota"), ("sandbox", full, "full")] {
        let found = explain(dir.path(), &log, &[resource, "acme", "--at", &at]);
        assert_eq!(found["denied"], true, "{found:#}");
        assert_eq!(found["reason"], reason);
        assert_eq!(found["code"], code.to_string());
        let by_code = explain(dir.path(), &log, &[&code.to_string()]);
        for same in ["denial", "window", "holders"] {
            assert_eq!(found[same], by_code[same], "{resource}: {same}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unknown_of_an_older_denial_is_said() {
    let (dir, codes) = written().await;
    for (resource, code) in [("api.quota", codes[0]), ("sandbox", codes[1])] {
        let open = || JournalSource::open(&dir.path().join("tollgate-data")).expect("a journal");
        let partition = code.partition;
        let log = |first| Shortened {
            source: open(),
            partition,
            first,
        };
        let ask = |log: &Shortened, question| explained(log, &question, &Keyring::default());
        let check = |found: &Explanation| {
            assert!(found.denied, "{found:?}");
            assert_eq!(found.code.as_deref(), Some(&*code.to_string()));
            let first = &found.sentences[0];
            assert!(first.contains(" from before "), "{first}");
            let unknown = found
                .sentences
                .iter()
                .any(|one| one.contains("which is older"));
            assert!(unknown, "{:?}", found.sentences);
        };
        // The record that stated it is gone.
        let short = log(code.position.offset + 1);
        // Of a domain that was never denied nothing is claimed about what is gone.
        let nobody = Question::Pair {
            resource: resource.to_owned(),
            domain: (0..).map(|n| format!("other-{n}")).find(|other| {
                partition == partition_of_pair(resource, other, PARTITIONS) || resource == "sandbox"
            }),
            at: None,
        };
        let open = ask(&short, nobody.clone()).expect("an explanation");
        let lacks = |found: &Explanation| {
            found.sentences.iter().any(|one| {
                one.contains("the log lacks its beginning") && one.contains("are not known")
            })
        };
        assert!(!open.denied && lacks(&open), "{:?}", open.sentences);
        let whole = ask(&log(0), nobody).expect("an explanation");
        assert!(!whole.denied && !lacks(&whole), "{:?}", whole.sentences);
        check(&ask(&short, pair(resource, None)).expect("an explanation"));
        let later = wall().saturating_add(Span::from_secs(1_200));
        check(&ask(&short, pair(resource, Some(later))).expect("an explanation"));
        check(&ask(&short, Question::Code(code)).expect("an explanation"));
        let mut other = code;
        other.position.entry += 7;
        let why = ask(&short, Question::Code(other)).expect_err("nothing has it");
        assert!(why.to_string().contains("the resource and domain"), "{why}");
        // It is there, but cannot be ruled again.
        let longer = log(1);
        let uptos = longer.snapshots(partition);
        if uptos.iter().all(|upto| code.position.offset <= *upto) {
            check(&ask(&longer, Question::Code(code)).expect("an explanation"));
        }
        // Nothing is known of an instant from before the log's beginning.
        let earlier = wall().saturating_sub(Span::from_secs(1_200));
        assert!(ask(&short, pair(resource, Some(earlier))).is_err());
    }
}

/// An export that begins behind the record of an act has a snapshot, which knows what the act denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_code_of_an_older_ban_is_explained_from_an_export() {
    let dir = directory(LASTING);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    let ban = [
        "ban",
        "api.quota",
        "acme",
        "--reason",
        "abuse",
        "--url",
        &url,
    ];
    let (exit, out, err) = run(dir.path(), &ban);
    assert_eq!(exit, 0, "{out}{err}");
    let log = ["--journal", "tollgate-data"];
    let banned = || explain(dir.path(), &log, &["api.quota", "acme"]);
    let end = Instant::now() + DEADLINE;
    while banned()["code"].is_null() {
        assert!(Instant::now() < end, "{:#}", banned());
    }
    let code: Code = banned()["code"].as_str().unwrap().parse().expect("a code");
    let partition = code.partition;
    let behind = code.position.offset + 1;
    served.await_json("/v1/digests", |shown| {
        behind + 2 < number(&shown["partitions"][partition as usize]["offset"])
    });
    served.signal("TERM");
    served.await_end();
    let from = format!("@{partition}:{behind}");
    let export = ["audit", "export", "--from", &from, "-o", "late.tgexport"];
    let (exit, out, err) = run(dir.path(), &[&export[..], &log].concat());
    assert_eq!(exit, 0, "{out}{err}");
    let late = ["--export", "late.tgexport"];
    let by_code = explain(dir.path(), &late, &[&code.to_string()]);
    assert_eq!(by_code["reason"], "banned", "{by_code:#}");
    assert_eq!(by_code["code"], code.to_string());
    let by_pair = explain(dir.path(), &late, &["api.quota", "acme"]);
    for same in ["denial", "version", "sentences"] {
        assert_eq!(by_code[same], by_pair[same], "{same}");
    }
}
