//! A gateway with a gRPC address, and clients for it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tollgate_agent::testing::TestAgent;
use tollgate_gateway::{Gateway, Listen, Settings};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;

/// How long tests wait for something that has to happen.
const WITHIN: Duration = Duration::from_secs(10);

pub struct Running {
    pub kit: TestAgent,
    pub grpc: SocketAddr,
    channel: Channel,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
}

impl Running {
    pub async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    pub async fn start_with(settings: Settings) -> Self {
        let kit = TestAgent::new();
        let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let agent = kit.agent().clone();
        let listen = Listen::Loopback(loopback);
        let gateway = Gateway::bind(&listen, agent, settings, None).await;
        let gateway = gateway.expect("it listens");
        let gateway = gateway.with_grpc(loopback).await.expect("it listens");
        let grpc = gateway.grpc_address().expect("an address");
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(gateway.serve(stopping));
        Self {
            kit,
            grpc,
            channel: channel(grpc).await,
            stop,
            served,
        }
    }

    /// A client with a connection of its own.
    pub async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(channel(self.grpc).await)
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub async fn request(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let mut client = RateLimitServiceClient::new(self.channel());
        let answer = client.should_rate_limit(request).await?;
        Ok(answer.into_inner())
    }

    pub async fn ask(
        &self,
        domain: &str,
        descriptors: &[RateLimitDescriptor],
    ) -> RateLimitResponse {
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: descriptors.to_vec(),
            hits_addend: 0,
        };
        self.request(request).await.expect("an answer")
    }

    /// Sends these bytes as a message.
    pub async fn raw(&self, path: &'static str, bytes: &[u8]) -> Result<Vec<u8>, Status> {
        let mut client = tonic::client::Grpc::new(self.channel());
        client.ready().await.expect("a connection");
        let path = path.parse().expect("a path");
        let request = tonic::Request::new(bytes.to_vec());
        let answer = client.unary(request, path, Bytes).await?;
        Ok(answer.into_inner())
    }

    /// Begins a request of a method, without its message.
    pub async fn unfinished(&self, path: &'static str) -> Status {
        unfinished(self.channel(), path, "").await
    }

    /// Begins a request whose message comes later, once this sends it. Its head has come when this returns.
    pub async fn begin(&self, request: RateLimitRequest) -> Begun {
        use tokio_stream::StreamExt as _;
        let mut client = tonic::client::Grpc::new(self.channel());
        let (begun, has_begun) = oneshot::channel();
        let (message, awaited) = oneshot::channel::<()>();
        let mut waits = Some((begun, awaited));
        let messages = tokio_stream::once(request).then(move |request| {
            let waits = waits.take();
            async move {
                let (begun, awaited) = waits.expect("one message");
                begun.send(()).expect("it waits");
                awaited.await.expect("it is sent");
                request
            }
        });
        let answer = tokio::spawn(async move {
            client.ready().await.expect("a connection");
            let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
            let path = path.parse().expect("a path");
            let request = tonic::Request::new(messages);
            let codec = tonic_prost::ProstCodec::default();
            let answer = client.client_streaming(request, path, codec).await;
            answer.expect("an answer").into_inner()
        });
        // The message is asked for once the head is sent.
        has_begun.await.expect("it begins");
        Begun { message, answer }
    }

    /// Another connection.
    pub async fn connection(&self) -> Channel {
        channel(self.grpc).await
    }

    /// The number of copies held.
    pub fn held(&self) -> u32 {
        self.kit.held().iter().map(|held| held.copies).sum()
    }

    pub async fn await_held(&self, expected: u32) {
        let until = Instant::now() + WITHIN;
        while self.held() != expected {
            assert!(
                Instant::now() < until,
                "{} held, expected {expected}",
                self.held()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn end(self) {
        let Self {
            channel,
            stop,
            served,
            ..
        } = self;
        drop(channel);
        stop.send(true).expect("it listens");
        served.await.expect("it ends");
    }
}

/// A request without its message.
pub struct Begun {
    message: oneshot::Sender<()>,
    answer: JoinHandle<RateLimitResponse>,
}

impl Begun {
    /// Sends the message, and awaits the answer.
    pub async fn finish(self) -> RateLimitResponse {
        self.message.send(()).expect("it is awaited");
        self.answer.await.expect("an answer")
    }
}

/// Begins a request with a header, without its message.
pub async fn unfinished(channel: Channel, path: &'static str, header: &str) -> Status {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("a connection");
    let path = path.parse().expect("a path");
    let mut request = tonic::Request::new(tokio_stream::pending::<Vec<u8>>());
    let header = header.parse().expect("a header");
    request.metadata_mut().insert("x-long", header);
    let answer = client.client_streaming(request, path, Bytes).await;
    answer.map(|_| ()).expect_err("it has no message")
}

async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("it accepts")
}

pub fn descriptor(entries: &[(&str, &str)], addend: Option<u64>) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        hits_addend: addend.map(|value| UInt64Value { value }),
        ..RateLimitDescriptor::default()
    }
}

/// A descriptor with the resource and the domain as entries.
pub fn named(resource: &str, domain: &str, addend: Option<u64>) -> RateLimitDescriptor {
    descriptor(&[("resource", resource), ("domain", domain)], addend)
}

/// A codec for messages of arbitrary bytes.
#[derive(Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        use bytes::BufMut as _;
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        use bytes::Buf as _;
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}
