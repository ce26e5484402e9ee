//! Tests of what a layer answers, and of what it adds to the answers of others.

use std::time::Duration;

use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpResponse, web};
use http::StatusCode;
use http_body::Body as _;
use tollgate_agent::testing::TestAgent;
use tollgate_tower::{LimitLayer, key};
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
