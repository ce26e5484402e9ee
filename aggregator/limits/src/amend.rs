//! Changes the rows of one domain or of many: makes the next version without reading a document again.
//!
//! ```text
//! version 18    a million domains           version 19 = 18, and acme has rate 9/s of its own
//! ```
//!
//! A change is read like a document, so it cannot contain what a document may not. What stays true: the next
//! version rules as the document with the rows in it would.

use std::borrow::Cow;
use std::sync::Arc;

use super::fault::FaultKind;
use super::network_names::domain_of;
use super::own::{NotChanged, OVERRIDE_ROWS_MAX, Own};
use super::own_statements::ReadStatements;
use super::resource::{CopiesResource, RateResource, Resource};
use super::rows::RowStatement;
use super::stated::Stated;
use super::tables::RateOverride;
use super::version::{Classes, Limits};

impl Limits {
    /// The domain that an entry, a row or a ban with this name is about: a network or an address in canonical spelling,
    /// an address as the resource limits it, otherwise the name itself. A resource without limits limits addresses by
    /// themselves.
    ///
    /// # Errors
    ///
    /// If a network is invalid, or narrower than those by which the resource limits addresses.
    pub fn domain_of_entry<'n>(
        &self,
        resource: &str,
        name: &'n str,
    ) -> Result<Cow<'n, str>, FaultKind> {
        domain_of(name, self.rate(resource).and_then(RateResource::addresses))
    }

    /// The domain as which calls of this domain are limited; an invalid name unchanged.
    pub fn domain_of_call<'n>(&self, resource: &str, name: &'n str) -> Cow<'n, str> {
        let rate = self.rate(resource);
        let limited = rate.and_then(|rate| rate.limited_as(name).ok());
        limited.unwrap_or(Cow::Borrowed(name))
    }

    /// A resource that limits a domain as another one, or not at all, and as which: a ban of the domain on every resource
    /// would not reach it.
    pub fn limits_otherwise<'n>(
        &self,
        name: &'n str,
    ) -> Option<(&str, Result<Cow<'n, str>, FaultKind>)> {
        self.rates().find_map(|rate| match rate.limited_as(name) {
            Ok(limited) if limited == name => None,
            otherwise => Some((rate.name(), otherwise)),
        })
    }

    /// These limits with the row of one domain changed; `None` removes the row.
    ///
    /// # Errors
    ///
    /// [`NotChanged`] says what is wrong.
    pub fn with_own(
        &self,
        resource: &str,
        domain: &str,
        own: Option<&Own>,
    ) -> Result<Self, NotChanged> {
        let mut revision = Revision::of(self);
        revision.set(resource, domain, own)?;
        Ok(revision.limits())
    }
}

/// The next version under construction, one change after the other.
#[derive(Debug)]
pub struct Revision {
    limits: Limits,
    rows: usize,
    statements: ReadStatements,
}

impl Revision {
    /// A revision without changes yet.
    pub fn of(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            rows: limits.rows_len(),
            statements: ReadStatements::default(),
        }
    }

    /// Number of rows so far.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The limits with all changes.
    pub fn limits(self) -> Limits {
        self.limits
    }

    /// Changes the row of one domain, field by field, over earlier changes. `None` removes the row; then the
    /// document's statement about the domain counts again.
    ///
    /// # Errors
    ///
    /// [`NotChanged`] says what is wrong; then nothing has changed.
    pub fn set(
        &mut self,
        resource: &str,
        domain: &str,
        own: Option<&Own>,
    ) -> Result<(), NotChanged> {
        let Self {
            limits,
            rows,
            statements,
        } = self;
        let found = limits.names.number_of(resource);
        let found = found.ok_or_else(|| match limits.resource(resource) {
            None => NotChanged::NotConfigured(resource.into()),
            Some(pattern) => NotChanged::ByPattern {
                resource: resource.into(),
                pattern: pattern.name().into(),
            },
        })?;
        let spelt = limits.domain_of_entry(resource, domain);
        let spelt = spelt.map_err(|kind| NotChanged::Network {
            domain: domain.into(),
            kind,
        })?;
        let has_room = *rows < OVERRIDE_ROWS_MAX;
        let len = match &mut limits.resources[found] {
            Resource::Rate(rate) => {
                let before = rate.rows.len();
                change_rate(rate, &spelt, own, has_room, statements, &mut limits.classes)?;
                (before, rate.rows.len())
            }
            Resource::Copies(copies) => {
                let before = copies.rows.len();
                change_copies(copies, &spelt, own, has_room, statements)?;
                (before, copies.rows.len())
            }
        };
        *rows = *rows - len.0 + len.1;
        Ok(())
    }
}

fn change_rate(
    rate: &mut RateResource,
    domain: &str,
    own: Option<&Own>,
    has_room: bool,
    statements: &mut ReadStatements,
    classes: &mut Classes,
) -> Result<(), NotChanged> {
    let before = rate.rows.statement_of(domain);
    let Some(own) = own else {
        if before.is_none() {
            return Err(no_row(domain, rate.table.get(domain).is_some()));
        }
        rate.rows.remove(domain);
        return Ok(());
    };
    // The statement has to be valid by itself, too.
    statements.stated_of(&rate.name, domain, own)?;
    if before.is_none() && !has_room {
        return Err(NotChanged::TooMany);
    }
    let own = own.clone().or(before.map(|row| &row.own));
    let statement = match rate.rows.known(&own) {
        Some(known) => Arc::clone(known),
        None => {
            let stated = statements.stated_of(&rate.name, domain, &own)?;
            Arc::new(RowStatement::of(own, stated))
        }
    };
    let (default, candidate) = (&rate.default.stated, rate.candidate.as_ref());
    let mut over = |stated: &_| override_under(default, candidate, stated, classes);
    let of_document = rate.table.get(domain).map(|of| &of.stated);
    let named = of_document.map(|of| over(&statement.stated.clone().or(of)));
    rate.rows.put(domain, statement, named, over);
    rate.networks.add(domain);
    Ok(())
}

fn change_copies(
    copies: &mut CopiesResource,
    domain: &str,
    own: Option<&Own>,
    has_room: bool,
    statements: &mut ReadStatements,
) -> Result<(), NotChanged> {
    let before = copies.rows.get(domain);
    let limit = match own {
        Some(own) => Some(statements.limit_of(&copies.name, domain, own)?),
        None => None,
    };
    match (before, limit) {
        (None, None) => {
            let is_named = copies.table.domains.number_of(domain).is_some();
            return Err(no_row(domain, is_named));
        }
        (None, Some(_)) if !has_room => return Err(NotChanged::TooMany),
        _ => {}
    }
    copies.rows.put(domain, limit);
    let greatest = copies.override_of(domain).unwrap_or_default();
    copies.greatest = copies.greatest.max(greatest);
    copies.networks.add(domain);
    Ok(())
}

/// The override that a statement gives, over what the resource states for all domains.
pub(super) fn override_under(
    default: &Stated,
    candidate: Option<&Stated>,
    stated: &Stated,
    classes: &mut Classes,
) -> RateOverride {
    let candidate = candidate.map(|candidate| {
        let default = candidate.clone().or(default);
        classes.number_of(stated.clone().over_default(&default).class())
    });
    RateOverride {
        class: classes.number_of(stated.clone().over_default(default).class()),
        candidate,
        stated: stated.clone(),
    }
}

/// Why there is no row to remove.
fn no_row(domain: &str, is_in_document: bool) -> NotChanged {
    match is_in_document {
        true => NotChanged::InDocument(domain.into()),
        false => NotChanged::Nothing(domain.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"
[rate.search]
hard = "200/s"
tiers = [{ limit = 100, window = "1s", active = "1s" }]
[rate.search.candidate]
rate = "80/s"
[rate.search.domains]
acme = { rate = "5/s" }
"new, inc" = { hard = "9/s" }
[copies.sandbox]
limit = 10
global = 40
domains = { acme = 30 }
"#;

    fn own(rate: Option<&str>, hard: Option<&str>) -> Own {
        Own {
            rate: rate.map(Into::into),
            hard: hard.map(Into::into),
            limit: None,
        }
    }

    #[test]
    fn an_amended_version_rules_as_an_edited_document() {
        let limits = Limits::parse(DOCUMENT).unwrap();
        let changes = [
            ("search", "acme", Some(own(None, Some("7/s")))),
            ("search", "b\"c", Some(own(Some("6/m"), None))),
            ("search", "b\"c", Some(own(Some("8/m"), Some("1/s")))),
            ("search", "gone", Some(own(Some("6/m"), None))),
            ("search", "gone", None),
            ("search", "new, inc", Some(own(Some("6/m"), None))),
            ("search", "new, inc", None),
            (
                "sandbox",
                "acme",
                Some(Own {
                    limit: Some(7),
                    ..Own::default()
                }),
            ),
            ("sandbox", "acme", None),
            (
                "sandbox",
                "x",
                Some(Own {
                    limit: Some(90),
                    ..Own::default()
                }),
            ),
        ];
        let mut changed = limits.clone();
        for (resource, domain, own) in &changes {
            changed = changed.with_own(resource, domain, own.as_ref()).unwrap();
        }
        let text = DOCUMENT
            .replace("{ rate = \"5/s\" }", "{ rate = \"5/s\", hard = \"7/s\" }")
            .replace(
                "\"new, inc\" = { hard = \"9/s\" }",
                "\"new, inc\" = { hard = \"9/s\" }\n\"b\\\"c\" = { rate = \"8/m\", hard = \"1/s\" }",
            )
            .replace("acme = 30", "acme = 30, x = 90");
        let read = Limits::parse(&text).unwrap();
        assert_eq!(changed.normalised_text(), read.normalised_text());
        for domain in ["acme", "b\"c", "new, inc", "other"] {
            assert_eq!(
                changed.class_of("search", domain),
                read.class_of("search", domain)
            );
            let candidate = |limits: &Limits| {
                let rate = limits.rate("search").unwrap();
                rate.candidate_class_of(domain)
                    .map(|id| limits.class(id).clone())
            };
            assert_eq!(candidate(&changed), candidate(&read), "{domain}");
            let copies = |limits: &Limits| limits.copies("sandbox").unwrap().limit_of(domain);
            assert_eq!(copies(&changed), copies(&read));
        }
        assert_eq!(
            changed.copies("sandbox").unwrap().limit_of("x"),
            40,
            "the global limit"
        );
        // A version that is made from a changed one has all changes.
        let slower = std::num::NonZeroU32::new(2).unwrap();
        let scaled = |limits: &Limits| limits.scaled(slower).unwrap().normalised_text();
        assert_eq!(scaled(&changed), scaled(&read));
        // And the version before is unchanged.
        assert_eq!(limits, Limits::parse(DOCUMENT).unwrap());
    }

    #[test]
    fn an_amendment_that_a_document_would_refuse_is_refused() {
        let limits = Limits::parse(DOCUMENT).unwrap();
        let copies = Own {
            limit: Some(3),
            ..Own::default()
        };
        let long = "0".repeat(300) + "5/s";
        for (resource, domain, own, expected) in [
            (
                "search",
                "a",
                Some(own(Some(&long), None)),
                "a rate of 303 bytes: expected at most 256",
            ),
            (
                "nobody",
                "a",
                Some(own(Some("1/s"), None)),
                "not configured",
            ),
            (
                "search",
                "a",
                Some(copies),
                "limited by hits: expected a rate",
            ),
            (
                "sandbox",
                "a",
                Some(own(Some("1/s"), None)),
                "limited by copies: expected a limit",
            ),
            (
                "search",
                "a",
                Some(own(Some("fast"), None)),
                "expected a rate as",
            ),
            (
                "search",
                "a",
                Some(own(None, Some("6/m"))),
                "hard and global limits have no other unit",
            ),
            ("search", "a", Some(Own::default()), "expected a rate"),
            (
                "search",
                "a*",
                Some(own(Some("1/s"), None)),
                "reserved for patterns",
            ),
            (
                "search",
                "\u{7}",
                Some(own(Some("1/s"), None)),
                "control character",
            ),
            ("search", "nobody", None, "has no limits of its own"),
            ("search", "acme", None, "stand in the document"),
            ("sandbox", "acme", None, "stand in the document"),
            ("sandbox", "nobody", None, "has no limits of its own"),
        ] {
            let error = limits.with_own(resource, domain, own.as_ref()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    /// The cost is a pause of the ruling loop, and memory for as long as the version lives.
    #[test]
    fn the_cost_of_a_change_is_independent_of_other_domains() {
        let mut text = String::from("[rate.r]\nrate = \"1/s\"\n[rate.r.domains]\n");
        for n in 0..15_000 {
            text += &format!("d{n} = {{ rate = \"{}/s\" }}\n", 1 + n % 7);
        }
        let limits = Limits::parse(&text).unwrap();
        let mut versions = vec![limits];
        for n in 0..300 {
            let last = versions.last().unwrap();
            let own = own(Some("9/s"), None);
            versions.push(
                last.with_own("r", &format!("d{}", n * 5), Some(&own))
                    .unwrap(),
            );
        }
        let table = |limits: &Limits| match limits.rate("r") {
            Some(rate) => std::sync::Arc::as_ptr(&rate.table),
            None => panic!("it is there"),
        };
        let (first, last) = (&versions[0], &versions[300]);
        assert_eq!(table(first), table(last), "shared");
        assert_eq!(last.class_of("r", "d5").unwrap().windows[0].limit, 9);
        assert_eq!(first.class_of("r", "d5").unwrap().windows[0].limit, 6);
    }

    #[test]
    fn several_changes_in_one_revision_equal_changes_in_turn() {
        let limits = Limits::parse(DOCUMENT).unwrap();
        let copies = |limit| Own {
            limit: Some(limit),
            ..Own::default()
        };
        let changes = [
            ("search", "x", own(Some("6/m"), None)),
            ("sandbox", "x", copies(90)),
            ("search", "y", own(Some("6/m"), None)),
            ("search", "x", own(None, Some("3/s"))),
            ("sandbox", "y", copies(90)),
        ];
        let (mut revision, mut expected) = (Revision::of(&limits), limits.clone());
        for (resource, domain, own) in &changes {
            revision.set(resource, domain, Some(own)).unwrap();
            expected = expected.with_own(resource, domain, Some(own)).unwrap();
            // A statement that is read only once is still refused for a resource to which it does not apply.
            assert!(revision.set("sandbox", "a*", Some(own)).is_err());
            let other = if own.limit.is_some() {
                "search"
            } else {
                "sandbox"
            };
            assert!(revision.set(other, "z", Some(own)).is_err());
        }
        let made = revision.limits();
        assert_eq!(made.normalised_text(), expected.normalised_text());
        let of_x = made.class_of("search", "x").unwrap();
        assert_eq!((of_x.windows[0].limit, of_x.hard), (6, Some(3)));
        assert_eq!(limits, Limits::parse(DOCUMENT).unwrap());
    }
}
