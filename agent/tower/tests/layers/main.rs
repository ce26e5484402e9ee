//! Tests of the layers, before services of tower, of axum and of actix-web.

mod actix;
mod answers;
mod keys;

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use tollgate_agent::Copies;
use tollgate_agent::testing::TestAgent;
use tollgate_tower::{DoorBody, HeldCopies, HoldLayer, LimitLayer, key};
use tower::{Layer as _, ServiceExt as _, service_fn};

type Answered = Response<DoorBody<Full<Bytes>>>;

fn request(tenant: &str) -> http::request::Builder {
    Request::builder().uri("/search").header("x-tenant", tenant)
}

fn empty(builder: http::request::Builder) -> Request<Empty<Bytes>> {
    builder.body(Empty::new()).expect("a request")
}

async fn found<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("found")))
}

async fn ask(layer: &LimitLayer, request: Request<Empty<Bytes>>) -> Answered {
    layer
        .layer(service_fn(found))
        .oneshot(request)
        .await
        .expect("never fails")
}

fn by_tenant(kit: &TestAgent) -> LimitLayer {
    LimitLayer::new(kit.agent().rate("api.search"), key::header("x-tenant"))
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map(|value| value.to_str().expect("text"));
    value.unwrap_or("(none)").to_owned()
}

#[tokio::test]
async fn a_call_that_is_let_through_is_the_services_own() {
    let kit = TestAgent::new();
    let answer = ask(&by_tenant(&kit), empty(request("acme"))).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.headers().is_empty(), "{:?}", answer.headers());
    let body = answer.into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert_eq!(body.collect().await.expect("a body").to_bytes(), "found");
    let recorded = kit.recorded();
    assert_eq!((recorded.len(), &*recorded[0].domain), (1, "acme"));
}

#[tokio::test]
async fn a_refused_call_never_reaches_the_service_and_can_retry() {
    let kit = TestAgent::new();
    kit.deny("api.search", "acme", Duration::from_millis(1_500));
    let never = service_fn(|_: Request<Empty<Bytes>>| async {
        panic!("it was let through");
        #[allow(unreachable_code)]
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let layer = by_tenant(&kit);
    let answer = layer.layer(never).oneshot(empty(request("acme"))).await;
    let (head, body) = answer.expect("never fails").into_parts();
    assert_eq!(head.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(&head.headers, "retry-after"), "2");
    assert_eq!(
        text(&head.headers, "content-type"),
        "application/problem+json"
    );
    assert_ne!(text(&head.headers, "x-tollgate-code"), "(none)");
    let body = body.collect().await.expect("a body").to_bytes();
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains("\"status\":429"), "{body}");
    assert!(!body.contains("acme"), "{body}");
    // Other domains are not affected.
    let other = ask(&layer, empty(request("globex"))).await;
    assert_eq!(other.status(), StatusCode::OK);
    kit.advance(Duration::from_secs(2));
    let again = ask(&layer, empty(request("acme"))).await;
    assert_eq!(again.status(), StatusCode::OK);
}

#[tokio::test]
async fn calls_without_cost_or_domain_are_not_counted() {
    let kit = TestAgent::new();
    let layer = by_tenant(&kit)
        .skip(|head| head.path() == "/healthz")
        .cost(|head| match head.method() {
            "OPTIONS" => 0,
            "POST" => 3,
            _ => 1,
        });
    ask(&layer, empty(Request::builder().uri("/healthz"))).await;
    ask(&layer, empty(request("acme").method("OPTIONS"))).await;
    assert_eq!((layer.undecided().count(), kit.recorded().len()), (0, 0));
    let nobody = ask(&layer, empty(Request::builder().uri("/search"))).await;
    assert_eq!(nobody.status(), StatusCode::OK);
    assert_eq!((layer.undecided().count(), kit.recorded().len()), (1, 0));
    let layer = layer.or_domain("anonymous");
    ask(&layer, empty(Request::builder().uri("/search"))).await;
    ask(&layer, empty(request("acme").method("POST"))).await;
    assert_eq!(layer.undecided().count(), 1);
    let recorded: Vec<String> = kit
        .recorded()
        .into_iter()
        .map(|one| format!("{} {:?}", one.domain, one.outcome))
        .collect();
    assert!(
        recorded[0].starts_with("anonymous Hit { copies: 1"),
        "{recorded:?}"
    );
    assert!(
        recorded[1].starts_with("acme Hit { copies: 3"),
        "{recorded:?}"
    );
}

#[tokio::test]
async fn responses_near_the_limit_show_what_is_left() {
    let kit = TestAgent::new();
    kit.near("api.search", "acme", 7, 50, Duration::from_secs(1));
    let layer = by_tenant(&kit);
    let answer = ask(&layer, empty(request("acme"))).await;
    assert!(text(answer.headers(), "ratelimit").contains(";r=6"));
    let other = ask(&layer, empty(request("globex"))).await;
    assert_eq!(text(other.headers(), "ratelimit"), "(none)");
    kit.limit("api.search", 50, Duration::from_secs(1));
    let other = ask(&layer.tell_always(), empty(request("globex"))).await;
    assert_eq!(
        text(other.headers(), "ratelimit-policy"),
        "\"tier-1\";q=50;w=1"
    );
}

#[tokio::test]
async fn older_headers_are_sent_on_request() {
    let kit = TestAgent::new();
    kit.near("api.search", "near", 7, 50, Duration::from_secs(1));
    kit.deny("api.search", "denied", Duration::from_secs(3));
    let older = |answer: &Answered| {
        ["limit", "remaining", "reset"]
            .map(|name| text(answer.headers(), &format!("x-ratelimit-{name}")))
    };
    let layer = by_tenant(&kit).legacy_headers();
    for (tenant, expected) in [
        ("near", ["50", "6", "1"]),
        ("denied", ["1", "0", "3"]),
        ("globex", ["(none)"; 3]),
    ] {
        let answer = ask(&layer, empty(request(tenant))).await;
        assert_eq!(older(&answer), expected, "{tenant}");
    }
    let answer = ask(&by_tenant(&kit), empty(request("denied"))).await;
    assert_eq!(older(&answer), ["(none)"; 3]);

    kit.full("api.exports", "acme");
    let exports = kit.agent().copies("api.exports");
    let layer = HoldLayer::new(exports, key::header("x-tenant")).legacy_headers();
    let service = layer.layer(service_fn(found::<Empty<Bytes>>));
    let answer = service.oneshot(empty(request("acme"))).await;
    let answer = answer.expect("never fails");
    assert_eq!(
        text(answer.headers(), "ratelimit-policy"),
        "\"copies\";q=1;qu=\"concurrent-requests\""
    );
    assert_eq!(older(&answer), ["1", "0", "(none)"]);
}

#[tokio::test]
async fn a_tenant_whose_name_is_not_ascii_is_limited_too() {
    let kit = TestAgent::new();
    kit.deny("api.search", "Z\u{fc}rich", Duration::from_secs(60));
    kit.deny("api.search", "\u{fffd}", Duration::from_secs(60));
    let layer = by_tenant(&kit);
    for (sent, status) in [
        ("Z\u{fc}rich".as_bytes(), 429),
        (&b"\xfc"[..], 429),
        (" \u{fc}ber ".as_bytes(), 200),
        (&b" "[..], 200),
    ] {
        let value = http::HeaderValue::from_bytes(sent).expect("a value");
        let mut request = request("acme");
        let headers = request.headers_mut().expect("valid so far");
        headers.insert("x-tenant", value);
        assert_eq!(
            ask(&layer, empty(request)).await.status(),
            status,
            "{sent:?}"
        );
    }
    let recorded = kit.recorded();
    let domains: Vec<&str> = recorded.iter().map(|hit| &*hit.domain).collect();
    let named = ["Z\u{fc}rich", "\u{fffd}", "\u{fc}ber"];
    assert_eq!(domains, named, "all but the one without a domain");
}

/// The service's mistake: no limit is reached, and waiting does not help.
#[tokio::test]
async fn a_layer_of_another_kind_than_its_resource_answers_500() {
    let kit = TestAgent::new();
    kit.strict("api.licences");
    kit.limited_by_copies("api.search");
    kit.most_at_once("api.exports", 5);
    let at_a_time = |resource| {
        let layer = HoldLayer::new(kit.agent().copies(resource), key::header("x-tenant"));
        layer
            .layer(service_fn(found))
            .oneshot(empty(request("acme")))
    };
    let often = by_tenant(&kit).layer(service_fn(found));
    for answer in [
        at_a_time("api.licences").await,
        at_a_time("api.exports").await,
        often.oneshot(empty(request("acme"))).await,
    ] {
        let answer = answer.expect("never fails");
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(text(answer.headers(), "retry-after"), "(none)");
    }
    assert_eq!(kit.held(), []);
}

/// A body of two parts, the second of which only arrives when it is polled for.
fn parts() -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    let parts = [Bytes::from("one"), Bytes::from("two")];
    let frames = parts
        .into_iter()
        .map(|part| Ok::<_, Infallible>(Frame::data(part)));
    StreamBody::new(Frames(frames))
}

/// An iterator as a stream.
struct Frames<I>(I);

impl<I: Iterator + Unpin> futures_core::Stream for Frames<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[tokio::test]
async fn copies_are_held_to_the_end_of_the_body() {
    let kit = TestAgent::new();
    kit.copies_limit("api.exports", 2);
    let copies = kit.agent().copies("api.exports");
    let layer = HoldLayer::new(copies.clone(), key::header("x-tenant"));
    let service = || {
        layer.layer(service_fn(|_: Request<Empty<Bytes>>| async {
            Ok::<_, Infallible>(Response::new(parts()))
        }))
    };
    let answer = service()
        .oneshot(empty(request("acme")))
        .await
        .expect("never fails");
    let mut body = answer.into_body();
    assert_eq!(copies.held("acme"), 1);
    body.frame().await.expect("a part").expect("no fault");
    assert_eq!(copies.held("acme"), 1);
    body.frame().await.expect("a part").expect("no fault");
    assert!(body.frame().await.is_none());
    assert_eq!(
        copies.held("acme"),
        0,
        "the body has ended, though it is not dropped"
    );
    // A body that is not read to its end, and a call that is dropped.
    let answer = service()
        .oneshot(empty(request("acme")))
        .await
        .expect("never fails");
    assert_eq!(copies.held("acme"), 1);
    drop(answer);
    assert_eq!(copies.held("acme"), 0);
    let waiting = layer.layer(service_fn(|_: Request<Empty<Bytes>>| async {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
    }));
    let waiting = tokio::time::timeout(
        Duration::from_millis(1),
        waiting.oneshot(empty(request("acme"))),
    );
    assert!(waiting.await.is_err());
    assert_eq!(copies.held("acme"), 0);
}

#[tokio::test]
async fn concurrent_requests_hold_no_more_copies_than_the_limit() {
    let kit = TestAgent::new();
    kit.copies_limit("api.exports", 1);
    let copies = kit.agent().copies("api.exports");
    let layer = HoldLayer::new(copies.clone(), key::header("x-tenant"));
    let service = || layer.layer(service_fn(found));
    let first = service()
        .oneshot(empty(request("acme")))
        .await
        .expect("never fails");
    let second = service()
        .oneshot(empty(request("acme")))
        .await
        .expect("never fails");
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    let third = service()
        .oneshot(empty(request("acme")))
        .await
        .expect("never fails");
    assert_eq!(third.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_task_that_outlives_the_response_keeps_its_copies() {
    let kit = TestAgent::new();
    let copies = kit.agent().copies("api.tunnels");
    let layer = HoldLayer::new(copies.clone(), key::header("x-tenant"));
    let (kept, mut tunnels) = tokio::sync::mpsc::unbounded_channel();
    let service = layer.layer(service_fn(move |request: Request<Empty<Bytes>>| {
        let held = request.extensions().get::<HeldCopies>().cloned();
        kept.send(held.expect("copies")).expect("somebody listens");
        async {
            let switching = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            Ok::<_, Infallible>(switching.body(Empty::<Bytes>::new()).expect("a response"))
        }
    }));
    let answer = service
        .oneshot(empty(request("acme")))
        .await
        .expect("never fails");
    drop(answer);
    let tunnel = tunnels.recv().await.expect("a tunnel");
    assert_eq!((tunnel.copies(), copies.held("acme")), (1, 1));
    drop(tunnel);
    assert_eq!(copies.held("acme"), 0);
}

#[tokio::test]
async fn a_task_behind_two_layers_keeps_the_copies_of_both() {
    let kit = TestAgent::new();
    let [tunnels, seats] = ["api.tunnels", "api.seats"].map(|name| kit.agent().copies(name));
    let layer = |copies: &Copies| HoldLayer::new(copies.clone(), key::header("x-tenant"));
    let (kept, mut held) = tokio::sync::mpsc::unbounded_channel();
    let service = service_fn(move |request: Request<Empty<Bytes>>| {
        let copies = request.extensions().get::<HeldCopies>().cloned();
        kept.send(copies.expect("copies"))
            .expect("somebody listens");
        found(request)
    });
    let service = layer(&seats).layer(layer(&tunnels).layer(service));
    let answer = service.oneshot(empty(request("acme"))).await;
    drop(answer.expect("never fails"));
    let both = held.recv().await.expect("copies");
    assert_eq!((tunnels.held("acme"), seats.held("acme")), (1, 1));
    assert_eq!(
        format!("{both:?}"),
        r#"HeldCopies(1 of "api.tunnels", HeldCopies(1 of "api.seats"))"#
    );
    drop(both);
    assert_eq!((tunnels.held("acme"), seats.held("acme")), (0, 0));
}

#[tokio::test]
async fn both_layers_work_with_routes_of_axum() {
    let kit = TestAgent::new();
    kit.deny("api.search", "denied", Duration::from_secs(5));
    let copies = kit.agent().copies("api.exports");
    let routes: Router = Router::new()
        .route("/search", get(|| async { "found" }))
        .layer(HoldLayer::new(copies.clone(), key::header("x-tenant")))
        .layer(by_tenant(&kit));
    for (tenant, status) in [
        ("acme", StatusCode::OK),
        ("denied", StatusCode::TOO_MANY_REQUESTS),
    ] {
        let request = request(tenant).body(axum::body::Body::empty());
        let answer = routes.clone().oneshot(request.expect("a request")).await;
        assert_eq!(answer.expect("never fails").status(), status, "{tenant}");
    }
    assert_eq!(copies.held("acme"), 0);
}

#[test]
fn a_call_that_is_let_through_allocates_nothing_here() {
    let kit = TestAgent::new();
    let layer = by_tenant(&kit).skip(|head| head.path() == "/healthz");
    // A service that allocates nothing itself.
    let inner = service_fn(|_: Request<Empty<Bytes>>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))))
    });
    let mut service = layer.layer(inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let mut requests: Vec<_> = (0..101).map(|_| empty(request("acme"))).collect();
    let mut call = |request| {
        let answer = runtime.block_on(tower::Service::call(&mut service, request));
        assert_eq!(answer.expect("never fails").status(), StatusCode::OK);
    };
    // The thread's own buffers are allocated here.
    call(requests.pop().expect("a request"));
    let mut bare = 0;
    let count = allocation_counter::measure(|| {
        for request in requests.drain(..) {
            call(request);
            bare += 1;
        }
    });
    assert_eq!((bare, count.count_total), (100, 0));
}
