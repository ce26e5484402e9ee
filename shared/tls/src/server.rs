//! TLS of the accepting side: its certificate and key, and the CAs whose certificates callers may show.
//!
//! ```text
//! files ── read each second ── changed and valid ──> the next handshake's configuration
//!                         └── changed and invalid ──> a fault, and the configuration before stays
//! ```
//!
//! What stays true: the three files are replaced only together. A session ticket of one configuration is invalid
//! under the next, so after a CA is removed, no caller gets in by a resumed session.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, Error, RootCertStore, ServerConfig};

use crate::certificate::names;
use crate::client::{check_validity, digest, of_pair, parse_name, refused};
use crate::{Certificate, Session, TlsFault, files, provider};

/// The files of an accepting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate, and the intermediate certificates up to the CA, as PEM.
    pub cert: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
    /// The CAs whose certificates callers may show in place of a token, as PEM. `None`: callers are not asked for a
    /// certificate.
    pub client_ca: Option<PathBuf>,
    /// The name that its certificate must be for. `None`: no name is known here.
    pub server_name: Option<String>,
}

/// TLS for an accepting side.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    /// Digest of the files that were read last, whether or not they could be used.
    digest: blake3::Hash,
    force: Force,
    /// Whether the files that were read last could not be used.
    is_behind: bool,
}

/// The configuration in force.
#[derive(Clone, Debug)]
struct Force {
    config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    client_ca: blake3::Hash,
    not_after: u64,
    own: CertificateDer<'static>,
    /// Why peers that trust the CAs of callers would refuse its chain, if so.
    chain_fault: Option<Arc<TlsFault>>,
}

/// Result of reading the files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// They are unchanged.
    No,
    /// They have changed, and the new ones are in force.
    Yes {
        /// Whether the CAs of callers have changed too: then callers' certificates must be verified again.
        client_ca: bool,
    },
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// What is wrong with the files.
    pub fn load(files: ServerFiles) -> Result<Self, TlsFault> {
        let read = Read::of(&files)?;
        let loaded = Loaded {
            digest: read.digest(),
            force: read.force(&files)?,
            is_behind: false,
        };
        Ok(Self {
            files,
            loaded: Mutex::new(loaded),
        })
    }

    /// Reads the files again, and uses them all together if they have changed.
    ///
    /// # Errors
    ///
    /// What is wrong with files that have changed since the last call; the files before stay in force.
    pub fn reload(&self) -> Result<Reloaded, TlsFault> {
        let read = Read::of(&self.files);
        let digest = match &read {
            Ok(read) => read.digest(),
            // The fault of a missing file is returned once, like that of an invalid one.
            Err(fault) => blake3::hash(fault.to_string().as_bytes()),
        };
        let (is_same, is_behind) = {
            let mut loaded = self.lock();
            let is_same = std::mem::replace(&mut loaded.digest, digest) == digest;
            let is_behind = loaded.is_behind;
            loaded.is_behind = is_behind || !is_same;
            (is_same, is_behind)
        };
        if is_same && !is_behind {
            return Ok(Reloaded::No);
        }
        let force = match read.and_then(|read| read.force(&self.files)) {
            Ok(force) => force,
            // Returned already; but a certificate that was not valid yet may be valid now.
            Err(_) if is_same => return Ok(Reloaded::No),
            Err(fault) => return Err(fault),
        };
        let mut loaded = self.lock();
        let client_ca = loaded.force.client_ca != force.client_ca;
        loaded.force = force;
        loaded.is_behind = false;
        Ok(Reloaded::Yes { client_ca })
    }

    /// Whether the files on disk cannot be used, so that older ones are in force.
    pub fn is_behind(&self) -> bool {
        self.lock().is_behind
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.lock().force.config)
    }

    /// The last second in which the certificate in force is valid, since the Unix epoch.
    pub fn not_after(&self) -> u64 {
        self.lock().force.not_after
    }

    /// Whether the certificate in force is for a name or address.
    pub fn is_for(&self, name: &str) -> bool {
        is_for(&self.lock().force.own, name)
    }

    /// The DNS names of the certificate in force.
    pub fn names(&self) -> Vec<String> {
        names(&self.lock().force.own)
    }

    /// Why peers that trust the CAs of callers (members of a fleet do) would refuse the chain in force, if so. Agents
    /// may trust other CAs, so this is no reason to refuse the file.
    pub fn chain_fault(&self) -> Option<Arc<TlsFault>> {
        self.lock().force.chain_fault.clone()
    }

    /// Whether callers may show a certificate in place of a token.
    pub const fn takes_certificates(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Whether a caller's certificate is valid now, under the CAs in force.
    pub fn verifies(&self, certificate: &Certificate) -> bool {
        let verifier = self.lock().force.verifier.clone();
        let (Some(verifier), Some((own, between))) = (verifier, certificate.chain().split_first())
        else {
            return false;
        };
        let verified = verifier.verify_client_cert(own, between, UnixTime::now());
        verified.is_ok()
    }

    /// Begins a session over a connection that was accepted.
    ///
    /// # Errors
    ///
    /// If rustls cannot begin a session.
    pub fn session(&self) -> Result<Session, Error> {
        let session = rustls::ServerConnection::new(self.config())?;
        Ok(Session::new(session.into()))
    }

    /// The files.
    pub const fn files(&self) -> &ServerFiles {
        &self.files
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Read {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Vec<u8>,
}

impl Read {
    fn of(files: &ServerFiles) -> Result<Self, TlsFault> {
        let client_ca = files.client_ca.as_deref();
        for path in [Some(&*files.cert), Some(&*files.key), client_ca] {
            path.map_or(Ok(()), files::check_regular)?;
        }
        let (cert, key) = files::read_pair(&files.cert, &files.key)?;
        Ok(Self {
            cert,
            key,
            client_ca: client_ca.map(files::read).transpose()?.unwrap_or_default(),
        })
    }

    fn digest(&self) -> blake3::Hash {
        digest(&[&self.cert, &self.key, &self.client_ca])
    }

    fn force(&self, files: &ServerFiles) -> Result<Force, TlsFault> {
        let (cert, key) = (&files.cert, &files.key);
        let chain = files::certificates(cert, &self.cert)?;
        let not_after = check_validity(cert, chain.first())?.not_after;
        let own = own(files, &chain)?;
        let private = files::private_key(key, &self.key)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| refused(cert, &error))?;
        let mut chain_fault = None;
        let verifier = match &files.client_ca {
            None => None,
            Some(path) => {
                let roots = Arc::new(files::roots(path, &self.client_ca)?);
                chain_fault = check_chain((cert, path), &chain, &roots).err();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    // A caller without a certificate needs a token; a caller that shows a certificate needs a valid
                    // one.
                    .allow_unauthenticated()
                    .build();
                Some(verifier.map_err(|error| TlsFault::Refused {
                    path: path.clone(),
                    why: error.to_string(),
                })?)
            }
        };
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, private);
        let mut config = config.map_err(|error| of_pair(cert, key, &error))?;
        if verifier.is_none() {
            // Tickets shorten the handshake of a returning caller, and use no memory here. Each configuration has its
            // own ticket keys.
            config.ticketer =
                rustls::crypto::ring::Ticketer::new().map_err(|error| refused(cert, &error))?;
        } else {
            // A resumed session shows no certificate again: it could go on after the certificate's end.
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        }
        Ok(Force {
            config: Arc::new(config),
            verifier,
            client_ca: blake3::hash(&self.client_ca),
            not_after,
            own,
            chain_fault: chain_fault.map(Arc::new),
        })
    }
}

/// The certificate of this side, checked to be for the name that callers expect.
fn own(
    files: &ServerFiles,
    chain: &[CertificateDer<'static>],
) -> Result<CertificateDer<'static>, TlsFault> {
    let own = chain.first().cloned().unwrap_or_else(|| Vec::new().into());
    match &files.server_name {
        Some(expected) if !is_for(&own, expected) => Err(TlsFault::OtherNames {
            path: files.cert.clone(),
            names: names(&own),
            expected: expected.clone(),
        }),
        _ => Ok(own),
    }
}

fn is_for(own: &CertificateDer<'_>, name: &str) -> bool {
    let parsed = ParsedCertificate::try_from(own);
    let (Ok(parsed), Ok(name)) = (parsed, parse_name(name)) else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// Checks whether a client that trusts these CAs would trust the chain.
fn check_chain(
    (cert, ca): (&Path, &Path),
    chain: &[CertificateDer<'static>],
    roots: &RootCertStore,
) -> Result<(), TlsFault> {
    let Some((own, between)) = chain.split_first() else {
        return Ok(());
    };
    let parsed = ParsedCertificate::try_from(own).map_err(|error| refused(cert, &error))?;
    let known = provider().signature_verification_algorithms.all;
    let now = UnixTime::now();
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, between, now, known).map_err(
        |error| match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => TlsFault::Chain {
                path: cert.to_owned(),
                ca: ca.to_owned(),
            },
            error => refused(cert, &error),
        },
    )
}
