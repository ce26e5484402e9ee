//! A fleet of one that speaks TLS and asks for tokens.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tollgate_agent::Agent;

use super::{DEADLINE, LIMITS, Served, directory, run, run_with, serve};

pub const CONFIG: &str = r#"
[listen]
probe = "127.0.0.1:0"
probe_metrics = true
[listen.tls]
cert = "keys/tollgate.pem"
key = "keys/tollgate.key"
client_ca = "keys/ca.pem"
[security]
tokens_file = "keys/tokens.toml"
"#;

/// A resource that nobody reaches the limit of.
const FREE: &str = "[rate.\"api.free\"]\nrate = \"1000000/s\"\n";

pub const KEYS: [&str; 3] = ["keys", "--dir", "keys"];

/// `tollgate keys` with these words, which has to end well.
pub fn keys(dir: &Path, words: &[&str]) -> String {
    let (code, stdout, stderr) = run(dir, &[&KEYS[..], words].concat());
    assert_eq!(code, 0, "keys {words:?}: {stderr}");
    stdout
}

/// A fleet of one, with a token for each role.
pub struct Fleet {
    pub dir: tempfile::TempDir,
    pub served: Served,
    pub probe: SocketAddr,
}

impl Fleet {
    pub fn start() -> Self {
        let dir = directory(&format!("{LIMITS}{FREE}"));
        let path = dir.path();
        keys(path, &["ca"]);
        keys(path, &["cert", "tollgate"]);
        keys(path, &["cert", "checkout.internal"]);
        for (name, words) in [
            (
                "checkout",
                &["--role", "agent", "--agents", "checkout-*"][..],
            ),
            ("web", &["--role", "agent", "--namespace", "web"]),
            ("viewer", &["--role", "viewer"]),
            ("operator", &["--role", "operator"]),
            ("admin", &["--role", "admin"]),
            (
                "certified",
                &["--role", "viewer", "--certificate", "checkout.internal"],
            ),
        ] {
            keys(path, &[&["token", name], words].concat());
        }
        std::fs::write(path.join("tollgate.toml"), CONFIG).expect("written");
        let mut served = serve(path, &["--config", "tollgate.toml"]);
        let line = served.said.last().expect("a line").clone();
        let (_, rest) = line.split_once("probe=").expect("a probe");
        let probe = rest.split_whitespace().next().expect("an address");
        let probe = probe.parse().expect("an address");
        served.http = probe;
        served.await_ready();
        Self { dir, served, probe }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A command with a CA and the token of this name, if any.
    pub fn command(&self, token: Option<&str>, words: &[&str]) -> (i32, String, String) {
        self.command_with(token, "keys/ca.pem", "tollgate", words)
    }

    pub fn command_with(
        &self,
        token: Option<&str>,
        ca: &str,
        name: &str,
        words: &[&str],
    ) -> (i32, String, String) {
        let token = token.map(|token| format!("keys/{token}.token"));
        let mut env = vec![
            ("TOLLGATE_TLS_CA_FILE", ca),
            ("TOLLGATE_TLS_SERVER_NAME", name),
        ];
        env.extend(token.as_deref().map(|token| ("TOLLGATE_TOKEN_FILE", token)));
        run_with(self.path(), words, &env)
    }

    /// The address for HTTP, which the probes' stands in for in `served`.
    pub fn url(&self) -> String {
        let line = self
            .served
            .said
            .iter()
            .find(|line| line.contains("listening"));
        let (_, rest) = line
            .expect("a line")
            .split_once("http=")
            .expect("an address");
        format!(
            "https://{}",
            rest.split_whitespace().next().expect("an address")
        )
    }

    pub fn hits(&self, token: Option<&str>, name: &str, more: &[&str]) -> (i32, String, String) {
        let agents = self.served.agents.to_string();
        let words = ["hit", "api.search", "acme"];
        let mut env = vec![
            ("TOLLGATE_TLS_CA_FILE", "keys/ca.pem"),
            ("TOLLGATE_TLS_SERVER_NAME", "tollgate"),
        ];
        let token = token.map(|token| format!("keys/{token}.token"));
        env.extend(token.as_deref().map(|token| ("TOLLGATE_TOKEN_FILE", token)));
        env.push(("TOLLGATE_AGENT_NAME", name));
        env.push(("TOLLGATE_AGGREGATORS", &agents));
        run_with(self.path(), &[&words[..], more].concat(), &env)
    }

    /// An agent in this process.
    pub fn agent(&self, token: &str, name: &str) -> Agent {
        let of = |file: &str| self.path().join("keys").join(file);
        Agent::builder()
            .name(name)
            .aggregator(self.served.agents.to_string())
            .tls_ca_file(of("ca.pem"))
            .tls_server_name("tollgate")
            .token_file(of(&format!("{token}.token")))
            .build()
            .expect("an agent")
    }
}

pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
