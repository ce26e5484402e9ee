//! What an explanation says, for programs. Fields are only ever added; instants are microseconds since
//! the epoch.

use serde::Serialize;

/// An explanation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explanation {
    /// The form of this object.
    pub schema: &'static str,
    /// The log.
    pub log: String,
    /// Ids of keys that were missing: the tags of aggregators' records under them were taken as good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked_keys: Vec<String>,
    /// Whether a denial was in force.
    pub denied: bool,
    /// Why or why not, in a word: `tier`, `hard`, `global`, `inaccessible`, `unconfigured`,
    /// `full`; or `within_delay`, `blind`, `late`, `room`, `no_limit`, `shadow`, `ignored`, `duplicate`, `too_old`,
    /// `no_call`.
    pub reason: &'static str,
    /// The same in sentences.
    pub sentences: Vec<String>,
    /// The resource.
    pub resource: String,
    /// The domain; null: everybody.
    pub domain: Option<String>,
    /// The instant that was asked about.
    pub at_us: Option<u64>,
    /// The partition that rules it.
    pub partition: u32,
    /// The code of the statement.
    pub code: Option<String>,
    /// The denial.
    pub denial: Option<DenialView>,
    /// Until when it was closed, as it was said again and again: all statements of this closure.
    pub statements: Vec<StatementView>,
    /// The limits version that ruled.
    pub version: Option<VersionView>,
    /// The hits that filled the window; of a quota or a bucket the newest that used it up.
    pub window: Option<WindowView>,
    /// Where copies are limited: who held copies of the scope at that moment, most first.
    pub holders: Vec<HolderView>,
    /// The tiers at that moment, lowest first.
    pub tiers: Vec<TierView>,
    /// The hard limit, windows, quotas and bucket at that moment, in the order of asking.
    pub constraints: Vec<ConstraintView>,
    /// The call that was asked about, where the log has it.
    pub call: Option<CallView>,
    /// Hits that were let through while the denial was in force.
    pub excess: Tally,
    /// Calls that agents refused while it was.
    pub refused: Tally,
    /// Tiers and other constraints over that time, drawn.
    pub picture: Option<String>,
}

/// The denial.
#[derive(Clone, Debug, Serialize)]
pub struct DenialView {
    /// Which limit closed, as statements name it: `tier 2`.
    pub cause: String,
    /// The tier; null where it is not a tier's.
    pub tier: Option<u8>,
    /// The limit.
    pub limit: u64,
    /// Its window.
    pub window_us: u64,
    /// The instant of the hit that closed it.
    pub since_us: u64,
    /// When the log took that hit.
    pub appended_us: u64,
    /// When the statement was recorded as announced; null: it is not recorded.
    pub recorded_us: Option<u64>,
    /// When it ends by itself; null: never.
    pub until_us: Option<u64>,
}

/// A statement.
#[derive(Clone, Debug, Serialize)]
pub struct StatementView {
    /// Its code.
    pub code: String,
    /// The pair's time at it.
    pub at_us: u64,
    /// Denied until then; null: open again, or never.
    pub until_us: Option<u64>,
    /// `denied` or `open`.
    pub says: &'static str,
    /// Which limit closed.
    pub cause: Option<String>,
}

/// A limits version.
#[derive(Clone, Debug, Serialize)]
pub struct VersionView {
    /// Its number.
    pub number: u64,
    /// BLAKE3 of its text.
    pub digest: String,
    /// What an operator did, with who, when and why, where the version is an amendment.
    pub amendment: Option<String>,
    /// What its text says of the resource.
    pub excerpt: String,
    /// All of its text.
    pub text: String,
}

/// The hits that filled a window.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowView {
    /// The instant of the first of them.
    pub from_us: u64,
    /// That of the last.
    pub to_us: u64,
    /// Hits that count in it.
    pub hits: u64,
    /// By agent, most first.
    pub by_agent: Vec<AgentView>,
    /// By time, in at most 12 equal steps, empty ones left out.
    pub by_time: Vec<TimeView>,
}

/// Hits of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentView {
    /// The agent.
    pub agent: String,
    /// Its hits.
    pub hits: u64,
    /// The first one.
    pub first_us: u64,
    /// The last one.
    pub last_us: u64,
}

/// Copies that an agent held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HolderView {
    /// The agent; null: staged, and nobody's until they are seized.
    pub agent: Option<String>,
    /// Copies.
    pub copies: u64,
    /// In so many holds.
    pub holds: u64,
    /// When the oldest of them was taken.
    pub oldest_us: u64,
}

impl HolderView {
    pub(super) fn add(&mut self, copies: u32) {
        self.copies += u64::from(copies);
        self.holds += 1;
    }
}

/// Hits of a step of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeView {
    /// Where the step begins.
    pub from_us: u64,
    /// Hits in it.
    pub hits: u64,
}

/// A constraint other than tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConstraintView {
    /// Which one, as denials name it: `hard`, `window:0`, `quota:0`, `bucket`.
    pub name: String,
    /// Over what it counts, as `1m`, `month`; null: a bucket.
    pub over: Option<String>,
    /// Its limit; of a bucket its burst.
    pub limit: u64,
    /// What counts in it, debt included; of a bucket what is used of its burst.
    pub counted: u64,
    /// Of a bucket: the whole copies in it, below 0 where it owes some.
    pub level: Option<i64>,
    /// Whether it had no room for one more.
    pub full: bool,
    /// When it has room for one more, if nothing comes; null: never.
    pub room_at_us: Option<u64>,
}

/// A tier.
#[derive(Clone, Debug, Serialize)]
pub struct TierView {
    /// Its number, from 1.
    pub tier: usize,
    /// Its limit.
    pub limit: u64,
    /// Its window.
    pub window_us: u64,
    /// How long it is active.
    pub active_us: u64,
    /// How long it cools down.
    pub cooldown_us: u64,
    /// Whether it may be skipped while it does.
    pub skippable: bool,
    /// `inactive`, `active` or `cooling`.
    pub phase: &'static str,
    /// Hits in its window.
    pub hits: u64,
    /// When it was entered.
    pub entered_us: Option<u64>,
    /// By whose hit; null where that lies before what was read.
    pub entered_by: Option<String>,
    /// The record of that hit: offset and entry.
    pub entered_at: Option<String>,
    /// Until when it is active.
    pub active_until_us: Option<u64>,
    /// Until when it cools down.
    pub cooling_until_us: Option<u64>,
}

/// A call.
#[derive(Clone, Debug, Serialize)]
pub struct CallView {
    /// Its record: offset and entry.
    pub place: String,
    /// The agent.
    pub agent: String,
    /// As the agent stamped it.
    pub stamp_us: u64,
    /// As it was ruled.
    pub at_us: u64,
    /// When the log took it.
    pub appended_us: u64,
    /// Its hits.
    pub copies: u64,
    /// Of those: granted, excess, late.
    pub granted: u64,
    /// Beyond the limits.
    pub excess: u64,
    /// Too late to say.
    pub late: u64,
}

/// How often, and by whom.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Calls, where they were refused; entries, where they were let through.
    pub calls: u64,
    /// Hits.
    pub hits: u64,
    /// By agent, most first.
    pub by_agent: Vec<AgentView>,
}
