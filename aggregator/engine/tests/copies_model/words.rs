//! The engine's answers in the model's words.

use tollgate_engine::copies::{Copies, Effects, HoldId, Limiter, Refused, Scope};

use crate::model::{Agent, Answer};

pub fn said(out: &Effects) -> Vec<(String, bool)> {
    let scopes = out.scopes().map(|(scope, full)| {
        let name = match scope {
            Scope::Domain(name) => format!("domain:{name}"),
            Scope::Group(name) => format!("group:{name}"),
            Scope::Resource => "global".to_owned(),
        };
        (name, full)
    });
    scopes.collect()
}

pub fn scope_of(name: &str) -> Scope<'_> {
    match name.split_once(':') {
        Some(("domain", name)) => Scope::Domain(name),
        Some((_, name)) => Scope::Group(name),
        None => Scope::Resource,
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

pub fn refusal(refused: Refused) -> Answer {
    Answer::Refused(match refused {
        Refused::UnknownHold => "unknown hold",
        Refused::TooManyCopies { .. } => "too many",
        Refused::UnknownTransfer => "unknown transfer",
        Refused::TransferExists => "transfer exists",
        Refused::HoldExists => "exists",
        Refused::HoldEnded => "ended",
        Refused::EpochOver => "over",
        Refused::NoCopies => "copies",
        Refused::MinAboveCopies { .. } => "min",
        Refused::AtCapacity => "capacity",
    })
}
