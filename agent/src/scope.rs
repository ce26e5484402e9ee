//! Whose use of a resource a refusal is about.

use std::fmt;

use tollgate_shared::wire::statement as wire;

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// One domain's use of the resource.
    Pair,
    /// Everybody's use of the resource.
    Resource,
    /// The use by all domains of a group.
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
