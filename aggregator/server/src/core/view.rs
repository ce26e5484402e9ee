//! Queries to the core, and the answers in the form in which they are shown. Fields are only ever added. Knows
//! nothing of HTTP.

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

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Is the process ready?
    Readiness,
    /// Which limits are in force?
    Limits,
    /// Which denials are in force?
    Denials(DenialFilter),
    /// What is the state of a pair?
    Pair {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
    },
    /// Which holds are there?
    Holds(HoldFilter),
    /// Which pairs use the most?
    Top(TopFilter),
    /// What would candidates have done?
    Candidates,
    /// What is the state of every partition?
    Digests,
    /// An operator asks for an amendment; answered once the log has it.
    Amend(Box<Proposal>),
    /// What has been counted?
    Counters,
}

/// Which denials a query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenialFilter {
    /// Of this resource.
    pub resource: Option<String>,
    /// Of this domain.
    pub domain: Option<String>,
    /// After this one, in the order in which they are shown.
    pub after: Option<DenialsCursor>,
    /// At most this many.
    pub limit: usize,
    /// Of further denials, at most this many are counted.
    pub counted_max: usize,
}

/// A position in the order of all denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialsCursor {
    /// The denial's resource.
    pub resource: Box<str>,
    /// The denial's partition and scope.
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

/// All counters and gauges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The counters.
    pub counters: Counters,
    /// The gauges.
    pub gauges: Gauges,
    /// Agents whose clocks are wrong, or were.
    pub clocks: Vec<ClockView>,
    /// What candidates would have done, by resource.
    pub candidates: Vec<(Box<str>, CandidateCounts)>,
    /// Counts of rulings, by resource.
    pub resources: Vec<(Box<str>, ByResource)>,
}

/// By how much the engine moves an agent's time stamps, because the agent's clock is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockView {
    /// The agent's name.
    pub agent: String,
    /// Microseconds that are added to its stamps; 0 once they are right again.
    pub moved_us: i64,
}

/// Whether the process is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// The schema's name.
    pub schema: &'static str,
    /// Yes or no.
    pub ready: bool,
    /// What is missing; empty if nothing is.
    pub why: Vec<String>,
}

/// The limits in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitsView {
    /// The schema's name.
    pub schema: &'static str,
    /// The version; 0: none.
    pub version: u64,
    /// BLAKE3 of the text, in hexadecimal; null without a version.
    pub digest: Option<TextDigest>,
    /// The document as it was pushed.
    pub text: Option<Text>,
    /// How many domains have limits of their own beside the document.
    pub rows: u64,
    /// The normalised document, including those domains.
    pub normalised: Option<Normalised>,
    /// Whether the limits file differs from the version in force and is not followed.
    pub file_differs: bool,
    /// Switches of namespaces that override the document.
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

/// A document in its normalised form, which is written only when it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normalised(pub Arc<Limits>);

impl Serialize for Normalised {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.normalised_text())
    }
}

/// The switches of a namespace that override the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchView {
    /// The namespace; `*`: all that have no switches of their own.
    pub namespace: String,
    /// Overrides `ignore_configured`; null: as the document states.
    pub ignore_configured: Option<bool>,
    /// Overrides `allow_unconfigured`; null: as the document states.
    pub allow_unconfigured: Option<bool>,
}

/// The denials in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DenialsView {
    /// The schema's name.
    pub schema: &'static str,
    /// The denials, by resource, partition and scope.
    pub denials: Vec<DenialView>,
    /// How many more there are. If there are more than 10,000 more, this is the number of all denials minus those
    /// that are shown, of which some may have just ended.
    pub omitted: usize,
    /// The last one that is shown, if there are more: the next page begins after it.
    pub next: Option<DenialsCursor>,
    /// Whether there are more than were shown and counted.
    #[serde(skip)]
    pub more: bool,
    /// The last one that was shown or counted.
    #[serde(skip)]
    pub upto: Option<DenialsCursor>,
    /// How many denials match the query's resource, wherever a page begins; some may have just ended.
    #[serde(skip)]
    pub kept: usize,
    /// Partitions that could not answer: this process does not rule them at the moment.
    pub partitions_missing: Vec<u32>,
}

/// Converts to text when the answer is shown, not when it is made.
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
    /// The domain; null if a group or the whole resource is denied.
    pub domain: Option<Box<str>>,
    /// The group; null if the scope is not a group.
    pub group: Option<Box<str>>,
    /// The limit that is exceeded: `tier`, `hard`, `global`, `inaccessible`, ….
    #[serde(serialize_with = "as_text")]
    pub cause: Cause,
    /// The value of that limit.
    pub limit: u64,
    /// Its window, in microseconds.
    pub window_us: u64,
    /// When it ends by log time; null: never.
    pub end_us: Option<u64>,
    /// The remaining time; null: without end.
    pub remaining_us: Option<u64>,
    /// The denial's code: the log position of its cause.
    #[serde(serialize_with = "as_text")]
    pub code: Code,
    /// The partition.
    pub partition: u32,
    /// The limits version by which it was ruled.
    pub version: u64,
}

/// The state of a pair, as an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairView {
    /// The schema's name.
    pub schema: &'static str,
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The partition that rules it.
    pub partition: u32,
    /// Whether its resource has limits on rates.
    pub configured: bool,
    /// Whether the engine knows the pair: it was hit not long ago.
    pub known: bool,
    /// The limits version in force in its partition; 0: none.
    pub version: u64,
    /// Its state, if it is known.
    pub state: Option<PairState>,
    /// The denial in force for it, if any.
    pub denial: Option<DenialView>,
    /// Its partition, if that could not answer: this process does not rule it at the moment.
    pub partitions_missing: Vec<u32>,
}

/// The state of a pair at log time, which ticks advance, or at its newest hit if that is later.
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
    /// How many more hits that window and the hard limit have room for.
    pub remaining: u64,
    /// Hits of the last second, where there is a hard limit.
    pub last_second: u64,
    /// The hard limit, hits a second; null: none.
    pub hard: Option<u64>,
    /// The hard limit, each window and each quota, in the order in which the engine checks them.
    pub constraints: Vec<ConstraintState>,
    /// Its token bucket; null: none.
    pub bucket: Option<BucketLeft>,
}

/// The usage under a window or a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConstraintState {
    /// The constraint's name.
    pub name: String,
    /// Its limit.
    pub limit: u64,
    /// The span over which it counts, in microseconds.
    pub span_us: u64,
    /// The copies that count, debt included.
    pub counted: u64,
}

impl ConstraintState {
    /// Converts the engine's count.
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
    /// Converts the engine's view; fractions of a copy are left out.
    pub fn of(view: &BucketView) -> Self {
        Self {
            level: view.level.div_euclid(view.bucket.copy_units().max(1)),
            burst: view.bucket.burst,
        }
    }
}

/// The content of a token bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BucketLeft {
    /// Whole copies in it; below zero: debt.
    pub level: i64,
    /// The copies in a full bucket.
    pub burst: u64,
}

/// The states of all partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DigestsView {
    /// The schema's name.
    pub schema: &'static str,
    /// The limits version in force at the end of the limits stream.
    pub limits_version: u64,
    /// The partitions that this process rules.
    pub partitions: Vec<DigestView>,
}

/// The state of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DigestView {
    /// The partition.
    pub partition: u32,
    /// `restoring`, `headless`, `catching_up`, `waiting`, `recording`, `ruling_again`, `ruling` or
    /// `stopped`. While it is `restoring`, its digest is not yet verified against the log.
    pub stage: &'static str,
    /// The reason, if it is stopped or waiting.
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

/// Current values, as opposed to counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Partitions of the log.
    pub partitions: u64,
    /// Partitions that this process rules, or is about to rule.
    pub partitions_ours: u64,
    /// Partitions that are ruled and announced.
    pub partitions_ready: u64,
    /// Partitions that stopped with an error.
    pub partitions_stopped: u64,
    /// Pairs that engines know.
    pub pairs: u64,
    /// Statements in force.
    pub live: u64,
    /// Holds and staged transfers, including holds of gone agents.
    pub holds: u64,
    /// Copies that are held or staged.
    pub copies: u64,
    /// Agents' epochs that send heartbeats, by partition.
    pub agents_beating: u64,
    /// Agents' epochs that are gone and not forgotten, by partition.
    pub agents_gone: u64,
    /// Totals that the log may not have yet.
    pub totals_waiting: u64,
    /// Statements whose decision records the stream `denials` may not have yet.
    pub denials_waiting: u64,
    /// Bans and pardons in force, by partition.
    pub amended: u64,
    /// Namespaces with switches that override the document.
    pub switches: u64,
    /// The limits version in force.
    pub limits_version: u64,
    /// Partitions that are ruled by an older version than the newest.
    pub partitions_behind: u64,
    /// 1 if the limits file differs from it and is not followed.
    pub limits_file_differs: u64,
    /// 1 if the limits file could not be read, or has faults.
    pub limits_file_bad: u64,
    /// 1 if the log can be reached.
    pub log_up: u64,
    /// How far the last ruled record of a partition is behind the wall clock: the greatest of own partitions.
    pub log_lag_us: u64,
    /// The age of the newest snapshot of a partition that has ruled hits since: the greatest of own partitions; 0
    /// where no snapshots are taken.
    pub snapshot_age_us: u64,
    /// How long saving the last snapshot of a partition took: the greatest of own partitions.
    pub snapshot_took_us: u64,
}

impl DenialView {
    /// A denial for an answer. `log_now` is the log's time in its partition.
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

/// A log's random part, in hexadecimal.
pub fn random_hex(log: LogId) -> String {
    format!("{:016x}", log.random)
}
