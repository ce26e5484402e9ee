//! The slow model, continued: beats, agents that go and come back, and time.
//!
//! As in the first half nothing is counted; holds are dropped, marked and put in.

use std::collections::BTreeMap;

use crate::model::{Agent, Answer, Entry, Hold, Model};

impl Model {
    pub fn gone(&mut self, agent: &Agent) -> Answer {
        let released = self.of_agent(agent);
        for hold in self.holds.iter_mut().filter(|hold| hold.agent == *agent) {
            hold.lost = true;
            hold.excess = (0, None);
        }
        Answer::Copies(released, None)
    }

    pub fn over(&mut self, agent: &Agent) -> Answer {
        let answer = self.forget(agent);
        self.over.push(agent.clone());
        answer
    }

    pub fn forget(&mut self, agent: &Agent) -> Answer {
        let released = self.of_agent(agent);
        self.holds.retain(|hold| hold.agent != *agent);
        self.ended.retain(|(of, _)| of != agent);
        self.over.retain(|of| of != agent);
        Answer::Copies(released, None)
    }

    pub fn tick(&mut self, now: u64) -> Answer {
        if now < self.now {
            return Answer::Ended(Vec::new());
        }
        self.now = now;
        self.staged.retain(|staged| now < staged.end);
        let Some(age) = self.limits.max_age else {
            return Answer::Ended(Vec::new());
        };
        self.staged.retain(|staged| now < staged.start + age);
        let (old, young): (Vec<Hold>, Vec<Hold>) = self
            .holds
            .drain(..)
            .partition(|hold| hold.start + age <= now);
        self.holds = young;
        let mut ended: Vec<(Agent, u64, u32)> = old
            .into_iter()
            .filter(|hold| !hold.lost)
            .map(|hold| (hold.agent, hold.number, hold.copies))
            .collect();
        ended.sort();
        let ids = ended
            .iter()
            .map(|(agent, number, _)| (agent.clone(), *number));
        self.ended.extend(ids);
        Answer::Ended(ended)
    }

    /// The holds that an agent's digest is over, less those that still await their verdict.
    pub fn held_without(&self, agent: &Agent, awaiting: &[u64]) -> BTreeMap<u64, u32> {
        let holds = self.holds.iter().filter(|h| h.agent == *agent && !h.lost);
        let settled = holds.filter(|hold| !awaiting.contains(&hold.number));
        settled.map(|hold| (hold.number, hold.copies)).collect()
    }

    pub fn equal_digest(&mut self, agent: &Agent) -> Answer {
        if self.over.contains(agent) {
            return Answer::Refused("over");
        }
        self.holds.retain(|hold| hold.agent != *agent || !hold.lost);
        Answer::Done
    }

    pub fn full_beat(
        &mut self,
        agent: &Agent,
        entries: &[Entry],
        awaiting: &[u64],
        (from, upto): (u64, u64),
        at: u64,
    ) -> Answer {
        if self.over.contains(agent) {
            return Answer::Refused("over");
        }
        let named = |number: &u64| {
            awaiting.contains(number) || entries.iter().any(|entry| entry.number == *number)
        };
        let said = |number: &u64| (from..=upto).contains(number) && !named(number);
        self.holds
            .retain(|hold| hold.agent != *agent || !said(&hold.number));
        for entry in entries {
            if let Some(at) = self.live_at(agent, entry.number)
                && 0 < entry.copies
            {
                let more = self.holds[at].copies.saturating_sub(entry.copies);
                self.holds[at].lessen(more);
            }
        }
        let mut verdicts = Vec::new();
        for entry in entries {
            if let Some(verdict) = self.beaten(agent, entry, at) {
                verdicts.push((entry.number, verdict));
            }
        }
        Answer::Verdicts(verdicts)
    }

    fn beaten(&mut self, agent: &Agent, entry: &Entry, now: u64) -> Option<String> {
        if self.is_ended(agent, entry.number) {
            return Some("ended".to_owned());
        }
        if let Some(at) = self.at(agent, entry.number) {
            let hold = self.holds[at].clone();
            let counted = if hold.lost { 0 } else { hold.copies };
            let wanted = if entry.copies == 0 {
                hold.copies
            } else {
                entry.copies
            };
            if wanted <= counted {
                return None;
            }
            let excess = self.excess(&hold.domain, &hold.groups, wanted - counted);
            self.holds[at].copies = wanted;
            self.holds[at].lost = false;
            if 0 < excess.0 {
                let before = hold.excess.0;
                self.holds[at].excess = (before + excess.0, excess.1);
            }
            let excess = &self.holds[at].excess;
            return Some(format!("{excess:?}"));
        }
        if let Some(id) = entry.seized {
            if self.seize((agent, entry.number), id) == Answer::Refused("unknown transfer") {
                return Some("unknown transfer".to_owned());
            }
            let hold = self.holds.last_mut().unwrap();
            if 0 < entry.copies {
                hold.copies = hold.copies.min(entry.copies);
            }
            return Some(format!("{:?}", (0u64, None::<String>)));
        }
        let start = entry.start.min(now);
        let too_old = self
            .limits
            .max_age
            .is_some_and(|age| start + age <= self.now);
        if entry.copies == 0 || too_old {
            return Some("ended".to_owned());
        }
        if self.limits.kept_max <= self.kept() {
            return Some("capacity".to_owned());
        }
        let excess = self.excess(&entry.domain, &self.groups_of(&entry.domain), entry.copies);
        let hold = self.push(agent, entry.number, &entry.domain, entry.copies, start);
        (hold.strict, hold.excess) = (entry.strict, excess.clone());
        Some(format!("{excess:?}"))
    }
}
