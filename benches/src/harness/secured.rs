//! Keys for a fleet with TLS and tokens: a CA, a certificate and a token of `tollgate keys`, in a directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use super::beside;

/// The name that the certificate is for.
pub const SERVER_NAME: &str = "bench";

/// What an aggregator is configured with whose working directory has them. All agents of a benchmark come from one address,
/// where those of a fleet have many: a thousand handshakes at once would be beyond what one address may have.
pub const CONFIG: &str = r#"
[listen]
pending_per_address_max = 1024
[listen.tls]
cert = "keys/bench.pem"
key = "keys/bench.key"
[security]
tokens_file = "keys/tokens.toml"
"#;

/// Where a file of these keys lies.
pub fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join("keys").join(name)
}

/// Makes them.
///
/// # Errors
///
/// Where `tollgate` cannot be built, or refuses.
pub fn make(dir: &Path) -> anyhow::Result<()> {
    let program = beside::program("tollgate", "tollgate")?;
    let all: [&[&str]; 3] = [
        &["ca"],
        &["cert", SERVER_NAME],
        &["token", "agents", "--role", "agent"],
    ];
    for words in all {
        let mut command = Command::new(&program);
        command.args(["keys", "--dir", "keys"]).args(words);
        let output = command.current_dir(dir).output()?;
        ensure!(
            output.status.success(),
            "tollgate keys {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
