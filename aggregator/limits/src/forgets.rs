//! What a new version forgets of what pairs have used.
//!
//! ```text
//! before   windows 10/s, 1000/h    after   windows 10/s, 100/m      the minute keeps the last minute of the hour
//! before   windows 10/s, 1000/h    after   windows 10/s             of the hour, all but its last second is forgotten
//! before   bucket 5/s              after   windows 5/s              the use of the bucket is forgotten
//! ```
//!
//! Derives from classes what the engine's rules do to states. Knows nothing of pairs. What stays true: where
//! nothing is listed, a pair that was closed by its limits is closed by the new ones as well, or they have more
//! room.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use tollgate_shared::time::Span;

use super::path::{Path, PathStep};
use super::rate::{RateClass, Tier};
use super::resource::RateResource;
use super::units::print_span;
use super::version::Limits;

/// How many lines one answer has; further ones are counted.
const LINES_MAX: usize = 100;

/// What a version forgets of domains with equal limits on one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Forgotten {
    /// The resource, or a pattern of resources.
    pub resource: String,
    /// One of the domains; `None`: every domain without an override.
    pub domain: Option<String>,
    /// How many further domains with overrides this applies to.
    pub further_domains: u64,
    /// The constraints, as `window "1h"`.
    pub constraints: Vec<String>,
}

impl fmt::Display for Forgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = Path::DOCUMENT.then(PathStep::Named("resource", &self.resource));
        match &self.domain {
            None => write!(f, "{resource}")?,
            Some(domain) => write!(f, "{}", resource.then(PathStep::Named("domain", domain)))?,
        }
        write!(
            f,
            ": forgets what was used of {}",
            self.constraints.join(", ")
        )?;
        match self.further_domains {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more domain)"),
            more => write!(f, " (and {more} more domains)"),
        }
    }
}

/// What `new` forgets of what counts under `old`, by resource; and how many lines are left out.
pub fn forgotten(old: &Limits, new: &Limits) -> (Vec<Forgotten>, u64) {
    forgotten_of(old, new, |rate| {
        rate.overrides().map(|(domain, _)| domain).collect()
    })
}

/// The same for documents alone, in time proportional to their length: domains that only rows name are left out.
pub fn forgotten_by_documents(old: &Limits, new: &Limits) -> (Vec<Forgotten>, u64) {
    forgotten_of(old, new, |rate| rate.document_domains().collect())
}

fn forgotten_of(
    old: &Limits,
    new: &Limits,
    domains_of: impl for<'l> Fn(&'l RateResource) -> Vec<&'l str>,
) -> (Vec<Forgotten>, u64) {
    let names = old.rates().chain(new.rates()).map(RateResource::name);
    let names: BTreeSet<&str> = names.collect();
    let mut all = Vec::new();
    for name in names {
        if let Some(before) = old.rate(name) {
            let after = new.rate(name);
            let domains = domains_of(before).into_iter();
            let domains = domains.chain(after.into_iter().flat_map(&domains_of));
            let domains = domains.collect();
            of_resource((old, before), (new, after), (name, domains), &mut all);
        }
    }
    let omitted = all.len().saturating_sub(LINES_MAX) as u64;
    all.truncate(LINES_MAX);
    (all, omitted)
}

fn of_resource(
    (old, before): (&Limits, &RateResource),
    (new, after): (&Limits, Option<&RateResource>),
    (resource, domains): (&str, BTreeSet<&str>),
    all: &mut Vec<Forgotten>,
) {
    let none = RateClass::default();
    let line = |constraints, domain: Option<&str>| Forgotten {
        resource: resource.to_owned(),
        domain: domain.map(str::to_owned),
        further_domains: 0,
        constraints,
    };
    if after.is_some_and(|after| after.addresses() != before.addresses()) {
        // Each address is another domain from then on.
        all.push(line(
            vec!["each address (`addresses` differs)".to_owned()],
            None,
        ));
    }
    let default = after.map_or(&none, |after| new.class(after.default_class()));
    let of_default = forgets(old.class(before.default_class()), default);
    if !of_default.is_empty() {
        all.push(line(of_default.clone(), None));
    }
    // Domains with the same limits before and after are handled once.
    let mut alike = BTreeMap::new();
    let mut lines: BTreeMap<Vec<String>, Forgotten> = BTreeMap::new();
    for domain in domains {
        let classes = (
            before.class_of(domain),
            after.map(|after| after.class_of(domain)),
        );
        let constraints = alike.entry(classes).or_insert_with(|| {
            let class = classes.1.map_or(&none, |class| new.class(class));
            forgets(old.class(classes.0), class)
        });
        let of_default_alike = *constraints == of_default;
        if constraints.is_empty() || of_default_alike {
            continue;
        }
        match lines.get_mut(constraints) {
            Some(line) => line.further_domains += 1,
            None => {
                lines.insert(constraints.clone(), line(constraints.clone(), Some(domain)));
            }
        }
    }
    all.extend(lines.into_values());
}

/// The constraints of a class whose use another class forgets.
pub fn forgets(old: &RateClass, new: &RateClass) -> Vec<String> {
    let mut forgotten = Vec::new();
    let lengths =
        |class: &RateClass| -> Vec<Span> { class.sliding().map(|window| window.window).collect() };
    // A window gets stamps of the longest old one, so only use further back than the longest new window is lost.
    let longest = lengths(new).into_iter().max().unwrap_or(Span::ZERO);
    let lost: BTreeSet<Span> = lengths(old)
        .into_iter()
        .filter(|of| longest < *of)
        .collect();
    let kept = match longest {
        Span::ZERO => String::new(),
        longest => format!(" but for its last \"{}\"", print_span(longest)),
    };
    forgotten.extend(
        lost.into_iter()
            .map(|of| format!("window \"{}\"{kept}", print_span(of))),
    );
    if old.bucket.is_some() && new.bucket.is_none() {
        forgotten.push("the bucket".to_owned());
    }
    for quota in &old.quotas {
        let is_same =
            |of: &super::rate::Quota| of.unit == quota.unit && of.zone.name() == quota.zone.name();
        if !new.quotas.iter().any(is_same) {
            let unit = quota.unit.name();
            forgotten.push(format!("quota \"{unit}\" in {:?}", quota.zone.name()));
        }
    }
    let shape = |tier: &Tier| Tier { limit: 0, ..*tier };
    let same = old.tiers().iter().zip(new.tiers());
    let kept = same
        .take_while(|(old, new)| shape(old) == shape(new))
        .count();
    match old.tiers().len() - kept {
        0 => {}
        1 => forgotten.push(format!("tier {}", kept + 1)),
        _ => forgotten.push(format!("tiers {} to {}", kept + 1, old.tiers().len())),
    }
    forgotten
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(old: &str, new: &str) -> Vec<String> {
        let parse = |text: &str| Limits::parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        let (lines, omitted) = forgotten(&parse(old), &parse(new));
        assert_eq!(omitted, 0);
        lines.iter().map(Forgotten::to_string).collect()
    }

    #[test]
    fn state_that_a_version_resets_is_counted_by_resource() {
        let old = r#"
            plans.gold = ["acme", "globex", "initech"]
            rate.a.windows = ["10/s", "1000/h"]
            rate.a.domains.x.bucket = { rate = "5/s", burst = 9 }
            rate.a.plans.gold.windows = ["20/s", "2000/h"]
            rate.b.quota = ["9/month", "5/day"]
            rate.c.tiers = [{ limit = 1, window = "1s", active = "1s" }, { limit = 2, window = "9s", active = "9s" }]
            rate."d.*".rate = "5/s"
            rate.e.rate = "5/s"
            rate.e.addresses = { v4 = 24, v6 = 64 }
        "#;
        assert!(warnings(old, old).is_empty());
        // A minute keeps stamps of the hour; a month of another zone is another quota; a tier is identified by its
        // window.
        let new = r#"
            plans.gold = ["acme", "globex", "initech"]
            rate.a.windows = ["10/s", "100/m"]
            rate.a.domains.x.rate = "5/h"
            rate.a.plans.gold.bucket = { rate = "5/s", burst = 9 }
            rate.b.quota = ["9/month", "50/day"]
            rate.b.zone = "Europe/Berlin"
            rate.e.rate = "5/s"
            rate.e.addresses = { v4 = 32, v6 = 64 }
            rate.c.tiers = [{ limit = 1, window = "2s", active = "2s" }, { limit = 2, window = "9s", active = "9s" }]
        "#;
        assert_eq!(
            warnings(old, new),
            [
                "resource \"a\": forgets what was used of window \"1h\" but for its last \"1m\"",
                "resource \"a\": domain \"x\": forgets what was used of the bucket",
                "resource \"a\": domain \"acme\": forgets what was used of window \"1s\", window \"1h\" (and 2 more domains)",
                "resource \"b\": forgets what was used of quota \"month\" in \"UTC\", quota \"day\" in \"UTC\"",
                "resource \"c\": forgets what was used of tiers 1 to 2",
                "resource \"d.*\": forgets what was used of window \"1s\"",
                "resource \"e\": forgets what was used of each address (`addresses` differs)",
            ]
        );
    }
}
