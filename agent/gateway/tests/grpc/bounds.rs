//! Tests of bounds on the memory and time that a peer may take.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;

use crate::support::{Running, named, unfinished};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The settings with which a server begins a connection.
async fn settings(peer: &mut TcpStream) -> Vec<(u16, u32)> {
    let mut head = [0; 9];
    peer.read_exact(&mut head).await.expect("a frame");
    assert_eq!(head[3], 4, "the first frame has the settings");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    peer.read_exact(&mut payload).await.expect("its payload");
    let settings = payload.chunks_exact(6).map(|one| {
        let value = [one[2], one[3], one[4], one[5]];
        (
            u16::from_be_bytes([one[0], one[1]]),
            u32::from_be_bytes(value),
        )
    });
    settings.collect()
}

#[tokio::test]
async fn a_connection_has_few_requests_with_bounded_headers_at_once() {
    let running = Running::start().await;
    let mut peer = TcpStream::connect(running.grpc).await.expect("it accepts");
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    peer.write_all(begin).await.expect("it reads");
    let settings = settings(&mut peer).await;
    let (streams_max, headers_bytes_max) = (3, 6);
    assert!(settings.contains(&(streams_max, 128)), "{settings:?}");
    assert!(
        settings.contains(&(headers_bytes_max, 65_536)),
        "{settings:?}"
    );
    drop(peer);
    // Requests with headers as long as a client can make Envoy pass on are answered, longer ones are not.
    for (bytes, is_answered) in [(2_000, true), (60 << 10, true), (70_000, false)] {
        let mut request = tonic::Request::new(RateLimitRequest {
            domain: "edge".to_owned(),
            descriptors: vec![named("api.search", "acme", None)],
            hits_addend: 0,
        });
        let header = "x".repeat(bytes).parse().expect("a header");
        request.metadata_mut().insert("x-long", header);
        let mut client = running.client().await;
        let answer = client.should_rate_limit(request).await;
        assert_eq!(answer.is_ok(), is_answered, "{bytes}: {answer:?}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_message_does_not_come_is_over() {
    let running = Running::start().await;
    let began = tokio::time::Instant::now();
    let over = running.unfinished(SHOULD_RATE_LIMIT).await;
    assert_eq!(over.code(), Code::DeadlineExceeded, "{over:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    running.end().await;
}

#[tokio::test]
async fn large_headers_of_unfinished_requests_take_bounded_memory() {
    let running = Running::start().await;
    let mut begun = tokio::task::JoinSet::new();
    // 16 MiB have room for about 280 of them.
    for _ in 0..4 {
        let connection = running.connection().await;
        for _ in 0..100 {
            let connection = connection.clone();
            let header = "x".repeat(60_000);
            begun.spawn(async move { unfinished(connection, SHOULD_RATE_LIMIT, &header).await });
        }
    }
    let first = begun.join_next().await.expect("one").expect("it ends");
    assert_ne!(first.code(), Code::DeadlineExceeded, "{first:?}");
    let descriptors = [named("api.search", "acme", None)];
    let answer = running.ask("edge", &descriptors).await;
    assert_eq!(answer.overall_code, 1);
    begun.shutdown().await;
    running.end().await;
}
