//! `tollgate feed tail`: follows a denial feed, and prints a line for each frame that agents receive.
//!
//! ```text
//! control     17  partitions 4
//! api.search   3  partitions 4  denied "acme" for 59.8s (Tier(1))
//! notices of api.search  9  near "globex": 7 of 50 left (window:0), more in 0.1s
//! ```
//!
//! Uses the socket of an independent ZeroMQ library: whatever is shown here, other tools can receive as well. That
//! library supports neither TLS nor tokens; if either is configured, [`SecuredFeed`] replaces its socket. What stays
//! true: names are escaped; a frame that cannot be decoded is shown as such, and ends nothing.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Topic};
use tollgate_shared::wire::notice::{Notice, NoticeFrame};
use tollgate_shared::wire::statement::{Scope, StatementKind};
use tollgate_shared::wire::verdict::{Verdict, VerdictFrame};
use zeromq::{Socket as _, SocketRecv as _, SubSocket};

use super::Global;
use super::feed_secured::SecuredFeed;
use super::interrupt::StopRequest;
use super::output::{Format, Output};
use crate::exit::{Exit, Failure};
use crate::reach::ReachArgs;

/// The topic key of a fleet without a key.
const TOPIC_KEY_UNPROTECTED: [u8; 16] = [0; 16];

/// How long a feed may take to accept a connection.
const REACHED_WITHIN: Duration = Duration::from_secs(5);

/// What `feed` takes.
#[derive(Debug, clap::Args)]
pub struct FeedArgs {
    #[command(subcommand)]
    verb: FeedVerb,
}

#[derive(Debug, clap::Subcommand)]
enum FeedVerb {
    /// Follows the feed, and prints a line for each frame, until SIGINT or SIGTERM ends it with exit code 0
    Tail(TailArgs),
}

/// What `feed tail` takes.
#[derive(Debug, clap::Args)]
struct TailArgs {
    /// The address of an aggregator's feed
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "TOLLGATE_FEED",
        default_value = "127.0.0.1:7402"
    )]
    feed: String,
    /// Denials and lifts of this resource, and notices of domains near its limits; may be repeated
    #[arg(long, value_name = "NAME", value_parser = super::operator::name)]
    resource: Vec<String>,
    /// Verdicts on the holds of this agent; may be repeated
    #[arg(long, value_name = "NAME", value_parser = super::operator::found_name)]
    agent: Vec<String>,
    /// How many frames to print [default: until it is interrupted]
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
}

/// Runs the command.
///
/// # Errors
///
/// If no feed answers at the address, or the output cannot be written.
pub fn run(global: &Global, args: &FeedArgs) -> Result<Exit, Failure> {
    let FeedVerb::Tail(args) = &args.verb;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Failure::Io {
            name: "runtime".to_owned(),
            source,
        })?;
    let stop = StopRequest::on_signal()?;
    let mut output = global.open_handled_output()?;
    runtime.block_on(async {
        tokio::select! {
            followed = follow(args, global, &mut output) => followed,
            () = stop.made() => Ok(()),
        }
    })?;
    output.finish()?;
    Ok(Exit::Done)
}

/// The subscriber's connection.
enum FeedHearing<'a> {
    Plain(SubSocket, &'a str),
    Secured(Box<SecuredFeed>),
}

impl<'a> FeedHearing<'a> {
    async fn begin(
        feed: &'a str,
        reach: &ReachArgs,
        topics: &[(Topic, String)],
    ) -> Result<Self, Failure> {
        if reach.ca.is_some() || reach.token_file.is_some() {
            let topics = topics.iter().map(|(topic, _)| &topic.as_bytes()[..]);
            let feed = SecuredFeed::connect(feed, reach, topics).await?;
            return Ok(Self::Secured(Box::new(feed)));
        }
        let unavailable = |error| unavailable(feed, &error);
        // The socket would try for half a minute before it says that nobody listens.
        let reached = tokio::time::timeout(REACHED_WITHIN, tokio::net::TcpStream::connect(feed));
        let why = match reached.await {
            Ok(reached) => reached.err().map(|error| error.to_string()),
            Err(_) => Some(format!("no answer within {} s", REACHED_WITHIN.as_secs())),
        };
        if let Some(why) = why {
            return Err(Failure::Unavailable(format!("{feed}: {why}")));
        }
        let mut socket = SubSocket::new();
        for (topic, _) in topics {
            let subscribed = socket.subscribe(topic.as_text()).await;
            subscribed.map_err(unavailable)?;
        }
        let connected = socket.connect(&format!("tcp://{feed}")).await;
        connected.map_err(unavailable)?;
        Ok(Self::Plain(socket, feed))
    }

    /// The next message, as its frames.
    async fn next(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        match self {
            Self::Secured(feed) => feed.next().await,
            Self::Plain(socket, feed) => {
                let message = socket.recv().await;
                let message = message.map_err(|error| unavailable(feed, &error))?;
                let parts = message.into_vec();
                Ok(parts.iter().map(|part| part.to_vec()).collect())
            }
        }
    }
}

fn unavailable(feed: &str, error: &zeromq::ZmqError) -> Failure {
    Failure::Unavailable(format!("{feed}: {error}"))
}

async fn follow(args: &TailArgs, global: &Global, output: &mut Output) -> Result<(), Failure> {
    let format = global.format;
    let topic = |of: fn(&[u8; 16], &str) -> Topic| {
        move |name: &String| (of(&TOPIC_KEY_UNPROTECTED, name), name.clone())
    };
    let resources = args.resource.iter().map(topic(Topic::of_resource));
    let notices = args.resource.iter().map(topic(Topic::of_notices));
    let agents = args.agent.iter().map(topic(Topic::of_agent));
    let control = [(Topic::CONTROL, "control".to_owned())];
    let topics = control.into_iter().chain(resources).chain(notices);
    let topics: Vec<(Topic, String)> = topics.chain(agents).collect();
    let mut hearing = FeedHearing::begin(&args.feed, &global.reach, &topics).await?;
    let mut left = args.frames.unwrap_or(u64::MAX);
    while 0 < left {
        let message = hearing.next().await?;
        let [topic, frame] = &message[..] else {
            output.line(format!("not a frame: {} parts, expected 2", message.len()))?;
            continue;
        };
        let named = topics
            .iter()
            .find(|(one, _)| one.as_bytes()[..] == topic[..]);
        let name = named.map_or("(unknown topic)", |(_, name)| name);
        match (format, topic.first()) {
            (Format::Text, Some(b'a')) => output.line(text_of_verdicts(name, frame))?,
            (Format::Json, Some(b'a')) => output.json(&view_of_verdicts(name, frame))?,
            (Format::Text, Some(b'n')) => output.line(text_of_notices(name, frame))?,
            (Format::Json, Some(b'n')) => output.json(&view_of_notices(name, frame))?,
            (Format::Text, _) => output.line(text(name, frame))?,
            (Format::Json, _) => output.json(&view(name, frame))?,
        }
        // Each frame is shown when it arrives.
        output.flush()?;
        left -= 1;
    }
    Ok(())
}

fn text(name: &str, bytes: &[u8]) -> String {
    let frame = match Frame::decode(bytes) {
        Ok(frame) => frame,
        Err(error) => return format!("{}  not a frame: {error}", escaped(name)),
    };
    let mut line = format!(
        "{}  {}  partitions {}",
        escaped(name),
        frame.sequence,
        frame.watermarks.len()
    );
    for notice in &frame.statements {
        line += &match notice.statement.kind {
            StatementKind::Denied(denial) => format!(
                "  denied {} for {} ({:?})",
                scope(&notice.statement.scope),
                remaining(notice.remaining),
                denial.cause
            ),
            StatementKind::Lifted => format!("  open {}", scope(&notice.statement.scope)),
        };
    }
    line
}

fn scope(scope: &Scope) -> String {
    match scope {
        Scope::Pair(domain) => format!("\"{}\"", escaped(domain)),
        Scope::Resource => "all domains".to_owned(),
        Scope::Group(group) => format!("group \"{}\"", escaped(group)),
    }
}

fn remaining(span: Span) -> String {
    match span {
        Span::MAX => "ever".to_owned(),
        span => format!("{:.1}s", span.as_micros() as f64 / 1e6),
    }
}

fn view(name: &str, bytes: &[u8]) -> Value {
    let frame = match Frame::decode(bytes) {
        Ok(frame) => frame,
        Err(error) => return unreadable(name, &error),
    };
    let watermarks = frame.watermarks.iter().map(|one| {
        json!({
            "partition": one.partition,
            "ruled": one.ruled,
            "appended_us": one.appended.as_micros(),
        })
    });
    let mut view = head(("topic", name), frame.instance, frame.sequence, frame.sent);
    view["evidence"] = watermarks.collect::<Vec<_>>().into();
    view["statements"] = frame
        .statements
        .iter()
        .map(statement)
        .collect::<Vec<_>>()
        .into();
    view
}

fn statement(notice: &StatementNotice) -> Value {
    let (kind, name) = match &notice.statement.scope {
        Scope::Pair(domain) => ("domain", Some(&**domain)),
        Scope::Resource => ("everybody", None),
        Scope::Group(group) => ("group", Some(&**group)),
    };
    let mut view = json!({
        "partition": notice.partition,
        "scope": kind,
        "name": name,
    });
    match notice.statement.kind {
        StatementKind::Denied(denial) => {
            let remaining = (notice.remaining != Span::MAX).then(|| notice.remaining.as_micros());
            view["says"] = "denied".into();
            view["remaining_us"] = remaining.into();
            view["cause"] = format!("{:?}", denial.cause).into();
            view["version"] = denial.version.into();
        }
        StatementKind::Lifted => view["says"] = "open".into(),
    }
    view
}

fn text_of_notices(name: &str, bytes: &[u8]) -> String {
    let name = escaped(name);
    match NoticeFrame::decode(bytes) {
        Ok(frame) => {
            let mut line = format!("notices of {name}  {}", frame.sequence);
            for notice in &frame.notices {
                let Notice {
                    domain,
                    left,
                    limit,
                    cause,
                    ..
                } = notice;
                let (domain, more) = (escaped(domain), remaining(notice.more_in));
                line += &format!(
                    "  near \"{domain}\": {left} of {limit} left ({cause}), more in {more}"
                );
            }
            line
        }
        Err(error) => format!("notices of {name}  not a frame: {error}"),
    }
}

fn view_of_notices(name: &str, bytes: &[u8]) -> Value {
    let frame = match NoticeFrame::decode(bytes) {
        Ok(frame) => frame,
        Err(error) => return unreadable(name, &error),
    };
    let span = |span: Span| (span != Span::MAX).then(|| span.as_micros());
    let notices = frame.notices.iter().map(|notice| {
        json!({
            "partition": notice.partition,
            "domain": notice.domain,
            "cause": notice.cause.to_string(),
            "left": notice.left,
            "limit": notice.limit,
            "window_us": notice.window.as_micros(),
            "more_in_us": span(notice.more_in),
            "near_for_us": span(notice.near_for),
            "since_us": notice.since.as_micros(),
        })
    });
    let mut view = head(("topic", name), frame.instance, frame.sequence, frame.sent);
    view["notices"] = notices.collect::<Vec<_>>().into();
    view
}

fn text_of_verdicts(name: &str, bytes: &[u8]) -> String {
    let name = escaped(name);
    match VerdictFrame::decode(bytes) {
        Ok(frame) => {
            let mut line = format!("agent {name}  {}", frame.sequence);
            for verdict in &frame.verdicts {
                let (resource, says) = (escaped(&verdict.resource), says_of(verdict));
                line += &format!("  \"{resource}\" {}", escaped(&says));
            }
            line
        }
        Err(error) => format!("agent {name}  not a frame: {error}"),
    }
}

fn says_of(verdict: &Verdict) -> String {
    let status = verdict.status.as_ref();
    status.map_or_else(|| "list wanted".to_owned(), ToString::to_string)
}

fn view_of_verdicts(name: &str, bytes: &[u8]) -> Value {
    let frame = match VerdictFrame::decode(bytes) {
        Ok(frame) => frame,
        Err(error) => return unreadable(name, &error),
    };
    let verdicts = frame.verdicts.iter().map(|verdict| {
        json!({
            "partition": verdict.partition,
            "resource": verdict.resource,
            "says": says_of(verdict),
        })
    });
    let mut view = head(("agent", name), frame.instance, frame.sequence, frame.sent);
    view["verdicts"] = verdicts.collect::<Vec<_>>().into();
    view
}

/// The fields that every frame has; `of` is the subject of its topic.
fn head(of: (&str, &str), instance: u128, sequence: u64, sent: Span) -> Value {
    let mut view = json!({
        "schema": "tollgate.feed/1",
        "instance": format!("{instance:032x}"),
        "sequence": sequence,
        "sent_us": sent.as_micros(),
    });
    view[of.0] = of.1.into();
    view
}

fn unreadable(name: &str, error: &dyn std::fmt::Display) -> Value {
    json!({
        "schema": "tollgate.feed/1",
        "topic": name,
        "unreadable": error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use tollgate_shared::log_position::LogPosition;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::Writer;
    use tollgate_shared::wire::statement::{Cause, Statement};

    use super::*;

    fn frame() -> Vec<u8> {
        let frame = Frame {
            instance: 7,
            sequence: 3,
            resource: "api.search".into(),
            statements: vec![StatementNotice {
                partition: 1,
                remaining: Span::ZERO,
                statement: Statement {
                    scope: Scope::Pair("a\u{1b}[2J".into()),
                    position: LogPosition::default(),
                    kind: StatementKind::Lifted,
                },
            }],
            ..Frame {
                instance: 0,
                sequence: 0,
                sent: Span::ZERO,
                resource: "".into(),
                watermarks: Vec::new(),
                statements: Vec::new(),
            }
        };
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        writer.as_slice().to_vec()
    }

    #[test]
    fn names_are_escaped_and_invalid_frames_reported() {
        let line = text("api.search", &frame());
        assert_eq!(line, r#"api.search  3  partitions 0  open "a\x1b[2J""#);
        assert!(text("r", b"\x01").starts_with("r  not a frame: byte 1"));
        let view = view("api.search", &frame());
        assert_eq!(view["statements"][0]["says"], "open");
        assert_eq!(view["sequence"], 3);
    }

    #[test]
    fn notices_say_what_is_left() {
        let notice = Notice {
            partition: 1,
            domain: "acme".into(),
            cause: Cause::Window(0),
            left: 7,
            limit: 50,
            window: Span::from_secs(1),
            more_in: Span::from_millis(100),
            near_for: Span::MAX,
            since: Timestamp::ZERO,
        };
        let frame = NoticeFrame {
            instance: 7,
            sequence: 9,
            sent: Span::ZERO,
            resource: "api.search".into(),
            notices: vec![notice],
        };
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        assert_eq!(
            text_of_notices("api.search", writer.as_slice()),
            r#"notices of api.search  9  near "acme": 7 of 50 left (window:0), more in 0.1s"#
        );
        let view = view_of_notices("api.search", writer.as_slice());
        assert_eq!(view["notices"][0]["left"], 7);
        assert_eq!(view["notices"][0]["near_for_us"], Value::Null);
        assert!(text_of_notices("r", b"\x01").contains("not a frame"));
    }
}
