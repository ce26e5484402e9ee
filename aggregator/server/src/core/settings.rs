//! The settings with which a core is started.

use std::collections::BTreeMap;

use tollgate_log::{Chunks, Stream};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::Span;

use super::snapshots::Policy;
use super::topics::Subscribed;

/// The settings with which a core is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The aggregator's name, in its ticks.
    pub aggregator: String,
    /// The seed of all random numbers: the instance, log ids, ids of pushes.
    pub seed: [u8; 32],
    /// The keys for records that only aggregators may write.
    pub keys: Keyring,
    /// How many partitions the log has.
    pub partitions: u32,
    /// The consumer group, where several groups may rule the same partitions.
    pub group: Option<Box<str>>,
    /// Partitions whose first record must state this generation: see [`Start::unbegun`].
    pub start: Start,
    /// Where agents find the feed, as `tcp://host:port`.
    pub feeds: Vec<Box<str>>,
    /// How often topics without statements publish their watermarks.
    pub heartbeat: Span,
    /// The topics that have subscribers: only these do.
    pub subscribed: Subscribed,
    /// Whether the limits file is pushed when it differs.
    pub follow_file: bool,
    /// When snapshots are taken, if they are.
    pub snapshots: Option<Policy>,
    /// How many statements, and how many totals, of one partition may wait for the log before nothing more of it is
    /// ruled: [`WAITING_MAX`](super::recordings::WAITING_MAX), except in simulations that are to reach the bound.
    pub waiting_max: usize,
}

/// The state in which the log was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The log's generation.
    pub generation: u32,
    /// Partitions that have no record of this generation yet. The first record that is appended to each must state
    /// the generation.
    pub unbegun: Vec<(Stream, u32)>,
    /// Snapshots by partition, newest first.
    pub snapshots: BTreeMap<u32, Vec<Chunks>>,
}
