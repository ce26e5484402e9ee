//! What the model says of a pair: what closes it, until when, and what counts in it.
//!
//! Knows nothing of rules. What stays true: ends are ordered, and never is the last of them.

/// When something is open for one more copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is open.
    Now,
    /// At this instant and not before, in microseconds since the epoch.
    At(u64),
    /// Not as long as nobody changes its limits.
    Never,
}

/// When a denial ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// At this instant, in microseconds since the epoch: at it, the scope is open.
    At(u64),
    /// Not as long as nobody changes its limits.
    Never,
}

impl End {
    /// Whether a denial with this end is still in force at `now_us`.
    pub fn is_after(self, now_us: u64) -> bool {
        End::At(now_us) < self
    }
}

/// What has no room, in the order of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The domain's copies a second.
    Hard,
    /// All domains' copies a second.
    Global,
    /// A window, by its index.
    Window(usize),
    /// A quota, by its index.
    Quota(usize),
    /// The bucket.
    Bucket,
    /// The tiers; the number is the current tier's, 0 with none.
    Tier(usize),
    /// An operator.
    Banned,
}

/// What counts, constraint by constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// In the hard limit, if there is one.
    pub hard: Option<u64>,
    /// In each window.
    pub windows: Vec<u64>,
    /// In each quota's period.
    pub quotas: Vec<u64>,
    /// The bucket's level in units, and how many units are a copy.
    pub bucket: Option<(i128, i128)>,
    /// The current tier; 0 for none.
    pub tier: usize,
    /// In the current tier's window.
    pub tier_hits: u64,
}
