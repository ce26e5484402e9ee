//! `tollgate holds`: lists holds, the oldest first, and releases them.
//!
//! ```text
//! AGE     RESOURCE  DOMAIN  GROUP      COPIES  STATE                 AGENT
//! 1h 2m   sandbox   acme    -               3  held, strict, seized  web-1#17
//! 12s     sandbox   new-1   probation       1  staged, ends in 48s   (transfer 0000000000000000000000000000abcd)
//! ```
//!
//! Asks an aggregator. `release` ends holds in the operator's name: their copies are free again, and the holds stay
//! ended although their agents list them. It releases staged copies by the id that is listed, or all of a domain.
//! What stays true: partitions without an answer are named.

use serde::Deserialize;
use serde_json::Value;
use tollgate_shared::holdings::TransferId;

use super::Global;
use super::operator::{self, OperatorNote, Spoken, domain, found_name, name};
use super::output::{Format, Output};
use super::unlisted::remark_unlimited;
use crate::exit::{Exit, Failure};
use tollgate_api::amend::AmendRequest;
use tollgate_api::holds::{HoldView, HoldsView};
use tollgate_server::core::holds::STATES;
use tollgate_shared::escape::escaped;

/// The path of the list, and its field with the rows.
const LIST: (&str, &str) = ("/v1/holds", "holds");

/// What `holds` takes.
#[derive(Debug, clap::Args)]
pub struct HoldsArgs {
    /// What to do; without a command: lists holds
    #[command(subcommand)]
    verb: Option<HoldsVerb>,
    #[command(flatten)]
    spoken: Spoken,
    /// Only this resource
    #[arg(long, value_parser = name)]
    resource: Option<String>,
    /// Only this domain
    #[arg(long, value_parser = domain)]
    domain: Option<String>,
    /// Only the agent of this name
    #[arg(long, value_parser = found_name)]
    agent: Option<String>,
    /// Only holds taken under this group
    #[arg(long, value_parser = found_name)]
    group: Option<String>,
    /// Only holds in this state: held (they count), lost (their agent is gone), staged (on their way to another
    /// agent)
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(STATES))]
    state: Option<String>,
    /// How many holds to list at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    limit: u32,
}

#[derive(Debug, clap::Subcommand)]
enum HoldsVerb {
    /// Ends a hold, all holds of a domain or of an agent, or staged copies
    Release {
        /// One hold, as the list shows it: AGENT#NUMBER
        #[arg(value_name = "AGENT#NUMBER", conflicts_with_all = ["domain", "agent"])]
        hold: Option<String>,
        /// The resource
        #[arg(long, value_parser = name)]
        resource: String,
        /// All holds of this domain; without --agent also copies that are staged for it
        #[arg(long, value_parser = domain)]
        domain: Option<String>,
        /// All holds of the agent of this name; staged copies belong to no agent and are kept
        #[arg(long, value_parser = found_name)]
        agent: Option<String>,
        /// The copies staged under this id, as the list shows it: 32 hexadecimal digits
        #[arg(long, value_name = "ID", conflicts_with_all = ["hold", "domain", "agent"])]
        transfer: Option<TransferId>,
        #[command(flatten)]
        word: OperatorNote,
    },
}

/// Runs the command. If a partition could not answer, it exits with 1.
///
/// # Errors
///
/// If the aggregator does not answer, or the output cannot be written.
pub fn run(global: &Global, args: &HoldsArgs) -> Result<Exit, Failure> {
    if let Some(verb) = &args.verb {
        return release(global, &args.spoken.url, verb);
    }
    let answer = ask(args, &global.domain(args.domain.as_ref())?)?;
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => {
            for hold in &answer.holds {
                output.json(&with_schema(hold))?;
            }
        }
        Format::Text => print(&answer, args, &mut output)?,
    }
    output.finish()?;
    if answer.holds.is_empty() {
        remark_unlimited(&args.spoken.url, args.resource.as_ref());
    }
    if answer.more {
        remark!("tollgate: there are more; see --limit, or narrow the query");
    }
    Ok(operator::ended(&answer.partitions_missing))
}

/// Releases holds or staged copies.
fn release(global: &Global, url: &str, verb: &HoldsVerb) -> Result<Exit, Failure> {
    let HoldsVerb::Release {
        hold,
        resource,
        domain,
        agent,
        transfer,
        word,
    } = verb;
    let act = AmendRequest {
        act: "release".to_owned(),
        resource: Some(resource.clone()),
        domain: domain.clone(),
        agent: agent.clone(),
        transfer: transfer.map(|transfer| transfer.to_string()),
        ..AmendRequest::default()
    };
    let act = match hold {
        None if domain.is_none() && agent.is_none() && transfer.is_none() => {
            let text = "expected a hold, AGENT#NUMBER, or --domain, --agent or --transfer";
            return Err(Failure::Usage(text.to_owned()));
        }
        None => act,
        Some(hold) => {
            let (agent, number, epoch) = find(url, resource, hold)?;
            AmendRequest {
                agent: Some(agent),
                epoch: Some(epoch),
                number: Some(number),
                ..act
            }
        }
    };
    operator::ask(global, url, word, act)
}

/// The agent, number and epoch of a hold in the list.
fn find(url: &str, resource: &str, hold: &str) -> Result<(String, u64, String), Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "hold {hold:?}: expected AGENT#NUMBER, as in web-1#17"
        ))
    };
    let (agent, number) = hold.rsplit_once('#').ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let agent = &found_name(agent)
        .map_err(|fault| Failure::Usage(format!("hold {hold:?}: the agent's name {fault}")))?;
    let resource_shown = escaped(resource);
    let query = [
        ("resource", Some(resource.to_owned())),
        ("agent", Some(agent.clone())),
    ];
    let answer: HoldsView<Value> = operator::pages(url, LIST, &query, usize::MAX)?;
    let fits = |held: &&Value| held["number"].as_u64() == Some(number);
    let fitting: Vec<&Value> = answer.holds.iter().filter(fits).collect();
    match one_of(&fitting) {
        Some(epoch) => Ok((agent.to_owned(), number, epoch.to_owned())),
        // A partition without an answer may have it.
        None if fitting.is_empty() && !answer.partitions_missing.is_empty() => {
            Err(Failure::Unavailable(format!(
                "{resource_shown} {hold}: not found, and no aggregator answered for partitions {:?}: try again",
                answer.partitions_missing
            )))
        }
        None if fitting.is_empty() => Err(Failure::Log {
            exit: Exit::No,
            text: format!("{resource_shown} {hold}: there is no such hold"),
        }),
        None => Err(Failure::Data(format!(
            "{hold}: several agents of this name have such a hold, expected --domain, or --agent for all holds of \
             each: {}",
            candidates(&fitting)
        ))),
    }
}

/// The epoch of the hold that is meant: of several, as after a restart under the same name, the only one that counts.
fn one_of<'h>(fitting: &[&'h Value]) -> Option<&'h str> {
    let counts = |hold: &&&Value| hold["state"] == "held";
    let hold = match fitting {
        [hold] => hold,
        several => {
            let mut counting = several.iter().filter(counts);
            counting.next().filter(|_| counting.next().is_none())?
        }
    };
    hold["epoch"].as_str()
}

/// Holds that a number may mean, as `acme: held, 12s old`.
fn candidates(holds: &[&Value]) -> String {
    let line = |hold: &&Value| {
        let text = |field: &str| escaped(hold[field].as_str().unwrap_or_default()).to_string();
        let age = age(hold["age_us"].as_u64().unwrap_or_default());
        format!("{}: {}, {age} old", text("domain"), text("state"))
    };
    let lines: Vec<String> = holds.iter().map(line).collect();
    lines.join("; ")
}

fn ask(args: &HoldsArgs, domain: &Option<String>) -> Result<HoldsView<Value>, Failure> {
    let query = [
        ("resource", args.resource.clone()),
        ("domain", domain.clone()),
        ("agent", args.agent.clone()),
        ("group", args.group.clone()),
        ("state", args.state.clone()),
    ];
    operator::pages(&args.spoken.url, LIST, &query, args.limit as usize)
}

fn with_schema(hold: &Value) -> Value {
    let mut hold = hold.clone();
    if let Some(fields) = hold.as_object_mut() {
        fields.insert("schema".to_owned(), "tollgate.holds/1".into());
    }
    hold
}

/// The message for an empty list.
fn nothing(answer: &HoldsView<Value>, args: &HoldsArgs) -> &'static str {
    let filters = [
        &args.resource,
        &args.domain,
        &args.agent,
        &args.group,
        &args.state,
    ];
    if !answer.partitions_missing.is_empty() {
        "no holds in the partitions that answered"
    } else if filters.iter().any(|filter| filter.is_some()) {
        "no holds match"
    } else {
        "no holds"
    }
}

const COLUMNS: [&str; 7] = [
    "AGE", "RESOURCE", "DOMAIN", "GROUP", "COPIES", "STATE", "AGENT",
];

fn print(answer: &HoldsView<Value>, args: &HoldsArgs, output: &mut Output) -> Result<(), Failure> {
    if answer.holds.is_empty() {
        return output.line(nothing(answer, args));
    }
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    for hold in &answer.holds {
        let hold = HoldView::deserialize(hold).map_err(|error| Failure::Data(error.to_string()))?;
        rows.push(row(&hold));
    }
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    for row in &rows {
        let [age, resource, domain, groups, copies, state, who] = row;
        let [w0, w1, w2, w3, w4, w5, _] = widths;
        let line = format!(
            "{age:<w0$}  {resource:<w1$}  {domain:<w2$}  {groups:<w3$}  {copies:>w4$}  {state:<w5$}  {who}"
        );
        output.line(line.trim_end())?;
    }
    Ok(())
}

fn row(hold: &HoldView) -> [String; COLUMNS.len()] {
    let who = match (&hold.agent, &hold.transfer) {
        (Some(agent), _) => format!("{}#{}", escaped(agent), hold.number.unwrap_or(0)),
        (None, Some(transfer)) => format!("(transfer {transfer})"),
        (None, None) => String::new(),
    };
    let groups = match hold.groups.is_empty() {
        true => "-".to_owned(),
        false => {
            let groups = hold.groups.iter().map(|group| escaped(group).to_string());
            groups.collect::<Vec<_>>().join(", ")
        }
    };
    let left = hold.end_us.map(|end| {
        let now = hold.start_us.saturating_add(hold.age_us);
        format!("ends in {}", age(end.saturating_sub(now)))
    });
    let strict = hold.strict.then(|| "strict".to_owned());
    let seized = hold.seized.then(|| "seized".to_owned());
    let state = [Some(hold.state.to_string()), strict, seized, left];
    let state: Vec<String> = state.into_iter().flatten().collect();
    [
        age(hold.age_us),
        escaped(&hold.resource).to_string(),
        escaped(&hold.domain).to_string(),
        groups,
        hold.copies.to_string(),
        state.join(", "),
        who,
    ]
}

/// An age in its two greatest units.
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
    fn a_row_has_all_that_is_known_of_a_hold() {
        let seized = serde_json::json!({
            "resource": "sandbox", "domain": "acme", "groups": ["gold", "new"], "state": "held",
            "agent": "web-1", "number": 17, "transfer": null, "copies": 3, "start_us": 5_000_000,
            "age_us": 3_720_000_000_u64, "end_us": null, "strict": true, "seized": true,
        });
        let staged = serde_json::json!({
            "resource": "sandbox", "domain": "acme", "groups": [], "state": "staged", "agent": null,
            "number": null, "transfer": "ab", "copies": 1, "start_us": 5_000_000, "age_us": 12_000_000,
            "end_us": 65_000_000, "strict": false, "seized": false,
        });
        let evil = serde_json::json!({
            "resource": "sand\\box", "domain": "ev\u{1b}[2Jil", "groups": ["g\nfake", "n"], "state": "held",
            "agent": "web\u{7}\n1", "number": 7, "transfer": null, "copies": 1, "start_us": 5_000_000,
            "age_us": 12_000_000, "end_us": null, "strict": false, "seized": false,
        });
        let shown = [seized, staged, evil].map(|mut hold| {
            (hold["partition"], hold["epoch"]) = (3.into(), Value::Null);
            row(&HoldView::deserialize(&hold).expect("a hold")).join(" | ")
        });
        let expected = [
            "1h 2m | sandbox | acme | gold, new | 3 | held, strict, seized | web-1#17",
            "12s | sandbox | acme | - | 1 | staged, ends in 48s | (transfer ab)",
            r"12s | sand\\box | ev\x1b[2Jil | g\nfake, n | 1 | held | web\x07\n1#7",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_empty_list_says_what_it_is_a_list_of() {
        use clap::Parser;

        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            holds: HoldsArgs,
        }
        let shown = |partitions_missing: &[u32], words: &[&str]| {
            let line = Line::parse_from([&["holds"], words].concat());
            let answer = HoldsView {
                schema: "tollgate.holds/1".into(),
                holds: Vec::new(),
                more: false,
                next: None,
                resources: Vec::new(),
                partitions_missing: partitions_missing.to_vec(),
            };
            nothing(&answer, &line.holds)
        };
        assert_eq!(shown(&[], &[]), "no holds");
        let staged = ["--state", "staged"];
        assert_eq!(shown(&[], &staged), "no holds match");
        assert_eq!(shown(&[3], &[]), "no holds in the partitions that answered");
    }

    #[test]
    fn the_one_hold_that_counts_is_meant() {
        let hold = |state: &str, epoch: &str, age: u64| {
            let age_us = age * 1_000_000;
            serde_json::json!({ "domain": "acme", "state": state, "epoch": epoch, "age_us": age_us })
        };
        let (old, new) = (hold("lost", "e1", 75), hold("held", "e2", 12));
        assert_eq!(one_of(&[&old]), Some("e1"));
        assert_eq!(one_of(&[&old, &new]), Some("e2"));
        assert_eq!(one_of(&[&old, &old]), None);
        assert_eq!(one_of(&[&new, &old, &new]), None);
        assert_eq!(one_of(&[]), None);
        let shown = candidates(&[&old, &new]);
        assert_eq!(shown, "acme: lost, 1m 15s old; acme: held, 12s old");
    }

    #[test]
    fn ages_are_shown_in_two_units() {
        let shown = [
            0,
            9_940_000,
            59_000_000,
            3_599_000_000,
            3_720_000_000,
            90_000_000_000,
        ];
        let shown = shown.map(age);
        assert_eq!(shown, ["0.0s", "9.9s", "59s", "59m 59s", "1h 2m", "1d 1h"]);
    }
}
