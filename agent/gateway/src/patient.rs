//! A stream for HTTP/1 whose peer has to complete what it has begun.
//!
//! ```text
//! silent between requests       not checked here; hyper closes it after a minute
//! a head's first bytes          the rest within 5 s
//! an answer, of which nothing   is read for 10 s: closed
//! a head that is refused        read to its end all the same, 2 MiB at most, for a second
//! ```
//!
//! A connection that is closed while bytes of its peer are unread is reset, and the peer may lose the refusal (431). A
//! web server would take the gateway for gone, and let requests through.
//!
//! What stays true: closed connections are counted by reason.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::connections::{Connection, EndReason};

/// How long the head of a request may take from its first byte.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// How long a peer may read nothing of an answer.
const READS_WITHIN: Duration = Duration::from_secs(10);

/// For how long a refused head is read: less than a gateway that stops has for its connections.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// How much of a refused head is read. Web servers take heads of 1 MiB at most.
const REFUSED_BYTES_MAX: usize = 2 << 20;

/// A stream with a time limit for what was begun on it.
pub(crate) struct PatientStream<S> {
    stream: S,
    connection: Arc<Connection>,
    /// The head in progress: how many there were before it, and when it is late.
    head: Option<(u64, Pin<Box<Sleep>>)>,
    stuck: Option<Pin<Box<Sleep>>>,
    /// How much of a refused head has been read since the stream was shut down, and when that ends.
    refused: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<S> PatientStream<S> {
    pub const fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            connection,
            head: None,
            stuck: None,
            refused: None,
        }
    }

    fn is_head_late(&mut self, cx: &mut Context<'_>, came: bool) -> bool {
        let (heads, is_answering) = self.connection.heads();
        if is_answering
            || self
                .head
                .as_ref()
                .is_some_and(|(before, _)| *before != heads)
        {
            self.head = None;
        }
        if came && !is_answering && self.head.is_none() {
            self.head = Some((heads, Box::pin(sleep(HEAD_WITHIN))));
        }
        let late = self.head.as_mut();
        !came && late.is_some_and(|(_, late)| late.as_mut().poll(cx).is_ready())
    }

    fn wait<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self
            .stuck
            .get_or_insert_with(|| Box::pin(sleep(READS_WITHIN)));
        match stuck.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(self.ended(EndReason::SlowReader))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn ended(&self, reason: EndReason) -> io::Error {
        self.connection.note(reason);
        io::ErrorKind::TimedOut.into()
    }
}

impl<S: AsyncRead + Unpin> PatientStream<S> {
    /// Reads the rest of a head that began no request. Ready when there is no more to wait for.
    fn poll_rest_of_head(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 8 * 1_024];
        while let Some((before, _)) = &self.head
            && self.connection.heads() == (*before, false)
            && let Some((read, late)) = &mut self.refused
            && *read <= REFUSED_BYTES_MAX
            && late.as_mut().poll(cx).is_pending()
        {
            let mut bytes = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut bytes)) {
                Ok(()) if !bytes.filled().is_empty() => *read += bytes.filled().len(),
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PatientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let came = before < buf.filled().len();
        let is_late = self.is_head_late(cx, came);
        match read {
            Poll::Pending if is_late => Poll::Ready(Err(self.ended(EndReason::SlowHead))),
            read => read,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PatientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wait(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.wait(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.wait(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refused.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.refused = Some((0, Box::pin(sleep(REFUSED_WITHIN))));
        }
        self.poll_rest_of_head(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::time::timeout;

    use super::*;
    use crate::connections::Connections;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_ends_its_connection() {
        let (connection, _end) = Connections::enter(&Arc::new(Connections::new(1)));
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = PatientStream::new(near, connection);
        let slowly = async {
            let mut read = [0; 32];
            for _ in 0..4 {
                sleep(READS_WITHIN - Duration::from_secs(1)).await;
                far.read_exact(&mut read).await.expect("an answer");
            }
            far
        };
        let answer = [0; 129];
        let (written, _far) = tokio::join!(stream.write_all(&answer), slowly);
        assert!(written.is_ok(), "whoever reads something has time");
        let error = stream.write_all(&answer).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// A stream on which a head was begun, and its peer's end.
    async fn begun(connection: &Arc<Connection>) -> (PatientStream<DuplexStream>, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = PatientStream::new(near, Arc::clone(connection));
        far.write_all(b"GET / HTTP").await.expect("room");
        let mut bytes = [0; 64];
        assert_eq!(stream.read(&mut bytes).await.expect("a part"), 10);
        (stream, far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_refused_is_read_to_its_end() {
        let (connection, _end) = Connections::enter(&Arc::new(Connections::new(1)));
        let (mut stream, mut far) = begun(&connection).await;
        let rest = async {
            far.write_all(&[b'x'; 300]).await.expect("it is read");
            sleep(REFUSED_WITHIN / 2).await;
            far.write_all(&[b'x'; 300]).await.expect("it is read");
            far.shutdown().await
        };
        let (shut, rest) = tokio::join!(stream.shutdown(), rest);
        assert!(shut.is_ok() && rest.is_ok());
        assert_eq!(stream.refused.map(|(read, _)| read), Some(600));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_head_that_is_refused_is_waited_for() {
        for is_refused in [true, false] {
            let (connection, _end) = Connections::enter(&Arc::new(Connections::new(1)));
            let (mut stream, _far) = begun(&connection).await;
            if !is_refused {
                connection.begin_request();
                connection.end_request();
            }
            let shut = timeout(REFUSED_WITHIN / 2, stream.shutdown()).await;
            assert_eq!(shut.is_err(), is_refused, "at once, or not");
            let shut = timeout(REFUSED_WITHIN, stream.shutdown()).await;
            assert!(shut.expect("it ends").is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_was_begun_is_late_and_silence_is_not() {
        let (connection, _end) = Connections::enter(&Arc::new(Connections::new(1)));
        let (near, mut far) = tokio::io::duplex(64);
        let mut stream = PatientStream::new(near, Arc::clone(&connection));
        let mut bytes = [0; 64];
        for _ in 0..3 {
            far.write_all(b"GET / HTTP/1.1\r\n\r\n")
                .await
                .expect("room");
            assert_eq!(stream.read(&mut bytes).await.expect("a head"), 18);
            connection.begin_request();
            connection.end_request();
            let silent = timeout(10 * HEAD_WITHIN, stream.read(&mut bytes)).await;
            assert!(silent.is_err(), "{silent:?}");
        }
        far.write_all(b"GET").await.expect("room");
        assert_eq!(stream.read(&mut bytes).await.expect("a part"), 3);
        let late = stream.read(&mut bytes).await.expect_err("no more comes");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
