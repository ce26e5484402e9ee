//! The effects of faults on the world, at their begin and at their end.
//!
//! Knows nothing of schedules. What stays true: the end of a fault, or of the next fault of its kind, undoes what
//! the fault changed, whatever other faults have changed meanwhile.

use super::clock::Clock;
use super::plan::{Fault, Whose};
use super::shared_host::LogCut;
use super::world::{Frozen, World};

impl World {
    pub(super) fn fault_begins(&mut self, index: usize) {
        let episode = self.plan.episodes[index].clone();
        let to_us = episode.to_us;
        self.event(&[1, index as u64], || {
            let lasting = to_us - episode.from_us;
            format!("fault {index} for {lasting} us: {:?}", episode.fault)
        });
        let now_us = self.now_us;
        match episode.fault {
            Fault::Loss(edge, ppm) => self.net.weather(edge).loss_ppm += ppm,
            Fault::Duplication(edge, ppm) => self.net.weather(edge).duplication_ppm += ppm,
            Fault::Reordering(edge, by_us) => self.net.weather(edge).reordering_us += by_us,
            Fault::Delay(edge, by_us) => self.net.weather(edge).delay_us += by_us,
            Fault::Cut { edge, lost } => {
                let weather = self.net.weather(edge);
                weather.cuts += 1;
                weather.losing_cuts += u32::from(lost);
                let is_there = self.agents[edge.agent].process.is_some();
                self.see_if("agent cut off", is_there);
            }
            Fault::Stall { owner } => {
                let host = &mut self.owners[owner];
                host.stalled_until_us = host.stalled_until_us.max(to_us);
                self.at(to_us, move |world| world.goes_on(Frozen::Owner(owner)));
                let is_up = self.owners[owner].is_up();
                self.see_if("owner stalled", is_up);
            }
            Fault::Crash {
                owner,
                after,
                in_disk,
                power,
            } => self.owner_is_to_crash(owner, after, in_disk, power),
            Fault::Stop { owner, power } => self.owner_stops(owner, power),
            Fault::CrashInOpening {
                owner,
                times,
                within,
                power,
            } => self.owner_is_to_crash_in_opening(owner, times, within, power),
            Fault::Die { agent } => self.agent_dies(agent),
            Fault::Freeze { agent } => {
                let host = &mut self.agents[agent];
                host.frozen_until_us = host.frozen_until_us.max(to_us);
                self.at(to_us, move |world| world.goes_on(Frozen::Agent(agent)));
                let is_there = self.agents[agent].process.is_some();
                self.see_if("agent froze", is_there);
            }
            Fault::AgentClock { agent, by_us } => {
                self.agents[agent].clock.jump(now_us, by_us);
                self.see("clock jumps of an agent");
            }
            Fault::OwnerClock { owner, by_us } => {
                self.owners[owner].clock.jump(now_us, by_us);
                self.see("clock jumps of an owner");
            }
            Fault::LogClock { by_us } => {
                self.log_clock.jump(now_us, by_us);
                self.see("clock jumps of the log");
            }
            Fault::ClockStops(whose) => {
                self.wall_clock(whose).stop(now_us);
                self.see(match whose {
                    Whose::Agent(_) => "clock stops of an agent",
                    Whose::Owner(_) => "clock stops of an owner",
                    Whose::Log => "clock stops of the log",
                });
            }
            Fault::DiskFull { room_bytes } => {
                self.log.on_disk(|disk| disk.room_bytes = Some(room_bytes));
            }
            Fault::Appends {
                refused_ppm,
                taken_ppm,
            } => self.appends_refused = (refused_ppm, taken_ppm),
            Fault::SyncsFail => self.log.on_disk(|disk| disk.syncs_fail = true),
            Fault::LogCut { owner, way, lost } => {
                self.owners[owner].log_cuts[way as usize] = Some(LogCut {
                    until_us: to_us,
                    lost,
                });
            }
            Fault::NoSnapshots => self.no_snapshots += 1,
            Fault::SlowLog { by_us } => self.answers_late_us = by_us,
            Fault::SlowAppends { by_us } => self.appends_late_us = by_us,
            Fault::Retention { records } => self.retention(records),
            Fault::TopicAnew => self.topic_anew(),
            Fault::Push { document } => self.push(document),
            // A host that is frozen handles the event later.
            Fault::Act { owner, does, draw } if !self.plan.is_plain => {
                self.at_owner(owner, now_us, move |world| {
                    world.operator_acts(owner, does, draw);
                });
            }
            Fault::Act { owner, does, draw } => self.operator_acts(owner, does, draw),
            Fault::Burst { agent, times } => self.agents[agent].times = times,
            Fault::Move {
                partition,
                to,
                late_us,
            } => {
                let moves = self.owners[to].is_up() && !self.is_assigned(to, partition);
                self.see_if("partition moved", moves);
                self.move_partition(partition, to, late_us);
            }
        }
    }

    fn wall_clock(&mut self, whose: Whose) -> &mut Clock {
        match whose {
            Whose::Agent(agent) => &mut self.agents[agent].clock,
            Whose::Owner(owner) => &mut self.owners[owner].clock,
            Whose::Log => &mut self.log_clock,
        }
    }

    pub(super) fn fault_ends(&mut self, index: usize) {
        let episode = self.plan.episodes[index].clone();
        self.event(&[2, index as u64], || format!("fault {index} is over"));
        let now_us = self.now_us;
        match episode.fault {
            Fault::Loss(edge, ppm) => self.net.weather(edge).loss_ppm -= ppm,
            Fault::Duplication(edge, ppm) => self.net.weather(edge).duplication_ppm -= ppm,
            Fault::Reordering(edge, by_us) => self.net.weather(edge).reordering_us -= by_us,
            Fault::Delay(edge, by_us) => self.net.weather(edge).delay_us -= by_us,
            Fault::Cut { edge, lost } => {
                let weather = self.net.weather(edge);
                weather.cuts -= 1;
                weather.losing_cuts -= u32::from(lost);
                self.release_held(edge);
            }
            Fault::Stall { .. }
            | Fault::Freeze { .. }
            | Fault::Push { .. }
            | Fault::Act { .. }
            | Fault::TopicAnew
            | Fault::Retention { .. }
            | Fault::Move { .. } => {}
            Fault::SlowAppends { .. } => self.appends_late_us = 0,
            Fault::SlowLog { .. } => self.answers_late_us = 0,
            Fault::Crash { owner, .. }
            | Fault::Stop { owner, .. }
            | Fault::CrashInOpening { owner, .. } => self.owner_may_return(owner),
            Fault::SyncsFail => self.log.on_disk(|disk| disk.syncs_fail = false),
            Fault::LogCut { owner, way, .. } => self.owners[owner].log_cuts[way as usize] = None,
            Fault::Die { agent } => self.agent_starts(agent),
            Fault::AgentClock { agent, by_us } => self.agents[agent].clock.jump(now_us, -by_us),
            Fault::OwnerClock { owner, by_us } => self.owners[owner].clock.jump(now_us, -by_us),
            Fault::LogClock { by_us } => self.log_clock.jump(now_us, -by_us),
            Fault::ClockStops(whose) => self.wall_clock(whose).go_on(now_us),
            Fault::DiskFull { .. } => self.log.on_disk(|disk| disk.room_bytes = None),
            Fault::Appends { .. } => self.appends_refused = (0, 0),
            Fault::NoSnapshots => self.no_snapshots -= 1,
            Fault::Burst { agent, .. } => self.agents[agent].times = 1,
        }
    }
}
