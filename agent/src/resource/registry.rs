//! All resources of an agent, by name and by number.
//!
//! Knows nothing of limits. What stays true: a name has one object, a number belongs to one name, and there are no
//! more resources than the bound.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::doubts::Doubts;
use super::{LIMITS_UNKNOWN, NO_RESOURCE, Resource, ResourceId};

/// All resources of an agent, by name and by number.
#[derive(Debug)]
pub(crate) struct Resources {
    seed: u64,
    max: usize,
    doubts: Doubts,
    /// The flags of a new resource.
    of_new: AtomicU32,
    /// How often limits of a resource have changed.
    changes: AtomicU64,
    all: RwLock<RegistryTable>,
}

#[derive(Debug, Default)]
struct RegistryTable {
    by_name: HashMap<Arc<str>, Arc<Resource>>,
    by_id: Vec<Arc<Resource>>,
}

impl Resources {
    pub(crate) fn new(seed: u64, max: usize) -> Self {
        Self {
            seed,
            max,
            doubts: Doubts::default(),
            of_new: AtomicU32::new(LIMITS_UNKNOWN),
            changes: AtomicU64::new(0),
            all: RwLock::default(),
        }
    }

    /// From now on new resources count as known: nothing will be announced about them.
    #[cfg(feature = "testing")]
    pub(crate) fn assume_limits_known(&self) {
        self.of_new.store(0, Ordering::Relaxed);
    }

    /// The resource of this name, created if it is new (then the second value is `true`). `None` at the bound.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn get(&self, name: &str) -> (Option<Arc<Resource>>, bool) {
        self.get_with(name, 0)
    }

    /// Like `get`; a new resource has these flags before any other thread sees it.
    pub(crate) fn get_with(&self, name: &str, flags: u32) -> (Option<Arc<Resource>>, bool) {
        if let Some(known) = self
            .all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_name
            .get(name)
        {
            return (Some(Arc::clone(known)), false);
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.by_name.get(name) {
            return (Some(Arc::clone(known)), false);
        }
        if self.max <= all.by_id.len() {
            return (None, false);
        }
        let id = ResourceId(u32::try_from(all.by_id.len()).unwrap_or(u32::MAX));
        let resource = Arc::new(Resource::new(id, name, self.seed));
        resource.set_flag(flags | self.of_new.load(Ordering::Relaxed), true);
        all.by_name
            .insert(Arc::clone(&resource.name), Arc::clone(&resource));
        all.by_id.push(Arc::clone(&resource));
        (Some(resource), true)
    }

    /// A resource outside the registry, for names beyond the bound.
    pub(crate) fn outside(&self, name: &str) -> Arc<Resource> {
        let resource = Resource::new(NO_RESOURCE, name, self.seed);
        resource.set_flag(LIMITS_UNKNOWN, true);
        Arc::new(resource)
    }

    /// The resource of this name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Resource>> {
        self.all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_name
            .get(name)
            .cloned()
    }

    pub(crate) fn by_id(&self, id: ResourceId) -> Option<Arc<Resource>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.by_id.get(id.0 as usize).cloned()
    }

    /// Appends the resources that were created after those in `known`, which has all older ones, by number.
    pub(crate) fn add_newer(&self, known: &mut Vec<Arc<Resource>>) {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(all.by_id.get(known.len()..).unwrap_or_default());
    }

    /// A resource's limits refused a call: they may have changed.
    pub(crate) fn doubt_limits(&self, resource: &Resource) {
        self.doubts.mark(&resource.limits_doubted);
    }

    /// The limits of a resource have changed.
    pub(crate) fn limits_changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How often limits of a resource have changed.
    pub(crate) fn limits_changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The resources whose limits are doubted and for which `is_due` is true; the others stay doubted.
    pub(crate) fn take_doubted(&self, is_due: impl Fn(ResourceId) -> bool) -> Vec<Arc<Resource>> {
        self.doubts.take(
            || self.all(),
            |one| &one.limits_doubted,
            |one| is_due(one.id),
        )
    }

    pub(crate) fn len(&self) -> usize {
        self.all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_id
            .len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        self.all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_id
            .clone()
    }
}
