//! The rules of copies, one after another, as the model implements them.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_model::copies::{
    AgentFate, CopiesAct, CopiesModel, CopiesVersion, CopyScope, CopyStanding, EndReason,
    HeartbeatRecord, HoldAct, HoldLimits, HoldRefusal, HoldsRecord, KeptBy, LimitedCopies,
    ListedHold, ModelOp, ModelPart, ModelStatus, PartHolds, RecordTurn, SentBy,
};

const SLOT: &str = "gpu.slot";
const S: u64 = 1_000_000;

/// A partition, and the numbers that agents give their records.
struct Log {
    model: CopiesModel,
    sequence: u64,
    us: u64,
}

/// `domain` copies a domain, 9 in all, and 3 for a group of acme.
fn limits(domain: u64) -> CopiesVersion {
    let few = (3, BTreeSet::from(["acme".to_owned()]));
    let limits = HoldLimits {
        domain,
        global: Some(9),
        kept_max: 100,
        groups: BTreeMap::from([("few".to_owned(), few)]),
        ..HoldLimits::default()
    };
    let is_heeded = true;
    CopiesVersion {
        resources: BTreeMap::from([(SLOT.to_owned(), LimitedCopies { limits, is_heeded })]),
        heeded_others: Default::default(),
        refuses_others: true,
        denied_max: 100,
        timeout_ticks: 4,
    }
}

fn log() -> Log {
    let mut model = CopiesModel::new();
    model.new_limits(1, limits(4), 0);
    Log {
        model,
        sequence: 0,
        us: 0,
    }
}

fn reserve(domain: &str, copies: u64, min: u64) -> HoldAct<'_> {
    HoldAct::Reserve {
        domain,
        copies,
        min,
    }
}

fn hold(domain: &str, copies: u64) -> HoldAct<'_> {
    HoldAct::Hold { domain, copies }
}

fn own(domain: &str) -> Option<CopyScope> {
    Some(CopyScope::Domain(domain.to_owned()))
}

fn counted(number: u64, copies: u64, excess: KeptBy) -> Option<ModelStatus> {
    Some(ModelStatus {
        excess,
        ..ModelStatus::of(number, copies)
    })
}

fn few() -> Option<CopyScope> {
    Some(CopyScope::Group("few".to_owned()))
}

impl Log {
    fn sender(&mut self, epoch: u128) -> SentBy<'static> {
        self.sequence += 1;
        SentBy {
            agent: "web",
            epoch,
            sequence: self.sequence,
            moved_us: 0,
            appended_us: self.us,
        }
    }

    /// The verdicts on an operation of an epoch, whether in turn or not.
    fn op_of(
        &mut self,
        epoch: u128,
        number: u64,
        act: HoldAct<'_>,
    ) -> (RecordTurn, Vec<Option<ModelStatus>>) {
        let sender = self.sender(epoch);
        let done = self.model.holds(&HoldsRecord {
            sender,
            ops: vec![ModelOp {
                resource: SLOT,
                number,
                at_us: self.us,
                act,
            }],
        });
        let says = done.verdicts.into_iter().map(|due| due.status);
        (done.turn, says.collect())
    }

    fn op(&mut self, number: u64, act: HoldAct<'_>) -> Option<ModelStatus> {
        let (turn, says) = self.op_of(7, number, act);
        assert_eq!((turn, says.len() < 2), (RecordTurn::Applied, true));
        says.into_iter().next().flatten()
    }

    fn refused(&mut self, number: u64, act: HoldAct<'_>) -> HoldRefusal {
        let status = self.op(number, act).expect("a verdict");
        status.refused.expect("refused")
    }

    fn heartbeat(
        &mut self,
        epoch: u128,
        change: impl FnOnce(&mut HeartbeatRecord<'_>),
    ) -> RecordTurn {
        let mut heartbeat = HeartbeatRecord {
            sender: self.sender(epoch),
            replaces: None,
            more: true,
            last: false,
            parts: Vec::new(),
        };
        change(&mut heartbeat);
        self.model.heartbeat(&heartbeat).turn
    }

    fn ticks(&mut self, count: u64) -> Vec<AgentFate> {
        let mut fates = Vec::new();
        for _ in 0..count {
            self.us += S / 2;
            let done = self.model.tick(self.us, |_, _| true);
            fates.extend(done.agents.into_iter().map(|(_, fate)| fate));
        }
        fates
    }

    fn denied(&self) -> Vec<(CopyScope, CopyStanding)> {
        let denied = self.model.denied().into_iter();
        denied.map(|((_, scope), of)| (scope, of)).collect()
    }

    fn held(&self) -> u64 {
        let slot = self.model.resource(SLOT);
        slot.map_or(0, |slot| slot.copies_in(&CopyScope::Resource))
    }
}

#[test]
fn copies_are_granted_where_every_limit_has_room() {
    let mut log = log();
    let granted = |number, copies, by| counted(number, copies, (0, by));
    assert_eq!(log.op(1, reserve("acme", 4, 1)), granted(1, 3, few()));
    assert_eq!(log.op(2, reserve("acme", 1, 1)), granted(2, 0, few()));
    let too_many = counted(3, 6, (2, own("globex")));
    assert_eq!(log.op(3, hold("globex", 6)), too_many);
    let by_all = Some(CopyScope::Resource);
    assert_eq!(log.op(4, reserve("initech", 1, 1)), granted(4, 0, by_all));
    let mut ignored = limits(4);
    ignored.resources.get_mut(SLOT).expect("limited").is_heeded = false;
    log.model.new_limits(2, ignored, 0);
    assert_eq!(log.op(4, reserve("initech", 1, 1)), granted(4, 1, None));
    assert_eq!(
        log.denied(),
        [],
        "nothing is denied where nothing is heeded"
    );
}

#[test]
fn copies_are_released_staged_and_seized_once() {
    let mut log = log();
    log.op(1, hold("acme", 3));
    let release = |copies| HoldAct::Release { copies };
    assert_eq!(log.refused(1, release(4)), HoldRefusal::TooManyCopies);
    assert_eq!(log.refused(2, release(1)), HoldRefusal::UnknownHold);
    let stage = |copies| HoldAct::Transfer {
        copies,
        to: 5,
        ttl_us: S,
    };
    assert_eq!(log.op(1, stage(2)), None);
    assert_eq!(log.refused(1, stage(1)), HoldRefusal::TransferExists);
    assert_eq!(log.held(), 3, "what is staged counts");
    let seize = HoldAct::Seize { from: 5 };
    assert_eq!(log.refused(1, seize), HoldRefusal::HoldExists);
    let seized = ModelStatus {
        seized: Some(("acme".to_owned(), 0)),
        ..ModelStatus::of(9, 2)
    };
    assert_eq!(log.op(9, seize), Some(seized));
    assert_eq!(log.refused(10, seize), HoldRefusal::UnknownTransfer);
    assert_eq!(log.op(9, HoldAct::Cancel), None);
    assert_eq!(log.op(1, stage(1)), None);
    log.ticks(2);
    assert_eq!(log.held(), 0, "over at its end");
}

#[test]
fn a_record_that_is_older_than_one_applied_changes_nothing() {
    let mut log = log();
    log.sequence = 8;
    assert_eq!(log.heartbeat(7, |_| ()), RecordTurn::Applied);
    log.sequence = 7;
    let overtaken = (RecordTurn::Overtaken, Vec::new());
    assert_eq!(log.op_of(7, 1, hold("acme", 1)), overtaken);
    assert_eq!(log.held(), 0);
    log.us += S / 2;
    log.model.tick(log.us, |_, _| false);
    log.sequence = 0;
    assert_eq!(log.heartbeat(7, |_| ()), RecordTurn::Applied, "forgotten");
}

#[test]
fn an_epoch_ends_by_its_last_heartbeat_or_its_successor() {
    let mut log = log();
    log.op_of(1, 1, hold("acme", 2));
    assert_eq!(
        log.heartbeat(2, |heartbeat| heartbeat.replaces = Some(1)),
        RecordTurn::Applied
    );
    assert_eq!(log.held(), 0);
    let over = || {
        let refused = ModelStatus::of(1, 0).refused(HoldRefusal::EpochOver);
        (RecordTurn::EpochOver, vec![Some(refused)])
    };
    assert_eq!(log.op_of(1, 1, hold("acme", 2)), over());
    assert_eq!(
        log.heartbeat(2, |heartbeat| heartbeat.last = true),
        RecordTurn::Applied
    );
    assert_eq!(log.op_of(2, 1, hold("acme", 2)), over());
    log.ticks(1_199);
    assert_eq!(log.op_of(1, 1, hold("acme", 2)), over());
    log.ticks(1);
    let again = log.op_of(1, 1, hold("acme", 2));
    assert_eq!(again.0, RecordTurn::Applied, "ten minutes later");
}

#[test]
fn an_agent_silent_for_its_timeout_in_ticks_is_gone() {
    let mut log = log();
    log.op(1, hold("acme", 2));
    assert_eq!(log.ticks(3), []);
    // While ticks paused nobody could be heard: 20 seconds more.
    log.us += 3_600 * S;
    assert_eq!(log.ticks(40), []);
    assert_eq!(log.ticks(1), [AgentFate::Gone(2)]);
    assert_eq!(log.held(), 0);
    let release = HoldAct::Release { copies: 1 };
    let (_, says) = log.op_of(7, 1, release);
    let lost = ModelStatus::of(1, 0).refused(HoldRefusal::UnknownHold);
    assert_eq!(says, [None, Some(lost)]);
    let entry = |number| ListedHold {
        number,
        domain: "acme",
        copies: 2,
        start_us: 0,
        strict: false,
        seized: None,
    };
    log.heartbeat(7, |heartbeat| {
        heartbeat.parts.push(ModelPart {
            resource: SLOT,
            holds: PartHolds::List {
                from: 0,
                upto: u64::MAX,
                listed: vec![entry(1)],
            },
            awaiting: Vec::new(),
            asked: Vec::new(),
        });
    });
    assert_eq!(log.held(), 2, "back, and counts again");
    log.heartbeat(7, |heartbeat| heartbeat.more = false);
    assert_eq!(log.held(), 0, "what is not named is not held");
}

#[test]
fn a_hold_that_an_operator_ended_stays_ended() {
    let mut log = log();
    log.op(1, hold("acme", 2));
    let ends = CopiesAct::EndHolds {
        resource: SLOT,
        domain: Some("acme"),
        agent: None,
    };
    let done = log.model.act(2, Some(&ends), 0);
    let verdicts = done.verdicts.into_iter().map(|due| due.status);
    let ended = Some(ModelStatus::ended(1, EndReason::Operator));
    assert_eq!(verdicts.collect::<Vec<_>>(), [ended]);
    let ended = Some(ModelStatus::ended(1, EndReason::Earlier));
    assert_eq!(log.op(1, hold("acme", 2)), ended);
    assert_eq!(log.held(), 0);
}

#[test]
fn the_longer_of_two_bans_holds_and_grants_no_copies() {
    let mut log = log();
    let ban = |resource, until_us| CopiesAct::Ban {
        resource,
        domain: "acme",
        until_us,
    };
    let banned = |until_us| {
        vec![(
            CopyScope::Domain("acme".into()),
            CopyStanding::Banned(until_us),
        )]
    };
    log.model.act(2, Some(&ban(Some(SLOT), Some(8 * S))), S);
    log.model.act(3, Some(&ban(None, Some(12 * S))), S);
    assert_eq!(log.denied(), banned(12 * S));
    let none = counted(1, 0, (0, own("acme")));
    assert_eq!(log.op(1, reserve("acme", 1, 1)), none);
    let all = counted(1, 2, (2, own("acme")));
    assert_eq!(log.op(1, hold("acme", 2)), all);
    log.model.act(4, Some(&ban(None, None)), S);
    assert_eq!(log.denied(), banned(8 * S));
    log.ticks(16);
    assert_eq!(log.denied(), [], "over");
    let over = ban(None, Some(3 * S));
    log.model.act(5, Some(&over), 8 * S);
    assert_eq!(log.denied(), [], "over when it came");
}

#[test]
fn a_full_scope_is_denied_on_request_until_it_has_room() {
    let mut log = log();
    log.op(1, hold("globex", 3));
    log.model.new_limits(2, limits(3), 0);
    assert_eq!(log.denied(), [], "a version denies nobody");
    log.op(2, reserve("globex", 1, 1));
    let full = |limit| {
        vec![(
            CopyScope::Domain("globex".into()),
            CopyStanding::Full(limit),
        )]
    };
    assert_eq!(log.denied(), full(3));
    log.model.new_limits(3, limits(2), 0);
    assert_eq!(log.denied(), full(2));
    log.op(1, HoldAct::Release { copies: 2 });
    assert_eq!(log.denied(), []);
}
