//! A small aggregator on real sockets: welcomes, acknowledgements, snapshots, frames. It sends what the test chooses,
//! and rules nothing.

#![allow(dead_code, reason = "each test uses its part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod later;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use state::State;
use tokio::sync::{mpsc, watch};
use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Topic, Watermark};
use tollgate_shared::wire::heartbeat::Heartbeat;
use tollgate_shared::wire::hits::{HitBatch, Sender};
use tollgate_shared::wire::holds::{HoldAction, HoldOp};
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Refusal, Snapshot, TopicSnapshot};
use tollgate_shared::wire::public::Public;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement, StatementKind};
use tollgate_shared::wire::verdict::{HoldStatus, Verdict, VerdictFrame};
use zeromq::{PubSocket, RouterSocket, Socket as _, SocketRecv as _, SocketSend as _, ZmqMessage};

pub const PARTITIONS: u32 = 4;

/// An address without a listener: the system gives this port to nobody who asks for any.
pub const NOBODY: &str = "127.0.0.1:1";

const HEARTBEAT: Duration = Duration::from_millis(100);

/// A record that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub partition: u32,
    pub sequence: u64,
    pub epoch: u128,
    pub hits: Vec<(String, String, u32)>,
    pub refused: Vec<(String, String, u64)>,
}

/// A record about holds that was appended, as text: `hold 1 acme x2`, `heartbeat list [1x2]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRecord {
    pub partition: u32,
    pub sequence: u64,
    pub epoch: u128,
    pub text: String,
}

/// Orders to the sockets' task.
enum Do {
    Publish(Topic, Vec<u8>),
}

/// The small aggregator.
pub struct Aggregator {
    pub agents: SocketAddr,
    pub feed: SocketAddr,
    state: Arc<Mutex<State>>,
    orders: mpsc::Sender<Do>,
    changed: watch::Receiver<u64>,
    began: Instant,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Aggregator {
    /// An aggregator on ports of the system's choice.
    pub async fn start(instance: u128) -> Self {
        Self::start_at(instance, 1, "127.0.0.1:0", "127.0.0.1:0").await
    }

    /// An aggregator on these addresses, which continues to rule from this offset of each partition.
    pub async fn start_at(instance: u128, ruled: u64, agents: &str, feed: &str) -> Self {
        let (agents, feed) = (listen(agents).await, listen(feed).await);
        let addresses = (
            agents.local_addr().expect("bound"),
            feed.local_addr().expect("bound"),
        );
        let mut router = RouterSocket::new();
        router.bind_listener(agents).await.expect("a router");
        let mut publisher = PubSocket::new();
        publisher.bind_listener(feed).await.expect("a publisher");
        let state = Arc::new(Mutex::new(State {
            instance,
            log: 7,
            ruled,
            ..State::default()
        }));
        let (orders, receiver) = mpsc::channel(64);
        let (changes, changed) = watch::channel(0);
        let began = Instant::now();
        let served = Served {
            state: Arc::clone(&state),
            began,
            feed: addresses.1,
            changes,
        };
        let task = tokio::spawn(served.run(router, publisher, receiver));
        Self {
            agents: addresses.0,
            feed: addresses.1,
            state,
            orders,
            changed,
            began,
            task,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// Announces that a domain is denied for a while, at the next log position; returns its offset.
    pub async fn deny(&self, resource: &str, domain: &str, remaining: Duration) -> u64 {
        self.say(resource, domain, Some(remaining)).await
    }

    /// Announces that a domain is open.
    pub async fn open(&self, resource: &str, domain: &str) -> u64 {
        self.say(resource, domain, None).await
    }

    async fn say(&self, resource: &str, domain: &str, remaining: Option<Duration>) -> u64 {
        let (offset, frame) = {
            let mut state = self.state();
            let notice = state.take(resource, domain, remaining);
            let offset = notice.statement.position.offset;
            (offset, state.frame(resource, vec![notice], self.began))
        };
        self.publish(resource, frame).await;
        offset
    }

    /// Records a statement, and loses its frame.
    pub fn deny_unheard(&self, resource: &str, domain: &str, remaining: Duration) {
        let mut state = self.state();
        let notice = state.take(resource, domain, Some(remaining));
        state.frame(resource, vec![notice], self.began);
    }

    async fn publish(&self, resource: &str, frame: Vec<u8>) {
        let topic = Topic::of_resource(&[0; 16], resource);
        assert!(
            self.orders.send(Do::Publish(topic, frame)).await.is_ok(),
            "the task runs"
        );
    }

    /// Records about holds that were appended.
    pub fn hold_records(&self) -> Vec<HoldRecord> {
        self.state().hold_records.clone()
    }

    /// Publishes a verdict on a hold of the agent that sent the last record, at the next log position.
    pub async fn rule(&self, agent: &str, resource: &str, status: HoldStatus) {
        let frame = self.state().verdict(agent, resource, status, self.began);
        let topic = Topic::of_agent(&[0; 16], agent);
        assert!(
            self.orders.send(Do::Publish(topic, frame)).await.is_ok(),
            "the task runs"
        );
    }

    pub fn set_public(&self, resource: &str, public: Public) {
        self.state().public.insert(resource.to_owned(), public);
    }

    /// From now on it sends messages of a later release.
    pub fn is_of_a_later_release(&self) {
        self.state().later = true;
    }

    /// Refuses the next appends in this way; `None` accepts them again.
    pub fn refuse(&self, refusal: Option<Refusal>) {
        self.state().refuse = refusal;
    }

    /// Accepts the next appends without an answer.
    pub fn swallow(&self, appends: u32) {
        self.state().swallow = appends;
    }

    /// Up to which offset it has ruled each partition.
    pub fn ruled(&self) -> u64 {
        self.state().ruled
    }

    /// Stops heartbeats and ruling, or resumes them.
    pub fn be_quiet(&self, quiet: bool) {
        self.state().quiet = quiet;
    }

    pub fn snapshot_requests(&self) -> u32 {
        self.state().snapshot_requests
    }

    pub fn appended(&self) -> Vec<Appended> {
        self.state().appended.clone()
    }

    /// Copies of appended calls that were let through, each record counted once.
    pub fn copies(&self) -> u64 {
        let mut seen = std::collections::BTreeSet::new();
        self.appended()
            .iter()
            .filter(|one| seen.insert((one.epoch, one.partition, one.sequence)))
            .flat_map(|one| one.hits.clone())
            .map(|(_, _, copies)| u64::from(copies))
            .sum()
    }

    /// Waits until a condition is true.
    pub async fn until(&self, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let mut changed = self.changed.clone();
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while !is(self) {
                // Heartbeats change the state often enough.
                changed.changed().await.expect("the task runs");
            }
        });
        assert!(waited.await.is_ok(), "not within 20 s: {what}");
    }
}

async fn listen(address: &str) -> std::net::TcpListener {
    // An address that was just released may take a moment.
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match tokio::net::TcpListener::bind(address)
            .await
            .and_then(tokio::net::TcpListener::into_std)
        {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < until, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Served {
    state: Arc<Mutex<State>>,
    began: Instant,
    feed: SocketAddr,
    changes: watch::Sender<u64>,
}

impl Served {
    async fn run(
        self,
        mut router: RouterSocket,
        mut publisher: PubSocket,
        mut orders: mpsc::Receiver<Do>,
    ) {
        let mut heartbeats = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                message = router.recv() => {
                    let Ok(message) = message else { continue };
                    let mut parts = message.into_vecdeque();
                    let (Some(peer), Some(said)) = (parts.pop_front(), parts.pop_back()) else { continue };
                    if let Some(answer) = self.answer(&said) {
                        let mut writer = Writer::new();
                        answer.encode(&mut writer);
                        let mut message = ZmqMessage::from(peer);
                        let is_later = self.state.lock().expect("not poisoned").later;
                        message.push_back(match is_later {
                            true => later::answer(&answer, writer.as_slice()).into(),
                            false => Bytes::copy_from_slice(writer.as_slice()),
                        });
                        let _ = router.send(message).await;
                    }
                }
                Some(Do::Publish(topic, frame)) = orders.recv() => publish(&mut publisher, topic, frame).await,
                _ = heartbeats.tick() => {
                    for (topic, frame) in self.heartbeats() {
                        publish(&mut publisher, topic, frame).await;
                    }
                }
            }
            self.changes.send_modify(|count| *count += 1);
        }
    }

    fn heartbeats(&self) -> Vec<(Topic, Vec<u8>)> {
        let mut state = self.state.lock().expect("not poisoned");
        if state.quiet {
            return Vec::new();
        }
        state.ruled += 1;
        let mut frames = vec![(Topic::CONTROL, state.frame("", Vec::new(), self.began))];
        let resources: std::collections::BTreeSet<String> = state
            .live
            .keys()
            .map(|(resource, _)| resource.clone())
            .collect();
        for resource in resources {
            let frame = state.frame(&resource, Vec::new(), self.began);
            frames.push((Topic::of_resource(&[0; 16], &resource), frame));
        }
        frames
    }

    fn answer(&self, message: &[u8]) -> Option<FromAggregator> {
        let mut state = self.state.lock().expect("not poisoned");
        match FromAgent::decode(message).expect("agents speak the language") {
            FromAgent::Hello { nonce, .. } => Some(FromAggregator::Welcome {
                nonce,
                instance: state.instance,
                partitions: PARTITIONS,
                feeds: vec![format!("tcp://{}", self.feed).into()],
                clock: Span::from_std(self.began.elapsed()),
                members: Vec::new(),
                limits: 0,
            }),
            FromAgent::Ask { nonce, resources } => {
                state.snapshot_requests += 1;
                Some(FromAggregator::Snapshot(
                    state.snapshot(nonce, &resources, self.began),
                ))
            }
            FromAgent::Append {
                id,
                partition,
                record,
            } => {
                if let Some(reason) = state.refuse {
                    return Some(FromAggregator::Refused {
                        id,
                        reason,
                        text: "as told".into(),
                    });
                }
                match Record::decode(record) {
                    Ok(Record::Hits(batch)) => state.take_hits(partition, &batch),
                    Ok(Record::Holds(batch)) => {
                        let ops: Vec<String> = batch.ops().map(|op| text_of_op(&op)).collect();
                        state.take_said(partition, &batch.sender, ops.join(", "));
                    }
                    Ok(Record::Heartbeat(heartbeat)) => {
                        let text = text_of_heartbeat(&heartbeat);
                        state.take_said(partition, &heartbeat.sender, text);
                    }
                    other => panic!("not an agent's: {other:?}"),
                }
                if 0 < state.swallow {
                    state.swallow -= 1;
                    return None;
                }
                let offset = (state.appended.len() + state.hold_records.len()) as u64;
                Some(FromAggregator::Appended {
                    id,
                    partition,
                    offset,
                })
            }
        }
    }
}

fn text_of_op(op: &HoldOp<'_>) -> String {
    let number = op.number;
    match op.action {
        HoldAction::Reserve {
            domain,
            copies,
            min,
        } if min < copies => format!("reserve {number} {domain} x{min}..{copies}"),
        HoldAction::Reserve { domain, copies, .. } => {
            format!("reserve {number} {domain} x{copies}")
        }
        HoldAction::Hold { domain, copies } => format!("hold {number} {domain} x{copies}"),
        HoldAction::Release { copies } => format!("release {number} x{copies}"),
        HoldAction::Transfer { copies, to, .. } => format!("transfer {number} x{copies} {to}"),
        HoldAction::Seize { from } => format!("seize {number} {from}"),
        HoldAction::Cancel => format!("cancel {number}"),
    }
}

fn text_of_heartbeat(heartbeat: &Heartbeat<'_>) -> String {
    let mut text = "heartbeat".to_owned();
    if heartbeat.head.last {
        text += " last";
    }
    for part in heartbeat.parts() {
        let listed: Vec<String> = part
            .listed()
            .map(|one| format!("{}x{}", one.number, one.copies))
            .collect();
        text += &format!(" {} {listed:?}", heartbeat.resource(part.resource));
    }
    text
}

async fn publish(publisher: &mut PubSocket, topic: Topic, frame: Vec<u8>) {
    let mut message = ZmqMessage::from(Bytes::copy_from_slice(topic.as_bytes()));
    message.push_back(frame.into());
    let _ = publisher.send(message).await;
}
