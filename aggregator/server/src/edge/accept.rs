//! Accepting connections: a listener, the tasks of its connections, and when accepting pauses.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Edge;
use super::connection::{Connection, Conversation};
use super::counters::PortCounters;
use super::secure::secure;
use super::served::{self, Terms};
use crate::security::{Access, PortKind};

/// How long to wait after an error of accepting that does not concern a single connection: too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// The operating system ends a connection whose peer takes nothing for this long: this process does not see
/// that the peer leaves data in the system's buffer. [`serve`] replaces it by [`super::Bounds::stall`].
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the operating system may buffer of one connection in each direction. Without a bound it would grow to
/// several MiB for a peer that does not read, and that memory is this machine's, too.
const SOCKET_BYTES: usize = 256 << 10;

/// One of the two ports.
pub(crate) trait Port: Clone + Send + 'static {
    /// Handles what peers send.
    type Conversation: Conversation;

    /// Its name, for counters and log lines.
    const NAME: &'static str;

    /// Its kind, which decides what roles may connect.
    const KIND: PortKind;

    /// Its counters.
    fn counters(edge: &Edge) -> &PortCounters;

    /// A peer connected.
    fn open(&self, connection: &Arc<Connection>) -> Self::Conversation;

    /// A connection is gone.
    fn close(&self, connection: &Arc<Connection>);
}

/// Binds a listener, with the limits that its connections inherit.
///
/// # Errors
///
/// The error of the operating system: the address is taken, not allowed, or not of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    // A restart must not wait for connections of the previous process.
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_send_buffer_size(SOCKET_BYTES)?;
    socket.set_recv_buffer_size(SOCKET_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Accepts connections to a port for ever, on the current runtime.
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub(crate) fn serve<P: Port>(
    listener: TcpListener,
    edge: Arc<Edge>,
    access: Access,
    port: P,
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(&listener).set_tcp_user_timeout(Some(edge.bounds.stall))?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    tokio::spawn(accept(listener, edge, Arc::new(access), port));
    Ok(())
}

async fn accept<P: Port>(
    listener: tokio::net::TcpListener,
    edge: Arc<Edge>,
    access: Arc<Access>,
    port: P,
) {
    loop {
        let Some(slot) = slot::<P>(&edge).await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, address)) => {
                open((&edge, &access, &port), stream, address, slot);
                // A crowd of new connections must not keep accepted ones from their handshakes:
                // otherwise the oldest of them would have to make room.
                tokio::task::yield_now().await;
            }
            // The connection was gone before it was accepted.
            Err(error) if is_one_connections(&error) => {}
            Err(error) => {
                edge.paused.fetch_add(1, Ordering::Relaxed);
                edge.lines.not_accepted(P::NAME, &error);
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// A slot for one more connection, for which it may have to wait.
async fn slot<P: Port>(edge: &Arc<Edge>) -> Option<OwnedSemaphorePermit> {
    if let Ok(slot) = Arc::clone(&edge.slots).try_acquire_owned() {
        return Some(slot);
    }
    edge.paused.fetch_add(1, Ordering::Relaxed);
    edge.lines.paused(P::NAME, edge.slots_max);
    Arc::clone(&edge.slots).acquire_owned().await.ok()
}

fn is_one_connections(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

fn open<P: Port>(
    (edge, access, port): (&Arc<Edge>, &Arc<Access>, &P),
    stream: TcpStream,
    address: SocketAddr,
    slot: OwnedSemaphorePermit,
) {
    // Linux inherits the option from the listener, other systems do not.
    let _ = stream.set_nodelay(true);
    let number = edge.numbers.fetch_add(1, Ordering::Relaxed);
    let (port_name, agent) = (P::NAME, tracing::field::Empty);
    let span = tracing::info_span!("connection", port = port_name, %address, agent);
    if let Err(ended) = edge.enter(number, address.ip()) {
        P::counters(edge).count(&ended);
        span.in_scope(|| edge.lines.ended(None, &ended));
        return;
    }
    let connection = Arc::new(Connection::new(number, address.ip(), span, stream));
    edge.lock_connections()
        .insert(number, Arc::clone(&connection));
    edge.begin_pending(number, address.ip());
    let (edge, access, port) = (Arc::clone(edge), Arc::clone(access), port.clone());
    let accepted = Instant::now();
    tokio::spawn(async move {
        let counters = P::counters(&edge);
        let mut conversation = port.open(&connection);
        let mut was_ready = false;
        let is_ready = || {
            was_ready = true;
            edge.end_pending(number, address.ip());
            counters.open.fetch_add(1, Ordering::Relaxed);
        };
        let mut did_begin = false;
        let has_begun = || {
            did_begin = edge.lock_crowds().begun(number, address.ip());
        };
        let ended = match secure(&edge, &access, &connection, accepted).await {
            Ok(()) => {
                let terms = Terms {
                    edge: &edge,
                    access: &access,
                    door: P::KIND,
                    accepted,
                };
                let notes = (is_ready, has_begun);
                served::serve(terms, &connection, &mut conversation, notes).await
            }
            Err(ended) => {
                connection.order(ended);
                connection.release(&edge);
                ended
            }
        };
        if was_ready {
            counters.open.fetch_sub(1, Ordering::Relaxed);
        }
        edge.end_pending(number, address.ip());
        edge.lock_connections().remove(&number);
        edge.lock_crowds().leave(number, address.ip(), did_begin);
        port.close(&connection);
        counters.count(&ended);
        let log_end = || edge.lines.ended(connection.detail(), &ended);
        connection.span.in_scope(log_end);
        // The descriptor is closed before its slot is freed.
        drop((conversation, connection));
        drop(slot);
    });
}
