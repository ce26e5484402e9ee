//! `tollgate top`: the pairs with the most hits, refused calls or excess of the last one to two minutes.
//!
//! ```text
//! RESOURCE    DOMAIN   HITS/S  REFUSED/S  EXCESS/S
//! api.search  acme      812.4      310.0       2.1
//! ```
//!
//! Asks an aggregator, which answers for the fleet from a bounded sketch. Counts that are too small to be kept there
//! are shown as a dash. What stays true: partitions without an answer are named, and a list that may lack pairs says so.

use serde::Deserialize;
use serde_json::Value;
use tollgate_api::top::{TopPair, TopView};
use tollgate_replay::range::Utc;
use tollgate_shared::time::Timestamp;

use super::Global;
use super::operator::{Spoken, ended, get};
use super::output::Format;
use super::unlisted::remark_unlimited;
use crate::exit::{Exit, Failure};

/// What `top` takes.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    #[command(flatten)]
    spoken: Spoken,
    /// The count to sort by
    #[arg(long, value_enum, default_value_t)]
    by: TopBy,
    /// Only this resource
    #[arg(long, value_parser = super::operator::name)]
    resource: Option<String>,
    /// How many pairs to list at most
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=tollgate_server::core::usage::TOP_MAX as i64))]
    limit: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum TopBy {
    /// Hits that were let through
    #[default]
    Hits,
    /// Calls that were refused
    Refused,
    /// Hits that were let through beyond the limits
    Excess,
}

/// Runs the command. If a partition could not answer, it exits with 1.
///
/// # Errors
///
/// If the aggregator does not answer, or the output cannot be written.
pub fn run(global: &Global, args: &TopArgs) -> Result<Exit, Failure> {
    let by = match args.by {
        TopBy::Hits => "hits",
        TopBy::Refused => "refused",
        TopBy::Excess => "excess",
    };
    show(
        global,
        &args.spoken.url,
        by,
        args.resource.as_ref(),
        args.limit,
    )
}

/// The same for `tollgate pairs`.
pub(super) fn show(
    global: &Global,
    url: &str,
    by: &str,
    resource: Option<&String>,
    limit: u32,
) -> Result<Exit, Failure> {
    let query = [
        ("by", Some(by.to_owned())),
        ("resource", resource.cloned()),
        ("limit", Some(limit.to_string())),
    ];
    let mut answer: TopView<Value> = get(url, "/v1/top", &query)?;
    let lacking = lacking(&answer, limit);
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => {
            for pair in &mut answer.pairs {
                pair["schema"] = "tollgate.top/1".into();
                pair["from_us"] = answer.from_us.into();
                pair["to_us"] = answer.to_us.into();
                pair["short_by_max"] = answer.short_by_max.into();
                output.json(pair)?;
            }
            // A list without pairs has no line that could have it.
            if let Some(lacking) = lacking {
                remark!("tollgate: {lacking}");
            }
        }
        Format::Text => {
            if !answer.pairs.is_empty() {
                output.columns(&rows(&answer)?)?;
            } else if lacking.is_none() {
                output.line("nothing was counted lately")?;
            }
            if let Some(lacking) = lacking {
                output.line(lacking)?;
            }
        }
    }
    output.finish()?;
    if answer.pairs.is_empty() {
        remark_unlimited(url, resource);
    }
    Ok(ended(&answer.partitions_missing))
}

/// Which pairs a list may lack that is shorter than its limit: each partition keeps those with the greatest counts.
fn lacking(answer: &TopView<Value>, limit: u32) -> Option<String> {
    let most = answer.short_by_max;
    let is_full = limit as usize <= answer.pairs.len();
    if most == 0 || is_full {
        return None;
    }
    let of = match &*answer.by {
        "refused" => "refused calls",
        "excess" => "hits of excess",
        _ => "hits",
    };
    Some(format!(
        "pairs with at most {most} {of} since {} may be missing",
        Utc(Timestamp::from_micros(answer.from_us))
    ))
}

fn rows(answer: &TopView<Value>) -> Result<Vec<[String; 5]>, Failure> {
    let head = ["RESOURCE", "DOMAIN", "HITS/S", "REFUSED/S", "EXCESS/S"];
    let seconds = answer.to_us.saturating_sub(answer.from_us) as f64 / 1e6;
    let rate = |count: Option<u64>| match count {
        // At the beginning of the first minute there is less than a second to average over.
        Some(count) => format!("{:.1}", count as f64 / seconds.max(1.0)),
        None => "-".to_owned(),
    };
    let mut rows = vec![head.map(str::to_owned)];
    for pair in &answer.pairs {
        let pair = TopPair::deserialize(pair).map_err(|error| Failure::Data(error.to_string()))?;
        rows.push([
            pair.resource.into(),
            pair.domain.into(),
            rate(pair.hits),
            rate(pair.refused),
            rate(pair.excess),
        ]);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_list_says_which_pairs_it_may_lack() {
        let mut answer = TopView::<Value> {
            schema: "tollgate.top/1".into(),
            by: "refused".into(),
            from_us: 60_000_000,
            to_us: 160_000_000,
            short_by_max: 29,
            pairs: Vec::new(),
            partitions_missing: Vec::new(),
        };
        let text =
            "pairs with at most 29 refused calls since 1970-01-01T00:01:00.000000Z may be missing";
        assert_eq!(lacking(&answer, 1).as_deref(), Some(text));
        answer.pairs.push(Value::Null);
        assert_eq!(lacking(&answer, 1), None, "it is as long as it may be");
        answer.short_by_max = 0;
        assert_eq!(lacking(&answer, 20), None, "every pair was kept");
    }

    #[test]
    fn counts_are_shown_per_second_and_missing_ones_as_a_dash() {
        let answer = TopView {
            schema: "tollgate.top/1".into(),
            by: "hits".into(),
            from_us: 60_000_000,
            to_us: 160_000_000,
            short_by_max: 0,
            pairs: vec![serde_json::json!({
                "resource": "r", "domain": "d", "partition": 3, "hits": 1_050, "refused": null, "excess": 10,
            })],
            partitions_missing: Vec::new(),
        };
        let rows = rows(&answer).expect("good rows");
        assert_eq!(rows[1], ["r", "d", "10.5", "-", "0.1"]);
    }
}
