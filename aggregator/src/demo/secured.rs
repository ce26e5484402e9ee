//! Keys of a demonstration: created in its directory, and removed with it.

use std::ffi::OsString;
use std::path::Path;

use tollgate_server::http::client::Client;
use tollgate_tls::ClientFiles;

use crate::exit::Failure;
use crate::keys::{CertArgs, TokenArgs, certificates, tokens};

/// The name for which the aggregator's certificate is valid.
const NAME: &str = "tollgate.demo";

/// Variables of an environment.
type Variables = Vec<(&'static str, OsString)>;

/// Creates the keys; returns the environment of the child processes, and a client for the aggregator.
///
/// # Errors
///
/// If a file cannot be written.
pub fn make(dir: &Path) -> Result<(Variables, Client), Failure> {
    let cert = CertArgs {
        name: NAME.to_owned(),
        also: Vec::new(),
        days: 2,
    };
    let token = TokenArgs {
        name: "demo".to_owned(),
        roles: vec!["agent".to_owned(), "viewer".to_owned()],
        agents: Some("demo-*".to_owned()),
        namespaces: Vec::new(),
        days: Some(2),
        certificate: None,
    };
    certificates::make_ca(dir, 2)?;
    certificates::make(dir, &cert)?;
    tokens::make(dir, &token)?;
    let of = |file: &str| dir.join(file);
    let key = |suffix: &str| of(&format!("{NAME}.{suffix}"));
    let found = vec![
        ("TOLLGATE_LISTEN_TLS_CERT", key("pem").into()),
        ("TOLLGATE_LISTEN_TLS_KEY", key("key").into()),
        ("TOLLGATE_LISTEN_TLS_SERVER_NAME", NAME.into()),
        ("TOLLGATE_SECURITY_TOKENS_FILE", of("tokens.toml").into()),
        ("TOLLGATE_TLS_CA_FILE", of("ca.pem").into()),
        ("TOLLGATE_TLS_SERVER_NAME", NAME.into()),
        ("TOLLGATE_TOKEN_FILE", of("demo.token").into()),
    ];
    let client = Client {
        tls: Some(ClientFiles {
            ca: of("ca.pem"),
            server_name: Some(NAME.to_owned()),
            own: None,
        }),
        token_file: Some(of("demo.token")),
        trusts_network: false,
    };
    Ok((found, client))
}
