//! Compares the engine's answer to a record, and its holds afterwards, with the model of copies.
//!
//! ```text
//! fate, verdicts in order, agents      the results of the record
//! holds, staged copies, each count     the state
//! the last statement of each scope     the denials
//! ```
//!
//! Engine and model share no type, so everything is converted into one form here. Not compared are log positions of
//! statements, except those of operations, and metrics. What stays true: comparing changes nothing.

use std::collections::BTreeMap;

use tollgate_engine::copies::{Copies, CopiesScope, HoldState, HoldView, Limiter, StagedView};
use tollgate_engine::engine::{AgentChange, AgentNews, Engine, Fate, Rulings, VerdictDue};
use tollgate_model::copies::{
    AgentFate, CopiesModel, CopiesOutcome, CopyScope, CopyStanding, DueVerdict, EndReason,
    HoldRefusal, HoldsModel, ModelHold, ModelStatus, RecordTurn, StagedCopies,
};
use tollgate_model::log::NotRuled;
use tollgate_shared::wire::holds::Op;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Cause, Scope, StatementKind};
use tollgate_shared::wire::verdict::{EndedBy, HoldReason, HoldStatus, Why};

use super::copy_limits::COPIES;
use super::documents::DOMAINS;
use super::held::Stated;

fn own_scope(scope: &Scope) -> CopyScope {
    match scope {
        Scope::Pair(name) => CopyScope::Domain(name.to_string()),
        Scope::Group(name) => CopyScope::Group(name.to_string()),
        Scope::Resource => CopyScope::Resource,
    }
}

/// Checks how the engine treated an agent's record of holds.
///
/// # Errors
///
/// If the engine treated it in another way.
pub(super) fn turn(
    record: &Record<'_>,
    unruled: Option<NotRuled>,
    outcome: &CopiesOutcome,
    rulings: &Rulings,
) -> Result<Option<Fate>, String> {
    let (sender, entries) = match record {
        Record::Holds(batch) => (&batch.sender, batch.ops_len()),
        Record::Heartbeat(heartbeat) => (&heartbeat.sender, heartbeat.parts_len()),
        _ => return Ok(None),
    };
    let expected = match (unruled, outcome.turn) {
        (Some(NotRuled::OlderThanWindow), _) => Fate::OlderThanWindow { entries },
        (Some(_), _) => Fate::Duplicate { entries },
        (None, RecordTurn::Applied) => Fate::Applied,
        (None, RecordTurn::Overtaken) => Fate::Overtaken { entries },
        (None, RecordTurn::EpochOver) => Fate::EpochOver { entries },
    };
    match rulings.fates == [expected] {
        true => Ok(Some(expected)),
        false => Err(format!(
            "sequence {} of {}, epoch {:x}: {:?}, the model: {expected:?}",
            sender.sequence, sender.agent, sender.epoch, rulings.fates
        )),
    }
}

/// Compares the changes in the life of agents.
///
/// # Errors
///
/// The engine's and the model's changes, if they differ.
pub(super) fn agents(outcome: &CopiesOutcome, rulings: &Rulings) -> Result<(), String> {
    let fate = |news: &AgentNews| match news.change {
        AgentChange::Gone { copies } => AgentFate::Gone(copies),
        AgentChange::Returned => AgentFate::Returned,
        AgentChange::Over { copies } => AgentFate::Over(copies),
        AgentChange::Twin => AgentFate::Twin,
    };
    let said = rulings.agents.iter();
    let said = said.map(|news| (&*news.agent, news.epoch, fate(news)));
    let expected = outcome.agents.iter();
    let expected = expected.map(|((name, epoch), fate)| (&**name, *epoch, *fate));
    match said.eq(expected) {
        true => Ok(()),
        false => Err(format!(
            "{:?}, the model: {:?}",
            rulings.agents, outcome.agents
        )),
    }
}

/// Compares the verdicts on agents' holds.
///
/// # Errors
///
/// The engine's and the model's verdicts, if they differ.
pub(super) fn verdicts(
    record: &Record<'_>,
    outcome: &CopiesOutcome,
    rulings: &Rulings,
) -> Result<(), String> {
    let ops: Vec<Op> = match record {
        Record::Holds(batch) => batch.ops().map(|op| op.action.op()).collect(),
        _ => Vec::new(),
    };
    let is_same = |(due, expected): (&VerdictDue, &DueVerdict)| {
        let op = ops.get(expected.entry as usize).copied();
        (&*due.agent, due.epoch) == (&*expected.process.0, expected.process.1)
            && *due.resource == *expected.resource
            && (ops.is_empty() || due.position.entry == expected.entry)
            && due.status.is_some() == expected.status.is_some()
            && due
                .status
                .as_ref()
                .and_then(|status| own_status(status, op))
                == expected.status
    };
    let (said, expected) = (&rulings.verdicts, &outcome.verdicts);
    if said.len() == expected.len() && said.iter().zip(expected).all(is_same) {
        return Ok(());
    }
    let differs = said.iter().zip(expected).position(|pair| !is_same(pair));
    let at = differs.unwrap_or(said.len().min(expected.len()));
    Err(format!(
        "{} verdicts, the model {}; number {at}: {:?}, the model: {:?}",
        said.len(),
        expected.len(),
        said.get(at),
        expected.get(at)
    ))
}

/// A status in the model's types. A refusal must name its operation: `op`.
fn own_status(status: &HoldStatus, op: Option<Op>) -> Option<ModelStatus> {
    let scope = status.scope.as_ref().map(own_scope);
    let seized = status.seized.as_ref();
    let counted = ModelStatus {
        excess: (u64::from(status.excess), scope),
        seized: seized.map(|of| (of.domain.to_string(), of.start.as_micros())),
        ..ModelStatus::of(status.number, u64::from(status.copies))
    };
    match status.reason {
        None => Some(counted),
        Some(HoldReason::Ended(by)) => Some(ModelStatus {
            ended: Some(match by {
                EndedBy::Age => EndReason::Age,
                EndedBy::Operator => EndReason::Operator,
                EndedBy::Earlier => EndReason::Earlier,
            }),
            ..counted
        }),
        Some(HoldReason::Refused(named, why)) => Some(ModelStatus {
            refused: Some(refusal(why).filter(|_| named == op)?),
            ..counted
        }),
    }
}

fn refusal(why: Why) -> Option<HoldRefusal> {
    Some(match why {
        Why::UnknownHold => HoldRefusal::UnknownHold,
        Why::TooManyCopies => HoldRefusal::TooManyCopies,
        Why::UnknownTransfer => HoldRefusal::UnknownTransfer,
        Why::TransferExists => HoldRefusal::TransferExists,
        Why::HoldExists => HoldRefusal::HoldExists,
        Why::EpochOver => HoldRefusal::EpochOver,
        Why::AtCapacity => HoldRefusal::AtCapacity,
        Why::Unconfigured => HoldRefusal::Unconfigured,
        // The resource belongs to another partition; in the simulation none does.
        _ => return None,
    })
}

/// Compares all holds, staged transfers and counts.
///
/// # Errors
///
/// If they differ.
pub(super) fn held(engine: &Engine, model: &CopiesModel) -> Result<(), String> {
    for (name, copies) in engine.copies() {
        let nothing = HoldsModel::default();
        let expected = model.resource(name).unwrap_or(&nothing);
        lists(copies, expected).map_err(|what| format!("{name}: {what}"))?;
        counts(copies, expected).map_err(|what| format!("{name}: {what}"))?;
    }
    let is_here = |name: &str| engine.copies().any(|(of, _)| **of == *name);
    match model.resources().find(|(name, _)| !is_here(name)) {
        Some((name, _)) => Err(format!("{name}: it is not there")),
        None => Ok(()),
    }
}

fn lists(copies: &Copies, model: &HoldsModel) -> Result<(), String> {
    let mut holds: Vec<&ModelHold> = model.holds.iter().collect();
    holds.sort_by_key(|of| (of.start_us, &of.process, of.number));
    let mut holds = holds.into_iter();
    for view in copies.oldest_first() {
        let expected = holds.next();
        if !expected.is_some_and(|expected| is_hold(copies, &view, expected)) {
            let excess = copies.excess_of(view.id);
            return Err(format!("{view:?} with {excess:?}, the model: {expected:?}"));
        }
    }
    if let Some(expected) = holds.next() {
        return Err(format!("not held, the model: {expected:?}"));
    }
    let age_us = model.limits.max_age_us.unwrap_or(u64::MAX);
    let mut staged: Vec<&StagedCopies> = model.staged.iter().collect();
    staged.sort_by_key(|of| (of.end_us, of.id));
    let mut staged = staged.into_iter();
    for view in copies.staged() {
        let expected = staged.next();
        if !expected.is_some_and(|expected| is_staged(&view, expected, age_us)) {
            return Err(format!("{view:?}, the model: {expected:?}"));
        }
    }
    match staged.next() {
        Some(expected) => Err(format!("not staged, the model: {expected:?}")),
        None => Ok(()),
    }
}

fn is_hold(copies: &Copies, view: &HoldView<'_>, model: &ModelHold) -> bool {
    let taken = copies.excess_of(view.id);
    let is_by = |by: &CopyScope| match (taken.by, by) {
        (Some(Limiter::Domain), CopyScope::Domain(name)) => name == view.domain,
        (Some(Limiter::Group(group)), CopyScope::Group(name)) => *name == *copies.group_name(group),
        (by, CopyScope::Resource) => by == Some(Limiter::Resource),
        _ => false,
    };
    (view.agent, view.epoch, view.id.number) == (&*model.process.0, model.process.1, model.number)
        && view.domain == model.domain
        && view.groups == model.groups
        && u64::from(view.copies) == model.copies
        && view.start.as_micros() == model.start_us
        && (view.strict, view.seized) == (model.strict, model.seized)
        && (view.state == HoldState::Lost) == model.lost
        && u64::from(taken.excess) == model.excess.0
        && match &model.excess.1 {
            Some(by) => is_by(by),
            None => taken.by.is_none(),
        }
}

fn is_staged(view: &StagedView<'_>, model: &StagedCopies, age_us: u64) -> bool {
    let oldest_us = model.start_us.saturating_add(age_us);
    view.id.0 == model.id
        && view.domain == model.domain
        && view.groups == model.groups
        && u64::from(view.copies) == model.copies
        && view.start.as_micros() == model.start_us
        && view.end.as_micros() == model.end_us.min(oldest_us)
        && view.strict == model.strict
}

/// Compares every count, and whether its scope is full.
fn counts(copies: &Copies, model: &HoldsModel) -> Result<(), String> {
    let domains = DOMAINS.map(CopiesScope::Domain);
    let groups = model.limits.groups.keys();
    let groups = groups.map(|name| CopiesScope::Group(name));
    for scope in domains
        .into_iter()
        .chain(groups)
        .chain([CopiesScope::Resource])
    {
        let own = match scope {
            CopiesScope::Domain(name) => CopyScope::Domain(name.to_owned()),
            CopiesScope::Group(name) => CopyScope::Group(name.to_owned()),
            CopiesScope::Resource => CopyScope::Resource,
        };
        let found = (copies.count_of(scope).copies, copies.is_full(scope));
        let expected = (model.copies_in(&own), model.is_full(&own));
        if found != expected {
            return Err(format!("{own:?}: {found:?}, the model: {expected:?}"));
        }
    }
    Ok(())
}

/// Compares the denied scopes after a record that the log took at `appended_us`. A ban that ends by then needs no lift
/// any more: an act counts as of its record, and an agent's denial ends by itself.
///
/// # Errors
///
/// If they differ.
pub(super) fn denied(stated: &Stated, model: &CopiesModel, appended_us: u64) -> Result<(), String> {
    let now_us = model.now_us().max(appended_us);
    let is_over =
        |of: &CopyStanding| matches!(of, CopyStanding::Banned(end_us) if *end_us <= now_us);
    let of_copies = |resource: &str| COPIES.contains(&resource);
    let stated = stated
        .iter()
        .filter(|((resource, _), _)| of_copies(resource));
    let standing = stated.filter_map(|((resource, scope), all)| {
        let standing = match all.last()?.kind {
            StatementKind::Denied(denial) if denial.cause == Cause::Banned => {
                CopyStanding::Banned(denial.end.as_micros())
            }
            StatementKind::Denied(denial) => CopyStanding::Full(denial.limit),
            StatementKind::Lifted => return None,
        };
        Some(((resource.to_string(), own_scope(scope)), standing))
    });
    let found: BTreeMap<_, _> = standing.filter(|(_, one)| !is_over(one)).collect();
    let mut expected = model.denied();
    expected.retain(|_, standing| !is_over(standing));
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?} is stated, the model: {expected:?}")),
    }
}
