//! Names of the scopes of denials.

/// The scope of a denial: a pair, or a whole resource if there is no domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeName {
    /// The resource.
    pub resource: String,
    /// The domain of a pair.
    pub domain: Option<String>,
}

impl ScopeName {
    /// The pair of a resource and a domain, or the whole resource.
    pub fn new(resource: &str, domain: Option<&str>) -> Self {
        Self {
            resource: resource.to_owned(),
            domain: domain.map(str::to_owned),
        }
    }
}
