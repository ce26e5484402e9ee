//! Tests of reports that are handled before the requests whose end they report.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::{Running, descriptor};

const OK: i32 = Code::Ok as i32;
const OVER: i32 = Code::OverLimit as i32;

fn taken(request: &str) -> RateLimitDescriptor {
    let entries = [
        ("resource", "sandbox"),
        ("domain", "acme"),
        ("request", request),
    ];
    descriptor(&entries, None)
}

fn done(request: &str) -> RateLimitDescriptor {
    RateLimitDescriptor {
        is_negative_hits: true,
        ..taken(request)
    }
}

fn request(descriptor: RateLimitDescriptor) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    }
}

#[tokio::test]
async fn a_report_handled_before_its_request_gives_its_copies_back() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 1);
    for _ in 0..3 {
        let begun = running.begin(request(taken("a"))).await;
        assert_eq!(running.ask("edge", &[done("a")]).await.overall_code, OK);
        assert_eq!(begun.finish().await.overall_code, OK);
        assert_eq!(running.held(), 0);
    }
    // That of a refused request is not expected again.
    assert_eq!(running.ask("edge", &[taken("b")]).await.overall_code, OK);
    let begun = running.begin(request(taken("a"))).await;
    assert_eq!(running.ask("edge", &[done("a")]).await.overall_code, OK);
    assert_eq!(begun.finish().await.overall_code, OVER);
    assert_eq!(running.ask("edge", &[done("b")]).await.overall_code, OK);
    assert_eq!(running.ask("edge", &[taken("a")]).await.overall_code, OK);
    assert_eq!(running.held(), 1);
    assert_eq!(running.ask("edge", &[done("a")]).await.overall_code, OK);
    assert_eq!(running.held(), 0);
    running.end().await;
}

#[tokio::test]
async fn an_old_report_lets_no_later_request_through() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 1);
    // Other requests are unanswered all the time.
    let other = running.begin(request(taken("other"))).await;
    for _ in 0..2 {
        assert_eq!(running.ask("edge", &[taken("a")]).await.overall_code, OK);
        // Twice: the second one has no request.
        for _ in 0..2 {
            assert_eq!(running.ask("edge", &[done("a")]).await.overall_code, OK);
        }
        assert_eq!(running.held(), 0);
    }
    assert_eq!(running.ask("edge", &[taken("a")]).await.overall_code, OK);
    assert_eq!(running.held(), 1, "it came after all of these reports");
    assert_eq!(other.finish().await.overall_code, OVER);
    running.end().await;
}
