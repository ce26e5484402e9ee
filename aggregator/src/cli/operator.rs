//! What operators' commands share: author, reason, expected version, and the aggregator's address.
//!
//! ```text
//! tollgate reset api.search acme --reason "import ran twice"
//!   POST http://127.0.0.1:7400/v1/amendments ── in the log ── version 18: reset api.search acme
//! ```
//!
//! Asks any aggregator of the fleet, which appends the amendment to its log, Kafka or a journal: a journal has only
//! one writer. Knows nothing of what acts do. What stays true: a command that exits with another code than 0 has
//! changed nothing, unless it reports that the log did not answer.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tollgate_api::amend::{AmendRequest, AmendmentView};
use tollgate_api::limits::LimitsView;
use tollgate_api::state::FaultView;
use tollgate_limits::{Limits, RateResource};
use tollgate_shared::escape::unescaped;
use tollgate_shared::names::{check_domain, check_name};
use tollgate_shared::networks::AddressPrefixes;

use super::Global;
use super::output::Format;
use super::user::user_and_host;
use crate::exit::{Exit, Failure};
use crate::reach;
use tollgate_server::http::ROWS_MAX;
use tollgate_server::http::amend::proposal;

/// Which aggregator is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Spoken {
    /// The HTTP address of an aggregator; any one of the fleet
    #[arg(
        long,
        global = true,
        value_name = "URL",
        value_parser = super::values::url,
        env = "TOLLGATE_URL",
        default_value = "http://127.0.0.1:7400"
    )]
    pub url: String,
}

/// What every act of an operator says.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct OperatorNote {
    /// The reason, which the log records
    #[arg(long, visible_alias = "why", value_name = "TEXT", value_parser = super::values::reason)]
    reason: String,
    /// Who gives the command, which the log records [default: the user and the host]
    #[arg(long, value_name = "NAME", value_parser = super::values::author)]
    by: Option<String>,
    /// Does nothing and exits with 75 unless this version of the limits is in force
    #[arg(long, value_name = "N")]
    pub(super) expect_version: Option<u64>,
    /// Changes nothing, and prints what would be done
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl OperatorNote {
    /// The note of a command that has other arguments for it.
    pub fn new(
        reason: String,
        by: Option<String>,
        expect_version: Option<u64>,
        dry_run: bool,
    ) -> Self {
        Self {
            reason,
            by,
            expect_version,
            dry_run,
        }
    }
}

/// The greatest length of an answer.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// Sends an act, and prints the result.
///
/// # Errors
///
/// As [`asked`].
pub fn ask(
    global: &Global,
    url: &str,
    word: &OperatorNote,
    act: AmendRequest,
) -> Result<Exit, Failure> {
    let answer = asked(global, url, word, act)?;
    report_all(global, &[answer])
}

/// Prints the results of acts, one line each.
///
/// # Errors
///
/// If the output cannot be written.
pub fn report_all(global: &Global, answers: &[AmendmentView]) -> Result<Exit, Failure> {
    let mut output = global.open_output()?;
    for answer in answers {
        match global.format {
            Format::Json => output.json(answer)?,
            Format::Text => output.line(text_of(answer))?,
        }
    }
    output.finish()?;
    Ok(Exit::Done)
}

/// How often an act that expects no version is sent again because another one came first.
pub const CONFLICTS_MAX: u32 = 50;

/// Sends an act.
///
/// # Errors
///
/// Another version is in force (75), the resource is unknown or a name invalid (65), there is nothing to change
/// (1), or there is no answer (69).
pub fn asked(
    global: &Global,
    url: &str,
    word: &OperatorNote,
    act: AmendRequest,
) -> Result<AmendmentView, Failure> {
    let domain = domain_on(global, url, act.resource.as_deref(), act.domain.as_ref())?;
    let asked = AmendRequest {
        domain,
        who: word.by.clone().unwrap_or_else(user_and_host),
        why: word.reason.clone(),
        expected_version: word.expect_version,
        dry_run: word.dry_run,
        ..act
    };
    // Missing fields are reported before an aggregator is asked.
    proposal(asked.clone()).map_err(Failure::Usage)?;
    let opened = reach::open(url, None)?;
    let url = format!("{url}/v1/amendments");
    let unavailable = reach::unavailable(&url);
    let body = serde_json::to_string(&asked).map_err(|error| Failure::Bug(error.to_string()))?;
    let mut conflicts = 0;
    let (status, body) = loop {
        let request = opened.post("/v1/amendments");
        let mut response = request
            .content_type("application/json")
            .send(&body)
            .map_err(&unavailable)?;
        let status = response.status().as_u16();
        // Twenty a second per caller: a script that runs many commands waits for its turn.
        let wait = response.headers().get("retry-after");
        let wait = wait.and_then(|wait| wait.to_str().ok()?.parse().ok());
        if let (429, Some(seconds @ 1..=5)) = (status, wait) {
            std::thread::sleep(Duration::from_secs(seconds));
            continue;
        }
        let body = response.body_mut().read_to_string().map_err(&unavailable)?;
        if status == 409 && asked.expected_version.is_none() && conflicts < CONFLICTS_MAX {
            conflicts += 1;
            std::thread::sleep(Duration::from_millis(rand::random_range(5..50)));
            continue;
        }
        break (status, body);
    };
    if status != 200 {
        return Err(refusal(&url, status, &body));
    }
    serde_json::from_str(&body).map_err(|error| Failure::Data(format!("{url}: {error}")))
}

/// The name of a typed domain in the log of a running fleet. With a domain key, agents hash the network of an
/// address if its resource limits addresses by their networks, which depends on the limits in force.
///
/// # Errors
///
/// As [`Global::domain`], and if the limits in force are needed and no aggregator answers.
pub fn domain_on(
    global: &Global,
    url: &str,
    resource: Option<&str>,
    typed: Option<&String>,
) -> Result<Option<String>, Failure> {
    global.domain_by(typed, || match resource {
        Some(resource) => addresses_on(url, resource),
        None => Ok(None),
    })
}

/// The same for the domain of an entry of limits.
///
/// # Errors
///
/// As [`domain_on`].
pub fn entry_on(
    global: &Global,
    url: &str,
    resource: &str,
    typed: &str,
) -> Result<String, Failure> {
    global.entry_by(typed, || addresses_on(url, resource))
}

fn addresses_on(url: &str, resource: &str) -> Result<Option<AddressPrefixes>, Failure> {
    let limits = limits_in_force(url)?;
    Ok(limits.rate(resource).and_then(RateResource::addresses))
}

/// The limits in force, without the rows beside their document; none if the aggregator has no document yet.
///
/// # Errors
///
/// If no aggregator answers, or this build cannot read its limits.
pub fn limits_in_force(url: &str) -> Result<Limits, Failure> {
    let view: LimitsView = get(url, "/v1/limits", &[])?;
    let Some(text) = view.text else {
        return Ok(Limits::default());
    };
    let read = Limits::parse_logged(&text);
    read.map_err(|faults| Failure::Data(format!("{url}: the limits in force: {faults}")))
}

fn text_of(answer: &AmendmentView) -> String {
    let AmendmentView {
        amendment, version, ..
    } = answer;
    match (answer.done, answer.in_force) {
        (false, _) => format!("version {version} is in force; would do: {amendment}"),
        (true, true) => format!("version {version}: {amendment}"),
        (true, false) => format!("version {version}: {amendment} (not in force everywhere yet)"),
    }
}

fn refusal(url: &str, status: u16, body: &str) -> Failure {
    if let 401 | 403 = status
        && let Some(fault) = error_in(body)
    {
        return reach::not_authorised(url, &fault);
    }
    let Ok(fault) = serde_json::from_str::<FaultView>(body) else {
        return Failure::Unavailable(format!("{url}: status {status}"));
    };
    let log = |exit| Failure::Log {
        exit,
        text: fault.error.clone(),
    };
    match fault.code.as_deref().unwrap_or_default() {
        "conflict" => log(Exit::Conflict),
        "nothing_to_do" => log(Exit::No),
        "forbidden" => log(Exit::NotAuthorised),
        "unknown_resource" | "bad_name" | "bad_request" => Failure::Data(fault.error),
        _ => Failure::Unavailable(format!("{url}: {}", fault.error)),
    }
}

/// Reads a list by HTTP.
///
/// # Errors
///
/// If no aggregator answers, or not with a list: with the aggregator's message if it refuses the request (65), and
/// otherwise (69).
pub fn get<T: serde::de::DeserializeOwned>(
    url: &str,
    path: &str,
    query: &[(&str, Option<String>)],
) -> Result<T, Failure> {
    let mut request = reach::open(url, None)?.get(path);
    let url = format!("{url}{path}");
    for (name, value) in query {
        if let Some(value) = value {
            request = request.query(*name, value);
        }
    }
    let unavailable = reach::unavailable(&url);
    let mut response = request.call().map_err(&unavailable)?;
    let body = response.body_mut().with_config().limit(BODY_BYTES_MAX);
    let body = body.read_to_string().map_err(&unavailable)?;
    match response.status().as_u16() {
        200 => {}
        status => return Err(not_listed(&url, status, &body)),
    }
    serde_json::from_str(&body).map_err(|error| Failure::Data(format!("{url}: {error}")))
}

/// Reads a list page by page, until it has enough rows or there are no more. Other fields of the answer are those of
/// the last page, except the missing partitions, which are collected from all pages.
///
/// # Errors
///
/// As [`get`].
pub fn pages<T: serde::de::DeserializeOwned>(
    url: &str,
    (path, rows): (&str, &str),
    query: &[(&str, Option<String>)],
    limit: usize,
) -> Result<T, Failure> {
    let (mut found, mut missing) = (Vec::new(), BTreeSet::new());
    let mut after: Option<String> = None;
    loop {
        let left = (limit - found.len()).min(ROWS_MAX);
        let of_page = [("limit", Some(left.to_string())), ("after", after.clone())];
        let mut page: Value = get(url, path, &[&of_page, query].concat())?;
        if let Some(Value::Array(more)) = page.get_mut(rows).map(Value::take) {
            found.extend(more);
        }
        let of_this = page["partitions_missing"].as_array();
        missing.extend(of_this.into_iter().flatten().filter_map(Value::as_u64));
        let next = page["next"].as_str().map(str::to_owned);
        if next.is_some() && next == after {
            let text = format!(
                "{url}{path}: next {next:?}: expected a cursor behind the last one, or the end of the list"
            );
            return Err(Failure::Data(text));
        }
        after = next;
        if after.is_none() || limit <= found.len() {
            page[rows] = found.into();
            page["partitions_missing"] = missing.into_iter().collect();
            let read = serde_json::from_value(page);
            return read.map_err(|error| Failure::Data(format!("{url}{path}: {error}")));
        }
    }
}

/// The failure of a refused list, with the aggregator's message.
fn not_listed(url: &str, status: u16, body: &str) -> Failure {
    match (status, error_in(body)) {
        (401 | 403, Some(fault)) => reach::not_authorised(url, &fault),
        (400..=499, Some(fault)) => Failure::Data(format!("{url}: {fault}")),
        (_, Some(fault)) => Failure::Unavailable(format!("{url}: {fault}")),
        (status, None) => Failure::Unavailable(format!("{url}: status {status}")),
    }
}

/// The message of an aggregator that refuses a request.
pub(super) fn error_in(body: &str) -> Option<String> {
    let fault: Option<FaultView> = serde_json::from_str(body).ok();
    fault.map(|fault| fault.error)
}

/// Reports partitions that could not answer; without them the answer is incomplete.
pub fn ended(partitions_missing: &[u32]) -> Exit {
    if partitions_missing.is_empty() {
        return Exit::Done;
    }
    remark!("tollgate: partitions without an answer: {partitions_missing:?}");
    Exit::No
}

/// A resource's or namespace's name on the command line: written as in lists, where invisible characters and
/// backslashes are escaped.
///
/// # Errors
///
/// The fault of the name.
pub fn name(text: &str) -> Result<String, String> {
    let name = unescaped(text).map_err(|fault| fault.to_string())?;
    check_name(&name).map_err(|fault| fault.to_string())?;
    Ok(name)
}

/// The name on the command line under which a document has limits: of a resource, or a pattern, which ends in `*`.
///
/// # Errors
///
/// The fault of the name.
pub fn configured_name(text: &str) -> Result<String, String> {
    match text.strip_suffix('*') {
        Some("") => Ok(text.to_owned()),
        Some(literal) => Ok(name(literal)? + "*"),
        None => name(text),
    }
}

/// An agent's or a group's name on the command line: any name that the log may have, written as in lists.
///
/// # Errors
///
/// The fault of the name.
pub fn found_name(text: &str) -> Result<String, String> {
    let name = unescaped(text).map_err(|fault| fault.to_string())?;
    // What no domain may be called, nothing else may be: the message is that of names.
    check_domain(&name)
        .or_else(|_| check_name(&name))
        .map_err(|fault| fault.to_string())?;
    Ok(name)
}

/// A domain on the command line: any under which callers are limited, written as in lists, where invisible
/// characters are escaped.
///
/// # Errors
///
/// The fault of the domain.
pub fn domain(text: &str) -> Result<String, String> {
    let domain = unescaped(text).map_err(|fault| fault.to_string())?;
    check_domain(&domain).map_err(|fault| fault.to_string())?;
    Ok(domain)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use tollgate_shared::escape::escaped;
    use tollgate_shared::names::{EMPTY_DOMAIN, STAR_DOMAIN, admit_domain};

    #[test]
    fn commands_accept_what_lists_show() {
        let evil = "CORP\\ann\u{1b}[2J\n\u{202e}x";
        let shown = escaped(evil).to_string();
        assert_eq!(shown, r"CORP\\ann\x1b[2J\n\u{202e}x");
        assert_eq!(domain(&shown).as_deref(), Ok(evil));
        assert_eq!(found_name(&shown).as_deref(), Ok(evil));
        // Callers with these domains are limited under the names that lists show.
        for (domain_of_callers, shown) in [("", EMPTY_DOMAIN), ("*", STAR_DOMAIN)] {
            assert_eq!(admit_domain(domain_of_callers), shown);
            assert_eq!(domain(shown).as_deref(), Ok(shown));
            let fault = domain(domain_of_callers).unwrap_err();
            assert!(
                fault.ends_with(&format!("are limited as {shown}")),
                "{fault}"
            );
            let fault = found_name(domain_of_callers).unwrap_err();
            assert!(!fault.contains("callers"), "{fault}");
        }
        // A resource's name has no control characters, but may have other invisible ones.
        let resource = "a\\b\u{202e}c";
        assert_eq!(
            name(&escaped(resource).to_string()).as_deref(),
            Ok(resource)
        );
        assert!(name(&shown).unwrap_err().contains("control character"));
        assert!(name(r"CORP\ann").unwrap_err().contains("escape at byte 4"));
    }

    #[test]
    fn a_refused_list_shows_the_servers_reason() {
        let body = r#"{"schema":"tollgate.error/1","error":"limit = 5: expected at most 3"}"#;
        let Failure::Data(text) = not_listed("http://a/v1/holds", 400, body) else {
            panic!("65");
        };
        assert_eq!(text, "http://a/v1/holds: limit = 5: expected at most 3");
        for (status, body) in [(503, body), (400, "<html>"), (502, "")] {
            let refused = not_listed("http://a/v1/holds", status, body);
            assert!(
                matches!(refused, Failure::Unavailable(_)),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn a_list_is_read_page_by_page_until_it_has_enough_rows() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let pages = [
            r#"{"rows":[1,2],"next":"aa","more":true,"partitions_missing":[3]}"#,
            r#"{"rows":[],"next":"bb","more":true,"partitions_missing":[]}"#,
            r#"{"rows":[3],"next":"cc","more":true,"partitions_missing":[1,3]}"#,
        ];
        let serving = std::thread::spawn(move || {
            let answer = |page: &str| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a request");
                    asked.extend(byte);
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                );
                stream.write_all(answer.as_bytes()).expect("it reads");
                let asked = String::from_utf8_lossy(&asked).into_owned();
                asked.lines().next().unwrap_or_default().to_owned()
            };
            pages.map(answer)
        });
        let query = [("resource", Some("r".to_owned())), ("domain", None)];
        let read: Value = super::pages(&url, ("/v1/list", "rows"), &query, 3).expect("read");
        let expected = serde_json::json!({"rows": [1, 2, 3], "next": "cc", "more": true, "partitions_missing": [1, 3]});
        assert_eq!(read, expected);
        let asked = serving.join().expect("served");
        let line = |query: &str| format!("GET /v1/list?{query}&resource=r HTTP/1.1");
        assert_eq!(
            asked,
            [
                line("limit=3"),
                line("limit=1&after=aa"),
                line("limit=1&after=bb")
            ]
        );
    }
}
