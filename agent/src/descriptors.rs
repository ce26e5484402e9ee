//! Which resource and domain one of Envoy's descriptors is a use of, by the rules of the limits document.
//!
//! A gateway asks here, and then for the hit or the copies. The rules come with the feed, as a resource's limits do.
//! Knows nothing of gRPC. What stays true: no call waits; rules that changed are known some seconds after they are
//! used next.

use std::fmt;
use std::sync::Arc;

use tollgate_shared::descriptors::Matched;
use tollgate_shared::wire::public::Kind;

use crate::resource::Resource;
use crate::shared::Shared;

/// The rules of one domain of descriptors (`[descriptors.NAME]` of the limits). Cheap to clone.
#[derive(Clone)]
pub struct Descriptors {
    resource: Arc<Resource>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptors")
            .field("resource", &self.resource.name)
            .finish_non_exhaustive()
    }
}

/// What the rules say of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is a use of this resource by this domain.
    Matched(Matched),
    /// There are rules, and none matches it. The namespace of the rules' name says whether that is refused.
    Unmatched {
        /// Whether it is to be refused.
        refused: bool,
    },
    /// There are no rules: the document has none, or no aggregator has been heard yet.
    NoRules,
}

impl Descriptors {
    pub(crate) fn new(resource: Arc<Resource>, shared: Arc<Shared>) -> Self {
        Self { resource, shared }
    }

    /// What a descriptor with these entries, each a key and a value, is a use of: by the first rule that matches it.
    ///
    /// Looks at each rule in turn, and allocates the names that it finds.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// use tollgate_agent::Applied;
    ///
    /// let rules = kit.agent().descriptors("envoy");
    /// if let Applied::Unmatched { refused } = rules.apply(&[("path", "/search")]) {
    ///     println!("no rule matches: refused {refused}");
    /// }
    /// ```
    pub fn apply(&self, entries: &[(&str, &str)]) -> Applied {
        let public = self.resource.public();
        // No denial tells that there are other rules: they are asked for again every five seconds, while they are used.
        self.shared.resources.doubt_limits(&self.resource);
        if public.kind != Kind::Descriptors {
            return Applied::NoRules;
        }
        let mut rules = public.descriptors.iter();
        match rules.find_map(|rule| rule.apply(entries)) {
            Some(matched) => Applied::Matched(matched),
            None => Applied::Unmatched {
                refused: public.refused,
            },
        }
    }
}
