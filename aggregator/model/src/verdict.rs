//! The model's answers about a pair: the constraint that closes it, until when, and its counts.
//!
//! Knows nothing of rules. What stays true: ends are ordered, and `Never` is the last of them.

/// When a scope is open for one more copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is open.
    Now,
    /// At this instant and not before, in microseconds since the epoch.
    At(u64),
    /// Not until its limits change.
    Never,
}

/// When a denial ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// At this instant, in microseconds since the epoch: at the instant itself the scope is open.
    At(u64),
    /// Not until its limits change.
    Never,
}

impl End {
    /// Whether a denial with this end is still in force at `now_us`.
    pub fn is_after(self, now_us: u64) -> bool {
        End::At(now_us) < self
    }
}

/// The constraint without room, in the order of the checks.
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
    /// The tiers; the number is the current tier's, 0 if no tier is current.
    Tier(usize),
    /// An operator's ban.
    Banned,
}

/// The counts, constraint by constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// In the hard limit, if there is one.
    pub hard: Option<u64>,
    /// In each window.
    pub windows: Vec<u64>,
    /// In each quota's period.
    pub quotas: Vec<u64>,
    /// The bucket's level in units, and the number of units of a copy.
    pub bucket: Option<(i128, i128)>,
    /// The current tier; 0 if no tier is current.
    pub tier: usize,
    /// In the current tier's window.
    pub tier_hits: u64,
}
