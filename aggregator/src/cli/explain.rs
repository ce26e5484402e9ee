//! `tollgate explain`: why a call was refused, or why it was not.
//!
//! ```text
//! explain 3-18250-0-1                              a code that an agent reported
//! explain api.search acme --at 2026-11-21T12:00:00Z
//! explain api.search acme                          its last denial
//! explain … --journal DIR                          from a log; otherwise a running aggregator is asked
//! ```

use std::time::Duration;

use tollgate_limits::RateResource;
use tollgate_shared::log_position::{Code, CodeFault};

use super::Global;
use super::logs::{LogArgs, replay_failure};
use super::operator::{Spoken, domain_on, error_in};
use super::output::Format;
use crate::exit::{Exit, Failure};
use tollgate_replay::explain::{ExplainError, Question, explain};
use tollgate_replay::range::parse_instant;
use tollgate_replay::source::limits_of;

/// How long an aggregator may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `explain` takes.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The code of a denial, as the agent reported it, or a resource
    #[arg(value_name = "CODE|RESOURCE")]
    pub about: String,
    /// The domain; without it, all domains together, under the global limit
    pub domain: Option<String>,
    /// The instant, as in 2026-11-21T12:00:00.5Z, -2h, or microseconds since 1970
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// The log; without one, a running aggregator is asked.
    #[command(flatten)]
    pub log: LogArgs,
    /// Which aggregator is asked.
    #[command(flatten)]
    pub spoken: Spoken,
}

/// Runs the command. A code that the log does not know ends it with 1.
///
/// # Errors
///
/// If the log cannot be read, or no aggregator answers.
pub fn run(global: &Global, args: &ExplainArgs) -> Result<Exit, Failure> {
    if args.log.is_named() {
        let source = args.log.open(global)?;
        let question = question(args, |resource, typed| {
            global.domain_by(typed, || {
                let book = limits_of(&*source).map_err(|error| replay_failure(error.into()))?;
                let rate = book
                    .latest()
                    .and_then(|latest| latest.limits.rate(resource));
                Ok(rate.and_then(RateResource::addresses))
            })
        })?;
        let explanation = match explain(&*source, &question, &args.log.keys()?) {
            Ok(explanation) => explanation,
            Err(ExplainError::Replay(error)) => return Err(replay_failure(error)),
            Err(ExplainError::NotThere(why)) => return no(&why),
        };
        let mut output = global.open_output()?;
        match global.format {
            Format::Text => output.line(explanation.to_string().trim_end())?,
            Format::Json => output.json(&explanation)?,
        }
        output.finish()?;
        return Ok(Exit::Done);
    }
    let url = args.spoken.url.trim_end_matches('/');
    let question = question(args, |resource, typed| {
        domain_on(global, url, Some(resource), typed)
    })?;
    ask(global, args, &question)
}

fn no(why: &str) -> Result<Exit, Failure> {
    remark!("tollgate: {why}");
    Ok(Exit::No)
}

/// The question; `called` returns the name in the log of a domain on a resource.
fn question(
    args: &ExplainArgs,
    called: impl FnOnce(&str, Option<&String>) -> Result<Option<String>, Failure>,
) -> Result<Question, Failure> {
    let usage = |text: String| Failure::Usage(format!("explain: {text}"));
    if args.domain.is_none()
        && args.at.is_none()
        && let Ok(code) = args.about.parse::<Code>()
    {
        return Ok(Question::Code(code));
    }
    // No resource is called so by accident; without this a code that was cut short would be a resource of nobody.
    if args.domain.is_none() && is_like_a_code(&args.about) {
        let fault = match &args.at {
            Some(_) => "a code names its instant itself, expected it without --at".to_owned(),
            None => CodeFault.to_string(),
        };
        return Err(usage(format!("{:?}: {fault}", args.about)));
    }
    let resource = super::operator::name(&args.about)
        .map_err(|fault| usage(format!("resource {:?} {fault}", args.about)))?;
    let domain = args.domain.as_deref().map(|typed| {
        super::operator::domain(typed).map_err(|fault| usage(format!("domain {typed:?} {fault}")))
    });
    let domain = domain.transpose()?;
    let at = match &args.at {
        None => None,
        Some(text) => {
            let expected = "expected an instant of the years 1970 to 9999, as in 2026-11-21T12:00:00Z (or microseconds since 1970), or -2h";
            let at = parse_instant(text, tollgate_log::clock::wall());
            Some(at.ok_or_else(|| usage(format!("--at {text:?}: {expected}")))?)
        }
    };
    Ok(Question::Pair {
        domain: called(&resource, domain.as_ref())?,
        resource,
        at,
    })
}

/// Whether a text consists of numbers with dashes between them, as a code does.
fn is_like_a_code(text: &str) -> bool {
    let is_part = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    text.contains('-')
        && text.contains(|c: char| c.is_ascii_digit())
        && text.split('-').all(is_part)
}

/// Asks a running aggregator, which reads its own log.
fn ask(global: &Global, args: &ExplainArgs, question: &Question) -> Result<Exit, Failure> {
    let opened = crate::reach::open(&args.spoken.url, Some(PATIENCE))?;
    let form = match global.format {
        Format::Text => "text",
        Format::Json => "json",
    };
    let mut request = opened.get("/v1/explain").query("format", form);
    match question {
        Question::Code(code) => request = request.query("code", code.to_string()),
        Question::Pair {
            resource,
            domain,
            at,
        } => {
            request = request.query("resource", resource);
            if let Some(domain) = domain {
                request = request.query("domain", domain);
            }
            if let Some(at) = at {
                request = request.query("at", at.as_micros().to_string());
            }
        }
    }
    let failed = crate::reach::unavailable(&args.spoken.url);
    let mut response = request.call().map_err(&failed)?;
    let status = response.status().as_u16();
    let body = response.body_mut().read_to_string().map_err(&failed)?;
    match status {
        200 => {
            let mut output = global.open_output()?;
            match global.format {
                Format::Text => output.line(body.trim_end())?,
                Format::Json => {
                    let bad = |error| Failure::Data(format!("{}: {error}", args.spoken.url));
                    let read: serde_json::Value = serde_json::from_str(&body).map_err(bad)?;
                    output.json(&read)?;
                }
            }
            output.finish()?;
            Ok(Exit::Done)
        }
        status => {
            let (url, error) = (&args.spoken.url, error_in(&body));
            let error = error.as_deref().unwrap_or(body.trim_end());
            Err(match status {
                404 => return no(error),
                401 | 403 => crate::reach::not_authorised(url, error),
                _ => Failure::Unavailable(format!("{url}: {error}")),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_was_cut_short_is_no_resource() {
        for text in ["0-20-5", "0-20-", "3-18250-0-1-7", "99999999999-1-1-1"] {
            assert!(is_like_a_code(text), "{text}");
            assert!(text.parse::<Code>().is_err(), "{text}");
        }
        for name in ["api.search", "v1", "a-1", "-", "2024-q1"] {
            assert!(!is_like_a_code(name), "{name}");
        }
    }
}
