//! `limits compare`, and the text of `limits promote`: what a candidate would have done, and putting it in force.
//!
//! ```text
//! RESOURCE    LET THROUGH  BEYOND  REFUSED CALLS  CANDIDATE REFUSES  NEWLY  NO LONGER  DENIALS  SINCE
//! api.search  1000         3       12             43                 40     0          3        2026-02-20T05:00:45Z
//! ```
//!
//! `compare` asks an aggregator; `promote` changes a document's text, in the log or in a file, and leaves the rest
//! of it unchanged. Knows nothing of how candidates rule. What stays true: calls that the limits in force refused
//! were not ruled by a candidate, and the output states that.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;

use clap::Args;
use serde::Serialize;
use tollgate_api::candidates::{
    CandidateDenialView, CandidateFigures, CandidateView, CandidatesView,
};
use toml_edit::{DocumentMut, Item, TableLike};

use tollgate_limits::Limits;

use super::Global;
use super::document_edit::{comments_above, precede, remove, with_line_ends_of};
use super::operator::{Spoken, ended, get, limits_in_force};
use super::output::{Format, Output};
use crate::exit::{Exit, Failure};
use tollgate_shared::escape::escaped;

/// The usual constraints: a candidate that states one of these replaces all of them.
const USUAL: [&str; 4] = ["rate", "windows", "bucket", "tiers"];

/// Denials that are shown of each candidate.
const NEWEST_MAX: usize = 20;

/// What `limits compare` takes.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct CompareArgs {
    /// Only this resource, or the resources that this pattern limits
    #[arg(long, value_parser = super::operator::configured_name)]
    resource: Option<String>,
    #[command(flatten)]
    spoken: Spoken,
}

/// One resource, summed over partitions.
#[derive(Debug, Serialize)]
struct Compared {
    schema: &'static str,
    version: u64,
    resource: String,
    /// Since when, by the log, everything is counted: from the first record that was ruled by both, or from when the
    /// last partition was taken over; null: none yet.
    from_us: Option<u64>,
    to_us: Option<u64>,
    #[serde(flatten)]
    figures: CandidateFigures,
    newest: Vec<CandidateDenialView>,
}

/// The comparisons of one resource, by partition, and the name under which limits give it its candidate.
#[derive(Default)]
struct Parts<'a> {
    configured: &'a str,
    parts: Vec<&'a CandidateView>,
}

/// The comparisons by resource. A pattern limits each resource by itself, so its place is taken by the resources that
/// it limits, once there are hits on one of them.
fn by_resource(answer: &CandidatesView) -> BTreeMap<&str, Parts<'_>> {
    let configured_for = |resource: &str| {
        let names = answer.configured.iter().map(|name| &**name);
        let limits = |name: &&str| match name.strip_suffix('*') {
            Some(literal) => resource.starts_with(literal),
            None => *name == resource,
        };
        names
            .filter(limits)
            .max_by_key(|name| (*name == resource, name.len()))
    };
    let mut found: BTreeMap<&str, Parts<'_>> = BTreeMap::new();
    for of in &answer.candidates {
        if let Some(of_resource) = found.get_mut(&*of.resource) {
            of_resource.parts.push(of);
        } else if let Some(configured) = configured_for(&of.resource) {
            let parts = vec![of];
            found.insert(&of.resource, Parts { configured, parts });
        }
    }
    let counted: BTreeSet<&str> = found.values().map(|of| of.configured).collect();
    for configured in answer.configured.iter().map(|name| &**name) {
        if !counted.contains(configured) {
            let parts = Vec::new();
            found.insert(configured, Parts { configured, parts });
        }
    }
    found
}

impl Compared {
    fn of(answer: &CandidatesView, resource: &str, parts: &[&CandidateView]) -> Self {
        let parts = || parts.iter();
        let mut newest: Vec<CandidateDenialView> =
            parts().flat_map(|of| of.newest.iter().cloned()).collect();
        newest.sort_by(|a, b| (b.at_us, &a.domain).cmp(&(a.at_us, &b.domain)));
        newest.truncate(NEWEST_MAX);
        Self {
            schema: "tollgate.candidates/1",
            version: answer.version,
            resource: resource.to_owned(),
            from_us: { parts().map(|of| of.from_us).min() }
                .map(|first| first.max(answer.counting_from_us)),
            to_us: parts().map(|of| of.to_us).max(),
            figures: parts().fold(CandidateFigures::default(), |sum, of| sum.and(&of.figures)),
            newest,
        }
    }
}

/// Shows candidates beside limits. If a partition could not answer, it exits with 1.
///
/// # Errors
///
/// If no aggregator answers (69), or there is no such candidate (65).
pub fn compare(global: &Global, args: &CompareArgs) -> Result<Exit, Failure> {
    let answer: CandidatesView = get(&args.spoken.url, "/v1/candidates", &[])?;
    let mut found = by_resource(&answer);
    if let Some(wanted) = args.resource.as_deref() {
        found.retain(|resource, of| *resource == wanted || of.configured == wanted);
        if found.is_empty() {
            if !is_on_trial(&args.spoken.url, wanted)? {
                return Err(Failure::Data(format!(
                    "resource \"{}\" has no candidate in limits version {}",
                    escaped(wanted),
                    answer.version
                )));
            }
            found.insert(wanted, Parts::default());
        }
    }
    let compared = found.iter();
    let compared = compared.map(|(resource, of)| Compared::of(&answer, resource, &of.parts));
    let compared: Vec<Compared> = compared.collect();
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => {
            for of in &compared {
                output.json(of)?;
            }
        }
        Format::Text if compared.is_empty() => {
            let version = answer.version;
            output.line(format_args!("limits version {version} has no candidates"))?;
        }
        Format::Text => print(&compared, &mut output)?,
    }
    output.finish()?;
    Ok(ended(&answer.partitions_missing))
}

/// Whether a resource has a candidate in the limits in force: a pattern may give it one before the first hit.
fn is_on_trial(url: &str, resource: &str) -> Result<bool, Failure> {
    // A pattern is found by its whole name, which has been compared already.
    if resource.ends_with('*') {
        return Ok(false);
    }
    let limits = limits_in_force(url)?;
    let rate = limits.rate(resource);
    Ok(rate.is_some_and(|rate| rate.candidate().is_some()))
}

fn print(compared: &[Compared], output: &mut Output) -> Result<(), Failure> {
    let head = [
        "RESOURCE",
        "LET THROUGH",
        "BEYOND",
        "REFUSED CALLS",
        "CANDIDATE REFUSES",
        "NEWLY",
        "NO LONGER",
        "DENIALS",
        "SINCE",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(compared.iter().map(|of| {
        let figures = &of.figures;
        [
            of.resource.clone(),
            figures.let_through.to_string(),
            figures.excess.to_string(),
            figures.refused_calls.to_string(),
            figures.candidate_refused.to_string(),
            figures.newly_refused.to_string(),
            figures.no_longer_refused.to_string(),
            figures.candidate_denials.to_string(),
            of.from_us.map_or_else(|| "-".to_owned(), instant),
        ]
    }));
    output.columns(&rows)?;
    for of in compared.iter().filter(|of| !of.newest.is_empty()) {
        output.line(format_args!(
            "\n{}: the newest denials that its candidate would have begun",
            escaped(&of.resource)
        ))?;
        for newest in &of.newest {
            let until = newest.end_us.map_or_else(|| "for ever".to_owned(), instant);
            let from = instant(newest.at_us);
            output.line(format_args!(
                "  {}  {from} to {until}",
                escaped(&newest.domain)
            ))?;
        }
    }
    if compared.iter().any(|of| of.from_us.is_some()) {
        output.line(
            "\nAn aggregator that starts, or takes a partition over, begins to count anew.",
        )?;
    }
    if compared.iter().any(|of| 0 < of.figures.refused_calls) {
        output.line(
            "\nCalls that agents refused under the limits in force were not tried against candidates: a looser candidate \
             would have granted some of them, and its numbers of refusals are lower bounds.",
        )?;
    }
    Ok(())
}

/// An instant in RFC 3339, to the millisecond.
pub(super) fn instant(us: u64) -> String {
    let at = i64::try_from(us)
        .ok()
        .map(jiff::Timestamp::from_microsecond);
    match at {
        Some(Ok(at)) => format!("{at:.3}"),
        _ => us.to_string(),
    }
}

/// The document with a resource's limits replaced by its candidate.
///
/// # Errors
///
/// If there is no such candidate, or the document is invalid (65).
pub fn promoted(text: &str, resource: &str) -> Result<String, Failure> {
    // A fault may be just where the candidate goes, and would be gone afterwards.
    if let Err(faults) = Limits::parse(text) {
        return Err(Failure::Data(faults.to_string()));
    }
    let bad = |error: toml_edit::TomlError| Failure::Data(error.to_string());
    let mut document = DocumentMut::from_str(text).map_err(bad)?;
    let table = document
        .get_mut("rate")
        .and_then(Item::as_table_like_mut)
        .and_then(|resources| resources.get_mut(resource))
        .and_then(Item::as_table_like_mut);
    let none = || {
        Failure::Data(format!(
            "resource \"{}\" has no candidate",
            escaped(resource)
        ))
    };
    let table = table.ok_or_else(none)?;
    let mut comments = comments_above(table, "candidate").unwrap_or_default();
    let candidate = table.remove("candidate").ok_or_else(none)?;
    let candidate = candidate.as_table_like().ok_or_else(none)?;
    let is_stated = |key: &&str| {
        let value = candidate.get(key);
        value.is_some_and(|value| value.as_str() != Some("none"))
    };
    if USUAL.iter().any(is_stated) {
        let gone = USUAL.iter().filter(|key| !candidate.contains_key(key));
        let above: String = gone.filter_map(|key| remove(table, key)).collect();
        comments.insert_str(0, &above);
    }
    // The two are one setting, which a document states by one of them.
    for [own, other] in [["rate", "windows"], ["windows", "rate"]] {
        if candidate.contains_key(own) && !candidate.contains_key(other) {
            comments.insert_str(0, &remove(table, other).unwrap_or_default());
        }
    }
    for (key, value) in candidate.iter() {
        let above = comments_above(candidate, key);
        replace(table, key, value);
        comments.push_str(&above.unwrap_or_default());
        precede(table, key, &std::mem::take(&mut comments));
    }
    let text = with_line_ends_of(text, document.to_string());
    match Limits::parse(&text) {
        Ok(_) => Ok(text),
        Err(faults) => Err(Failure::Data(faults.in_file("as promoted").to_string())),
    }
}

/// Inserts a value, in the place of an existing one if there is one.
fn replace(table: &mut dyn TableLike, key: &str, new: &Item) {
    match (
        table.get_mut(key).and_then(Item::as_value_mut),
        new.as_value(),
    ) {
        (Some(old), Some(new)) => {
            let mut decor = old.decor().clone();
            *old = new.clone();
            // A comment behind the new value is about the new value.
            let behind = new.decor().suffix();
            let behind = behind.filter(|text| text.as_str().is_some_and(|text| text.contains('#')));
            if let Some(behind) = behind {
                decor.set_suffix(behind.clone());
            }
            *old.decor_mut() = decor;
        }
        _ => drop(table.insert(key, new.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_begins_where_all_partitions_are_counted() {
        let part = |partition, from_us, to_us| {
            serde_json::json!({
                "resource": "a", "partition": partition, "from_us": from_us, "to_us": to_us, "newest": [],
            })
        };
        let figures = serde_json::to_value(CandidateFigures::default()).expect("JSON");
        let of = |counting_from_us: u64| {
            let mut parts = [part(0, 50, 90), part(1, 60, 80)];
            for part in &mut parts {
                let fields = part.as_object_mut().expect("an object");
                fields.extend(figures.as_object().expect("an object").clone());
            }
            let answer = serde_json::json!({
                "schema": "tollgate.candidates/1", "version": 1, "counting_from_us": counting_from_us,
                "configured": ["a"], "candidates": parts, "partitions_missing": [],
            });
            let answer: CandidatesView = serde_json::from_value(answer).expect("a view");
            let found = by_resource(&answer);
            let compared = Compared::of(&answer, "a", &found["a"].parts);
            (compared.from_us, compared.to_us)
        };
        assert_eq!(of(20), (Some(50), Some(90)), "the candidate is younger");
        assert_eq!(of(70), (Some(70), Some(90)), "a partition was taken over");
    }

    const DOCUMENT: &str = r#"# ours
version = 1
rules = 2
[rate."api.search"]
hard = "200/s"   # of one domain
tiers = [{ limit = 100, window = "1s", active = "1s" }]
[rate."api.search".domains.acme]
rate = "5/s"
[rate."api.search".candidate]     # next week
rate = "80/s"
[rate.export]
rate = "5/s"                      # hourly
candidate = { tiers = [{ limit = 9, window = "1s", active = "3s" }], hard = "7/s" }
"#;

    #[test]
    fn promoting_a_candidate_changes_only_what_it_states() {
        let text = promoted(DOCUMENT, "api.search").expect("it has one");
        let expected = DOCUMENT
            .replace(
                "tiers = [{ limit = 100, window = \"1s\", active = \"1s\" }]\n",
                "rate = \"80/s\"\n",
            )
            .replace(
                "[rate.\"api.search\".candidate]     # next week\nrate = \"80/s\"\n",
                "",
            );
        assert_eq!(text, expected);
        let crlf = |text: &str| text.replace('\n', "\r\n");
        let with_crlf = promoted(&crlf(DOCUMENT), "api.search").expect("it has one");
        assert_eq!(with_crlf, crlf(&expected));
        let text = promoted(&text, "export").expect("it has one");
        let limits = Limits::parse(&text).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
        let class = limits.class_of("export", "anybody").expect("limits");
        assert_eq!((class.hard, class.tiers()[0].limit), (Some(7), 9));
        let class = limits.class_of("api.search", "anybody").expect("limits");
        assert_eq!((class.hard, class.windows[0].limit), (Some(200), 80));
        assert!(limits.rates().all(|rate| rate.candidate().is_none()));
    }

    #[test]
    fn promoting_a_candidate_keeps_comments() {
        let text = r#"[rate.x]
# owner: team-search
tiers = [{ limit = 100, window = "1s", active = "1s" }]
hard = "200/s" # agreed in March
# on trial, ticket 123
[rate.x.candidate]
# of the trial
rate = "80/s"
hard = "90/s"   # ticket 123
"#;
        let expected = r#"[rate.x]
hard = "90/s"   # ticket 123
# owner: team-search
# on trial, ticket 123
# of the trial
rate = "80/s"
"#;
        assert_eq!(promoted(text, "x").expect("it has one"), expected);
    }

    #[test]
    fn a_candidate_of_any_constraint_takes_its_place_whole() {
        let promoted = |limits: &str, candidate: &str| {
            let text = format!("[rate.x]\n{limits}\n[rate.x.candidate]\n{candidate}\n");
            let text = promoted(&text, "x").unwrap_or_else(|failure| panic!("{failure}"));
            let limits = Limits::parse(&text).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
            limits.class_of("x", "anybody").expect("limits").clone()
        };
        let bucket = promoted(
            "windows = [\"9/s\", \"99/m\"]",
            "bucket = { rate = \"5/s\", burst = 7 }\nquota = [\"8/day\"]\nzone = \"+01:00\"\nrefunds = false",
        );
        assert_eq!(
            (bucket.windows.len(), bucket.bucket.map(|of| of.burst)),
            (0, Some(7))
        );
        assert_eq!(
            (bucket.quotas[0].limit, bucket.quotas[0].zone.name()),
            (8, "+01:00")
        );
        assert!(!bucket.refunds);
        let windows = promoted(
            "bucket = { rate = \"5/s\", burst = 7 }",
            "windows = [\"9/s\", \"99/m\"]",
        );
        assert_eq!((windows.windows.len(), windows.bucket), (2, None));
        let none = promoted(
            "rate = \"9/s\"\nbucket = { rate = \"5/s\", burst = 7 }",
            "bucket = \"none\"",
        );
        assert_eq!((none.windows[0].limit, none.bucket), (9, None));
    }

    #[test]
    fn a_candidate_of_windows_takes_the_place_of_a_rate() {
        for (limits, candidate, expected) in [
            ("rate = \"100/s\"", "windows = \"none\"\nhard = \"5/s\"", 0),
            (
                "windows = [\"100/s\"]",
                "rate = \"none\"\nhard = \"5/s\"",
                0,
            ),
            ("rate = \"100/s\"", "windows = [\"9/s\", \"99/m\"]", 2),
            ("windows = [\"9/s\", \"99/m\"]", "rate = \"100/s\"", 1),
            ("rate = \"100/s\"", "hard = \"5/s\"", 1),
        ] {
            let text = format!("[rate.x]\n# ours\n{limits}\n[rate.x.candidate]\n{candidate}\n");
            let text = promoted(&text, "x").unwrap_or_else(|failure| panic!("{failure}\n{text}"));
            let limits = Limits::parse(&text).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
            let class = limits.class_of("x", "anybody").expect("limits");
            assert_eq!(class.windows.len(), expected, "{text}");
            assert!(text.contains("# ours"), "{text}");
        }
    }

    #[test]
    fn a_document_with_faults_is_not_promoted() {
        let text = "[rate.x]\nrate = \"9/s\"\ndomains.acme = { rate = \"5/s\", hard = \"7/s\" }\n\
            [rate.x.candidate]\nrate = \"8/s\"\ndomains.acme = { rate = \"6/s\" }\n";
        let faults = Limits::parse(text).expect_err("it has a fault");
        let error = promoted(text, "x").expect_err("it has a fault");
        assert_eq!(error.to_string(), faults.to_string());
    }

    #[test]
    fn a_resource_without_a_candidate_is_reported() {
        for resource in ["export.all", "api"] {
            let error = promoted(DOCUMENT, resource).expect_err("none").to_string();
            assert!(error.contains("has no candidate"), "{error}");
        }
        let text = promoted(DOCUMENT, "export").expect("it has one");
        assert!(promoted(&text, "export").is_err());
    }
}
