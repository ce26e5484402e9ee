//! Settings beside the limits themselves: bounds of the engine, switches of namespaces, and the
//! behaviour of agents while blind.
//!
//! Everything here can change a ruling or an answer, so it belongs to the limits document and is
//! versioned with it. The windows of duplicates (128 sequences, 10 minutes), the correction of
//! clocks (250 ms) and the stay of idle pairs (10 minutes) are laws of the rule set: another value
//! of them is another number of `rules`, not a setting.

use std::collections::BTreeMap;

use tollgate_shared::names;
use tollgate_shared::time::Span;

/// Bounds and timeouts of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Pairs that one partition rules at once; further ones are only counted.
    pub pairs_per_partition_max: u64,
    /// How long after its last heartbeat an agent counts as gone. A whole number of half seconds,
    /// because silence is counted in ticks of that length.
    pub agent_timeout: Span,
    /// Agent epochs whose sequence numbers one partition remembers at once, for duplicates.
    pub epochs_per_partition_max: u64,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            pairs_per_partition_max: 1_000_000,
            agent_timeout: Span::from_secs(2),
            epochs_per_partition_max: 100_000,
        }
    }
}

/// A number of hits in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    /// Hits in the time.
    pub hits: u64,
    /// The time; never zero.
    pub window: Span,
}

/// How an agent treats calls on a resource while it is blind, that is, without a current watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlindPolicy {
    /// Lets everything through.
    #[default]
    Open,
    /// Refuses everything.
    Closed,
    /// Lets this rate through, per process and domain.
    Local(Rate),
}

/// The switches of one namespace, after inheritance from `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Whether a resource without limits is let through (and recorded) or refused.
    pub allow_unconfigured: bool,
    /// Whether its limits are ruled and counted, but nobody is denied.
    pub ignore_configured: bool,
    /// How agents treat its resources while blind, unless a resource states that itself.
    pub blind: BlindPolicy,
}

impl Default for Namespace {
    fn default() -> Self {
        Self {
            allow_unconfigured: true,
            ignore_configured: false,
            blind: BlindPolicy::Open,
        }
    }
}

/// All namespaces of a document: those it names, and the default of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// The settings of a namespace that the document does not name; written `*`.
    pub default: Namespace,
    /// The namespaces that it names.
    pub named: BTreeMap<Box<str>, Namespace>,
}

impl Namespaces {
    /// The switches that hold for a resource, configured or not.
    pub fn of_resource(&self, resource: &str) -> &Namespace {
        self.named
            .get(names::namespace(resource))
            .unwrap_or(&self.default)
    }
}
