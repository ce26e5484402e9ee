//! Which resources the model checks: those of which each version so far states whatever it rules.
//!
//! ```text
//! version 1   api.search: rate = "9/s"       checked
//! version 2   api.search: shadow = true      ruled and never stated: not checked from its activation on
//! version 3   api.search: rate = "9/s"       not checked either: the model did not see what version 2 counted
//! ```
//!
//! Knows nothing of rulings. What stays true: a resource that is not checked any more is never checked again.

use std::cell::RefCell;
use std::collections::HashMap;

use tollgate_limits::{Limits, Mode, Resource};

/// What the model rules of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelRules {
    /// Everything: the engine states whatever the model states of it.
    All,
    /// Nothing, although some version has limits on its rate.
    Nothing(Unchecked),
    /// Nothing, because it has no limits on rates.
    NotRates,
}

/// Why a resource with limits on its rate is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unchecked {
    /// A version does not enforce its limits.
    NotEnforced,
    /// A version limits it by copies.
    Copies,
    /// A version does not limit it, and agents refuse its calls by themselves.
    Unconfigured,
}

impl Unchecked {
    /// The kind of the remark, and its text.
    pub fn remark(self) -> (&'static str, &'static str) {
        match self {
            Self::NotEnforced => (
                "model_unenforced",
                "entries and statements that the model did not check: their resource was in shadow, or its namespace ignored limits, then or before",
            ),
            Self::Copies => (
                "model_copies",
                "entries that the model did not check: their resource was limited by copies, then or before",
            ),
            Self::Unconfigured => (
                "model_unconfigured",
                "entries that the model did not check: their resource was without limits in a namespace that refuses such resources, then or before",
            ),
        }
    }
}

/// What the versions so far have said of one resource.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    has_rates: bool,
    unchecked: Option<Unchecked>,
}

impl Found {
    fn learn(&mut self, limits: &Limits, resource: &str) {
        self.has_rates |= limits.rate(resource).is_some();
        self.unchecked = self.unchecked.or_else(|| unchecked(limits, resource));
    }

    fn rules(self) -> ModelRules {
        match self.unchecked {
            None => ModelRules::All,
            Some(why) if self.has_rates => ModelRules::Nothing(why),
            Some(_) => ModelRules::NotRates,
        }
    }
}

/// The resources that were looked up.
#[derive(Debug, Default)]
pub(super) struct CheckedResources(RefCell<HashMap<Box<str>, Found>>);

impl CheckedResources {
    /// Takes the limits of the next version.
    pub fn learn(&mut self, limits: &Limits) {
        for (resource, found) in self.0.get_mut() {
            found.learn(limits, resource);
        }
    }

    /// What the model rules of a resource, by all versions so far, in their order.
    pub fn rules_of<'a>(
        &self,
        resource: &str,
        versions: impl Iterator<Item = &'a Limits>,
    ) -> ModelRules {
        if let Some(found) = self.0.borrow().get(resource) {
            return found.rules();
        }
        let mut found = Found::default();
        versions.for_each(|limits| found.learn(limits, resource));
        self.0.borrow_mut().insert(resource.into(), found);
        found.rules()
    }
}

/// Why the model cannot check a resource under a version, if so.
fn unchecked(limits: &Limits, resource: &str) -> Option<Unchecked> {
    let namespace = limits.namespace_of(resource);
    match limits.resource(resource) {
        // The model rules rates alone, not limits on copies.
        Some(Resource::Copies(_)) => Some(Unchecked::Copies),
        // A ban of a resource without limits is not enforced either.
        _ if namespace.ignore_configured => Some(Unchecked::NotEnforced),
        Some(Resource::Rate(rate)) => {
            (rate.mode() != Mode::Enforced).then_some(Unchecked::NotEnforced)
        }
        None => (!namespace.allow_unconfigured).then_some(Unchecked::Unconfigured),
    }
}
