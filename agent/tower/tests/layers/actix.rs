//! Tests of the layers as middleware of actix-web.

use std::future::{Ready, ready};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::body::{BodySize, MessageBody, to_bytes};
use actix_web::dev::{Service, ServiceResponse, fn_service};
use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, Error, HttpMessage as _, HttpRequest, HttpResponse, HttpServer, web};
use bytes::Bytes;
use tollgate_agent::Agent;
use tollgate_agent::testing::TestAgent;
use tollgate_tower::{HeldCopies, HoldLayer, LimitLayer, key};

use super::by_tenant;

const WITHIN: Duration = Duration::from_secs(10);

fn by_tenant_at_a_time(agent: &Agent) -> HoldLayer {
    HoldLayer::new(agent.copies("api.exports"), key::header("x-tenant"))
}

fn request(tenant: &str) -> TestRequest {
    TestRequest::with_uri("/search?q=x").insert_header(("X-Tenant", tenant))
}

fn text<B>(answer: &ServiceResponse<B>, name: &str) -> String {
    let value = answer.headers().get(name);
    value
        .map_or("(none)", |value| value.to_str().expect("text"))
        .to_owned()
}

#[tokio::test]
async fn actix_is_answered_as_tower_is() {
    let kit = TestAgent::new();
    kit.deny("api.search", "acme", Duration::from_millis(1_500));
    kit.near("api.search", "near", 7, 50, Duration::from_secs(1));
    let found = web::resource("/search").to(|| async { "found" });
    let app = App::new()
        .wrap(by_tenant(&kit).legacy_headers())
        .service(found);
    let app = init_service(app).await;

    let answer = call_service(&app, request("globex").to_request()).await;
    assert_eq!(
        (answer.status(), text(&answer, "ratelimit")),
        (StatusCode::OK, "(none)".to_owned())
    );
    assert_eq!(to_bytes(answer.into_body()).await.expect("a body"), "found");
    let answer = call_service(&app, request("near").to_request()).await;
    assert!(text(&answer, "ratelimit").contains(";r=6"));

    let answer = call_service(&app, request("acme").to_request()).await;
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(&answer, "retry-after"), "2");
    assert_eq!(text(&answer, "x-ratelimit-remaining"), "0");
    assert_eq!(text(&answer, "content-type"), "application/problem+json");
    assert_ne!(text(&answer, "x-tollgate-code"), "(none)");
    let body = to_bytes(answer.into_body()).await.expect("a body");
    assert!(
        String::from_utf8_lossy(&body).contains("\"status\":429"),
        "{body:?}"
    );

    let grpc = request("acme").insert_header(("content-type", "application/grpc"));
    let answer = call_service(&app, grpc.to_request()).await;
    assert_eq!(
        (answer.status(), text(&answer, "grpc-status")),
        (StatusCode::OK, "8".to_owned())
    );
    assert!(
        to_bytes(answer.into_body())
            .await
            .expect("a body")
            .is_empty()
    );
}

struct Tenant(&'static str);

#[tokio::test]
async fn keys_and_costs_find_in_actix_what_they_find_in_tower() {
    let kit = TestAgent::new();
    let rate = || kit.agent().rate("api.search");
    let proxies = vec!["10.0.0.0/8".parse().expect("a network")];
    let of_session = LimitLayer::new(rate(), key::extension(|tenant: &Tenant| tenant.0))
        .skip(|head| head.method() == "OPTIONS")
        .cost(|head| if head.query() == Some("q=x") { 3 } else { 1 });
    let undecided = of_session.undecided();
    // The layer that is wrapped last is asked first.
    let app = App::new()
        .wrap(LimitLayer::new(rate(), key::client_address(proxies)))
        .wrap(LimitLayer::new(rate(), key::path_segment(0)))
        .wrap(of_session)
        .wrap_fn(|request, inner| {
            if request.headers().contains_key("x-session") {
                request.extensions_mut().insert(Tenant("acme"));
            }
            inner.call(request)
        });
    let app = init_service(app.default_service(web::to(HttpResponse::Ok))).await;
    let session = TestRequest::with_uri("/search?q=x").insert_header(("x-session", "1"));
    let session = session
        .peer_addr("10.0.0.1:1".parse().expect("an address"))
        .append_header(("X-Forwarded-For", "8.8.8.8, 203.0.113.7"));
    call_service(&app, session.to_request()).await;
    let nobody = TestRequest::with_uri("/").peer_addr("203.0.113.9:1".parse().expect("an address"));
    call_service(&app, nobody.to_request()).await;
    let preflight = TestRequest::with_uri("/search").method(actix_web::http::Method::OPTIONS);
    call_service(&app, preflight.to_request()).await;
    let counted: Vec<String> = kit
        .recorded()
        .into_iter()
        .map(|one| format!("{} {:?}", one.domain, one.outcome))
        .collect();
    let expected = [
        "acme Hit { copies: 3",
        "search Hit { copies: 1",
        "203.0.113.7 Hit",
        "203.0.113.9 Hit",
        "search Hit",
    ];
    assert_eq!(counted.len(), expected.len(), "{counted:?}");
    for (one, expected) in counted.iter().zip(expected) {
        assert!(one.starts_with(expected), "{counted:?}");
    }
    assert_eq!(undecided.count(), 1);
}

#[tokio::test]
async fn encoded_spellings_of_a_path_are_limited_as_the_path() {
    let kit = TestAgent::new();
    let layer = LimitLayer::new(kit.agent().rate("api.search"), key::path_segment(1))
        .cost(|head| if head.path() == "/t/acme" { 3 } else { 1 });
    let tenant = |path: web::Path<String>| async { path.into_inner() };
    let app = App::new()
        .wrap(layer)
        .route("/t/{tenant}", web::get().to(tenant));
    let app = init_service(app).await;
    for (uri, domain, copies) in [
        ("/t/acme", "acme", 3),
        ("/t/%61cme", "acme", 3),
        ("/%74/acme", "acme", 3),
        ("/t/a%2Fb", "a/b", 1),
        ("/t/%2561cme", "%61cme", 1),
        ("/t/%C3%BCber", "\u{fc}ber", 1),
    ] {
        let answer = call_service(&app, TestRequest::with_uri(uri).to_request()).await;
        let seen = to_bytes(answer.into_body()).await.expect("a body");
        assert_eq!(seen, domain, "the handler of {uri}");
        let recorded = kit.recorded();
        let hit = recorded.last().expect("a hit");
        assert_eq!(&*hit.domain, domain, "{uri}");
        let outcome = format!("{:?}", hit.outcome);
        assert!(
            outcome.starts_with(&format!("Hit {{ copies: {copies}")),
            "{uri}: {outcome}"
        );
    }
}

/// A body whose parts arrive when the test sends them.
struct Parts(tokio::sync::mpsc::UnboundedReceiver<Bytes>);

impl MessageBody for Parts {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.0.poll_recv(context).map(|part| part.map(Ok))
    }
}

/// A handler that keeps its copies for longer than the response, as a tunnel does; and where they come out.
fn tunnel() -> (
    impl Fn(HttpRequest) -> Ready<HttpResponse> + Clone + 'static,
    mpsc::Receiver<HeldCopies>,
) {
    let (sender, kept) = mpsc::channel::<HeldCopies>();
    let tunnel = move |request: HttpRequest| {
        let held = request.extensions().get::<HeldCopies>().cloned();
        sender
            .send(held.expect("copies"))
            .expect("the test listens");
        ready(HttpResponse::Ok().finish())
    };
    (tunnel, kept)
}

#[tokio::test]
async fn actix_holds_copies_while_the_request_uses_them() {
    let kit = TestAgent::new();
    let copies = kit.agent().copies("api.exports");
    let (tunnel, kept) = tunnel();
    let fails = || async { Err::<HttpResponse, Error>(actix_web::error::ErrorBadGateway("no")) };
    let app = App::new()
        .service(web::resource("/search").to(|| async { "found" }))
        .service(web::resource("/fails").to(fails))
        .service(web::resource("/tunnel").to(tunnel))
        .service(web::resource("/waits").to(std::future::pending::<HttpResponse>));
    let app = init_service(app.wrap(by_tenant_at_a_time(kit.agent()))).await;
    let answer = call_service(&app, request("acme").to_request()).await;
    assert_eq!(copies.held("acme"), 1, "until the body has been sent");
    assert_eq!(to_bytes(answer.into_body()).await.expect("a body"), "found");
    assert_eq!(copies.held("acme"), 0);
    // An error's response has a body, too.
    let answer = app.call(request("acme").uri("/fails").to_request()).await;
    drop(answer);
    assert_eq!(copies.held("acme"), 0);
    let waits = app.call(request("acme").uri("/waits").to_request());
    assert!(
        tokio::time::timeout(Duration::from_millis(1), waits)
            .await
            .is_err()
    );
    assert_eq!(copies.held("acme"), 0);
    // A handler that outlives the response keeps its copies.
    let answer = call_service(&app, request("acme").uri("/tunnel").to_request()).await;
    drop(answer);
    let tunnel = kept.recv().expect("a tunnel");
    assert_eq!((tunnel.copies(), copies.held("acme")), (1, 1));
    drop(tunnel);
    assert_eq!(copies.held("acme"), 0);
}

#[tokio::test]
async fn a_handler_of_actix_keeps_the_copies_of_two_layers() {
    let kit = TestAgent::new();
    let seats = kit.agent().copies("api.seats");
    let exports = kit.agent().copies("api.exports");
    let outer = HoldLayer::new(seats.clone(), key::header("x-tenant"));
    let (tunnel, kept) = tunnel();
    let app = App::new().default_service(web::to(tunnel));
    let app = app.wrap(by_tenant_at_a_time(kit.agent())).wrap(outer);
    let app = init_service(app).await;
    drop(call_service(&app, request("acme").to_request()).await);
    let both = kept.recv().expect("copies");
    assert_eq!((seats.held("acme"), exports.held("acme")), (1, 1));
    drop(both);
    assert_eq!((seats.held("acme"), exports.held("acme")), (0, 0));
}

/// A server of actix-web, whose first response has a body of these parts.
fn served(agent: &Agent, parts: tokio::sync::mpsc::UnboundedReceiver<Bytes>) -> SocketAddr {
    let layer = by_tenant_at_a_time(agent);
    let parts = std::sync::Arc::new(std::sync::Mutex::new(Some(parts)));
    let (sender, address) = mpsc::channel();
    std::thread::spawn(move || {
        let export = move || {
            let parts = parts.lock().expect("nobody panicked").take();
            async move {
                match parts {
                    Some(parts) => HttpResponse::Ok().body(Parts(parts)),
                    None => HttpResponse::Ok().body("exported"),
                }
            }
        };
        let app = move || {
            App::new()
                .wrap(layer.clone())
                .default_service(web::to(export.clone()))
        };
        let server = HttpServer::new(app).workers(1).disable_signals();
        let server = server.bind("127.0.0.1:0").expect("a port");
        sender.send(server.addrs()[0]).expect("the test listens");
        actix_web::rt::System::new().block_on(server.run())
    });
    address.recv().expect("an address")
}

fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(WITHIN)).expect("a timeout");
    let request = "GET /export HTTP/1.1\r\nhost: x\r\nx-tenant: acme\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

/// Reads until this text arrives.
fn read_until(stream: &mut TcpStream, expected: &str) -> String {
    let (mut read, mut some) = (String::new(), [0; 1_024]);
    while !read.contains(expected) {
        let length = stream.read(&mut some).expect("in time");
        assert_ne!(length, 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&some[..length]));
    }
    read
}

#[test]
fn a_server_of_actix_holds_copies_until_a_body_is_sent() {
    let kit = TestAgent::new();
    kit.copies_limit("api.exports", 1);
    let copies = kit.agent().copies("api.exports");
    let (parts, body) = tokio::sync::mpsc::unbounded_channel();
    let address = served(kit.agent(), body);
    let mut first = ask(address);
    parts.send(Bytes::from("one")).expect("a body");
    assert!(read_until(&mut first, "one").starts_with("HTTP/1.1 200"));
    let refused = read_until(&mut ask(address), "\"status\":429");
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.contains("concurrent-requests"), "{refused}");
    assert_eq!(copies.held("acme"), 1);
    drop(parts);
    read_until(&mut first, "0\r\n\r\n");
    // The end of the body may arrive here before the server has dropped it, or after.
    let until = Instant::now() + WITHIN;
    while copies.held("acme") != 0 {
        assert!(Instant::now() < until, "they are held for ever");
        std::thread::yield_now();
    }
    assert!(read_until(&mut ask(address), "exported").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_call_that_actix_lets_through_allocates_nothing_here() {
    let kit = TestAgent::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let bare = || {
        fn_service(|request: actix_web::dev::ServiceRequest| {
            std::future::ready(Ok::<_, Error>(
                request.into_response(HttpResponse::Ok().finish()),
            ))
        })
    };
    let allocations = |service: &dyn Fn(actix_web::dev::ServiceRequest)| {
        let mut requests: Vec<_> = (0..101).map(|_| request("acme").to_srv_request()).collect();
        // The thread's own buffers are allocated here.
        service(requests.pop().expect("a request"));
        allocation_counter::measure(|| requests.drain(..).for_each(service)).count_total
    };
    let inner = runtime
        .block_on(actix_web::dev::ServiceFactory::new_service(&bare(), ()))
        .expect("a service");
    let without = allocations(&|request| {
        let answer = runtime.block_on(inner.call(request)).expect("never fails");
        assert_eq!(answer.status(), StatusCode::OK);
    });
    let inner = runtime
        .block_on(actix_web::dev::ServiceFactory::new_service(&bare(), ()))
        .expect("a service");
    let layer = by_tenant(&kit).skip(|head| head.path() == "/healthz");
    let layered = actix_web::dev::Transform::new_transform(&layer, inner);
    let layered = runtime.block_on(layered).expect("a service");
    let with = allocations(&|request| {
        let answer = runtime
            .block_on(layered.call(request))
            .expect("never fails");
        assert_eq!(answer.status(), StatusCode::OK);
    });
    assert_eq!((with, kit.recorded().len()), (without, 101));
}
