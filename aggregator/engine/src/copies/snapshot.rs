//! A resource's copies as bytes: the canonical form of the state.
//!
//! ```text
//! 2                                                         format of the snapshot
//! now  [domain]  [group]  [[group of a set]]                names in order, sets by their names
//! [agent: name, epoch, over, [ended], [hold], [excess]]     by name and epoch, holds by number
//! [transfer]                                                by id
//! ```
//!
//! Counts are not written: they are sums over the holds. Knows nothing of limits: the caller that restores a
//! snapshot passes the version that was in force. What stays true: equal states have equal bytes, however they
//! were reached; bytes that are not a snapshot are refused, whatever they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_shared::names::{NAME_BYTES_MAX, admit_domain};
use tollgate_shared::time::Timestamp;

use super::agents::ENDED_IDS_MAX;
use super::domains::NameKey;
use super::effects::{AgentIx, HoldId, TransferId};
use super::excess::{Excess, FullLimit};
use super::holds::{Flags, HoldFacts};
use super::limits::CopyLimits;
use super::staging::Staged;
use super::state::Copies;
use crate::varint;

const FORM: u8 = 2;

/// Why bytes are not a snapshot of a resource's copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreFault {
    /// A format that this build does not know.
    #[error("form {found}, expected {FORM}")]
    Form {
        /// The format found.
        found: u8,
    },
    /// The bytes end too early, or a number is not in its canonical encoding.
    #[error("ends within {what}")]
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// A value that is not valid there.
    #[error("{what} out of order or out of range")]
    Value {
        /// What was read.
        what: &'static str,
    },
    /// There are bytes after the end.
    #[error("{bytes} bytes behind the end")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

impl Copies {
    /// The state as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![FORM];
        let mut pen = Pen::of(self, &mut bytes);
        pen.agents();
        pen.transfers();
        bytes
    }

    /// Restores the state that was written, under the limits that were in force.
    ///
    /// # Errors
    ///
    /// [`RestoreFault`] says what is wrong with the bytes.
    pub fn restore(
        bytes: &[u8],
        limits: Arc<CopyLimits>,
        key: NameKey,
    ) -> Result<Self, RestoreFault> {
        let mut reader = SnapshotReader {
            bytes,
            at: 0,
            copies: Self::new(limits, key),
            domains: Vec::new(),
            sets: Vec::new(),
        };
        let form = *reader.take(1, "form")?.first().unwrap_or(&0);
        if form != FORM {
            return Err(RestoreFault::Form { found: form });
        }
        reader.copies.now = reader.instant("now")?;
        reader.names()?;
        reader.agents()?;
        reader.transfers()?;
        let left = bytes.len() - reader.at;
        if left != 0 {
            return Err(RestoreFault::Trailing { bytes: left });
        }
        reader.done()
    }
}

/// Writes a snapshot; knows the numbers that domains and sets have in it.
struct Pen<'a> {
    copies: &'a Copies,
    bytes: &'a mut Vec<u8>,
    /// By slot.
    domains: BTreeMap<u32, u64>,
    sets: BTreeMap<u32, u64>,
}

impl<'a> Pen<'a> {
    fn of(copies: &'a Copies, bytes: &'a mut Vec<u8>) -> Self {
        let mut pen = Self {
            copies,
            bytes,
            domains: BTreeMap::new(),
            sets: BTreeMap::new(),
        };
        pen.number(copies.now.as_micros());
        let domains = copies.domains.by_name();
        pen.number(domains.len() as u64);
        for (number, (name, slot)) in (0..).zip(domains) {
            pen.text(name);
            pen.domains.insert(slot, number);
        }
        pen.sets_in_use();
        pen
    }

    fn sets_in_use(&mut self) {
        let copies = self.copies;
        let mut sets: BTreeMap<Vec<&str>, u32> = BTreeMap::new();
        for set in copies.groups.sets_in_use() {
            let names = copies.groups.of_set(set).map(|(_, group)| &*group.name);
            sets.insert(names.collect(), set);
        }
        let mut names: Vec<&str> = sets.keys().flatten().copied().collect();
        names.sort_unstable();
        names.dedup();
        self.number(names.len() as u64);
        for name in &names {
            self.text(name);
        }
        self.number(sets.len() as u64);
        for (number, (of, set)) in (0..).zip(&sets) {
            self.number(of.len() as u64);
            for name in of {
                let at = names.binary_search(name).unwrap_or(0);
                self.number(at as u64);
            }
            self.sets.insert(*set, number);
        }
    }

    fn agents(&mut self) {
        let copies = self.copies;
        // An epoch that holds nothing is equal to an unknown one.
        let known: Vec<_> = copies
            .agents
            .in_order()
            .map(|(ix, agent)| (agent, copies.slots_of(ix)))
            .filter(|(agent, slots)| agent.over || !agent.ended.is_empty() || !slots.is_empty())
            .collect();
        self.number(known.len() as u64);
        for (agent, slots) in known {
            self.text(&agent.name);
            self.bytes.extend_from_slice(&agent.epoch.to_be_bytes());
            self.bytes.push(u8::from(agent.over));
            self.number(agent.ended.len() as u64);
            for number in &agent.ended {
                self.number(*number);
            }
            let mut holds: Vec<HoldFacts> =
                slots.iter().map(|slot| copies.holds.facts(*slot)).collect();
            holds.sort_unstable_by_key(|facts| facts.id.number);
            self.number(holds.len() as u64);
            for facts in holds {
                self.number(facts.id.number);
                self.place(facts.domain, facts.set, facts.copies, facts.start);
                self.bytes.push(facts.flags.bits());
            }
            let excess = agent.excess.in_order();
            self.number(excess.len() as u64);
            for (number, excess) in excess {
                self.number(number);
                self.number(u64::from(excess.copies));
                self.number(excess.by.number());
            }
        }
    }

    fn transfers(&mut self) {
        self.number(u64::from(self.copies.staging.len()));
        for (id, staged) in self.copies.staging.in_order() {
            self.bytes.extend_from_slice(&id.0.to_be_bytes());
            self.place(staged.domain, staged.set, staged.copies, staged.start);
            self.number(staged.end.as_micros());
            self.bytes.push(u8::from(staged.strict));
        }
    }

    fn place(&mut self, domain: u32, set: u32, copies: u32, start: Timestamp) {
        let domain = self.domains.get(&domain).copied().unwrap_or_default();
        let set = self.sets.get(&set).copied().unwrap_or_default();
        self.number(domain);
        self.number(set);
        self.number(u64::from(copies));
        self.number(start.as_micros());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, value: u64) {
        varint::write(self.bytes, value);
    }
}

/// Reads a snapshot into a state that was empty.
struct SnapshotReader<'a> {
    bytes: &'a [u8],
    at: usize,
    copies: Copies,
    domains: Vec<u32>,
    sets: Vec<u32>,
}

impl<'a> SnapshotReader<'a> {
    fn names(&mut self) -> Result<(), RestoreFault> {
        let mut before = None;
        for _ in 0..self.number("domains")? {
            let name = self.text("domain")?;
            if before.is_some_and(|before| name <= before) || admit_domain(name) != name {
                return Err(RestoreFault::Value { what: "domain" });
            }
            before = Some(name);
            let asked = self.copies.ask(name);
            let slot = self.copies.come_in(&asked);
            // Referred to until everything is read, so that a domain without another reference is
            // detected.
            self.copies.domains.refer(slot);
            self.domains.push(slot);
        }
        let mut groups: Vec<&str> = Vec::new();
        for _ in 0..self.number("groups")? {
            let name = self.text("group")?;
            if groups.last().is_some_and(|before| name <= *before) {
                return Err(RestoreFault::Value { what: "group" });
            }
            groups.push(name);
        }
        let mut before: Option<Vec<&str>> = None;
        for _ in 0..self.number("sets")? {
            let mut names: Vec<&str> = Vec::new();
            for _ in 0..self.number("set")? {
                let number = self.number("group of a set")?;
                let name = usize::try_from(number).ok().and_then(|at| groups.get(at));
                let name = *name.ok_or(RestoreFault::Value {
                    what: "group of a set",
                })?;
                if names.last().is_some_and(|before| name <= *before) {
                    return Err(RestoreFault::Value { what: "set" });
                }
                names.push(name);
            }
            if before.as_ref().is_some_and(|before| names <= *before) {
                return Err(RestoreFault::Value { what: "set" });
            }
            self.sets
                .push(self.copies.groups.set_of_names(names.iter().copied()));
            before = Some(names);
        }
        Ok(())
    }

    fn agents(&mut self) -> Result<(), RestoreFault> {
        let mut before: Option<(&str, u128)> = None;
        for _ in 0..self.number("agents")? {
            let key = (self.text("agent")?, self.wide("epoch")?);
            if before.is_some_and(|before| key <= before) {
                return Err(RestoreFault::Value { what: "agent" });
            }
            before = Some(key);
            let agent = self.copies.agents.intern(key.0, key.1);
            if self.flag("epoch over")? {
                self.copies
                    .epoch_over(agent, &mut super::effects::Effects::new());
            }
            self.ended(agent)?;
            let mut last = None;
            for _ in 0..self.number("holds")? {
                last = Some(self.hold(agent, last)?);
            }
            self.excess(agent)?;
        }
        Ok(())
    }

    fn ended(&mut self, agent: AgentIx) -> Result<(), RestoreFault> {
        let count = self.number("ended ids")?;
        if (ENDED_IDS_MAX as u64) < count {
            return Err(RestoreFault::Value { what: "ended ids" });
        }
        let mut before = None;
        for _ in 0..count {
            let number = self.number("ended id")?;
            if before.is_some_and(|before| number <= before) {
                return Err(RestoreFault::Value { what: "ended id" });
            }
            before = Some(number);
            self.copies.stays_ended(HoldId { agent, number });
        }
        Ok(())
    }

    fn hold(&mut self, agent: AgentIx, last: Option<u64>) -> Result<u64, RestoreFault> {
        let number = self.number("hold")?;
        let ended = self
            .copies
            .acting(agent)
            .map(|of| of.ended.contains(&number));
        if last.is_some_and(|last| number <= last) || ended != Ok(false) {
            return Err(RestoreFault::Value { what: "hold" });
        }
        let (domain, set, copies, start) = self.place()?;
        let flags = *self.take(1, "flags")?.first().unwrap_or(&0);
        let flags = Flags::from_bits(flags).ok_or(RestoreFault::Value { what: "flags" })?;
        self.copies.begin(&HoldFacts {
            id: HoldId { agent, number },
            domain,
            set,
            copies,
            start,
            flags,
        });
        Ok(number)
    }

    fn excess(&mut self, agent: AgentIx) -> Result<(), RestoreFault> {
        let mut before = None;
        for _ in 0..self.number("excesses")? {
            let number = self.number("hold with excess")?;
            let copies = self.number("excess")?;
            let by = self.number("scope of an excess")?;
            let id = HoldId { agent, number };
            let live = self.copies.live(id).ok().map(|(_, facts)| facts);
            let live = live.filter(|_| before.is_none_or(|before| before < number));
            let excess = live.and_then(|facts| {
                let groups = self.copies.groups.of_set(facts.set).count();
                let copies = u32::try_from(copies).ok();
                Some(Excess {
                    copies: copies.filter(|copies| (1..=facts.copies).contains(copies))?,
                    by: FullLimit::from_number(by, groups)?,
                })
            });
            let excess = excess.ok_or(RestoreFault::Value { what: "excess" })?;
            self.copies.set_excess(id, Some(excess));
            before = Some(number);
        }
        Ok(())
    }

    fn transfers(&mut self) -> Result<(), RestoreFault> {
        let mut before = None;
        for _ in 0..self.number("transfers")? {
            let id = TransferId(self.wide("transfer")?);
            if before.is_some_and(|before| id <= before) {
                return Err(RestoreFault::Value { what: "transfer" });
            }
            before = Some(id);
            let (domain, set, copies, start) = self.place()?;
            let staged = Staged {
                domain,
                set,
                copies,
                start,
                end: self.instant("end of a transfer")?,
                strict: self.flag("strict")?,
            };
            self.copies.stage(id, staged);
        }
        Ok(())
    }

    fn place(&mut self) -> Result<(u32, u32, u32, Timestamp), RestoreFault> {
        let domain = self.number("domain of a hold")?;
        let set = self.number("set of a hold")?;
        let copies = self.number("copies")?;
        let start = self.instant("start")?;
        let at = |list: &[u32], number: u64| {
            let number = usize::try_from(number).ok()?;
            list.get(number).copied()
        };
        let copies = u32::try_from(copies).ok().filter(|copies| 0 < *copies);
        match (at(&self.domains, domain), at(&self.sets, set), copies) {
            (Some(domain), Some(set), Some(copies)) => Ok((domain, set, copies, start)),
            _ => Err(RestoreFault::Value { what: "hold" }),
        }
    }

    /// Ends the reading: domains and sets without a reference must not have been listed.
    fn done(mut self) -> Result<Copies, RestoreFault> {
        let before = self.copies.domains.len();
        for slot in std::mem::take(&mut self.domains) {
            self.copies.domains.unrefer(slot);
        }
        if self.copies.domains.len() != before {
            return Err(RestoreFault::Value { what: "domain" });
        }
        let listed = self.sets.len();
        if self.copies.groups.sets_in_use().count() != listed {
            return Err(RestoreFault::Value { what: "set" });
        }
        Ok(self.copies)
    }

    fn text(&mut self, what: &'static str) -> Result<&'a str, RestoreFault> {
        let len = self.number(what)?;
        let len = usize::try_from(len)
            .ok()
            .filter(|len| (1..=NAME_BYTES_MAX).contains(len));
        let bytes = self.take(len.ok_or(RestoreFault::Value { what })?, what)?;
        std::str::from_utf8(bytes).map_err(|_| RestoreFault::Value { what })
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, RestoreFault> {
        match self.take(1, what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(RestoreFault::Value { what }),
        }
    }

    fn instant(&mut self, what: &'static str) -> Result<Timestamp, RestoreFault> {
        self.number(what).map(Timestamp::from_micros)
    }

    fn number(&mut self, what: &'static str) -> Result<u64, RestoreFault> {
        varint::read(self.bytes, &mut self.at).ok_or(RestoreFault::Truncated { what })
    }

    fn wide(&mut self, what: &'static str) -> Result<u128, RestoreFault> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(self.take(16, what)?);
        Ok(u128::from_be_bytes(bytes))
    }

    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], RestoreFault> {
        let end = self.at.checked_add(len);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or(RestoreFault::Truncated { what })?;
        self.at += len;
        Ok(found)
    }
}
