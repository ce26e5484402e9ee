//! The shell around the core: sockets, clock, files, signals, and the one loop.
//!
//! ```text
//! log ─────┐
//! agents ──┤ events ──> loop { core.step } ──> effects ──> log, feed, link, HTTP, files
//! HTTP ────┤
//! signals ─┘
//! ```
//!
//! What stays true: no decision is made here; no address is bound before the configuration was checked;
//! at shutdown, everything that agents were told is in the log before the process ends.

mod backlog;
mod dead_letters;
#[cfg(feature = "kafka")]
mod fleet;
mod limits_file;
mod log;
mod parked;
#[cfg(feature = "kafka")]
mod restore_queue;
mod run;
mod saver;
mod secure;
mod signals;
mod start;
mod watch;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::ServeError;
use crate::config::Config;
use crate::edge;

/// How long each thread of the least priority may take to finish its job when the process ends.
const BACKGROUND_PATIENCE: Duration = Duration::from_millis(300);

/// The addresses that an aggregator listens on, once they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// HTTP.
    pub http: SocketAddr,
    /// Agents.
    pub agents: SocketAddr,
    /// The feed.
    pub feed: SocketAddr,
    /// Probes, if that listener is configured.
    pub probe: Option<SocketAddr>,
}

/// The bound listeners.
struct Listeners {
    http: TcpListener,
    agents: TcpListener,
    feed: TcpListener,
    probe: Option<TcpListener>,
}

impl Listeners {
    fn bind(config: &Config) -> Result<(Self, Bound), ServeError> {
        let bind = |option, address: SocketAddr| {
            let failed = |source| ServeError::Bind {
                option,
                address,
                source,
            };
            let listener = edge::listen(address).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            Ok::<_, ServeError>((listener, bound))
        };
        let (http, http_address) = bind("listen.http", config.listen.http)?;
        let (agents, agents_address) = bind("listen.agents", config.listen.agents)?;
        let (feed, feed_address) = bind("listen.feed", config.listen.feed)?;
        let probe = config.listen.probe;
        let probe = probe.map(|address| bind("listen.probe", address));
        let (probe, probe_address) = probe.transpose()?.unzip();
        let bound = Bound {
            http: http_address,
            agents: agents_address,
            feed: feed_address,
            probe: probe_address,
        };
        let listeners = Self {
            http,
            agents,
            feed,
            probe,
        };
        Ok((listeners, bound))
    }
}

/// Runs an aggregator until SIGTERM or SIGINT, or, if `with_stdin`, until standard input ends.
///
/// # Errors
///
/// If an address is taken, the log cannot be opened, or there are no limits to rule by.
pub fn run(config: &Config, with_stdin: bool) -> Result<(), ServeError> {
    let failed = |source| ServeError::Io {
        name: "runtime".to_owned(),
        source,
    };
    let connections = tokio::runtime::Builder::new_multi_thread()
        // For HTTP and signals. The link and the feed have their own threads.
        .worker_threads(2)
        .thread_name("tollgate-io")
        .enable_all()
        .build()
        .map_err(failed)?;
    let secured = secure::Secured::open(config)?;
    let (listeners, bound) = Listeners::bind(config)?;
    let result = {
        let _inside = connections.enter();
        start::start(config, (listeners, secured), bound, with_stdin)
            .and_then(|(shell, inboxes)| run::run(shell, inboxes, config))
    };
    // Tasks that still wait for peers must not delay the end.
    connections.shutdown_background();
    crate::http::end_background(BACKGROUND_PATIENCE);
    result
}

/// The machine's name, if it has one.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
