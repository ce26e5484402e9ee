//! `tollgate keys`: a CA, certificates, tokens and record keys, for fleets without a PKI of their own.
//!
//! ```text
//! keys ca                          DIR/ca.pem  DIR/ca.key
//! keys cert NAME                   DIR/NAME.pem  DIR/NAME.key
//! keys token NAME --role agent     DIR/NAME.token, and its hash in DIR/tokens.toml
//! keys fleet                       another key in DIR/fleet.keys, with which aggregators sign their records
//! keys list                        the tokens in DIR/tokens.toml
//! keys revoke NAME                 removes it; aggregators end its connections within 2 s
//! ```
//!
//! Works only on files, so no aggregator need run.

use std::path::PathBuf;

use super::Global;
use super::output::Format;
use crate::exit::{Exit, Failure};
use crate::keys::{CertArgs, TokenArgs, certificates, fleet, tokens};

/// What `keys` takes.
#[derive(Debug, clap::Args)]
pub struct KeysArgs {
    /// The directory with the keys
    #[arg(
        long,
        global = true,
        env = "TOLLGATE_KEYS_DIR",
        default_value = "./tollgate-keys",
        value_name = "DIR"
    )]
    dir: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Creates a CA: ca.pem, which every peer needs, and ca.key, the private key that signs certificates
    Ca {
        /// For how many days it is valid
        #[arg(long, default_value_t = 3_650, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Creates a certificate under the CA and its private key, or replaces them
    Cert(CertArgs),
    /// Creates a token, and writes its hash to tokens.toml
    Token(TokenArgs),
    /// Adds a key to fleet.keys, under which aggregators sign what they write into the log
    Fleet {
        /// The key's id, as a limits document names it in record_keys [default: the first unused of k1, k2, …]
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// Lists the tokens
    List,
    /// Revokes a token: aggregators that follow the file close its connections within two seconds
    Revoke {
        /// The token's name
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
///
/// If a file cannot be read or written, or its content is invalid.
pub fn run(global: &Global, args: &KeysArgs) -> Result<Exit, Failure> {
    let dir = &args.dir;
    let lines = match &args.verb {
        Verb::Ca { days } => certificates::make_ca(dir, *days)?,
        Verb::Cert(args) => certificates::make(dir, args)?,
        Verb::Token(args) => tokens::make(dir, args)?,
        Verb::Fleet { id } => fleet::make(dir, id.as_deref())?,
        Verb::Revoke { name } => tokens::revoke(dir, name)?,
        Verb::List => {
            let listed = tokens::listed(dir)?;
            let mut output = global.open_output()?;
            match global.format {
                Format::Json => output.json(&listed)?,
                Format::Text => {
                    for one in &listed.tokens {
                        output.line(one.in_a_line())?;
                    }
                }
            }
            output.finish()?;
            return Ok(Exit::Done);
        }
    };
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => output.json(&serde_json::json!({
            "schema": "tollgate.keys/1",
            "lines": lines,
        }))?,
        Format::Text => {
            for line in lines {
                output.line(line)?;
            }
        }
    }
    output.finish()?;
    Ok(Exit::Done)
}
