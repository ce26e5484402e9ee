//! Keys of a demonstration: made for it in its directory, and gone with it.

use std::ffi::OsString;
use std::path::Path;

use tollgate_server::http::client::Client;
use tollgate_tls::ClientFiles;

use crate::exit::Failure;
use crate::keys::{CertArgs, TokenArgs, certificates, tokens};

/// The name that the aggregator's certificate is for.
const NAME: &str = "tollgate.demo";

/// Variables of an environment.
type Variables = Vec<(&'static str, OsString)>;

/// Makes the keys; what the processes find in their environment, and how this one asks the aggregator.
///
/// # Errors
///
/// Where a file cannot be written.
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
