//! What an operator did, in one line of text.

use tollgate_shared::escape::{Escaped, escaped};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::set_rows::SetRow;

/// An act in one line.
pub fn in_one_line(act: &Act) -> String {
    let name = act.name();
    match act {
        Act::Reset { resource, domain } | Act::Pardon { resource, domain } => {
            format!("{name} {} {}", escaped(resource), escaped(domain))
        }
        Act::Refund {
            resource,
            domain,
            hits,
        } => format!("{name} {} {} {hits}", escaped(resource), escaped(domain)),
        Act::Ban {
            resource,
            domain,
            until,
        } => {
            let until = match *until {
                Timestamp::MAX => "until it is taken back".to_owned(),
                until => match jiff::Timestamp::from_microsecond(until.as_micros() as i64) {
                    Ok(at) => format!("until {at}"),
                    Err(_) => format!("until {} us", until.as_micros()),
                },
            };
            format!(
                "{name} {} {} {until}",
                everywhere(resource),
                escaped(domain)
            )
        }
        Act::Unban { resource, domain } => {
            format!("{name} {} {}", everywhere(resource), escaped(domain))
        }
        Act::ReleaseHold {
            resource,
            agent,
            epoch,
            number,
        } => format!(
            "{name} {} {}/{epoch:032x}/{number}",
            escaped(resource),
            escaped(agent)
        ),
        Act::ReleaseHolds {
            resource,
            domain,
            agent,
        } => {
            let staged = match agent {
                Some(_) => "",
                None => ", and what is staged",
            };
            format!(
                "{name} {}: all of domain {}, agent {}{staged}",
                escaped(resource),
                escaped(domain.as_deref().unwrap_or("*")),
                escaped(agent.as_deref().unwrap_or("*"))
            )
        }
        Act::ReleaseTransfer { resource, transfer } => {
            format!("{name} {} transfer {transfer}", escaped(resource))
        }
        Act::Set(_) | Act::SetMany(_) => {
            let first = act.rows().first().map(set).unwrap_or_default();
            match act.rows().len().saturating_sub(1) {
                0 => format!("{name} {first}"),
                more => format!("{name} {first}; and {more} more"),
            }
        }
        Act::Switch {
            namespace,
            ignore_configured,
            allow_unconfigured,
        } => {
            let said = |switch: &Option<bool>| match switch {
                Some(on) => on.to_string(),
                None => "as the document says".to_owned(),
            };
            format!(
                "{name} namespace {}: ignore_configured {}, allow_unconfigured {}",
                escaped(namespace),
                said(ignore_configured),
                said(allow_unconfigured)
            )
        }
    }
}

fn set(row: &SetRow) -> String {
    let said = [
        row.rate
            .as_ref()
            .map(|rate| format!("rate {}", escaped(rate))),
        row.hard
            .as_ref()
            .map(|hard| format!("hard {}", escaped(hard))),
        row.limit.map(|limit| format!("limit {limit}")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    let said = match said.is_empty() {
        true => "nothing of its own".to_owned(),
        false => said.join(", "),
    };
    format!(
        "{} {}: {said}",
        escaped(&row.resource),
        escaped(&row.domain)
    )
}

fn everywhere(resource: &Option<Box<str>>) -> Escaped<'_> {
    escaped(resource.as_deref().unwrap_or("*"))
}
