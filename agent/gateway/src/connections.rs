//! The connections of one address: how many there may be, how much memory their requests may take, and which one is
//! closed to make room.
//!
//! ```text
//! one connection too many          closes the one whose last answer, or whose start, is longest ago
//! bodies of more than 16 MiB       closes the connection with the most bytes of unfinished requests
//! ```
//!
//! So a peer that opens connections and is silent, or begins requests and does not end them, takes nothing from
//! others: a peer with a request is answered within microseconds, and is the last to be closed. Knows nothing of
//! protocols. What stays true: closed connections are counted by reason, and at most one a second is logged.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use metrics::counter;
use tokio::sync::oneshot;
use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::Span;

/// Connections at once, if the limit on open files allows as many.
const CONNECTIONS_MAX: u64 = 4_096;

/// Bytes of unfinished requests of all connections: sixteen of the greatest messages of gRPC.
const BODIES_BYTES_MAX: usize = 16 << 20;

/// The least time between two log lines about closed connections.
const LINE_EVERY: Span = Span::from_secs(1);

/// Why a connection or a request of it was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The bound on connections was reached, and this one's last answer was longest ago.
    Room,
    /// Unfinished requests reached the bound on memory, and this connection's took most.
    Bodies,
    /// The head of a request did not end in time.
    SlowHead,
    /// The body of a request did not end in time.
    SlowBody,
    /// A gRPC request was not answered in time, because its message did not arrive.
    SlowRequest,
    /// An answer was not read.
    SlowReader,
}

impl EndReason {
    const fn name(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Bodies => "bodies",
            Self::SlowHead => "slow_head",
            Self::SlowBody => "slow_body",
            Self::SlowRequest => "slow_request",
            Self::SlowReader => "slow_reader",
        }
    }
}

/// How many connections there may be at each of this many addresses, under this limit on open files: half of the
/// files are for the agent and whatever else the process has open.
pub(crate) fn connections_max(files_max: Option<u64>, addresses: u64) -> usize {
    let allowed = files_max.map_or(CONNECTIONS_MAX, |files| files / 2 / addresses.max(1));
    usize::try_from(allowed.clamp(1, CONNECTIONS_MAX)).unwrap_or(1)
}

/// All connections of one address.
pub(crate) struct Connections {
    max: usize,
    turns: AtomicU64,
    state: Mutex<ConnectionsState>,
    began: Instant,
    lines: Mutex<LineInterval>,
}

#[derive(Default)]
struct ConnectionsState {
    open: HashMap<u64, OpenConnection>,
    body_bytes: usize,
}

struct OpenConnection {
    /// The turn of its last answer, or of its start.
    answered: Arc<AtomicU64>,
    body_bytes: usize,
    end: oneshot::Sender<EndReason>,
}

/// One connection, which gives its place back when it is dropped.
pub(crate) struct Connection {
    id: u64,
    answered: Arc<AtomicU64>,
    /// How many heads of requests were read to their end.
    heads: AtomicU64,
    is_answering: AtomicBool,
    all: Arc<Connections>,
}

impl Connections {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            turns: AtomicU64::new(0),
            state: Mutex::default(),
            began: Instant::now(),
            lines: Mutex::new(LineInterval::new(LINE_EVERY)),
        }
    }

    /// A place for another connection, and a channel that announces that it has to end.
    pub fn enter(all: &Arc<Self>) -> (Arc<Connection>, oneshot::Receiver<EndReason>) {
        let id = all.turn();
        let answered = Arc::new(AtomicU64::new(id));
        let (end, ended) = oneshot::channel();
        let mut state = all.state();
        while all.max <= state.open.len() {
            let answered = |one: &OpenConnection| one.answered.load(Ordering::Relaxed);
            let longest = state.open.iter().min_by_key(|(_, one)| answered(one));
            let Some(longest) = longest.map(|(id, _)| *id) else {
                break;
            };
            state.end(longest, EndReason::Room);
        }
        let open = OpenConnection {
            answered: Arc::clone(&answered),
            body_bytes: 0,
            end,
        };
        state.open.insert(id, open);
        drop(state);
        let connection = Connection {
            id,
            answered,
            heads: AtomicU64::new(0),
            is_answering: AtomicBool::new(false),
            all: Arc::clone(all),
        };
        (Arc::new(connection), ended)
    }

    /// Counts and logs an ended connection or request.
    pub fn note(&self, reason: EndReason) {
        let reason = reason.name();
        counter!("tollgate_gateway_ended_total", "reason" => reason).increment(1);
        let clock = Span::from_std(self.began.elapsed());
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unsaid) = lines.may(clock) {
            tracing::warn!(reason, unsaid, "ended a connection or a request");
        }
    }

    fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, ConnectionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionsState {
    /// Removes a connection; its place and its bytes are free at once.
    fn end(&mut self, id: u64, reason: EndReason) {
        if let Some(open) = self.open.remove(&id) {
            self.body_bytes -= open.body_bytes;
            // Its task may have ended by itself.
            let _ = open.end.send(reason);
        }
    }
}

impl Connection {
    /// A request's head was read, and the request is being answered.
    pub fn begin_request(&self) {
        self.heads.fetch_add(1, Ordering::Relaxed);
        self.is_answering.store(true, Ordering::Relaxed);
    }

    /// A request has its answer.
    pub fn end_request(&self) {
        self.is_answering.store(false, Ordering::Relaxed);
        self.answered.store(self.all.turn(), Ordering::Relaxed);
    }

    /// How many heads were read, and whether the last of their requests is still being answered.
    pub fn heads(&self) -> (u64, bool) {
        let is_answering = self.is_answering.load(Ordering::Relaxed);
        (self.heads.load(Ordering::Relaxed), is_answering)
    }

    /// Counts an ended request or connection.
    pub fn note(&self, reason: EndReason) {
        self.all.note(reason);
    }

    fn add_body(&self, bytes: usize) {
        let mut state = self.all.state();
        let Some(open) = state.open.get_mut(&self.id) else {
            return;
        };
        open.body_bytes += bytes;
        state.body_bytes += bytes;
        while BODIES_BYTES_MAX < state.body_bytes {
            let most = state.open.iter().max_by_key(|(_, one)| one.body_bytes);
            let Some(most) = most.map(|(id, _)| *id) else {
                return;
            };
            state.end(most, EndReason::Bodies);
        }
    }

    fn free_body(&self, bytes: usize) {
        let mut state = self.all.state();
        if let Some(open) = state.open.get_mut(&self.id) {
            open.body_bytes -= bytes;
            state.body_bytes -= bytes;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if let Some(open) = state.open.remove(&self.id) {
            state.body_bytes -= open.body_bytes;
        }
    }
}

/// The body of a request. Its bytes count for its connection until the body is read completely or dropped.
pub(crate) struct MeteredBody {
    body: Incoming,
    connection: Arc<Connection>,
    bytes: usize,
}

impl MeteredBody {
    /// The body of a request whose head takes this many bytes; they count for as long.
    pub fn new(body: Incoming, connection: Arc<Connection>, head_bytes: usize) -> Self {
        if head_bytes != 0 {
            connection.add_body(head_bytes);
        }
        Self {
            body,
            connection,
            bytes: head_bytes,
        }
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.bytes += data.len();
            self.connection.add_body(data.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for MeteredBody {
    fn drop(&mut self) {
        if self.bytes != 0 {
            self.connection.free_body(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_answered_longest_ago_makes_room() {
        let all = Arc::new(Connections::new(3));
        let [
            (first, mut first_end),
            (_second, mut second_end),
            (third, mut third_end),
        ] = [(); 3].map(|()| Connections::enter(&all));
        first.begin_request();
        first.end_request();
        let (_fourth, _fourth_end) = Connections::enter(&all);
        assert_eq!(second_end.try_recv(), Ok(EndReason::Room));
        third.begin_request();
        third.end_request();
        let (_fifth, _fifth_end) = Connections::enter(&all);
        assert_eq!(first_end.try_recv(), Ok(EndReason::Room));
        assert!(third_end.try_recv().is_err(), "it is there");
        drop(third);
        assert_eq!(all.state().open.len(), 2);
    }

    #[test]
    fn the_peer_with_most_unfinished_requests_is_closed_first() {
        let all = Arc::new(Connections::new(10));
        let (small, mut small_end) = Connections::enter(&all);
        let (great, mut great_end) = Connections::enter(&all);
        let (greatest, mut greatest_end) = Connections::enter(&all);
        small.add_body(100);
        great.add_body(BODIES_BYTES_MAX / 3);
        greatest.add_body(BODIES_BYTES_MAX / 2);
        assert!(greatest_end.try_recv().is_err(), "there is room");
        great.add_body(BODIES_BYTES_MAX / 6);
        small.add_body(100);
        assert_eq!(greatest_end.try_recv(), Ok(EndReason::Bodies));
        assert_eq!(
            all.state().body_bytes,
            BODIES_BYTES_MAX / 3 + BODIES_BYTES_MAX / 6 + 200
        );
        // What it gives back was already free.
        greatest.free_body(BODIES_BYTES_MAX / 2);
        great.free_body(BODIES_BYTES_MAX / 6);
        drop(great);
        assert_eq!(all.state().body_bytes, 200);
        assert!(small_end.try_recv().is_err() && great_end.try_recv().is_err());
    }

    #[test]
    fn half_of_the_open_files_are_left_for_the_agent() {
        assert_eq!(connections_max(Some(1_024), 1), 512);
        assert_eq!(connections_max(Some(1_024), 2), 256);
        assert_eq!(connections_max(Some(1 << 20), 2), 4_096);
        assert_eq!(connections_max(None, 2), 4_096);
        assert_eq!(connections_max(Some(0), 1), 1);
    }
}
