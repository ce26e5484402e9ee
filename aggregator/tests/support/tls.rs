//! A fleet of one aggregator that uses TLS and requires tokens; and a tap between it and its agents.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
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

/// A resource with a limit that no test reaches.
const FREE: &str = "[rate.\"api.free\"]\nrate = \"1000000/s\"\n";

pub const KEYS: [&str; 3] = ["keys", "--dir", "keys"];

/// Runs `tollgate keys` with these arguments, which has to succeed.
pub fn keys(dir: &Path, args: &[&str]) -> String {
    let (code, stdout, stderr) = run(dir, &[&KEYS[..], args].concat());
    assert_eq!(code, 0, "keys {args:?}: {stderr}");
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
        for (name, args) in [
            (
                "checkout",
                &["--role", "agent", "--agents", "checkout-*"][..],
            ),
            ("web", &["--role", "agent", "--namespace", "web"]),
            ("viewer", &["--role", "viewer"]),
            ("lookout", &["--role", "viewer", "--namespace", "web"]),
            ("operator", &["--role", "operator"]),
            ("admin", &["--role", "admin"]),
            (
                "certified",
                &["--role", "viewer", "--certificate", "checkout.internal"],
            ),
        ] {
            keys(path, &[&["token", name], args].concat());
        }
        std::fs::write(path.join("tollgate.toml"), CONFIG).expect("written");
        let mut served = serve(path, &["--config", "tollgate.toml"]);
        let line = served.log_lines.last().expect("a line").clone();
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
    pub fn command(&self, token: Option<&str>, args: &[&str]) -> (i32, String, String) {
        self.command_with(token, "keys/ca.pem", "tollgate", args)
    }

    pub fn command_with(
        &self,
        token: Option<&str>,
        ca: &str,
        name: &str,
        args: &[&str],
    ) -> (i32, String, String) {
        let token = token.map(|token| format!("keys/{token}.token"));
        let mut env = vec![
            ("TOLLGATE_TLS_CA_FILE", ca),
            ("TOLLGATE_TLS_SERVER_NAME", name),
        ];
        env.extend(token.as_deref().map(|token| ("TOLLGATE_TOKEN_FILE", token)));
        run_with(self.path(), args, &env)
    }

    /// The HTTP address; `served` has that of the probes instead.
    pub fn url(&self) -> String {
        let line = self
            .served
            .log_lines
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
        let args = ["hit", "api.search", "acme"];
        let mut env = vec![
            ("TOLLGATE_TLS_CA_FILE", "keys/ca.pem"),
            ("TOLLGATE_TLS_SERVER_NAME", "tollgate"),
        ];
        let token = token.map(|token| format!("keys/{token}.token"));
        env.extend(token.as_deref().map(|token| ("TOLLGATE_TOKEN_FILE", token)));
        env.push(("TOLLGATE_AGENT_NAME", name));
        env.push(("TOLLGATE_AGGREGATORS", &agents));
        run_with(self.path(), &[&args[..], more].concat(), &env)
    }

    /// Connections of agents that ended for a reason.
    pub fn ended(&self, reason: &str) -> u64 {
        let labels = format!("{{port=\"agents\",reason=\"{reason}\"}}");
        let name = format!("tollgate_connections_ended_total{labels}");
        self.served.metric(&name) as u64
    }

    /// An agent in this process.
    pub fn agent(&self, token: &str, name: &str) -> Agent {
        self.agent_at(self.served.agents, token, name)
    }

    /// The same, with this address of the aggregator.
    pub fn agent_at(&self, agents: SocketAddr, token: &str, name: &str) -> Agent {
        let of = |file: &str| self.path().join("keys").join(file);
        Agent::builder()
            .name(name)
            .aggregator(agents.to_string())
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

/// Makes a call each millisecond, on a thread of its own, of a resource whose limit is not reached.
pub struct Load {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// The outcomes of the calls.
#[derive(Debug, Default)]
pub struct Seen {
    pub calls: u64,
    pub refused: u64,
    pub blind: u64,
    pub longest: Duration,
}

impl Load {
    pub fn of(agent: &Agent) -> Self {
        let (rate, ends) = (agent.rate("api.free"), Arc::<AtomicBool>::default());
        let ending = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !ending.load(Ordering::Relaxed) {
                let began = Instant::now();
                let answer = rate.hit("acme");
                seen.longest = seen.longest.max(began.elapsed());
                seen.calls += 1;
                match answer {
                    Ok(answer) => seen.blind += u64::from(answer.blind()),
                    Err(_) => seen.refused += 1,
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            seen
        });
        Self { ends, thread }
    }

    pub fn end(self) -> Seen {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("calls do not panic")
    }
}

/// A tap between agents and an aggregator, which records the bytes of the first connection's agent, and cuts.
pub struct Tap {
    pub address: SocketAddr,
    recorded: Arc<Mutex<Vec<u8>>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Tap {
    pub fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let tap = Self {
            address: listener.local_addr().expect("an address"),
            recorded: Arc::default(),
            open: Arc::default(),
        };
        let (open, mut recorded) = (Arc::clone(&tap.open), Some(Arc::clone(&tap.recorded)));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(to).expect("connected");
                let twice = |stream: &TcpStream| stream.try_clone().expect("cloned");
                let both = [twice(&client), twice(&server)];
                open.lock().expect("open").extend(both);
                pass_on(twice(&server), twice(&client), None);
                pass_on(client, server, recorded.take());
            }
        });
        tap
    }

    /// Ends all connections where they are.
    pub fn cut(&self) {
        for stream in self.open.lock().expect("open").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// What the first connection's agent has sent.
    pub fn recorded(&self) -> Vec<u8> {
        self.recorded.lock().expect("recorded").clone()
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, recorded: Option<Arc<Mutex<Vec<u8>>>>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(read) = from.read(&mut bytes)
            && 0 < read
        {
            if let Some(recorded) = &recorded {
                recorded.lock().expect("recorded").extend(&bytes[..read]);
            }
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
