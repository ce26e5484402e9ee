//! Tests of the rate limit service: requests that are let through, refused, held and recorded.

use std::time::Duration;

use crate::support::{Running, descriptor, named};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_agent::DescriptorRule;
use tollgate_agent::testing::Outcome;
use tollgate_gateway::Settings;

const OK: i32 = Code::Ok as i32;
const OVER: i32 = Code::OverLimit as i32;

fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let headers = &response.response_headers_to_add;
    let found = headers.iter().find(|header| header.key == name);
    found.map(|header| &*header.value)
}

fn codes(response: &RateLimitResponse) -> Vec<i32> {
    response.statuses.iter().map(|status| status.code).collect()
}

/// The hits that were let through: resource, domain, copies.
fn hits(running: &Running) -> Vec<(String, String, u32)> {
    let recorded = running.kit.recorded();
    let hits = recorded.into_iter().filter_map(|one| match one.outcome {
        Outcome::Hit { copies, .. } => Some((one.resource, one.domain, copies)),
        _ => None,
    });
    hits.collect()
}

#[tokio::test]
async fn a_refusal_has_all_that_a_client_needs() {
    let running = Running::start().await;
    let descriptors = [named("api.search", "acme", None)];
    let allowed = running.ask("edge", &descriptors).await;
    assert_eq!(allowed.overall_code, OK);
    assert_eq!(codes(&allowed), [OK]);
    let status = &allowed.statuses[0];
    assert_eq!(status.current_limit, None, "nobody knows what is left");
    running
        .kit
        .deny("api.search", "acme", Duration::from_millis(4_100));
    let refused = running.ask("edge", &descriptors).await;
    assert_eq!((refused.overall_code, codes(&refused)), (OVER, vec![OVER]));
    assert_eq!(header(&refused, "retry-after"), Some("5"));
    assert_eq!(
        header(&refused, "content-type"),
        Some("application/problem+json")
    );
    assert!(header(&refused, "x-tollgate-code").is_some());
    let body = String::from_utf8(refused.raw_body).expect("a text");
    assert!(body.contains("http-problem-types#quota-exceeded"), "{body}");
    let counted = [("api.search".to_owned(), "acme".to_owned(), 1)];
    assert_eq!(
        hits(&running),
        counted,
        "counted once, and not when refused"
    );
    running.end().await;
}

#[tokio::test]
async fn older_headers_are_sent_where_configured() {
    let running = Running::start_with(Settings {
        legacy_headers: true,
        ..Settings::default()
    })
    .await;
    let near = Duration::from_secs(60);
    running.kit.near("api.search", "near", 7, 50, near);
    running
        .kit
        .deny("api.search", "denied", Duration::from_secs(5));
    for (domain, expected) in [("near", ["50", "6", "60"]), ("denied", ["1", "0", "5"])] {
        let descriptors = [named("api.search", domain, None)];
        let answer = running.ask("edge", &descriptors).await;
        let fields = ["limit", "remaining", "reset"].map(|name| format!("x-ratelimit-{name}"));
        let older = fields.map(|name| header(&answer, &name).map(str::to_owned));
        assert_eq!(
            older,
            expected.map(|value| Some(value.to_owned())),
            "{domain}"
        );
    }
    running.end().await;
}

#[tokio::test]
async fn the_remainder_is_shown_only_where_it_is_known() {
    let running = Running::start().await;
    let near = Duration::from_secs(60);
    running.kit.near("api.search", "acme", 7, 50, near);
    let descriptors = [
        named("api.search", "acme", None),
        named("api.search", "other", None),
    ];
    let answer = running.ask("edge", &descriptors).await;
    assert_eq!((answer.overall_code, codes(&answer)), (OK, vec![OK, OK]));
    let status = &answer.statuses[0];
    let limit = status.current_limit.as_ref().expect("a limit");
    assert_eq!(
        (limit.requests_per_unit, limit.unit),
        (50, Unit::Minute as i32)
    );
    assert_eq!(status.limit_remaining, 6, "after this call");
    assert_eq!(answer.statuses[1].current_limit, None);
    let fields = header(&answer, "ratelimit").expect("near its limit");
    assert!(fields.contains("r=6"), "{fields}");
    // Two descriptors of one pair take two.
    let twice = [
        named("api.search", "acme", None),
        named("api.search", "acme", None),
    ];
    let answer = running.ask("edge", &twice).await;
    let left = answer.statuses.iter().map(|status| status.limit_remaining);
    assert_eq!(left.collect::<Vec<_>>(), [4, 4]);
    let fields = header(&answer, "ratelimit").expect("near its limit");
    assert!(fields.contains("r=4"), "{fields}");
    running.end().await;
}

#[tokio::test]
async fn of_several_descriptors_all_count_or_none() {
    let running = Running::start().await;
    running
        .kit
        .deny("llm.tokens", "acme", Duration::from_secs(5));
    let descriptors = [
        named("api.search", "acme", None),
        named("llm.tokens", "acme", Some(1_250)),
    ];
    let refused = running.ask("edge", &descriptors).await;
    assert_eq!(
        (refused.overall_code, codes(&refused)),
        (OVER, vec![OK, OVER])
    );
    assert_eq!(hits(&running), []);
    running.kit.lift("llm.tokens", "acme");
    let allowed = running.ask("edge", &descriptors).await;
    assert_eq!(allowed.overall_code, OK);
    let expected = [
        ("api.search".to_owned(), "acme".to_owned(), 1),
        ("llm.tokens".to_owned(), "acme".to_owned(), 1_250),
    ];
    assert_eq!(hits(&running), expected);
    running.end().await;
}

#[tokio::test]
async fn the_addend_says_how_many_and_0_only_asks() {
    let running = Running::start().await;
    let request_of = |addend, whole| RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![named("api.search", "acme", addend)],
        hits_addend: whole,
    };
    for (addend, whole) in [(None, 0), (None, 3), (Some(4), 3), (Some(0), 3)] {
        let answer = running
            .request(request_of(addend, whole))
            .await
            .expect("an answer");
        assert_eq!(answer.overall_code, OK);
    }
    let copies: Vec<u32> = hits(&running)
        .into_iter()
        .map(|(_, _, copies)| copies)
        .collect();
    assert_eq!(copies, [1, 3, 4]);
    running
        .kit
        .deny("api.search", "acme", Duration::from_secs(5));
    let peeked = running
        .request(request_of(Some(0), 0))
        .await
        .expect("an answer");
    assert_eq!(peeked.overall_code, OVER);
    // A report of a stream's cost is never refused, and counts.
    let report = descriptor(
        &[
            ("resource", "api.search"),
            ("domain", "acme"),
            ("tollgate", "record"),
        ],
        Some(77),
    );
    let recorded = running.ask("edge", &[report]).await;
    assert_eq!(recorded.overall_code, OK);
    let charged = running
        .kit
        .recorded()
        .into_iter()
        .any(|one| one.outcome == Outcome::Charge { copies: 77 });
    assert!(charged);
    running.end().await;
}

#[tokio::test]
async fn copies_are_held_until_the_stream_is_done() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 2);
    let taken = [named("sandbox", "acme", None)];
    let mut done = taken.clone();
    done[0].is_negative_hits = true;
    for expected in [OK, OK, OVER] {
        assert_eq!(running.ask("edge", &taken).await.overall_code, expected);
    }
    assert_eq!(running.held(), 2);
    // Envoy reports the end of the refused request, too.
    assert_eq!(running.ask("edge", &done).await.overall_code, OK);
    assert_eq!(running.held(), 2);
    assert_eq!(running.ask("edge", &done).await.overall_code, OK);
    assert_eq!(running.held(), 1);
    assert_eq!(running.ask("edge", &taken).await.overall_code, OK);
    // A refused hit gives back the copies that were taken beside it.
    assert_eq!(running.ask("edge", &done).await.overall_code, OK);
    running
        .kit
        .deny("api.search", "acme", Duration::from_secs(5));
    let both = [taken[0].clone(), named("api.search", "acme", None)];
    let refused = running.ask("edge", &both).await;
    assert_eq!(
        (refused.overall_code, codes(&refused)),
        (OVER, vec![OK, OVER])
    );
    assert_eq!(running.held(), 1);
    assert_eq!(running.ask("edge", &done).await.overall_code, OK);
    assert_eq!(running.held(), 1, "the refused one's");
    // Giving back more than is held is not an error, and gives back no more.
    done[0].hits_addend = named("", "", Some(9)).hits_addend;
    assert_eq!(running.ask("edge", &done).await.overall_code, OK);
    assert_eq!(running.held(), 0);
    running.end().await;
}

#[tokio::test]
async fn an_id_that_comes_again_frees_no_copies() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 1);
    let of = |request: &str| {
        let entries = [
            ("resource", "sandbox"),
            ("domain", "acme"),
            ("request", request),
        ];
        descriptor(&entries, None)
    };
    let mut done = of("chosen");
    done.is_negative_hits = true;
    assert_eq!(running.ask("edge", &[of("chosen")]).await.overall_code, OK);
    // While the first one runs, others with its id are refused, and Envoy reports their end.
    for _ in 0..3 {
        for id in ["chosen", "other"] {
            let refused = running.ask("edge", &[of(id)]).await;
            assert_eq!(refused.overall_code, OVER, "{id}");
        }
        assert_eq!(
            running
                .ask("edge", std::slice::from_ref(&done))
                .await
                .overall_code,
            OK
        );
        assert_eq!(running.held(), 1, "the first one's");
    }
    assert_eq!(running.ask("edge", &[done]).await.overall_code, OK);
    assert_eq!(running.held(), 0);
    running.end().await;
}

#[tokio::test]
async fn two_descriptors_of_one_pair_want_the_sum() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 1);
    running.kit.most_at_once("api.search", 1);
    for resource in ["sandbox", "api.search"] {
        let one = named(resource, "acme", None);
        let refused = running.ask("edge", &[one.clone(), one.clone()]).await;
        assert_eq!(refused.overall_code, OVER, "{resource}");
        assert_eq!((running.held(), hits(&running)), (0, Vec::new()));
    }
    let both = [
        named("sandbox", "acme", None),
        named("api.search", "acme", None),
    ];
    assert_eq!(running.ask("edge", &both).await.overall_code, OK);
    running.end().await;
}

#[tokio::test]
async fn a_descriptor_may_have_the_same_key_twice() {
    let running = Running::start().await;
    let keys = ["generic_key=slow", "generic_key"];
    let rule = DescriptorRule::parse(&keys, "edge.{#2}", "all", false).expect("a rule");
    running.kit.descriptors("edge", vec![rule]);
    running.kit.deny("edge.post", "all", Duration::from_secs(5));
    for (first, second, expected) in [
        ("slow", "post", OVER),
        ("slow", "get", OK),
        ("post", "slow", OK),
    ] {
        let twice = descriptor(&[("generic_key", first), ("generic_key", second)], None);
        let answer = running.ask("edge", &[twice]).await;
        assert_eq!(answer.overall_code, expected, "{first} {second}");
    }
    running.end().await;
}

#[tokio::test]
async fn copies_of_a_connection_are_released_when_it_ends() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 5);
    let taken = [named("sandbox", "acme", Some(3))];
    let mut other = running.client().await;
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: taken.to_vec(),
        hits_addend: 0,
    };
    let answer = other.should_rate_limit(request).await.expect("an answer");
    assert_eq!(answer.into_inner().overall_code, OK);
    let one = [named("sandbox", "acme", Some(1))];
    assert_eq!(running.ask("edge", &one).await.overall_code, OK);
    assert_eq!(running.held(), 4);
    drop(other);
    running.await_held(1).await;
    running.end().await;
}

#[tokio::test]
async fn rules_in_limits_map_descriptors() {
    let running = Running::start().await;
    let rule = DescriptorRule::parse(
        &["path=/api/*", "remote_address"],
        "edge.api",
        "{remote_address}",
        false,
    );
    running.kit.descriptors("edge", vec![rule.expect("a rule")]);
    running
        .kit
        .deny("edge.api", "203.0.113.7", Duration::from_secs(5));
    let of = |path, address| descriptor(&[("path", path), ("remote_address", address)], None);
    for (path, address, expected) in [
        ("/api/search", "203.0.113.7", OVER),
        ("/api/search", "203.0.113.8", OK),
        ("/home", "203.0.113.7", OK),
    ] {
        let answer = running.ask("edge", &[of(path, address)]).await;
        assert_eq!(answer.overall_code, expected, "{path} {address}");
    }
    let other = running
        .ask("other", &[of("/api/search", "203.0.113.7")])
        .await;
    assert_eq!(other.overall_code, OK, "a domain without rules");
    running.kit.refuse_unmatched("edge");
    let unmatched = running.ask("edge", &[of("/home", "203.0.113.7")]).await;
    assert_eq!(
        unmatched.overall_code, OVER,
        "what is not configured is refused there"
    );
    running.end().await;
}

#[tokio::test]
async fn undecidable_requests_are_let_through() {
    let running = Running::start().await;
    running.kit.strict("exports");
    running.kit.ignored("shown");
    running.kit.deny("shown", "acme", Duration::from_secs(5));
    let mut negative = named("api.search", "acme", Some(3));
    negative.is_negative_hits = true;
    let mut brought = named("api.search", "acme", None);
    brought.limit = Some(RateLimitOverride {
        requests_per_unit: 0,
        unit: 0,
    });
    for (what, descriptors) in [
        ("no rule, and no name", descriptor(&[("path", "/")], None)),
        ("no domain", descriptor(&[("resource", "api.search")], None)),
        ("no entries", descriptor(&[], None)),
        ("strict copies", named("exports", "acme", None)),
        ("negative hits", negative),
        ("a limit that the request brings along", brought),
        ("a resource in shadow", named("shown", "acme", None)),
        ("an empty domain", named("api.search", "", None)),
    ] {
        let answer = running.ask("edge", &[descriptors]).await;
        assert_eq!(
            (answer.overall_code, codes(&answer)),
            (OK, vec![OK]),
            "{what}"
        );
    }
    running.end().await;
}

#[tokio::test]
async fn an_invalid_request_ends_no_other_connection() {
    let running = Running::start().await;
    for (domain, count) in [("", 1), ("edge", 0), ("edge", 257)] {
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: vec![named("api.search", "acme", None); count],
            hits_addend: 0,
        };
        let refused = running.request(request).await.expect_err("it is refused");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    }
    // Something other than HTTP/2, and nothing at all for a while.
    let mut stranger = TcpStream::connect(running.grpc).await.expect("it accepts");
    stranger
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("it reads");
    let mut answer = Vec::new();
    let read = stranger.read_to_end(&mut answer).await;
    assert!(read.is_err() || answer.is_empty(), "{answer:?}");
    // HTTP/2 from peers that never read.
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut peer = TcpStream::connect(running.grpc).await.expect("it accepts");
        let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        peer.write_all(begin).await.expect("it reads");
        silent.push(peer);
    }
    let answer = running
        .ask("edge", &[named("api.search", "acme", None)])
        .await;
    assert_eq!(answer.overall_code, OK);
    running.end().await;
}

#[tokio::test]
async fn client_bytes_in_a_text_bypass_no_limit() {
    let running = Running::start().await;
    running
        .kit
        .deny("api.search", "acme", Duration::from_secs(5));
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    // As Envoy sends a client's header that is not a text.
    let entry = |key: &[u8], value: &[u8]| {
        let field =
            |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
        field(1, &[field(1, key), field(2, value)].concat())
    };
    for request in [&b"a"[..], b"\xff\xfe"] {
        let entries = [
            entry(b"resource", b"api.search"),
            entry(b"domain", b"acme"),
            entry(b"request", request),
        ];
        let descriptor = entries.concat();
        let head = [&b"\x0a\x04edge\x12"[..], &[descriptor.len() as u8]].concat();
        let answer = running.raw(path, &[head, descriptor].concat()).await;
        let answer = answer.expect("it is answered");
        // The overall code comes first.
        assert_eq!(answer[..2], [8, OVER as u8], "{request:?}");
    }
    running.end().await;
}

#[tokio::test]
async fn bytes_that_are_no_message_are_an_error_of_their_own() {
    let running = Running::start().await;
    for path in [
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        "/envoy.service.auth.v3.Authorization/Check",
        "/kuadrant.service.ratelimit.v1.RateLimitService/Report",
    ] {
        let refused = running
            .raw(path, b"\xff\xff\xff")
            .await
            .expect_err("no message");
        assert_eq!(refused.code(), tonic::Code::Internal, "{path}: {refused}");
    }
    let unknown = running
        .raw("/kuadrant.service.ratelimit.v1.RateLimitService/Other", b"")
        .await;
    assert_eq!(
        unknown.expect_err("no method").code(),
        tonic::Code::Unimplemented
    );
    let answer = running
        .ask("edge", &[named("api.search", "acme", None)])
        .await;
    assert_eq!(answer.overall_code, OK);
    running.end().await;
}
