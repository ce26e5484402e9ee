//! Describes an operator's act in one line of text, and says which pairs it concerns.

use tollgate_shared::escape::{Escaped, escaped};
use tollgate_shared::names::{EVERYBODY, namespace};
use tollgate_shared::networks::network_of_domain;
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

/// Whether an act is about a resource, which is configured under `configured` (its name, or a pattern); an act on every
/// resource, only if it is about this domain as well.
///
/// A caller with access to the explanations of one resource alone sees the reasons of such acts, and of no others.
pub fn concerns(act: &Act, (resource, configured): (&str, &str), domain: Option<&str>) -> bool {
    let is_it = |name: &str| name == resource || name == configured;
    match act {
        Act::Reset { resource, .. }
        | Act::Pardon { resource, .. }
        | Act::Refund { resource, .. }
        | Act::ReleaseHold { resource, .. }
        | Act::ReleaseHolds { resource, .. }
        | Act::ReleaseTransfer { resource, .. } => is_it(resource),
        Act::Ban {
            resource,
            domain: of,
            ..
        }
        | Act::Unban {
            resource,
            domain: of,
        } => match resource {
            Some(resource) => is_it(resource),
            None => domain.is_some_and(|domain| is_within(domain, of)),
        },
        Act::Switch { namespace: of, .. } => &**of == "*" || **of == *namespace(resource),
        Act::Set(_) | Act::SetMany(_) => act.rows().iter().all(|row| is_it(&row.resource)),
    }
}

/// Whether an act sets nothing but limits of single pairs: its rows name resources, not patterns, and domains that are
/// neither addresses nor networks. An address has more than one spelling, so a row of one rules more than one pair.
pub fn names_pairs(act: &Act) -> bool {
    let is_pair = |row: &SetRow| {
        let one_resource = !row.resource.ends_with('*');
        let one_domain = &*row.domain != EVERYBODY && network_of_domain(&row.domain).is_none();
        one_resource && one_domain
    };
    !act.rows().is_empty() && act.rows().iter().all(is_pair)
}

/// Whether a domain is another, or an address in it.
fn is_within(domain: &str, of: &str) -> bool {
    let networks = || Some((network_of_domain(of)?, network_of_domain(domain)?));
    domain == of || networks().is_some_and(|(of, domain)| of.contains(&domain))
}

fn and_more(rows: usize) -> String {
    match rows {
        0 => String::new(),
        more => format!("; and {more} more"),
    }
}

/// The end of a ban, for people.
pub fn until_text(until: Timestamp) -> String {
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
    fn an_act_on_all_resources_concerns_its_domain() {
        let ban = |resource: Option<&str>, domain: &str| Act::Ban {
            resource: resource.map(Into::into),
            domain: domain.into(),
            until: Timestamp::MAX,
        };
        let set = |resource: &str| SetRow {
            resource: resource.into(),
            domain: "acme".into(),
            rate: None,
            hard: None,
            limit: None,
        };
        let switch = |namespace: &str| Act::Switch {
            namespace: namespace.into(),
            ignore_configured: None,
            allow_unconfigured: None,
        };
        for (is_so, act) in [
            (true, ban(Some("api.search"), "globex")),
            (false, ban(Some("web.page"), "10.1.2.3")),
            (true, ban(None, "10.1.2.3")),
            (true, ban(None, "10.1.0.0/16")),
            (false, ban(None, "10.2.0.0/16")),
            (false, ban(None, "globex")),
            (true, Act::Set(set("api.*"))),
            (false, Act::SetMany(vec![set("api.*"), set("web.page")])),
            (true, switch("*")),
            (true, switch("api")),
            (false, switch("web")),
        ] {
            let names = ("api.search", "api.*");
            assert_eq!(concerns(&act, names, Some("10.1.2.3")), is_so, "{act:?}");
        }
        assert!(!concerns(&ban(None, "acme"), ("a", "a"), None));
    }

    #[test]
    fn rows_of_addresses_networks_and_patterns_name_no_pairs() {
        let row = |(resource, domain): (&str, &str)| SetRow {
            resource: resource.into(),
            domain: domain.into(),
            rate: None,
            hard: None,
            limit: None,
        };
        let set = |names: &[(&str, &str)]| Act::SetMany(names.iter().copied().map(row).collect());
        assert!(names_pairs(&set(&[("a", "acme"), ("b", "globex/7")])));
        for other in [
            ("a", "10.1.2.3"),
            ("a", "::ffff:10.1.2.3"),
            ("a", "10.0.0.0/8"),
            ("a.*", "acme"),
            ("a", "*"),
        ] {
            assert!(!names_pairs(&set(&[("a", "acme"), other])), "{other:?}");
        }
        assert!(!names_pairs(&set(&[])));
    }

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
