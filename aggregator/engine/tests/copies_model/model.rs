//! Copies, slowly: a list of holds, and every count made anew whenever it is asked for.
//!
//! Written from the rules, not from the engine, with which it shares nothing but plain numbers and
//! names. What stays true: there is no count in here that could be wrong, because none is kept.

use std::collections::{BTreeMap, BTreeSet};

/// Limits as they are written.
#[derive(Clone, Debug)]
pub struct Limits {
    pub domain: u64,
    pub global: Option<u64>,
    pub max_age: Option<u64>,
    pub kept_max: usize,
    pub domains: BTreeMap<String, u64>,
    pub groups: BTreeMap<String, (u64, BTreeSet<String>)>,
}

/// An agent's epoch.
pub type Agent = (String, u128);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub agent: Agent,
    pub number: u64,
    pub domain: String,
    pub groups: Vec<String>,
    pub copies: u32,
    pub start: u64,
    pub strict: bool,
    pub seized: bool,
    pub lost: bool,
    /// What was too much, and is still held.
    pub excess: (u64, Option<String>),
}

impl Hold {
    /// Some copies less; those that were too many go first.
    pub fn lessen(&mut self, copies: u32) {
        self.copies -= copies;
        self.excess.0 = self.excess.0.saturating_sub(u64::from(copies));
        if self.excess.0 == 0 {
            self.excess.1 = None;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    pub id: u128,
    pub domain: String,
    pub groups: Vec<String>,
    pub copies: u32,
    pub start: u64,
    pub end: u64,
    pub strict: bool,
}

/// An entry of a full beat.
#[derive(Clone, Debug)]
pub struct Entry {
    pub number: u64,
    pub domain: String,
    pub copies: u32,
    pub start: u64,
    pub strict: bool,
    pub seized: Option<u128>,
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// Copies, and the name of the scope that kept them down.
    Copies(u64, Option<String>),
    Refused(&'static str),
    /// Of a beat: numbers and what is said of them.
    Verdicts(Vec<(u64, String)>),
    /// Of a tick: holds that ended by age.
    Ended(Vec<(Agent, u64, u32)>),
}

#[derive(Clone, Debug)]
pub struct Model {
    pub limits: Limits,
    pub holds: Vec<Hold>,
    pub staged: Vec<Staged>,
    pub ended: Vec<(Agent, u64)>,
    pub over: Vec<Agent>,
    pub now: u64,
}

impl Model {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            holds: Vec::new(),
            staged: Vec::new(),
            ended: Vec::new(),
            over: Vec::new(),
            now: 0,
        }
    }

    pub fn effective(&self, limit: u64) -> u64 {
        limit.min(self.limits.global.unwrap_or(u64::MAX))
    }

    pub fn limit_of(&self, domain: &str) -> u64 {
        let own = self.limits.domains.get(domain);
        self.effective(own.copied().unwrap_or(self.limits.domain))
    }

    pub fn groups_of(&self, domain: &str) -> Vec<String> {
        let groups = self.limits.groups.iter();
        groups
            .filter(|(_, (_, members))| members.contains(domain))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Everything that counts: domain, groups, copies, and whether it was granted before use.
    fn counted(&self) -> impl Iterator<Item = (&String, &Vec<String>, u64, bool)> {
        let holds = self.holds.iter().filter(|hold| !hold.lost);
        let holds = holds.map(|h| (&h.domain, &h.groups, u64::from(h.copies), h.strict));
        let staged = self.staged.iter();
        holds.chain(staged.map(|s| (&s.domain, &s.groups, u64::from(s.copies), s.strict)))
    }

    pub fn total(&self) -> u64 {
        self.counted().map(|(_, _, copies, _)| copies).sum()
    }

    pub fn optimistic(&self) -> u64 {
        let counted = self.counted().filter(|(_, _, _, strict)| !strict);
        counted.map(|(_, _, copies, _)| copies).sum()
    }

    pub fn of_domain(&self, domain: &str) -> u64 {
        let counted = self.counted().filter(|(of, _, _, _)| *of == domain);
        counted.map(|(_, _, copies, _)| copies).sum()
    }

    pub fn of_group(&self, group: &String) -> u64 {
        let counted = self
            .counted()
            .filter(|(_, groups, _, _)| groups.contains(group));
        counted.map(|(_, _, copies, _)| copies).sum()
    }

    pub fn of_agent(&self, agent: &Agent) -> u64 {
        let holds = self.holds.iter().filter(|h| h.agent == *agent && !h.lost);
        holds.map(|hold| u64::from(hold.copies)).sum()
    }

    /// Every scope there is a reason to ask about: `domain:…`, `group:…`, `global`, each with
    /// whether it is full.
    pub fn scopes(&self, domains: &[String]) -> BTreeMap<String, bool> {
        let mut scopes = BTreeMap::new();
        for domain in domains {
            let full = self.limit_of(domain) <= self.of_domain(domain);
            scopes.insert(format!("domain:{domain}"), full);
        }
        let held_under = self.counted().flat_map(|(_, groups, _, _)| groups.iter());
        let names: BTreeSet<&String> = self.limits.groups.keys().chain(held_under).collect();
        for name in names {
            let limit = self.limits.groups.get(name).map(|(limit, _)| *limit);
            let full = limit.is_some_and(|limit| self.effective(limit) <= self.of_group(name));
            scopes.insert(format!("group:{name}"), full);
        }
        let full = self
            .limits
            .global
            .is_some_and(|global| global <= self.total());
        scopes.insert("global".to_owned(), full);
        scopes
    }

    /// The least room and who is named for it.
    pub fn room(&self, domain: &str, groups: &[String]) -> (u64, String) {
        let mut rooms = vec![(
            self.limit_of(domain).saturating_sub(self.of_domain(domain)),
            "domain".to_owned(),
        )];
        for name in groups {
            if let Some((limit, _)) = self.limits.groups.get(name) {
                let room = self.effective(*limit).saturating_sub(self.of_group(name));
                rooms.push((room, format!("group:{name}")));
            }
        }
        if let Some(global) = self.limits.global {
            rooms.push((global.saturating_sub(self.total()), "global".to_owned()));
        }
        let least = rooms.iter().map(|(room, _)| *room).min().unwrap();
        rooms.into_iter().find(|(room, _)| *room == least).unwrap()
    }

    pub fn at(&self, agent: &Agent, number: u64) -> Option<usize> {
        let mut holds = self.holds.iter();
        holds.position(|hold| hold.agent == *agent && hold.number == number)
    }

    pub fn live_at(&self, agent: &Agent, number: u64) -> Option<usize> {
        self.at(agent, number).filter(|at| !self.holds[*at].lost)
    }

    pub fn is_ended(&self, agent: &Agent, number: u64) -> bool {
        self.ended.contains(&(agent.clone(), number))
    }

    pub fn kept(&self) -> usize {
        self.holds.len() + self.staged.len()
    }

    fn drop_hold(&mut self, agent: &Agent, number: u64) {
        self.holds
            .retain(|hold| hold.agent != *agent || hold.number != number);
    }

    pub fn push(
        &mut self,
        agent: &Agent,
        number: u64,
        domain: &str,
        copies: u32,
        at: u64,
    ) -> &mut Hold {
        self.holds.push(Hold {
            agent: agent.clone(),
            number,
            domain: domain.to_owned(),
            groups: self.groups_of(domain),
            copies,
            start: at,
            strict: false,
            seized: false,
            lost: false,
            excess: (0, None),
        });
        self.holds.last_mut().unwrap()
    }

    pub fn reserve(
        &mut self,
        (agent, number): (&Agent, u64),
        domain: &str,
        (min, copies): (u32, u32),
        at: u64,
    ) -> Answer {
        if copies < min {
            return Answer::Refused("min");
        }
        if copies == 0 {
            return Answer::Refused("copies");
        }
        if self.over.contains(agent) {
            return Answer::Refused("over");
        }
        if self.is_ended(agent, number) {
            return Answer::Refused("ended");
        }
        if self.live_at(agent, number).is_some() {
            return Answer::Refused("exists");
        }
        let (room, by) = self.room(domain, &self.groups_of(domain));
        let granted = room.min(u64::from(copies));
        let by = (granted < u64::from(copies)).then_some(by);
        if granted == 0 || granted < u64::from(min) {
            return Answer::Copies(0, by);
        }
        if self.at(agent, number).is_none() && self.limits.kept_max <= self.kept() {
            return Answer::Refused("capacity");
        }
        self.drop_hold(agent, number);
        self.push(agent, number, domain, granted as u32, at).strict = true;
        Answer::Copies(granted, by)
    }

    pub fn hold(
        &mut self,
        (agent, number): (&Agent, u64),
        domain: &str,
        copies: u32,
        at: u64,
    ) -> Answer {
        if copies == 0 {
            return Answer::Refused("copies");
        }
        if self.over.contains(agent) {
            return Answer::Refused("over");
        }
        if self.is_ended(agent, number) {
            return Answer::Refused("ended");
        }
        if self.at(agent, number).is_none() && self.limits.kept_max <= self.kept() {
            return Answer::Refused("capacity");
        }
        self.drop_hold(agent, number);
        let (excess, by) = self.excess(domain, &self.groups_of(domain), copies);
        self.push(agent, number, domain, copies, at).excess = (excess, by.clone());
        Answer::Copies(excess, by)
    }

    pub fn excess(&self, domain: &str, groups: &[String], copies: u32) -> (u64, Option<String>) {
        let (room, by) = self.room(domain, groups);
        let excess = u64::from(copies).saturating_sub(room);
        (excess, (0 < excess).then_some(by))
    }

    fn cut(&mut self, (agent, number): (&Agent, u64), copies: u32) -> Result<usize, Answer> {
        if self.over.contains(agent) {
            return Err(Answer::Refused("over"));
        }
        let at = self.live_at(agent, number);
        let at = at.ok_or(Answer::Refused("unknown hold"))?;
        if copies == 0 {
            return Err(Answer::Refused("copies"));
        }
        if self.holds[at].copies < copies {
            return Err(Answer::Refused("too many"));
        }
        Ok(at)
    }

    pub fn release(&mut self, hold: (&Agent, u64), copies: u32) -> Answer {
        match self.cut(hold, copies) {
            Err(refused) => refused,
            Ok(at) => {
                self.holds[at].lessen(copies);
                self.holds.retain(|hold| 0 < hold.copies);
                Answer::Done
            }
        }
    }

    pub fn transfer(&mut self, hold: (&Agent, u64), copies: u32, id: u128, end: u64) -> Answer {
        let at = match self.cut(hold, copies) {
            Err(refused) => return refused,
            Ok(at) => at,
        };
        if self.staged.iter().any(|staged| staged.id == id) {
            return Answer::Refused("transfer exists");
        }
        if copies < self.holds[at].copies && self.limits.kept_max <= self.kept() {
            return Answer::Refused("capacity");
        }
        let from = self.holds[at].clone();
        self.staged.push(Staged {
            id,
            domain: from.domain,
            groups: from.groups,
            copies,
            start: from.start,
            end,
            strict: from.strict,
        });
        self.release(hold, copies)
    }

    pub fn seize(&mut self, (agent, number): (&Agent, u64), id: u128) -> Answer {
        if self.over.contains(agent) {
            return Answer::Refused("over");
        }
        if self.is_ended(agent, number) {
            return Answer::Refused("ended");
        }
        if self.live_at(agent, number).is_some() {
            return Answer::Refused("exists");
        }
        let Some(at) = self.staged.iter().position(|staged| staged.id == id) else {
            return Answer::Refused("unknown transfer");
        };
        self.drop_hold(agent, number);
        let staged = self.staged.remove(at);
        self.holds.push(Hold {
            agent: agent.clone(),
            number,
            domain: staged.domain,
            groups: staged.groups,
            copies: staged.copies,
            start: staged.start,
            strict: staged.strict,
            seized: true,
            lost: false,
            excess: (0, None),
        });
        Answer::Copies(u64::from(staged.copies), None)
    }

    pub fn end_hold(&mut self, (agent, number): (&Agent, u64)) -> Answer {
        let Some(at) = self.at(agent, number) else {
            return Answer::Refused("unknown hold");
        };
        let hold = self.holds.remove(at);
        self.ended.push((agent.clone(), number));
        let copies = if hold.lost { 0 } else { hold.copies };
        Answer::Copies(u64::from(copies), None)
    }

    pub fn end_transfer(&mut self, id: u128) -> Answer {
        let Some(at) = self.staged.iter().position(|staged| staged.id == id) else {
            return Answer::Refused("unknown transfer");
        };
        Answer::Copies(u64::from(self.staged.remove(at).copies), None)
    }
}
