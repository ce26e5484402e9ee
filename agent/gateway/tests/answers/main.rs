//! Tests of answers to web servers and services, over a real socket.

mod faults;
mod kinds;
mod revoked;
mod strict;

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_agent::testing::{Outcome, TestAgent, WhenBlind};
use tollgate_gateway::subject::DomainFrom;
use tollgate_gateway::{Gateway, Listen, ListenError, Settings};

struct Running {
    kit: TestAgent,
    address: String,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    async fn start_with(settings: Settings) -> Self {
        let kit = TestAgent::new();
        let listen = Listen::Loopback("127.0.0.1:0".parse().expect("an address"));
        let agent = kit.agent().clone();
        let settings = Settings {
            domain: DomainFrom::parse("header:x-tenant"),
            ..settings
        };
        let gateway = Gateway::bind(&listen, agent, settings, None)
            .await
            .expect("it listens");
        let address = gateway.address().expect("an address").to_string();
        let (stop, stopping) = watch::channel(false);
        Self {
            kit,
            address,
            stop,
            served: tokio::spawn(gateway.serve(stopping)),
        }
    }

    async fn ask(&self, request: &str) -> String {
        let mut peer = TcpStream::connect(&self.address).await.expect("it accepts");
        peer.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.expect("it answers");
        answer
    }

    async fn get(&self, path: &str, headers: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
        ))
        .await
    }

    async fn post(&self, body: &str) -> String {
        let length = body.len();
        self.ask(&format!(
            "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .await
    }

    async fn end(self) {
        self.stop.send(true).expect("it listens");
        self.served.await.expect("it ends");
    }
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

#[tokio::test]
async fn a_web_server_learns_whether_to_refuse_and_with_what() {
    let running = Running::start().await;
    let path = "/v1/authorize/api.search?domain=header:x-tenant";
    let allowed = running.get(path, "x-tenant: acme\r\n").await;
    assert_eq!(status(&allowed), "200", "{allowed}");
    assert!(allowed.contains("cache-control: no-store"), "{allowed}");
    running
        .kit
        .deny("api.search", "acme", Duration::from_secs(5));
    for (method, below, denied, expected) in [
        ("GET", "", "", "429"),
        ("POST", "", "", "429"),
        ("HEAD", "", "", "429"),
        ("GET", "", "&denied=403", "403"),
        // What a client wrote after the configured query.
        ("GET", "", "&path=/x?a=b&cost=0&domain=name:other", "429"),
        ("GET", "", "&domain=name:other", "429"),
        // The gateway's own setting, and a query that comes from the client.
        ("GET", "/some/path", "&cost=0&domain=name:other", "429"),
        ("GET", "/", "", "429"),
        ("GET", "/%ff/%", "", "429"),
    ] {
        let request = format!(
            "{method} /v1/authorize/api.search{below}?domain=header:x-tenant{denied} HTTP/1.1\r\nhost: localhost\r\n\
             connection: close\r\nx-tenant: acme\r\n\r\n"
        );
        let refused = running.ask(&request).await;
        assert_eq!(status(&refused), expected, "{request}{refused}");
        assert!(refused.contains("retry-after: 5"), "{refused}");
        assert!(refused.contains("x-tollgate-code: "), "{refused}");
        assert!(refused.contains("application/problem+json"), "{refused}");
        let has_body = refused.contains("http-problem-types#quota-exceeded");
        assert_eq!(has_body, method != "HEAD", "{refused}");
    }
    for path in [path, "/v1/authorize/%ff%00", "/v1/authorize/%"] {
        let other = running.get(path, "x-tenant: other\r\n").await;
        assert_eq!(status(&other), "200", "{other}");
    }
    running.end().await;
}

#[tokio::test]
async fn a_blind_gateways_local_rate_refuses_with_429() {
    let running = Running::start().await;
    let local = WhenBlind::Local {
        limit: 1,
        window: Duration::from_secs(5),
    };
    let (path, tenant) = ("/v1/authorize/api.search", "x-tenant: acme\r\n");
    running.kit.when_blind("api.search", local);
    running.kit.go_blind();
    assert_eq!(status(&running.get(path, tenant).await), "200");
    // A web server takes a 503 for a gateway that has failed, and may let the request through.
    let refused = running.get(path, tenant).await;
    assert_eq!(status(&refused), "429", "{refused}");
    assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    running.kit.when_blind("api.search", WhenBlind::Closed);
    let refused = running.get(path, tenant).await;
    assert_eq!(status(&refused), "503", "{refused}");
    assert!(!refused.contains("retry-after"), "{refused}");
    running.end().await;
}

#[tokio::test]
async fn older_headers_are_sent_where_configured() {
    let path = "/v1/authorize/api.search";
    for (legacy_headers, expects_older) in [(false, false), (true, true)] {
        let running = Running::start_with(Settings {
            legacy_headers,
            ..Settings::default()
        })
        .await;
        let kit = &running.kit;
        kit.near("api.search", "near", 7, 50, Duration::from_secs(60));
        kit.deny("api.search", "denied", Duration::from_secs(5));
        for (domain, fields) in [
            ("near", "limit: 50 remaining: 6 reset: 60"),
            ("denied", "limit: 1 remaining: 0 reset: 5"),
        ] {
            let answer = running.get(path, &format!("x-tenant: {domain}\r\n")).await;
            assert!(answer.contains("\r\nratelimit: "), "{answer}");
            let lines = answer.lines();
            let older = lines.filter_map(|line| line.strip_prefix("x-ratelimit-"));
            let older = older.collect::<Vec<_>>().join(" ");
            assert_eq!(older, if expects_older { fields } else { "" }, "{answer}");
        }
        running.end().await;
    }
}

#[tokio::test]
async fn undecidable_calls_are_let_through_with_a_reason() {
    let running = Running::start().await;
    running
        .kit
        .deny("api.search", "acme", Duration::from_secs(5));
    for (query, headers, why) in [
        ("", "", "the request has no domain"),
        ("*?domain=name:acme", "", "the resource is not a name"),
        ("%0A?domain=name:acme", "", "the resource is not a name"),
        ("?domain=tenant", "", "no domain is configured"),
        ("?domain=header:x-tenant", "", "the request has no domain"),
        (
            "?domain=ip",
            "x-forwarded-for: unknown\r\n",
            "the request has no domain",
        ),
        (
            "?domain=name:acme&cost=header:x-cost",
            "x-cost: all\r\n",
            "the cost is not",
        ),
        ("?domain=name:acme&cost=-1", "", "the cost is not"),
    ] {
        let answer = running
            .get(&format!("/v1/authorize/api.search{query}"), headers)
            .await;
        assert_eq!(status(&answer), "200", "{query}: {answer}");
        assert!(
            answer.contains(&format!("x-tollgate-undecided: {why}")),
            "{query}: {answer}"
        );
    }
    let refused = running
        .get("/v1/authorize/api.search?domain=name:acme&cost=0", "")
        .await;
    assert_eq!(status(&refused), "429", "asked without counting: {refused}");
    let forged = "x-forwarded-for: 8.8.8.8, 203.0.113.7\r\n";
    running
        .kit
        .deny("api.search", "203.0.113.7", Duration::from_secs(5));
    let refused = running
        .get("/v1/authorize/api.search?domain=ip", forged)
        .await;
    assert_eq!(status(&refused), "429", "{refused}");
    running.end().await;
}

#[tokio::test]
async fn a_service_gets_json() {
    let running = Running::start().await;
    running
        .kit
        .deny("api.search", "acme", Duration::from_secs(5));
    let answer = running
        .post(r#"{"hits": [{"resource": "api.search", "domain": "acme"}, {"resource": "api.search", "domain": "b", "copies": 3}]}"#)
        .await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(
        answer.contains(r#""allowed":false,"decisions":[{"allowed":false"#),
        "{answer}"
    );
    assert!(answer.contains(r#""retry_after_ms":5000"#), "{answer}");
    assert!(answer.contains(r#"{"allowed":true"#), "{answer}");
    let answer = running
        .post(r#"{"all_or_none": true, "hits": [{"resource": "api.search", "domain": "b"}, {"resource": "api.search", "domain": "acme"}]}"#)
        .await;
    assert!(
        answer.contains(r#""allowed":false,"decisions":[{"allowed":false"#),
        "{answer}"
    );
    let health = running.get("/healthz", "").await;
    assert_eq!(status(&health), "200");
    let unknown = running.get("/v2/authorize/r", "").await;
    assert_eq!(status(&unknown), "404");
    running.end().await;
}

/// The value of a text field.
fn text_of<'a>(answer: &'a str, field: &str) -> &'a str {
    let begin = format!("\"{field}\":\"");
    let behind = answer
        .split(&begin)
        .nth(1)
        .unwrap_or_else(|| panic!("{field}: {answer}"));
    behind.split('"').next().unwrap_or_default()
}

#[tokio::test]
async fn a_service_holds_copies_by_a_lease_and_settles_estimates() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 2);
    let taken = |lease: u64| {
        format!(
            r#"{{"holds": [{{"resource": "sandbox", "domain": "acme", "copies": 2, "lease_ms": {lease}}}]}}"#
        )
    };
    let answer = running.post(&taken(60_000)).await;
    let id = text_of(&answer, "hold").to_owned();
    let full = running.post(&taken(60_000)).await;
    assert!(full.contains(r#""allowed":false"#), "{full}");
    let renewed = running
        .post(&format!(r#"{{"renew": [{{"hold": "{id}", "lease_ms": 50000}}, {{"hold": "0-0", "lease_ms": 5}}]}}"#))
        .await;
    assert!(renewed.contains(r#""renewed":[true,false]"#), "{renewed}");
    let released = running
        .post(&format!(r#"{{"release": ["{id}", "{id}"]}}"#))
        .await;
    assert!(
        released.contains(r#""released":[true,false]"#),
        "{released}"
    );
    assert_eq!(running.kit.held(), []);
    // A lease that is not renewed ends by itself.
    let answer = running.post(&taken(1)).await;
    assert!(answer.contains(r#""hold":""#), "{answer}");
    running.until_free().await;

    let estimated =
        r#"{"estimates": [{"resource": "llm.tokens", "domain": "acme", "copies": 800}]}"#;
    let answer = running.post(estimated).await;
    let id = text_of(&answer, "estimate");
    let settling = format!(
        r#"{{"settle": [{{"estimate": "{id}", "actual": 620}}, {{"estimate": "{id}", "actual": 1}}]}}"#
    );
    let settled = running.post(&settling).await;
    assert!(
        settled.contains(r#""settled":["taken_back",null]"#),
        "{settled}"
    );
    let refund = Outcome::Refund {
        estimated: 800,
        actual: 620,
    };
    assert!(
        running
            .kit
            .recorded()
            .iter()
            .any(|one| one.outcome == refund)
    );
    running.end().await;
}

#[tokio::test]
async fn hits_and_holds_are_let_through_together_or_not_at_all() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 1);
    let both = r#"{"all_or_none": true, "hits": [{"resource": "llm.tokens", "domain": "acme", "copies": 70}],
        "holds": [{"resource": "sandbox", "domain": "acme", "lease_ms": 60000}]}"#;
    running
        .kit
        .deny("llm.tokens", "acme", Duration::from_secs(5));
    let refused = running.post(both).await;
    assert!(refused.contains(r#""allowed":false"#), "{refused}");
    assert_eq!(running.kit.held(), []);
    running.kit.lift("llm.tokens", "acme");
    let allowed = running.post(both).await;
    assert!(allowed.contains(r#""holds":[""#), "{allowed}");
    let refused = running.post(both).await;
    assert!(refused.contains(r#""allowed":false"#), "{refused}");
    let recorded = running.kit.recorded();
    let hits = recorded
        .iter()
        .filter(|one| matches!(one.outcome, Outcome::Hit { copies: 70, .. }));
    assert_eq!(hits.count(), 1);
    running.end().await;
}

#[tokio::test]
async fn a_gateway_serves_its_machine_and_reuses_a_stale_socket() {
    let kit = TestAgent::new();
    let open = Listen::Loopback("0.0.0.0:0".parse().expect("an address"));
    let refused = Gateway::bind(&open, kit.agent().clone(), Settings::default(), None).await;
    assert!(matches!(refused, Err(ListenError::NotLoopback(_))));

    let directory = std::env::temp_dir().join(format!("tollgate-gateway-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("socket");
    // A killed process leaves this.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let listen = Listen::Unix(path.clone());
    let gateway = Gateway::bind(&listen, kit.agent().clone(), Settings::default(), None)
        .await
        .expect("it is taken over");
    let (stop, stopping) = watch::channel(false);
    let served = tokio::spawn(gateway.serve(stopping));
    let taken = Gateway::bind(&listen, kit.agent().clone(), Settings::default(), None).await;
    assert!(
        matches!(taken, Err(ListenError::Bind { .. })),
        "somebody listens there"
    );
    let mut peer = UnixStream::connect(&path).await.expect("it accepts");
    peer.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .expect("it reads");
    let mut answer = String::new();
    peer.read_to_string(&mut answer).await.expect("it answers");
    assert_eq!(status(&answer), "200");
    stop.send(true).expect("it listens");
    served.await.expect("it ends");
    assert!(!path.exists(), "nobody waits at a socket of nobody's");
    std::fs::remove_dir_all(&directory).expect("it was ours");
}

#[tokio::test]
async fn pages_in_a_browser_are_not_answered() {
    let gateway = Running::start().await;
    let body = r#"{"hits": [{"resource": "api.search", "domain": "acme"}]}"#;
    let length = body.len();
    for (headers, expected) in [
        ("host: 127.0.0.1:7404", "200"),
        ("host: [::1]", "200"),
        ("host: evil.example", "421"),
        ("host: localhost\r\nhost: localhost", "421"),
        ("host: localhost\r\norigin: null", "403"),
        ("host: localhost\r\norigin: http://evil.example", "403"),
    ] {
        let request = format!(
            "POST /v1/decide HTTP/1.1\r\n{headers}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let answer = gateway.ask(&request).await;
        assert_eq!(status(&answer), expected, "{headers}: {answer}");
    }
    let metrics = "GET /metrics HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&gateway.ask(metrics).await), "421");
    // A web server passes on its client's host and origin.
    let page_request = "GET /v1/authorize/api.search HTTP/1.1\r\nhost: shop.example\r\norigin: https://shop.example\r\nx-tenant: acme\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&gateway.ask(page_request).await), "200");
    assert_eq!(gateway.kit.recorded().len(), 3);
    gateway.end().await;
}

#[tokio::test]
async fn a_broken_body_is_not_called_too_long() {
    let running = Running::start().await;
    let head = "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let chunks = format!("{head}transfer-encoding: chunked\r\n\r\nZZ\r\n{{}}\r\n0\r\n\r\n");
    let answer = running.ask(&chunks).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let long = "a".repeat(300 << 10);
    let chunks = format!("{head}transfer-encoding: chunked\r\n\r\n4b000\r\n{long}\r\n0\r\n\r\n");
    assert!(running.ask(&chunks).await.starts_with("HTTP/1.1 413 "));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn unfinished_requests_end_within_seconds() {
    let running = Running::start().await;
    let whole = "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{";
    for (begun, expected) in [(whole, "HTTP/1.1 408 "), ("POST /v1/dec", "")] {
        let began = tokio::time::Instant::now();
        let answer = running.ask(begun).await;
        assert!(answer.starts_with(expected), "{begun}: {answer}");
        assert!(!expected.is_empty() || answer.is_empty(), "{answer}");
        // The paused clock advances only while all tasks wait.
        let taken = began.elapsed().as_secs();
        assert!((5..10).contains(&taken), "{begun}: {taken} s");
    }
    // A connection that waits for another request has more time, also after a request that came in two pieces.
    let mut peer = TcpStream::connect(&running.address)
        .await
        .expect("it accepts");
    for piece in ["GET /healthz HTTP/1.1\r\n", "host: localhost\r\n\r\n"] {
        peer.write_all(piece.as_bytes()).await.expect("it reads");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    tokio::time::sleep(Duration::from_secs(50)).await;
    let last = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    peer.write_all(last.as_bytes()).await.expect("it reads");
    let mut answers = String::new();
    peer.read_to_string(&mut answers).await.expect("it answers");
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    running.end().await;
}

#[tokio::test]
async fn a_question_is_as_long_as_a_thousand_hits_and_no_longer() {
    let running = Running::start().await;
    let hit = format!(
        r#"{{"resource": "api.search", "domain": "{}"}}"#,
        "d".repeat(200)
    );
    let thousand = format!(r#"{{"hits": [{}]}}"#, vec![hit; 1_000].join(","));
    let answer = running.post(&thousand).await;
    assert_eq!(status(&answer), "200", "{answer}");
    let head = "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-length: 262145\r\n\r\n";
    let answer = running.ask(head).await;
    assert_eq!(status(&answer), "413", "{answer}");
    assert!(answer.contains("at most 262144 bytes"), "{answer}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn unfinished_questions_take_a_bounded_part_of_memory() {
    let running = Running::start().await;
    let head = "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-length: 262144\r\n\r\n";
    let begun = [head.as_bytes(), &[b' '; 255 << 10]].concat();
    let mut unfinished = tokio::task::JoinSet::new();
    // 16 MiB have room for 64 of them.
    for _ in 0..80 {
        let mut peer = TcpStream::connect(&running.address)
            .await
            .expect("it accepts");
        let begun = begun.clone();
        unfinished.spawn(async move {
            // A peer whose connection is closed may not be able to write it all.
            let _ = peer.write_all(&begun).await;
            let mut answer = [0; 16];
            peer.read(&mut answer).await.unwrap_or(0)
        });
    }
    let answer = running
        .post(r#"{"hits": [{"resource": "api.search", "domain": "acme"}]}"#)
        .await;
    assert_eq!(status(&answer), "200", "{answer}");
    let answers = unfinished.join_all().await;
    let ended = answers.iter().filter(|read| **read == 0).count();
    assert!((16..80).contains(&ended), "{ended}");
    running.end().await;
}
