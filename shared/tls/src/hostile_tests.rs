//! Faulty and hostile peers: invalid certificates, sessions that were recorded, altered or cut, and peers that ask
//! for an older TLS.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use tokio::net::{TcpListener, TcpStream};

use crate::{ClientFiles, ClientTls, ServerFiles, ServerTls, Session, provider};

const NAME: &str = "tollgate.internal";
const SOON: Duration = Duration::from_secs(20);

/// A root CA or an intermediate one.
struct Authority {
    der: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn root(name: &str) -> Self {
        let pair = KeyPair::generate().unwrap();
        let made = Self::params(name).self_signed(&pair).unwrap();
        Self::of(name, pair, &made)
    }

    fn between(&self, name: &str) -> Self {
        let pair = KeyPair::generate().unwrap();
        let made = Self::params(name).signed_by(&pair, &self.issuer).unwrap();
        Self::of(name, pair, &made)
    }

    fn of(name: &str, pair: KeyPair, made: &rcgen::Certificate) -> Self {
        Self {
            der: made.der().clone(),
            pem: made.pem(),
            issuer: Issuer::new(Self::params(name), pair),
        }
    }

    /// The configuration of an aggregator with a certificate of this CA, valid or not, with `between` in its chain.
    fn serves(
        &self,
        name: &str,
        (from, to): (i32, i32),
        between: &[&CertificateDer<'static>],
    ) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let pair = KeyPair::generate().unwrap();
        let own = params.signed_by(&pair, &self.issuer).unwrap();
        let between = between.iter().map(|one| (*one).clone());
        let chain = [own.der().clone()].into_iter().chain(between).collect();
        let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key);
        Arc::new(config.unwrap())
    }
}

fn client(dir: &Path, root: &Authority) -> ClientTls {
    let ca = dir.join("ca.pem");
    std::fs::write(&ca, &root.pem).unwrap();
    let files = ClientFiles::new(ca, Some(NAME.to_owned()), (None, None)).unwrap();
    ClientTls::load(files).unwrap()
}

fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let timed = async { tokio::time::timeout(SOON, what).await };
    runtime.block_on(timed).expect("it ends in time")
}

fn accepted(config: &Arc<ServerConfig>) -> Session {
    let server = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
    Session::new(server.into())
}

/// Waits for the next read: some bytes, or none at the end.
async fn read(session: &mut Session, stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = [0; 4_096];
    loop {
        match session.read(stream, &mut bytes) {
            Ok(read) => return Ok(bytes[..read].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await?,
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn a_chain_without_its_intermediate_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = Authority::root("one");
    let between = root.between("between");
    let pair = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![NAME.to_owned(), "10.0.0.4".to_owned()]).unwrap();
    let own = params.signed_by(&pair, &between.issuer).unwrap().pem();
    let of = |file: &str| dir.path().join(file);
    std::fs::write(of("ca.pem"), &root.pem).unwrap();
    std::fs::write(of("own.key"), pair.serialize_pem()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(of("own.key"), mode).unwrap();
    let load = |chain: &str, name: &str| {
        std::fs::write(of("own.pem"), chain).unwrap();
        ServerTls::load(ServerFiles {
            cert: of("own.pem"),
            key: of("own.key"),
            client_ca: Some(of("ca.pem")),
            server_name: Some(name.to_owned()),
        })
    };
    let whole = load(&format!("{own}{}", between.pem), NAME).unwrap();
    assert!(whole.chain_fault().is_none());
    assert!(whole.is_for(NAME) && whole.is_for("10.0.0.4") && !whole.is_for("10.0.0.5"));
    let fault = load(&own, NAME).unwrap().chain_fault().unwrap().to_string();
    assert!(
        fault.contains("own.pem: no CA in ") && fault.contains("lacks an intermediate"),
        "{fault}"
    );
    let fault = load(&own, "other.internal").unwrap_err().to_string();
    let expected = format!("is for the names {NAME}, expected one that is for other.internal");
    assert!(fault.contains(&expected), "{fault}");
}

/// An agent's result of connecting to an aggregator.
fn meets(client: &ClientTls, config: &Arc<ServerConfig>) -> Result<(), String> {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (served, _) = listener.accept().await.unwrap();
        let (mut own, mut other) = (client.session(NAME).unwrap(), accepted(config));
        let (met, _) = tokio::join!(own.handshake(&stream), other.handshake(&served));
        met.map_err(|error| error.to_string())
    })
}

#[test]
fn a_certificate_that_does_not_hold_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let root = Authority::root("one");
    let between = root.between("between");
    let client = client(dir.path(), &root);
    let years = (2020, 2120);
    assert_eq!(meets(&client, &root.serves(NAME, years, &[])), Ok(()));
    let whole = between.serves(NAME, years, &[&between.der]);
    assert_eq!(meets(&client, &whole), Ok(()));
    for (config, expected) in [
        (
            root.serves(NAME, (2020, 2021), &[]),
            "has expired, or this machine's clock is ahead",
        ),
        (
            root.serves(NAME, (2119, 2120), &[]),
            "is not valid yet, or this machine's clock is behind",
        ),
        (
            root.serves("other.internal", years, &[]),
            "is for other names than the expected server name",
        ),
        (
            Authority::root("other").serves(NAME, years, &[]),
            "was not issued by any CA of the CA file",
        ),
        (
            between.serves(NAME, years, &[]),
            "or its chain lacks an intermediate certificate",
        ),
    ] {
        let outcome = meets(&client, &config).expect_err(expected);
        assert!(outcome.contains(expected), "{outcome}");
    }
}

#[test]
fn an_older_tls_version_gets_no_session() {
    let config = Authority::root("one").serves(NAME, (2020, 2120), &[]);
    let version = [3, 3];
    let mut hello = [&version[..], &[7; 32], &[0]].concat();
    // One suite of TLS 1.2, no compression, and the groups and signatures that it needs; no supported_versions.
    hello.extend([0, 2, 0xc0, 0x2b, 1, 0, 0, 18]);
    hello.extend([0, 10, 0, 4, 0, 2, 0, 23]);
    hello.extend([0, 13, 0, 6, 0, 4, 4, 3, 5, 3]);
    let length = hello.len() as u8;
    let handshake = [&[1, 0, 0, length][..], &hello].concat();
    let record = [&[22, 3, 1, 0, length + 4][..], &handshake].concat();
    let outcome = run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut peer = std::net::TcpStream::connect(address).unwrap();
        peer.write_all(&record).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        accepted(&config).handshake(&stream).await
    });
    let outcome = outcome.expect_err("no session").to_string();
    assert!(outcome.contains("does not speak TLS 1.3"), "{outcome}");
}

/// A proxy between an agent and an aggregator: forwards the first `most` bytes of the agent and then cuts both
/// connections, with one bit changed in the byte before the last if requested; returns all bytes that the agent sent.
fn tap(
    to: SocketAddr,
    most: usize,
    alters: bool,
) -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handle = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = std::net::TcpStream::connect(to).unwrap();
        let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || io::copy(&mut from, &mut back));
        let (mut sent, mut bytes) = (Vec::new(), [0; 4_096]);
        while let Ok(read) = client.read(&mut bytes)
            && 0 < read
            && sent.len() < most
        {
            let before = sent.len();
            sent.extend(&bytes[..read]);
            let passed = sent.len().min(most);
            let mut piece = sent[before..passed].to_vec();
            if alters && passed == most {
                *piece.iter_mut().rev().nth(1).unwrap() ^= 1;
            }
            server.write_all(&piece).unwrap();
        }
        let _ = server.shutdown(Shutdown::Write);
        sent
    });
    (address, handle)
}

/// A session in which the agent sends a message: what the aggregator reads of it until the end, and the agent's
/// bytes.
fn through_a_tap(
    client: &ClientTls,
    config: &Arc<ServerConfig>,
    most: usize,
    alters: bool,
) -> (io::Result<Vec<u8>>, Vec<u8>) {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, tapped) = tap(listener.local_addr().unwrap(), most, alters);
        let stream = TcpStream::connect(address).await.unwrap();
        let (served, _) = listener.accept().await.unwrap();
        let (mut own, mut other) = (client.session(NAME).unwrap(), accepted(config));
        let says = async {
            own.handshake(&stream).await?;
            own.write(&stream, &[IoSlice::new(b"a hundred hits")])?;
            drop((own, stream));
            Ok::<_, io::Error>(())
        };
        let hears = async {
            other.handshake(&served).await?;
            let mut heard = Vec::new();
            loop {
                match read(&mut other, &served).await? {
                    bytes if bytes.is_empty() => return Ok(heard),
                    bytes => heard.extend(bytes),
                }
            }
        };
        let (outcome, heard) = tokio::join!(says, hears);
        outcome.unwrap();
        (heard, tapped.join().unwrap())
    })
}

#[test]
fn a_recorded_or_altered_session_delivers_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = Authority::root("one");
    let client = client(dir.path(), &root);
    let config = root.serves(NAME, (2020, 2120), &[]);
    let (heard, sent) = through_a_tap(&client, &config, usize::MAX, false);
    assert_eq!(heard.unwrap(), b"a hundred hits");
    // If the last record is cut or altered, the aggregator reads nothing of it.
    let (cut, _) = through_a_tap(&client, &config, sent.len() - 3, false);
    assert_eq!(cut.unwrap(), b"");
    let (altered, _) = through_a_tap(&client, &config, sent.len(), true);
    assert_eq!(altered.unwrap_err().kind(), io::ErrorKind::InvalidData);
    // Sent again, they belong to another session.
    let replayed = run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut thief = std::net::TcpStream::connect(address).unwrap();
        thief.write_all(&sent).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        accepted(&config).handshake(&stream).await
    });
    assert_eq!(replayed.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let root = Authority::root("one");
    let of = |file: &str| dir.path().join(file);
    std::fs::write(of("ca.pem"), &root.pem).unwrap();
    let put = |from: i32| {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["checkout".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(2130, 1, 1);
        let own = params.signed_by(&pair, &root.issuer).unwrap();
        std::fs::write(of("own.pem"), own.pem()).unwrap();
        std::fs::write(of("own.key"), pair.serialize_pem()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(of("own.key"), mode).unwrap();
    };
    put(2020);
    let own = (Some(of("own.pem")), Some(of("own.key")));
    let files = ClientFiles::new(of("ca.pem"), None, own).unwrap();
    let client = ClientTls::load(files).unwrap();
    let first = client.config();
    put(2120);
    for _ in 0..2 {
        let fault = client.refresh().expect_err("not valid yet").to_string();
        assert!(fault.contains("own.pem"), "{fault}");
        assert!(Arc::ptr_eq(&first, &client.config()));
    }
    put(2020);
    client.refresh().unwrap();
    assert!(!Arc::ptr_eq(&first, &client.config()));
}
