//! Tests of a service's log, if an aggregator tries to fill it, or to write lines of its own into it. Alone in its
//! process, whose subscriber receives the events of every thread.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate_agent::Agent;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Member, Refusal};
use tollgate_zmtp::{Decoder, Event, PeerLimits, SocketType, error, message, opening};
use tracing::field::{Field, Visit};
use tracing::span;

const SOON: Duration = Duration::from_secs(60);

/// Characters that clear a screen, forge a line and reverse text.
const EVIL: &str = "\u{1b}[31m\n2026-11-26T00:00:00Z ERROR forged\r\u{202e}";

/// Keeps each line by its subject, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate_agent")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let mut lines = self.0.lock().unwrap();
        lines.entry(line.message).or_default().push(line.fields);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    /// Texts as well, because a service's subscriber may write them unescaped.
    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.fields, " {}={value}", field.name()).unwrap();
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => write!(self.fields, " {name}={value:?}").unwrap(),
        }
    }
}

fn written(answer: &FromAggregator) -> Vec<u8> {
    let mut writer = Writer::new();
    answer.encode(&mut writer);
    message(&[writer.as_slice()]).to_vec()
}

fn refused(id: u64) -> Vec<u8> {
    written(&FromAggregator::Refused {
        id,
        reason: Refusal::Never,
        text: format!("{EVIL}{}", "x".repeat(900)).into(),
    })
}

/// A welcome that names a thousand unknown aggregators.
fn welcome(nonce: u64) -> Vec<u8> {
    let name = |n: u64| format!("h{nonce}-{n}{EVIL}:1");
    let members = (0..1_000).map(|n| Member {
        instance: u128::from(nonce) << 64 | u128::from(n),
        address: name(n).into(),
    });
    written(&FromAggregator::Welcome {
        nonce,
        instance: 7,
        partitions: 4,
        feeds: vec![name(0).into(), format!("tcp://{}", name(1)).into()],
        clock: Span::ZERO,
        members: members.collect(),
        limits: 0,
    })
}

/// Serves one connection: every second one is refused, or ended for its bytes; the others get floods.
fn serve(number: u64, mut stream: TcpStream) -> Option<()> {
    stream.set_write_timeout(Some(SOON)).unwrap();
    let opened = opening(SocketType::Router);
    match number % 4 {
        1 => {
            stream.write_all(&opened).ok()?;
            stream.write_all(&error(EVIL)).ok()?;
        }
        3 => {
            stream.write_all(&opened).ok()?;
            stream.write_all(&[2; 9]).ok()?;
        }
        _ => stream.write_all(&opened).ok()?,
    }
    let mut decoder = Decoder::new(SocketType::Router, PeerLimits::default());
    let mut bytes = [0; 4_096];
    let mut answered = 0;
    // A link works for a while, so that other connections follow.
    while answered < 6 {
        let read = stream.read(&mut bytes).ok().filter(|read| 0 < *read)?;
        let mut input = &bytes[..read];
        while let Ok(Some(event)) = decoder.next(&mut input) {
            let Event::Message(parts) = event else {
                continue;
            };
            match FromAgent::decode(parts.last()?) {
                Ok(FromAgent::Hello { nonce, .. }) => {
                    stream.write_all(&refused(u64::MAX).repeat(2_000)).ok()?;
                    stream.write_all(&welcome(nonce)).ok()?;
                }
                Ok(FromAgent::Append { id, .. }) => {
                    stream.write_all(&refused(id)).ok()?;
                    answered += 1;
                }
                _ => {}
            }
        }
    }
    // Bytes of the agent that nobody has read would reset the connection, and what was written here would be lost.
    stream.shutdown(Shutdown::Write).ok()?;
    io::copy(&mut stream, &mut io::sink()).ok()?;
    Some(())
}

#[test]
fn an_aggregator_cannot_flood_or_forge_the_agents_log_lines() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, stream) in (0..).zip(listener.incoming().map_while(Result::ok)) {
            std::thread::spawn(move || serve(number, stream));
        }
    });
    let began = Instant::now();
    let agent = Agent::builder().name("a").aggregator(address);
    let agent = agent.build().unwrap();
    let rate = agent.rate("api.search");
    loop {
        assert!(rate.hit("acme").is_ok());
        let stats = agent.stats();
        let caused = [
            (stats.refusals_unknown, 10_000),
            (stats.batches_refused, 2),
            (stats.connections_refused, 2),
            (stats.connections_ended, 2),
            (stats.members_not_followed, 500),
            (stats.names_not_resolved, 100),
        ];
        if caused.iter().all(|(found, wanted)| wanted <= found) {
            break;
        }
        assert!(began.elapsed() < SOON, "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let lines = log.0.lock().unwrap();
    let seconds = began.elapsed().as_secs() + 2;
    for about in [
        "the log refused a batch of hits",
        "no connection to an aggregator, because of credentials; without another connection, calls are let through",
        "ended a connection to an aggregator",
        "an aggregator is not followed: 1024 are followed already",
        "found another aggregator of the fleet",
        "a connection was lost",
    ] {
        assert!(lines.contains_key(about), "{about}: {:?}", lines.keys());
    }
    // One every 30 s.
    let of_credentials = lines
        .iter()
        .filter(|(about, _)| about.contains("because of credentials"));
    let bytes: usize = of_credentials.map(|(_, all)| all.len()).sum();
    assert!(bytes as u64 <= 1 + seconds / 30, "{bytes} lines");
    // What the agent says after 10 s without a ruling, on a slow machine, has nothing of the aggregator in it.
    let is_caused = |about: &str| !about.starts_with("some or all partitions are ruled by nobody");
    for (about, all) in lines.iter().filter(|(about, _)| is_caused(about)) {
        assert!(all.len() as u64 <= seconds, "{about}: {} lines", all.len());
        for line in all {
            let obeyed = |one: char| one.is_control() || one == '\u{202e}';
            assert!(!line.contains(obeyed), "{about}: {line:?}");
            assert!(line.len() < 2_000, "{about}: {} bytes", line.len());
            assert!(line.contains("unsaid="), "{about}: {line}");
        }
    }
}
