//! Lua in nginx, with the shipped configuration: two workers, each with an agent of its own.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_tests::http;

use crate::kit::{self, Kit};

/// Debian's directory of nginx modules.
const MODULES: &str = "/usr/lib/nginx/modules";

/// How long nginx may take to start, or each worker to refuse a call: a new connection goes to
/// either.
const WITHIN: Duration = Duration::from_secs(30);

pub fn missing() -> Option<&'static str> {
    let lua = Path::new(MODULES).join("ngx_http_lua_module.so");
    (!kit::succeeds(Command::new("nginx").arg("-v")) || !lua.exists())
        .then_some("nginx with its Lua module")
}

/// nginx, which ends with the test.
struct Nginx {
    process: Child,
    address: String,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers only on request.
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

impl Nginx {
    /// Starts it with the shipped configuration, except for ports and paths, and a library of this
    /// name.
    fn start(kit: &Kit, library: &str) -> Self {
        Self::start_changed(kit, library, |text| text)
    }

    /// The same with a configuration that `change` returns.
    fn start_changed(kit: &Kit, library: &str, change: impl Fn(String) -> String) -> Self {
        let module = shipped().join("tollgate.lua");
        std::fs::copy(module, kit.dir.join("tollgate.lua")).expect("a file");
        Self::start_as_it_is(kit, library, change)
    }

    /// With the files in the directory.
    fn start_as_it_is(kit: &Kit, library: &str, change: impl Fn(String) -> String) -> Self {
        let service = service();
        let web = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = web.local_addr().expect("an address").to_string();
        drop(web);
        let text = std::fs::read_to_string(shipped().join("nginx.conf")).expect("a shipped file");
        let mut replaced = text.clone();
        for (was, is) in [
            (
                "\"aggregators=127.0.0.1:7401\"",
                &*format!("\"aggregators={}\", \"{library}\"", kit.aggregator.agents),
            ),
            (
                "listen 127.0.0.1:8080;",
                &format!("listen {address} reuseport; add_header X-Worker $pid always;"),
            ),
            ("127.0.0.1:8081", &service),
            ("/usr/local/share/tollgate", &kit.dir.display().to_string()),
        ] {
            assert!(replaced.contains(was), "nginx.conf: expected {was}");
            replaced = replaced.replace(was, is);
        }
        std::fs::write(kit.dir.join("nginx.conf"), change(replaced))
            .expect("a directory to write to");
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths: String = paths
            .iter()
            .map(|path| format!("{path}_temp_path {path};"))
            .collect();
        let whole = format!(
            "load_module {MODULES}/ndk_http_module.so; load_module {MODULES}/ngx_http_lua_module.so;\ndaemon off; \
             worker_processes 2; pid nginx.pid; events {{}} http {{ access_log off; {paths} include nginx.conf; }}\n"
        );
        std::fs::write(kit.dir.join("whole.conf"), whole).expect("a directory to write to");
        let process = Command::new("nginx")
            .args(["-p", ".", "-e", "error.log", "-c", "whole.conf"])
            .current_dir(&kit.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let nginx = Self {
            process: process.expect("nginx"),
            address,
        };
        let until = Instant::now() + WITHIN;
        while TcpStream::connect(&nginx.address).is_err() {
            assert!(Instant::now() < until, "it does not listen: {}", log(kit));
            std::thread::sleep(Duration::from_millis(20));
        }
        nginx
    }

    /// The complete answer to a request.
    fn get(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(WITHIN)).expect("a socket");
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }
}

fn log(kit: &Kit) -> String {
    std::fs::read_to_string(kit.dir.join("error.log")).unwrap_or_default()
}

/// A service that answers every request, until the process ends.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nserved\n");
        }
    });
    address
}

pub fn limits_in_two_workers() {
    let kit = Kit::start("lua");
    let library = kit.prefix.join("lib/libtollgate_c.so.0");
    let nginx = Nginx::start(&kit, &library.display().to_string());
    let first = nginx.get();
    assert!(
        first.starts_with("HTTP/1.1 200") && first.ends_with("served\n"),
        "{first}"
    );
    let mut refused_by: BTreeMap<String, String> = BTreeMap::new();
    let until = Instant::now() + WITHIN;
    while refused_by.len() < 2 {
        assert!(
            Instant::now() < until,
            "refused by {refused_by:?} alone: {}",
            log(&kit)
        );
        let answer = nginx.get();
        if answer.starts_with("HTTP/1.1 429") {
            let (_, rest) = answer.split_once("X-Worker: ").expect("a worker");
            let worker = rest.lines().next().unwrap_or_default().to_owned();
            refused_by.insert(worker, answer);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for answer in refused_by.values() {
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        let head = head.to_ascii_lowercase();
        for field in [
            "retry-after: ",
            "ratelimit: \"",
            "ratelimit-policy: \"",
            "x-tollgate-code: ",
            "content-type: application/problem+json",
        ] {
            assert!(head.contains(field), "{field}: {answer}");
        }
        assert!(body.contains("#quota-exceeded"), "{answer}");
    }
}

/// Calls that a worker has counted, and not yet sent, are sent when it ends. Here it waits for a second before it sends
/// any, so most are not sent before.
pub fn sends_before_a_worker_ends() {
    const REQUESTS: u64 = 20;
    let kit = Kit::start("lua-reload");
    let library = kit.prefix.join("lib/libtollgate_c.so.0");
    let slow = |text: String| {
        text.replace("api.search", "api.free")
            .replace("aggregators=", "flush_relaxed_ms=1000; aggregators=")
    };
    let nginx = Nginx::start_changed(&kit, &library.display().to_string(), slow);
    for _ in 0..REQUESTS {
        assert!(nginx.get().starts_with("HTTP/1.1 200"), "{}", log(&kit));
    }
    let pid = nginx.process.id().to_string();
    kit::run(Command::new("kill").args(["-HUP", &pid]));
    let until = Instant::now() + WITHIN;
    loop {
        let metrics = http::get_text(&kit.aggregator.http, "/metrics").unwrap_or_default();
        let granted = metrics
            .lines()
            .filter(|line| line.starts_with("tollgate_hits_granted_total"))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum::<f64>() as u64;
        if granted == REQUESTS {
            return;
        }
        assert!(
            Instant::now() < until,
            "{granted} of {REQUESTS} counted: {}",
            log(&kit)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lua that a request runs in place of the shipped call.
const MISTAKES: &str = r#"
local _, tokens = search:hit_estimated("lua", 1)
for _, copies in ipairs({ -1, 4294967296, 0 / 0, 0.5, 1.5, "many" }) do
    local answer, err = search:hit("lua", copies)
    assert(answer == nil and err, "hit")
    assert(not search:record("lua", copies), "record")
    local settled, late = search:settle(tokens, copies)
    assert(not settled and late, "settle")
    local denied, estimate, why = search:hit_estimated("lua", copies)
    assert(denied == nil and estimate == 0 and why, "hit_estimated")
    local held, hold, no = agent:copies("jobs"):reserve("lua", copies)
    assert(held == nil and hold == nil and no, "reserve")
end
assert(agent:stats().invalid == 30, "invalid")
local denied, wrong = search:hit("lua", 0)
assert(denied == nil and wrong == nil, "0 copies")
assert(agent:stats().invalid == 30 and agent:stats().calls_failed == 0, "0 copies")
assert(search:settle(tokens, 1) and search:settle(nil, 1), "settle")
assert(not search:peek("lua"), "locked out")
assert(agent:stats().connections_refused == 0, "stats")
local failed = agent:stats().calls_failed
local closed = setmetatable({ library = search.library, handle = 0ULL }, getmetatable(search))
local none, why = closed:hit("lua")
assert(none == nil and why:find("a rate that is open"), "a hit that failed")
none, why = closed:record("lua", 1)
assert(none == nil and why:find("a rate that is open"), "a record that failed")
assert(agent:stats().calls_failed == failed + 2, "calls_failed")
search:limit("lua", -7)
search:limit("lua", -8)
local unnamed, refused = agent:rate("ap\255i")
assert(refused:find("UTF%-8") and not unnamed:hit("lua"), "a resource without a name")
local calls = 0
while not search:hit("lua\255") do
    calls = calls + 1
    assert(calls < 4000, "never refused")
    ngx.sleep(0.002)
end
assert(search:peek("lua\239\191\189"), "another domain")
ngx.say("all as promised")
return ngx.exit(ngx.HTTP_OK)
"#;

/// Costs that are no numbers of copies lock nobody out, and raise nothing.
pub fn lets_impossible_numbers_through() {
    let kit = Kit::start("lua-mistakes");
    let library = kit.prefix.join("lib/libtollgate_c.so.0");
    let mistaken = |text: String| text.replace("search:limit(ngx.var.remote_addr)", MISTAKES);
    let nginx = Nginx::start_changed(&kit, &library.display().to_string(), mistaken);
    let answer = nginx.get();
    let log = log(&kit);
    assert!(answer.contains("all as promised"), "{answer}: {log}");
    assert!(log.contains("tollgate: -7 copies"), "{log}");
    assert!(!log.contains("-8 copies"), "at most one a second: {log}");
}

/// A server that holds copies during each request. `/` is redirected from a service that does not answer to another
/// one; `/lost` loses its hold by a redirect. Every answer has the number of handles while it was made.
const HOLDS: &str = r#"
access_by_lua_block { jobs:limit("lua") }
log_by_lua_block { require("tollgate").ended() }
header_filter_by_lua_block { ngx.header["X-Handles"] = agent:stats().handles_live }
location / { error_page 502 = @other; proxy_pass http://127.0.0.1:1; }
location @other { proxy_pass http://SERVICE; }
location = /idle {
    access_by_lua_block { return }
    content_by_lua_block { collectgarbage() collectgarbage() ngx.say("idle") }
}
location = /lost {
    access_by_lua_block {
        ngx.ctx.hold = select(2, jobs:reserve("lost"))
        assert(ngx.ctx.hold)
        return ngx.exec("/idle")
    }
}
location = /twice {
    access_by_lua_block {
        local _, hold = jobs:reserve("twice")
        jobs:release(hold)
        jobs:release(hold)
        jobs:release(nil)
        return ngx.exec("/idle")
    }
}
"#;

/// Copies are held once a request, also if it is redirected, and given back when it ends.
pub fn gives_copies_back_after_redirects() {
    let kit = Kit::start("lua-holds");
    let library = kit.prefix.join("lib/libtollgate_c.so.0");
    let holds = |text: String| {
        let (text, locations) = text.split_once("location / {").expect("a location");
        let (_, service) = locations.split_once("http://").expect("a service");
        let (service, _) = service.split_once(';').expect("its end");
        let opened = "search, err = agent:rate(\"api.search\")";
        let text = text.replace(opened, "jobs = agent:copies(\"jobs\")");
        format!("{text}{}}}", HOLDS.replace("SERVICE", service))
    };
    let nginx = Nginx::start_changed(&kit, &library.display().to_string(), holds);
    // One connection, so one worker.
    let mut connection = TcpStream::connect(&nginx.address).expect("it listens");
    connection.set_read_timeout(Some(WITHIN)).expect("a socket");
    let mut handles = |path: &str, end: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        connection.write_all(request.as_bytes()).expect("it reads");
        let (mut answer, mut some) = (String::new(), [0; 4_096]);
        while !answer.ends_with(end) {
            let length = connection.read(&mut some).expect("it answers");
            assert_ne!(length, 0, "{answer}: {}", log(&kit));
            answer.push_str(&String::from_utf8_lossy(&some[..length]));
        }
        let (_, rest) = answer.split_once("X-Handles: ").expect("a number");
        let number = rest.lines().next().unwrap_or_default();
        number.parse::<u32>().expect("a number")
    };
    let idle = handles("/idle", "\r\n0\r\n\r\n");
    for _ in 0..3 {
        assert_eq!(handles("/", "served\n"), idle + 1, "redirected");
        assert_eq!(handles("/idle", "\r\n0\r\n\r\n"), idle, "ended");
    }
    assert_eq!(handles("/twice", "\r\n0\r\n\r\n"), idle, "released");
    handles("/lost", "\r\n0\r\n\r\n");
    assert_eq!(handles("/idle", "\r\n0\r\n\r\n"), idle, "found");
}

pub fn lets_through_without_the_library() {
    let kit = Kit::start("lua-without");
    let nginx = Nginx::start(&kit, "libtollgate_none.so");
    for _ in 0..20 {
        assert!(nginx.get().starts_with("HTTP/1.1 200"), "{}", log(&kit));
    }
    assert!(log(&kit).contains("libtollgate_none.so"), "{}", log(&kit));
    drop(nginx);
    std::fs::remove_file(kit.dir.join("tollgate.lua")).expect("it was there");
    let nginx = Nginx::start_as_it_is(&kit, "libtollgate_none.so", |text| text);
    assert!(nginx.get().starts_with("HTTP/1.1 200"), "{}", log(&kit));
    assert!(
        log(&kit).contains("module 'tollgate' not found"),
        "{}",
        log(&kit)
    );
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/gateways/lua")
}
