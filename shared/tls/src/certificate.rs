//! Reads from a certificate what rustls does not report: how long it is valid, and its DNS names.
//!
//! ```text
//! Certificate ::= SEQUENCE { tbs SEQUENCE { [0] version, serial, signature, issuer,
//!                            validity SEQUENCE { notBefore, notAfter }, … }, … }
//! ```
//!
//! Nothing here decides whether a certificate is trusted: rustls has done that. What stays true: whatever the
//! bytes are, reading ends, and allocates nothing but names.

use std::fmt;

use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

use crate::utc;

/// The period in which a certificate is valid, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

impl Validity {
    /// The validity of a certificate; `None` if it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (certificate, _) = element(certificate.as_ref(), SEQUENCE)?;
        let (mut rest, _) = element(certificate, SEQUENCE)?;
        // The version is optional and has an explicit tag.
        if rest.first() == Some(&0xa0) {
            (_, rest) = element(rest, 0xa0)?;
        }
        (_, rest) = element(rest, INTEGER)?;
        (_, rest) = element(rest, SEQUENCE)?;
        (_, rest) = element(rest, SEQUENCE)?;
        let (validity, _) = element(rest, SEQUENCE)?;
        let (not_before, behind) = time(validity)?;
        let (not_after, _) = time(behind)?;
        Some(Self {
            not_before,
            not_after,
        })
    }

    /// Whether it is valid at a second since the Unix epoch.
    pub const fn contains(self, now: u64) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (utc::text(self.not_before), utc::text(self.not_after));
        write!(f, "from {from} to {to}")
    }
}

/// A peer's certificate that was accepted, with its chain.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    names: Vec<String>,
    not_after: u64,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Certificate");
        shown.field("names", &self.names);
        shown.finish_non_exhaustive()
    }
}

impl Certificate {
    /// The certificate in a chain that a peer showed; `None` if it showed none, or one whose validity cannot be
    /// read.
    pub fn of_peer(chain: Option<&[CertificateDer<'static>]>) -> Option<Self> {
        let chain = chain?;
        let own = chain.first()?;
        Some(Self {
            names: names(own),
            not_after: Validity::of(own)?.not_after,
            chain: chain.to_vec(),
        })
    }

    /// Its DNS names, in lower case.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Its last valid second since the Unix epoch.
    pub const fn not_after(&self) -> u64 {
        self.not_after
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

/// The host names in a certificate.
pub(crate) fn names(own: &CertificateDer<'_>) -> Vec<String> {
    dns_names(own).unwrap_or_default()
}

/// The DNS names of the extension subjectAltName.
fn dns_names(own: &CertificateDer<'_>) -> Option<Vec<String>> {
    // Checks that rustls can read it, so that both interpret the same bytes.
    ParsedCertificate::try_from(own).ok()?;
    let (certificate, _) = element(own.as_ref(), SEQUENCE)?;
    let (mut rest, _) = element(certificate, SEQUENCE)?;
    // Extensions are the last element of the signed part, with the tag [3].
    let extensions = loop {
        let tag = *rest.first()?;
        let (content, behind) = element(rest, tag)?;
        if tag == 0xa3 {
            break content;
        }
        rest = behind;
    };
    let (mut rest, _) = element(extensions, SEQUENCE)?;
    while !rest.is_empty() {
        let (extension, behind) = element(rest, SEQUENCE)?;
        rest = behind;
        let (id, mut value) = element(extension, OBJECT)?;
        if id != SUBJECT_ALT_NAME {
            continue;
        }
        // An optional flag states whether the extension is critical.
        if value.first() == Some(&BOOLEAN) {
            (_, value) = element(value, BOOLEAN)?;
        }
        let (value, _) = element(value, OCTETS)?;
        let (mut listed, _) = element(value, SEQUENCE)?;
        let mut names = Vec::new();
        while let Some(&tag) = listed.first() {
            let (name, behind) = element(listed, tag)?;
            listed = behind;
            if tag == DNS_NAME {
                names.push(str::from_utf8(name).ok()?.to_ascii_lowercase());
            }
        }
        return Some(names);
    }
    None
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const DNS_NAME: u8 = 0x82;
/// 2.5.29.17
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// The content of an element with this tag, and the bytes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    if *found != tag {
        return None;
    }
    let (length, rest) = match first {
        short @ 0..=0x7f => (usize::from(*short), rest),
        // No certificate has elements whose length needs more than four bytes.
        long @ 0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let length = length
                .iter()
                .fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// A time in seconds since the Unix epoch, and the bytes after it.
fn time(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, behind, century) = match *bytes.first()? {
        tag @ UTC_TIME => {
            let (digits, behind) = element(bytes, tag)?;
            // Two-digit years from 50 to 99 belong to the last century (RFC 5280, 4.1.2.5.1).
            let is_last = digits.first().is_some_and(|first| b'5' <= *first);
            (digits, behind, Some(if is_last { 19 } else { 20 }))
        }
        tag @ GENERALIZED_TIME => {
            let (digits, behind) = element(bytes, tag)?;
            (digits, behind, None)
        }
        _ => return None,
    };
    let digits = digits.strip_suffix(b"Z")?;
    let mut pairs = digits.chunks(2).map(|pair| match pair {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Some(u64::from(tens - b'0') * 10 + u64::from(ones - b'0'))
        }
        _ => None,
    });
    let mut next = || pairs.next().flatten();
    let century = match century {
        Some(century) => century,
        None => next()?,
    };
    let year = century * 100 + next()?;
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    let at = utc::seconds((year, month, day), (hour, minute, second))?;
    Some((at, behind))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn dates_are_read_and_written_alike() {
        for (text, seconds) in [
            ("19700101000000Z", 0),
            ("20000229235959Z", 951_868_799),
            ("20261126001851Z", 1_795_652_331),
            ("21000301000000Z", 4_107_542_400),
        ] {
            let der = [&[GENERALIZED_TIME, 15], text.as_bytes()].concat();
            assert_eq!(time(&der), Some((seconds, &[][..])), "{text}");
            let shown: String = utc::text(seconds)
                .chars()
                .filter(|c| !"-T:".contains(*c))
                .collect();
            assert_eq!(shown, text);
        }
        let der = [&[UTC_TIME, 13], &b"500101000000Z"[..]].concat();
        assert_eq!(time(&der), None, "before the epoch");
    }

    #[test]
    fn a_certificate_has_the_requested_names_and_validity() {
        let mut params =
            rcgen::CertificateParams::new(vec!["A.example".to_owned(), "127.0.0.1".to_owned()])
                .unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 2);
        params.not_after = rcgen::date_time_ymd(2056, 3, 4);
        let key = rcgen::KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        let validity = Validity::of(&der).unwrap();
        let text = "from 2026-01-02T00:00:00Z to 2056-03-04T00:00:00Z";
        assert_eq!(validity.to_string(), text);
        let certificate = Certificate::of_peer(Some(std::slice::from_ref(&der))).unwrap();
        assert_eq!(certificate.names(), ["a.example"]);
        // Whatever the bytes are, reading ends.
        for cut in 0..der.len() {
            let cut = CertificateDer::from(der[..cut].to_vec());
            assert_eq!(Validity::of(&cut), None);
            assert_eq!(dns_names(&cut), None);
        }
    }
}
