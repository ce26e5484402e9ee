//! Tests of gRPC services beside rate limits: Kuadrant's methods, external authorization, health; and of what a blind
//! gateway tells Envoy.

use std::collections::HashMap;
use std::time::Duration;

use crate::support::{Running, named};
use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::{Address as Addressed, SocketAddress};
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer, Request};
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{AttributeContext, CheckRequest, CheckResponse};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate_agent::testing::{Outcome, WhenBlind};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

async fn kuadrant(running: &Running, method: &str, copies: u64) -> i32 {
    let mut client = tonic::client::Grpc::new(running.channel());
    client.ready().await.expect("a connection");
    let path = format!("/kuadrant.service.ratelimit.v1.RateLimitService/{method}");
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![named("llm.tokens", "acme", Some(copies))],
        hits_addend: 0,
    };
    let codec: tonic_prost::ProstCodec<RateLimitRequest, RateLimitResponse> = Default::default();
    let path = path.parse().expect("a path");
    let answer = client
        .unary(tonic::Request::new(request), path, codec)
        .await;
    answer.expect("an answer").into_inner().overall_code
}

#[tokio::test]
async fn kuadrant_checks_without_counting_and_reports_without_asking() {
    let running = Running::start().await;
    let (ok, over) = (Code::Ok as i32, Code::OverLimit as i32);
    assert_eq!(kuadrant(&running, "CheckRateLimit", 5).await, ok);
    assert_eq!(running.kit.recorded(), []);
    running
        .kit
        .deny("llm.tokens", "acme", Duration::from_secs(5));
    assert_eq!(kuadrant(&running, "CheckRateLimit", 5).await, over);
    assert_eq!(kuadrant(&running, "Report", 7).await, ok);
    let recorded: Vec<Outcome> = running
        .kit
        .recorded()
        .iter()
        .map(|one| one.outcome)
        .collect();
    assert_eq!(recorded, [Outcome::Charge { copies: 7 }]);
    running.end().await;
}

/// Envoy sends the body with 429, and does not ask for a status.
#[tokio::test]
async fn a_blind_refusal_has_the_status_with_which_envoy_sends_it() {
    let running = Running::start().await;
    running.kit.when_blind("api.search", WhenBlind::Closed);
    running.kit.go_blind();
    let refused = running
        .ask("edge", &[named("api.search", "acme", None)])
        .await;
    assert_eq!(refused.overall_code, Code::OverLimit as i32);
    let body = String::from_utf8(refused.raw_body).expect("a text");
    assert!(body.contains(r#""status":429"#), "{body}");
    assert!(body.contains("temporary-reduced-capacity"), "{body}");
    running.end().await;
}

#[tokio::test]
async fn a_blind_refusal_by_the_local_rate_states_when_to_retry() {
    let running = Running::start().await;
    let local = WhenBlind::Local {
        limit: 1,
        window: Duration::from_secs(5),
    };
    running.kit.when_blind("api.search", local);
    running.kit.go_blind();
    let route = [("resource", "api.search"), ("domain", "name:acme")];
    assert_eq!(status(&check(&running, &route, &[]).await), None);
    let refused = check(&running, &route, &[]).await;
    assert_eq!(status(&refused), Some(429));
    let Some(HttpResponse::DeniedResponse(refused)) = refused.http_response else {
        panic!("a refusal");
    };
    let headers = refused.headers.iter().filter_map(|one| one.header.as_ref());
    let mut waits = headers.filter(|header| header.key == "retry-after");
    assert_eq!(waits.next().expect("it is known").value, "5");
    running.end().await;
}

async fn check(
    running: &Running,
    route: &[(&str, &str)],
    headers: &[(&str, &str)],
) -> CheckResponse {
    let texts = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let address = Address::SocketAddress(SocketAddress {
        address: "203.0.113.7".to_owned(),
        ..SocketAddress::default()
    });
    let attributes = AttributeContext {
        source: Some(Peer {
            address: Some(Addressed {
                address: Some(address),
            }),
            ..Peer::default()
        }),
        request: Some(Request {
            http: Some(HttpRequest {
                headers: texts(headers),
                ..HttpRequest::default()
            }),
            ..Request::default()
        }),
        context_extensions: texts(route),
        ..AttributeContext::default()
    };
    let mut client = AuthorizationClient::new(running.channel());
    let request = CheckRequest {
        attributes: Some(attributes),
    };
    client.check(request).await.expect("an answer").into_inner()
}

fn status(response: &CheckResponse) -> Option<i32> {
    match response.http_response.as_ref()? {
        HttpResponse::DeniedResponse(denied) => denied.status.as_ref().map(|status| status.code),
        _ => None,
    }
}

#[tokio::test]
async fn a_check_decides_as_authorize_does() {
    let running = Running::start().await;
    let seconds = Duration::from_secs(5);
    running.kit.deny("api.search", "acme", seconds);
    running.kit.deny("api.search", "203.0.113.7", seconds);
    let by_header = [("resource", "api.search"), ("domain", "header:x-tenant")];
    let by_address = [("resource", "api.search"), ("domain", "ip")];
    let tenant = |name| [(":path", "/"), ("x-tenant", name)];
    let refused = check(&running, &by_header, &tenant("acme")).await;
    assert_eq!(status(&refused), Some(429));
    assert_ne!(refused.status.expect("a status").code, 0);
    let Some(HttpResponse::DeniedResponse(denied)) = refused.http_response else {
        panic!("a refusal");
    };
    let fields: Vec<String> = denied
        .headers
        .into_iter()
        .filter_map(|of| Some(of.header?.key))
        .collect();
    assert!(
        fields.iter().any(|field| field == "retry-after"),
        "{fields:?}"
    );
    assert!(denied.body.contains("quota-exceeded"), "{}", denied.body);
    let other = check(&running, &by_header, &tenant("other")).await;
    assert_eq!(other.status.as_ref().map(|status| status.code), Some(0));
    assert_eq!(status(&other), None);
    // The connected peer, whatever a client writes.
    for forged in [&[][..], &[("x-forwarded-for", "8.8.8.8")]] {
        let refused = check(&running, &by_address, forged).await;
        assert_eq!(status(&refused), Some(429), "{forged:?}");
    }
    let as_403 = [
        ("resource", "api.search"),
        ("domain", "ip"),
        ("denied", "403"),
    ];
    assert_eq!(status(&check(&running, &as_403, &[]).await), Some(403));
    for undecided in [&[][..], &[("resource", "api.search")]] {
        let answer = check(&running, undecided, &[]).await;
        assert_eq!(status(&answer), None, "{undecided:?}");
    }
    running.end().await;
}

#[tokio::test]
async fn each_service_is_healthy() {
    let running = Running::start().await;
    let mut client = HealthClient::new(running.channel());
    for service in [
        "",
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.auth.v3.Authorization",
        "kuadrant.service.ratelimit.v1.RateLimitService",
    ] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = client.check(request).await.expect("an answer");
        assert_eq!(answer.into_inner().status, 1, "{service}");
    }
    running.end().await;
}

#[tokio::test]
async fn reflection_lists_the_services_and_their_messages() {
    let running = Running::start().await;
    let mut client = ServerReflectionClient::new(running.channel());
    let ask = |request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    };
    let of = |symbol: &str| MessageRequest::FileContainingSymbol(symbol.to_owned());
    let requests = tokio_stream::iter([
        ask(MessageRequest::ListServices(String::new())),
        ask(of("kuadrant.service.ratelimit.v1.RateLimitService")),
        ask(of("envoy.service.auth.v3.CheckRequest")),
        ask(of(
            "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
        )),
    ]);
    let mut answers = client
        .server_reflection_info(requests)
        .await
        .expect("answers")
        .into_inner();
    let services = answers.message().await.expect("an answer").expect("one");
    let Some(MessageResponse::ListServicesResponse(services)) = services.message_response else {
        panic!("services: {services:?}");
    };
    for name in [
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.auth.v3.Authorization",
        "kuadrant.service.ratelimit.v1.RateLimitService",
        "grpc.health.v1.Health",
    ] {
        assert!(
            services.service.iter().any(|of| of.name == name),
            "{name}: {services:?}"
        );
    }
    for _ in 0..3 {
        let file = answers.message().await.expect("an answer").expect("one");
        let is_file = matches!(
            file.message_response,
            Some(MessageResponse::FileDescriptorResponse(_))
        );
        assert!(is_file, "{file:?}");
    }
    drop(answers);
    running.end().await;
}
