//! Rows that outlive a document: carried over to the next one, and listed.
//!
//! ```text
//! document 1  + rows of search, of sandbox          document 2 without sandbox  + rows of search
//! ```
//!
//! Knows nothing of logs. What stays true: the limits rule as if the rows had been stated after the document.

use std::fmt;
use std::mem::discriminant;

use serde::Serialize;

use super::amend::{Revision, override_under};
use super::own::{NotChanged, Own};
use super::path::{Path, PathStep};
use super::resource::{CopiesResource, RateResource, Resource};
use super::stated::Stated;
use super::version::{Classes, Limits};

/// An override beside the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideRow<'l> {
    /// The resource.
    pub resource: &'l str,
    /// The domain.
    pub domain: &'l str,
    /// The statement.
    pub own: Own,
}

/// Rows of one resource that another document has no place for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DroppedRows {
    /// The resource.
    pub resource: String,
    /// How many there are.
    pub rows: u64,
}

impl fmt::Display for DroppedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = Path::DOCUMENT.then(PathStep::Named("resource", &self.resource));
        let (rows, s) = (self.rows, if self.rows == 1 { "" } else { "s" });
        write!(
            f,
            "{resource}: removes its {rows} row{s} (limits of single domains): the document does not configure it, or \
             with the other kind of limits"
        )
    }
}

impl Limits {
    /// The rows beside the document, by resource and domain.
    pub fn rows(&self) -> impl Iterator<Item = OverrideRow<'_>> {
        self.resources.iter().flat_map(Resource::rows)
    }

    /// The statement of a domain's row, if it has one.
    pub fn row_of(&self, resource: &str, domain: &str) -> Option<Own> {
        let number = self.names.number_of(resource)?;
        match &self.resources[number] {
            Resource::Rate(rate) => Some(rate.rows.statement_of(domain)?.own.clone()),
            Resource::Copies(copies) => copies.rows.get(domain).map(own_of_limit),
        }
    }

    /// The rows beside another document that [`Limits::with_rows_of`] drops, by resource.
    pub fn rows_dropped_of(&self, before: &Self) -> Vec<DroppedRows> {
        let is_kept = |old: &Resource| {
            let number = self.names.number_of(old.name());
            number.is_some_and(|number| {
                let (old, new) = (discriminant(old), discriminant(&self.resources[number]));
                old == new
            })
        };
        let dropped = before.resources.iter().filter(|old| !is_kept(old));
        let dropped = dropped.map(|old| DroppedRows {
            resource: old.name().to_owned(),
            rows: old.rows_len() as u64,
        });
        dropped.filter(|of| 0 < of.rows).collect()
    }

    /// This document with the rows beside another one. Rows of resources that it does not configure, or configures
    /// with the other kind, are dropped.
    ///
    /// # Errors
    ///
    /// If a row cannot stand beside this document, whose networks are wider: its domain is a narrower network, or in
    /// the network of another row.
    pub fn with_rows_of(mut self, before: &Self) -> Result<Self, NotChanged> {
        let mut changed = Vec::new();
        for resource in &mut self.resources {
            let Some(number) = before.names.number_of(resource.name()) else {
                continue;
            };
            match (resource, &before.resources[number]) {
                (Resource::Rate(new), Resource::Rate(old)) if 0 < old.rows.len() => {
                    match new.addresses == old.addresses {
                        true => new.take_rows(old, &mut self.classes),
                        // The canonical spelling of domains may change, so each row is checked.
                        false => changed.push(number),
                    }
                }
                (Resource::Copies(new), Resource::Copies(old)) if 0 < old.rows.len() => {
                    new.take_rows(old);
                }
                _ => {}
            }
        }
        let mut revision = Revision::of(&self);
        for row in changed
            .into_iter()
            .flat_map(|of| before.resources[of].rows())
        {
            let rows = revision.rows();
            let set = revision.set(row.resource, row.domain, Some(&row.own));
            let set = match set {
                Ok(()) if revision.rows() == rows => {
                    Err(NotChanged::SameNetwork(row.domain.into()))
                }
                set => set,
            };
            set.map_err(|why| NotChanged::BesideDocument {
                resource: row.resource.into(),
                why: Box::new(why),
            })?;
        }
        Ok(revision.limits())
    }
}

impl Resource {
    /// Number of its rows.
    pub(super) fn rows_len(&self) -> usize {
        match self {
            Self::Rate(rate) => rate.rows.len(),
            Self::Copies(copies) => copies.rows.len(),
        }
    }

    fn rows(&self) -> Box<dyn Iterator<Item = OverrideRow<'_>> + '_> {
        let resource = self.name();
        let row = move |(domain, own)| OverrideRow {
            resource,
            domain,
            own,
        };
        match self {
            Self::Rate(rate) => {
                let rows = rate.rows.stated();
                Box::new(rows.map(|(domain, own)| (domain, own.clone())).map(row))
            }
            Self::Copies(copies) => {
                let rows = copies.rows.all();
                Box::new(
                    rows.map(|(domain, limit)| (domain, own_of_limit(limit)))
                        .map(row),
                )
            }
        }
    }
}

impl RateResource {
    fn take_rows(&mut self, before: &Self, classes: &mut Classes) {
        let (default, candidate) = (&self.default.stated, self.candidate.as_ref());
        let over = |stated: &Stated| override_under(default, candidate, stated, classes);
        self.rows = before.rows.beside(&self.table, over);
        self.networks = { before.rows.networks.clone() }.and(&self.networks);
    }
}

impl CopiesResource {
    fn take_rows(&mut self, before: &Self) {
        self.rows = before.rows.clone();
        self.networks = { before.rows.networks.clone() }.and(&self.networks);
        let lowered = self.global.unwrap_or(u64::MAX);
        self.greatest = self.greatest.max(self.rows.greatest.min(lowered));
    }
}

fn own_of_limit(limit: u64) -> Own {
    Own {
        limit: Some(limit),
        ..Own::default()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    const DOCUMENTS: [&str; 3] = [
        r#"
[rate.a]
rate = "100/s"
domains = { b = { rate = "2/s" }, c = { hard = "3/s" } }
[rate.t.candidate]
rate = "7/s"
[rate.t]
tiers = [{ limit = 2, window = "1s", active = "1s" }]
[copies.s]
limit = 10
domains = { b = 5 }
"#,
        r#"
[rate.a]
rate = "90/s"
hard = "95/s"
domains = { d = { hard = "4/s" } }
[rate.t]
rate = "1/s"
domains = { b = { rate = "2/s" } }
[copies.s]
limit = 10
global = 20
"#,
        r#"
[rate.a]
windows = ["9/s", "99/m"]
[rate.a.candidate]
rate = "8/s"
"#,
    ];

    fn random_row(random: &mut StdRng) -> (&'static str, &'static str, Option<Own>) {
        let resource = ["a", "t", "s"][random.random_range(0..3)];
        let domain = ["b", "c", "d", "e", "10.0.0.0/8"][random.random_range(0..5)];
        let number = random.random_range(0..9_u64);
        let text = |is: bool| is.then(|| format!("{number}/s").into());
        let own = match (resource, random.random_range(0..4)) {
            (_, 0) => None,
            ("s", _) => Some(own_of_limit(number * 5)),
            (_, kind) => Some(Own {
                rate: text(kind != 1),
                hard: text(kind != 2),
                limit: None,
            }),
        };
        (resource, domain, own)
    }

    /// Everything visible of some limits.
    fn seen(limits: &Limits) -> String {
        let mut seen = limits.normalised_text();
        for resource in ["a", "t"] {
            seen += &format!("{:?}\n", limits.public(resource, 1));
        }
        let rows = limits.rows();
        seen + &rows.map(|row| format!("{row:?}\n")).collect::<String>()
    }

    #[test]
    fn rows_carried_over_equal_rows_stated_again() {
        for seed in 0..100 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut limits = Limits::default();
            for _ in 0..4 {
                let document = DOCUMENTS[random.random_range(0..3)];
                let document = Limits::parse(document).expect("it is good");
                let mut again = Revision::of(&document);
                for row in limits.rows() {
                    // Rows of resources that no longer exist are dropped.
                    let _ = again.set(row.resource, row.domain, Some(&row.own));
                }
                limits = document.with_rows_of(&limits).expect("they fit");
                assert_eq!(seen(&limits), seen(&again.limits()), "seed {seed}");
                let mut revision = Revision::of(&limits);
                for _ in 0..20 {
                    let (resource, domain, own) = random_row(&mut random);
                    let _ = revision.set(resource, domain, own.as_ref());
                }
                limits = revision.limits();
                assert_eq!(limits.rows_len(), limits.rows().count());
            }
        }
    }

    #[test]
    fn addresses_of_one_network_cannot_have_two_rows() {
        let document = |v4: u8| {
            let addresses = format!("addresses = {{ v4 = {v4}, v6 = 64 }}");
            Limits::parse(&format!("[rate.a]\nrate = \"1/s\"\n{addresses}\n")).expect("it is good")
        };
        let own = Own {
            rate: Some("9/s".into()),
            ..Own::default()
        };
        let set = |limits: &Limits, domain| limits.with_own("a", domain, Some(&own)).expect("set");
        let one = set(&document(32), "10.0.0.7");
        let wide = document(24).with_rows_of(&one).expect("it fits");
        let class = wide.class_of("a", "10.0.0.0/24").expect("limits");
        assert_eq!((class.windows[0].limit, wide.rows_len()), (9, 1));
        let two = set(&one, "10.0.0.8");
        let error = document(24).with_rows_of(&two).expect_err("two of one");
        let beside = NotChanged::BesideDocument {
            resource: "a".into(),
            why: Box::new(NotChanged::SameNetwork("10.0.0.8".into())),
        };
        assert_eq!(error, beside);
    }

    #[test]
    fn a_document_costs_its_statements_and_not_its_rows() {
        let document = |rate: u64| {
            let text = format!("[rate.r]\nrate = \"{rate}/s\"\ndomains.d7.hard = \"9/s\"\n");
            Limits::parse(&text).expect("it is good")
        };
        let mut revision = Revision::of(&document(1));
        for n in 0..20_000u64 {
            let own = Own {
                rate: Some(format!("{}/s", 1 + n % 7).into()),
                ..Own::default()
            };
            let set = revision.set("r", &format!("d{n}"), Some(&own));
            set.expect("it can be set");
        }
        let before = revision.limits();
        let after = document(2).with_rows_of(&before).expect("they fit");
        let rows = |limits: &Limits| limits.rate("r").expect("r").rows.overrides().count();
        // Seven statements, and the domain that the document names.
        assert_eq!((rows(&before), rows(&after)), (8, 8));
        let class = after.class_of("r", "d7").expect("limits");
        assert_eq!((class.windows[0].limit, class.hard), (1, Some(9)));
        assert_eq!(after.rows_len(), 20_000);
    }

    #[test]
    fn a_statement_without_rows_is_removed() {
        let document = Limits::parse("[rate.r]\nrate = \"1/s\"\n").expect("it is good");
        let mut limits = document;
        for n in 1..500 {
            let own = Own {
                rate: Some(format!("{n}/s").into()),
                ..Own::default()
            };
            limits = limits.with_own("r", "d", Some(&own)).expect("it can be");
        }
        let rate = limits.rate("r").expect("r");
        assert_eq!(rate.rows.overrides().count(), 1);
        assert_eq!(rate.overrides().count(), 1);
    }
}
