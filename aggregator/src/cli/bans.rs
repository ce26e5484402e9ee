//! `tollgate bans`: lists the bans in force.
//!
//! ```text
//! LEFT   RESOURCE          BANNED         VERSION
//! never  (every resource)  203.0.113.0/24      17
//! 2h 5m  api.search        mallory             21
//! ```
//!
//! Asks an aggregator; any one has all bans of the fleet. A ban of a part of the networks by which its resource limits
//! addresses is marked `(reaches nobody)`. Knows nothing of who is denied.

use serde::Deserialize;
use serde_json::Value;
use tollgate_api::bans::{BanView, BansView};

use super::Global;
use super::denials::span;
use super::operator::{Spoken, domain, domain_on, name, pages};
use super::output::Format;
use super::unlisted::remark_unlimited;
use crate::exit::{Exit, Failure};

/// What `bans` takes.
#[derive(Debug, clap::Args)]
pub struct BansArgs {
    /// Only those that hold on this resource: its own, and those of every resource
    #[arg(long, value_parser = name)]
    resource: Option<String>,
    /// Only those of this domain, and of networks with it
    #[arg(long, value_parser = domain)]
    domain: Option<String>,
    #[command(flatten)]
    spoken: Spoken,
}

/// Runs the command.
///
/// # Errors
///
/// If the aggregator does not answer, or the output cannot be written.
pub fn run(global: &Global, args: &BansArgs) -> Result<Exit, Failure> {
    let mut output = global.open_output()?;
    let (url, resource) = (&args.spoken.url, args.resource.as_deref());
    let query = [
        ("resource", args.resource.clone()),
        (
            "domain",
            domain_on(global, url, resource, args.domain.as_ref())?,
        ),
    ];
    let answer: BansView<Value> = pages(url, ("/v1/bans", "bans"), &query, usize::MAX)?;
    let is_empty = answer.bans.is_empty();
    match global.format {
        Format::Json => {
            for mut ban in answer.bans {
                ban["schema"] = "tollgate.bans/1".into();
                output.json(&ban)?;
            }
        }
        Format::Text if is_empty => {
            let is_all = args.resource.is_none() && args.domain.is_none();
            output.line(match is_all {
                true => "no bans are in force",
                false => "no bans match",
            })?;
        }
        Format::Text => {
            let head = ["LEFT", "RESOURCE", "BANNED", "VERSION"];
            let mut rows = vec![head.map(str::to_owned)];
            for ban in &answer.bans {
                rows.push(row(ban)?);
            }
            output.columns(&rows)?;
        }
    }
    output.finish()?;
    if is_empty {
        remark_unlimited(url, args.resource.as_ref());
    }
    Ok(Exit::Done)
}

fn row(ban: &Value) -> Result<[String; 4], Failure> {
    let ban = BanView::deserialize(ban).map_err(|error| Failure::Data(error.to_string()))?;
    let resource = ban.resource.as_deref().unwrap_or("(every resource)");
    Ok([
        ban.remaining_us.map_or_else(|| "never".to_owned(), span),
        resource.to_owned(),
        match ban.reaches_nobody {
            true => format!("{} (reaches nobody)", ban.domain),
            false => ban.domain.into(),
        },
        ban.version.to_string(),
    ])
}
