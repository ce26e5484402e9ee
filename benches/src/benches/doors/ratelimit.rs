//! envoyproxy/ratelimit with Redis: the service that Envoy's rate limit filter was made for.
//!
//! `go install github.com/envoyproxy/ratelimit/src/service_cmd@latest` builds it; the program is found in the search
//! path as `service_cmd` or `ratelimit`. Its settings are its own defaults, without statistics.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use super::free_address;
use crate::harness::redis::{Redis, StartError};

/// A limit far above the request rate.
const CONFIG: &str = "domain: edge\ndescriptors:\n- key: resource\n  value: api.search\n  descriptors:\n  \
                      - key: domain\n    rate_limit: { unit: second, requests_per_unit: 1000000 }\n";

const PROGRAMS: [&str; 2] = ["service_cmd", "ratelimit"];

/// The service and its Redis during a benchmark.
pub(super) struct RateLimit {
    process: Child,
    /// Its gRPC address.
    pub address: SocketAddr,
    _redis: Redis,
    _dir: tempfile::TempDir,
}

impl RateLimit {
    pub(super) fn start() -> Result<Self, StartError> {
        let redis = Redis::start()?;
        let dir = tempfile::tempdir().context("a directory for its configuration")?;
        let config = dir.path().join("ratelimit/config");
        fs::create_dir_all(&config)
            .and_then(|()| fs::write(config.join("edge.yaml"), CONFIG))
            .context("writing its configuration")?;
        let address = free_address()?;
        let process = spawn(&redis, dir.path(), address)?;
        Ok(Self {
            process,
            address,
            _redis: redis,
            _dir: dir,
        })
    }
}

fn spawn(redis: &Redis, root: &Path, grpc: SocketAddr) -> Result<Child, StartError> {
    for program in PROGRAMS {
        let process = Command::new(program)
            .env("GRPC_PORT", grpc.port().to_string())
            .env("PORT", free_address()?.port().to_string())
            .env("DEBUG_PORT", free_address()?.port().to_string())
            .env("REDIS_SOCKET_TYPE", "tcp")
            .env("REDIS_URL", redis.address())
            .env("RUNTIME_ROOT", root)
            .env("RUNTIME_SUBDIRECTORY", "ratelimit")
            .env("RUNTIME_WATCH_ROOT", "false")
            .env("USE_STATSD", "false")
            .env("LOG_LEVEL", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => return Ok(process),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(StartError::Failed(error.into())),
        }
    }
    Err(StartError::Absent {
        reason: "envoyproxy/ratelimit is not installed".to_owned(),
    })
}

impl Drop for RateLimit {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
