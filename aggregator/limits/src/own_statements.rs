//! Reads an operator's statement about a domain as in a document, each different statement once.
//!
//! Knows nothing of the domain's earlier statement. What stays true: an accepted statement could be in
//! a document, and fits into a record.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_shared::names::{NAME_BYTES_MAX, check_name};

use super::own::{NotChanged, Own};
use super::stated::Stated;
use super::toml_text::TomlKey;
use super::version::Limits;

/// Statements that were read already: most domains state the same, and reading is most of the work.
#[derive(Debug, Default)]
pub(super) struct ReadStatements {
    rates: BTreeMap<Own, Stated>,
    copies: BTreeSet<Own>,
}

impl ReadStatements {
    /// A domain's statement about a rate-limited resource.
    pub fn stated_of(
        &mut self,
        resource: &str,
        domain: &str,
        own: &Own,
    ) -> Result<Stated, NotChanged> {
        let key = key_of(domain)?;
        if let Some(stated) = self.rates.get(own) {
            return Ok(stated.clone());
        }
        let stated = stated_of(resource, &key, own)?;
        self.rates.insert(own.clone(), stated.clone());
        Ok(stated)
    }

    /// A domain's statement about a copy-limited resource.
    pub fn limit_of(&mut self, resource: &str, domain: &str, own: &Own) -> Result<u64, NotChanged> {
        let key = key_of(domain)?;
        if let (Some(limit), true) = (own.limit, self.copies.contains(own)) {
            return Ok(limit);
        }
        let limit = limit_of(resource, &key, own)?;
        self.copies.insert(own.clone());
        Ok(limit)
    }
}

/// A domain's statement about a rate-limited resource, read as a document with that statement alone.
fn stated_of(resource: &str, domain: &TomlKey<'_>, own: &Own) -> Result<Stated, NotChanged> {
    if own.limit.is_some() || (own.rate.is_none() && own.hard.is_none()) {
        return Err(NotChanged::Kind {
            resource: resource.into(),
            by: "hits",
            expected: "a rate or a hard limit",
        });
    }
    for (field, stated) in [("rate", &own.rate), ("hard", &own.hard)] {
        if let Some(found) = stated.as_ref().map(|text| text.len())
            && NAME_BYTES_MAX < found
        {
            return Err(NotChanged::Long { field, found });
        }
    }
    let field = |name: &str, value: &Option<Box<str>>| {
        let value = value.as_ref().map(|value| toml::Value::from(&**value));
        value.map_or_else(String::new, |value| format!("{name} = {value}\n"))
    };
    let text = format!(
        "[rate.{r}]\nrate = \"1/s\"\n[rate.{r}.domains.{d}]\n{}{}",
        field("rate", &own.rate),
        field("hard", &own.hard),
        r = TomlKey(resource),
        d = domain,
    );
    let limits = parsed(&text)?;
    let of = limits
        .rate(resource)
        .and_then(|rate| rate.override_of(domain.0));
    Ok(of.map(|of| of.stated.clone()).unwrap_or_default())
}

fn limit_of(resource: &str, domain: &TomlKey<'_>, own: &Own) -> Result<u64, NotChanged> {
    let (None, None, Some(limit)) = (&own.rate, &own.hard, own.limit) else {
        return Err(NotChanged::Kind {
            resource: resource.into(),
            by: "copies",
            expected: "a limit",
        });
    };
    let text = format!(
        "[copies.{r}]\nlimit = 1\ndomains = {{ {d} = {limit} }}\n",
        r = TomlKey(resource),
        d = domain,
    );
    let limits = parsed(&text)?;
    let of = limits
        .copies(resource)
        .and_then(|copies| copies.override_of(domain.0));
    Ok(of.unwrap_or(limit))
}

/// Reads a generated document. Its line numbers mean nothing to the operator, so they are removed from
/// faults.
fn parsed(text: &str) -> Result<Limits, NotChanged> {
    Limits::parse(text).map_err(|mut faults| {
        for fault in &mut faults.list {
            (fault.line, fault.column) = (None, None);
        }
        NotChanged::Faults(faults)
    })
}

/// A name that a document may contain, in TOML notation.
fn key_of(domain: &str) -> Result<TomlKey<'_>, NotChanged> {
    match check_name(domain) {
        Ok(()) => Ok(TomlKey(domain)),
        Err(fault) => Err(NotChanged::Name {
            domain: domain.into(),
            fault,
        }),
    }
}
