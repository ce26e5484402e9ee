//! Tests of what a layer answers, and of what it adds to the answers of others.

use std::time::Duration;

use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpResponse, web};
use http::StatusCode;
use http_body::Body as _;
use tollgate_agent::testing::TestAgent;
use tollgate_tower::{HoldLayer, LimitLayer, key};
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::{ask, by_tenant, empty, found, request, text};

#[tokio::test]
async fn a_refused_grpc_call_has_a_grpc_status() {
    let kit = TestAgent::new();
    kit.deny("api.search", "acme", Duration::from_secs(3));
    let grpc = request("acme").header("content-type", "application/grpc+proto");
    let answer = ask(&by_tenant(&kit), empty(grpc)).await;
    let headers = answer.headers();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(text(headers, "grpc-status"), "8");
    assert_eq!(text(headers, "grpc-retry-pushback-ms"), "3000");
    assert_eq!(text(headers, "content-type"), "application/grpc");
    assert!(text(headers, "grpc-message").starts_with("rate limited"));
    assert!(answer.body().is_end_stream());
}

#[tokio::test]
async fn a_grpc_call_that_cannot_succeed_is_not_tried_again() {
    let kit = TestAgent::new();
    kit.most_at_once("api.search", 5);
    kit.limited_by_copies("api.exports");
    kit.full("api.seats", "acme");
    let grpc = || empty(request("acme").header("content-type", "application/grpc"));
    let search = by_tenant(&kit).cost(|_| 50);
    let exports = LimitLayer::new(kit.agent().rate("api.exports"), key::header("x-tenant"));
    for (layer, status) in [(search, "8"), (exports, "13")] {
        let answer = ask(&layer, grpc()).await;
        assert_eq!(text(answer.headers(), "grpc-status"), status);
        assert_eq!(text(answer.headers(), "grpc-retry-pushback-ms"), "-1");
    }
    // Copies may be given back at any time.
    let seats = HoldLayer::new(kit.agent().copies("api.seats"), key::header("x-tenant"));
    let answer = seats.layer(service_fn(found)).oneshot(grpc()).await;
    let answer = answer.expect("never fails");
    assert_eq!(text(answer.headers(), "grpc-status"), "8");
    assert_eq!(text(answer.headers(), "grpc-retry-pushback-ms"), "(none)");
}

#[tokio::test]
async fn a_refused_call_of_grpc_web_is_answered_as_such() {
    let kit = TestAgent::new();
    kit.deny("api.search", "acme", Duration::from_secs(3));
    for (asked, answered) in [
        ("application/grpc", "application/grpc"),
        ("Application/gRPC; charset=utf-8", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web"),
        ("application/grpc-web-text", "application/grpc-web-text"),
        ("application/grpcurl", "application/problem+json"),
        ("application/json", "application/problem+json"),
    ] {
        let call = request("acme").header("content-type", asked);
        let answer = ask(&by_tenant(&kit), empty(call)).await;
        let is_grpc = answer.status() == StatusCode::OK;
        assert_eq!(is_grpc, answered != "application/problem+json", "{asked}");
        assert_eq!(text(answer.headers(), "content-type"), answered, "{asked}");
    }
}

#[tokio::test]
async fn an_outer_layer_leaves_the_fields_of_an_inner_refusal() {
    let kit = TestAgent::new();
    kit.near("api.all", "acme", 7, 50, Duration::from_secs(1));
    kit.deny("api.search", "acme", Duration::from_secs(3));
    let all = || LimitLayer::new(kit.agent().rate("api.all"), key::header("x-tenant"));
    let alone = ask(&by_tenant(&kit), empty(request("acme"))).await;
    let refused = text(alone.headers(), "ratelimit");
    assert!(refused.contains(";r=0"), "{refused}");
    let service = by_tenant(&kit).layer(service_fn(found));
    let answer = all().layer(service).oneshot(empty(request("acme"))).await;
    let answer = answer.expect("never fails");
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    for name in ["ratelimit", "ratelimit-policy"] {
        assert_eq!(text(answer.headers(), name), text(alone.headers(), name));
    }
    // actix-web's layers, of which the last is the outer one.
    let app = App::new().default_service(web::to(HttpResponse::Ok));
    let app = init_service(app.wrap(by_tenant(&kit)).wrap(all())).await;
    let acme = TestRequest::default().insert_header(("x-tenant", "acme"));
    let answer = call_service(&app, acme.to_request()).await;
    let field = answer.headers().get("ratelimit").expect("a limit");
    assert_eq!(field.to_str().expect("text"), refused);
}
