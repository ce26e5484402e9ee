//! Domains that a resource's limits close: the filter does not clear their calls, which then ask the limits.
//!
//! ```text
//! limits of version 7 close acme and globex      the filter has both fingerprints
//! limits of version 8 close globex               acme's is removed
//! ```
//!
//! So a call of any other domain costs what it costs without closed domains. The filter decides nothing: whether a domain
//! is closed, the resource knows by its name. What stays true: the filter has the fingerprints of one list for each
//! resource, each as often as the list has it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::list::DenyList;
use super::view::DenyView;
use crate::resource::{Resource, ResourceId};

/// The fingerprints of closed domains that are in the filter, by resource. Only the filter's writer uses it.
#[derive(Debug, Default)]
pub(super) struct ClosedFingerprints(Mutex<HashMap<ResourceId, Box<[u64]>>>);

impl ClosedFingerprints {
    fn locked(&self) -> MutexGuard<'_, HashMap<ResourceId, Box<[u64]>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, for a rebuild of the filter.
    pub(super) fn all(&self) -> Vec<u64> {
        self.locked().values().flatten().copied().collect()
    }
}

impl DenyList {
    /// From now on calls of these domains, and no longer those of the list before, ask the resource whether its limits
    /// close them.
    pub(crate) fn note_closed(&mut self, resource: &Resource, domains: &[Box<str>]) {
        self.view.note_closed(resource, domains);
    }
}

impl DenyView {
    fn note_closed(&self, resource: &Resource, domains: &[Box<str>]) {
        let domains = domains.iter().map(|domain| resource.fingerprint(domain));
        let now: Box<[u64]> = domains.collect();
        // A domain of both lists is never missing meanwhile.
        now.iter().for_each(|one| self.filter.add(*one));
        let mut closed = self.closed.locked();
        let before = match now.is_empty() {
            true => closed.remove(&resource.id),
            false => closed.insert(resource.id, now),
        };
        drop(closed);
        for fingerprint in before.iter().flatten() {
            self.filter.remove(*fingerprint);
        }
        self.rebuild_filter_if_stuck();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::resource::Resource;

    /// A deny list, and two resources of its agent.
    fn list() -> (DenyList, Arc<DenyView>, [Resource; 2]) {
        let view = Arc::new(DenyView::new(1_000));
        let list = DenyList::new(Arc::clone(&view), 1_000);
        let of = |id, name| Resource::new(ResourceId(id), name, 1);
        (list, view, [of(0, "search"), of(1, "export")])
    }

    fn named(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn the_filter_clears_all_calls_but_those_of_closed_domains() {
        let (mut list, view, [search, export]) = list();
        let asked = |of: &Resource| {
            let all = ["acme", "globex", "hooli", "initech"].into_iter();
            let asked = all.filter(|domain| view.maybe(of.fingerprint(domain)));
            asked.collect::<Vec<_>>()
        };
        list.note_closed(&search, &named(&["acme", "globex"]));
        list.note_closed(&export, &named(&["hooli"]));
        assert_eq!(
            (asked(&search), asked(&export)),
            (vec!["acme", "globex"], vec!["hooli"])
        );
        list.note_closed(&search, &named(&["globex", "initech"]));
        assert_eq!(asked(&search), ["globex", "initech"]);
        list.note_closed(&search, &[]);
        list.note_closed(&search, &[]);
        assert_eq!((asked(&search), asked(&export)), (vec![], vec!["hooli"]));
        assert_eq!(view.closed.all().len(), 1);
    }

    #[test]
    fn closed_domains_outlast_a_rebuild_of_the_filter() {
        let (mut list, view, [search, export]) = list();
        list.note_closed(&export, &named(&["acme"]));
        // Each so often that its counters stick, and so many that the filter is rebuilt; a rebuild leaves them stuck.
        let often = (0..8_000u32).flat_map(|n| std::iter::repeat_n(n, 16));
        let often: Vec<Box<str>> = often.map(|n| format!("d{n}").into()).collect();
        list.note_closed(&search, &often);
        assert!(10_000 < view.stuck());
        let is_asked = |domain: &str| view.maybe(search.fingerprint(domain));
        assert!(often.iter().all(|domain| is_asked(domain)));
        list.note_closed(&search, &named(&["d1"]));
        assert_eq!(view.stuck(), 0, "rebuilt");
        let asked = often.iter().filter(|domain| is_asked(domain));
        assert_eq!(asked.count(), 16, "those of d1");
        assert!(view.maybe(export.fingerprint("acme")));
    }
}
