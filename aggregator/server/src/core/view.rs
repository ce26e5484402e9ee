//! Queries to the core, and the answers in the form in which they are shown. Fields are only ever added. Knows
//! nothing of HTTP.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use tollgate_api::amend::AmendmentView;
use tollgate_api::candidates::CandidatesView;
use tollgate_api::denials::DenialView;
use tollgate_api::limits::LimitsView;
use tollgate_api::pairs::PairView;
use tollgate_api::state::{DigestsView, Readiness};
use tollgate_engine::engine::CandidateCounts;
use tollgate_limits::Limits;
use tollgate_limits::versions::BanFilter;
use tollgate_limits::versions::text::Text;
use tollgate_shared::hex::hex;
use tollgate_shared::log_position::{Code, LogId};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Denial, Scope, Statement};

use super::amendments::{AmendmentRefused, Proposal};
use super::bans::BansPage;
use super::counters::Counters;
use super::holds::{HoldFilter, HoldsPage};
use super::live::At;
use super::resources::ByResource;
use super::usage::{TopFilter, TopPart};

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Is the process ready?
    Readiness,
    /// Which limits are in force?
    Limits,
    /// Which denials are in force?
    Denials(DenialFilter),
    /// Which bans are in force?
    Bans {
        /// Those that are asked for.
        filter: BanFilter,
        /// At most this many.
        limit: usize,
    },
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
    Limits(LimitsInForce),
    /// To [`Query::Denials`].
    Denials(DenialsPart),
    /// To [`Query::Bans`]; `None`: the acts in the log have not all been read yet.
    Bans(Option<BansPage>),
    /// To [`Query::Pair`].
    Pair(Box<PairView>),
    /// To [`Query::Holds`].
    Holds(HoldsPage),
    /// To [`Query::Top`].
    Top(TopPart),
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

/// The limits in force, whose texts are written only when the answer is.
pub type LimitsInForce = LimitsView<Text, TextDigest, Normalised>;

/// A page of denials, whose cursor is written only when the answer is.
pub type DenialsPage = tollgate_api::denials::DenialsView<DenialView, DenialsCursor>;

/// A part of a page of denials: as many as the core looks at in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialsPart {
    /// The page so far.
    pub page: DenialsPage,
    /// Whether there are more than are shown and were counted.
    pub more: bool,
    /// The last that is shown or was counted.
    pub upto: Option<DenialsCursor>,
    /// How many denials of the queried resource there are, wherever the page begins; some may have just ended.
    pub kept: usize,
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
    pub agents_present: u64,
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
    /// How far it is ahead of the wall clock: the greatest of own partitions.
    pub log_ahead_us: u64,
    /// The age of the newest snapshot of a partition that has ruled hits since: the greatest of own partitions; 0
    /// where no snapshots are taken.
    pub snapshot_age_us: u64,
    /// How long saving the last snapshot of a partition took: the greatest of own partitions.
    pub snapshot_took_us: u64,
}

/// A denial for an answer. `log_now` is the log's time in its partition.
pub fn denial_view(
    resource: Arc<str>,
    partition: u32,
    statement: &Statement,
    denial: &Denial,
    log_now: Timestamp,
) -> DenialView {
    let (scope, domain, group) = match &statement.scope {
        Scope::Pair(domain) => ("pair", Some((**domain).into()), None),
        Scope::Resource => ("resource", None, None),
        Scope::Group(group) => ("group", None, Some((**group).into())),
    };
    let ends = denial.end < Timestamp::MAX;
    let code = Code {
        partition,
        position: statement.position,
    };
    DenialView {
        resource: resource.into(),
        scope: scope.into(),
        domain,
        group,
        cause: denial.cause.into(),
        limit: denial.limit,
        window_us: denial.window.as_micros(),
        end_us: ends.then_some(denial.end.as_micros()),
        remaining_us: ends.then(|| denial.end.since(log_now).as_micros()),
        code: code.into(),
        partition,
        version: denial.version,
    }
}

/// A log's random part, in hexadecimal.
pub fn random_hex(log: LogId) -> String {
    format!("{:016x}", log.random)
}
