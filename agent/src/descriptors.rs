//! Maps one of Envoy's descriptors to a resource and domain, by the rules of the limits document.
//!
//! A gateway calls this, and then makes the hit or takes the copies. The rules come with the feed, like a resource's
//! limits. Knows nothing of gRPC. What stays true: no call waits; the agent learns changed rules some seconds after
//! they are next used.

use std::fmt;
use std::sync::Arc;

use tollgate_shared::descriptors::Matched;
use tollgate_shared::wire::public::Kind;

use crate::agent_inner::AgentInner;
use crate::resource::Resource;

/// The rules of one domain of descriptors (`[descriptors.NAME]` of the limits). Cheap to clone.
#[derive(Clone)]
pub struct Descriptors {
    resource: Arc<Resource>,
    /// The agent works for as long as its handles live.
    agent: Arc<AgentInner>,
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptors")
            .field("resource", &self.resource.name)
            .finish_non_exhaustive()
    }
}

/// The result of applying the rules to a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The descriptor is a use of this resource by this domain.
    Matched(Matched),
    /// No rule matches. The namespace of the rules' name decides whether the descriptor is refused, and may do so if
    /// the document has no rules of this name.
    Unmatched {
        /// Whether to refuse the descriptor.
        refused: bool,
    },
    /// There are no rules, and nothing is refused: the document has none, or the agent has not received it yet.
    NoRules,
}

impl Descriptors {
    pub(crate) fn new(resource: Arc<Resource>, agent: Arc<AgentInner>) -> Self {
        Self { resource, agent }
    }

    /// Applies the rules to a descriptor with these entries, each a key and a value. The first rule that matches
    /// counts.
    ///
    /// Looks at each rule in turn, and allocates the names of the match.
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
        // No denial shows that the rules have changed: while they are used, the agent asks for them again every five
        // seconds.
        let resources = &self.agent.shared.resources;
        resources.doubt_limits(&self.resource);
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
