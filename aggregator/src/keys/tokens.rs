//! Tokens: made, listed and revoked in the file that aggregators follow.
//!
//! The file keeps hashes; the token itself stands in a file of its own, for whoever is to show it, and nowhere else.
//! Remarks and order in the tokens file stay as they are.

use std::path::Path;

use serde::Serialize;
use tollgate_server::security::{Proof, Role, TOKEN_PREFIX, Tokens, hash_of};
use tollgate_shared::escape::escaped;
use tollgate_shared::hex::hex;
use tollgate_tls::utc;
use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::{TokenArgs, check_file_name, lock, make_dir, read, write};
use crate::exit::{Exit, Failure};

const FILE: &str = "tokens.toml";
const DAY: u64 = 86_400;

/// What aggregators of other users may read; it has no secrets.
const MODE: u32 = 0o644;

/// Makes a token, or lets a certificate stand for one; what to say about it.
///
/// # Errors
///
/// Where there is one of this name, what it should allow cannot be, or a file cannot be written.
pub fn make(dir: &Path, args: &TokenArgs) -> Result<Vec<String>, Failure> {
    check_file_name(&args.name)?;
    make_dir(dir)?;
    let path = dir.join(FILE);
    let _alone = lock(&path)?;
    let mut document = match path.exists() {
        true => parsed(&path, &read(&path)?)?,
        false => DocumentMut::new(),
    };
    let tokens = document.entry("tokens").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let wrong = |said: &str| Failure::Data(format!("{}: {said}", path.display()));
    let tokens = tokens.as_table_mut();
    let tokens = tokens.ok_or_else(|| wrong("tokens: expected a table"))?;
    if tokens.contains_key(&args.name) {
        let said = format!(
            "tokens.{}: exists, expected another name; `tollgate keys revoke` takes it out",
            args.name
        );
        return Err(wrong(&said));
    }
    let token = format!("{TOKEN_PREFIX}{}", hex(&rand::random::<[u8; 32]>()));
    tokens.insert(&args.name, Item::Table(entry(args, &token)?));
    let text = document.to_string();
    // Whatever was asked for, aggregators have to be able to read it.
    Tokens::parse(&path, &text).map_err(|fault| Failure::Usage(fault.to_string()))?;
    let mut lines = vec![format!(
        "{}: tokens.{}, which aggregators read",
        path.display(),
        args.name
    )];
    lines.extend(unbounded(args).map(str::to_owned));
    if args.certificate.is_some() {
        write(&path, &text, MODE)?;
        return Ok(lines);
    }
    let secret = dir.join(format!("{}.token", args.name));
    write(&secret, &format!("{token}\n"), 0o600)?;
    write(&path, &text, MODE)?;
    let secret = format!(
        "{}: the token, for TOLLGATE_TOKEN_FILE of whoever shows it",
        secret.display()
    );
    lines.insert(0, secret);
    Ok(lines)
}

/// What its namespaces do not bound, though it may look so.
fn unbounded(args: &TokenArgs) -> Option<&'static str> {
    let has = |role: &str| args.roles.iter().any(|one| one == role);
    if args.namespaces.is_empty() {
        None
    } else if has("viewer") || has("operator") {
        Some(
            "--namespace bounds what it may report, hear and change; by HTTP it may read what stands in any namespace",
        )
    } else if has("agent") && args.agents.is_none() {
        Some(
            "--namespace without --agents: it may take any agent's name, so hear what becomes of that agent's copies",
        )
    } else {
        None
    }
}

fn entry(args: &TokenArgs, token: &str) -> Result<Table, Failure> {
    let mut entry = Table::new();
    match &args.certificate {
        Some(name) => entry.insert("certificate", value(name)),
        None => entry.insert("hash", value(hash_of(token.as_bytes()))),
    };
    let known = |role: &&String| Role::ALL.iter().any(|(_, word)| word == role);
    if let Some(role) = args.roles.iter().find(|role| !known(role)) {
        let all: Vec<&str> = Role::ALL.iter().map(|(_, word)| *word).collect();
        let all = all.join(", ");
        return Err(Failure::Usage(format!(
            "--role {role}: expected one of {all}"
        )));
    }
    entry.insert("roles", value(args.roles.iter().collect::<Array>()));
    if let Some(agents) = &args.agents {
        entry.insert("agents", value(agents));
    }
    if !args.namespaces.is_empty() {
        entry.insert(
            "namespaces",
            value(args.namespaces.iter().collect::<Array>()),
        );
    }
    if let Some(days) = args.days {
        let end = utc::text(utc::now() + u64::from(days) * DAY);
        let end: toml_edit::Datetime = end.parse().map_err(|_| Failure::Bug(end.clone()))?;
        entry.insert("expires", value(end));
    }
    Ok(entry)
}

/// Takes a token out; what to say about it.
///
/// # Errors
///
/// Where there is none of this name, or the file cannot be read or written.
pub fn revoke(dir: &Path, name: &str) -> Result<Vec<String>, Failure> {
    let path = dir.join(FILE);
    // Where there is no file, there is nothing to wait for.
    read(&path)?;
    let _alone = lock(&path)?;
    let mut document = parsed(&path, &read(&path)?)?;
    let mut tokens = document.get_mut("tokens").and_then(Item::as_table_mut);
    let taken_out = tokens.as_mut().and_then(|tokens| tokens.remove(name));
    if let Some(tokens) = tokens.filter(|tokens| tokens.is_empty()) {
        // Else nothing would be left of the file, which aggregators take for one that is not written yet.
        tokens.set_implicit(false);
    }
    if taken_out.is_none() {
        return Err(Failure::Log {
            exit: Exit::No,
            text: format!(
                "{}: tokens.{name}: there is none, `tollgate keys list` lists them",
                path.display()
            ),
        });
    }
    write(&path, &document.to_string(), MODE)?;
    let secret = dir.join(format!("{name}.token"));
    let mut lines = vec![format!(
        "{}: tokens.{name} is taken out; aggregators that follow this file end its connections within 2 s",
        path.display()
    )];
    if std::fs::remove_file(&secret).is_ok() {
        lines.push(format!("{}: removed", secret.display()));
    }
    Ok(lines)
}

fn parsed(path: &Path, text: &str) -> Result<DocumentMut, Failure> {
    // In the words that aggregators have for it, which quote no secret.
    Tokens::parse(path, text).map_err(|fault| Failure::Data(fault.to_string()))?;
    text.parse()
        .map_err(|_| Failure::Data(format!("{}: not TOML", path.display())))
}

/// What is listed.
#[derive(Debug, Serialize)]
pub struct TokensView {
    schema: &'static str,
    /// Them.
    pub tokens: Vec<TokenView>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub struct TokenView {
    name: String,
    roles: Vec<&'static str>,
    certificate: Option<String>,
    agents: Option<String>,
    namespaces: Option<Vec<String>>,
    expires: Option<String>,
    expired: bool,
}

impl TokenView {
    /// For people.
    pub fn in_a_line(&self) -> String {
        let mut line = format!("{}  {}", escaped(&self.name), self.roles.join(","));
        if let Some(agents) = &self.agents {
            line += &format!("  agents {}", escaped(agents));
        }
        if let Some(namespaces) = &self.namespaces {
            line += &format!("  namespaces {}", escaped(&namespaces.join(",")));
        }
        if let Some(certificate) = &self.certificate {
            line += &format!("  certificate {}", escaped(certificate));
        }
        match (&self.expires, self.expired) {
            (Some(at), true) => line + &format!("  expired {at}"),
            (Some(at), false) => line + &format!("  until {at}"),
            (None, _) => line,
        }
    }
}

/// The tokens of the file.
///
/// # Errors
///
/// Where it cannot be read, or says what cannot be.
pub fn listed(dir: &Path) -> Result<TokensView, Failure> {
    let path = dir.join(FILE);
    let tokens = Tokens::parse(&path, &read(&path)?);
    let tokens = tokens.map_err(|fault| Failure::Data(fault.to_string()))?;
    let now = utc::now();
    let mut views: Vec<TokenView> = tokens
        .grants()
        .map(|grant| TokenView {
            name: grant.name.to_string(),
            roles: {
                let stated = Role::ALL
                    .iter()
                    .filter(|(role, _)| grant.roles.states(*role));
                stated.map(|(_, word)| *word).collect()
            },
            certificate: match &grant.proof {
                Proof::Certificate(name) => Some(name.to_string()),
                Proof::Token(_) => None,
            },
            agents: grant.agents.as_deref().map(str::to_owned),
            namespaces: grant
                .namespaces
                .as_ref()
                .map(|all| all.iter().map(ToString::to_string).collect()),
            expires: grant.expires.map(utc::text),
            expired: grant.has_expired(now),
        })
        .collect();
    views.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(TokensView {
        schema: "tollgate.tokens/1",
        tokens: views,
    })
}
