//! The engine's answers in the model's words.

use tollgate_engine::copies::{Copies, CopiesScope, Effects, HoldId, Limiter, OpRefused};

use crate::model::{Agent, Answer};

pub fn said(out: &Effects) -> Vec<(String, bool)> {
    let scopes = out.scopes().map(|(scope, full)| {
        let name = match scope {
            CopiesScope::Domain(name) => format!("domain:{name}"),
            CopiesScope::Group(name) => format!("group:{name}"),
            CopiesScope::Resource => "global".to_owned(),
        };
        (name, full)
    });
    scopes.collect()
}

pub fn scope_of(name: &str) -> CopiesScope<'_> {
    match name.split_once(':') {
        Some(("domain", name)) => CopiesScope::Domain(name),
        Some((_, name)) => CopiesScope::Group(name),
        None => CopiesScope::Resource,
    }
}

pub fn named(engine: &Copies, by: Option<Limiter>) -> Option<String> {
    by.map(|by| match by {
        Limiter::Domain => "domain".to_owned(),
        Limiter::Group(group) => format!("group:{}", engine.group_name(group)),
        Limiter::Resource => "global".to_owned(),
    })
}

pub fn name_of(engine: &Copies, hold: HoldId) -> Agent {
    let mut agents = engine.known_agents();
    let found = agents.find(|(ix, _, _, _)| *ix == hold.agent);
    found
        .map(|(_, name, epoch, _)| (name.to_owned(), epoch))
        .unwrap_or_default()
}

pub fn copies(copies: u32) -> Answer {
    Answer::Copies(copies.into(), None)
}

pub fn refusal(refused: OpRefused) -> Answer {
    Answer::Refused(match refused {
        OpRefused::UnknownHold => "unknown hold",
        OpRefused::TooManyCopies { .. } => "too many",
        OpRefused::UnknownTransfer => "unknown transfer",
        OpRefused::TransferExists => "transfer exists",
        OpRefused::HoldExists => "exists",
        OpRefused::HoldEnded => "ended",
        OpRefused::EpochOver => "over",
        OpRefused::NoCopies => "copies",
        OpRefused::MinAboveCopies { .. } => "min",
        OpRefused::AtCapacity => "capacity",
    })
}
