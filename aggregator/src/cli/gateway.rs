//! `tollgate gateway`: an agent that answers web servers, Envoy, and services in any language, on the same machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tollgate_gateway::subject::DomainFrom;
use tollgate_gateway::{Gateway, Listen, Settings};
use tollgate_server::config::{LogFormat, Telemetry};
use tollgate_server::telemetry;

use super::Global;
use super::agent_args::AgentArgs;
use crate::exit::{Exit, Failure};

/// How long the start waits for the denials in force; without them the first calls are let through blind.
const READY_WITHIN: Duration = Duration::from_millis(500);

/// What `gateway` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct GatewayArgs {
    /// Where to listen for HTTP; a loopback address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7404")]
    pub listen: SocketAddr,
    /// Listens at a Unix socket in place of an address
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub socket: Option<PathBuf>,
    /// Where to listen for gRPC, for Envoy's rate limit service and its external authorization; a loopback address
    /// [default: nowhere]
    #[arg(long, value_name = "HOST:PORT")]
    pub rls: Option<SocketAddr>,
    /// Where the domain comes from if the web server's configuration does not name it: header:NAME, name:NAME, or ip
    #[arg(long, value_name = "WHERE", value_parser = domain_from)]
    pub domain: Option<DomainFrom>,
    /// Networks of proxies whose X-Forwarded-For is trusted [default: none; the client is the peer that connects to
    /// the web server]
    #[arg(long, value_name = "NETWORK,…", value_delimiter = ',', value_parser = super::values::network)]
    pub trusted_proxies: Vec<IpNet>,
    /// Also sends clients the older headers X-RateLimit-Limit, -Remaining and -Reset
    #[arg(long)]
    pub legacy_headers: bool,
    /// How the agent reaches the fleet.
    #[command(flatten)]
    pub agent: AgentArgs,
}

fn domain_from(text: &str) -> Result<DomainFrom, String> {
    DomainFrom::parse(text).ok_or_else(|| "expected header:NAME, name:NAME or ip".to_owned())
}

/// Runs the command until SIGTERM or SIGINT.
///
/// # Errors
///
/// If the address cannot be bound, or is not a loopback address.
pub fn run(global: &Global, args: &GatewayArgs) -> Result<Exit, Failure> {
    let telemetry = Telemetry {
        // The HTTP/2 library warns about each invalid frame of a peer.
        log: "info,h2=error".to_owned(),
        log_format: LogFormat::Text,
    };
    telemetry::start(&telemetry, global.quiet, global.verbose)?;
    let io = |name: &str| {
        let name = name.to_owned();
        move |source| Failure::Io { name, source }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("tollgate-gateway")
        .enable_all()
        .build()
        .map_err(io("runtime"))?;
    // The agent's counters are shown there as well.
    let metrics = recorder()?;
    let agent = args.agent.build(global, "gateway")?;
    let listen = match &args.socket {
        Some(path) => Listen::Unix(path.clone()),
        None => Listen::Loopback(args.listen),
    };
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(io("signals"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(io("signals"))?;
        let settings = Settings {
            domain: args.domain.clone(),
            trusted_proxies: args.trusted_proxies.clone(),
            legacy_headers: args.legacy_headers,
        };
        let gateway = Gateway::bind(&listen, agent.clone(), settings, Some(metrics))
            .await
            .map_err(|error| Failure::Gateway(error.to_string()))?;
        let gateway = match args.rls {
            None => gateway,
            Some(address) => gateway
                .with_grpc(address)
                .await
                .map_err(|error| Failure::Gateway(error.to_string()))?,
        };
        if !agent.ready(READY_WITHIN).await {
            tracing::warn!("no aggregator answers yet: requests are let through until one does");
        }
        match (&listen, gateway.address()) {
            (Listen::Unix(path), _) => tracing::info!(socket = %path.display(), "listening"),
            (_, Some(address)) => tracing::info!(http = %address, "listening"),
            (Listen::Loopback(address), None) => tracing::info!(http = %address, "listening"),
        }
        if let Some(address) = gateway.grpc_address() {
            tracing::info!(grpc = %address, "listening");
        }
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(gateway.serve(stopping));
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        // The receiver is gone if the server has ended by itself.
        let _ = stop.send(true);
        served
            .await
            .map_err(|error| Failure::Bug(error.to_string()))?;
        Ok(Exit::Done)
    })
}

/// The recorder of the process's metrics.
fn recorder() -> Result<PrometheusHandle, Failure> {
    let metrics = PrometheusBuilder::new().install_recorder();
    telemetry::describe();
    metrics.map_err(|error| Failure::Bug(error.to_string()))
}
