//! Peers over TLS that are no agents: what they may do to a port for agents, and to its other connections.

use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tollgate_tls::{ClientFiles, ClientTls, Session};
use tollgate_zmtp::{SocketType, Token, opening, opening_with, ping};

use crate::support::tls::{Fleet, keys, until};
use crate::support::{DEADLINE, LIMITS, directory};

/// A TLS connection that sends any bytes.
struct Peer {
    runtime: Runtime,
    stream: TcpStream,
    session: Session,
}

impl Peer {
    /// A connection with a complete handshake; with a certificate, if it is named.
    fn connect(dir: &Path, address: SocketAddr, certificate: Option<&str>) -> Self {
        let keys = dir.join("keys");
        let own = certificate.map(|name| {
            let of = |end: &str| keys.join(format!("{name}.{end}"));
            (of("pem"), of("key"))
        });
        let files = ClientFiles {
            ca: keys.join("ca.pem"),
            server_name: Some("tollgate".to_owned()),
            own,
        };
        let tls = ClientTls::load(files).expect("files for TLS");
        let mut session = tls.session("tollgate").expect("a session");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let stream = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("connected");
            session.handshake(&stream).await.expect("a handshake");
            stream
        });
        Self {
            runtime,
            stream,
            session,
        }
    }

    /// Sends bytes, and throws away what arrives meanwhile. Returns whether the other side still takes them.
    fn send(&mut self, mut bytes: &[u8]) -> bool {
        let (stream, session) = (&self.stream, &mut self.session);
        self.runtime.block_on(async {
            let mut read = vec![0; 64 << 10];
            loop {
                if bytes.is_empty() && !session.wants_write() {
                    return true;
                }
                match session.write(stream, &[IoSlice::new(bytes)]) {
                    Ok(written) => bytes = &bytes[written..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
                if session.flush(stream).is_err() {
                    return false;
                }
                match session.read(stream, &mut read) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        tokio::task::yield_now().await;
                    }
                    Err(_) => return false,
                }
            }
        })
    }

    /// What arrives until the other side closes the connection.
    fn rest(&mut self) -> Vec<u8> {
        let (stream, session) = (&self.stream, &mut self.session);
        let until_closed = async {
            let (mut all, mut read) = (Vec::new(), vec![0; 64 << 10]);
            loop {
                match session.read(stream, &mut read) {
                    Ok(0) => return all,
                    Ok(some) => all.extend_from_slice(&read[..some]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        stream.readable().await.expect("a socket");
                    }
                    Err(_) => return all,
                }
            }
        };
        self.runtime
            .block_on(async { timeout(DEADLINE, until_closed).await })
            .expect("the connection ends")
    }
}

#[test]
fn a_certificate_whose_ca_was_removed_after_its_handshake_opens_nothing() {
    let fleet = Fleet::start();
    let certificate = Some("checkout.internal");
    let mut peer = Peer::connect(fleet.path(), fleet.served.feed, certificate);
    let others = directory(LIMITS);
    keys(others.path(), &["ca"]);
    std::fs::copy(
        others.path().join("keys/ca.pem"),
        fleet.path().join("keys/ca.new"),
    )
    .expect("copied");
    std::fs::rename(
        fleet.path().join("keys/ca.new"),
        fleet.path().join("keys/ca.pem"),
    )
    .expect("in its place");
    until("the other CA is in force", || {
        fleet.served.metric("tollgate_tls_reloads_total") == 1.0
    });
    // Greeting and READY, which the aggregator admits by the certificate.
    peer.send(&opening(SocketType::Sub));
    let rest = peer.rest();
    let reason = b"was revoked";
    let found = rest.windows(reason.len()).any(|some| some == reason);
    assert!(found, "{}", String::from_utf8_lossy(&rest));
}

/// A peer that has sent so much is read again and again.
const MUCH_BYTES: usize = 1 << 20;

/// Sends without pause to the port for agents, with this token, while another agent connects. Returns the bytes.
fn sent_beside_an_agent(fleet: &Fleet, token: &[u8]) -> usize {
    let token = Token::new(token.trim_ascii());
    let mut peer = Peer::connect(fleet.path(), fleet.served.agents, None);
    peer.send(&opening_with(SocketType::Dealer, Some(&token)));
    let (ends, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let flood = std::thread::spawn({
        let (ends, sent) = (Arc::clone(&ends), Arc::clone(&sent));
        move || {
            let pings = ping().repeat(2_000);
            while !ends.load(Ordering::Relaxed) && peer.send(&pings) {
                sent.fetch_add(pings.len(), Ordering::Relaxed);
            }
        }
    });
    until("it sends, or is cut off", || {
        MUCH_BYTES < sent.load(Ordering::Relaxed) || flood.is_finished()
    });
    let agent = fleet.agent("checkout", "checkout-1");
    let free = agent.rate("api.free");
    until("another agent is limited", || {
        free.hit("acme").is_ok_and(|answer| !answer.blind())
    });
    ends.store(true, Ordering::Relaxed);
    flood.join().expect("no panic");
    sent.load(Ordering::Relaxed)
}

#[test]
fn a_peer_that_sends_without_pause_keeps_no_other_from_its_turn() {
    let fleet = Fleet::start();
    let token = std::fs::read(fleet.path().join("keys/checkout.token")).expect("read");
    let sent = sent_beside_an_agent(&fleet, &token);
    assert!(MUCH_BYTES < sent, "it sent only {sent} bytes");
    // And one that is refused, and does not stop.
    sent_beside_an_agent(&fleet, b"tg1_unknown");
}
