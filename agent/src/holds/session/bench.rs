//! A test bench: a hold session with a simulated log and aggregator, notice by notice and verdict
//! by verdict.

use tokio::sync::oneshot;
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::public::{Kind, OnExcess, Public, PublicCopies};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::{HoldReason, HoldStatus, SeizedCopies, Verdict};

use super::*;
use crate::batch::holds::HeartbeatContent;

pub(super) const NOW: Mono = Mono(100_000_000);
pub(super) const WALL: Timestamp = Timestamp::from_millis(1_700_000_000_000);
pub(super) const EPOCH: u128 = 77;

pub(super) struct SessionBench {
    pub(super) session: HoldSession,
    pub(super) resource: Arc<Resource>,
    pub(super) now: Mono,
    pub(super) order: u64,
    pub(super) offset: u64,
    /// The simulated state of records in flight.
    pub(super) under_way: UnderWay,
    /// Whether the log answers nothing; otherwise it has acknowledged by the next call what was
    /// sent.
    pub(super) is_silent: bool,
}

impl SessionBench {
    pub(super) fn new() -> Self {
        Self::after(None)
    }

    pub(super) fn after(replaces: Option<u128>) -> Self {
        let resources = Arc::new(Resources::new(1, 10));
        let resource = resources.get("sandbox").0.expect("room");
        let origin = Origin {
            epoch: EPOCH,
            replaces,
        };
        let mut session = HoldSession::new(origin, resources, Arc::default(), Arc::default(), None);
        session.set_partitions(4, NOW);
        let bench = Self {
            session,
            resource,
            now: NOW,
            order: 0,
            offset: 0,
            under_way: UnderWay::default(),
            is_silent: false,
        };
        bench.learn(OnExcess::Keep);
        bench
    }

    /// How often an excess was new.
    pub(super) fn excesses(&self) -> u64 {
        self.session.counters.holds_excess.load(Ordering::Relaxed)
    }

    pub(super) fn learn(&self, on_excess: OnExcess) {
        self.resource.learn(&Public {
            version: 1,
            kind: Kind::Copies,
            copies: Some(PublicCopies {
                limit: 10,
                agent_timeout: Span::from_secs(2),
                on_excess,
                ..PublicCopies::default()
            }),
            ..Public::default()
        });
    }

    /// The agent learns a version with another timeout.
    pub(super) fn learn_timeout(&self, version: u64, secs: u64) {
        self.resource.learn(&Public {
            version,
            kind: Kind::Copies,
            copies: Some(PublicCopies {
                agent_timeout: Span::from_secs(secs),
                ..PublicCopies::default()
            }),
            ..Public::default()
        });
        self.session.resources.limits_changed();
    }

    pub(super) fn give(&mut self, number: Option<u64>, what: NoticeKind) -> u64 {
        self.order += 1;
        let number = number.unwrap_or(self.order);
        let told = HoldNotice {
            order: self.order,
            resource: self.resource.id,
            number,
            at: WALL,
            what,
        };
        self.session.take(vec![told], self.now);
        number
    }

    pub(super) fn hold(&mut self, domain: &str, copies: u32) -> u64 {
        let domain = domain.into();
        self.give(None, NoticeKind::Hold { domain, copies })
    }

    pub(super) fn release(&mut self, number: u64, copies: u32) {
        self.give(Some(number), NoticeKind::Release { copies });
    }

    pub(super) fn reserve(
        &mut self,
        domain: &str,
        copies: u32,
    ) -> (u64, oneshot::Receiver<HoldAnswer>) {
        let (answer, verdict) = oneshot::channel();
        let rare = RareNotice::Reserve {
            domain: domain.into(),
            copies,
            min: copies,
            answer,
        };
        (self.give(None, NoticeKind::Rare(Box::new(rare))), verdict)
    }

    pub(super) fn seize(&mut self, id: u128) -> (u64, oneshot::Receiver<HoldAnswer>) {
        let (answer, verdict) = oneshot::channel();
        let from = TransferId(id);
        let rare = RareNotice::Seize { from, answer };
        (self.give(None, NoticeKind::Rare(Box::new(rare))), verdict)
    }

    pub(super) fn confirm(&mut self, number: u64) -> oneshot::Receiver<HoldStanding> {
        let (answer, receiver) = oneshot::channel();
        self.give(
            Some(number),
            NoticeKind::Rare(Box::new(RareNotice::Confirm { answer })),
        );
        receiver
    }

    pub(super) fn watch(&mut self, number: u64) -> oneshot::Receiver<HoldStanding> {
        let (answer, receiver) = oneshot::channel();
        self.give(
            Some(number),
            NoticeKind::Rare(Box::new(RareNotice::Watch { answer })),
        );
        receiver
    }

    /// The next verdict; `None` wants a list.
    pub(super) fn say(&mut self, status: impl Into<Option<HoldStatus>>) {
        self.offset += 1;
        self.say_at(self.offset, status);
    }

    pub(super) fn say_at(&mut self, offset: u64, status: impl Into<Option<HoldStatus>>) {
        let verdict = Verdict {
            partition: 0,
            position: LogPosition {
                generation: 1,
                offset,
                entry: 0,
            },
            epoch: EPOCH,
            resource: "sandbox".into(),
            status: status.into(),
        };
        self.session.take_verdicts(vec![verdict], self.now);
    }

    /// What is sent now, as text; every record is encoded and decoded.
    pub(super) fn sent(&mut self) -> Vec<String> {
        let under_way = self.under_way;
        let payloads = self.session.next(self.now, |_| under_way);
        self.under_way.acknowledged += u64::from(!self.is_silent) * payloads.len() as u64;
        payloads.iter().map(text_of).collect()
    }

    pub(super) fn sent_after(&mut self, span: Span) -> Vec<String> {
        self.now = self.now.plus(span);
        self.sent()
    }

    pub(super) fn half_second(&mut self) -> Vec<String> {
        self.sent_after(Span::from_millis(500))
    }
}

pub(super) fn text_of(payload: &Payload) -> String {
    let mut writer = Writer::new();
    let sender = Sender {
        agent: "a",
        epoch: EPOCH,
        sequence: 1,
        sent: WALL,
    };
    match payload {
        Payload::Hits(_) => "hits".to_owned(),
        Payload::Holds(payload) => {
            payload.encode(&mut writer, &sender);
            let Ok(Record::Holds(batch)) = Record::decode(writer.as_slice()) else {
                panic!("no batch of holds");
            };
            assert_eq!(batch.ops_len() as usize, payload.operations().count());
            let ops = batch.ops().map(|op| {
                let does = format!("{:?}", op.action.op()).to_lowercase();
                format!("{does} {}", op.number)
            });
            ops.collect::<Vec<_>>().join(", ")
        }
        Payload::Heartbeat(heartbeat) => {
            heartbeat.encode(&mut writer, &sender);
            let Ok(Record::Heartbeat(read)) = Record::decode(writer.as_slice()) else {
                panic!("no heartbeat");
            };
            assert_eq!(read.parts_len() as usize, heartbeat.parts.len());
            let mut text = "heartbeat".to_owned();
            for (name, is) in [("more", read.head.more), ("last", read.head.last)] {
                text += &if is {
                    format!(" {name}")
                } else {
                    String::new()
                };
            }
            if let Some(epoch) = read.head.replaces {
                text += &format!(" replaces {epoch}");
            }
            for (part, sent) in read.parts().zip(&heartbeat.parts) {
                text += &match &sent.content {
                    HeartbeatContent::Digest(digest) => format!(" digest {:x}", digest.bits()),
                    HeartbeatContent::List { .. } => {
                        let listed = part
                            .listed()
                            .map(|one| format!("{}x{}", one.number, one.copies));
                        format!(" list [{}]", listed.collect::<Vec<_>>().join(" "))
                    }
                };
                for (name, numbers) in [
                    ("awaiting", part.awaiting().collect::<Vec<_>>()),
                    ("asked", part.asked().collect()),
                ] {
                    if !numbers.is_empty() {
                        text += &format!(" {name} {numbers:?}");
                    }
                }
            }
            text
        }
    }
}

pub(super) fn digest(holds: &[(u64, u32)]) -> String {
    let sum = holds
        .iter()
        .fold(Holdings::default(), |sum, (number, copies)| {
            sum.with(*number, *copies)
        });
    format!("heartbeat digest {:x}", sum.bits())
}

/// This many copies of a hold count.
pub(super) fn counted(number: u64, copies: u32) -> HoldStatus {
    HoldStatus {
        number,
        copies,
        ..HoldStatus::default()
    }
}

/// So many of them are too many.
pub(super) fn exceeded(number: u64, copies: u32, excess: u32) -> HoldStatus {
    HoldStatus {
        excess,
        scope: full(),
        ..counted(number, copies)
    }
}

/// A hold that does not count for this reason.
pub(super) fn over(number: u64, reason: HoldReason) -> HoldStatus {
    HoldStatus {
        reason: Some(reason),
        ..counted(number, 0)
    }
}

/// A seized hold.
pub(super) fn seized(number: u64, copies: u32) -> HoldStatus {
    HoldStatus {
        seized: Some(SeizedCopies {
            domain: "acme".into(),
            start: Timestamp::from_millis(5),
        }),
        ..counted(number, copies)
    }
}

pub(super) fn full() -> Option<Scope> {
    Some(Scope::Pair("acme".into()))
}
