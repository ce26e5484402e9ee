//! The small aggregator's state, without sockets.

use super::*;

/// What it has accepted, and what is in force.
#[derive(Debug, Default)]
pub(super) struct State {
    pub instance: u128,
    pub log: u64,
    pub ruled: u64,
    pub control: u64,
    pub sequences: HashMap<String, u64>,
    pub live: BTreeMap<(String, String), StatementNotice>,
    pub public: HashMap<String, Public>,
    pub appended: Vec<Appended>,
    pub hold_records: Vec<HoldRecord>,
    pub verdicts: u64,
    pub refuse: Option<Refusal>,
    pub swallow: u32,
    pub quiet: bool,
    /// Whether it is of a later release, with more fields.
    pub later: bool,
    pub snapshot_requests: u32,
}

impl State {
    pub fn watermarks(&self) -> Vec<Watermark> {
        (0..PARTITIONS)
            .map(|partition| Watermark {
                partition,
                log: LogId {
                    generation: 1,
                    random: self.log,
                },
                ruled: self.ruled,
                appended: Timestamp::ZERO,
                current: true,
            })
            .collect()
    }

    pub fn take(
        &mut self,
        resource: &str,
        domain: &str,
        remaining: Option<Duration>,
    ) -> StatementNotice {
        let position = LogPosition {
            generation: 1,
            offset: self.ruled,
            entry: 0,
        };
        self.ruled += 1;
        let kind = match remaining {
            Some(_) => StatementKind::Denied(Denial {
                end: Timestamp::MAX,
                cause: Cause::Tier(1),
                version: 1,
                limit: 10,
                window: Span::from_secs(60),
                most: u64::MAX,
            }),
            None => StatementKind::Lifted,
        };
        let notice = StatementNotice {
            partition: tollgate_shared::names::partition_of_pair(resource, domain, PARTITIONS),
            remaining: Span::from_std(remaining.unwrap_or_default()),
            statement: Statement {
                scope: Scope::Pair(domain.into()),
                position,
                kind,
            },
        };
        let key = (resource.to_owned(), domain.to_owned());
        if remaining.is_some() {
            self.live.insert(key, notice.clone());
        } else {
            self.live.remove(&key);
        }
        notice
    }

    pub fn frame(
        &mut self,
        resource: &str,
        statements: Vec<StatementNotice>,
        began: Instant,
    ) -> Vec<u8> {
        let sequence = if resource.is_empty() {
            self.control += 1;
            self.control
        } else {
            let sequence = self.sequences.entry(resource.to_owned()).or_default();
            *sequence += 1;
            *sequence
        };
        let mut writer = Writer::new();
        Frame {
            instance: self.instance,
            sequence,
            sent: Span::from_std(began.elapsed()),
            resource: resource.into(),
            watermarks: self.watermarks(),
            statements,
        }
        .encode(&mut writer);
        writer.as_slice().to_vec()
    }

    pub fn verdict(
        &mut self,
        agent: &str,
        resource: &str,
        status: HoldStatus,
        began: Instant,
    ) -> Vec<u8> {
        let position = LogPosition {
            generation: 1,
            offset: self.ruled,
            entry: 0,
        };
        self.ruled += 1;
        self.verdicts += 1;
        let verdict = Verdict {
            partition: tollgate_shared::names::partition_of_resource(resource, PARTITIONS),
            position,
            epoch: self.hold_records.last().expect("somebody was heard").epoch,
            resource: resource.into(),
            status: Some(status),
        };
        let mut writer = Writer::new();
        VerdictFrame {
            instance: self.instance,
            sequence: self.verdicts,
            sent: Span::from_std(began.elapsed()),
            agent: agent.into(),
            verdicts: vec![verdict],
        }
        .encode(&mut writer);
        writer.as_slice().to_vec()
    }

    /// Records operations on holds, or a heartbeat.
    pub fn take_said(&mut self, partition: u32, sender: &Sender<'_>, text: String) {
        self.hold_records.push(HoldRecord {
            partition,
            sequence: sender.sequence,
            epoch: sender.epoch,
            text,
        });
    }

    pub fn take_hits(&mut self, partition: u32, batch: &HitBatch<'_>) {
        let name = |index: u32| batch.resource(index).to_owned();
        self.appended.push(Appended {
            partition,
            sequence: batch.sender.sequence,
            epoch: batch.sender.epoch,
            hits: batch
                .hits()
                .iter()
                .map(|hit| {
                    (
                        name(hit.resource),
                        hit.domain.to_owned(),
                        hit.total() as u32,
                    )
                })
                .collect(),
            refused: batch
                .refused()
                .map(|one| (name(one.resource), one.domain.to_owned(), one.calls))
                .collect(),
        });
    }

    pub fn snapshot(&self, nonce: u64, resources: &[&str], began: Instant) -> Snapshot {
        let topics = resources.iter().map(|resource| TopicSnapshot {
            resource: (*resource).into(),
            sequence: self.sequences.get(*resource).copied().unwrap_or(0),
            public: self.public.get(*resource).cloned().unwrap_or(Public {
                version: 1,
                ..Public::default()
            }),
            statements: self
                .live
                .iter()
                .filter(|((of, _), _)| of == resource)
                .map(|(_, notice)| notice.clone())
                .collect(),
        });
        Snapshot {
            nonce,
            part: 0,
            more: false,
            instance: self.instance,
            clock: Span::from_std(began.elapsed()),
            watermarks: self.watermarks(),
            control_sequence: self.control,
            topics: topics.collect(),
        }
    }
}
