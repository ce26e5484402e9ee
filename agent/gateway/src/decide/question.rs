//! A question to `/v1/decide`, as it is read: its fields and their bounds.
//!
//! Knows nothing of agents. What stays true: a question with a fault anywhere is refused as a whole, with the place of
//! the fault and what was expected.

use std::time::Duration;

use serde::Deserialize;
use tollgate_shared::log_lines::excerpt;
use tollgate_shared::names::{NAME_BYTES_MAX, check_name};
use tollgate_shared::object::{JsonObject, objects};

use super::numbers::{whole, whole_or_null};

/// The most hits, estimates, holds and other entries of one question together.
const HITS_MAX: usize = 1_000;

/// The longest wait for copies. Aggregators answer within milliseconds, or are not there.
const CONFIRMED_MS_MAX: u64 = 10_000;

/// The longest lease: a day. A service that needs it longer renews it.
const LEASE_MS_MAX: u64 = 86_400_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AskedHits {
    #[serde(deserialize_with = "objects")]
    pub hits: Vec<AskedHit>,
    #[serde(deserialize_with = "objects")]
    pub estimates: Vec<AskedHit>,
    #[serde(deserialize_with = "objects")]
    pub holds: Vec<AskedHold>,
    #[serde(deserialize_with = "objects")]
    pub settle: Vec<AskedSettling>,
    #[serde(deserialize_with = "objects")]
    pub renew: Vec<AskedRenewal>,
    pub release: Vec<String>,
    pub all_or_none: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedHit {
    pub resource: String,
    pub domain: String,
    #[serde(default, deserialize_with = "whole_or_null")]
    pub copies: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedHold {
    pub resource: String,
    pub domain: String,
    #[serde(default, deserialize_with = "whole_or_null")]
    pub copies: Option<u32>,
    #[serde(deserialize_with = "whole")]
    pub lease_ms: u64,
    /// For strict resources: how long to wait for an aggregator's grant.
    #[serde(default, deserialize_with = "whole_or_null")]
    pub confirmed_within_ms: Option<u64>,
}

impl AskedHold {
    pub fn copies(&self) -> u32 {
        self.copies.unwrap_or(1)
    }

    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedSettling {
    pub estimate: String,
    #[serde(deserialize_with = "whole")]
    pub actual: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedRenewal {
    pub hold: String,
    #[serde(deserialize_with = "whole")]
    pub lease_ms: u64,
}

/// Reads a question.
pub(super) fn read(body: &[u8]) -> Result<AskedHits, String> {
    let question = parse(body)?;
    let decided = question.hits.len() + question.estimates.len() + question.holds.len();
    let acts = question.settle.len() + question.renew.len() + question.release.len();
    if decided + acts == 0 || HITS_MAX < decided + acts {
        let found = decided + acts;
        return Err(format!(
            "{found} entries: expected 1 to {HITS_MAX} in hits, estimates, holds, settle, renew and release together"
        ));
    }
    if question.all_or_none && (!question.estimates.is_empty() || decided == 0) {
        return Err("all_or_none: expected hits and holds, and no estimates".to_owned());
    }
    let of_hits = [("hits", &question.hits), ("estimates", &question.estimates)];
    for (list, asked) in of_hits {
        for (index, asked) in asked.iter().enumerate() {
            check_resource((list, index), &asked.resource)?;
        }
    }
    for (index, asked) in question.holds.iter().enumerate() {
        let place = ("holds", index);
        check_resource(place, &asked.resource)?;
        check(place, "lease_ms", asked.lease_ms, LEASE_MS_MAX)?;
        if let Some(within) = asked.confirmed_within_ms {
            check(place, "confirmed_within_ms", within, CONFIRMED_MS_MAX)?;
        }
    }
    for (index, asked) in question.renew.iter().enumerate() {
        check(("renew", index), "lease_ms", asked.lease_ms, LEASE_MS_MAX)?;
    }
    Ok(question)
}

/// Reads the JSON of a question. A fault has its place, and the form of an entry there.
fn parse(body: &[u8]) -> Result<AskedHits, String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let of_text = |error: serde_json::Error| format!("{error}; expected {}", form_of("hits"));
    let read = serde_path_to_error::deserialize(&mut json);
    let JsonObject(question) = read.map_err(|fault| match fault.path().to_string() {
        root if root == "." => of_text(fault.into_inner()),
        place => {
            let list = place.split('[').next().unwrap_or_default();
            format!("{place}: {}; expected {}", fault.inner(), form_of(list))
        }
    })?;
    json.end().map_err(of_text)?;
    Ok(question)
}

/// A question with one entry in this list.
fn form_of(list: &str) -> &'static str {
    match list {
        "estimates" => r#"{"estimates": [{"resource": …, "domain": …, "copies": 800}]}"#,
        "holds" => r#"{"holds": [{"resource": …, "domain": …, "copies": 1, "lease_ms": 30000}]}"#,
        "settle" => r#"{"settle": [{"estimate": ID, "actual": 620}]}"#,
        "renew" => r#"{"renew": [{"hold": ID, "lease_ms": 30000}]}"#,
        "release" => r#"{"release": [ID]}"#,
        "all_or_none" => r#"{"all_or_none": true, "hits": […], "holds": […]}"#,
        _ => r#"{"hits": [{"resource": …, "domain": …, "copies": 1}]}"#,
    }
}

/// Checks the resource of the entry at this place in a list. The agent would count any other name than limits may have
/// under a name that no limits mean.
fn check_resource((list, index): (&str, usize), resource: &str) -> Result<(), String> {
    check_name(resource).map_err(|_| {
        let found = excerpt(resource);
        format!(
            "{list}[{index}].resource = \"{found}\": expected a name of 1 to {NAME_BYTES_MAX} bytes without `*` and \
             control characters"
        )
    })
}

/// Checks a number of the entry at this place in a list.
fn check((list, index): (&str, usize), field: &str, found: u64, most: u64) -> Result<(), String> {
    match (1..=most).contains(&found) {
        true => Ok(()),
        false => Err(format!(
            "{list}[{index}].{field} = {found}: expected 1 to {most}"
        )),
    }
}
