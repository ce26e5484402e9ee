//! Creates, lists and revokes tokens in the file that aggregators follow.
//!
//! The file has hashes; the token itself is only in a file of its own, for the process that is to show it. Comments
//! and order in the tokens file are preserved.

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

/// The file has no secrets, so that aggregators that run as other users may read it.
const MODE: u32 = 0o644;

/// Creates a token, or grants the same to a certificate; returns lines for the operator.
///
/// # Errors
///
/// If the name is taken, the grant is invalid, or a file cannot be written.
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
    let wrong = |why: &str| Failure::Data(format!("{}: {why}", path.display()));
    let tokens = tokens.as_table_mut();
    let tokens = tokens.ok_or_else(|| wrong("tokens: expected a table"))?;
    if tokens.contains_key(&args.name) {
        let why = format!(
            "tokens.{}: exists, expected another name; `tollgate keys revoke` removes it",
            args.name
        );
        return Err(wrong(&why));
    }
    let token = format!("{TOKEN_PREFIX}{}", hex(&rand::random::<[u8; 32]>()));
    tokens.insert(&args.name, Item::Table(entry(args, &token)?));
    let text = document.to_string();
    // Whatever the arguments were, the result has to be valid for aggregators.
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
        "{}: the token, for TOLLGATE_TOKEN_FILE of the process that presents it",
        secret.display()
    );
    lines.insert(0, secret);
    Ok(lines)
}

/// A warning about what its namespaces do not restrict, although it may seem so.
fn unbounded(args: &TokenArgs) -> Option<&'static str> {
    let has = |role: &str| args.roles.iter().any(|one| one == role);
    if args.namespaces.is_empty() {
        None
    } else if ["operator", "admin", "member"].into_iter().any(has) {
        Some(
            "--namespace bounds what the token may report, receive and change; by HTTP it may read all namespaces",
        )
    } else if has("viewer") {
        Some(
            "--namespace: by HTTP its bearer reads lists and explanations of one resource of these namespaces at a time",
        )
    } else if has("agent") && args.agents.is_none() {
        Some(
            "--namespace without --agents: its bearer may take any agent's name, and so receive the verdicts on that agent's holds",
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

/// Revokes a token; returns lines for the operator.
///
/// # Errors
///
/// If there is no such token, or the file cannot be read or written.
pub fn revoke(dir: &Path, name: &str) -> Result<Vec<String>, Failure> {
    let path = dir.join(FILE);
    // Without a file there is no lock to wait for.
    read(&path)?;
    let _alone = lock(&path)?;
    let mut document = parsed(&path, &read(&path)?)?;
    let mut tokens = document.get_mut("tokens").and_then(Item::as_table_mut);
    let taken_out = tokens.as_mut().and_then(|tokens| tokens.remove(name));
    if let Some(tokens) = tokens.filter(|tokens| tokens.is_empty()) {
        // Otherwise the file would be empty, which aggregators take for a file that is not written yet.
        tokens.set_implicit(false);
    }
    if taken_out.is_none() {
        return Err(Failure::Log {
            exit: Exit::No,
            text: format!(
                "{}: tokens.{name}: no such token, `tollgate keys list` lists the tokens",
                path.display()
            ),
        });
    }
    write(&path, &document.to_string(), MODE)?;
    let secret = dir.join(format!("{name}.token"));
    let mut lines = vec![format!(
        "{}: tokens.{name} is revoked; aggregators that follow this file close its connections within 2 s",
        path.display()
    )];
    if is_other_token(&secret, taken_out.as_ref()) {
        let text = "kept, it has another token by now";
        lines.push(format!("{}: {text}", secret.display()));
    } else if std::fs::remove_file(&secret).is_ok() {
        lines.push(format!("{}: removed", secret.display()));
    }
    Ok(lines)
}

/// Whether a file has a token that this entry does not describe: it was replaced when the tokens were rotated.
fn is_other_token(secret: &Path, entry: Option<&Item>) -> bool {
    let Ok(token) = std::fs::read_to_string(secret) else {
        return false;
    };
    let stated = entry
        .and_then(|entry| entry.get("hash"))
        .and_then(Item::as_str);
    stated != Some(&*hash_of(token.trim().as_bytes()))
}

fn parsed(path: &Path, text: &str) -> Result<DocumentMut, Failure> {
    // With the same messages as aggregators, which quote no secret.
    Tokens::parse(path, text).map_err(|fault| Failure::Data(fault.to_string()))?;
    text.parse()
        .map_err(|_| Failure::Data(format!("{}: not TOML", path.display())))
}

/// The list of tokens.
#[derive(Debug, Serialize)]
pub struct TokensView {
    schema: &'static str,
    /// The tokens.
    pub tokens: Vec<TokenView>,
}

/// One token.
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
    /// The token as a line for people.
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
/// If it cannot be read, or is invalid.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_another_token_by_now_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.token");
        for (stands_there, is_removed) in [("tg1_one\n", true), ("tg1_two\n", false)] {
            let entry = format!(
                "[tokens.a]\nhash = \"{}\"\nroles = [\"agent\"]\n",
                hash_of(b"tg1_one")
            );
            std::fs::write(dir.path().join(FILE), entry).expect("written");
            std::fs::write(&file, stands_there).expect("written");
            let lines = revoke(dir.path(), "a").unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(file.exists(), !is_removed, "{lines:?}");
            assert_eq!(lines.len(), 2, "{lines:?}");
        }
    }
}
