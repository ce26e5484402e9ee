//! Refuses requests from web pages in a browser on this machine.
//!
//! ```text
//! POST /v1/decide   host: 127.0.0.1:7404                                 a service: answered
//! POST /v1/decide   host: evil.example                                   DNS rebinding: 421
//! POST /v1/decide   host: 127.0.0.1:7404   origin: https://evil.example  some web page: 403
//! ```
//!
//! A page may send requests to a loopback address, and if its own name resolves to that address, it can read the
//! answers; it could use up any domain's limits. Services send no `Origin`. Web servers call `/v1/authorize` and pass
//! on the host and the origin of their clients, so no such check is possible there: see "Who may ask" in the README
//! of the gateways. What stays true: behind a Unix socket, which no page can reach, the host does not matter.

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics::counter;
use tollgate_shared::hosts::{Host, host};

/// Answers services, whatever host they name.
pub(crate) async fn of_socket(request: Request, next: Next) -> Response {
    match request.headers().contains_key(header::ORIGIN) {
        true => refused(StatusCode::FORBIDDEN, ORIGIN),
        false => next.run(request).await,
    }
}

/// Answers services that name this machine as the host.
pub(crate) async fn of_address(request: Request, next: Next) -> Response {
    let mut named = request.headers().get_all(header::HOST).iter();
    let stated = match (named.next(), named.next()) {
        (Some(one), None) => one.to_str().ok().and_then(host),
        _ => None,
    };
    // By the rules of HTTP, the authority in the request line takes precedence over the header.
    let of_line = request.uri().authority().map(|line| host(line.as_str()));
    match (stated, of_line) {
        (Some(Host::Own), None | Some(Some(Host::Own))) => of_socket(request, next).await,
        _ => refused(StatusCode::MISDIRECTED_REQUEST, HOST),
    }
}

const ORIGIN: &str = "a page in a browser is not answered: expected no header Origin\n";
const HOST: &str = "expected an address or localhost as the host, as in 127.0.0.1:7404\n";

fn refused(status: StatusCode, text: &'static str) -> Response {
    counter!("tollgate_gateway_answers_total", "answer" => "browser").increment(1);
    (status, text).into_response()
}
