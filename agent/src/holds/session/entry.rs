//! What is held of one resource, by number.
//!
//! Knows nothing of records. What stays true: the digest is that of all holds in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::place::Place;
use tollgate_shared::time::{Span, Timestamp};

use crate::clock::Mono;
use crate::holds::notice::{HoldAnswer, HoldStanding};
use crate::resource::Resource;

/// The silence after which an agent is gone, where it is not known yet.
const TIMEOUT_UNKNOWN: Span = Span::from_secs(2);

/// Beats within that silence: with three of them lost the fourth is in time.
const BEATS: u64 = 4;

/// With so many of them unheard of the agent may be gone by the time that the next one is heard.
const BEATS_MISSED: u64 = 2;

/// No beats come faster than this, whatever is configured.
const BEAT_MIN: Span = Span::from_millis(50);

/// None come more slowly either: lists go with them, and heal what was lost.
const BEAT_MAX: Span = Span::from_secs(10);

/// No agent is taken for gone after a shorter silence than this.
pub(super) const SILENCE_MIN: Span = Span::from_micros(BEATS_MISSED * BEAT_MIN.as_micros());

/// What is held of one resource.
#[derive(Debug)]
pub(super) struct HeldResource {
    pub(super) resource: Arc<Resource>,
    pub(super) partition: u32,
    pub(super) holds: BTreeMap<u64, KeptHold>,
    pub(super) digest: Holdings,
    /// When all of it was listed last.
    pub(super) listed: Option<Mono>,
    /// It is to be listed with the next beat.
    pub(super) list_wanted: bool,
}

/// One hold.
#[derive(Debug)]
pub(super) struct KeptHold {
    /// Empty while a seize is awaited.
    pub(super) domain: Arc<str>,
    pub(super) copies: u32,
    pub(super) start: Timestamp,
    pub(super) strict: bool,
    pub(super) seized: Option<TransferId>,
    pub(super) stands: Stands,
    /// Since when it has been known here, or what was said of it has been in doubt.
    pub(super) since: Mono,
    /// The last that was said about it.
    pub(super) said: Option<HoldStanding>,
    /// What was said before it came into doubt: should it be said again, that is no news.
    pub(super) doubted: Option<HoldStanding>,
    /// Copies of it were given away: what is said without saying of how many may be of more than are left.
    pub(super) gave: bool,
    /// Where the last was said that was heard.
    pub(super) heard: Option<Place>,
    pub(super) confirm: Vec<oneshot::Sender<HoldStanding>>,
    pub(super) watch: Vec<oneshot::Sender<HoldStanding>>,
}

/// How a hold stands.
#[derive(Debug)]
pub(super) enum Stands {
    /// Its copies are in use.
    InUse,
    /// Its verdict is awaited.
    Awaited(oneshot::Sender<HoldAnswer>),
}

impl KeptHold {
    pub(super) fn in_use(&self) -> bool {
        matches!(self.stands, Stands::InUse)
    }

    /// Notes who waits. Whoever gave up waiting is forgotten, so that asking again and again keeps nothing.
    pub(super) fn wait(
        waiting: &mut Vec<oneshot::Sender<HoldStanding>>,
        answer: oneshot::Sender<HoldStanding>,
    ) {
        waiting.retain(|one| !one.is_closed());
        waiting.push(answer);
    }

    /// So many copies are given away.
    fn less(&mut self, by: u32) {
        (self.copies, self.gave) = (self.copies - by, true);
        let words = [&mut self.said, &mut self.doubted];
        words.into_iter().flatten().for_each(|word| word.lessen(by));
    }

    /// What was said of it may not be so any more: unless it is said again it is asked for.
    pub(super) fn doubt(&mut self, now: Mono) {
        if let Some(word) = self.said.take() {
            (self.doubted, self.since) = (Some(word), now);
        }
    }

    /// Tells those who wait what was said.
    pub(super) fn tell(&mut self, word: &HoldStanding, revokes: bool) {
        (self.said, self.doubted) = (Some(word.clone()), None);
        Self::answer(&mut self.confirm, word);
        if revokes {
            Self::answer(&mut self.watch, word);
        }
    }

    /// Tells all that wait, and forgets them.
    pub(super) fn answer(waiting: &mut Vec<oneshot::Sender<HoldStanding>>, word: &HoldStanding) {
        for one in waiting.drain(..) {
            // Nobody may be listening any more.
            let _ = one.send(word.clone());
        }
    }
}

impl HeldResource {
    pub(super) fn new(resource: Arc<Resource>, partition: u32) -> Self {
        Self {
            resource,
            partition,
            holds: BTreeMap::new(),
            digest: Holdings::default(),
            listed: None,
            list_wanted: true,
        }
    }

    /// Everything that is in use may have to be counted anew, and more or less of it be too much then.
    pub(super) fn doubt(&mut self, now: Mono) {
        let in_use = self.holds.values_mut().filter(|kept| kept.in_use());
        in_use.for_each(|kept| kept.doubt(now));
    }

    /// How often to beat while anything is held.
    pub(super) fn beat_every(&self) -> Span {
        let public = self.resource.public();
        let timeout = public
            .copies
            .as_ref()
            .map_or(TIMEOUT_UNKNOWN, |copies| copies.agent_timeout);
        Span::from_micros(timeout.as_micros() / BEATS).clamp(BEAT_MIN, BEAT_MAX)
    }

    /// Whether owners may have taken this agent for gone, given how long they may have heard nothing of it.
    pub(super) fn may_be_gone(&self, silence: Span) -> bool {
        BEATS_MISSED * self.beat_every().as_micros() <= silence.as_micros()
    }

    pub(super) fn put(&mut self, number: u64, kept: KeptHold) {
        if kept.in_use() {
            self.digest = self.digest.with(number, kept.copies);
        }
        self.holds.insert(number, kept);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<KeptHold> {
        let kept = self.holds.remove(&number)?;
        if kept.in_use() {
            self.digest = self.digest.without(number, kept.copies);
        }
        Some(kept)
    }

    /// Takes copies of a hold in use; whether that is possible. With the last one it is over, or not.
    pub(super) fn lessen(&mut self, number: u64, by: u32) -> bool {
        let Some(kept) = self.holds.get_mut(&number).filter(|kept| kept.in_use()) else {
            return false;
        };
        if kept.copies < by {
            return false;
        }
        let before = self.digest.without(number, kept.copies);
        kept.less(by);
        match kept.copies {
            0 => {
                self.holds.remove(&number);
                self.digest = before;
            }
            left => self.digest = before.with(number, left),
        }
        true
    }

    /// The copies of a hold that was awaited are in use; who awaits them.
    pub(super) fn use_now(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut KeptHold),
    ) -> Option<oneshot::Sender<HoldAnswer>> {
        let kept = self.holds.get_mut(&number).filter(|kept| !kept.in_use())?;
        let Stands::Awaited(answer) = std::mem::replace(&mut kept.stands, Stands::InUse) else {
            return None;
        };
        change(kept);
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
            said: None,
            doubted: None,
            gave: false,
            heard: None,
            confirm: Vec::new(),
            watch: Vec::new(),
        }
    }
}
