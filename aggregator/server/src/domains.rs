//! Hashes domain names that operators type, where the log has keyed hashes of them.
//!
//! ```text
//! explain api.search acme          ── key ──> asks for h~5f2c1e~0c41…
//! [rate.x.domains.acme]            ── key ──> [rate.x.domains."h~5f2c1e~0c41…"], which goes to the log
//! h~5f2c1e~0c41… copied from a list           stays, if it is a hash under this key
//! [rate.x] addresses = { v4 = 24 }
//! [rate.x.domains."203.0.113.7"]   ── key ──> the hash of 203.0.113.0/24, as agents hash it
//! [rate.y.domains."10.0.0.0/8"]               a fault: a hashed address lies in no network
//! ```
//!
//! No other part of this program knows the key: logs, engines, views and HTTP have hashes only. What stays
//! true: a name that was typed with a key does not leave this module; hashes under two keys, or names beside
//! hashes, are not taken for domains of one fleet.

mod document;

use std::path::Path;
use std::str::FromStr as _;

use tollgate_shared::domain_key::{
    DOMAIN_KEY_BYTES_MAX, DomainKey, DomainKeyFault, HASHED_PREFIX, hashed_under,
};
use tollgate_shared::file_mode::check_regular;
use tollgate_shared::names::admit_domain;
use tollgate_shared::networks::{AddressPrefixes, NetworkName, NetworkText, address, network};
use tollgate_shared::wire::limits_document::DOCUMENT_BYTES_MAX;
use tollgate_tls::TlsFault;
use toml_edit::DocumentMut;

use document::each_domain;

/// How domains are named in the log.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    /// `None`: by their names.
    key: Option<DomainKey>,
}

/// Why a domain key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileFault {
    /// It cannot be read.
    #[error("domain key {name}: {source}")]
    Unreadable {
        /// The file.
        name: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Other users can read it, or it is longer than any key.
    #[error("domain key {0}")]
    File(TlsFault),
    /// It is not a domain key.
    #[error("domain key {name}: {fault}")]
    Bad {
        /// The file.
        name: String,
        /// What is wrong with it.
        fault: DomainKeyFault,
    },
}

/// Why a name cannot be a domain of this fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mixture {
    /// It is a hash under another key.
    #[error(
        "\"{domain}\" is hashed under the key {found}, expected a name, or a hash under {expected}"
    )]
    OtherKey {
        /// The domain.
        domain: String,
        /// The id of its key.
        found: String,
        /// The id of the configured key.
        expected: String,
    },
    /// One document has hashes under two keys.
    #[error("domains are hashed under the keys {one} and {other}, expected one key for all")]
    TwoKeys {
        /// The id of one key.
        one: String,
        /// The id of the other key.
        other: String,
    },
    /// One document has names beside hashes.
    #[error(
        "\"{name}\" is a name beside domains that are hashed under the key {key}, and no agent would use it: \
         expected --domain-key, which hashes it"
    )]
    Clear {
        /// The first of the names.
        name: String,
        /// The id of the hashes' key.
        key: String,
    },
    /// Two keys of one table name the same domain.
    #[error(
        "\"{domain}\" stands there twice: by its name and by its hash, or by two addresses of one network"
    )]
    Twice {
        /// The domain.
        domain: String,
    },
    /// The name is a network, but the log has hashes of addresses.
    #[error(
        "\"{domain}\" is a network, and with a domain key addresses are hashed one by one, so that none is found \
         in it: expected addresses, or a resource with `addresses` of that length, which are hashed as networks"
    )]
    Network {
        /// The network, as it was written.
        domain: String,
    },
}

impl Domains {
    /// Reads a domain key.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is not a key, or is readable by other users.
    pub fn read(path: &Path) -> Result<Self, KeyFileFault> {
        let name = || path.display().to_string();
        // White space at the end of the file is ignored.
        let bytes_max = 2 * DOMAIN_KEY_BYTES_MAX as u64;
        let file = tollgate_tls::read_secrets(path, bytes_max).map_err(|fault| match fault {
            TlsFault::Read { source, .. } => KeyFileFault::Unreadable {
                name: name(),
                source,
            },
            fault => KeyFileFault::File(fault),
        })?;
        let key = DomainKey::derive(&file).map_err(|fault| KeyFileFault::Bad {
            name: name(),
            fault,
        })?;
        Ok(Self { key: Some(key) })
    }

    /// Reads a domain key that is read again while the process runs, and so must be a regular file: a pipe in its place
    /// could hold up the reader for ever.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and if it is a pipe, a device or a directory.
    pub fn read_again(path: &Path) -> Result<Self, KeyFileFault> {
        check_regular(&std::fs::metadata(path)).map_err(|source| KeyFileFault::Unreadable {
            name: path.display().to_string(),
            source,
        })?;
        Self::read(path)
    }

    /// The id of the key; `None`: domains are in the log by their names.
    pub fn key_id(&self) -> Option<&str> {
        self.key.as_ref().map(DomainKey::id)
    }

    /// The name of a domain in the log.
    ///
    /// # Errors
    ///
    /// If it is a hash under another key, or a network, which contains no hash.
    pub fn of(&self, domain: &str) -> Result<String, Mixture> {
        self.of_resource(None, domain)
    }

    /// The same for a resource that limits addresses by their networks, for which agents hash the network.
    ///
    /// # Errors
    ///
    /// As [`Domains::of`].
    pub fn of_resource(
        &self,
        addresses: Option<AddressPrefixes>,
        domain: &str,
    ) -> Result<String, Mixture> {
        let Some(key) = &self.key else {
            return Ok(domain.to_owned());
        };
        match hashed_under(domain) {
            Some(id) if id == key.id() => Ok(domain.to_owned()),
            Some(id) => Err(Mixture::OtherKey {
                domain: domain.to_owned(),
                found: id.to_owned(),
                expected: key.id().to_owned(),
            }),
            None => {
                let mut text = NetworkText::default();
                let limited = limited_as(addresses, domain, &mut text)?;
                Ok(key.hash(&admit_domain(limited)).as_str().to_owned())
            }
        }
    }

    /// Whether the name in the log depends on the resource: for an address or a network that is to be hashed.
    pub fn needs_resource(&self, domain: &str) -> bool {
        let is_address = address(domain).is_some() || network(domain) != NetworkName::Other;
        self.key.is_some() && is_address
    }

    /// A limits document as it may stand in the log: its domains are hashed, everything else, including comments, is
    /// unchanged. A document that is not TOML, or is too long, is returned unchanged, for its reader to refuse.
    ///
    /// # Errors
    ///
    /// If its domains are not of one fleet.
    pub fn document(&self, text: String) -> Result<String, Mixture> {
        // Without a key there is nothing to hash, and without any hash there can be no mixture. (A hash may be
        // written with escapes.)
        if self.key.is_none() && !text.contains(HASHED_PREFIX) && !text.contains('\\') {
            return Ok(text);
        }
        if DOCUMENT_BYTES_MAX < text.len() {
            return Ok(text);
        }
        let Ok(mut document) = DocumentMut::from_str(&text) else {
            return Ok(text);
        };
        let mut found = FoundDomains::default();
        let mut changed = false;
        each_domain(&mut document, &mut |domain, addresses| {
            let called = self.of_resource(addresses, domain)?;
            found.take(&called)?;
            changed |= called != domain;
            Ok(called)
        })?;
        found.are_alike()?;
        Ok(match changed {
            true => document.to_string(),
            false => text,
        })
    }
}

/// The names and hashes found in a document, as they come.
#[derive(Default)]
struct FoundDomains {
    name: Option<String>,
    key: Option<String>,
}

impl FoundDomains {
    fn take(&mut self, domain: &str) -> Result<(), Mixture> {
        let Some(id) = hashed_under(domain) else {
            self.name.get_or_insert_with(|| domain.to_owned());
            return Ok(());
        };
        match &self.key {
            Some(one) if one != id => Err(Mixture::TwoKeys {
                one: one.clone(),
                other: id.to_owned(),
            }),
            Some(_) => Ok(()),
            None => {
                self.key = Some(id.to_owned());
                Ok(())
            }
        }
    }

    fn are_alike(self) -> Result<(), Mixture> {
        match (self.name, self.key) {
            (Some(name), Some(key)) => Err(Mixture::Clear { name, key }),
            _ => Ok(()),
        }
    }
}

/// The name under which agents that hash it limit a domain of a document.
fn limited_as<'t>(
    addresses: Option<AddressPrefixes>,
    domain: &'t str,
    text: &'t mut NetworkText,
) -> Result<&'t str, Mixture> {
    let of_addresses = match network(domain) {
        NetworkName::Other => match addresses {
            Some(addresses) => return Ok(addresses.domain_of(domain, text)),
            // Gateways hash the canonical spelling.
            None => {
                return Ok(match address(domain) {
                    Some(address) => text.write(address.into()),
                    None => domain,
                });
            }
        },
        NetworkName::Network(network) => {
            let limited = addresses.map(|addresses| addresses.network_of(network.addr()));
            limited.filter(|limited| *limited == network)
        }
        NetworkName::HostBits(_) | NetworkName::Length => None,
    };
    match of_addresses {
        Some(network) => Ok(text.write(network)),
        None => Err(Mixture::Network {
            domain: domain.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limits::Limits;

    fn domains(file: &[u8]) -> Domains {
        Domains {
            key: Some(DomainKey::derive(file).expect("a key")),
        }
    }

    const KEY: &[u8] = b"5f0c3e6f4f0b4b5a8c1d2e3f40516273";
    const OTHER: &[u8] = b"6f0c3e6f4f0b4b5a8c1d2e3f40516273";

    const DOCUMENT: &str = r#"version = 1
rules = 2
[plans]
gold = ["acme", "globex"] # ours
[rate."api.search"]
rate = "100/s"
[rate."api.search".plans.gold]
rate = "1000/s"
[rate."api.search".domains."203.0.113.7"] # a crawler
rate = "5/s"
[rate."api.search".domains.zeta]
rate = "6/s"
[copies.sandbox]
limit = 10
domains = { acme = 50, b = 4 }
groups.probation = { limit = 4, members = ["new-1", "new-2"] }
"#;

    #[test]
    fn only_the_domains_of_a_document_are_hashed() {
        let domains = domains(KEY);
        let hashed = domains.document(DOCUMENT.to_owned()).expect("one fleet's");
        let mut expected = DOCUMENT.to_owned();
        let of = |name: &str| format!("\"{}\"", domains.of(name).expect("a name"));
        for (name, quoted) in [
            ("acme", "[\"acme\""),
            ("globex", ", \"globex\"]"),
            ("203.0.113.7", "\"203.0.113.7\""),
            ("zeta", ".zeta]"),
            ("acme", "{ acme"),
            ("b", " b ="),
            ("new-1", "\"new-1\""),
            ("new-2", "\"new-2\""),
        ] {
            let bare = quoted.trim_matches(|c| "[]{},. =".contains(c));
            assert_eq!(expected.matches(quoted).count(), 1, "{quoted}");
            expected = expected.replace(quoted, &quoted.replace(bare, &of(name)));
        }
        assert_eq!(hashed, expected);
        assert!(Limits::parse(&hashed).is_ok(), "{hashed}");
        // Hashing the result again changes nothing, with the key and without.
        assert_eq!(domains.document(hashed.clone()).as_ref(), Ok(&hashed));
        assert_eq!(Domains::default().document(hashed.clone()), Ok(hashed));
    }

    #[test]
    fn an_address_is_hashed_as_each_resource_limits_it() {
        let domains = domains(KEY);
        let document = r#"[plans]
near = ["203.0.113.7", "203.0.113.9", "acme"]
[rate.login]
rate = "1/s"
addresses = { v4 = 24 }
domains = { "198.51.100.7" = { rate = "2/s" }, "192.0.2.0/24" = { rate = "3/s" } }
plans.near = { rate = "4/s" }
[rate.search]
rate = "1/s"
plans.near = { rate = "5/s" }
"#;
        let text = domains.document(document.to_owned()).expect("one fleet's");
        let limits = Limits::parse(&text).unwrap_or_else(|faults| panic!("{text}{faults}"));
        let rate = |resource: &str, name: &str| {
            let hashed = domains.of_resource(None, name).expect("a name");
            let class = limits.class_of(resource, &hashed).expect("limited");
            class.windows[0].limit
        };
        // As agents do: the network of the address is hashed.
        let mut named = [0; 3];
        for (name, limit) in ["198.51.100.0", "192.0.2.0", "203.0.113.0"]
            .iter()
            .zip(&mut named)
        {
            let prefixes = AddressPrefixes { v4: 24, v6: 64 };
            let hashed = domains.of_resource(Some(prefixes), &format!("{name}/24"));
            let class = limits.class_of("login", &hashed.expect("a network"));
            *limit = class.expect("limited").windows[0].limit;
        }
        assert_eq!(named, [2, 3, 4]);
        assert_eq!(
            (rate("search", "203.0.113.7"), rate("search", "acme")),
            (5, 5)
        );
        assert_eq!(
            (rate("search", "203.0.113.8"), rate("login", "acme")),
            (1, 4)
        );
        for wrong in ["10.0.0.0/8", "203.0.113.0/25", "203.0.113.7/24"] {
            let one = document.replace("192.0.2.0/24", wrong);
            let refused = domains.document(one);
            assert!(matches!(refused, Err(Mixture::Network { .. })), "{wrong}");
            assert!(matches!(domains.of(wrong), Err(Mixture::Network { .. })));
        }
    }

    #[test]
    fn a_mixture_of_domain_keys_is_refused() {
        let (ours, theirs) = (domains(KEY), domains(OTHER));
        let hash = ours.of("acme").expect("a name");
        assert_eq!(ours.of(&hash).as_ref(), Ok(&hash), "copied from a list");
        assert!(matches!(theirs.of(&hash), Err(Mixture::OtherKey { .. })));
        let plan = |names: &[&str]| format!("[plans]\ngold = {names:?}\n");
        let none = Domains::default();
        let other = theirs.of("acme").expect("a name");
        let two = none.document(plan(&[&hash, &other]));
        assert!(matches!(two, Err(Mixture::TwoKeys { .. })), "{two:?}");
        let mixed = none.document(plan(&[&hash, "globex"]));
        assert!(matches!(mixed, Err(Mixture::Clear { .. })), "{mixed:?}");
        assert!(ours.document(plan(&[&hash, "globex"])).is_ok());
        let twice = format!("[copies.s]\nlimit = 1\ndomains = {{ acme = 1, \"{hash}\" = 2 }}\n");
        let twice = ours.document(twice);
        assert!(matches!(twice, Err(Mixture::Twice { .. })), "{twice:?}");
        assert_eq!(
            none.document("no toml =".to_owned()).as_deref(),
            Ok("no toml =")
        );
    }
}
