//! Whether aggregators that were killed have the states that they would have had without: what they tell
//! of their partitions is taken down while they run, and compared afterwards with a twin that reads the
//! whole log in one go and that nobody interrupted.
//!
//! Knows nothing of who kills whom, and when. What stays true: every state that was taken down is compared
//! or missed aloud, and the twin's own offset is looked at, so that one that rules nothing agrees with
//! nobody.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tollgate_limits::versions::{Entered, LimitsBook};
use tollgate_log::{Delivered, LogEvent, Stream};
use tollgate_model::PartitionModel;
use tollgate_replay::model_check::{RecordPosition, Versions, feed};
use tollgate_server::core::event::{Effect, Event, Now, QueryId};
use tollgate_server::core::recordings::WAITING_MAX;
use tollgate_server::core::topics::Subscribed;
use tollgate_server::core::view::{Query, Reply};
use tollgate_server::core::{Core, Settings, Start};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::record::Record;

pub use crate::http::{get, get_text as text};
pub use crate::simulation::random::Random;

/// Far above what a loaded machine needs; a deadline for a broken one.
pub const WITHIN: Duration = Duration::from_secs(60);

/// What those that are killed and their twin rule by: tiers that follow one another, and totals.
pub const LIMITS: &str = r#"
version = 1
rules = 2
[rate.search]
tiers = [
  { limit = 3, window = "1s", active = "1s" },
  { limit = 20, window = "5s", active = "5s", cooldown = "10s" },
]
[rate.wide]
rate = "1000/s"
global = "20/s"
"#;

/// What was seen of a partition at an offset: its digest.
pub type Seen = BTreeMap<(u32, u64), String>;

/// A log: the records of each partition, limits first.
pub type WholeLog = Vec<((Stream, u32), Vec<Delivered>)>;

/// How many kills a trial is asked for, and the seed of its schedule: by `TOLLGATE_KILLS` and
/// `TOLLGATE_KILLS_SEED`, or as many as the ordinary run has, and another one each time.
pub fn kills_and_seed(ordinary: u64) -> (u64, u64) {
    let variable = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let kills = variable("TOLLGATE_KILLS").unwrap_or(ordinary);
    let seed = variable("TOLLGATE_KILLS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("TOLLGATE_KILLS_SEED={seed}, {kills} kills");
    (kills, seed)
}

/// One partition as an aggregator tells it.
#[derive(Clone, Debug)]
pub struct Digest {
    /// Its number.
    pub partition: u32,
    /// What it is about.
    pub stage: String,
    /// All records below this are ruled.
    pub offset: u64,
    /// Of its state.
    pub digest: String,
}

/// What an aggregator says of its partitions; nothing where it is gone.
///
/// # Panics
///
/// Where what it says has another form.
pub fn digests(http: SocketAddr) -> Vec<Digest> {
    let Some(view) = get(http, "/v1/digests") else {
        return Vec::new();
    };
    let number = |value: &Value| value.as_u64().expect("a number");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let of = |one: &Value| Digest {
        partition: u32::try_from(number(&one["partition"])).expect("small"),
        stage: text(&one["stage"]),
        offset: number(&one["offset"]),
        digest: text(&one["digest"]),
    };
    let partitions = view["partitions"].as_array().expect("a list");
    partitions.iter().map(of).collect()
}

/// Takes down what one says of its partitions, and says of which, and how far they are ruled.
///
/// # Panics
///
/// Where another said otherwise of the same offset.
pub fn sample(http: SocketAddr, seen: &mut Seen) -> Vec<(u32, u64)> {
    let mut ruled = Vec::new();
    for digest in digests(http) {
        let at = (digest.partition, digest.offset);
        // Before it has ruled anything, and before the log has proved it, it has no state of the log.
        if digest.offset == 0 || digest.stage == "restoring" {
            continue;
        }
        let known = seen.entry(at).or_insert_with(|| digest.digest.clone());
        assert_eq!(
            *known, digest.digest,
            "two say otherwise at {at:?}, this one {}",
            digest.stage
        );
        ruled.push(at);
    }
    ruled
}

/// Law 8 under kills: the scopes in which more was let through than their limits and one closing explain, by the
/// independent model.
///
/// # Panics
///
/// Where nothing was judged.
pub fn effect_violations(log: &WholeLog) -> Vec<String> {
    let (mut book, mut versions) = (LimitsBook::default(), Versions::default());
    let (mut found, mut scopes) = (Vec::new(), 0);
    for ((stream, partition), records) in log {
        let mut model = PartitionModel::with_effect();
        for delivered in records {
            if *stream == Stream::Limits {
                if let Ok(Some(Entered::Version { version, .. })) =
                    book.read(delivered.offset, delivered.appended, &delivered.bytes)
                {
                    versions.insert(&version);
                }
                continue;
            }
            // What nobody can read is a dead letter, and rules nothing.
            let Ok(record) = Record::decode(&delivered.bytes) else {
                continue;
            };
            let at = RecordPosition {
                offset: delivered.offset,
                appended_us: delivered.appended.as_micros(),
            };
            feed(&mut model, at, &record, &versions, &|_, _| true);
        }
        scopes += model.effect_scopes();
        let all = model.effect_violations().into_iter();
        found.extend(all.map(|found| format!("partition {partition}: {found:?}")));
    }
    assert!(0 < scopes, "nothing was judged");
    found
}

/// Rules the whole log in one go, and compares at every offset that was seen; says how many there were.
///
/// # Panics
///
/// Where a state is another, or the limits did not limit.
pub fn compare(partitions: u32, log: WholeLog, seen: &Seen) -> usize {
    assert_eq!(effect_violations(&log), [""; 0], "law 8");
    let (mut core, _) = Core::new(settings(partitions));
    let mut compared = 0;
    for ((stream, partition), records) in log {
        // As a log says it where following begins: what is delivered before that is not ruled.
        let from = 0;
        step(
            &mut core,
            LogEvent::Following {
                stream,
                partition,
                from,
            },
        );
        for record in records {
            let at = (partition, record.offset + 1);
            let records = vec![record];
            step(
                &mut core,
                LogEvent::Delivered {
                    stream,
                    partition,
                    records,
                },
            );
            if let (Stream::Hits, Some(expected)) = (stream, seen.get(&at)) {
                let (offset, digest) = state_of(&mut core, partition);
                assert_eq!(offset, at.1, "the twin rules partition {partition}, too");
                assert_eq!(*expected, digest, "at {at:?}");
                compared += 1;
            }
        }
        if stream == Stream::Limits {
            let next = 1;
            step(
                &mut core,
                LogEvent::CaughtUp {
                    stream,
                    partition,
                    next,
                },
            );
        }
    }
    compared
}

fn settings(partitions: u32) -> Settings {
    Settings {
        aggregator: "twin".to_owned(),
        seed: [0; 32],
        keys: Keyring::default(),
        partitions,
        group: None,
        start: Start {
            generation: 1,
            unbegun: Vec::new(),
            snapshots: BTreeMap::new(),
        },
        feeds: Vec::new(),
        heartbeat: Span::from_secs(1),
        subscribed: Subscribed::default(),
        follow_file: false,
        waiting_max: WAITING_MAX,
        snapshots: None,
    }
}

const NOW: Now = Now {
    clock: Span::ZERO,
    wall: Timestamp::ZERO,
};

/// What follows is not done: the log has it already.
fn step(core: &mut Core, event: LogEvent) {
    core.step(NOW, Event::Log(event), &mut Vec::new());
}

fn state_of(core: &mut Core, partition: u32) -> (u64, String) {
    let mut effects = Vec::new();
    let query = Event::Query {
        id: QueryId(0),
        query: Query::Digests,
    };
    core.step(NOW, query, &mut effects);
    let found = effects.into_iter().find_map(|effect| match effect {
        Effect::Reply { reply, .. } => match *reply {
            Reply::Digests(view) => Some(view),
            _ => None,
        },
        _ => None,
    });
    let partitions = found.expect("an answer").partitions;
    let state = partitions.into_iter().find(|of| of.partition == partition);
    let state = state.expect("it is between two records");
    (state.offset, state.digest)
}
