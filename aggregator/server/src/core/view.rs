//! What can be seen of the core from outside: questions, and answers in the form in which they are
//! shown. Fields are only ever added. Knows nothing of HTTP.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use tollgate_engine::engine::{BucketView, CandidateCounts, Count};
use tollgate_limits::Limits;
use tollgate_limits::versions::text::Text;
use tollgate_shared::hex::hex;
use tollgate_shared::place::{Code, LogId};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement};

use super::amendments::{AmendmentRefused, AmendmentView, Proposal};
use super::candidates::CandidatesView;
use super::counters::Counters;
use super::holds::{HoldFilter, HoldsView};
use super::live::At;
use super::resources::ByResource;
use super::usage::{TopFilter, TopView};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Is everything ruled that can be?
    Readiness,
    /// Which limits are in force?
    Limits,
    /// What is denied?
    Denials(DenialFilter),
    /// How does a pair stand?
    Pair {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
    },
    /// Who holds what?
    Holds(HoldFilter),
    /// Who uses most?
    Top(TopFilter),
    /// What would candidates have done?
    Candidates,
    /// What is the state of every partition?
    Digests,
    /// An operator asks for an amendment; answered once the log has it.
    Amend(Box<Proposal>),
    /// What was counted?
    Counters,
}

/// Which denials are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenialFilter {
    /// Of this resource.
    pub resource: Option<String>,
    /// Of this domain.
    pub domain: Option<String>,
    /// Behind this one, in the order in which they are shown.
    pub after: Option<DenialsCursor>,
    /// At most so many.
    pub limit: usize,
    /// Beyond those at most so many are counted.
    pub counted_max: usize,
}

/// Where in the order of all denials one stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialsCursor {
    /// Its resource.
    pub resource: Box<str>,
    /// Its partition and scope.
    pub at: At,
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To [`Query::Readiness`].
    Readiness(Readiness),
    /// To [`Query::Limits`].
    Limits(LimitsView),
    /// To [`Query::Denials`].
    Denials(DenialsView),
    /// To [`Query::Pair`].
    Pair(Box<PairView>),
    /// To [`Query::Holds`].
    Holds(HoldsView),
    /// To [`Query::Top`].
    Top(TopView),
    /// To [`Query::Candidates`].
    Candidates(CandidatesView),
    /// To [`Query::Digests`].
    Digests(DigestsView),
    /// To [`Query::Amend`].
    Amended(Result<AmendmentView, AmendmentRefused>),
    /// To [`Query::Counters`].
    Counters(Box<Counted>),
}

/// Everything that is counted or measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// What is counted.
    pub counters: Counters,
    /// What is measured.
    pub gauges: Gauges,
    /// Agents whose clocks are wrong, or were.
    pub clocks: Vec<ClockView>,
    /// What candidates would have done, by resource.
    pub candidates: Vec<(Box<str>, CandidateCounts)>,
    /// What was ruled, by resource.
    pub resources: Vec<(Box<str>, ByResource)>,
}

/// By how much an agent's stamps are moved, because its clock is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockView {
    /// The agent's name.
    pub agent: String,
    /// Microseconds that are added to its stamps; 0 once they are right again.
    pub moved_us: i64,
}

/// Whether everything is ruled that can be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// The form's name.
    pub schema: &'static str,
    /// Yes or no.
    pub ready: bool,
    /// What is missing; empty where nothing is.
    pub why: Vec<String>,
}

/// The limits in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitsView {
    /// The form's name.
    pub schema: &'static str,
    /// The version; 0: none.
    pub version: u64,
    /// BLAKE3 of the text, in hexadecimal; null where there is none.
    pub digest: Option<TextDigest>,
    /// The document as it was pushed.
    pub text: Option<Text>,
    /// How many domains have limits of their own beside the document.
    pub rows: u64,
    /// The document as it rules, with those domains.
    pub normalised: Option<Normalised>,
    /// Whether the limits file differs from the version in force and is not followed.
    pub file_differs: bool,
    /// Switches of namespaces that are turned over what the document says.
    pub switches: Vec<SwitchView>,
}

/// The digest of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextDigest(pub Text);

impl Serialize for TextDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0.digest()))
    }
}

/// A document as it rules, written down when it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normalised(pub Arc<Limits>);

impl Serialize for Normalised {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.normalised_text())
    }
}

/// Switches of a namespace that are turned over what the document says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchView {
    /// The namespace; `*`: all that have none of their own.
    pub namespace: String,
    /// In place of `ignore_configured`; null: as the document says.
    pub ignore_configured: Option<bool>,
    /// In place of `allow_unconfigured`; null: as the document says.
    pub allow_unconfigured: Option<bool>,
}

/// What is denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DenialsView {
    /// The form's name.
    pub schema: &'static str,
    /// The denials, by resource, partition and scope.
    pub denials: Vec<DenialView>,
    /// How many more there are. Where there are more than 10,000, it is how many there are in all, less those
    /// that are shown; some of them may have just ended.
    pub omitted: usize,
    /// The last that is shown, where there are more: the next page begins behind it.
    pub next: Option<DenialsCursor>,
    /// Whether there are more than are shown and were counted.
    #[serde(skip)]
    pub more: bool,
    /// The last that is shown or was counted.
    #[serde(skip)]
    pub upto: Option<DenialsCursor>,
    /// How many are kept of what was asked for, wherever a page begins; some may have just ended.
    #[serde(skip)]
    pub kept: usize,
    /// Partitions that could not be asked: they are not ruled at the moment.
    pub partitions_missing: Vec<u32>,
}

/// Written down where it is shown, and not where it is ruled.
fn as_text<S: Serializer>(
    value: &impl std::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// One denial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DenialView {
    /// The resource.
    #[serde(serialize_with = "as_text")]
    pub resource: Arc<str>,
    /// `pair`, `resource` or `group`.
    pub scope: &'static str,
    /// The domain; null where a group or all of the resource is denied.
    pub domain: Option<Box<str>>,
    /// The group; null where something else is denied.
    pub group: Option<Box<str>>,
    /// Which limit closed: `tier`, `hard`, `global`, `inaccessible`, ….
    #[serde(serialize_with = "as_text")]
    pub cause: Cause,
    /// The limit that closed.
    pub limit: u64,
    /// Its window.
    pub window_us: u64,
    /// When it ends in engine time; null: never.
    pub end_us: Option<u64>,
    /// How long it still has; null: for ever.
    pub remaining_us: Option<u64>,
    /// The code by which its cause is found.
    #[serde(serialize_with = "as_text")]
    pub code: Code,
    /// The partition.
    pub partition: u32,
    /// The limits version that ruled.
    pub version: u64,
}

/// How a pair stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairView {
    /// The form's name.
    pub schema: &'static str,
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The partition that rules it.
    pub partition: u32,
    /// Whether its resource has limits on rates.
    pub configured: bool,
    /// Whether the engine knows it: it was hit not long ago.
    pub known: bool,
    /// The limits version in force in its partition; 0: none.
    pub version: u64,
    /// Its state, where it is known.
    pub state: Option<PairState>,
    /// What is denied of it.
    pub denial: Option<DenialView>,
    /// Its partition, where that could not be asked: it is not ruled at the moment.
    pub partitions_missing: Vec<u32>,
}

/// The state of a pair at the log's time, which ticks carry on, or at its newest hit where that is later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairState {
    /// Its own time: that of its newest hit.
    pub time_us: u64,
    /// The instant at which everything below is counted.
    pub as_of_us: u64,
    /// The current tier, from 1; 0: none.
    pub tier: u64,
    /// That tier's limit.
    pub tier_limit: u64,
    /// Hits in that tier's window.
    pub tier_hits: u64,
    /// How many more that window and the hard limit leave room for.
    pub remaining: u64,
    /// Hits of the last second, where there is a hard limit.
    pub last_second: u64,
    /// The hard limit, hits a second; null: none.
    pub hard: Option<u64>,
    /// The hard limit, each window and each quota, in the order of asking.
    pub constraints: Vec<ConstraintState>,
    /// Its token bucket; null: none.
    pub bucket: Option<BucketLeft>,
}

/// What counts in a window or a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConstraintState {
    /// Which one.
    pub name: String,
    /// Its limit.
    pub limit: u64,
    /// Over how long it counts.
    pub span_us: u64,
    /// What counts, debt included.
    pub counted: u64,
}

impl ConstraintState {
    /// As the engine counts it.
    pub fn of(count: &Count) -> Self {
        Self {
            name: count.of.name().into_owned(),
            limit: count.limit,
            span_us: count.span.as_micros(),
            counted: count.counted,
        }
    }
}

impl BucketLeft {
    /// As the engine has it; parts of a copy are left out.
    pub fn of(view: &BucketView) -> Self {
        Self {
            level: view.level.div_euclid(view.bucket.copy_units().max(1)),
            burst: view.bucket.burst,
        }
    }
}

/// What is left in a token bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BucketLeft {
    /// Whole copies in it; below zero: debt.
    pub level: i64,
    /// Copies that it holds when it is full.
    pub burst: u64,
}

/// The state of every partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DigestsView {
    /// The form's name.
    pub schema: &'static str,
    /// The limits version in force at the end of the limits stream.
    pub limits_version: u64,
    /// Those that this process rules.
    pub partitions: Vec<DigestView>,
}

/// The state of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DigestView {
    /// The partition.
    pub partition: u32,
    /// `restoring`, `catching_up`, `waiting`, `recording`, `ruling` or `stopped`. While it is restoring,
    /// its digest says nothing of the log yet.
    pub stage: &'static str,
    /// Why, where it is stopped or waiting.
    pub why: Option<String>,
    /// Its log's generation.
    pub generation: u32,
    /// Its log's random part, in hexadecimal.
    pub log_random: String,
    /// All records below this offset have been ruled.
    pub offset: u64,
    /// The append time of the last of them.
    pub appended_us: u64,
    /// The limits version in force in it.
    pub version: u64,
    /// The digest of its state, in hexadecimal.
    pub digest: String,
}

/// What is, rather than what was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Partitions of the log.
    pub partitions: u64,
    /// Those of them that this process rules, or is about to.
    pub partitions_ours: u64,
    /// Partitions that are ruled and announced.
    pub partitions_ready: u64,
    /// Partitions that stopped with an error.
    pub partitions_stopped: u64,
    /// Pairs that engines know.
    pub pairs: u64,
    /// Statements in force.
    pub live: u64,
    /// Holds and staged transfers, those of gone agents included.
    pub holds: u64,
    /// Copies that are held or staged.
    pub copies: u64,
    /// Agents' epochs that beat, by partition.
    pub agents_beating: u64,
    /// Agents' epochs that are gone and not forgotten, by partition.
    pub agents_gone: u64,
    /// Totals that the log may not have yet.
    pub totals_waiting: u64,
    /// Statements that the `denials` stream may not have yet.
    pub denials_waiting: u64,
    /// Bans and pardons in force, by partition.
    pub amended: u64,
    /// Namespaces whose switches are turned over what the document says.
    pub switches: u64,
    /// The limits version in force.
    pub limits_version: u64,
    /// Partitions that are ruled by an older version than the newest.
    pub partitions_behind: u64,
    /// 1 where the limits file differs from it and is not followed.
    pub limits_file_differs: u64,
    /// 1 where the limits file could not be read, or has faults.
    pub limits_file_bad: u64,
    /// 1 where the log can be reached.
    pub log_up: u64,
    /// By how much the last ruled record of a partition lies before the wall clock: the greatest of ours.
    pub log_lag_us: u64,
    /// How old the newest snapshot of a partition is that has ruled hits since: the greatest of ours; 0 where none
    /// are taken.
    pub snapshot_age_us: u64,
    /// How long it took to save the last one of a partition: the greatest of ours.
    pub snapshot_took_us: u64,
}

impl DenialView {
    /// A denial as it is shown. `log_now` is the log's time in its partition.
    pub fn new(
        resource: Arc<str>,
        partition: u32,
        statement: &Statement,
        denial: &Denial,
        log_now: Timestamp,
    ) -> Self {
        let (scope, domain, group) = match &statement.scope {
            Scope::Pair(domain) => ("pair", Some(domain.clone()), None),
            Scope::Resource => ("resource", None, None),
            Scope::Group(group) => ("group", None, Some(group.clone())),
        };
        let ends = denial.end < Timestamp::MAX;
        let code = Code {
            partition,
            place: statement.place,
        };
        Self {
            resource,
            scope,
            domain,
            group,
            cause: denial.cause,
            limit: denial.limit,
            window_us: denial.window.as_micros(),
            end_us: ends.then_some(denial.end.as_micros()),
            remaining_us: ends.then(|| denial.end.since(log_now).as_micros()),
            code,
            partition,
            version: denial.version,
        }
    }
}

/// A log's random part, as it is shown.
pub fn random_hex(log: LogId) -> String {
    format!("{:016x}", log.random)
}
