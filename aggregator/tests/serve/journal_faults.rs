//! A journal that lost files, that cannot be closed, or that has too few descriptors or bytes: each is named, with an exit
//! code of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tollgate_log::journal::{Journal, JournalConfig, JournalContext};
use tollgate_log::{Log as _, LogEvent, Stream, Ticket};
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::RecordPen;

use super::RESOURCE;
use super::support::{DEADLINE, Dealer, LIMITS, directory, run, serve, serve_of, until, wall};

/// The exit code of an aggregator that is to end by itself, and what it wrote.
fn refused(dir: &Path) -> (i32, String) {
    let any = "127.0.0.1:0";
    let ports = ["serve", "--http", any, "--agents", any, "--feed", any];
    let rest = ["--limits", "limits.toml", "--partitions", "4"];
    let (exit, stdout, stderr) = run(dir, &[&ports[..], &rest].concat());
    (exit, stdout + &stderr)
}

#[test]
fn a_journal_that_lost_a_partition_is_refused_by_name() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
    for lost in ["hits-00002", "limits-00000"] {
        let path = dir.path().join("tollgate-data").join(lost);
        let aside = dir.path().join(lost);
        std::fs::rename(&path, &aside).unwrap();
        let (exit, text) = refused(dir.path());
        assert_eq!(exit, 65, "{text}");
        assert!(text.contains("journal is damaged"), "{text}");
        assert!(text.contains(lost), "{text}");
        let audit = ["audit", "--journal", "tollgate-data"];
        let (exit, stdout, stderr) = run(dir.path(), &audit);
        assert_eq!(exit, 65, "{stdout}{stderr}");
        assert!(stderr.contains(lost), "{stdout}{stderr}");
        assert!(!path.exists(), "nothing is begun anew");
        std::fs::rename(&aside, &path).unwrap();
    }
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
}

#[test]
fn a_damaged_small_file_of_a_journal_is_refused_by_name() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
    for damaged in ["journal", "ends"] {
        let path = dir.path().join("tollgate-data").join(damaged);
        let whole = std::fs::read(&path).unwrap();
        for left in [0, whole.len() / 2] {
            std::fs::write(&path, &whole[..left]).unwrap();
            let (exit, text) = refused(dir.path());
            assert_eq!(exit, 65, "{text}");
            assert!(text.contains(&format!("file `{damaged}`")), "{text}");
            let audit = ["audit", "--journal", "tollgate-data"];
            let (exit, stdout, stderr) = run(dir.path(), &audit);
            assert_eq!(exit, 65, "{stdout}{stderr}");
        }
        std::fs::write(&path, whole).unwrap();
    }
}

/// Writes a journal with one partition and a record in each segment, as it was thirty hours ago.
async fn write_long_ago(dir: &Path) {
    let config = JournalConfig {
        partitions: 1,
        segment_bytes: 1,
        ..JournalConfig::new(dir.join("tollgate-data"))
    };
    let long_ago = wall().saturating_sub(Span::from_secs(30 * 60 * 60));
    let context = JournalContext {
        clock: Arc::new(move || long_ago),
        ..JournalContext::of_this_machine()
    };
    let (events, mut inbox) = tollgate_log::channel(64);
    let mut journal = Journal::open(config, context, events).expect("opens").0;
    let log = LogId {
        generation: 1,
        random: 5,
    };
    let genesis = RecordPen::new(&MacKey::UNPROTECTED, 0).genesis(log);
    // One turn appends to one segment.
    for (ticket, record) in [(1, genesis), (2, b"no record".to_vec())] {
        journal.append(Stream::Hits, 0, Ticket(ticket), record.into());
        let taken = async {
            let is_answer = |event: LogEvent| event.answer_to(Ticket(ticket)).is_some();
            while !inbox.recv().await.is_some_and(is_answer) {}
        };
        let taken = tokio::time::timeout(DEADLINE, taken).await;
        taken.expect("the journal takes it");
    }
    journal.close();
    let closed = async { while inbox.recv().await.is_some_and(|it| it != LogEvent::Closed) {} };
    let closed = tokio::time::timeout(DEADLINE, closed).await;
    closed.expect("the journal closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_that_no_snapshot_has_outlive_the_retention() {
    let dir = directory(LIMITS);
    write_long_ago(dir.path()).await;
    std::fs::write(dir.path().join("t.toml"), "[snapshot]\nevery = \"1s\"\n").unwrap();
    let args = ["--config", "t.toml", "--limits", "limits.toml"];
    let mut served = serve_of(dir.path(), &[&args[..], &["--partitions", "1"]].concat());
    served.line_with("hits older than the retention stay until a snapshot has them");
    let segment = format!("tollgate-data/hits-00000/{:020}.seg", 0);
    let oldest = dir.path().join(segment);
    assert!(oldest.exists());
    served.await_ready();
    // Then a snapshot is worth it.
    let mut agent = Dealer::connect(served.agents, 1).await;
    agent.hit(RESOURCE, "acme", 1, 1).await;
    until("retention goes on", || !oldest.exists()).await;
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
}

#[test]
fn a_journal_of_a_later_build_and_a_missing_description_have_the_exit_codes_of_audits() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
    let codes = || {
        let audit = run(dir.path(), &["audit", "--journal", "tollgate-data"]);
        (refused(dir.path()).0, audit.0)
    };
    let path = dir.path().join("tollgate-data/journal");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replacen("tollgate-journal 1", "tollgate-journal 9", 1),
    )
    .unwrap();
    assert_eq!(codes(), (65, 65));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(codes(), (66, 66));
}

#[test]
fn too_few_bytes_for_the_partitions_are_refused_at_start() {
    let dir = directory(LIMITS);
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .current_dir(dir.path())
        .env("TOLLGATE_JOURNAL_RETENTION_BYTES", "17MiB")
        .args(["serve", "--limits", "limits.toml", "--partitions", "4"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{text}");
    let expected = "retention_bytes = 17825792 bytes: expected at least 18MiB for 4 partitions";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_journal_that_cannot_be_closed_ends_with_74() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    std::fs::remove_dir_all(dir.path().join("tollgate-data")).unwrap();
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(74));
    served.line_with("the log could not be closed in order");
}

#[test]
fn a_journal_that_is_deleted_under_its_aggregator_is_named() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let journal = dir.path().join("tollgate-data");
    std::fs::remove_dir_all(&journal).unwrap();
    let line = served.line_with("the log accepts nothing");
    assert!(line.contains("deleted, moved or replaced"), "{line}");
    served.await_json("/readyz", |ready| ready["ready"] == false);
    assert_eq!(served.metric("tollgate_log_up"), 0.0);
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(74));
    assert!(!journal.exists(), "nothing is begun anew");
}

#[test]
fn too_few_descriptors_are_refused_at_start() {
    let dir = directory(LIMITS);
    let any = "127.0.0.1:0";
    let output = Command::new("sh")
        .current_dir(dir.path())
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--http", any, "--agents", any, "--feed", any])
        .args(["--limits", "limits.toml", "--partitions", "4"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{text}");
    assert!(text.contains("may open 64 files"), "{text}");
    assert!(text.contains("4 partitions needs 92"), "{text}");
}

#[test]
fn a_bound_on_the_length_of_files_is_like_a_full_disk() {
    let dir = directory(&format!("{LIMITS}# {}\n", "x".repeat(64 << 10)));
    let any = "127.0.0.1:0";
    let mut child = Command::new("sh")
        .current_dir(dir.path())
        .args(["-c", "ulimit -f 16; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--http", any, "--agents", any, "--feed", any])
        .args([
            "--limits",
            "limits.toml",
            "--partitions",
            "4",
            "--with-stdin",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_down = |line: &String| line.contains("the log accepts nothing");
    let line = lines.by_ref().map(Result::unwrap).find(is_down);
    let line = line.expect("the limits do not fit into a file");
    assert!(line.contains("limits-00000"), "{line}");
    assert!(line.contains("File too large"), "{line}");
    // It goes on, and stops when it is to.
    drop(child.stdin.take());
    lines.for_each(drop);
    assert!(child.wait().unwrap().code().is_some());
}

#[test]
fn a_result_beyond_the_length_of_files_is_not_left_behind() {
    let dir = directory(LIMITS);
    let output = Command::new("sh")
        .current_dir(dir.path())
        .args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .args(["completions", "bash", "-o", "script"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{text}");
    assert!(text.contains("script: File too large"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
