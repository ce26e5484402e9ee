//! One node of gubernator: it owns all keys, so that no request is passed on to another.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::{Peer, PeerClient, START_WITHIN, Server, StartError, free_address, grpc_channel};
use crate::harness::agents::current_thread;

const METHOD: &str = "/pb.gubernator.V1/GetRateLimits";

/// The limit of a domain, in hits a second.
const LIMIT: i64 = 100;

/// A node during a benchmark.
pub struct Gubernator {
    server: Server,
    grpc: SocketAddr,
}

impl Gubernator {
    /// Starts a node with its own defaults, as the only member of its cluster.
    ///
    /// # Errors
    ///
    /// If this machine has no gubernator, or it does not start.
    pub fn start() -> Result<Self, StartError> {
        let (grpc, http, gossip) = (free_address()?, free_address()?, free_address()?);
        let server = Server::start("gubernator", &["gubernator"], |command| {
            command
                .env("GUBER_GRPC_ADDRESS", grpc.to_string())
                .env("GUBER_ADVERTISE_ADDRESS", grpc.to_string())
                .env("GUBER_HTTP_ADDRESS", http.to_string())
                .env("GUBER_PEER_DISCOVERY_TYPE", "member-list")
                .env("GUBER_MEMBERLIST_ADDRESS", gossip.to_string())
                .env("GUBER_MEMBERLIST_BIND_ADDRESS", gossip.to_string())
                .env("GUBER_MEMBERLIST_KNOWN_NODES", gossip.to_string())
                .env("GUBER_LOG_LEVEL", "error")
                // It would look for a collector of traces, and pay for spans that nobody receives.
                .env("OTEL_TRACES_EXPORTER", "none");
        })?;
        Ok(Self { server, grpc })
    }
}

impl Peer for Gubernator {
    fn address(&self) -> String {
        self.grpc.to_string()
    }

    fn ids(&self) -> Vec<u32> {
        vec![self.server.id()]
    }
}

/// One connection, by which each hit is a request of its own.
pub struct GubernatorClient {
    runtime: Runtime,
    grpc: Grpc<Channel>,
    path: PathAndQuery,
}

impl GubernatorClient {
    /// Connects, and waits until the node is a member of its cluster, before which it decides nothing.
    ///
    /// # Errors
    ///
    /// If the node does not listen, or decides nothing for long.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let runtime = current_thread()?;
        let channel = runtime.block_on(grpc_channel(address))?;
        let mut client = Self {
            runtime,
            grpc: Grpc::new(channel),
            path: PathAndQuery::from_static(METHOD),
        };
        let until = Instant::now() + START_WITHIN;
        while let Err(error) = client.hit("nobody") {
            if until < Instant::now() {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(client)
    }
}

impl PeerClient for GubernatorClient {
    fn hit(&mut self, domain: &str) -> anyhow::Result<bool> {
        let hit = RateLimitRequest {
            name: "api.search".to_owned(),
            unique_key: domain.to_owned(),
            hits: 1,
            limit: LIMIT,
            duration_ms: 1_000,
        };
        let request = RateLimitRequests {
            requests: vec![hit],
        };
        let (grpc, path) = (&mut self.grpc, self.path.clone());
        let answer = self.runtime.block_on(async {
            grpc.ready().await.context("gubernator has gone")?;
            let codec = ProstCodec::<_, RateLimitAnswers>::default();
            let answer = grpc
                .unary(tonic::Request::new(request), path, codec)
                .await?;
            anyhow::Ok(answer.into_inner())
        })?;
        let [of_hit] = &answer.responses[..] else {
            anyhow::bail!("one hit, and gubernator answers {answer:?}");
        };
        ensure!(of_hit.error.is_empty(), "gubernator: {}", of_hit.error);
        Ok(of_hit.status == UNDER_LIMIT)
    }
}

// Its messages, by numbers of gubernator.proto at v2.13.0.

const UNDER_LIMIT: i32 = 0;

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitRequests {
    #[prost(message, repeated, tag = "1")]
    requests: Vec<RateLimitRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitRequest {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    unique_key: String,
    #[prost(int64, tag = "3")]
    hits: i64,
    #[prost(int64, tag = "4")]
    limit: i64,
    #[prost(int64, tag = "5")]
    duration_ms: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitAnswers {
    #[prost(message, repeated, tag = "1")]
    responses: Vec<RateLimitAnswer>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitAnswer {
    #[prost(int32, tag = "1")]
    status: i32,
    #[prost(int64, tag = "2")]
    limit: i64,
    #[prost(int64, tag = "3")]
    remaining: i64,
    #[prost(string, tag = "5")]
    error: String,
    #[prost(map = "string, string", tag = "6")]
    metadata: HashMap<String, String>,
}
