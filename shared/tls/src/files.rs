//! Reads PEM files and secrets, with a bound on their length and a check of their modes.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tollgate_shared::file_mode;
#[cfg(unix)]
use tollgate_shared::file_mode::{check_believed, check_secret};

use crate::TlsFault;

/// The longest PEM file: a system's bundle of all public CAs has about 250 KB.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// The longest secret on one line.
const SECRET_BYTES_MAX: u64 = 4 << 10;

/// The word for the system's CAs, in place of a CA file.
const SYSTEM: &str = "system";

/// The environment variable with the path of the system's CAs, for systems that keep them elsewhere.
pub(crate) const SYSTEM_VARIABLE: &str = "SSL_CERT_FILE";

/// Paths at which systems keep the CAs that they trust: Debian and Alpine, Fedora, openSUSE, BSD and
/// macOS.
pub(crate) const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file of CAs for a setting.
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

/// Refuses a file that is not a regular one, where it is read again while the process runs: a pipe in its place could
/// hold up the reader for ever.
pub(crate) fn check_regular(path: &Path) -> Result<(), TlsFault> {
    file_mode::check_regular(&std::fs::metadata(path)).map_err(|source| TlsFault::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads a file that determines which peers are trusted: others must not be able to write it.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsFault> {
    read_bounded(path, PEM_BYTES_MAX, false)
}

/// Reads a certificate's file and that of its private key, which others must not be able to read.
pub(crate) fn read_pair(cert: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), TlsFault> {
    let chain = read(cert)?;
    // Checked first; otherwise an operator who has swapped the two gets a fault about the mode of a file
    // without a secret.
    certificates(cert, &chain)?;
    Ok((chain, read_bounded(key, PEM_BYTES_MAX, true)?))
}

/// Reads a secret, such as a token, from a file that contains it alone on one line.
///
/// # Errors
///
/// If the file cannot be read, can be read by every user of the machine, or contains anything else.
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

/// Reads a secret from a file that is read again while the process runs, and so must be a regular file.
///
/// # Errors
///
/// As [`read_secret`], and if it is a pipe, a device or a directory.
pub fn read_secret_again(path: &Path) -> Result<String, TlsFault> {
    check_regular(path)?;
    read_secret(path)
}

/// Reads a file of secrets with at most `bytes_max` bytes.
///
/// # Errors
///
/// If the file cannot be read, is longer, or can be read by every user of the machine.
pub fn read_secrets(path: &Path, bytes_max: u64) -> Result<Vec<u8>, TlsFault> {
    read_bounded(path, bytes_max, true)
}

fn read_bounded(path: &Path, allowed: u64, is_secret: bool) -> Result<Vec<u8>, TlsFault> {
    let failed = |source| TlsFault::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    // The metadata of the open file: the path may refer to another file a moment later.
    let metadata = file.metadata().map_err(failed)?;
    // The mode of a pipe or a device cannot be changed, so it is not checked.
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

/// The bytes of the first certificate in PEM; `None` if there is no certificate.
pub fn certificate_der(pem: &[u8]) -> Option<Vec<u8>> {
    let first = CertificateDer::from_pem_slice(pem).ok()?;
    Some(first.as_ref().to_vec())
}

/// The certificates of a PEM file; in a chain, the first is the owner's own.
pub(crate) fn certificates(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let wrong = |why: String| TlsFault::Pem {
        path: path.to_owned(),
        why,
        expected: "at least one certificate (-----BEGIN CERTIFICATE-----)",
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let read = read.map_err(|error| wrong(pem_text(&error)))?;
    match read.is_empty() {
        true => Err(wrong(instead(bytes, ("PRIVATE KEY", "a private key")))),
        false => Ok(read),
    }
}

/// The parser's message, with the label that it states as bytes as text.
fn pem_text(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            // The parser keeps the label alone.
            let label = String::from_utf8_lossy(end_marker);
            let label = tollgate_shared::log_lines::excerpt(label.trim_end());
            format!("the section that it begins has no end: -----END {label}----- is missing")
        }
        pem::Error::IllegalSectionStart { line } => {
            let line = String::from_utf8_lossy(line);
            let line = tollgate_shared::log_lines::excerpt(line.trim_end());
            format!("a section begins wrongly: {line}")
        }
        error => error.to_string(),
    }
}

/// Describes the content of a PEM file that lacks the expected part.
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
    // The parser's message is about the format alone; it quotes nothing of the key.
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| TlsFault::Pem {
        path: path.to_owned(),
        why: match error {
            pem::Error::NoItemsFound => instead(bytes, ("CERTIFICATE", "a certificate")),
            error => pem_text(&error),
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
            why: format!("a certificate in it cannot be a CA: {error}"),
        })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_place_of_a_clients_file_is_a_fault() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let secret = read_secret_again(&pipe).expect_err("a pipe").to_string();
        let files = crate::ClientFiles::new(pipe, None, (None, None)).expect("paths");
        let ca = crate::ClientTls::load(files)
            .expect_err("a pipe")
            .to_string();
        for fault in [secret, ca] {
            assert!(fault.ends_with("pipe: not a regular file"), "{fault}");
        }
    }

    #[test]
    fn a_pem_file_that_is_cut_short_names_the_missing_line() {
        let path = Path::new("a.pem");
        let certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n";
        let key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n";
        for (fault, missing) in [
            (
                certificates(path, certificate).err(),
                "-----END CERTIFICATE-----",
            ),
            (private_key(path, key).err(), "-----END PRIVATE KEY-----"),
        ] {
            let text = fault.map(|fault| fault.to_string()).unwrap_or_default();
            assert!(text.contains(missing) && !text.contains('['), "{text}");
        }
    }
}
