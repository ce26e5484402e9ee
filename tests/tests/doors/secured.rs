//! The C library against an aggregator with TLS and tokens, and its agent's credentials missing.

use std::path::Path;
use std::process::Command;

use tollgate_tests::binary;
use tollgate_tests::serving::{ANY, Serving};

use crate::kit::{self, Kit};

const CONFIG: &str = r#"
[listen]
probe = "127.0.0.1:0"
[listen.tls]
cert = "keys/tollgate.pem"
key = "keys/tollgate.key"
[security]
tokens_file = "keys/tokens.toml"
"#;

/// What the header promises also holds over TLS; and an agent without a CA file lets calls through and reports it.
pub fn checks_and_missing_credentials() {
    let kit = Kit::start("c-secured");
    let dir = kit.dir.join("secured");
    std::fs::create_dir_all(&dir).expect("a directory");
    for args in [
        &["ca"][..],
        &["cert", "tollgate"],
        &["token", "services", "--role", "agent"],
    ] {
        let mut keys = binary::tollgate();
        keys.args(["keys", "--dir", "keys"]).args(args);
        kit::run(keys.current_dir(&dir));
    }
    std::fs::write(dir.join("tollgate.toml"), CONFIG).expect("written");
    let more = ["--config", "tollgate.toml", "--partitions", "2"];
    let aggregator = Serving::start_at(&dir, crate::LIMITS, ANY, &more);
    aggregator.await_ready();
    let keys = dir.join("keys");
    let secured = format!(
        "tls_ca_file={0}/ca.pem\ntls_server_name=tollgate\ntoken_file={0}/services.token",
        keys.display()
    );
    let output = kit::run(program(&kit, "check").args([&aggregator.agents, &secured]));
    assert!(output.contains("all as promised"), "{output}");

    let agents = format!("aggregators={}", aggregator.agents);
    let mut silent = program(&kit, "unreached");
    let (output, lines) = outputs(silent.arg(&agents));
    assert!(output.contains("refused, and let through"), "{output}");
    assert_eq!(lines, "", "nothing is printed unasked");
    let mut logs = program(&kit, "unreached");
    let (_, lines) = outputs(logs.arg(format!("{agents}; log=stderr")));
    assert!(lines.contains("because of credentials"), "{lines}");
}

/// A program of the library's tests.
fn program(kit: &Kit, name: &str) -> Command {
    let c = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/c/tests");
    kit.compiled(&c.join(name).with_extension("c"), "shared")
}

/// What a program that succeeds prints, and its standard error.
fn outputs(command: &mut Command) -> (String, String) {
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    (stdout, stderr)
}
