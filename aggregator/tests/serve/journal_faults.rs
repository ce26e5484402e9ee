//! A journal that lost files, that cannot be closed, or that has too few descriptors or bytes: each is named, with an exit
//! code of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::support::{LIMITS, directory, run, serve};

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
