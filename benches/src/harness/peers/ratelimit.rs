//! envoyproxy/ratelimit with Redis: the service that Envoy's rate limit filter was made for.
//!
//! Its settings are its own defaults, without statistics.

use std::fs;
use std::net::SocketAddr;

use anyhow::Context as _;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::redis::Redis;
use super::{Peer, PeerClient, Server, StartError, free_address, grpc_channel};
use crate::harness::agents::current_thread;

/// A limit far above the request rate.
const CONFIG: &str = "domain: edge\ndescriptors:\n- key: resource\n  value: api.search\n  descriptors:\n  \
                      - key: domain\n    rate_limit: { unit: second, requests_per_unit: 1000000 }\n";

const PROGRAMS: [&str; 2] = ["service_cmd", "ratelimit"];

/// The service and its Redis during a benchmark.
pub struct RateLimit {
    server: Server,
    grpc: SocketAddr,
    redis: Redis,
    _dir: tempfile::TempDir,
}

impl RateLimit {
    /// Starts both.
    ///
    /// # Errors
    ///
    /// If this machine lacks one of them, or it does not start.
    pub fn start() -> Result<Self, StartError> {
        let redis = Redis::start()?;
        let dir = tempfile::tempdir().context("a directory for its configuration")?;
        let config = dir.path().join("ratelimit/config");
        fs::create_dir_all(&config)
            .and_then(|()| fs::write(config.join("edge.yaml"), CONFIG))
            .context("writing its configuration")?;
        let (grpc, http, debug) = (free_address()?, free_address()?, free_address()?);
        let server = Server::start("envoyproxy/ratelimit", &PROGRAMS, |command| {
            command
                .env("GRPC_PORT", grpc.port().to_string())
                .env("PORT", http.port().to_string())
                .env("DEBUG_PORT", debug.port().to_string())
                .env("REDIS_SOCKET_TYPE", "tcp")
                .env("REDIS_URL", redis.address())
                .env("RUNTIME_ROOT", dir.path())
                .env("RUNTIME_SUBDIRECTORY", "ratelimit")
                .env("RUNTIME_WATCH_ROOT", "false")
                .env("USE_STATSD", "false")
                .env("LOG_LEVEL", "error");
        })?;
        Ok(Self {
            server,
            grpc,
            redis,
            _dir: dir,
        })
    }
}

impl Peer for RateLimit {
    fn address(&self) -> String {
        self.grpc.to_string()
    }

    fn ids(&self) -> Vec<u32> {
        let mut ids = vec![self.server.id()];
        ids.extend(self.redis.ids());
        ids
    }
}

/// A request about one hit of a domain, as Envoy's filter sends it.
pub fn request_about(domain: String) -> RateLimitRequest {
    let entry = |key: &str, value: String| Entry {
        key: key.to_owned(),
        value,
    };
    let descriptor = RateLimitDescriptor {
        entries: vec![
            entry("resource", "api.search".to_owned()),
            entry("domain", domain),
        ],
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    }
}

/// One connection.
pub struct RateLimitClient {
    runtime: Runtime,
    grpc: RateLimitServiceClient<Channel>,
}

impl RateLimitClient {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If the service does not listen.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let runtime = current_thread()?;
        let channel = runtime.block_on(grpc_channel(address))?;
        Ok(Self {
            runtime,
            grpc: RateLimitServiceClient::new(channel),
        })
    }
}

impl PeerClient for RateLimitClient {
    fn hit(&mut self, domain: &str) -> anyhow::Result<bool> {
        let request = request_about(domain.to_owned());
        let answer = self
            .runtime
            .block_on(self.grpc.should_rate_limit(request))?;
        Ok(answer.into_inner().overall_code == Code::Ok as i32)
    }
}
