//! What both layers find in a request before they ask the agent: whether it is limited at all, its domain, and its
//! cost.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::head::Head;

type KeyFn = dyn for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync;
type SkipFn = dyn for<'r> Fn(Head<'r>) -> bool + Send + Sync;
type CostFn = dyn for<'r> Fn(Head<'r>) -> u32 + Send + Sync;

/// How many requests a layer has let through without asking, because they had no domain.
#[derive(Clone, Debug, Default)]
pub struct Undecided(Arc<AtomicU64>);

impl Undecided {
    /// The number since the layer was made.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How to find a request's domain and cost.
#[derive(Clone)]
pub(crate) struct Subject {
    key: Arc<KeyFn>,
    skip: Option<Arc<SkipFn>>,
    cost: Option<Arc<CostFn>>,
    otherwise: Option<Arc<str>>,
    undecided: Undecided,
}

impl Subject {
    pub fn new(
        key: impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            key: Arc::new(key),
            skip: None,
            cost: None,
            otherwise: None,
            undecided: Undecided::default(),
        }
    }

    pub fn set_skip(&mut self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) {
        self.skip = Some(Arc::new(skip));
    }

    pub fn set_cost(&mut self, cost: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) {
        self.cost = Some(Arc::new(cost));
    }

    pub fn set_otherwise(&mut self, domain: &str) {
        self.otherwise = Some(domain.into());
    }

    pub fn undecided(&self) -> Undecided {
        self.undecided.clone()
    }

    /// The domain and the copies of a request; `None` if it is not limited.
    pub fn of<'r>(&'r self, head: Head<'r>) -> Option<(Cow<'r, str>, u32)> {
        if self.skip.as_ref().is_some_and(|skip| skip(head)) {
            return None;
        }
        let otherwise = || self.otherwise.as_deref().map(Cow::Borrowed);
        let Some(domain) = (self.key)(head).or_else(otherwise) else {
            self.undecided.0.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let copies = self.cost.as_ref().map_or(1, |cost| cost(head));
        // A request without a cost is not limited: 0 copies would be a mistake to the agent.
        (0 < copies).then_some((domain, copies))
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("or_domain", &self.otherwise)
            .field("undecided", &self.undecided.count())
            .finish_non_exhaustive()
    }
}
