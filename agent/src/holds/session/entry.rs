//! The holds of one resource, by number.
//!
//! Knows nothing of records. What stays true: the digest is the digest of all holds in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::verdict::HoldStatus;

use crate::clock::Mono;
use crate::holds::notice::{HoldAnswer, HoldStanding};
use crate::holds::revoked::RevokedHolds;
use crate::resource::Resource;

/// The silence after which an agent is gone, while the resource's setting is unknown.
const TIMEOUT_UNKNOWN: Span = Span::from_secs(2);

/// Heartbeats within that silence: if three are lost, the fourth is in time.
const HEARTBEATS: u64 = 4;

/// If this many heartbeats do not arrive, the agent may be gone by the time that the next one arrives.
const HEARTBEATS_MISSED: u64 = 2;

/// Heartbeats are never more frequent than this, whatever is configured.
const HEARTBEAT_MIN: Span = Span::from_millis(50);

/// Heartbeats are never less frequent than this: they carry lists, which correct what was lost.
const HEARTBEAT_MAX: Span = Span::from_secs(10);

/// No agent counts as gone after a shorter silence than this.
pub(super) const SILENCE_MIN: Span =
    Span::from_micros(HEARTBEATS_MISSED * HEARTBEAT_MIN.as_micros());

/// The holds of one resource.
#[derive(Debug)]
pub(super) struct HeldResource {
    pub(super) resource: Arc<Resource>,
    pub(super) partition: u32,
    pub(super) holds: BTreeMap<u64, KeptHold>,
    pub(super) digest: Holdings,
    /// When all holds were last listed.
    pub(super) listed: Option<Mono>,
    /// Whether the next heartbeat has to list all holds.
    pub(super) list_wanted: bool,
    /// What holders learn without asking the session.
    revoked: Arc<RevokedHolds>,
}

/// One hold.
#[derive(Debug)]
pub(super) struct KeptHold {
    /// Empty while a seize waits for its verdict.
    pub(super) domain: Arc<str>,
    pub(super) copies: u32,
    pub(super) start: Timestamp,
    pub(super) strict: bool,
    pub(super) seized: Option<TransferId>,
    pub(super) stands: Stands,
    /// Since when the hold has been known here, or its status has been in doubt.
    pub(super) since: Mono,
    /// The status at the greatest log position.
    pub(super) status: Option<(LogPosition, HoldStatus)>,
    /// There is no status yet, or it may no longer be true: the agent asks for it.
    pub(super) in_doubt: bool,
    pub(super) confirm: Vec<oneshot::Sender<HoldStanding>>,
    pub(super) watch: Vec<oneshot::Sender<HoldStanding>>,
}

/// The state of a hold.
#[derive(Debug)]
pub(super) enum Stands {
    /// The copies are in use.
    InUse,
    /// The verdict is awaited.
    Awaited(oneshot::Sender<HoldAnswer>),
}

impl KeptHold {
    pub(super) fn in_use(&self) -> bool {
        matches!(self.stands, Stands::InUse)
    }

    /// Adds a waiting caller. Callers that gave up are removed, so that repeated calls do not accumulate.
    pub(super) fn wait(
        waiting: &mut Vec<oneshot::Sender<HoldStanding>>,
        answer: oneshot::Sender<HoldStanding>,
    ) {
        waiting.retain(|one| !one.is_closed());
        waiting.push(answer);
    }

    /// What the status means for the copies that are left. `None` while it is in doubt.
    pub(super) fn standing(&self) -> Option<HoldStanding> {
        self.last_standing().filter(|_| !self.in_doubt)
    }

    /// The same, although it may be in doubt.
    pub(super) fn last_standing(&self) -> Option<HoldStanding> {
        let (_, status) = self.status.as_ref()?;
        Some(HoldStanding::of(status, self.copies))
    }

    /// The status may no longer be true: unless it is repeated, the agent asks for it.
    fn doubt(&mut self, now: Mono) {
        if !std::mem::replace(&mut self.in_doubt, true) {
            self.since = now;
        }
    }

    /// Answers the waiting callers.
    pub(super) fn notify(&mut self, standing: &HoldStanding, revokes: bool) {
        Self::answer(&mut self.confirm, standing);
        if revokes {
            Self::answer(&mut self.watch, standing);
        }
    }

    /// Answers all waiting callers, and removes them.
    pub(super) fn answer(
        waiting: &mut Vec<oneshot::Sender<HoldStanding>>,
        standing: &HoldStanding,
    ) {
        for one in waiting.drain(..) {
            // The receiver may be dropped already.
            let _ = one.send(standing.clone());
        }
    }
}

impl HeldResource {
    pub(super) fn new(resource: Arc<Resource>, partition: u32, revoked: Arc<RevokedHolds>) -> Self {
        Self {
            resource,
            partition,
            holds: BTreeMap::new(),
            digest: Holdings::default(),
            listed: None,
            list_wanted: true,
            revoked,
        }
    }

    /// The aggregators may count all holds in use again, and more or less of them may then be too much.
    pub(super) fn doubt(&mut self, now: Mono) {
        for (number, kept) in self.holds.iter_mut().filter(|(_, kept)| kept.in_use()) {
            kept.doubt(now);
            self.revoked.excess.forget(*number);
        }
    }

    /// The same for one hold.
    pub(super) fn doubt_one(&mut self, number: u64, now: Mono) {
        if let Some(kept) = self.holds.get_mut(&number) {
            kept.doubt(now);
            self.revoked.excess.forget(number);
        }
    }

    /// Log positions of statuses cannot be compared with those of the log that follows.
    pub(super) fn forget_positions(&mut self) {
        for (position, _) in self.holds.values_mut().flat_map(|kept| &mut kept.status) {
            *position = LogPosition::default();
        }
    }

    /// A hold in use counts, by its newest status. Returns its standing.
    pub(super) fn counts(&mut self, number: u64) -> Option<HoldStanding> {
        self.holds.get_mut(&number)?.in_doubt = false;
        self.show_excess(number)
    }

    /// Shows to the holder what is too many of a hold, by its newest status. Returns the hold's standing.
    pub(super) fn show_excess(&self, number: u64) -> Option<HoldStanding> {
        let kept = self.holds.get(&number)?;
        let standing = kept.standing();
        match (&standing, &kept.status) {
            (Some(HoldStanding::Excess(..)), Some((_, status))) => self.revoked.excess.put(status),
            _ => self.revoked.excess.forget(number),
        }
        standing
    }

    /// The heartbeat interval while anything is held.
    pub(super) fn heartbeat_every(&self) -> Span {
        let public = self.resource.public();
        let timeout = public
            .copies
            .as_ref()
            .map_or(TIMEOUT_UNKNOWN, |copies| copies.agent_timeout);
        Span::from_micros(timeout.as_micros() / HEARTBEATS).clamp(HEARTBEAT_MIN, HEARTBEAT_MAX)
    }

    /// Whether ruling aggregators may have counted this agent as gone, if they received nothing from it for this
    /// long.
    pub(super) fn may_be_gone(&self, silence: Span) -> bool {
        HEARTBEATS_MISSED * self.heartbeat_every().as_micros() <= silence.as_micros()
    }

    pub(super) fn put(&mut self, number: u64, kept: KeptHold) {
        if kept.in_use() {
            self.digest = self.digest.with(number, kept.copies);
        }
        self.holds.insert(number, kept);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<KeptHold> {
        let kept = self.holds.remove(&number)?;
        self.revoked.excess.forget(number);
        if kept.in_use() {
            self.digest = self.digest.without(number, kept.copies);
        }
        Some(kept)
    }

    /// Takes copies of a hold in use, and returns whether that was possible. With its last copy the hold is removed.
    pub(super) fn lessen(&mut self, number: u64, by: u32) -> bool {
        let Some(kept) = self.holds.get_mut(&number).filter(|kept| kept.in_use()) else {
            return false;
        };
        if kept.copies < by {
            return false;
        }
        let before = self.digest.without(number, kept.copies);
        kept.copies -= by;
        match kept.copies {
            0 => {
                self.holds.remove(&number);
                self.revoked.excess.forget(number);
                self.digest = before;
            }
            left => self.digest = before.with(number, left),
        }
        true
    }

    /// The copies of an awaited hold are in use. Returns the channel of the waiting caller.
    pub(super) fn use_now(&mut self, number: u64) -> Option<oneshot::Sender<HoldAnswer>> {
        let kept = self.holds.get_mut(&number).filter(|kept| !kept.in_use())?;
        let Stands::Awaited(answer) = std::mem::replace(&mut kept.stands, Stands::InUse) else {
            return None;
        };
        self.digest = self.digest.with(number, kept.copies);
        Some(answer)
    }
}

impl KeptHold {
    pub(super) fn new(stands: Stands, now: Mono) -> Self {
        Self {
            domain: "".into(),
            copies: 0,
            start: tollgate_shared::time::Timestamp::ZERO,
            strict: false,
            seized: None,
            stands,
            since: now,
            status: None,
            in_doubt: true,
            confirm: Vec::new(),
            watch: Vec::new(),
        }
    }
}
