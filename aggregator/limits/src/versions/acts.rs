//! Describes an operator's act in one line of text.

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
            let (everywhere, domain) = (everywhere(resource), escaped(domain));
            format!("{name} {everywhere} {domain} {}", until_text(*until))
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
            let (resource, domain) = (escaped(resource), domain.as_deref().unwrap_or("*"));
            let agent = agent.as_deref().map_or_else(
                || "*, and staged copies".to_owned(),
                |agent| escaped(agent).to_string(),
            );
            format!(
                "{name} {resource}: all of domain {}, agent {agent}",
                escaped(domain)
            )
        }
        Act::ReleaseTransfer { resource, transfer } => {
            format!("{name} {} transfer {transfer}", escaped(resource))
        }
        Act::Set(_) | Act::SetMany(_) => {
            let (first, more) = (act.rows().first().map(set), act.rows().len());
            let first = first.unwrap_or_default();
            format!("{name} {first}{}", and_more(more.saturating_sub(1)))
        }
        Act::Switch {
            namespace,
            ignore_configured,
            allow_unconfigured,
        } => {
            format!(
                "{name} namespace {}: ignore_configured {}, allow_unconfigured {}",
                escaped(namespace),
                switch_text(*ignore_configured),
                switch_text(*allow_unconfigured)
            )
        }
    }
}

fn and_more(rows: usize) -> String {
    match rows {
        0 => String::new(),
        more => format!("; and {more} more"),
    }
}

fn until_text(until: Timestamp) -> String {
    if until == Timestamp::MAX {
        return "until it is ended".to_owned();
    }
    let micros = i64::try_from(until.as_micros()).ok();
    match micros.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok()) {
        Some(at) => format!("until {at}"),
        // Beyond the year 9999.
        None => format!("until {} us", until.as_micros()),
    }
}

fn switch_text(switch: Option<bool>) -> String {
    match switch {
        Some(on) => on.to_string(),
        None => "as the document says".to_owned(),
    }
}

fn set(row: &SetRow) -> String {
    let changes = [
        row.rate
            .as_ref()
            .map(|rate| format!("rate {}", escaped(rate))),
        row.hard
            .as_ref()
            .map(|hard| format!("hard {}", escaped(hard))),
        row.limit.map(|limit| format!("limit {limit}")),
    ];
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    let changes = match changes.is_empty() {
        true => "no limits of its own".to_owned(),
        false => changes.join(", "),
    };
    format!(
        "{} {}: {changes}",
        escaped(&row.resource),
        escaped(&row.domain)
    )
}

fn everywhere(resource: &Option<Box<str>>) -> Escaped<'_> {
    escaped(resource.as_deref().unwrap_or("*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_beyond_all_dates_is_no_early_one() {
        let text = |until| {
            in_one_line(&Act::Ban {
                resource: None,
                domain: "mallory".into(),
                until: Timestamp::from_micros(until),
            })
        };
        assert_eq!(
            text(1_800_000_000_000_000),
            "ban * mallory until 2027-01-15T08:00:00Z"
        );
        assert_eq!(text(u64::MAX), "ban * mallory until it is ended");
        for beyond in [253_402_207_201_000_000, u64::MAX / 2 + 2, u64::MAX - 1] {
            assert_eq!(text(beyond), format!("ban * mallory until {beyond} us"));
        }
    }
}
