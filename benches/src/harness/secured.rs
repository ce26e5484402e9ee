//! Keys for a fleet with TLS and tokens: a CA, a certificate and a token of `tollgate keys`, in a directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use super::beside;

/// The name in the certificate.
pub const SERVER_NAME: &str = "bench";

/// The configuration of an aggregator whose working directory has the keys. All agents of a benchmark have one
/// address, where those of a fleet have many: a thousand handshakes at once would exceed the bound per address.
pub const CONFIG: &str = r#"
[listen]
pending_per_address_max = 1024
[listen.tls]
cert = "keys/bench.pem"
key = "keys/bench.key"
[security]
tokens_file = "keys/tokens.toml"
"#;

/// The path of one of these files.
pub fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join("keys").join(name)
}

/// Creates the keys.
///
/// # Errors
///
/// If `tollgate` cannot be built, or refuses.
pub fn make(dir: &Path) -> anyhow::Result<()> {
    let program = beside::program("tollgate", "tollgate")?;
    let all: [&[&str]; 3] = [
        &["ca"],
        &["cert", SERVER_NAME],
        &["token", "agents", "--role", "agent"],
    ];
    for args in all {
        let mut command = Command::new(&program);
        command.args(["keys", "--dir", "keys"]).args(args);
        let output = command.current_dir(dir).output()?;
        ensure!(
            output.status.success(),
            "tollgate keys {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
