//! Test vectors of copies: cases in JSON, played through the rules.
//!
//! ```text
//! {"mode":"reserve","limits":{"domain":10},"ops":[{"op":"reserve","t":0,"hold":"h1","agent":"A",
//!  "domain":"a","copies":8,"min":1}]}
//!     -> [{"granted":8,"counts":{"global":8,"domains":{"a":8},"groups":{},"full":[]}}]
//! ```
//!
//! Each op is preceded by a tick at its `t`. As in a log, a `t` below the greatest so far does not move time.
//! Expectations are ignored, and so are other fields of a case and its ops; limits have no other fields than
//! these. Knows nothing of files. What stays true: a result has the field names that an expectation has.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tollgate_shared::time::{Span, Timestamp};

use super::fault::CaseFault;
use tollgate_engine::copies::{
    Copies, CopiesRequest, CopyLimits, Count, Effects, HoldId, NameKey, OpRefused, TransferId,
};

/// Plays one case. Returns the result of each of its ops.
///
/// # Errors
///
/// [`CaseFault`] describes what is wrong with the case.
pub fn run(case: &Value) -> Result<Vec<Value>, CaseFault> {
    let whole = WholeCase::deserialize(case)?;
    let limits: CaseLimits = part(&whole.limits, || "limits".to_owned())?;
    let mut ops: Vec<TimedOp> = Vec::with_capacity(whole.ops.len());
    for (index, op) in whole.ops.iter().enumerate() {
        let op: TimedOp = part(op, || format!("ops[{index}]"))?;
        op.op.check_mode(whole.mode, index)?;
        ops.push(op);
    }
    let mut played = PlayedCase::under(&limits);
    ops.iter().map(|op| played.op(op)).collect()
}

/// Deserialises a part of a case; the fault names its path.
fn part<'a, T: Deserialize<'a>>(
    value: &'a Value,
    place: impl FnOnce() -> String,
) -> Result<T, CaseFault> {
    T::deserialize(value).map_err(|fault| CaseFault::Part {
        place: place(),
        fault,
    })
}

/// A case whose parts are not deserialised yet.
#[derive(Deserialize)]
struct WholeCase {
    mode: Option<Taking>,
    limits: Value,
    ops: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseLimits {
    domain: u64,
    global: Option<u64>,
    max_age: Option<u64>,
    #[serde(default)]
    domains: BTreeMap<String, u64>,
    #[serde(default)]
    groups: BTreeMap<String, CaseGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseGroup {
    members: Vec<String>,
    limit: u64,
}

#[derive(Deserialize)]
struct TimedOp {
    t: u64,
    #[serde(flatten)]
    op: Op,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Reserve {
        hold: String,
        agent: String,
        domain: String,
        copies: u32,
        min: u32,
    },
    Hold {
        hold: String,
        agent: String,
        domain: String,
        copies: u32,
    },
    Release {
        hold: String,
        agent: Option<String>,
        copies: u32,
    },
    Transfer {
        hold: String,
        agent: Option<String>,
        copies: u32,
        ttl: u64,
        transfer: String,
    },
    Seize {
        transfer: String,
        hold: String,
        agent: String,
    },
    AgentGone {
        agent: String,
    },
    Limits {
        limits: CaseLimits,
    },
}

#[derive(Serialize)]
struct CaseCounts<'a> {
    global: u64,
    domains: BTreeMap<&'a str, u64>,
    groups: BTreeMap<&'a str, u64>,
    full: Vec<String>,
}

/// How all ops of a case take copies.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Taking {
    Reserve,
    Hold,
}

impl Taking {
    /// The mode, and the op that belongs to it.
    const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Hold => "hold",
        }
    }
}

impl Op {
    fn check_mode(&self, mode: Option<Taking>, index: usize) -> Result<(), CaseFault> {
        let taking = match self {
            Self::Reserve { .. } => Taking::Reserve,
            Self::Hold { .. } => Taking::Hold,
            _ => return Ok(()),
        };
        match mode {
            Some(mode) if mode != taking => Err(CaseFault::Op {
                index,
                found: taking.name(),
                expected: mode.name(),
            }),
            _ => Ok(()),
        }
    }
}

impl CaseLimits {
    fn checked(&self) -> Arc<CopyLimits> {
        let mut builder = CopyLimits::builder(self.domain)
            .global(self.global)
            .max_age(self.max_age.map(Span::from_micros));
        for (domain, limit) in &self.domains {
            builder = builder.domain(domain, *limit);
        }
        for (name, group) in &self.groups {
            let members = group.members.iter().map(String::as_str);
            builder = builder.group(name, group.limit, members);
        }
        Arc::new(builder.build())
    }
}

/// A case that is being played.
struct PlayedCase<'a> {
    copies: Copies,
    out: Effects,
    /// Numbers for the names that a case gives to holds and transfers.
    names: BTreeMap<&'a str, u64>,
    /// The agent that last began each hold: releases need not name it.
    holders: BTreeMap<&'a str, &'a str>,
}

impl<'a> PlayedCase<'a> {
    fn under(limits: &CaseLimits) -> Self {
        Self {
            // The names come from a file that the user chose, so the hash needs no secret key.
            copies: Copies::new(limits.checked(), NameKey { k0: 0, k1: 0 }),
            out: Effects::new(),
            names: BTreeMap::new(),
            holders: BTreeMap::new(),
        }
    }

    fn op(&mut self, timed: &'a TimedOp) -> Result<Value, CaseFault> {
        let at = Timestamp::from_micros(timed.t);
        self.out.clear();
        self.copies.tick(at, &mut self.out);
        let mut result = self.apply(at, &timed.op);
        result.insert("counts".to_owned(), serde_json::to_value(self.counts())?);
        Ok(Value::Object(result))
    }

    fn apply(&mut self, at: Timestamp, op: &'a Op) -> Map<String, Value> {
        match op {
            Op::Reserve {
                hold,
                agent,
                domain,
                copies,
                min,
            } => self.reserve(at, hold, agent, (domain, *copies, *min)),
            Op::Hold {
                hold,
                agent,
                domain,
                copies,
            } => {
                let ask = self.ask(at, hold, agent, (domain, *copies));
                let taken = self.copies.hold(ask, &mut self.out);
                if taken.is_ok() {
                    self.holders.insert(hold, agent);
                }
                answer(taken, |taken| vec![("excess", taken.excess.into())])
            }
            Op::Release {
                hold,
                agent,
                copies,
            } => {
                let id = self.held(hold, agent.as_deref());
                let done = self.copies.release(id, *copies, &mut self.out);
                answer(done, |()| Vec::new())
            }
            Op::Transfer {
                hold,
                agent,
                copies,
                ttl,
                transfer,
            } => {
                let id = self.held(hold, agent.as_deref());
                let to = self.transfer_id(transfer);
                let ttl = Span::from_micros(*ttl);
                let done = self
                    .copies
                    .transfer(id, *copies, to, at, ttl, &mut self.out);
                answer(done, |()| Vec::new())
            }
            Op::Seize {
                transfer,
                hold,
                agent,
            } => self.seize(transfer, hold, agent),
            Op::AgentGone { agent } => {
                let agent = self.copies.agent(agent, EPOCH);
                let released = self.copies.agent_gone(agent, &mut self.out);
                answer(Ok(released), |released| vec![("released", released.into())])
            }
            Op::Limits { limits } => {
                self.copies.new_limits(limits.checked());
                Map::new()
            }
        }
    }

    fn reserve(
        &mut self,
        at: Timestamp,
        hold: &'a str,
        agent: &'a str,
        (domain, copies, min): (&'a str, u32, u32),
    ) -> Map<String, Value> {
        let ask = self.ask(at, hold, agent, (domain, copies));
        let granted = match self.copies.reserve(ask, min, &mut self.out) {
            // Such a min exceeds the copies, so nothing can be granted.
            Err(OpRefused::MinAboveCopies { .. }) => Ok(0),
            granted => granted.map(|grant| grant.granted),
        };
        // An agent that was granted nothing holds nothing: the name keeps its present holder.
        if granted.is_ok_and(|granted| 0 < granted) {
            self.holders.insert(hold, agent);
        }
        answer(granted, |granted| vec![("granted", granted.into())])
    }

    fn seize(&mut self, transfer: &'a str, hold: &'a str, agent: &'a str) -> Map<String, Value> {
        let from = self.transfer_id(transfer);
        let id = self.hold_id(hold, agent);
        let seized = self.copies.seize(from, id, &mut self.out);
        if seized.is_ok() {
            self.holders.insert(hold, agent);
        }
        let view = self.copies.hold_of(id);
        answer(seized, |seized| {
            let domain = view.as_ref().map(|view| view.domain);
            let groups = view.as_ref().map(|view| view.groups.clone());
            vec![
                ("seized", seized.into()),
                ("domain", domain.into()),
                ("groups", groups.into()),
            ]
        })
    }

    fn ask(
        &mut self,
        at: Timestamp,
        hold: &'a str,
        agent: &'a str,
        (domain, copies): (&'a str, u32),
    ) -> CopiesRequest<'a> {
        CopiesRequest {
            id: self.hold_id(hold, agent),
            at,
            domain,
            copies,
        }
    }

    /// A hold that a case names: of the agent that the op names too, or that last began it.
    fn held(&mut self, hold: &'a str, agent: Option<&'a str>) -> HoldId {
        let agent = agent.or_else(|| self.holders.get(hold).copied());
        self.hold_id(hold, agent.unwrap_or_default())
    }

    fn hold_id(&mut self, hold: &'a str, agent: &str) -> HoldId {
        HoldId {
            agent: self.copies.agent(agent, EPOCH),
            number: self.number(hold),
        }
    }

    fn transfer_id(&mut self, name: &'a str) -> TransferId {
        TransferId(self.number(name).into())
    }

    fn number(&mut self, name: &'a str) -> u64 {
        let next = self.names.len() as u64;
        *self.names.entry(name).or_insert(next)
    }

    fn counts(&self) -> CaseCounts<'_> {
        let domains = self.copies.counts_of_domains();
        let groups: Vec<Count<'_>> = self.copies.counts_of_groups().collect();
        let total = self.copies.total();
        let full_of = |kind: &'static str, counts: &[Count<'_>]| -> Vec<String> {
            let full = counts.iter().filter(|count| count.full());
            full.map(|count| format!("{kind}:{}", count.name)).collect()
        };
        let mut full = full_of("domain", &domains);
        full.extend(full_of("group", &groups));
        full.extend(total.full().then(|| "global".to_owned()));
        let held = groups.iter().filter(|count| 0 < count.copies);
        CaseCounts {
            global: total.copies,
            domains: domains.iter().map(|of| (of.name, of.copies)).collect(),
            groups: held.map(|of| (of.name, of.copies)).collect(),
            full,
        }
    }
}

/// Cases have no epochs.
const EPOCH: u128 = 1;

fn answer<T>(
    result: Result<T, OpRefused>,
    fields: impl FnOnce(T) -> Vec<(&'static str, Value)>,
) -> Map<String, Value> {
    let fields = match result {
        Ok(done) => fields(done),
        Err(refused) => vec![("error", name_of(refused).into())],
    };
    let named = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    named.collect()
}

fn name_of(refused: OpRefused) -> &'static str {
    match refused {
        OpRefused::UnknownHold => "unknown_hold",
        OpRefused::TooManyCopies { .. } => "too_many_copies",
        OpRefused::UnknownTransfer => "unknown_transfer",
        OpRefused::TransferExists => "transfer_exists",
        OpRefused::HoldExists => "hold_exists",
        OpRefused::HoldEnded => "hold_ended",
        OpRefused::EpochOver => "epoch_over",
        OpRefused::NoCopies => "no_copies",
        OpRefused::MinAboveCopies { .. } => "min_above_copies",
        OpRefused::AtCapacity => "at_capacity",
    }
}
