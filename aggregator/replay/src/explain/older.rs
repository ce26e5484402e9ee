//! What is older than the snapshot from which a replay begins.
//!
//! ```text
//! denial stated in record 37     snapshot up to 90: in force     question about an instant after it
//!   the log has record 37        it is replayed from its beginning
//!   records up to 50 are gone    it is replayed from the snapshot, which knows the denial, not what led to it; so does
//!                                a question about the denial's code
//! ```
//!
//! Knows nothing of what an explanation says beside this. What stays true: a denial that was in force at the snapshot
//! is found, and the explanation says what is not known of it.

use std::sync::Arc;

use tollgate_engine::engine::Engine;
use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::Code;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Scope, Statement, StatementKind};

use super::follow::FollowUntil;
use super::history::{denial_of, key};
use super::view::WindowView;
use super::{AskedPair, Begun, ExplainError, replay_from};
use crate::range::Utc;
use crate::replay::ReplayError;
use crate::source::Source;

/// The denials in force at the beginning of a replay that the question may be about; of one domain that of its own
/// comes before those of its groups, and a ban before a full scope.
pub(super) fn denials(engine: &Engine, asked: &AskedPair) -> Vec<Statement> {
    let all = all_denials(engine).filter(|(resource, _)| **resource == *asked.resource);
    let all = all.map(|(_, statement)| statement);
    all.filter(|statement| may_be_asked(statement, asked))
        .collect()
}

/// All denials in force, with their resources.
fn all_denials(engine: &Engine) -> impl Iterator<Item = (Arc<str>, Statement)> + '_ {
    let live = engine.live_denials().map(|live| {
        let statement = Statement {
            scope: live.scope(),
            position: live.position,
            kind: StatementKind::Denied(live.denial),
        };
        (Arc::clone(&live.resource), statement)
    });
    let scopes = engine.denied_scopes();
    live.chain(scopes.map(|(resource, statement)| (Arc::clone(resource), statement)))
}

/// Why there is no answer about a code whose record is not in the log.
pub(super) const NOT_THERE: &str = "the log has no record there, or does not have it any more, and its oldest snapshot \
                                    has no denial with this code in force; a question about the resource and domain \
                                    may find what denied them";

/// The statement of a code whose record is gone, with its resource: a denial that was in force at the oldest snapshot
/// from which the partition can be replayed. A denial that is in force still is among them.
pub(super) fn stated_by(
    source: &dyn Source,
    code: Code,
    book: &Arc<LimitsBook>,
    keys: &Keyring,
) -> Result<Option<(Arc<str>, Statement)>, ReplayError> {
    let (replay, _) = match replay_from((source, code.partition), keys, book, None) {
        Err(ReplayError::Gone { .. }) => return Ok(None),
        begun => begun?,
    };
    let position = (code.position.offset, code.position.entry);
    Ok(all_denials(replay.engine()).find(|(_, statement)| key(statement) == position))
}

fn may_be_asked(statement: &Statement, asked: &AskedPair) -> bool {
    let at = match asked.until {
        FollowUntil::Position(position) => return key(statement) == position,
        FollowUntil::Instant(at) => at,
        FollowUntil::End => Timestamp::ZERO,
    };
    let is_of = match &statement.scope {
        Scope::Pair(domain) => Some(&**domain) == asked.domain.as_deref(),
        Scope::Group(_) | Scope::Resource => true,
    };
    is_of && denial_of(statement).is_some_and(|denial| at < denial.end)
}

/// Checks that a replay which begins at offset `next` reads what the question is about, or knows it from the snapshot.
pub(super) fn check_begin(
    asked: &AskedPair,
    (partition, next): (u32, u64),
    engine: &Engine,
    older: &[Statement],
) -> Result<(), ExplainError> {
    let (is_before, code) = match asked.until {
        FollowUntil::Position((offset, _)) => (offset < next && older.is_empty(), asked.code),
        FollowUntil::Instant(at) => {
            let begins = engine.log_time().filter(|_| 0 < next);
            (begins.is_some_and(|begins| at < begins), None)
        }
        FollowUntil::End => (false, None),
    };
    if !is_before {
        return Ok(());
    }
    let code = code.map_or_else(String::new, |code| format!("{code}: "));
    Err(ExplainError::NotThere(format!(
        "{code}partition {partition} of the log lacks its beginning, and can be read only from its oldest snapshot on, \
         which ends at offset {}: what was ruled before cannot be explained",
        next.saturating_sub(1)
    )))
}

/// What a window lacks because the replay began at a snapshot, whose log time is `begins`.
pub(super) fn unnamed_of(window: &WindowView, begins: Timestamp) -> Option<String> {
    let counted = window.hits.saturating_add(window.unnamed);
    (0 < window.unnamed).then(|| {
        format!(
            "{} of the {counted} hits that it counts are not named: the log lacks its beginning, and was read from the \
             snapshot of {} on",
            window.unnamed,
            Utc(begins)
        )
    })
}

/// Log time at the snapshot at which a replay begins; `None`: it begins with the log.
pub(super) fn begins_of(begun: &Begun) -> Option<Timestamp> {
    begun.replay.engine().log_time().filter(|_| 0 < begun.next)
}

/// What is not known where no denial was found in a log that was read from the snapshot of `begins` on.
pub(super) fn unread_of(begins: Timestamp) -> String {
    format!(
        "the log lacks its beginning, and was read from the snapshot of {} on: denials that were over by then are not \
         known",
        Utc(begins)
    )
}

/// What is not known of a denial that was in force at the snapshot of `before`.
pub(super) fn unknown_of(before: Timestamp) -> String {
    format!(
        "the log lacks its beginning, and was read from the snapshot of {} on: what led to this denial, which is older, \
         is not known, nor which calls were refused under it before",
        Utc(before)
    )
}
