//! Reading PEM files and secrets, with a bound on their length and a look at who else may read them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
#[cfg(unix)]
use tollgate_shared::file_mode::{check_believed, check_secret};

use crate::TlsFault;

/// The longest PEM file: a system's bundle of all public CAs has some 250 KB.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// The longest secret on one line.
const SECRET_BYTES_MAX: u64 = 4 << 10;

/// The word that stands for the system's CAs in the place of a CA file.
const SYSTEM: &str = "system";

/// The variable that names the file of the system's CAs, for whoever keeps it elsewhere.
pub(crate) const SYSTEM_VARIABLE: &str = "SSL_CERT_FILE";

/// Where systems keep the CAs that they trust: Debian and Alpine, Fedora, openSUSE, BSD and macOS.
pub(crate) const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file of CAs that a setting means.
pub(crate) fn ca_file(stated: PathBuf) -> Result<PathBuf, TlsFault> {
    if stated.as_os_str() != SYSTEM {
        return Ok(stated);
    }
    let named = std::env::var_os(SYSTEM_VARIABLE).filter(|path| !path.is_empty());
    let mut usual = SYSTEM_FILES.iter().map(PathBuf::from);
    let found = named
        .map(PathBuf::from)
        .or_else(|| usual.find(|path| path.exists()));
    found.ok_or(TlsFault::NoSystemRoots)
}

/// The bytes of a file that says who is believed: others must not be able to write it.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsFault> {
    read_bounded(path, PEM_BYTES_MAX, false)
}

/// The bytes of a certificate's file and of its private key's, which others must not be able to read.
pub(crate) fn read_pair(cert: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), TlsFault> {
    let chain = read(cert)?;
    // First, or whoever has swapped the two is told of the mode of a file that has no secret.
    certificates(cert, &chain)?;
    Ok((chain, read_bounded(key, PEM_BYTES_MAX, true)?))
}

/// The secret that stands alone on the one line of a file, such as a token.
///
/// # Errors
///
/// Where the file cannot be read, can be read by every user of the machine, or has something else in it.
pub fn read_secret(path: &Path) -> Result<String, TlsFault> {
    if path.as_os_str().as_encoded_bytes().starts_with(b"tg1_") && !path.exists() {
        return Err(TlsFault::TokenForPath);
    }
    let bytes = read_bounded(path, SECRET_BYTES_MAX, true)?;
    let not_a_line = |found| TlsFault::NotALine {
        path: path.to_owned(),
        found,
    };
    let text = str::from_utf8(&bytes).map_err(|_| not_a_line("it is not text"))?;
    let line = text.trim();
    match line {
        "" => Err(not_a_line("it is empty")),
        line if line.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(line.to_owned()),
        _ => Err(not_a_line("it has spaces or several lines")),
    }
}

/// The bytes of a file of secrets, at most so many.
///
/// # Errors
///
/// Where the file cannot be read, is longer, or can be read by every user of the machine.
pub fn read_secrets(path: &Path, bytes_max: u64) -> Result<Vec<u8>, TlsFault> {
    read_bounded(path, bytes_max, true)
}

fn read_bounded(path: &Path, allowed: u64, is_secret: bool) -> Result<Vec<u8>, TlsFault> {
    let failed = |source| TlsFault::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    // Of the open file: whatever the name stands for a moment later does not matter.
    let metadata = file.metadata().map_err(failed)?;
    // A pipe or a device is nobody's to change the mode of.
    #[cfg(unix)]
    if metadata.is_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = metadata.permissions().mode();
        let checked = match is_secret {
            true => check_secret(mode),
            false => check_believed(mode),
        };
        checked.map_err(|fault| TlsFault::Mode {
            path: path.to_owned(),
            fault,
        })?;
    }
    #[cfg(not(unix))]
    let _ = (is_secret, metadata);
    let mut bytes = Vec::new();
    file.take(allowed + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= allowed => Ok(bytes),
        _ => Err(TlsFault::TooLong {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            allowed,
        }),
    }
}

/// The bytes of the first certificate in PEM; `None` where there is none.
pub fn certificate_der(pem: &[u8]) -> Option<Vec<u8>> {
    let first = CertificateDer::from_pem_slice(pem).ok()?;
    Some(first.as_ref().to_vec())
}

/// The certificates of a PEM file, the first being the owner's own where it is a chain.
pub(crate) fn certificates(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let wrong = |said: String| TlsFault::Pem {
        path: path.to_owned(),
        said,
        expected: "at least one certificate (-----BEGIN CERTIFICATE-----)",
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let read = read.map_err(|error| wrong(error.to_string()))?;
    match read.is_empty() {
        true => Err(wrong(instead(bytes, ("PRIVATE KEY", "a private key")))),
        false => Ok(read),
    }
}

/// What stands in a PEM file that has nothing of what belongs there.
fn instead(bytes: &[u8], (label, name): (&str, &str)) -> String {
    let label = format!("{label}-----");
    let mut windows = bytes.windows(label.len());
    match bytes.trim_ascii().is_empty() {
        true => "it is empty".to_owned(),
        false if windows.any(|window| window == label.as_bytes()) => {
            format!("found {name}, as if certificate and key were swapped")
        }
        false => "found nothing of the kind".to_owned(),
    }
}

/// The private key of a PEM file.
pub(crate) fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsFault> {
    // The parser's words are about the form alone; it quotes nothing of the key.
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| TlsFault::Pem {
        path: path.to_owned(),
        said: match error {
            pem::Error::NoItemsFound => instead(bytes, ("CERTIFICATE", "a certificate")),
            error => error.to_string(),
        },
        expected: "a private key (-----BEGIN PRIVATE KEY-----)",
    })
}

/// The CAs of a PEM file.
pub(crate) fn roots(path: &Path, bytes: &[u8]) -> Result<RootCertStore, TlsFault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, bytes)? {
        roots.add(certificate).map_err(|error| TlsFault::Refused {
            path: path.to_owned(),
            said: format!("a certificate in it cannot be a CA: {error}"),
        })?;
    }
    Ok(roots)
}
