//! A service like the example's over real HTTP, with the testing kit in it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tollgate_agent::testing::{TestAgent, WhenBlind};
use tollgate_agent::{Denied, Rate};

/// Status line, headers and body of a request.
fn request(address: SocketAddr, tenant: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a limit of time");
    write!(
        stream,
        "GET /search HTTP/1.1\r\nhost: localhost\r\nx-tenant: {tenant}\r\nconnection: close\r\n\r\n"
    )
    .expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

async fn search(
    State(search): State<Rate>,
    headers: axum::http::HeaderMap,
) -> Result<Response, Denied> {
    let tenant = headers
        .get("x-tenant")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let allowed = search.hit(tenant)?;
    Ok((allowed.headers(), "found\n").into_response())
}

#[test]
fn a_denied_tenant_gets_429_with_everything_that_is_known() {
    let kit = TestAgent::new();
    let routes = Router::new()
        .route("/search", get(search))
        .with_state(kit.agent().rate("api.search"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let address = listener.local_addr().expect("bound");
    runtime.spawn(async move { axum::serve(listener, routes).await });

    kit.limit("api.search", 100, Duration::from_secs(10));
    let answer = request(address, "acme");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(
        header(&answer, "ratelimit-policy"),
        Some("\"tier-1\";q=100;w=10")
    );

    kit.deny("api.search", "acme", Duration::from_millis(4_500));
    let answer = request(address, "acme");
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert_eq!(header(&answer, "retry-after"), Some("5"));
    assert_eq!(header(&answer, "ratelimit"), Some("\"tier-1\";r=0;t=5"));
    assert!(request(address, "globex").starts_with("HTTP/1.1 200"));

    kit.when_blind("api.search", WhenBlind::Closed);
    kit.go_blind();
    assert!(request(address, "globex").starts_with("HTTP/1.1 503"));
}

#[test]
fn a_refusal_of_many_is_answered_like_a_refusal_of_one() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", Duration::from_secs(5));
    let denied = rate.hit_n("acme", 2).expect_err("denied").into_response();
    assert_eq!(denied.status(), 429);
    assert_eq!(
        denied
            .headers()
            .get("retry-after")
            .map(|one| one.as_bytes()),
        Some(&b"5"[..])
    );
    let misuse = rate.hit_n("acme", 0).expect_err("no copies");
    assert_eq!(misuse.into_response().status(), 500);
}
