//! Where a document states the limits that rule: the place of an entry, and which of its fields states a window.
//!
//! ```text
//! domain "acme"     its entry in `domains`, else its plan's, else the resource
//! the candidate     its table, else the resource
//! ```
//!
//! Knows nothing of what limits mean. What stays true: it is asked only to word a message, and finds the resource if an
//! entry has another spelling than its domain.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Whose limits a message is about.
#[derive(Clone, Copy)]
pub(super) enum LimitsOwner<'d> {
    Resource,
    Candidate,
    Domain(&'d str),
}

/// The tree of a document without faults.
#[derive(Clone, Copy)]
pub(super) struct StatedPlaces<'t>(pub(super) &'t DeTable<'t>);

fn table<'t>(value: &'t Spanned<DeValue<'t>>) -> Option<&'t DeTable<'t>> {
    value.get_ref().as_table()
}

impl<'t> StatedPlaces<'t> {
    fn resource(&self, name: &str) -> Option<&'t DeTable<'t>> {
        table(table(self.0.get("rate")?)?.get(name)?)
    }

    /// The offset of a domain's entry on a resource, or of the resource's own.
    pub(super) fn offset_of(&self, resource: &str, owner: LimitsOwner<'_>) -> Option<usize> {
        let of_domain = |domain: &str| {
            let domains = table(self.resource(resource)?.get("domains")?)?;
            let (key, _) = domains.get_key_value(domain)?;
            Some(key.span().start)
        };
        let own = match owner {
            LimitsOwner::Domain(domain) => of_domain(domain),
            LimitsOwner::Resource | LimitsOwner::Candidate => None,
        };
        let of_resource = || {
            let (key, _) = table(self.0.get("rate")?)?.get_key_value(resource)?;
            Some(key.span().start)
        };
        own.or_else(of_resource)
    }

    /// Whether windows are stated as `windows`, not as `rate`.
    pub(super) fn are_windows(&self, resource: &str, owner: LimitsOwner<'_>) -> bool {
        let Some(all) = self.resource(resource) else {
            return false;
        };
        let below = |field: &str| all.get(field).and_then(table);
        let own = match owner {
            LimitsOwner::Resource => None,
            LimitsOwner::Candidate => below("candidate"),
            LimitsOwner::Domain(domain) => {
                below("domains").and_then(|domains| table(domains.get(domain)?))
            }
        };
        let of_plan = || match owner {
            LimitsOwner::Domain(domain) => {
                let mut plans = below("plans")?.iter();
                let plan = plans.find(|(name, _)| self.is_member(name.get_ref(), domain));
                plan.and_then(|(_, stated)| table(stated))
            }
            LimitsOwner::Resource | LimitsOwner::Candidate => None,
        };
        let mut stated = own.into_iter().chain(of_plan()).chain([all]);
        // A table states one of the two.
        let are_windows = |of: &DeTable<'_>| match of.contains_key("windows") {
            true => Some(true),
            false => of.contains_key("rate").then_some(false),
        };
        stated.find_map(are_windows).unwrap_or_default()
    }

    fn is_member(&self, plan: &str, domain: &str) -> bool {
        let members = || table(self.0.get("plans")?)?.get(plan)?.get_ref().as_array();
        let mut members = members().into_iter().flatten();
        members.any(|member| member.get_ref().as_str() == Some(domain))
    }
}
