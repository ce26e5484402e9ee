//! Tests of the command line: exit codes, faults by path, results and nothing else on stdout.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use crate::support::{self, LIMITS, directory, run, run_line, run_with, serve, serve_of, tollgate};

fn root(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
        .display()
        .to_string()
}

/// One row: the command, its exit code, and a text that stderr or stdout must contain.
type Row<'a> = (&'a str, i32, &'a str);

fn check_rows(dir: &Path, rows: &[Row<'_>]) {
    for (command, code, says) in rows {
        let (found, stdout, stderr) = run_line(dir, command);
        let output = format!("{stdout}{stderr}");
        assert_eq!(found, *code, "{command}: {output}");
        assert!(output.contains(says), "{command}: no {says:?} in {output}");
        assert!(!output.contains("panicked"), "{command}: {output}");
    }
}

#[test]
fn every_failure_has_its_exit_code_and_a_reason() {
    let dir = directory(LIMITS);
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("bad.toml", "version = 1\n[rate.r]\nrats = \"1/s\"\n");
    write("cases.jsonl", "{\"name\":\"n\"}\n");
    let copies = |mode: &str, limits: &str| {
        let op = r#"{"op":"hold","t":0,"hold":"h","agent":"A","domain":"a","copies":1}"#;
        format!(r#"{{"mode":"{mode}","limits":{{{limits}}},"ops":[{op}]}}"#)
    };
    write("copies.jsonl", &copies("hold", r#""domain":5,"gloabl":5"#));
    write("mixed.jsonl", &copies("reserve", r#""domain":5"#));
    let rows = [
        ("check limits.toml", 0, "[rate.\"api.search\"]"),
        ("check bad.toml", 65, "did you mean `rate`"),
        ("check none.toml", 66, "none.toml: No such file"),
        ("check", 64, "expected a limits document"),
        ("check --formt json limits.toml", 64, "--format"),
        (
            "simulate --cases cases.jsonl",
            65,
            "cases.jsonl: line 1: not a case",
        ),
        (
            "simulate --cases copies.jsonl",
            65,
            "copies.jsonl: line 1: not a case: limits: unknown field `gloabl`, expected one of `domain`",
        ),
        (
            "simulate --cases mixed.jsonl",
            65,
            "mixed.jsonl: line 1: ops[0]: op \"hold\" in a case of mode \"reserve\": expected \"reserve\"",
        ),
        ("simulate --cases none.jsonl", 66, "none.jsonl"),
        ("simulate", 64, "--cases"),
        (
            "simulate --limits limits.toml --resource nobody --at 0s",
            65,
            "expected one of: api.search, api.wide",
        ),
        (
            "simulate --limits limits.toml --resource api.search --at soon",
            64,
            "expected a time",
        ),
        ("check limits.toml -o none/out", 73, "none/out"),
        ("swerve", 64, "serve"),
        ("ban r d --for 0s --reason x", 64, "--for"),
        ("--version", 0, "rules: 2"),
        ("completions bash", 0, "_tollgate"),
    ];
    check_rows(dir.path(), &rows);
}

#[test]
fn an_aggregator_that_cannot_start_has_an_exit_code_and_a_reason() {
    let dir = directory(LIMITS);
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("bad.toml", "version = 1\n[rate.r]\nrats = \"1/s\"\n");
    write("tollgate.toml", "[listen]\nhtpp = \"x\"\n");
    write("afile", "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let free = "serve --agents 127.0.0.1:0 --feed 127.0.0.1:0";
    let serve = |more: &str| format!("{free} --http 127.0.0.1:0 {more}");
    let rows: [Row<'_>; 9] = [
        (
            &serve("--config tollgate.toml"),
            78,
            "did you mean `listen.http`",
        ),
        (&serve("--config none.toml"), 66, "none.toml"),
        (
            "serve --http 0.0.0.0:0",
            64,
            "expected a loopback address; or listen.tls.cert",
        ),
        (&format!("{free} --http {taken}"), 78, &taken),
        (
            "serve --kafka localhost",
            64,
            "--kafka: kafka.bootstrap = \"localhost\": expected a list of brokers with their ports",
        ),
        (&serve("--journal afile/journal"), 73, "afile/journal"),
        (&serve("--journal ."), 66, "journal directory"),
        (&serve("--limits bad.toml"), 65, "did you mean `rate`"),
        (&serve("--limits none.toml"), 66, "none.toml"),
    ];
    check_rows(dir.path(), &rows);
}

#[test]
fn a_missing_token_file_is_66_for_agents_and_operators() {
    let dir = directory(LIMITS);
    let rows: [Row<'_>; 2] = [
        (
            "hit api.search acme --token-file none.token",
            66,
            "none.token",
        ),
        ("denials --token-file none.token", 66, "none.token"),
    ];
    check_rows(dir.path(), &rows);
}

#[test]
fn partitions_are_those_of_the_kind_of_log() {
    let dir = directory(LIMITS);
    std::fs::write(dir.path().join("kafka.toml"), "log.kind = \"kafka\"\n").unwrap();
    let rows: [Row<'_>; 3] = [
        (
            "serve --kafka 127.0.0.1:1 --partitions 0",
            64,
            "--partitions: kafka.partitions = \"0\"",
        ),
        (
            "serve --config kafka.toml --partitions 0",
            64,
            "--partitions: kafka.partitions = \"0\"",
        ),
        (
            "serve --partitions 1025",
            64,
            "--partitions: journal.partitions = \"1025\"",
        ),
    ];
    check_rows(dir.path(), &rows);
}

#[test]
fn a_bound_on_bytes_is_named_with_file_and_option() {
    let dir = directory(LIMITS);
    let tight = "journal.retention_bytes = \"17MiB\"\n";
    std::fs::write(dir.path().join("tight.toml"), tight).unwrap();
    let says = "tight.toml: journal.retention_bytes = 17825792 bytes: expected at least 66MiB for 16 partitions";
    let serve =
        "serve --config tight.toml --http 127.0.0.1:0 --agents 127.0.0.1:0 --feed 127.0.0.1:0";
    check_rows(dir.path(), &[(serve, 78, says)]);
}

#[test]
fn limits_of_a_journal_are_refused_with_advice() {
    let dir = directory(LIMITS);
    let config = "[log]\nkind = \"journal\"\n[journal]\ndir = \"data\"\n";
    std::fs::write(dir.path().join("journal.toml"), config).unwrap();
    let push = ["limits", "push", "limits.toml", "--reason", "x"];
    let configured = ["--config", "journal.toml"];
    for args in [
        &[&push[..], &configured].concat()[..],
        &[&push[..], &["--journal", "data"]].concat(),
        &["limits", "--journal", "data"],
        &["topics", "--config", "journal.toml"],
    ] {
        let (code, stdout, stderr) = run(dir.path(), args);
        assert_eq!(code, 64, "{args:?}: {stdout}{stderr}");
        for what in ["journal", "data", "limits.file", "SIGHUP", "--url"] {
            assert!(stderr.contains(what), "{args:?}: no {what:?} in {stderr}");
        }
    }
}

#[test]
fn the_environment_beats_the_file_and_a_flag_beats_both() {
    let dir = directory(LIMITS);
    std::fs::write(dir.path().join("t.toml"), "journal.partitions = 5000\n").unwrap();
    let args = ["serve", "--config", "t.toml"];
    let (code, _, stderr) = run_with(
        dir.path(),
        &args,
        &[("TOLLGATE_JOURNAL_PARTITIONS", "many")],
    );
    assert_eq!(code, 64);
    assert!(
        stderr.contains("TOLLGATE_JOURNAL_PARTITIONS: journal.partitions = \"many\""),
        "{stderr}"
    );
    let args = ["serve", "--config", "t.toml", "--partitions", "lots"];
    let (code, _, stderr) = run_with(
        dir.path(),
        &args,
        &[("TOLLGATE_JOURNAL_PARTITIONS", "many")],
    );
    assert_eq!(code, 64);
    assert!(
        stderr.contains("--partitions: journal.partitions = \"lots\""),
        "{stderr}"
    );
}

#[test]
fn a_journal_is_one_aggregators_and_keeps_its_number_of_partitions() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let args = |partitions| {
        let any = "127.0.0.1:0";
        [
            "serve",
            "--http",
            any,
            "--agents",
            any,
            "--feed",
            any,
            "--partitions",
            partitions,
        ]
    };
    let (code, _, stderr) = run(dir.path(), &args("4"));
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("in use by another process"), "{stderr}");
    drop(served);
    let (code, _, stderr) = run(dir.path(), &args("8"));
    assert_eq!(code, 78, "{stderr}");
    assert!(
        stderr.contains("it has 4 partitions, the configuration says 8"),
        "{stderr}"
    );
    // The file does not state a number, as the shipped one does not.
    std::fs::write(dir.path().join("t.toml"), "journal.partitions = 0\n").unwrap();
    let served = serve_of(dir.path(), &["--config", "t.toml"]);
    served.await_ready();
    let log = served.json("/v1/log");
    assert_eq!(log["partitions"], 4, "{log}");
}

#[test]
fn the_shipped_configuration_serves() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &["--config", &root("config/tollgate.toml")]);
    served.await_ready();
    served.signal("INT");
    assert_eq!(served.await_end().0.code(), Some(0));
}

#[test]
fn a_bad_limits_file_does_not_stop_a_running_aggregator() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    served.await_end();
    std::fs::write(dir.path().join("limits.toml"), "[rate.r]\nrats = 1\n").unwrap();
    let mut served = serve(dir.path(), &[]);
    served.line_with("the limits file is not used");
    served.await_ready();
    assert!(
        served.json("/v1/limits")["text"]
            .as_str()
            .unwrap()
            .contains("5/m")
    );
}

#[test]
fn the_vectors_come_out_as_expected() {
    for (kind, least) in [
        ("rate", 100),
        ("inline2", 90),
        ("inline2_more", 12),
        ("stream2", 150),
        ("stream2_more", 59),
        ("copies", 107),
        ("normalize", 5),
    ] {
        let vectors = root(&format!("tests/vectors/{kind}.jsonl"));
        let (code, stdout, stderr) = run(
            Path::new("."),
            &["simulate", "--cases", &vectors, "--format", "json"],
        );
        assert_eq!(code, 0, "{stderr}");
        let mut cases = 0;
        for line in stdout.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let ops = case["ops"].as_array().map_or(&[][..], Vec::as_slice);
            for part in ops.iter().chain([&case]) {
                assert_eq!(part["result"], part["expect"], "{}", case["name"]);
            }
            cases += 1;
        }
        assert!(least <= cases, "{kind}: {cases} cases");
        assert_eq!(stderr, format!("{cases} of {cases} as expected\n"));
    }
}

#[test]
fn each_difference_from_what_a_case_expects_is_named() {
    let dir = directory(LIMITS);
    let case = |name: &str, expect: &str| {
        let op = r#"{"op":"request","t":0,"domain":"d","copies":1,"min":1"#;
        let limits = r#"{"windows":[{"limit":1,"window":1000000}]}"#;
        format!(r#"{{"name":"{name}","limits":{limits},"ops":[{op}{expect}}}]}}"#)
    };
    let right = case("right", r#","expect":{"granted":1}"#);
    let wrong = case("wrong", r#","expect":{"granted":0,"tier":0}"#);
    let silent = case("silent", "");
    let tier = |window: u64| {
        format!(r#"[{{"limit":5,"window":{window},"active":4,"cooldown":0,"skippable":false}}]"#)
    };
    let normal = format!(
        r#"{{"name":"normal","tiers":{},"expect":{}}}"#,
        tier(9),
        tier(9)
    );
    let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "all.jsonl",
        [right, wrong, silent.clone(), normal].join("\n"),
    );
    write("silent.jsonl", silent);
    let play = |file: &str, format: &str| {
        run(
            dir.path(),
            &["simulate", "--cases", file, "--format", format],
        )
    };
    let differences = [
        "all.jsonl: line 2: wrong: ops[0].granted: found 1, expected 0",
        "all.jsonl: line 4: normal: expect: found [",
        "1 of 3 as expected",
    ];
    let (code, stdout, stderr) = play("all.jsonl", "text");
    assert_eq!(code, 1, "{stdout}{stderr}");
    for difference in differences {
        assert_eq!(stdout.matches(difference).count(), 1, "{stdout}");
    }
    assert!(!stdout.contains(".tier"), "{stdout}");
    let (code, stdout, stderr) = play("all.jsonl", "json");
    assert_eq!((code, stdout.lines().count()), (1, 4), "{stdout}");
    for difference in differences {
        assert_eq!(stderr.matches(difference).count(), 1, "{stderr}");
    }
    let (code, stdout, stderr) = play("silent.jsonl", "text");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout, "silent: 1 ops, 1 of 1 hits granted\n");
}

#[test]
fn a_simulation_is_a_picture_for_people_and_an_object_for_programs() {
    let dir = directory(LIMITS);
    let args = [
        "simulate",
        "--limits",
        "limits.toml",
        "--resource",
        "api.search",
        "--rate",
        "1/s",
        "--for",
        "8s",
    ];
    let (code, picture, _) = run(dir.path(), &args);
    assert_eq!(code, 0);
    assert!(
        picture.contains("5 of 8 hits granted, 3 refused"),
        "{picture}"
    );
    assert!(
        picture.contains("5s  refused, window:0 limit reached; closed until 60.000001s"),
        "{picture}"
    );
    assert!(!picture.contains('\x1b'), "no colours into a pipe");
    let (_, object, _) = run(dir.path(), &[&args[..], &["--format", "json"]].concat());
    let object: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert_eq!(
        (object["granted"].as_u64(), object["asked"].as_u64()),
        (Some(5), Some(8))
    );
    assert_eq!(object["requests"][5]["closed_until_us"], 60_000_001);
    let (_, coloured, _) = run(dir.path(), &[&args[..], &["--color", "always"]].concat());
    assert!(coloured.contains('\x1b'));
}

#[test]
fn a_simulation_of_quotas_names_its_time_and_unknown_zones() {
    let dir = directory(
        "version = 1\nrules = 2\n[rate.r]\nquota = [\"2/day\"]\nzone = \"Europe/Berlin\"\n",
    );
    let simulate = |at: &str| {
        let limits = ["simulate", "--limits", "limits.toml"];
        let (code, picture, remarks) = run(
            dir.path(),
            &[&limits[..], &["--resource", "r", "--at", at]].concat(),
        );
        assert_eq!(code, 0, "{remarks}");
        (picture, remarks)
    };
    // In January, midnight in Berlin is 23:00 UTC.
    let (picture, remarks) = simulate("0s,1s,2s,23h");
    assert!(picture.contains("3 of 4 hits granted"), "{picture}");
    assert!(
        remarks.contains("quotas count from 2024-01-01T00:00:00"),
        "{remarks}"
    );
    assert!(!remarks.contains("tables of its zones"), "{remarks}");
    let (_, remarks) = simulate("0s,15000d");
    assert!(
        remarks.contains("limits.toml: the tables of its zones begin at"),
        "{remarks}"
    );
}

#[test]
fn a_closed_output_pipe_is_no_failure() {
    let vectors = root("tests/vectors/rate.jsonl");
    let mut child = tollgate()
        .args(["simulate", "--format", "json", "--cases", &vectors])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The output is far larger than a pipe holds, so that it meets the closed end.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_file_named_by_o_appears_when_it_is_complete() {
    let dir = directory(LIMITS);
    let (code, stdout, _) = run(
        dir.path(),
        &[
            "check",
            "limits.toml",
            "--format",
            "json",
            "-o",
            "report.json",
        ],
    );
    assert_eq!((code, stdout.as_str()), (0, ""));
    let report = std::fs::read_to_string(dir.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["good"], true);
    assert_eq!(
        support::files(dir.path()).len(),
        2,
        "nothing temporary is left"
    );
}

#[test]
fn an_empty_variable_is_not_set() {
    let dir = tempfile::tempdir().unwrap();
    let output = tollgate()
        .current_dir(dir.path())
        .args(["keys", "ca", "--dir", "own", "--token-file", "a.token"])
        .envs(["TOLLGATE_KEYS_DIR", "TOLLGATE_TOKEN_FILE"].map(|name| (name, "")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(dir.path().join("own/ca.pem").exists());
}

#[test]
fn serve_refuses_a_variable_that_is_not_utf_8() {
    use std::os::unix::ffi::OsStrExt as _;
    let value = std::ffi::OsStr::from_bytes(b"tok\xe9ns.toml");
    let mut serve = tollgate();
    serve.env("TOLLGATE_SECURITY_TOKENS_FILE", value);
    // Without a domain key the command ends in any case.
    let output = serve.args(["serve", "--domain-key", "none"]).output();
    let (output, expected) = (output.unwrap(), "TOKENS_FILE: is not UTF-8");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{stderr}");
    assert!(stderr.contains(expected), "{stderr}");
}
