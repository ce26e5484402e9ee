//! Faults of files for TLS, and of handshakes, with messages for the people who can correct them.

use std::path::PathBuf;

use rustls::{CertificateError, Error};
use tollgate_shared::file_mode::ModeFault;

/// Why files for TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A token was given in place of its file's path.
    #[error("found a token (tg1_…), expected the path of the file that contains it")]
    TokenForPath,
    /// Other users can read a file with a secret, or write one that determines which peers are trusted.
    #[error("{}: {fault}", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// What its mode allows.
        fault: ModeFault,
    },
    /// A file is longer than allowed for its kind.
    #[error("{}: has {bytes} bytes, expected at most {allowed}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The bound.
        allowed: u64,
    },
    /// A file is not PEM, or a part of it is missing.
    #[error("{}: {why}, expected PEM with {expected}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The message of the parser, or what is missing.
        why: String,
        /// What the file must contain.
        expected: &'static str,
    },
    /// A certificate is not valid now.
    #[error("{}: the certificate is valid {validity}, and this machine's clock says {now}: expected a certificate that is valid now, or a correct clock", path.display())]
    NotValidNow {
        /// The file.
        path: PathBuf,
        /// The period in which it is valid.
        validity: crate::Validity,
        /// Now, as a UTC date and time.
        now: String,
    },
    /// The private key is not the certificate's.
    #[error("{} and {}: the key does not belong to the first certificate of the file, expected the two that were created together", cert.display(), key.display())]
    Mismatch {
        /// The file with the certificate.
        cert: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
    /// The certificate is for other names than the one that callers expect.
    #[error(
        "{}: the certificate is for the names {}, expected one that is for {expected}, the server name of the fleet",
        path.display(), listed(names)
    )]
    OtherNames {
        /// The file.
        path: PathBuf,
        /// Its DNS names.
        names: Vec<String>,
        /// The name that it must be for.
        expected: String,
    },
    /// A peer that trusts these CAs does not trust the certificate.
    #[error(
        "{}: no CA in {} has issued it, or the chain lacks an intermediate certificate, so that peers that trust those CAs \
         refuse it: expected the certificate and behind it, in the same file, all certificates between it and its CA",
        path.display(), ca.display()
    )]
    Chain {
        /// The file with the certificate.
        path: PathBuf,
        /// The file with the CAs.
        ca: PathBuf,
    },
    /// One of two files that belong together was given without the other.
    #[error(
        "a certificate without its private key, or a key without its certificate: expected both or neither"
    )]
    Half,
    /// The settings ask for the system's CAs, but the system has no file of them.
    #[error(
        "system: this system has no file of CAs at {}, expected one, or its path in {}, or a CA file of the fleet's own",
        crate::files::SYSTEM_FILES.join(", "), crate::files::SYSTEM_VARIABLE
    )]
    NoSystemRoots,
    /// A peer's name is neither a host's name nor an address.
    #[error("server name {0:?}: expected a host's name or an IP address")]
    ServerName(String),
    /// rustls refuses the files.
    #[error("{}: {why}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The secret in a file is not a text on one line.
    #[error("{}: {found}, expected one line of printable ASCII", path.display())]
    NotALine {
        /// The file.
        path: PathBuf,
        /// What the file contains instead, without quoting it.
        found: &'static str,
    },
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "(none)".to_owned(),
        names => names.join(", "),
    }
}

/// Explains an error of a handshake or a session to the people who have to act on it.
pub fn explain(error: &Error) -> String {
    let hint = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the peer's certificate was not issued by any CA of the CA file, or its chain lacks an intermediate certificate"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the peer's certificate is for other names than the expected server name",
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the peer's certificate has expired, or this machine's clock is ahead",
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "the peer's certificate is not valid yet, or this machine's clock is behind",
        Error::InvalidMessage(_) => "the peer does not speak TLS",
        Error::PeerIncompatible(_) => "the peer does not speak TLS 1.3",
        Error::AlertReceived(_) => "the peer refused the handshake",
        _ => return format!("TLS: {error}"),
    };
    format!("TLS: {hint} ({error})")
}
