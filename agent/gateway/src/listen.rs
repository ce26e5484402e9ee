//! Where the gateway listens: for this machine alone, on a loopback address or a Unix socket.
//!
//! What stays true: connections are bounded in number, and at the bound one is closed for the next
//! ([`crate::connections`]); at the end, requests in progress are answered.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connections::{Connection, Connections};

/// How long requests in progress may take at the end.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(2);

/// Where a gateway listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address.
    Loopback(SocketAddr),
    /// A Unix socket. A socket file without a listening process is replaced; any other file stays.
    Unix(PathBuf),
}

/// Why a gateway cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other machines can reach the address.
    #[error(
        "{0} is not a loopback address: a gateway answers its own machine alone, as 127.0.0.1:7404 or a Unix socket"
    )]
    NotLoopback(SocketAddr),
    /// There is a file at the path of the Unix socket, and it is not a socket.
    #[error("{}: exists and is not a socket, expected a free path or an unused socket", .0.display())]
    NotASocket(PathBuf),
    /// The address cannot be bound.
    #[error("cannot listen on {at}: {source}")]
    Bind {
        /// The address or path.
        at: String,
        /// The operating system's error.
        source: io::Error,
    },
}

pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A connection that was accepted.
pub(crate) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub async fn bind(listen: &Listen) -> Result<Self, ListenError> {
        match listen {
            Listen::Loopback(address) if !address.ip().is_loopback() => {
                Err(ListenError::NotLoopback(*address))
            }
            Listen::Loopback(address) => {
                let bound = TcpListener::bind(address).await;
                Ok(Self::Tcp(bound.map_err(failed(address))?))
            }
            Listen::Unix(path) => Ok(Self::Unix(bind_unix(path).await?, path.clone())),
        }
    }

    /// The address, if it listens on one; the real port also if port 0 was configured.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream))
            }
            Self::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }

    /// Accepts at most this many connections at once, and answers each in a task of its own, until `stop` is set;
    /// then waits for requests in progress.
    pub async fn serve<F>(
        self,
        max: usize,
        mut stop: watch::Receiver<bool>,
        answer: impl Fn(Accepted, Arc<Connection>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let all = Arc::new(Connections::new(max));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = stopped(&mut stop) => break,
            };
            while connections.try_join_next().is_some() {}
            let Ok(stream) = accepted else {
                // No file descriptor is free: a connection may end soon.
                counter!("tollgate_gateway_accept_errors_total").increment(1);
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let (connection, end) = Connections::enter(&all);
            let answered = answer(stream, Arc::clone(&connection));
            connections.spawn(async move {
                tokio::select! {
                    () = answered => {}
                    Ok(reason) = end => connection.note(reason),
                }
            });
        }
        // New connections are refused at once, so their requests proceed without a decision.
        self.close();
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(END_WITHIN, ended).await.is_err() {
            tracing::warn!("requests that were begun did not end in time");
        }
    }

    /// Stops listening, and removes a socket file.
    fn close(self) {
        if let Self::Unix(listener, path) = self {
            drop(listener);
            // It may be removed already, or replaced.
            if is_socket(&path) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Waits until `stop` is set, or its sender is dropped.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn failed(at: impl std::fmt::Display) -> impl FnOnce(io::Error) -> ListenError {
    let at = at.to_string();
    move |source| ListenError::Bind { at, source }
}

/// Listens at a path. A socket file that is left over from a killed process is replaced; any other file stays.
///
/// Every user who may enter its directory may connect, as with a loopback address: web servers run as users of their
/// own.
async fn bind_unix(path: &Path) -> Result<UnixListener, ListenError> {
    let listener = bind_free(path).await?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666))
        .map_err(failed(path.display()))?;
    Ok(listener)
}

async fn bind_free(path: &Path) -> Result<UnixListener, ListenError> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !is_socket(path) {
                return Err(ListenError::NotASocket(path.to_owned()));
            }
            if !is_left_over(path).await {
                return Err(failed(path.display())(error));
            }
            std::fs::remove_file(path)
                .and_then(|()| UnixListener::bind(path))
                .map_err(failed(path.display()))
        }
        bound => bound.map_err(failed(path.display())),
    }
}

/// Whether the path itself is a socket: a link is not, whatever it leads to.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

/// Whether no process listens at a socket file. Any other error than a refusal, such as a full queue of a busy process,
/// does not show that.
async fn is_left_over(path: &Path) -> bool {
    let connected = UnixStream::connect(path).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Echoes what it receives, and counts that as an answer.
    async fn echo(stream: Accepted, connection: Arc<Connection>) {
        let Accepted::Tcp(mut stream) = stream else {
            return;
        };
        let mut received = [0; 4];
        while stream.read_exact(&mut received).await.is_ok() {
            connection.begin_request();
            connection.end_request();
            if stream.write_all(&received).await.is_err() {
                return;
            }
        }
    }

    #[tokio::test]
    async fn silent_connections_make_room_for_active_ones() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(&Listen::Loopback(address)).await;
        let listener = listener.expect("it listens");
        let address = listener.address().expect("an address");
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(listener.serve(8, stopping, echo));
        let ask = async |stream: &mut TcpStream| {
            let mut reply = [0; 4];
            stream.write_all(b"ping").await.expect("it reads");
            stream.read_exact(&mut reply).await.map(|_| reply)
        };
        let connect = async || TcpStream::connect(address).await.expect("it accepts");
        let mut known = connect().await;
        let mut silent = Vec::new();
        for _ in 0..40 {
            assert_eq!(ask(&mut known).await.expect("it stays"), *b"ping");
            silent.push(connect().await);
            let mut newcomer = connect().await;
            assert_eq!(ask(&mut newcomer).await.expect("it is let in"), *b"ping");
        }
        // The first of them was closed, and the last is open.
        let mut reply = [0; 1];
        assert_eq!(silent[0].read(&mut reply).await.unwrap_or(0), 0, "it ended");
        let mut last = silent.pop().expect("there are some");
        assert_eq!(ask(&mut last).await.expect("it is there"), *b"ping");
        stop.send(true).expect("it listens");
        drop((known, last));
        served.await.expect("it ends");
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let bind = async |path: &Path| Listener::bind(&Listen::Unix(path.to_owned())).await;
        let file = dir.path().join("file");
        std::fs::write(&file, "precious").expect("written");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        for path in [&file, &link] {
            let refused = bind(path).await.err().expect("it is not a socket");
            let expected = format!("{}: exists and is not a socket", path.display());
            assert!(refused.to_string().starts_with(&expected), "{refused}");
        }
        let kept = std::fs::read_to_string(&link).expect("both are there");
        assert_eq!(kept, "precious");
        // A socket in use stays, and one that a killed process left is replaced.
        let socket = dir.path().join("socket");
        let first = bind(&socket).await.expect("the path is free");
        let second = bind(&socket).await.err().expect("it is in use");
        assert!(matches!(second, ListenError::Bind { .. }), "{second}");
        drop(first);
        assert!(is_socket(&socket), "nobody removed it");
        bind(&socket).await.expect("nobody listens there");
    }
}
