//! `tollgate holds`: who holds what, the oldest first.
//!
//! ```text
//! AGE     RESOURCE  DOMAIN  COPIES  STATE   WHO
//! 1h 2m   sandbox   acme         3  held    web-1#17
//! 12s     sandbox   new-1        1  staged  (transfer 0000000000000000000000000000abcd)
//! ```
//!
//! Asks an aggregator. `release` ends holds by an operator's word: their copies come back, and they stay
//! ended while their agents list them. It lets staged copies go by the id that is listed, or with all that a
//! domain has. What stays true: what could not be asked is named.

use serde::Deserialize;
use serde_json::Value;
use tollgate_shared::holdings::TransferId;

use super::Global;
use super::exit::{Exit, Failure};
use super::operator::{self, Spoken, Word, name};
use super::output::{Format, Output};
use crate::http::amend::Asked;

/// What `holds` takes.
#[derive(Debug, clap::Args)]
pub struct HoldsArgs {
    /// What to do; by itself: holds are listed
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    spoken: Spoken,
    /// Only of this resource
    #[arg(long)]
    resource: Option<String>,
    /// Only of this domain
    #[arg(long)]
    domain: Option<String>,
    /// Only of the agent of this name
    #[arg(long)]
    agent: Option<String>,
    /// Only those taken under this group
    #[arg(long)]
    group: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: u32,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Ends a hold, or all holds of a domain or of an agent; lets staged copies go
    Release {
        /// One hold as it is listed, AGENT#NUMBER
        #[arg(value_name = "AGENT#NUMBER", conflicts_with_all = ["domain", "agent"])]
        hold: Option<String>,
        /// The resource
        #[arg(long, value_parser = name)]
        resource: String,
        /// All holds of this domain; without --agent also what is staged for it
        #[arg(long, value_parser = name)]
        domain: Option<String>,
        /// All holds of the agent of this name; what is staged is no agent's, and stays
        #[arg(long, value_parser = name)]
        agent: Option<String>,
        /// Copies that are staged under this id as it is listed, 32 hexadecimal digits
        #[arg(long, value_name = "ID", conflicts_with_all = ["hold", "domain", "agent"])]
        transfer: Option<TransferId>,
        #[command(flatten)]
        word: Word,
    },
}

/// The answer, as far as it is shown to people.
#[derive(Debug, Deserialize)]
struct Answer {
    holds: Vec<Value>,
    more: bool,
    partitions_missing: Vec<u32>,
}

#[derive(Debug, Deserialize)]
struct Hold {
    resource: String,
    domain: String,
    groups: Vec<String>,
    state: String,
    agent: Option<String>,
    number: Option<u64>,
    transfer: Option<String>,
    copies: u32,
    age_us: u64,
}

/// Runs the command. Where a partition could not be asked it ends with 1.
///
/// # Errors
///
/// Where the aggregator does not answer, or the output cannot be written.
pub fn run(global: &Global, args: &HoldsArgs) -> Result<Exit, Failure> {
    if let Some(verb) = &args.verb {
        return release(global, &args.spoken.url, verb);
    }
    for (flag, name) in [("--resource", &args.resource), ("--domain", &args.domain)] {
        if let Some(name) = name {
            tollgate_shared::names::check_name(name)
                .map_err(|fault| Failure::Usage(format!("{flag} {name:?}: {fault}")))?;
        }
    }
    let answer = ask(args, &global.domain(args.domain.as_ref())?)?;
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => {
            for hold in &answer.holds {
                output.json(&with_schema(hold))?;
            }
        }
        Format::Text => print(&answer, &mut output)?,
    }
    output.finish()?;
    if answer.more {
        eprintln!("tollgate: there are more; see --limit, or narrow what is asked for");
    }
    Ok(operator::ended(&answer.partitions_missing))
}

/// Ends holds.
fn release(global: &Global, url: &str, verb: &Verb) -> Result<Exit, Failure> {
    let Verb::Release {
        hold,
        resource,
        domain,
        agent,
        transfer,
        word,
    } = verb;
    let act = Asked {
        act: "release".to_owned(),
        resource: Some(resource.clone()),
        domain: domain.clone(),
        agent: agent.clone(),
        transfer: transfer.map(|transfer| transfer.to_string()),
        ..Asked::default()
    };
    let act = match hold {
        None if domain.is_none() && agent.is_none() && transfer.is_none() => {
            let text = "expected a hold, AGENT#NUMBER, or --domain, --agent or --transfer";
            return Err(Failure::Usage(text.to_owned()));
        }
        None => act,
        Some(hold) => {
            let (agent, number, epoch) = find(url, resource, hold)?;
            Asked {
                agent: Some(agent),
                epoch: Some(epoch),
                number: Some(number),
                ..act
            }
        }
    };
    operator::ask(global, url, word, act)
}

/// The agent, number and epoch of a hold, as the list has it.
fn find(url: &str, resource: &str, hold: &str) -> Result<(String, u64, String), Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "hold {hold:?}: expected AGENT#NUMBER, as in web-1#17"
        ))
    };
    let (agent, number) = hold.rsplit_once('#').ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let query = [
        ("resource", Some(resource.to_owned())),
        ("agent", Some(agent.to_owned())),
        ("limit", Some("100000".to_owned())),
    ];
    let answer: Answer = operator::get(url, "/v1/holds", &query)?;
    let fits = |held: &&Value| held["number"].as_u64() == Some(number);
    let epochs: Vec<&str> = answer
        .holds
        .iter()
        .filter(fits)
        .filter_map(|held| held["epoch"].as_str())
        .collect();
    match epochs.as_slice() {
        [epoch] => Ok((agent.to_owned(), number, (*epoch).to_owned())),
        // What was not looked at may have it.
        [] if !answer.partitions_missing.is_empty() => Err(Failure::Unavailable(format!(
            "{resource} {hold}: not found, and nobody answered for partitions {:?}: try again",
            answer.partitions_missing
        ))),
        [] if answer.more => Err(Failure::Data(format!(
            "{resource} {hold}: not among the oldest holds that were looked at; release by --domain, with --agent"
        ))),
        [] => Err(Failure::Log {
            exit: Exit::No,
            text: format!("{resource} {hold}: there is no such hold"),
        }),
        several => Err(Failure::Data(format!(
            "{hold}: {} agents of this name have such a hold; release by --agent",
            several.len()
        ))),
    }
}

fn ask(args: &HoldsArgs, domain: &Option<String>) -> Result<Answer, Failure> {
    let url = format!("{}/v1/holds", args.spoken.url);
    let mut request = ureq::get(&url).query("limit", args.limit.to_string());
    let filters = [
        ("resource", &args.resource),
        ("domain", domain),
        ("agent", &args.agent),
        ("group", &args.group),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            request = request.query(name, value);
        }
    }
    let unavailable = |error: ureq::Error| Failure::Unavailable(format!("{url}: {error}"));
    let mut response = request.call().map_err(unavailable)?;
    let body = response.body_mut().with_config().limit(BODY_BYTES_MAX);
    let body = body.read_to_string().map_err(unavailable)?;
    serde_json::from_str(&body).map_err(|error| Failure::Data(format!("{url}: {error}")))
}

/// An answer of as many holds as may be asked for, with names of the greatest length.
const BODY_BYTES_MAX: u64 = 256 << 20;

fn with_schema(hold: &Value) -> Value {
    let mut hold = hold.clone();
    if let Some(fields) = hold.as_object_mut() {
        fields.insert("schema".to_owned(), "tollgate.holds/1".into());
    }
    hold
}

fn print(answer: &Answer, output: &mut Output) -> Result<(), Failure> {
    if answer.holds.is_empty() {
        return output.line("nobody holds anything");
    }
    let mut rows = vec![["AGE", "RESOURCE", "DOMAIN", "COPIES", "STATE", "WHO"].map(str::to_owned)];
    for hold in &answer.holds {
        let hold = Hold::deserialize(hold).map_err(|error| Failure::Data(error.to_string()))?;
        rows.push(row(&hold));
    }
    let widths: [usize; 6] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    for row in &rows {
        let [age, resource, domain, copies, state, who] = row;
        let [w0, w1, w2, w3, w4, _] = widths;
        let line = format!(
            "{age:<w0$}  {resource:<w1$}  {domain:<w2$}  {copies:>w3$}  {state:<w4$}  {who}"
        );
        output.line(line.trim_end())?;
    }
    Ok(())
}

fn row(hold: &Hold) -> [String; 6] {
    let who = match (&hold.agent, &hold.transfer) {
        (Some(agent), _) => format!("{agent}#{}", hold.number.unwrap_or(0)),
        (None, Some(transfer)) => format!("(transfer {transfer})"),
        (None, None) => String::new(),
    };
    let groups = match hold.groups.is_empty() {
        true => String::new(),
        false => format!("  [{}]", hold.groups.join(", ")),
    };
    [
        age(hold.age_us),
        hold.resource.clone(),
        hold.domain.clone(),
        hold.copies.to_string(),
        hold.state.clone(),
        who + &groups,
    ]
}

/// An age in the two greatest units that it has.
fn age(us: u64) -> String {
    let seconds = us / 1_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds < 10 => format!("{:.1}s", us as f64 / 1e6),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_two_units() {
        let told = [
            0,
            9_940_000,
            59_000_000,
            3_599_000_000,
            3_720_000_000,
            90_000_000_000,
        ];
        let told = told.map(age);
        assert_eq!(told, ["0.0s", "9.9s", "59s", "59m 59s", "1h 2m", "1d 1h"]);
    }
}
