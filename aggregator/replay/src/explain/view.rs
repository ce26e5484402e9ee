//! An explanation, for programs. Fields are only ever added; instants are microseconds since the epoch.

use serde::Serialize;

/// An explanation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explanation {
    /// The schema of this object.
    pub schema: &'static str,
    /// The log.
    pub log: String,
    /// Ids of missing record keys: the tags of aggregators' records under them were not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked_keys: Vec<String>,
    /// Whether a denial was in force.
    pub denied: bool,
    /// Why or why not, in a word: `tier`, `hard`, `global`, `inaccessible`, `unconfigured`, `full`; or
    /// `within_delay`, `blind`, `late`, `room`, `excess`, `too-many`, `no_limit`, `shadow`, `ignored`, `duplicate`,
    /// `too_old`, `no_call`.
    pub reason: &'static str,
    /// The reason in sentences.
    pub sentences: Vec<String>,
    /// The resource.
    pub resource: String,
    /// The domain; null: everybody.
    pub domain: Option<String>,
    /// The instant that the question is about.
    pub at_us: Option<u64>,
    /// The partition that rules the pair.
    pub partition: u32,
    /// The code of the statement.
    pub code: Option<String>,
    /// The denial.
    pub denial: Option<DenialView>,
    /// All statements of this denial, each with the end that it states.
    pub statements: Vec<StatementView>,
    /// The limits version in force.
    pub version: Option<VersionView>,
    /// The hits that filled the window; for a quota or a bucket the newest hits that used it up.
    pub window: Option<WindowView>,
    /// If copies are limited: the agents that held copies of the scope at that moment, most first.
    pub holders: Vec<HolderView>,
    /// If copies are limited: the other denials that have this code, because one log position caused them all; those
    /// of groups first, that of all domains last.
    pub same_code: Vec<ScopeDenialView>,
    /// The tiers at that moment, lowest first.
    pub tiers: Vec<TierView>,
    /// The hard limit, windows, quotas and bucket at that moment, in the order in which the rules check them.
    pub constraints: Vec<ConstraintView>,
    /// The call that the question is about, if the log has it.
    pub call: Option<CallView>,
    /// Hits that were let through while the denial was in force.
    pub excess: Tally,
    /// Calls that agents refused under this code. Those under the denial's other codes are in `statements`.
    pub refused: Tally,
    /// A drawing of tiers and other constraints over that time.
    pub picture: Option<String>,
}

/// The denial.
#[derive(Clone, Debug, Serialize)]
pub struct DenialView {
    /// The limit that denied, as statements name it: `tier 2`.
    pub cause: String,
    /// The tier; null if another limit denied.
    pub tier: Option<u8>,
    /// The limit.
    pub limit: u64,
    /// Its window.
    pub window_us: u64,
    /// The instant of the hit that caused the denial; of a denial that is older than what was read, that of the
    /// snapshot from which the log was read.
    pub since_us: u64,
    /// When the log appended that hit; else the same.
    pub appended_us: u64,
    /// When the statement was recorded as announced; null: it is not recorded.
    pub recorded_us: Option<u64>,
    /// When the denial ends by itself; null: never.
    pub until_us: Option<u64>,
}

/// A denial of another scope, under the same code.
#[derive(Clone, Debug, Serialize)]
pub struct ScopeDenialView {
    /// The scope: `pair`, `group` or `resource`.
    pub scope: &'static str,
    /// The domain, if a pair was denied.
    pub domain: Option<Box<str>>,
    /// The group, if a group was denied.
    pub group: Option<Box<str>>,
    /// Its denial.
    pub denial: DenialView,
    /// The agents that held copies of the scope at that moment, most first.
    pub holders: Vec<HolderView>,
}

/// A statement.
#[derive(Clone, Debug, Serialize)]
pub struct StatementView {
    /// Its code; null: it is not recorded, and a statement that no call caused has no other sign of its log position.
    pub code: Option<String>,
    /// The pair's time when it was stated.
    pub at_us: u64,
    /// The end of the denial; null: open again, or it never ends.
    pub until_us: Option<u64>,
    /// `denied` or `open`.
    pub says: &'static str,
    /// The limit that denied.
    pub cause: Option<String>,
    /// Calls that agents refused under it.
    pub refused_calls: u64,
}

/// A limits version.
#[derive(Clone, Debug, Serialize)]
pub struct VersionView {
    /// Its number.
    pub number: u64,
    /// BLAKE3 of its text.
    pub digest: String,
    /// The operator's act, with name, time and reason, if the version is an amendment that concerns the pair: some
    /// callers may see the explanations of this resource, and nothing else.
    pub amendment: Option<String>,
    /// The parts of its text about the resource.
    pub excerpt: String,
}

/// The hits that filled a window.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowView {
    /// The instant of the first hit.
    pub from_us: u64,
    /// The instant of the last hit.
    pub to_us: u64,
    /// How many hits these are.
    pub hits: u64,
    /// How many more count, of which the log does not say whose they are: it lacks their records, or new limits took them
    /// over.
    pub unnamed: u64,
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
    /// The agent; null: the copies are staged, and belong to no agent until they are seized.
    pub agent: Option<String>,
    /// Copies.
    pub copies: u64,
    /// How many holds they are in.
    pub holds: u64,
    /// When the oldest of these holds was taken.
    pub oldest_us: u64,
}

impl HolderView {
    pub(super) fn add(&mut self, copies: u32) {
        self.copies += u64::from(copies);
        self.holds += 1;
    }
}

/// Hits in a step of time.
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
    /// Its name in denials: `hard`, `window:0`, `quota:0`, `bucket`.
    pub name: String,
    /// The span that it counts over, such as `1m` or `month`; null: a bucket.
    pub over: Option<String>,
    /// Its limit; for a bucket its burst.
    pub limit: u64,
    /// What counts in it, including debt; for a bucket what is used of its burst.
    pub counted: u64,
    /// For a bucket: the whole copies in it; negative if it is in debt.
    pub level: Option<i64>,
    /// Whether it had no room for one more.
    pub full: bool,
    /// When it has room for one more, if no hit comes; null: never.
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
    /// How long it stays active.
    pub active_us: u64,
    /// How long it cools down.
    pub cooldown_us: u64,
    /// Whether it may be skipped while it cools down.
    pub skippable: bool,
    /// `inactive`, `active` or `cooling`.
    pub phase: &'static str,
    /// Hits in its window.
    pub hits: u64,
    /// When it was entered.
    pub entered_us: Option<u64>,
    /// The agent whose hit entered it; null if that was before the first record read.
    pub entered_by: Option<String>,
    /// The record of that hit: offset and entry.
    pub entered_at: Option<String>,
    /// When its active time ends.
    pub active_until_us: Option<u64>,
    /// When its cooldown ends.
    pub cooling_until_us: Option<u64>,
}

/// A call.
#[derive(Clone, Debug, Serialize)]
pub struct CallView {
    /// Its record: offset and entry.
    pub position: String,
    /// The agent.
    pub agent: String,
    /// The agent's stamp.
    pub stamp_us: u64,
    /// The instant at which it was ruled: the stamp, corrected if the agent's clock was wrong. `--at` means this one.
    pub at_us: u64,
    /// When the log appended it.
    pub appended_us: u64,
    /// How many hits it has.
    pub copies: u64,
    /// How many of them were granted.
    pub granted: u64,
    /// How many were excess.
    pub excess: u64,
    /// How many came too late to be granted or excess.
    pub late: u64,
}

/// A number of calls and hits, with their agents.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Refused calls, or entries that were let through.
    pub calls: u64,
    /// Hits.
    pub hits: u64,
    /// By agent, most first.
    pub by_agent: Vec<AgentView>,
}
