//! The shared log in the simulated world: appends, answers and deliveries under way.
//!
//! Knows nothing of the content of records. What stays true: the watch has every record of the log first.

use tollgate_log::{LogEvent, Stream};

use super::faults::LogWay;
use super::log_host::{LOG_EVENTS_MAX, LogHost};
use super::random::CERTAIN_PPM;
use super::shared_log::refused;
use super::world::World;

/// The end of a cut of one direction between an aggregator and the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogCut {
    pub until_us: u64,
    /// Whether the aggregator drops waiting requests and treats them as refused.
    pub lost: bool,
}

impl World {
    /// The cut of a direction between an aggregator and the log.
    fn cut_off(&mut self, owner: usize, way: LogWay) -> Option<LogCut> {
        let cut = self.owners[owner].log_cuts[way as usize];
        self.see_if("owner cut off from the log", cut.is_some());
        cut
    }

    pub(super) fn shared_delivery_soon(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        if host.is_up() && !std::mem::replace(&mut host.log_due, true) {
            let life = host.life;
            let us = self.random.spread(100, 8_000);
            self.after(us, move |world| world.shared_delivers(owner, life));
        }
    }

    /// The cut that holds up an aggregator's appends, if there is one.
    fn held_up(&mut self, owner: usize) -> Option<LogCut> {
        let now_us = self.now_us;
        let cut = self.cut_off(owner, LogWay::Appends);
        cut.filter(|cut| !cut.lost && now_us < cut.until_us)
    }

    /// Accepts or refuses the appends under way from an aggregator. Returns the answers, and the cut that holds
    /// these up. `None` if the appends are cut off, or a law is violated.
    pub(super) fn take_appends(&mut self, owner: usize) -> Option<(Vec<LogEvent>, Option<LogCut>)> {
        if self.held_up(owner).is_some() {
            return None;
        }
        let wall = self.log_clock.wall(self.now_us);
        let appends_cut = self.cut_off(owner, LogWay::Appends);
        let answers_cut = self.cut_off(owner, LogWay::Answers);
        let host = &mut self.owners[owner];
        host.appends_due = false;
        let appends = std::mem::take(&mut host.session.appends);
        let (refused_ppm, taken_ppm) = match (appends_cut, answers_cut) {
            (Some(_), _) => (CERTAIN_PPM, 0),
            (None, Some(LogCut { lost: true, .. })) => (CERTAIN_PPM, CERTAIN_PPM),
            _ => self.appends_refused,
        };
        let mut answers = Vec::new();
        for append in appends {
            let (stream, partition) = (append.stream, append.partition);
            let ticket = append.ticket;
            self.owners[owner].tickets.remove(&ticket);
            let refuse = self.random.chance(refused_ppm);
            if refuse && !self.random.chance(taken_ppm) {
                self.watch.append_refused();
                answers.push(refused(ticket, "refused"));
                continue;
            }
            let LogHost::Shared(log) = &mut self.log else {
                return None;
            };
            if log.is_gone(&self.owners[owner].session, stream, partition) {
                answers.push(refused(ticket, "the topic is gone"));
                continue;
            }
            let record = match log.put(&append, wall) {
                Ok(record) => record,
                Err(error) => {
                    let what = format!("owner {owner}, {stream:?} {partition}: {error}");
                    self.violated(7, "what is appended is what a log takes", what);
                    return None;
                }
            };
            self.seen_in_log(stream, partition, &record)?;
            if refuse {
                self.see("append answered no although taken");
                answers.push(refused(ticket, "the answer was lost"));
            } else {
                let result = Ok(record.offset);
                answers.push(LogEvent::answer(ticket, result));
            }
        }
        for other in 0..self.owners.len() {
            self.shared_delivery_soon(other);
        }
        Some((answers, answers_cut))
    }

    pub(super) fn shared_appends(&mut self, owner: usize, life: u64) {
        // Appends under way arrive even if their sender is gone; but a session ends with its process.
        if self.owners[owner].life != life {
            return;
        }
        if let Some(cut) = self.held_up(owner) {
            return self.at(cut.until_us, move |world| world.shared_appends(owner, life));
        }
        let Some((answers, answers_cut)) = self.take_appends(owner) else {
            return;
        };
        let host = &mut self.owners[owner];
        if self.answers_late_us == 0 && host.answers_last_us < self.now_us && answers_cut.is_none()
        {
            return self.hand_on(owner, answers);
        }
        // Answers stay in order; deliveries may arrive before them.
        let came_us = match answers_cut {
            Some(LogCut {
                until_us,
                lost: false,
            }) => until_us.max(self.now_us),
            _ => self.now_us,
        };
        let at_us = came_us + self.random.below(self.answers_late_us);
        host.answers_last_us = at_us.max(host.answers_last_us + 1);
        let at_us = host.answers_last_us;
        let slow = 0 < self.answers_late_us;
        self.see_if("log slow", slow);
        self.at_log_of(owner, at_us, move |world| world.hand_on(owner, answers));
    }

    /// Recreates the topic of the hits: its old records are void, also for the watch.
    pub(super) fn topic_anew(&mut self) {
        let LogHost::Shared(log) = &mut self.log else {
            return;
        };
        log.make_anew(Stream::Hits);
        self.see("topic made anew");
        // Snapshots of the previous log may cover more offsets than the new log has.
        self.state_is_of_the_log = false;
        let records = self.watch.records.iter();
        let left = records
            .map(|((stream, partition), records)| {
                let left = match stream {
                    Stream::Hits => 0,
                    Stream::Limits | Stream::Denials => records.len() as u64,
                };
                ((*stream, *partition), left)
            })
            .collect();
        if let Err(violation) = self.watch.cut_to(&left, self.now_us) {
            self.violated_by(violation);
        }
        for owner in 0..self.owners.len() {
            self.shared_delivery_soon(owner);
        }
    }

    /// Deletes the records that the newest snapshots cover, except for some: readers there are
    /// overtaken, and no log loses its end.
    pub(super) fn retention(&mut self, records: u64) {
        let LogHost::Shared(log) = &mut self.log else {
            return;
        };
        if !self.state_is_of_the_log {
            return;
        }
        for (partition, upto) in self.state.newest() {
            let below = (upto + 1).saturating_sub(records);
            log.let_go(Stream::Hits, partition, below);
            self.trace
                .event(self.now_us, &[51, u64::from(partition), below], || {
                    format!("partition {partition} begins at {below} now")
                });
        }
        for owner in 0..self.owners.len() {
            self.shared_delivery_soon(owner);
        }
    }

    fn shared_delivers(&mut self, owner: usize, life: u64) {
        // Drawn for a process that has ended, too, so that seeds keep their meaning.
        let records_max = self.random.spread(1, 64) as usize;
        let host = &mut self.owners[owner];
        if host.life != life || !host.is_up() {
            return;
        }
        host.log_due = false;
        let LogHost::Shared(log) = &self.log else {
            return;
        };
        if LOG_EVENTS_MAX <= host.log_events {
            return self.shared_delivery_soon(owner);
        }
        if let Some(cut) = host.log_cuts[LogWay::Deliveries as usize]
            && self.now_us < cut.until_us
        {
            host.log_due = true;
            self.see("owner cut off from the log");
            return self.at(cut.until_us, move |world| {
                world.shared_delivers(owner, life);
            });
        }
        let events = log.deliver(&mut host.session, records_max);
        let behind = log.is_behind(&host.session);
        let is_overtaken =
            |event: &LogEvent| matches!(event, LogEvent::Gap { wanted, next, .. } if wanted < next);
        self.see_if(
            "retention overtook a reader",
            events.iter().any(is_overtaken),
        );
        self.hand_on(owner, events);
        if behind {
            self.shared_delivery_soon(owner);
        }
    }
}
