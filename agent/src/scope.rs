//! The scope of a refusal: whose use of a resource is refused.

use std::fmt;

use tollgate_shared::wire::statement as wire;

/// The scope of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// One domain's use of the resource.
    Pair,
    /// All domains' use of the resource.
    Resource,
    /// The use of the resource by all domains of a group.
    Group,
}

impl From<&wire::Scope> for Scope {
    fn from(scope: &wire::Scope) -> Self {
        match scope {
            wire::Scope::Pair(_) => Self::Pair,
            wire::Scope::Resource => Self::Resource,
            wire::Scope::Group(_) => Self::Group,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pair => "by the domain",
            Self::Resource => "by all domains",
            Self::Group => "by a group of domains",
        })
    }
}
