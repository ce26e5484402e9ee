//! Denials of copies in sentences.
//!
//! ```text
//! sandbox of acme was full from … until …: its limit is 2 copies at a time, by limits version 1
//! it became so by a hold of web-1: 2 copies for acme (offset 17, entry 0)
//! 2 copies of it were held then: 2 by web-1
//! ```
//!
//! Knows nothing of logs. What stays true: each denial has a sentence with its own limit.

use tollgate_shared::escape::escaped;
use tollgate_shared::wire::holds::{HoldAction, HoldBatch};
use tollgate_shared::wire::statement::{Cause, Scope};

use super::CopiesDenial;
use crate::explain::answer::position_text;
use crate::explain::history::key;
use crate::explain::sentences::{banned, since};
use crate::explain::view::{Explanation, HolderView};
use crate::range::{UntilUtc, Utc};

/// How many agents a sentence names.
const NAMED_MAX: usize = 5;

/// States the denials in words. They have one log position; `cause` is the operation there.
pub(super) fn write(
    explanation: &Explanation,
    cause: Option<&str>,
    found: &[CopiesDenial],
) -> Vec<String> {
    let Some(first) = found.first() else {
        return Vec::new();
    };
    let position = position_text(key(&first.stated.statement));
    let is_one = found.len() == 1;
    let mut sentences = Vec::new();
    if !is_one {
        let scopes = found.iter();
        let scopes: Vec<_> = scopes
            .map(|of| words_of(&of.stated.statement.scope, &explanation.resource))
            .collect();
        sentences.push(format!(
            "{} ({position}) caused {} denials, which have the same code: {}",
            cause.unwrap_or("one record"),
            found.len(),
            scopes.join("; ")
        ));
    }
    for of in found {
        sentences.push(denial(explanation, of));
        if let Some(cause) = cause.filter(|_| is_one) {
            sentences.push(format!("it became so by {cause} ({position})"));
        }
        sentences.push(held_by(&of.holders, "then"));
    }
    sentences
}

/// A denial: which scope, since when, until when, and by which limit.
fn denial(explanation: &Explanation, of: &CopiesDenial) -> String {
    let words = words_of(&of.stated.statement.scope, &explanation.resource);
    let since = since(of.stated.appended, of.stated.is_older);
    let how = match of.denial.cause {
        Cause::Banned => {
            let by = banned(explanation.version.as_ref());
            format!("denied from {since} {}: {by}", UntilUtc(of.until()))
        }
        _ => {
            let until = match &of.lifted {
                Some(lifted) => format!("until {}", Utc(lifted.appended)),
                None => "and had no room again to the end of the log".to_owned(),
            };
            let limit = of.denial.limit;
            format!("full from {since} {until}: its limit is {limit} copies at a time")
        }
    };
    format!("{words} was {how}, by limits version {}", of.denial.version)
}

/// The operation of a batch that caused something, in words.
pub(super) fn cause_of(batch: &HoldBatch<'_>, entry: u32) -> Option<String> {
    let op = batch.ops().nth(entry as usize)?;
    let agent = batch.sender.agent;
    let (copies, domain) = match op.action {
        HoldAction::Hold { domain, copies } | HoldAction::Reserve { domain, copies, .. } => {
            (copies, domain)
        }
        _ => return None,
    };
    Some(format!(
        "a hold of {}: {copies} copies for {}",
        escaped(agent),
        escaped(domain)
    ))
}

/// The agents that held copies, in words.
pub(super) fn held_by(holders: &[HolderView], when: &str) -> String {
    let copies: u64 = holders.iter().map(|of| of.copies).sum();
    let named = holders.iter().take(NAMED_MAX).map(|of| {
        let agent = escaped(of.agent.as_deref().unwrap_or("no agent (staged)"));
        format!("{} by {agent}", of.copies)
    });
    match copies {
        0 => format!("no copies of it were held {when}"),
        _ => format!(
            "{copies} copies of it were held {when}: {}",
            named.collect::<Vec<_>>().join(", ")
        ),
    }
}

/// A scope in words.
pub(super) fn words_of(scope: &Scope, resource: &str) -> String {
    match scope {
        Scope::Pair(domain) => format!("{} of {}", escaped(resource), escaped(domain)),
        Scope::Group(group) => format!("group {} of {}", escaped(group), escaped(resource)),
        Scope::Resource => format!("{} of all domains together", escaped(resource)),
    }
}
