//! TLS of the connecting side: the CAs that it trusts, the name that it expects of peers, and its own certificate.
//!
//! Before a connection is made, files are read again and used if their content has changed, so that an operator who
//! rotates a CA, a certificate or a key need not restart anything. What stays true: files that cannot be used replace
//! nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::pki_types::{IpAddr, ServerName};
use rustls::version::TLS13;

use crate::{Session, TlsFault, Validity, files, provider, utc};

/// The files and names of a connecting side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The CAs that may have issued a peer's certificate, as PEM; see [`Self::new`] for the system's.
    pub ca: PathBuf,
    /// The one name that every peer's certificate must have. `None` means the host that is connected to.
    pub server_name: Option<String>,
    /// Its own certificate (chain) and private key, as PEM.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl ClientFiles {
    /// From settings: certificate and key must be given together, and the word `system` in place of the CA file
    /// stands for the CAs that this system trusts.
    ///
    /// # Errors
    ///
    /// If one of the two is missing, the name is not a host's name, or the system has no file of CAs.
    pub fn new(
        ca: PathBuf,
        server_name: Option<String>,
        (cert, key): (Option<PathBuf>, Option<PathBuf>),
    ) -> Result<Self, TlsFault> {
        if let Some(name) = &server_name {
            parse_name(name)?;
        }
        let own = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(TlsFault::Half),
        };
        Ok(Self {
            ca: files::ca_file(ca)?,
            server_name,
            own,
        })
    }
}

/// TLS for a connecting side.
#[derive(Debug)]
pub struct ClientTls {
    files: ClientFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    /// Digest of the files in force.
    digest: blake3::Hash,
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// What is wrong with the files.
    pub fn load(files: ClientFiles) -> Result<Self, TlsFault> {
        let read = Read::of(&files)?;
        let loaded = Loaded {
            digest: read.digest(),
            config: Arc::new(read.config(&files)?),
        };
        Ok(Self {
            files,
            loaded: Mutex::new(loaded),
        })
    }

    /// Reads the files again, and uses them all together if they have changed. To be called before a connection is
    /// made.
    ///
    /// # Errors
    ///
    /// What is wrong with files that are not those in force; these stay so.
    pub fn refresh(&self) -> Result<(), TlsFault> {
        let read = Read::of(&self.files)?;
        let digest = read.digest();
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.digest == digest {
            return Ok(());
        }
        // Only now: a certificate that is not valid yet may be valid at the next call.
        loaded.config = Arc::new(read.config(&self.files)?);
        loaded.digest = digest;
        Ok(())
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<ClientConfig> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&loaded.config)
    }

    /// The name that a peer at `host` must show: the one in the settings, or the host itself.
    ///
    /// # Errors
    ///
    /// If it is not a valid name.
    pub fn expected_name(&self, host: &str) -> Result<ServerName<'static>, TlsFault> {
        parse_name(self.files.server_name.as_deref().unwrap_or(host))
    }

    /// Begins a session with a peer at `host`, over a connection that was made.
    ///
    /// # Errors
    ///
    /// If the host is not a valid name, or rustls cannot begin a session.
    pub fn session(&self, host: &str) -> Result<Session, TlsFault> {
        let name = self.expected_name(host)?;
        let session = rustls::ClientConnection::new(self.config(), name);
        let session = session.map_err(|error| refused(&self.files.ca, &error))?;
        Ok(Session::new(session.into()))
    }

    /// The files.
    pub const fn files(&self) -> &ClientFiles {
        &self.files
    }
}

/// Checks whether a name is a host's name or an address, so that a certificate can be for it.
///
/// # Errors
///
/// [`TlsFault::ServerName`] if it is neither.
pub fn check_name(name: &str) -> Result<(), TlsFault> {
    parse_name(name).map(drop)
}

pub(crate) fn parse_name(name: &str) -> Result<ServerName<'static>, TlsFault> {
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    if let Ok(address) = bare.parse::<std::net::IpAddr>() {
        return Ok(ServerName::IpAddress(IpAddr::from(address)));
    }
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsFault::ServerName(name.to_owned()))
}

pub(crate) fn refused(path: &Path, error: &rustls::Error) -> TlsFault {
    TlsFault::Refused {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

struct Read {
    ca: Vec<u8>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Read {
    fn of(files: &ClientFiles) -> Result<Self, TlsFault> {
        let pair = files.own.iter().flat_map(|(cert, key)| [cert, key]);
        for path in pair.chain([&files.ca]) {
            files::check_regular(path)?;
        }
        let own = match &files.own {
            Some((cert, key)) => Some(files::read_pair(cert, key)?),
            None => None,
        };
        Ok(Self {
            ca: files::read(&files.ca)?,
            own,
        })
    }

    fn digest(&self) -> blake3::Hash {
        let (cert, key) = match &self.own {
            Some((cert, key)) => (&cert[..], &key[..]),
            None => (&[][..], &[][..]),
        };
        digest(&[&self.ca, cert, key])
    }

    fn config(&self, files: &ClientFiles) -> Result<ClientConfig, TlsFault> {
        let roots = files::roots(&files.ca, &self.ca)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| refused(&files.ca, &error))?
            .with_root_certificates(roots);
        let (Some((cert, key)), Some((cert_bytes, key_bytes))) = (&files.own, &self.own) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = files::certificates(cert, cert_bytes)?;
        check_validity(cert, chain.first())?;
        let private = files::private_key(key, key_bytes)?;
        builder
            .with_client_auth_cert(chain, private)
            .map_err(|error| of_pair(cert, key, &error))
    }
}

/// A digest of contents, each with its length, so that no two different lists have the same digest.
pub(crate) fn digest(contents: &[&[u8]]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for content in contents {
        hasher.update(&(content.len() as u64).to_le_bytes());
        hasher.update(content);
    }
    hasher.finalize()
}

pub(crate) fn of_pair(cert: &Path, key: &Path, error: &rustls::Error) -> TlsFault {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsFault::Mismatch {
            cert: cert.to_owned(),
            key: key.to_owned(),
        },
        error => refused(cert, error),
    }
}

pub(crate) fn check_validity(
    path: &Path,
    own: Option<&rustls::pki_types::CertificateDer<'_>>,
) -> Result<Validity, TlsFault> {
    let validity = own
        .and_then(Validity::of)
        .ok_or_else(|| TlsFault::Refused {
            path: path.to_owned(),
            why: "the first certificate does not say how long it is valid".to_owned(),
        })?;
    let now = utc::now();
    match validity.contains(now) {
        true => Ok(validity),
        false => Err(TlsFault::NotValidNow {
            path: path.to_owned(),
            validity,
            now: utc::text(now),
        }),
    }
}
