//! The tokens file: hashes of tokens, and what each allows.
//!
//! ```toml
//! [tokens.checkout]
//! hash = "b3:…"                       # of the token; or certificate = "checkout.internal"
//! roles = ["agent"]
//! agents = "checkout-*"               # names that agents may have; absent: any
//! namespaces = ["checkout", "api"]    # absent: all
//! expires = 2027-01-01T00:00:00Z      # absent: no end
//! ```
//!
//! A token is 256 random bits, so its hash needs no salt, and a token cannot be found by trying. Knows nothing of
//! connections. What stays true: a file with any fault replaces nothing; faults quote no value that could be a
//! token.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::Deserialize;
use tollgate_shared::file_mode::{ModeFault, check_believed};
use tollgate_shared::names::check_name;
use tollgate_tls::Certificate;

use crate::bounded_file;

use super::grant::{Proof, Role, Roles, TokenGrant};

/// The beginning of every token: the version of the format, by which tools find tokens that have leaked.
pub const TOKEN_PREFIX: &str = "tg1_";

/// The beginning of a hash in the file.
const HASH_PREFIX: &str = "b3:";

/// The longest file: some ten thousand tokens.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The hash of a token, as the file has it.
pub fn hash_of(token: &[u8]) -> String {
    format!("{HASH_PREFIX}{}", blake3::hash(token).to_hex())
}

/// What is wrong with a tokens file.
#[derive(Debug, thiserror::Error)]
pub enum TokensFault {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Other users can write it, and so could grant themselves access.
    #[error("{}: {fault}", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// The fault of its mode.
        fault: ModeFault,
    },
    /// It is not TOML of this schema.
    #[error("{}: line {line}: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The parser's message.
        why: String,
    },
    /// It has no tokens section: it was cut short, or is not written yet.
    #[error(
        "{}: found no tokens, expected [tokens.NAME] as `tollgate keys token` writes it; an empty table \
         [tokens] admits no peer",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// One of its tokens is invalid.
    #[error("{}: tokens.{name}: {wrong}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The token's name.
        name: String,
        /// What is wrong, and what is expected.
        wrong: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    tokens: Option<BTreeMap<String, RawToken>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    hash: Option<String>,
    certificate: Option<String>,
    roles: Vec<Role>,
    agents: Option<String>,
    namespaces: Option<Vec<String>>,
    expires: Option<toml::value::Datetime>,
}

/// The tokens from one reading of a file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    by_hash: HashMap<[u8; 32], Arc<TokenGrant>>,
    by_certificate: HashMap<Box<str>, Arc<TokenGrant>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.len())
    }
}

impl Tokens {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn parse(path: &Path, text: &str) -> Result<Self, TokensFault> {
        let raw: RawFile = toml::from_str(text).map_err(|error| TokensFault::Form {
            path: path.to_owned(),
            // The line itself is not shown: it may contain a token by mistake.
            line: error.span().map_or(1, |span| {
                let before = text.get(..span.start).unwrap_or_default();
                before.matches('\n').count() + 1
            }),
            why: error.message().to_owned(),
        })?;
        let mut tokens = Self::default();
        let empty = || TokensFault::Empty {
            path: path.to_owned(),
        };
        for (name, raw) in raw.tokens.ok_or_else(empty)? {
            let entered = read_grant(&name, raw).and_then(|grant| tokens.enter(grant));
            entered.map_err(|wrong| TokensFault::Token {
                path: path.to_owned(),
                name,
                wrong,
            })?;
        }
        Ok(tokens)
    }

    fn enter(&mut self, grant: TokenGrant) -> Result<(), String> {
        let grant = Arc::new(grant);
        let before = match &grant.proof {
            Proof::Token(hash) => self.by_hash.insert(*hash, Arc::clone(&grant)),
            Proof::Certificate(name) => {
                self.by_certificate.insert(name.clone(), Arc::clone(&grant))
            }
        };
        match before {
            None => Ok(()),
            Some(other) => Err(format!(
                "has the same hash or certificate as tokens.{}, expected one of its own",
                other.name
            )),
        }
    }

    /// The number of grants.
    pub fn len(&self) -> usize {
        self.by_hash.len() + self.by_certificate.len()
    }

    /// Whether there are no grants.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The grant of a token, if it is in the file.
    pub fn of_token(&self, token: &[u8]) -> Option<&Arc<TokenGrant>> {
        self.by_hash.get(blake3::hash(token).as_bytes())
    }

    /// The grant of a certificate, by the first of its names that is in the file.
    pub fn of_certificate(&self, certificate: &Certificate) -> Option<&Arc<TokenGrant>> {
        let mut names = certificate.names().iter();
        names.find_map(|name| self.by_certificate.get(name.as_str()))
    }

    /// All grants, in no order.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<TokenGrant>> {
        self.by_hash.values().chain(self.by_certificate.values())
    }

    /// Whether the file still has this grant, unchanged.
    pub fn still_has(&self, grant: &Arc<TokenGrant>) -> bool {
        let now = match &grant.proof {
            Proof::Token(hash) => self.by_hash.get(hash),
            Proof::Certificate(name) => self.by_certificate.get(name),
        };
        now.is_some_and(|now| Arc::ptr_eq(now, grant) || now == grant)
    }
}

fn read_grant(name: &str, raw: RawToken) -> Result<TokenGrant, String> {
    check_name(name).map_err(|fault| format!("its name {fault}"))?;
    let proof = match (raw.hash, raw.certificate) {
        (Some(hash), None) => Proof::Token(read_hash(&hash)?),
        (None, Some(name)) => Proof::Certificate(name.to_ascii_lowercase().into()),
        _ => {
            return Err(
                "expected either hash or certificate, as `tollgate keys token` writes it"
                    .to_owned(),
            );
        }
    };
    let roles = Roles::new(raw.roles);
    if roles.is_empty() {
        return Err(
            "roles = []: expected at least one of agent, relay, viewer, operator, admin, member"
                .to_owned(),
        );
    }
    if let Some(agents) = &raw.agents {
        let stem = agents.strip_suffix('*').unwrap_or(agents);
        if agents.is_empty() || stem.contains('*') {
            return Err(format!(
                "agents = {agents:?}: expected a name, or the beginning of names and `*`"
            ));
        }
    }
    if let Some(namespaces) = &raw.namespaces {
        let is_one = |one: &String| !one.is_empty() && !one.contains(['.', '*']);
        if namespaces.is_empty() || !namespaces.iter().all(is_one) {
            return Err(format!(
                "namespaces = {namespaces:?}: expected at least one, each without `.` and `*`: the part of resources' names before the first `.`"
            ));
        }
    }
    let expires = raw.expires.as_ref().map(read_instant).transpose()?;
    Ok(TokenGrant {
        name: name.into(),
        proof,
        roles,
        agents: raw.agents.map(Into::into),
        namespaces: raw
            .namespaces
            .map(|all| all.into_iter().map(Into::into).collect()),
        expires,
    })
}

fn read_hash(text: &str) -> Result<[u8; 32], String> {
    // The value is not quoted: it may be the token itself.
    let expected = || {
        format!(
            "hash: expected {HASH_PREFIX} and 64 hexadecimal digits, the BLAKE3 hash of a token"
        )
    };
    if text.starts_with(TOKEN_PREFIX) {
        return Err("hash: this is a token itself, expected its hash; the token is to be replaced, since this file is not secret".to_owned());
    }
    let digits = text.strip_prefix(HASH_PREFIX).ok_or_else(expected)?;
    let hash = blake3::Hash::from_hex(digits).map_err(|_| expected())?;
    Ok(*hash.as_bytes())
}

fn read_instant(stated: &toml::value::Datetime) -> Result<u64, String> {
    let expected = || {
        format!(
            "expires = {stated}: expected an instant in UTC from 1970 on, such as 2027-01-01T00:00:00Z"
        )
    };
    let (Some(date), Some(time), Some(toml::value::Offset::Z)) =
        (stated.date, stated.time, stated.offset)
    else {
        return Err(expected());
    };
    let day = (date.year.into(), date.month.into(), date.day.into());
    let second = time.second.unwrap_or_default();
    let time = (time.hour.into(), time.minute.into(), second.into());
    tollgate_tls::utc::seconds(day, time).ok_or_else(expected)
}

/// The tokens file, which is read again when it changes.
#[derive(Debug)]
pub struct TokenBook {
    path: PathBuf,
    tokens: RwLock<Arc<Tokens>>,
    looks: Mutex<Looks>,
}

/// Hashes of the file's content.
#[derive(Debug)]
struct Looks {
    /// At the last look.
    seen: blake3::Hash,
    /// Of the content that was last used, or could not be.
    tried: blake3::Hash,
    /// Whether that content could not be used.
    is_behind: bool,
}

impl TokenBook {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// The fault of the file.
    pub fn load(path: &Path) -> Result<Self, TokensFault> {
        let text = read(path)?;
        let hash = blake3::hash(text.as_bytes());
        Ok(Self {
            path: path.to_owned(),
            tokens: RwLock::new(Arc::new(Tokens::parse(path, &text)?)),
            looks: Mutex::new(Looks {
                seen: hash,
                tried: hash,
                is_behind: false,
            }),
        })
    }

    /// The tokens in force.
    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the file on disk cannot be used, so that older tokens are in force.
    pub fn is_behind(&self) -> bool {
        self.lock_looks().is_behind
    }

    fn lock_looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the file, and uses it if it has changed and two looks found the same content: a single look may
    /// happen in the middle of a write. Returns whether it was used.
    ///
    /// # Errors
    ///
    /// The fault of a file that has changed since the last look; the previous tokens stay in force.
    pub fn reload(&self) -> Result<bool, TokensFault> {
        let text = read(&self.path);
        let digest = match &text {
            Ok(text) => blake3::hash(text.as_bytes()),
            // A missing file is reported once, like an invalid one.
            Err(fault) => blake3::hash(fault.to_string().as_bytes()),
        };
        let mut looks = self.lock_looks();
        let before = std::mem::replace(&mut looks.seen, digest);
        if before != digest || looks.tried == digest {
            return Ok(false);
        }
        looks.tried = digest;
        looks.is_behind = true;
        let tokens = Arc::new(Tokens::parse(&self.path, &text?)?);
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        looks.is_behind = false;
        Ok(true)
    }
}

fn read(path: &Path) -> Result<String, TokensFault> {
    use std::os::unix::fs::PermissionsExt as _;

    let failed = |source| TokensFault::Read {
        path: path.to_owned(),
        source,
    };
    let file = bounded_file::open_regular(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    check_believed(mode).map_err(|fault| TokensFault::Mode {
        path: path.to_owned(),
        fault,
    })?;
    let bytes = bounded_file::read_all(file, FILE_BYTES_MAX).map_err(failed)?;
    String::from_utf8(bytes).map_err(|_| {
        let kind = std::io::ErrorKind::InvalidData;
        failed(std::io::Error::new(kind, "not UTF-8"))
    })
}

#[cfg(test)]
mod tests;
