//! Law 3, refusal by refusal: did the log, as the independent model rules it, deny that then?
//!
//! ```text
//! agent refuses acme at T, naming 3-18250-0-1
//! the newest statement of the model about acme that the agent may know: @18250, until E
//! the log's clock at T, by its ticks: before E?      justified
//! ```
//!
//! What an agent has heard without a gap it must have taken: a refusal on an older statement than that is
//! unjustified even where that one would justify it. The log's clock is known from its ticks; between two
//! of them it goes on as true time does. Clocks may be off by 100 ppm each, so a little slack grows with
//! the time that was run down.

use tollgate_model::log::{Place as ModelPlace, Scope};
use tollgate_shared::place::{Code, LogId, Place};

use super::compare::end_us;
use super::faults::{Episode, Fault, LogWay};
use super::plan::{LogPlan, Plan};
use super::watch::{Ruled, Watch};

/// What two clocks may be apart, each way, over the time that is run down on them.
const SLACK_PPM: u64 = 400;

/// How late ticks of owners may be: who goes by them takes the log's time to be ahead by so much. `is_meant` says which
/// faults count, each with by how much it makes ticks late: what is held up may have been slow before.
pub(super) fn ticks_late_us(plan: &Plan, is_meant: impl Fn(&Episode, u64) -> bool) -> u64 {
    let (mut held_us, mut slow_us) = (0, 0);
    for one in &plan.episodes {
        let (of, late_us) = match one.fault {
            Fault::LogCut {
                way: LogWay::Appends,
                lost: false,
                ..
            } => (&mut held_us, one.to_us - one.from_us),
            Fault::SlowAppends { by_us } => (&mut slow_us, by_us),
            // A journal stamps what it takes in its turn.
            Fault::SlowLog { by_us } if matches!(plan.log, LogPlan::Journal { .. }) => {
                (&mut slow_us, by_us)
            }
            _ => continue,
        };
        if is_meant(one, late_us) {
            *of = late_us.max(*of);
        }
    }
    held_us + slow_us + APPEND_US
}

/// How long an append takes where nothing is wrong.
const APPEND_US: u64 = 3_000;

/// Until an owner that goes on has seen a tick of its own.
const SOON_US: u64 = 2_000_000;

/// A millisecond is what append times are rounded to, and one more.
const SLACK_US: u64 = 2_000;

/// How far back the tick may lie that an owner goes by: as long as one may stand still, in most plans.
const BEHIND_US: u64 = 30_000_000;

/// How far back that is in a plan where owners, or what they append, stand still for longer, by one fault after
/// another: until a tick of its own
/// comes again it goes by the last one.
pub(super) fn behind_us(plan: &Plan) -> u64 {
    let all = keeping_ticks_back(plan);
    let (mut longest_us, mut from_us, mut to_us) = (0, 0, 0);
    for one in all {
        // One begins before a tick has come since the last.
        if to_us + SOON_US < one.from_us {
            from_us = one.from_us;
        }
        to_us = one.to_us.max(to_us);
        longest_us = longest_us.max(to_us - from_us);
    }
    BEHIND_US.max(longest_us + SOON_US)
}

/// All faults by which ticks do not come to the log, or not back from it, in the order in which they begin.
fn keeping_ticks_back(plan: &Plan) -> Vec<&Episode> {
    let is_one = |one: &&Episode| {
        matches!(
            one.fault,
            Fault::Stall { .. }
                | Fault::LogCut { .. }
                | Fault::Appends { .. }
                | Fault::DiskFull { .. }
                | Fault::SyncsFail
                | Fault::SlowLog { .. }
                | Fault::SlowAppends { .. }
        )
    };
    let mut all: Vec<_> = plan.episodes.iter().filter(is_one).collect();
    all.sort_by_key(|one| one.from_us);
    all
}

/// When ticks come again that were not kept back, where the log's clock is right since then.
pub(super) fn ticks_come_again_us(plan: &Plan, since_us: u64) -> u64 {
    let all = keeping_ticks_back(plan).into_iter();
    all.fold(since_us, |since_us, one| {
        match one.from_us <= since_us + SOON_US {
            true => one.to_us.max(since_us),
            false => since_us,
        }
    })
}

impl Watch {
    /// Where a statement is of one log of a generation, and an agent knows another one: what it should
    /// have known.
    pub fn is_of_another_log(&self, code: Code, known: Option<LogId>) -> Option<String> {
        let known = known?;
        let stated = self
            .of_place_in(code.partition, code.place, Some(known))?
            .log?;
        let now = self.ruled[code.partition as usize].log?;
        // Both logs may have said something there: then it is taken to be the one that the agent knows.
        let is_gone = now == known && stated.generation == now.generation && stated != now;
        is_gone.then(|| format!("it is of {stated:?}, the log is {known:?}"))
    }

    /// Until when (true time) the model justifies a refusal of this pair that names `code`, by an agent
    /// that takes the log to be `known` and has heard everything below `heard`.
    ///
    /// # Errors
    ///
    /// Why it does not at all.
    pub fn justified_until(
        &self,
        code: Code,
        resource: &str,
        domain: &str,
        (known, heard): (Option<LogId>, Option<Place>),
        now_us: u64,
    ) -> Result<u64, String> {
        let generation = code.place.generation;
        let Some(ruled) = self.of_place_in(code.partition, code.place, known) else {
            return Err(format!("nobody knows generation {generation}"));
        };
        if let Some(heard) = heard
            && generation < heard.generation
        {
            return Err(format!("it has heard of generation {}", heard.generation));
        }
        let mut upto = ModelPlace {
            offset: code.place.offset,
            entry: code.place.entry,
        };
        if let Some(heard) = heard.filter(|heard| heard.generation == generation)
            && let Some(before) = heard.offset.checked_sub(1)
        {
            upto = upto.max(ModelPlace {
                offset: before,
                entry: u32::MAX,
            });
        }
        let scopes = [
            Scope::new(resource, Some(domain)),
            Scope::new(resource, None),
        ];
        let mut why = Vec::new();
        let mut latest = None;
        for scope in &scopes {
            let statements = ruled.model.statements(scope);
            let mut known = statements.partition_point(|one| one.place <= upto);
            let shown_us = ruled.log_shown_us(now_us, self.behind_us) + self.ticks_late_us;
            // What was over by the log's clock when it was ruled is told to nobody, and who runs down what was
            // said before goes on with that: where the log's clock was put forward, for as long as by that.
            while let Some(newest) = known.checked_sub(1).map(|at| &statements[at])
                && code.place.offset < newest.place.offset
                && newest
                    .denied
                    .is_some_and(|denial| end_us(denial.end) <= shown_us)
            {
                known -= 1;
            }
            // A record that brings several versions is told slice by slice: who has not heard all of it may know
            // any of what it says of the scope.
            let of_it = |at: &usize| statements[*at].place.offset == code.place.offset;
            let is_heard = heard.is_some_and(|heard| {
                heard.generation == generation && code.place.offset < heard.offset
            });
            let mut of_it = (0..known).rev().take_while(of_it);
            if !is_heard && let Some(at) = of_it.find(|at| statements[*at].denied.is_some()) {
                known = at + 1;
            }
            let Some(newest) = known.checked_sub(1).map(|at| statements[at]) else {
                continue;
            };
            let Some(denial) = newest.denied else {
                why.push(format!("it was opened at {:?}", newest.place));
                continue;
            };
            // Who names an older place has let an older statement win.
            if code.place.offset < newest.place.offset {
                why.push(format!("it was denied anew at {:?}", newest.place));
                continue;
            }
            let until = ruled.true_time_of(
                end_us(denial.end),
                newest.place.offset,
                (now_us, self.behind_us),
            );
            latest = latest.max(Some(until));
        }
        latest.ok_or_else(|| match why.is_empty() {
            true => "the model never denied it".to_owned(),
            false => why.join(", "),
        })
    }
}

impl Ruled {
    /// The latest time that the log's clock may have shown to an owner by now.
    fn log_shown_us(&self, now_us: u64, behind_us: u64) -> u64 {
        let since_us = now_us.saturating_sub(behind_us);
        let since = self.ticks.partition_point(|(at, _)| *at <= since_us);
        let ticks = self.ticks[since.saturating_sub(1)..].iter();
        let shown = ticks.map(|(at_us, log_us)| log_us + now_us.saturating_sub(*at_us));
        shown.max().unwrap_or(0) + SLACK_US
    }

    /// The latest true time at which the log's clock may still be taken to show less than `end_us`, by
    /// somebody who heard of the denial at any time since the record that caused it, from an owner whose newest tick
    /// lay so far behind.
    pub fn true_time_of(&self, end_us: u64, cause: u64, (now_us, behind_us): (u64, u64)) -> u64 {
        if end_us == u64::MAX {
            return u64::MAX;
        }
        let caused = self.taken.get(cause as usize);
        let (caused_us, log_us) = caused.copied().unwrap_or_default();
        let since_us = caused_us.saturating_sub(behind_us);
        let since = self.ticks.partition_point(|(at, _)| *at <= since_us);
        let mut latest = end_us.saturating_add(caused_us).saturating_sub(log_us);
        let mut begin_us = caused_us;
        // Where the log's clock is put forward, an owner knows that from its next own tick.
        for (at_us, log_us) in &self.ticks[since.saturating_sub(1)..] {
            latest = latest.max(end_us.saturating_add(*at_us).saturating_sub(*log_us));
            begin_us = begin_us.min(*at_us);
        }
        let run_down_us = latest.min(now_us).saturating_sub(begin_us);
        latest
            .saturating_add(SLACK_US)
            .saturating_add(run_down_us / 1_000_000 * SLACK_PPM + SLACK_PPM)
    }
}
