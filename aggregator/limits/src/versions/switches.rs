//! Switches of namespaces by which operators override limits documents.
//!
//! ```text
//! document   [namespace.api] ignore_configured = false
//! switch     api: ignore_configured = true        nobody is denied in api, and all hits are counted
//! document   pushed by somebody else meanwhile    the switch stays in force
//! switch     api: as the document states          denials hold again
//! ```
//!
//! A switch of `*` applies to every namespace that has none of its own. Knows nothing of versions.
//! What stays true: without switches a document is used as it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Limits, Namespace};
use tollgate_shared::wire::amendment::Act;

/// The settings of a switch, in place of a document's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// In place of `ignore_configured`.
    pub ignore_configured: Option<bool>,
    /// In place of `allow_unconfigured`.
    pub allow_unconfigured: Option<bool>,
}

/// All switches that are set, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches(BTreeMap<Box<str>, Switch>);

/// The namespace name that stands for all.
pub const ALL: &str = "*";

impl Switches {
    /// Sets or removes a switch, if the act is `Act::Switch`.
    pub fn turn(&mut self, act: &Act) {
        let Act::Switch {
            namespace,
            ignore_configured,
            allow_unconfigured,
        } = act
        else {
            return;
        };
        let switch = Switch {
            ignore_configured: *ignore_configured,
            allow_unconfigured: *allow_unconfigured,
        };
        match switch == Switch::default() {
            true => drop(self.0.remove(namespace)),
            false => drop(self.0.insert(namespace.clone(), switch)),
        }
    }

    /// The switch of a namespace.
    pub fn of(&self, namespace: &str) -> Option<Switch> {
        self.0.get(namespace).copied()
    }

    /// All switches that are set.
    pub fn all(&self) -> impl Iterator<Item = (&str, Switch)> {
        self.0.iter().map(|(name, switch)| (&**name, *switch))
    }

    /// A document with the switches applied.
    pub fn over(&self, limits: &Arc<Limits>) -> Arc<Limits> {
        if self.0.is_empty() {
            return Arc::clone(limits);
        }
        let mut namespaces = limits.namespaces().clone();
        let all = self.of(ALL).unwrap_or_default();
        let default = namespaces.default;
        for name in self.0.keys().filter(|name| ***name != *ALL) {
            namespaces.named.entry(name.clone()).or_insert(default);
        }
        for (name, namespace) in &mut namespaces.named {
            self.of(name).unwrap_or_default().turn(all, namespace);
        }
        Switch::default().turn(all, &mut namespaces.default);
        let mut limits = Limits::clone(limits);
        limits.set_namespaces(namespaces);
        Arc::new(limits)
    }
}

impl Switch {
    fn turn(self, all: Self, namespace: &mut Namespace) {
        let ignore = self.ignore_configured.or(all.ignore_configured);
        let allow = self.allow_unconfigured.or(all.allow_unconfigured);
        namespace.ignore_configured = ignore.unwrap_or(namespace.ignore_configured);
        namespace.allow_unconfigured = allow.unwrap_or(namespace.allow_unconfigured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(switches: &mut Switches, namespace: &str, ignore: Option<bool>) {
        switches.turn(&Act::Switch {
            namespace: namespace.into(),
            ignore_configured: ignore,
            allow_unconfigured: None,
        });
    }

    #[test]
    fn a_switch_covers_its_namespace_and_the_star_all_others() {
        let text = "version = 1\nrules = 2\n[namespace.api]\nallow_unconfigured = false\n";
        let document = Arc::new(Limits::parse(text).expect("it is good"));
        let mut switches = Switches::default();
        assert!(Arc::ptr_eq(&switches.over(&document), &document));
        turned(&mut switches, "*", Some(true));
        turned(&mut switches, "batch", Some(false));
        let limits = switches.over(&document);
        let ignored = |resource: &str| limits.namespace_of(resource).ignore_configured;
        assert_eq!(
            ["api.x", "batch.x", "other"].map(ignored),
            [true, false, true]
        );
        assert!(
            !limits.namespace_of("api.x").allow_unconfigured,
            "as it was"
        );
        turned(&mut switches, "*", None);
        turned(&mut switches, "batch", None);
        assert!(Arc::ptr_eq(&switches.over(&document), &document));
    }

    #[test]
    fn a_switch_decides_about_resources_without_limits() {
        let text = "version = 1\nrules = 2\n[namespace.api]\nallow_unconfigured = false\n";
        let document = Arc::new(Limits::parse(text).expect("it is good"));
        let mut switches = Switches::default();
        let mut turn = |namespace: &str, allow| {
            switches.turn(&Act::Switch {
                namespace: namespace.into(),
                ignore_configured: None,
                allow_unconfigured: allow,
            });
            let limits = switches.over(&document);
            ["api.x", "batch.x"].map(|resource| {
                let namespace = limits.namespace_of(resource);
                assert!(!namespace.ignore_configured, "as it was");
                namespace.allow_unconfigured
            })
        };
        assert_eq!(turn("api", Some(true)), [true, true]);
        assert_eq!(turn("*", Some(false)), [true, false]);
        assert_eq!(turn("api", None), [false, false]);
        assert_eq!(turn("*", None), [false, true]);
    }
}
