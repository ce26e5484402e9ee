//! Tests of a connection whose other end is a listener that sends what the test chooses.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tollgate_zmtp::{error, message, opening};

use super::*;

const SOON: Duration = Duration::from_secs(20);

async fn connected(addresses: &[SocketAddr]) -> Result<Socket, SocketFault> {
    let (role, credentials) = (SocketType::Dealer, Credentials::default());
    Socket::connect(role, addresses, &credentials, Instant::now() + SOON).await
}

/// What a DEALER gets from a peer that sends these bytes, one after the other, and then nothing.
async fn met(pieces: Vec<Vec<u8>>) -> Result<Vec<Bytes>, SocketFault> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        for piece in pieces {
            if stream.write_all(&piece).await.is_err() {
                return;
            }
        }
        // It continues to read, so that nothing is reset, until the other side is done.
        let mut bytes = [0; 4_096];
        while matches!(stream.read(&mut bytes).await, Ok(read) if 0 < read) {}
    };
    let met = async {
        let mut socket = connected(&[address]).await?;
        socket.next().await
    };
    tokio::select! {
        biased;
        met = timeout(SOON, met) => met.unwrap(),
        () = peer => panic!("the peer ended first"),
    }
}

fn header(flags: u8, length: u64) -> Vec<u8> {
    [&[flags][..], &length.to_be_bytes()].concat()
}

fn opened(behind: &[u8]) -> Vec<u8> {
    [&opening(SocketType::Router)[..], behind].concat()
}

#[tokio::test]
async fn a_message_is_read_whole_from_any_pieces() {
    let bytes = opened(&message(&[b"", b"welcome"]));
    let pieces = bytes.chunks(3).map(<[u8]>::to_vec).collect();
    let parts = met(pieces).await.unwrap();
    assert_eq!(parts, ["", "welcome"]);
}

#[tokio::test]
async fn a_length_of_terabytes_ends_the_connection_and_nothing_else() {
    for length in [1 << 34, 1 << 40, 1 << 46, u64::MAX] {
        for bytes in [
            opened(&header(2, length)),
            [&opening(SocketType::Router)[..64], &header(6, length)].concat(),
        ] {
            let ended = met(vec![bytes]).await;
            let too_long = Violation::FrameTooLong {
                found: length,
                allowed: 0,
            };
            match ended {
                Err(SocketFault::Violation(violation)) => {
                    assert_eq!(violation.kind(), too_long.kind());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn endless_parts_end_the_connection() {
    let ended = met(vec![opened(&[1, 1, b'x'].repeat(100_000))]).await;
    let refused = matches!(
        ended,
        Err(SocketFault::Violation(Violation::TooManyParts { .. }))
    );
    assert!(refused, "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_trickles_is_given_up() {
    // The paused clock advances by itself while all tasks wait.
    let ended = met(vec![opened(&header(2, 1_000)), vec![1; 10]]).await;
    assert!(matches!(ended, Err(SocketFault::Slow(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_given_up() {
    let ended = met(vec![opened(b"")]).await;
    assert!(matches!(ended, Err(SocketFault::Slow(_))), "{ended:?}");
}

#[tokio::test]
async fn the_reason_of_a_refusal_forges_no_line() {
    let reason = "\u{1b}[31m\n2026-11-26T00:00:00Z ERROR forged\r\u{202e}";
    let refused = met(vec![opened(&error(reason))]).await.unwrap_err();
    assert!(matches!(refused, SocketFault::Refused(_)), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        r"refused: \x1b[31m\n2026-11-26T00:00:00Z ERROR forged\r\u{202e}"
    );
    let long = SocketFault::Tls("\u{1b}".repeat(100_000));
    assert!(long.to_string().len() < 1_100);
}

/// The address of a listener that answers no more connections, as behind a firewall that drops packets; and what
/// keeps it so.
async fn mute() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    let patience = Duration::from_millis(200);
    while let Ok(stream) = timeout(patience, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 1_000, "it accepts everybody");
    }
    (address, (listener, waiting))
}

#[tokio::test]
async fn an_address_that_does_not_answer_hides_no_other() {
    let (mute, _kept) = mute().await;
    let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [mute, open.local_addr().unwrap()];
    let until = Instant::now() + Duration::from_secs(2);
    let stream = reach(&addresses, until).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
    let none = reach(&addresses[..1], Instant::now() + Duration::from_millis(50)).await;
    assert!(matches!(none, Err(SocketFault::Late)), "{none:?}");
}

#[tokio::test]
async fn a_peer_is_not_blamed_for_time_in_which_this_process_stood_still() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&opened(b"")).await.unwrap();
        stream
    };
    let addresses = [address];
    let (socket, _stream) = tokio::join!(connected(&addresses), peer);
    let mut socket = socket.unwrap();
    let now = Instant::now();
    (socket.looked, socket.stalled, socket.unfinished) = (now, Some(now), Some(now));
    let later = now + STALL_MAX + AWAY_MIN;
    assert!(socket.look(later).is_ok(), "it did not run meanwhile");
    assert!(socket.look(later + AWAY_MIN).is_ok());
    let ended = socket.look(later + AWAY_MIN * 2);
    assert!(matches!(ended, Err(SocketFault::Slow(_))), "{ended:?}");
}
