//! Answers of engine and model, in one form.

use tollgate_engine::copies::{
    Copies, CopiesScope, Effects, HoldId, HoldVerdict, Limiter, OpRefused, Taken,
};
use tollgate_model::copies::{CopyScope, HoldRefusal, KeptBy, ListVerdict, Process};

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// Copies, and the scope whose limit reduced them.
    Copies(KeptBy),
    Refused(HoldRefusal),
    /// To a digest that differs.
    Differs,
    /// To a list: numbers and their verdicts.
    Verdicts(Vec<(u64, ListVerdict)>),
    /// To a tick: holds that ended by age.
    Ended(Vec<(Process, u64, u64)>),
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<KeptBy> for Answer {
    fn from(copies: KeptBy) -> Self {
        Self::Copies(copies)
    }
}

impl From<u64> for Answer {
    fn from(copies: u64) -> Self {
        Self::Copies((copies, None))
    }
}

impl From<Vec<(u64, ListVerdict)>> for Answer {
    fn from(verdicts: Vec<(u64, ListVerdict)>) -> Self {
        Self::Verdicts(verdicts)
    }
}

/// The model's answer.
pub fn modelled<T: Into<Answer>>(done: Result<T, HoldRefusal>) -> Answer {
    done.map_or_else(Answer::Refused, T::into)
}

/// The engine's answer.
pub fn answered<T: Into<Answer>>(done: Result<T, OpRefused>) -> Answer {
    done.map_or_else(|why| Answer::Refused(refusal(why)), T::into)
}

pub fn statements_of(out: &Effects) -> Vec<(CopyScope, bool)> {
    out.scopes()
        .map(|(scope, full)| (own(scope), full))
        .collect()
}

fn own(scope: CopiesScope<'_>) -> CopyScope {
    match scope {
        CopiesScope::Domain(name) => CopyScope::Domain(name.to_owned()),
        CopiesScope::Group(name) => CopyScope::Group(name.to_owned()),
        CopiesScope::Resource => CopyScope::Resource,
    }
}

pub fn borrowed(scope: &CopyScope) -> CopiesScope<'_> {
    match scope {
        CopyScope::Domain(name) => CopiesScope::Domain(name),
        CopyScope::Group(name) => CopiesScope::Group(name),
        CopyScope::Resource => CopiesScope::Resource,
    }
}

/// Copies, and the limit that reduced a domain's copies.
pub fn kept(engine: &Copies, domain: &str, (copies, by): (u32, Option<Limiter>)) -> KeptBy {
    let by = by.map(|by| match by {
        Limiter::Domain => CopyScope::Domain(domain.to_owned()),
        Limiter::Group(group) => CopyScope::Group(engine.group_name(group).to_owned()),
        Limiter::Resource => CopyScope::Resource,
    });
    (copies.into(), by)
}

pub fn verdict_on(engine: &Copies, hold: HoldId, verdict: &HoldVerdict) -> ListVerdict {
    match verdict {
        HoldVerdict::Counted(Taken { excess, by }) => {
            let domain = engine.hold_of(hold).map_or("", |view| view.domain);
            ListVerdict::Counted(kept(engine, domain, (*excess, *by)))
        }
        HoldVerdict::Ended => ListVerdict::Ended,
        HoldVerdict::UnknownTransfer => ListVerdict::UnknownTransfer,
        HoldVerdict::NotCounted => ListVerdict::AtCapacity,
    }
}

pub fn name_of(engine: &Copies, hold: HoldId) -> Process {
    let mut agents = engine.known_agents();
    let found = agents.find(|(ix, _, _, _)| *ix == hold.agent);
    found
        .map(|(_, name, epoch, _)| (name.to_owned(), epoch))
        .unwrap_or_default()
}

fn refusal(refused: OpRefused) -> HoldRefusal {
    match refused {
        OpRefused::UnknownHold => HoldRefusal::UnknownHold,
        OpRefused::TooManyCopies { .. } => HoldRefusal::TooManyCopies,
        OpRefused::UnknownTransfer => HoldRefusal::UnknownTransfer,
        OpRefused::TransferExists => HoldRefusal::TransferExists,
        OpRefused::HoldExists => HoldRefusal::HoldExists,
        OpRefused::HoldEnded => HoldRefusal::HoldEnded,
        OpRefused::EpochOver => HoldRefusal::EpochOver,
        OpRefused::NoCopies => HoldRefusal::NoCopies,
        OpRefused::MinAboveCopies { .. } => HoldRefusal::MinAboveCopies,
        OpRefused::AtCapacity => HoldRefusal::AtCapacity,
    }
}
