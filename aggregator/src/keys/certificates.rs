//! A private CA, and certificates under it.
//!
//! Keys are of the curve P-256. The CA's name includes a part of its key's hash, so that two successive CAs of a
//! fleet differ, and so that the key alone is enough to issue certificates. What stays true: a certificate is
//! issued under the CA in `ca.pem`, or not at all.

use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, date_time_ymd,
};
use tollgate_tls::{certificate_der, check_name, utc};

use super::{CertArgs, check_file_name, make_dir, read, write};
use crate::exit::Failure;

const DAY: u64 = 86_400;

/// Creates a CA; returns lines for the operator.
///
/// # Errors
///
/// If the directory has a CA already, or a file cannot be written.
pub fn make_ca(dir: &Path, days: u32) -> Result<Vec<String>, Failure> {
    let (cert, key) = (dir.join("ca.pem"), dir.join("ca.key"));
    for path in [&cert, &key] {
        if path.exists() {
            return Err(Failure::Exists(format!(
                "{}: exists, and a CA is never overwritten: expected another --dir, or its files moved away",
                path.display()
            )));
        }
    }
    let pair = KeyPair::generate().map_err(bug)?;
    let mut params = ca_params(&pair);
    set_validity(&mut params, days);
    let made = params.self_signed(&pair).map_err(bug)?;
    make_dir(dir)?;
    write(&key, &pair.serialize_pem(), 0o600)?;
    write(&cert, &made.pem(), 0o644)?;
    Ok(vec![
        format!("{}: the CA, for aggregators and agents", cert.display()),
        format!(
            "{}: its private key; keep it where no service runs",
            key.display()
        ),
    ])
}

/// Creates a certificate and its key; returns lines for the operator.
///
/// # Errors
///
/// If a name is invalid, there is no CA, or a file cannot be written.
pub fn make(dir: &Path, args: &CertArgs) -> Result<Vec<String>, Failure> {
    check_file_name(&args.name)?;
    if args.name == "ca" {
        return Err(Failure::Usage(
            "name \"ca\": reserved for the CA, expected another name".to_owned(),
        ));
    }
    let (ca_cert, ca_key) = (dir.join("ca.pem"), dir.join("ca.key"));
    let wrong = |path: &Path, why: String| Failure::Data(format!("{}: {why}", path.display()));
    let ca_pair = KeyPair::from_pem(&read(&ca_key)?).map_err(|_| {
        let why = "not a private key in PEM, expected that of `tollgate keys ca`";
        wrong(&ca_key, why.to_owned())
    })?;
    check_belongs(&ca_cert, &ca_pair)?;
    let issuer_params = ca_params(&ca_pair);
    let names = [std::slice::from_ref(&args.name), &args.also].concat();
    for name in &names {
        // `*.example` covers all hosts directly below it.
        let host = name.strip_prefix("*.").unwrap_or(name);
        check_name(host).map_err(|fault| Failure::Usage(fault.to_string()))?;
    }
    let mut params = CertificateParams::new(names).map_err(|error| {
        Failure::Usage(format!(
            "names: {error}, expected hosts' names and addresses"
        ))
    })?;
    params.distinguished_name = named(&args.name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // An aggregator shows the same certificate to agents and to other aggregators.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    set_validity(&mut params, args.days);
    let pair = KeyPair::generate().map_err(bug)?;
    let issuer = Issuer::new(issuer_params, ca_pair);
    let made = params.signed_by(&pair, &issuer).map_err(bug)?;
    let (cert, key) = (
        dir.join(format!("{}.pem", args.name)),
        dir.join(format!("{}.key", args.name)),
    );
    write(&key, &pair.serialize_pem(), 0o600)?;
    write(&cert, &made.pem(), 0o644)?;
    let until = utc::text(utc::now() + u64::from(args.days) * DAY);
    let day = until.split('T').next().unwrap_or(&until);
    Ok(vec![
        format!("{}: a certificate, valid until {day}", cert.display()),
        format!("{}: its private key", key.display()),
    ])
}

/// Checks that a certificate is of a key: the public key's bytes are in it.
fn check_belongs(ca_cert: &Path, pair: &KeyPair) -> Result<(), Failure> {
    let wrong = |why: &str| Failure::Data(format!("{}: {why}", ca_cert.display()));
    let parsed = certificate_der(read(ca_cert)?.as_bytes());
    let der = parsed
        .ok_or_else(|| wrong("not a certificate in PEM, expected that of `tollgate keys ca`"))?;
    let own = pair.der_bytes();
    match der.windows(own.len()).any(|window| window == own) {
        true => Ok(()),
        false => Err(wrong(
            "ca.key beside it is another CA's, expected the two that were created together",
        )),
    }
}

fn ca_params(pair: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let hash = blake3::hash(pair.der_bytes()).to_hex();
    params.distinguished_name = named(&format!("Tollgate CA {}", &hash[..8]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

/// Sets the validity: from yesterday, for clocks that are behind, for a number of days.
fn set_validity(params: &mut CertificateParams, days: u32) {
    // To the second: a certificate for one day that ended with the day would end within minutes if it is made at night.
    let at = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    let now = utc::now();
    params.not_before = at(now - DAY);
    params.not_after = at(now + u64::from(days) * DAY);
}

fn bug(error: rcgen::Error) -> Failure {
    Failure::Bug(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_for_one_day_is_valid_for_a_whole_day() {
        let mut params = CertificateParams::default();
        let from = utc::now();
        set_validity(&mut params, 1);
        let ends = params.not_after.unix_timestamp();
        assert!(from + DAY <= ends as u64, "{ends} after {from}");
    }
}
