//! `tollgate top`: the pairs with the most hits, refused calls or excess of the last one to two minutes.
//!
//! ```text
//! RESOURCE    DOMAIN   HITS/S  REFUSED/S  EXCESS/S
//! api.search  acme      812.4      310.0       2.1
//! ```
//!
//! Asks an aggregator, which answers for the fleet from a bounded sketch. Counts that are too small to be kept there
//! are shown as a dash. What stays true: partitions without an answer are named.

use serde::Deserialize;
use serde_json::Value;
use tollgate_api::top::{TopPair, TopView};

use super::Global;
use super::operator::{Spoken, ended, get};
use super::output::Format;
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
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => {
            for pair in &mut answer.pairs {
                pair["schema"] = "tollgate.top/1".into();
                pair["from_us"] = answer.from_us.into();
                pair["to_us"] = answer.to_us.into();
                output.json(pair)?;
            }
        }
        Format::Text if answer.pairs.is_empty() => output.line("nothing was counted lately")?,
        Format::Text => output.columns(&rows(&answer)?)?,
    }
    output.finish()?;
    Ok(ended(&answer.partitions_missing))
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
