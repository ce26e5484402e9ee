//! HTTP as `/v1/openapi.json` describes it: schemathesis sends requests that the descriptions allow and that they
//! forbid, and every answer is described.
//!
//! Its examples are few, and the same each time. `schemathesis.toml` lists what it must not report as a fault.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Trial};
use tollgate_tests::binary;
use tollgate_tests::serving::Serving;

use crate::fronts::free_port;
use crate::{WITHIN, call, start};

const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "5/m"
[copies.sandbox]
limit = 3
[copies.exports]
limit = 2
reserve = "strict"
"#;

/// The tested methods, of those by which a gateway can be asked about a request; it answers all of them alike.
const METHODS: [&str; 3] = ["GET", "HEAD", "POST"];

fn schemathesis() -> Command {
    let mut program = Command::new("schemathesis");
    program.stdin(Stdio::null());
    program
}

fn is_there() -> bool {
    let version = schemathesis().arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

pub fn trial(is_required: bool) -> Trial {
    let name = "openapi_describes_what_is_answered";
    Trial::ignorable_test(name, move || match (is_there(), is_required) {
        (true, _) => {
            answers_match_the_openapi_document();
            Ok(Completion::Completed)
        }
        (false, true) => Err("TOLLGATE_PROGRAMS=required, and schemathesis: not found".into()),
        (false, false) => Ok(Completion::ignored_with("schemathesis: not found")),
    })
}

fn answers_match_the_openapi_document() {
    let dir = std::env::temp_dir().join(format!("tollgate-openapi-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let aggregator = Serving::start(&dir, LIMITS, 2);
    let gateway = format!("127.0.0.1:{}", free_port());
    let mut gateway_command = binary::tollgate();
    gateway_command.args([
        "gateway",
        "--listen",
        &gateway,
        "--aggregator",
        &aggregator.agents,
    ]);
    let _gateway = start(&mut gateway_command);
    let health = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let began = Instant::now();
    while call(&gateway, health).is_none_or(|(status, _)| status != 200) {
        assert!(began.elapsed() < WITHIN, "the gateway does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Both at once: each waits for the other process most of the time.
    let addresses = [("gateway", &gateway), ("aggregator", &aggregator.http)];
    let running = addresses.map(|(name, address)| {
        let child = check(address, &dir).spawn();
        (name, child.expect("a program that is there"))
    });
    for (name, child) in running {
        let output = child.wait_with_output().expect("it ends");
        let stdout = String::from_utf8_lossy(&output.stdout);
        // Without any test there is no such line.
        let is_checked = stdout.contains("Test cases:") && !stdout.contains(" 0 generated");
        assert!(output.status.success() && is_checked, "{name}:\n{stdout}");
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// The command that checks the interface at an address against its own description.
fn check(address: &str, dir: &Path) -> Command {
    let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateways/schemathesis.toml");
    let mut command = schemathesis();
    command
        .current_dir(dir)
        .arg("--config-file")
        .arg(settings)
        .args(["run", &format!("http://{address}/v1/openapi.json")])
        .args([
            "--checks",
            "all",
            "--phases",
            "examples,coverage,fuzzing,stateful",
        ])
        .args([
            "--seed",
            "1",
            "--max-examples",
            "2",
            "--no-color",
            "--continue-on-failure",
            "--warnings",
            "off",
        ])
        .args(
            METHODS
                .iter()
                .flat_map(|method| ["--include-method", method]),
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}
