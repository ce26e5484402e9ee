//! An agent as a library, and an aggregator that wants to do it harm: the process that links the agent
//! lives, its memory stays within a bound, and no call is refused.
//!
//! One test at a time, since all of them measure the memory of one process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tollgate_agent::Agent;
use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Topic, Watermark};
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Member, Snapshot, TopicSnapshot};
use tollgate_shared::wire::public::Public;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement, StatementKind};
use tollgate_zmtp::{Decoder, Event, PeerLimits, SocketType, message, opening};

#[path = "edge_agent/hostile.rs"]
mod hostile;

use hostile::{Hostile, hello, welcome};

/// Far more than anything here takes; the machine may be busy.
const SOON: Duration = Duration::from_secs(60);

/// Held by the test whose memory is measured.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// The header of a long frame.
fn header(flags: u8, length: u64) -> Vec<u8> {
    [&[flags][..], &length.to_be_bytes()].concat()
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
fn frames_of_terabytes_do_nothing_to_the_host() {
    let _alone = alone();
    let hostile = Hostile::start(|number, mut stream| {
        let opened = opening(SocketType::Router);
        let length = [1 << 34, 1 << 40, 1 << 46, 1 << 62][(number / 3 % 4) as usize];
        let bytes = match number % 3 {
            0 => [&opened[..64], &header(2, length)].concat(),
            1 => [&opened[..64], &header(6, length)].concat(),
            _ => [&opened[..], &header(2, length)].concat(),
        };
        let _ = stream.write_all(&bytes);
        let _ = stream.read(&mut [0; 4_096]);
    });
    // Several agents, since each waits longer and longer.
    let agents: Vec<Agent> = (0..4).map(|_| hostile.agent()).collect();
    let before = resident();
    hostile.meets(&agents[0], 24);
    assert!(resident() < before + (32 << 20));
    let ended = || {
        let each = agents.iter().map(|agent| agent.stats().connections_ended);
        each.sum::<u64>()
    };
    // For some connections the agent sees a reset before the bytes.
    let begun = Instant::now();
    while ended() < 8 {
        assert!(begun.elapsed() < SOON, "{}", ended());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_mutation_of_a_welcome_harms_the_host() {
    let _alone = alone();
    // One connection each: the next begins while the previous one still exists.
    let whole = welcome(0, 4, 2).len();
    let hostile = Hostile::start(move |number, mut stream| {
        let mut nonce = hello(&mut stream);
        // As many variants as the connection carries: an unreadable frame is counted, and not
        // fatal.
        for turn in 0..40 {
            let Some(hello_nonce) = nonce else {
                return;
            };
            let mut bytes = welcome(hello_nonce, 4, 2);
            let at = (number as usize * 40 + turn) % (whole * 9);
            if at < whole {
                bytes.truncate(at);
            } else {
                let bit = at - whole;
                bytes[bit / 8 % whole] ^= 1 << (bit % 8);
            }
            if stream.write_all(&message(&[&bytes])).is_err() {
                return;
            }
            nonce = Some(hello_nonce);
        }
    });
    let agents: Vec<Agent> = (0..4).map(|_| hostile.agent()).collect();
    let before = resident();
    hostile.meets(&agents[0], 30);
    assert!(resident() < before + (48 << 20));
    let refused: u64 = agents
        .iter()
        .map(|agent| agent.stats().frames_refused)
        .sum();
    assert!(100 < refused, "{refused}");
}

#[test]
fn four_hundred_members_cost_the_host_a_bounded_number_of_connections() {
    let _alone = alone();
    // Members that accept and stay silent, all at one port of many addresses.
    let quiet = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = quiet.local_addr().unwrap().port();
    let open = Arc::<AtomicU64>::default();
    let most = Arc::<AtomicU64>::default();
    std::thread::spawn({
        let most = Arc::clone(&most);
        move || {
            for mut stream in quiet.incoming().map_while(Result::ok) {
                let open = Arc::clone(&open);
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    // They send READY, so the agent keeps them, until it gives up silence.
                    let _ = stream.write_all(&opening(SocketType::Router));
                    while matches!(stream.read(&mut [0; 4_096]), Ok(1..)) {}
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
    });
    let hostile = Hostile::start(move |_, mut stream| {
        let Some(nonce) = hello(&mut stream) else {
            return;
        };
        let members = (0..400u32).map(|n| Member {
            instance: u128::from(n) + 100,
            address: format!("127.0.{}.{}:{port}", n / 250 + 1, n % 250 + 1).into(),
        });
        let mut writer = Writer::new();
        FromAggregator::Welcome {
            nonce,
            instance: 7,
            partitions: 4,
            feeds: Vec::new(),
            clock: Span::ZERO,
            members: members.collect(),
            limits: 0,
        }
        .encode(&mut writer);
        let _ = stream.write_all(&message(&[writer.as_slice()]));
        while matches!(stream.read(&mut [0; 4_096]), Ok(1..)) {}
    });
    let agent = hostile.agent();
    let before = resident();
    let search = agent.rate("api.search");
    let begun = Instant::now();
    while agent.stats().members_waiting < 400 - 256 || most.load(Ordering::SeqCst) < 256 {
        assert!(
            begun.elapsed() < SOON,
            "256 members are met, and the others wait"
        );
        assert!(search.hit("acme").is_ok());
        std::thread::sleep(Duration::from_millis(1));
    }
    // No more than these at a time. Some are met again after silence, and the end of a connection
    // may be seen after the next one.
    assert!(most.load(Ordering::SeqCst) <= 256 + 8);
    assert!(resident() < before + (32 << 20));
}

#[test]
fn a_log_of_four_billion_partitions_is_not_believed() {
    let _alone = alone();
    let hostile = Hostile::start(|_, mut stream| {
        if let Some(nonce) = hello(&mut stream) {
            let mut bytes = welcome(nonce, 1_024, 0);
            // 1,024 in its encoding, and the greatest number of the same width.
            let at = bytes
                .windows(3)
                .position(|three| three == [0xcd, 4, 0])
                .unwrap();
            bytes.splice(at..at + 3, [0xce, 0xff, 0xff, 0xff, 0xff]);
            let _ = stream.write_all(&message(&[&bytes]));
        }
        let _ = stream.read(&mut [0; 4_096]);
    });
    let agent = hostile.agent();
    let before = resident();
    let begun = Instant::now();
    while agent.stats().frames_refused == 0 {
        assert!(begun.elapsed() < SOON, "it is refused");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(resident() < before + (16 << 20));
}

#[test]
fn a_flood_of_garbage_neither_grows_nor_slows_the_host() {
    let _alone = alone();
    let hostile = Hostile::start(|_, mut stream| {
        if hello(&mut stream).is_none() {
            return;
        }
        let frame = message(&[&vec![7; 1 << 20]]);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) && stream.write_all(&frame).is_ok() {}
    });
    let agent = hostile.agent();
    let before = resident();
    let search = agent.rate("api.search");
    let begun = Instant::now();
    while agent.stats().frames_refused < 200 {
        assert!(begun.elapsed() < SOON, "{:?}", agent.stats());
        assert!(search.hit("acme").is_ok());
        std::thread::sleep(Duration::from_millis(1));
        // What may be queued, in flight and in the allocator.
        assert!(resident() < before + (64 << 20));
    }
}

/// A feed that sends these frames once an agent has subscribed.
fn feed(frames: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let frames = frames.clone();
            std::thread::spawn(move || {
                let _ = stream.write_all(&opening(SocketType::Pub));
                let _ = stream.read(&mut [0; 4_096]);
                for frame in frames {
                    if stream.write_all(&frame).is_err() {
                        return;
                    }
                }
                while matches!(stream.read(&mut [0; 4_096]), Ok(1..)) {}
            });
        }
    });
    format!("tcp://{address}")
}

/// A statement that a domain is denied for a minute.
fn denied(domain: &str, offset: u64) -> StatementNotice {
    StatementNotice {
        partition: 1,
        remaining: Span::from_secs(60),
        statement: Statement {
            scope: Scope::Pair(domain.into()),
            position: LogPosition::of_record(LogId::default(), offset),
            kind: StatementKind::Denied(Denial {
                end: Timestamp::MAX,
                cause: Cause::Hard,
                version: 0,
                limit: 1,
                window: Span::from_secs(1),
                most: 1,
            }),
        },
    }
}

/// Of the partition that statements here are of: without it no denial of it has a lease.
fn watermark() -> Watermark {
    Watermark {
        partition: 1,
        log: LogId::default(),
        ruled: 9,
        appended: Timestamp::from_millis(5),
        current: true,
    }
}

/// One part of an answer about `api.search`.
fn part(nonce: u64, number: u32, more: bool, statements: Vec<StatementNotice>) -> Vec<u8> {
    let mut writer = Writer::new();
    FromAggregator::Snapshot(Snapshot {
        nonce,
        part: number,
        more,
        instance: 7,
        clock: Span::ZERO,
        watermarks: vec![watermark()],
        control_sequence: 0,
        topics: vec![TopicSnapshot {
            resource: "api.search".into(),
            sequence: 0,
            public: Public::default(),
            statements,
        }],
    })
    .encode(&mut writer);
    message(&[writer.as_slice()]).to_vec()
}

/// Answers the hello, and answers requests by `answer`, which gets the stream and the request's
/// nonce.
fn aggregator(
    feed: String,
    answer: impl Fn(&mut TcpStream, u64) + Send + Sync + 'static,
) -> Hostile {
    Hostile::start(move |_, mut stream| {
        let _ = stream.write_all(&opening(SocketType::Router));
        let mut decoder = Decoder::new(SocketType::Router, PeerLimits::default());
        let mut bytes = [0; 4_096];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            let mut input = &bytes[..read];
            while let Ok(Some(event)) = decoder.next(&mut input) {
                let Event::Message(parts) = event else {
                    continue;
                };
                match FromAgent::decode(parts.last().unwrap()) {
                    Ok(FromAgent::Hello { nonce, .. }) => {
                        let mut writer = Writer::new();
                        FromAggregator::Welcome {
                            nonce,
                            instance: 7,
                            partitions: 4,
                            feeds: vec![feed.as_str().into()],
                            clock: Span::ZERO,
                            members: Vec::new(),
                            limits: 0,
                        }
                        .encode(&mut writer);
                        let _ = stream.write_all(&message(&[writer.as_slice()]));
                    }
                    Ok(FromAgent::Ask { nonce, .. }) => answer(&mut stream, nonce),
                    _ => {}
                }
            }
        }
    })
}

#[test]
fn an_answer_that_never_ends_is_kept_within_a_bound() {
    let _alone = alone();
    let hostile = aggregator(feed(Vec::new()), |stream, nonce| {
        let begun = Instant::now();
        for number in 0.. {
            let statements = (0..2_000u64).map(|n| {
                let offset = u64::from(number) * 2_000 + n;
                denied(&format!("{offset:0>200}"), offset + 1)
            });
            let bytes = part(nonce, number, true, statements.collect());
            // Then the next question is answered: the agent may have asked again meanwhile, and takes no older answer.
            let is_over = Duration::from_millis(500) < begun.elapsed();
            if is_over || stream.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    let agent = Agent::builder().name("a").denials_max(1_000);
    let agent = agent.aggregator(hostile.address.clone()).build().unwrap();
    let search = agent.rate("api.search");
    let before = resident();
    let begun = Instant::now();
    while agent.stats().denials_without_room < 20_000 {
        assert!(begun.elapsed() < SOON, "{:?}", agent.stats());
        assert!(search.hit("acme").is_ok());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(agent.stats().denials_live <= 1_000);
    assert!(resident() < before + (64 << 20));
}

#[test]
fn no_flipped_bit_denies_another_domain() {
    let _alone = alone();
    let (topic, victim) = (topic(), victim());
    let whole = frame_about(&victim);
    let variants = variants(&whole);
    let count = variants.len() as u64;
    let frames = variants
        .iter()
        .map(|bytes| message(&[topic.as_bytes(), bytes]).to_vec());
    let hostile = aggregator(feed(frames.collect()), move |stream, nonce| {
        // The answer itself, cut and flipped in all its bytes, and finally unchanged.
        let answer = part(nonce, 0, false, vec![denied(&victim, 8)]);
        let header = if answer[0] & 2 == 0 { 2 } else { 9 };
        for bytes in self::variants(&answer[header..]) {
            if stream.write_all(&message(&[&bytes])).is_err() {
                return;
            }
        }
        let _ = stream.write_all(&answer);
    });
    let agent = hostile.agent();
    let search = agent.rate("api.search");
    let begun = Instant::now();
    while agent.stats().frames < count {
        assert!(begun.elapsed() < SOON, "{:?}", agent.stats());
        assert!(search.hit("acme").is_ok(), "no statement is about it");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(count / 2 < agent.stats().frames_refused);
    assert_eq!(agent.stats().connections_ended, 0);
}

/// Otherwise the test above would show nothing.
#[test]
fn the_same_bytes_unflipped_deny_the_domain_that_they_name() {
    let _alone = alone();
    let victim = victim();
    let frame = message(&[topic().as_bytes(), &frame_about(&victim)]).to_vec();
    let named = victim.clone();
    let hostile = aggregator(feed(vec![frame]), move |stream, nonce| {
        let _ = stream.write_all(&part(nonce, 0, false, vec![denied(&named, 8)]));
    });
    let agent = hostile.agent();
    let search = agent.rate("api.search");
    let begun = Instant::now();
    while search.hit(&victim).is_ok() {
        assert!(begun.elapsed() < SOON, "{:?}", agent.stats());
        assert!(search.hit("acme").is_ok(), "no statement is about it");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn topic() -> Topic {
    Topic::of_resource(&[0; 16], "api.search")
}

/// A domain of the partition that statements here are of.
fn victim() -> String {
    let mut names = (0..).map(|number| format!("victim-{number}"));
    let found = names.find(|name| partition_of_pair("api.search", name, 4) == 1);
    found.expect("one in four")
}

/// A frame that states that a domain is denied.
fn frame_about(domain: &str) -> Vec<u8> {
    let frame = Frame {
        instance: 7,
        sequence: 1,
        sent: Span::from_secs(1),
        resource: "api.search".into(),
        watermarks: vec![watermark()],
        statements: vec![denied(domain, 7)],
    };
    let mut writer = Writer::new();
    frame.encode(&mut writer);
    writer.as_slice().to_vec()
}

/// These bytes cut at each place, and with each bit of them flipped.
fn variants(whole: &[u8]) -> Vec<Vec<u8>> {
    let cut = (0..whole.len()).map(|at| whole[..at].to_vec());
    let flipped = (0..whole.len() * 8).map(|bit| {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    cut.chain(flipped).collect()
}
