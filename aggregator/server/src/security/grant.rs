//! What a token or certificate allows: roles, agents' names, namespaces, and until when.
//!
//! ```text
//! agent      report and hear, in its namespaces          viewer    GET
//! relay      the same for agents of any name             operator  viewer, and lift, reset, refund, ban, release
//! member     another aggregator: lists, explanations     admin     operator, and limits and switches
//! ```

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use tollgate_shared::names::namespace;

/// A role of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reports calls, and receives denials.
    Agent,
    /// The same for agents of any name.
    Relay,
    /// Looks at everything, and changes nothing.
    Viewer,
    /// Also lifts, resets, refunds, bans and releases.
    Operator,
    /// Also changes limits and switches.
    Admin,
    /// Is another aggregator of the fleet.
    Member,
}

impl Role {
    /// All roles, with their names in the tokens file.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Agent, "agent"),
        (Self::Relay, "relay"),
        (Self::Viewer, "viewer"),
        (Self::Operator, "operator"),
        (Self::Admin, "admin"),
        (Self::Member, "member"),
    ];
}

/// The roles of a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// These roles.
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Self {
        Self(roles.into_iter().collect())
    }

    /// Whether one of these is among them, stated or implied.
    pub fn has_any(&self, wanted: &[Role]) -> bool {
        wanted.iter().any(|one| {
            self.0.contains(one)
                || match one {
                    Role::Viewer => self.has_any(&[Role::Operator]),
                    Role::Operator => self.0.contains(&Role::Admin),
                    _ => false,
                }
        })
    }

    /// Whether this one is stated.
    pub fn states(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// Whether there are no roles.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How a caller proves that it has a grant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// By a token with this BLAKE3 hash.
    Token([u8; 32]),
    /// By a client certificate with this DNS name.
    Certificate(Box<str>),
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token(…)"),
            Self::Certificate(name) => f.debug_tuple("Certificate").field(name).finish(),
        }
    }
}

/// What one line of the tokens file allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrant {
    /// Its name, for people: amendments and log lines name the caller so.
    pub name: Box<str>,
    /// How a caller proves that it has this grant.
    pub proof: Proof,
    /// The caller's roles.
    pub roles: Roles,
    /// Which names agents may have, with at most one `*` at the end; `None`: any.
    pub agents: Option<Box<str>>,
    /// The namespaces for which it holds; `None`: all.
    pub namespaces: Option<BTreeSet<Box<str>>>,
    /// Its last second since the Unix epoch; `None`: it does not expire.
    pub expires: Option<u64>,
}

impl TokenGrant {
    /// Whether an agent may have this name.
    pub fn allows_agent(&self, agent: &str) -> bool {
        if self.roles.has_any(&[Role::Relay]) {
            return true;
        }
        match self.agents.as_deref().map(|of| (of, of.strip_suffix('*'))) {
            None => true,
            Some((_, Some(prefix))) => agent.starts_with(prefix),
            Some((name, None)) => agent == name,
        }
    }

    /// Whether it holds for a resource.
    pub fn allows_resource(&self, resource: &str) -> bool {
        let namespaces = self.namespaces.as_ref();
        namespaces.is_none_or(|all| all.contains(namespace(resource)))
    }

    /// Whether it has ended at a second since the Unix epoch.
    pub fn has_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|last| last < now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(roles: &[Role]) -> TokenGrant {
        TokenGrant {
            name: "checkout".into(),
            proof: Proof::Token([7; 32]),
            roles: Roles::new(roles.iter().copied()),
            agents: Some("checkout-*".into()),
            namespaces: Some(["api".into()].into()),
            expires: Some(10),
        }
    }

    #[test]
    fn a_grant_holds_for_its_agents_namespaces_and_time() {
        let grant = grant(&[Role::Agent]);
        assert!(grant.allows_agent("checkout-7") && !grant.allows_agent("web-1"));
        assert!(grant.allows_resource("api.search") && grant.allows_resource("api"));
        assert!(!grant.allows_resource("apis.search"));
        assert!(!grant.has_expired(10) && grant.has_expired(11));
        assert!(!format!("{grant:?}").contains("[7"), "no hash is shown");
    }

    #[test]
    fn roles_imply_those_below_them_and_no_others() {
        let has = |roles: &[Role], wanted| grant(roles).roles.has_any(&[wanted]);
        assert!(has(&[Role::Admin], Role::Operator) && has(&[Role::Admin], Role::Viewer));
        assert!(has(&[Role::Operator], Role::Viewer) && !has(&[Role::Operator], Role::Admin));
        for other in [Role::Agent, Role::Relay, Role::Member, Role::Operator] {
            assert!(!has(&[Role::Viewer], other), "{other:?}");
        }
        assert!(!has(&[Role::Admin], Role::Agent));
        assert!(grant(&[Role::Relay]).allows_agent("web-1"));
    }
}
