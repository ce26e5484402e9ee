//! `tollgate pairs`: the state of a pair; without a command, the pairs with the most hits.
//!
//! ```text
//! $ tollgate pairs show api.search acme
//! api.search acme            partition 3, limits version 18
//! as of                      2026-11-25T12:00:41.250Z
//! hard                       41 of 200 counted in 1s
//! tier 1                     97 of 100 hits in its window
//! remaining                  3
//! denied                     for 1.2s still (tier 1, code 3-18250-0-1)
//! ```
//!
//! Asks an aggregator, which asks the ruling aggregator of the pair's partition. What stays true: a pair whose
//! partition no aggregator rules is not shown as one that was never hit; counts are those at the instant shown,
//! which ticks advance if there are no other records.

use serde::Deserialize;
use serde_json::Value;
use tollgate_api::denials::DenialView;
use tollgate_api::pairs::PairView;
use tollgate_limits::print_span;
use tollgate_shared::time::Span;

use super::Global;
use super::denials::span;
use super::limits_candidates::instant;
use super::operator::{self, Spoken, domain_on, ended, get, name};
use super::output::{Format, Output};
use super::top;
use crate::exit::{Exit, Failure};

/// What `pairs` takes.
#[derive(Debug, clap::Args)]
pub struct PairsArgs {
    /// What to do; without a command: lists the pairs with most hits
    #[command(subcommand)]
    verb: Option<PairsVerb>,
    #[command(flatten)]
    spoken: Spoken,
    /// Only this resource
    #[arg(long, value_parser = name)]
    resource: Option<String>,
    /// How many pairs to list at most
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=tollgate_server::core::usage::TOP_MAX as i64))]
    limit: u32,
}

#[derive(Debug, clap::Subcommand)]
enum PairsVerb {
    /// Shows the state of a pair: its tier, what counts in its windows, what is left, its denial
    Show {
        /// The resource
        #[arg(value_parser = name)]
        resource: String,
        /// The domain; without it, all domains together, under the global limit
        #[arg(value_parser = operator::domain)]
        domain: Option<String>,
    },
}

/// Runs the command. If a partition could not answer, it exits with 1.
///
/// # Errors
///
/// If the aggregator does not answer, or the output cannot be written.
pub fn run(global: &Global, args: &PairsArgs) -> Result<Exit, Failure> {
    let url = &args.spoken.url;
    let Some(PairsVerb::Show { resource, domain }) = &args.verb else {
        return top::show(global, url, "hits", args.resource.as_ref(), args.limit);
    };
    let query = [
        ("resource", Some(resource.clone())),
        (
            "domain",
            domain_on(global, url, Some(resource), domain.as_ref())?,
        ),
    ];
    let answer: Value = get(url, "/v1/pairs", &query)?;
    let pair = PairView::deserialize(&answer).map_err(|error| Failure::Data(error.to_string()))?;
    if pair.partitions_missing.is_empty() {
        let mut output = global.open_output()?;
        match global.format {
            Format::Json => output.json(&answer)?,
            Format::Text => print(&pair, &mut output)?,
        }
        output.finish()?;
    }
    Ok(ended(&pair.partitions_missing))
}

fn print(pair: &PairView, output: &mut Output) -> Result<(), Failure> {
    let rows: Vec<[String; 2]> = lines(pair)
        .into_iter()
        .map(|(what, text)| [what, text])
        .collect();
    output.columns(&rows)
}

/// The lines about a pair.
fn lines(pair: &PairView) -> Vec<(String, String)> {
    let PairView {
        resource,
        domain,
        partition,
        version,
        ..
    } = pair;
    let of_copies = pair.limited_by_copies && !pair.configured;
    let head = format!("partition {partition}, limits version {version}");
    let mut lines = vec![(format!("{resource} {domain}"), head)];
    let mut line = |what: &str, text: String| lines.push((what.to_owned(), text));
    if of_copies {
        let held = format!("on copies; for what is held: tollgate holds --resource {resource}");
        line("limits", held);
    } else if !pair.configured {
        line("limits", "none on hits of this resource".to_owned());
    }
    match &pair.state {
        None if of_copies => {}
        None => line(
            "state",
            "not hit lately: the aggregator has no state of this pair".to_owned(),
        ),
        Some(state) => {
            let (hits, limit) = (state.tier_hits, state.tier_limit);
            line("as of", instant(state.as_of_us));
            for of in &state.constraints {
                let over = print_span(Span::from_micros(of.span_us));
                let counted = format!("{} of {} counted in {over}", of.counted, of.limit);
                line(&of.name, counted);
            }
            if let Some(bucket) = &state.bucket {
                let level = format!("{} of {} left", bucket.level, bucket.burst);
                line("bucket", level);
            }
            let has_others = !state.constraints.is_empty() || state.bucket.is_some();
            match state.tier {
                0 if limit == 0 && has_others => {}
                0 => line("tier", "none is active".to_owned()),
                tier => line(
                    &format!("tier {tier}"),
                    format!("{hits} of {limit} hits in its window"),
                ),
            }
            let remaining = match state.remaining {
                u64::MAX => "unlimited".to_owned(),
                hits => hits.to_string(),
            };
            line("remaining", remaining);
        }
    }
    let denied = pair.denial.as_ref().map_or_else(
        || "no".to_owned(),
        |denial| {
            let DenialView { cause, code, .. } = denial;
            match denial.remaining_us {
                Some(left) => format!("for {} still ({cause}, code {code})", span(left)),
                None => format!("without end ({cause}, code {code})"),
            }
        },
    );
    line("denied", denied);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(view: Value) -> String {
        let pair = PairView::deserialize(&view).expect("a pair");
        let lines = lines(&pair).into_iter();
        lines
            .map(|(what, text)| format!("{what}: {text}\n"))
            .collect()
    }

    #[test]
    fn a_pair_of_copies_is_shown_by_its_denial() {
        let pair = serde_json::json!({
            "schema": "tollgate.pair/1", "resource": "sandbox", "domain": "d", "partition": 3, "configured": false,
            "limited_by_copies": true, "known": false, "version": 18, "state": null, "denial": null, "partitions_missing": [],
        });
        let pair = PairView::deserialize(&pair).expect("a pair");
        let shown: Vec<String> = { lines(&pair).into_iter() }
            .map(|(what, text)| format!("{what}: {text}"))
            .collect();
        let expected = [
            "sandbox d: partition 3, limits version 18",
            "limits: on copies; for what is held: tollgate holds --resource sandbox",
            "denied: no",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_pair_is_shown_with_tier_remainder_and_denial() {
        let mut view = serde_json::json!({
            "schema": "tollgate.pair/1", "resource": "r", "domain": "d", "partition": 3, "configured": true,
            "known": true, "version": 18,
            "state": {"tier": 1, "tier_limit": 100, "tier_hits": 97, "remaining": 3, "last_second": 41,
                "hard": 200, "bucket": null, "time_us": 1_700_000_000_250_000_u64,
                "as_of_us": 1_700_000_000_250_000_u64, "constraints": [
                    {"name": "hard", "limit": 200, "span_us": 1_000_000, "counted": 41}]},
            "denial": {"resource": "r", "scope": "pair", "domain": "d", "group": null, "cause": "tier 1",
                "limit": 100, "window_us": 1_000_000, "end_us": null, "remaining_us": 1_200_000,
                "code": "3-1-0-1", "partition": 3, "version": 18},
            "partitions_missing": [],
        });
        assert_eq!(
            text(view.clone()),
            "r d: partition 3, limits version 18\nas of: 2023-11-14T22:13:20.250Z\n\
             hard: 41 of 200 counted in 1s\ntier 1: 97 of 100 hits in its window\nremaining: 3\ndenied: for 1.2s still (tier 1, code 3-1-0-1)\n"
        );
        view["state"]["remaining"] = u64::MAX.into();
        assert!(text(view.clone()).contains("\nremaining: unlimited\n"));
        view["denial"]["remaining_us"] = Value::Null;
        assert!(text(view.clone()).contains("denied: without end"));
        let state = &mut view["state"];
        (state["tier"], state["tier_limit"], state["constraints"]) =
            (0.into(), 0.into(), serde_json::json!([]));
        assert!(text(view.clone()).contains("tier: none is active"));
        view["state"]["bucket"] = serde_json::json!({"level": 7, "burst": 10});
        let of_bucket = text(view.clone());
        assert!(
            of_bucket.contains("bucket: 7 of 10 left") && !of_bucket.contains("tier: "),
            "{of_bucket}"
        );
        (view["denial"], view["state"]) = (Value::Null, Value::Null);
        assert!(text(view).ends_with("no state of this pair\ndenied: no\n"));
    }
}
