//! Changes some values of a limits document.
//!
//! Text in, text out: comments and order are preserved. The result is not validated here, but by its reader. Knows
//! nothing of versions and logs. What stays true: only the stated values change; changes that cannot be applied are
//! all refused together, each with its place.

use std::str::FromStr as _;

use tollgate_limits::Own;
use toml_edit::{DocumentMut, Item, RawString, Table, TableLike, Value, value};

/// Faults that are listed; of further ones only the number is shown.
const FAULTS_SHOWN: usize = 20;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEdit {
    /// The resource.
    pub resource: String,
    /// The domain; `None`: the default of all domains without own limits.
    pub domain: Option<String>,
    /// The new limits; `None`: the domain's own limits are removed.
    pub own: Option<Own>,
}

/// Changes that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoEdit(pub String);

/// The document with the changes. Each change comes with a place, for error messages.
///
/// # Errors
///
/// If a resource is not configured, or is of the other kind: all such changes are listed.
pub fn apply(text: &str, changes: &[(String, TextEdit)]) -> Result<String, NoEdit> {
    let bad = |error: toml_edit::TomlError| NoEdit(error.to_string());
    let mut document = DocumentMut::from_str(text).map_err(bad)?;
    let mut faults = FaultList::default();
    for (place, change) in changes {
        if let Err(why) = apply_one(&mut document, change) {
            faults.push(|| format!("{place}: resource \"{}\": {why}", change.resource));
        }
    }
    let edited = with_line_ends_of(text, document.to_string());
    faults.or(edited).map_err(NoEdit)
}

/// An edited document with the line ends of the one before. The editor ends each line with LF; if all lines ended with
/// CRLF, they still do.
pub(super) fn with_line_ends_of(before: &str, edited: String) -> String {
    let count = before.matches('\n').count();
    match 0 < count && before.matches("\r\n").count() == count {
        true => edited.replace("\r\n", "\n").replace('\n', "\r\n"),
        false => edited,
    }
}

/// Faults for people: the first ones, and the number of the rest.
#[derive(Debug, Default)]
pub struct FaultList {
    shown: Vec<String>,
    count: usize,
}

impl FaultList {
    /// Adds a fault.
    pub fn push(&mut self, fault: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= FAULTS_SHOWN {
            self.shown.push(fault());
        }
    }

    /// The value, or the text of all faults if there are any.
    ///
    /// # Errors
    ///
    /// If there are faults.
    pub fn or<T>(self, value: T) -> Result<T, String> {
        let mut text = self.shown.join("\n");
        if FAULTS_SHOWN < self.count {
            text += &format!("\nand {} more", self.count - FAULTS_SHOWN);
        }
        match self.count {
            0 => Ok(value),
            _ => Err(text),
        }
    }
}

fn apply_one(document: &mut DocumentMut, change: &TextEdit) -> Result<(), String> {
    if change.own == Some(Own::default()) {
        return Err("no limits are stated for it".to_owned());
    }
    let name = &*change.resource;
    let is = |kind: &str| {
        let kind = document.get(kind).and_then(Item::as_table_like);
        kind.is_some_and(|resources| resources.contains_key(name))
    };
    let kind = match (is("rate"), is("copies")) {
        (true, _) => "rate",
        (_, true) => "copies",
        _ => return Err("it is not configured".to_owned()),
    };
    let fits = |stated: &Own| match kind {
        "rate" => stated.limit.is_none(),
        _ => stated.rate.is_none() && stated.hard.is_none(),
    };
    if change.own.as_ref().is_some_and(|stated| !fits(stated)) {
        return Err(match kind {
            "rate" => "it is limited by hits: expected a rate or a hard limit".to_owned(),
            _ => "it is limited by copies: expected a limit".to_owned(),
        });
    }
    let resource = document
        .get_mut(kind)
        .and_then(Item::as_table_like_mut)
        .and_then(|resources| resources.get_mut(name))
        .and_then(Item::as_table_like_mut)
        .ok_or("expected a table")?;
    match (&change.domain, &change.own) {
        (None, None) => Err("limits of all domains cannot be removed".to_owned()),
        (None, Some(stated)) => {
            state(resource, stated);
            Ok(())
        }
        (Some(domain), None) => {
            let domains = resource
                .get_mut("domains")
                .and_then(Item::as_table_like_mut);
            let removed = domains.and_then(|domains| domains.remove(domain));
            removed
                .map(drop)
                .ok_or(format!("domain \"{domain}\" has no limits of its own"))
        }
        (Some(domain), Some(stated)) => {
            let domains = table_in(resource, "domains").ok_or("domains: expected a table")?;
            if let Some(copies) = stated.limit {
                put(domains, domain, number(copies));
                return Ok(());
            }
            let own = table_in(domains, domain).ok_or("expected a table of the domain")?;
            state(own, stated);
            Ok(())
        }
    }
}

/// Sets the stated values, and removes those that they replace.
fn state(table: &mut dyn TableLike, stated: &Own) {
    if let Some(rate) = &stated.rate {
        let comments: String = ["tiers", "windows", "bucket"]
            .into_iter()
            .filter_map(|key| remove(table, key))
            .collect();
        put(table, "rate", (&**rate).into());
        precede(table, "rate", &comments);
    }
    if let Some(hard) = &stated.hard {
        put(table, "hard", (&**hard).into());
    }
    if let Some(copies) = stated.limit {
        put(table, "limit", number(copies));
    }
}

/// Removes a value. Returns the comments above it.
pub(super) fn remove(table: &mut dyn TableLike, key: &str) -> Option<String> {
    let above = comments_above(table, key);
    table.remove(key);
    above
}

/// The comments above a value, or above the heading of a table.
pub(super) fn comments_above(table: &dyn TableLike, key: &str) -> Option<String> {
    let above = match table.get(key)? {
        Item::Table(of) => of.decor().prefix(),
        _ => table.key(key)?.leaf_decor().prefix(),
    };
    let above = above.and_then(RawString::as_str).unwrap_or_default();
    above.contains('#').then(|| above.to_owned())
}

/// Puts comments above a value, and above those that it has.
pub(super) fn precede(table: &mut dyn TableLike, key: &str, comments: &str) {
    if let Some(mut key) = table.key_mut(key)
        && !comments.is_empty()
    {
        let decor = key.leaf_decor_mut();
        let own = decor.prefix().and_then(RawString::as_str);
        let all = format!("{comments}{}", own.unwrap_or_default());
        decor.set_prefix(all);
    }
}

/// TOML integers have a smaller range than limits; a limit beyond it is refused when the document is read.
fn number(copies: u64) -> Value {
    i64::try_from(copies).unwrap_or(i64::MAX).into()
}

/// Replaces a value, keeping the white space and comments around it.
fn put(table: &mut dyn TableLike, key: &str, mut new: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => drop(table.insert(key, value(new))),
    }
}

/// A table within another: the existing one, or a new one.
fn table_in<'t>(table: &'t mut dyn TableLike, key: &str) -> Option<&'t mut dyn TableLike> {
    if !table.contains_key(key) {
        let mut new = Table::new();
        // A heading is only written if something stands under it.
        new.set_implicit(true);
        table.insert(key, Item::Table(new));
    }
    table.get_mut(key)?.as_table_like_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limits::Limits;

    const DOCUMENT: &str = r#"# ours
version = 1
rules = 2
[rate."api.search"]
hard = "200/s"   # of one domain
tiers = [{ limit = 100, window = "1s", active = "1s" }]
[rate."api.search".domains."203.0.113.7"]
rate = "5/s"
[copies.sandbox]
limit = 10
domains = { acme = 50 }
"#;

    fn set(resource: &str, domain: Option<&str>, own: Option<Own>) -> (String, TextEdit) {
        let change = TextEdit {
            resource: resource.to_owned(),
            domain: domain.map(str::to_owned),
            own,
        };
        ("here".to_owned(), change)
    }

    fn rate(rate: &str) -> Option<Own> {
        Some(Own {
            rate: Some(rate.into()),
            ..Own::default()
        })
    }

    fn limit(copies: u64) -> Option<Own> {
        Some(Own {
            limit: Some(copies),
            ..Own::default()
        })
    }

    fn applied(changes: &[(String, TextEdit)]) -> String {
        let text = apply(DOCUMENT, changes).expect("good changes");
        assert!(Limits::parse(&text).is_ok(), "{text}");
        text
    }

    #[test]
    fn an_edit_changes_only_what_it_states() {
        assert_eq!(applied(&[]), DOCUMENT);
        let text = applied(&[
            set("api.search", Some("203.0.113.7"), rate("9/s")),
            set("api.search", Some("new, inc"), rate("7/s")),
            set("sandbox", Some("acme"), limit(51)),
            set("sandbox", Some("globex"), limit(3)),
        ]);
        let new = "[rate.\"api.search\".domains.\"new, inc\"]\nrate = \"7/s\"\n";
        let expected = DOCUMENT
            .replace("5/s\"\n", &format!("9/s\"\n{new}"))
            .replace("{ acme = 50 }", "{ acme = 51 , globex = 3 }");
        let plain = |text: &str| text.replace([' ', '\n'], "");
        assert_eq!(plain(&text), plain(&expected), "{text}");
        let text = applied(&[
            set("api.search", None, rate("8/s")),
            set("sandbox", None, limit(4)),
        ]);
        assert!(!text.contains("tiers") && text.contains("hard = \"200/s\"   # of one domain"));
        assert!(text.contains("limit = 4\n"), "{text}");
    }

    #[test]
    fn a_rate_replaces_tiers_windows_and_bucket_and_keeps_comments() {
        for stated in [
            "tiers = [{ limit = 100, window = \"1s\", active = \"1s\" }]",
            "windows = [\"5/s\"]",
            "bucket = { rate = \"100/s\", burst = 200 }",
        ] {
            let before =
                format!("[rate.a]\nhard = \"9/s\"\n# ask before raising\n{stated} # agreed\n");
            let change = set("a", None, rate("8/s"));
            let text = apply(&before, &[change]).expect("a good change");
            let expected = "[rate.a]\nhard = \"9/s\"\n# ask before raising\nrate = \"8/s\"\n";
            assert_eq!(text, expected);
            assert!(Limits::parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_edit_keeps_line_ends() {
        let crlf = |text: &str| text.replace('\n', "\r\n");
        let changes = [set("api.search", None, rate("8/s"))];
        let edited = apply(&crlf(DOCUMENT), &changes).expect("a good change");
        assert_eq!(edited, crlf(&applied(&changes)));
        let mixed = DOCUMENT.replacen('\n', "\r\n", 2);
        let edited = apply(&mixed, &changes).expect("a good change");
        assert_eq!(edited, applied(&changes), "of lines with both ends, LF");
    }

    #[test]
    fn a_domains_own_limits_are_removed_once() {
        let gone = set("sandbox", Some("acme"), None);
        let text = applied(std::slice::from_ref(&gone));
        assert!(!text.contains("acme"), "{text}");
        let again = apply(&text, &[gone]).expect_err("gone already");
        assert_eq!(
            again.to_string(),
            "here: resource \"sandbox\": domain \"acme\" has no limits of its own"
        );
    }

    #[test]
    fn settings_that_cannot_change_are_reported_together() {
        let bad = [
            set("nobody", None, rate("1/s")),
            set("sandbox", Some("acme"), rate("1/s")),
            set("api.search", Some("acme"), limit(1)),
            set("api.search", Some("acme"), Some(Own::default())),
        ];
        let error = apply(DOCUMENT, &bad).expect_err("bad").to_string();
        assert_eq!(error.lines().count(), 4, "{error}");
        assert!(error.contains("not configured") && error.contains("limited by copies"));
    }
}
