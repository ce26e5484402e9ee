//! Applies one operation to the engine, to a copy of the engine that was written and restored, and to the model,
//! and compares everything observable.

use std::sync::Arc;

use tollgate_engine::copies::{
    Ahead, Copies, CopiesRequest, CopyLimits, DigestOutcome, Effects, HoldId, HoldState, List,
    Listed, NameKey, TransferId,
};
use tollgate_model::copies::{HoldLimits, HoldRefusal, HoldsModel, ListedHold, Process};
use tollgate_shared::holdings::Holdings;
use tollgate_shared::time::{Span, Timestamp};

use crate::compare::scopes;
use crate::statements::{Answer, answered, kept, modelled, name_of, statements_of, verdict_on};

/// One name has nine bytes, so that names lie in cells of two sizes.
pub const DOMAINS: [&str; 5] = ["a", "b", "c", "dddddddd", "eeeeeeeee"];
/// Two epochs of one name, and another agent.
pub const AGENTS: [(&str, u128); 3] = [("x", 1), ("x", 2), ("y", 1)];
/// Three tenths of a second: holds start in several half seconds.
pub const STEP: u64 = 300_000;
const KEY: NameKey = NameKey { k0: 7, k1: 9 };

type HoldOf = (usize, u64);

#[derive(Clone, Debug)]
pub enum Op {
    Reserve {
        hold: HoldOf,
        domain: String,
        min: u32,
        copies: u32,
    },
    Hold {
        hold: HoldOf,
        domain: String,
        copies: u32,
    },
    Release {
        hold: HoldOf,
        copies: u32,
    },
    Transfer {
        hold: HoldOf,
        copies: u32,
        id: u128,
        ttl: u64,
    },
    Seize {
        hold: HoldOf,
        id: u128,
    },
    EndHold {
        hold: HoldOf,
    },
    EndTransfer {
        id: u128,
    },
    FullHeartbeat {
        agent: usize,
        listed: Vec<RandomEntry>,
        awaiting: Vec<u64>,
        /// The first and the last number that the list covers.
        numbers: (u64, u64),
    },
    /// A heartbeat of the agent's holds, live and lost, without the numbers in a mask, and some with fewer copies.
    EchoHeartbeat {
        agent: usize,
        without: u8,
        less: u32,
    },
    DigestOutcome {
        agent: usize,
        right: bool,
        awaiting: Vec<u64>,
    },
    Gone {
        agent: usize,
    },
    Over {
        agent: usize,
    },
    Forget {
        agent: usize,
    },
    Tick {
        steps: u64,
        back: bool,
    },
    Limits {
        limits: HoldLimits,
    },
}

type RandomEntry = (u64, String, u32, u64, bool, Option<u128>);

pub struct Driver {
    pub engine: Copies,
    pub model: HoldsModel,
    clock: u64,
}

pub type Check = Result<(), String>;

fn checked(limits: &HoldLimits) -> Arc<CopyLimits> {
    let mut builder = CopyLimits::builder(limits.domain)
        .global(limits.global)
        .max_age(limits.max_age_us.map(Span::from_micros))
        .holds_max(limits.kept_max as u32);
    for (domain, limit) in &limits.domains {
        builder = builder.domain(domain, *limit);
    }
    for (name, (limit, members)) in &limits.groups {
        builder = builder.group(name, *limit, members.iter().map(String::as_str));
    }
    Arc::new(builder.build())
}

pub fn agent_of(agent: usize) -> Process {
    (AGENTS[agent].0.to_owned(), AGENTS[agent].1)
}

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, engine: T, model: T) -> Check {
    match engine == model {
        true => Ok(()),
        false => Err(format!("{what}: engine {engine:?}, model {model:?}")),
    }
}

impl Driver {
    pub fn under(limits: HoldLimits) -> Self {
        Self {
            engine: Copies::new(checked(&limits), KEY),
            model: HoldsModel::new(limits),
            clock: 0,
        }
    }

    pub fn step(&mut self, op: &Op) -> Check {
        if let Op::Tick { steps, back } = op {
            let span = steps * STEP + steps % 2;
            // Operations may be stamped before the last tick, and ticks too.
            self.clock = match back {
                true => self.clock.saturating_sub(span),
                false => self.clock + span,
            };
        }
        let op = self.spelt(op);
        let before = (self.engine.snapshot(), self.engine.digest());
        let frozen = self.engine.freeze();
        let scopes_before = scopes(&self.model);
        let mut twin = Copies::restore(&before.0, checked(&self.model.limits), KEY)
            .map_err(|fault| format!("restore: {fault}"))?;
        same("digest of a restored state", twin.digest(), before.1)?;
        same(
            "bytes of a restored state",
            twin.snapshot(),
            before.0.clone(),
        )?;

        self.read_ahead();
        let modelled = self.apply_to_model(&op);
        let (mut out, mut twin_out) = (Effects::new(), Effects::new());
        let answer = self.apply(&op, &mut self.engine.clone(), &mut Effects::new());
        same("answer", &answer, &modelled)?;
        let mut engine = self.engine.clone();
        same(
            "answer again",
            self.apply(&op, &mut engine, &mut out),
            answer,
        )?;
        let restored = self.apply(&op, &mut twin, &mut twin_out);
        same("answer of a restored state", &restored, &modelled)?;
        same(
            "what is said",
            statements_of(&twin_out),
            statements_of(&out),
        )?;
        same("digest after a restore", twin.digest(), engine.digest())?;
        same("bytes after a restore", twin.snapshot(), engine.snapshot())?;
        if matches!(modelled, Answer::Refused(_)) {
            let after = (engine.snapshot(), engine.digest());
            same("state after a refusal", &after, &before)?;
        }
        self.engine = engine;
        // A frozen state that shares memory with the live engine must not change.
        same("bytes of a frozen state", frozen.snapshot(), before.0)?;
        self.compare()?;
        self.check_statements(&op, &modelled, &out, &scopes_before)
    }

    /// The engine's look-ahead must accept any name, resource and hold, whether known or not.
    fn read_ahead(&self) {
        let agents = self.engine.known_agents();
        let holds = agents.flat_map(|(agent, _, _, _)| {
            (0..6).map(move |number| Ahead::Hold(HoldId { agent, number }))
        });
        let all: Vec<Ahead<'_>> = holds.chain(DOMAINS.map(Ahead::Domain)).collect();
        self.engine.read_ahead(&all);
    }

    /// Turns a heartbeat that echoes the agent's holds into a full one.
    fn spelt(&self, op: &Op) -> Op {
        let Op::EchoHeartbeat {
            agent,
            without,
            less,
        } = op
        else {
            return op.clone();
        };
        let holds = self
            .model
            .holds
            .iter()
            .filter(|hold| hold.process == agent_of(*agent));
        let listed = holds
            .filter(|hold| without >> hold.number & 1 == 0)
            .map(|hold| {
                let copies = (hold.copies as u32).saturating_sub(*less).max(1);
                (
                    hold.number,
                    hold.domain.clone(),
                    copies,
                    0,
                    hold.strict,
                    None,
                )
            });
        Op::FullHeartbeat {
            agent: *agent,
            listed: listed.collect(),
            awaiting: Vec::new(),
            numbers: (0, u64::MAX),
        }
    }

    fn entries<'a>(&self, listed: &'a [RandomEntry]) -> Vec<ListedHold<'a>> {
        let entries = listed
            .iter()
            .map(|(number, domain, copies, ago, strict, seized)| ListedHold {
                number: *number,
                domain,
                copies: u64::from(*copies),
                // Some start in the future.
                start_us: (self.clock + 2 * STEP).saturating_sub(ago * STEP),
                strict: *strict,
                seized: *seized,
            });
        entries.collect()
    }

    fn apply_to_model(&mut self, op: &Op) -> Answer {
        let at = self.clock;
        let entries = match op {
            Op::FullHeartbeat { listed, .. } => self.entries(listed),
            _ => Vec::new(),
        };
        let model = &mut self.model;
        model.asked.clear();
        match op {
            Op::Reserve {
                hold,
                domain,
                min,
                copies,
            } => {
                let (min, copies) = (u64::from(*min), u64::from(*copies));
                let hold = (&agent_of(hold.0), hold.1);
                modelled(model.reserve(hold, domain, (min, copies), at))
            }
            Op::Hold {
                hold,
                domain,
                copies,
            } => modelled(model.hold((&agent_of(hold.0), hold.1), domain, (*copies).into(), at)),
            Op::Release { hold, copies } => {
                modelled(model.release((&agent_of(hold.0), hold.1), (*copies).into()))
            }
            Op::Transfer {
                hold,
                copies,
                id,
                ttl,
            } => {
                let hold = (&agent_of(hold.0), hold.1);
                modelled(model.transfer(hold, (*copies).into(), *id, at + ttl * STEP))
            }
            Op::Seize { hold, id } => modelled(model.seize((&agent_of(hold.0), hold.1), *id)),
            Op::EndHold { hold } => modelled(model.end_hold((&agent_of(hold.0), hold.1))),
            Op::EndTransfer { id } => modelled(model.end_transfer(*id)),
            Op::FullHeartbeat {
                agent,
                awaiting,
                numbers,
                ..
            } => modelled(model.full_list(&agent_of(*agent), &entries, awaiting, *numbers, at)),
            Op::DigestOutcome {
                agent, right: true, ..
            } => modelled(model.equal_digest(&agent_of(*agent))),
            Op::DigestOutcome {
                agent,
                right: false,
                ..
            } => match model.over.contains(&agent_of(*agent)) {
                true => Answer::Refused(HoldRefusal::EpochOver),
                false => Answer::Differs,
            },
            Op::Gone { agent } => model.gone(&agent_of(*agent)).into(),
            Op::Over { agent } => model.over(&agent_of(*agent)).into(),
            Op::Forget { agent } => model.forget(&agent_of(*agent)).into(),
            Op::Tick { .. } => Answer::Ended(model.tick(at)),
            Op::Limits { limits } => {
                model.limits = limits.clone();
                Answer::Done
            }
            Op::EchoHeartbeat { .. } => unreachable!("spelt out before"),
        }
    }

    /// The engine's answer, in the model's types. The model has applied the operation already.
    fn apply(&self, op: &Op, engine: &mut Copies, out: &mut Effects) -> Answer {
        let at = Timestamp::from_micros(self.clock);
        let mut id = |hold: &HoldOf| HoldId {
            agent: engine.agent(AGENTS[hold.0].0, AGENTS[hold.0].1),
            number: hold.1,
        };
        match op {
            Op::Reserve {
                hold,
                domain,
                min,
                copies,
            } => {
                let ask = CopiesRequest {
                    id: id(hold),
                    at,
                    domain,
                    copies: *copies,
                };
                let grant = engine.reserve(ask, *min, out);
                answered(grant.map(|of| kept(engine, domain, (of.granted, of.by))))
            }
            Op::Hold {
                hold,
                domain,
                copies,
            } => {
                let ask = CopiesRequest {
                    id: id(hold),
                    at,
                    domain,
                    copies: *copies,
                };
                let taken = engine.hold(ask, out);
                answered(taken.map(|of| kept(engine, domain, (of.excess, of.by))))
            }
            Op::Release { hold, copies } => {
                let id = id(hold);
                answered(engine.release(id, *copies, out))
            }
            Op::Transfer {
                hold,
                copies,
                id: to,
                ttl,
            } => {
                let (id, ttl) = (id(hold), Span::from_micros(ttl * STEP));
                answered(engine.transfer(id, *copies, TransferId(*to), at, ttl, out))
            }
            Op::Seize { hold, id: from } => {
                let id = id(hold);
                answered(engine.seize(TransferId(*from), id, out).map(u64::from))
            }
            Op::EndHold { hold } => {
                let id = id(hold);
                answered(engine.end_hold(id, out).map(u64::from))
            }
            Op::EndTransfer { id } => {
                answered(engine.end_transfer(TransferId(*id), out).map(u64::from))
            }
            Op::FullHeartbeat {
                agent,
                listed,
                awaiting,
                numbers,
            } => {
                let agent = id(&(*agent, 0)).agent;
                let about = (listed.as_slice(), awaiting.as_slice(), *numbers);
                self.full_heartbeat(engine, agent, about, out)
            }
            Op::DigestOutcome {
                agent,
                right,
                awaiting,
            } => {
                let held = self.held_before(engine, *agent, awaiting);
                let holdings = match right {
                    true => held,
                    false => held.with(99, 1),
                };
                let agent = engine.agent(AGENTS[*agent].0, AGENTS[*agent].1);
                match engine.digest_heartbeat(agent, holdings, awaiting, out) {
                    Ok(DigestOutcome::Differs) => Answer::Differs,
                    found => answered(found.map(|_| ())),
                }
            }
            Op::Gone { agent } => {
                let agent = id(&(*agent, 0)).agent;
                engine.agent_gone(agent, out).into()
            }
            Op::Over { agent } => {
                let agent = id(&(*agent, 0)).agent;
                engine.epoch_over(agent, out).into()
            }
            Op::Forget { agent } => {
                let agent = id(&(*agent, 0)).agent;
                engine.forget(agent, out).into()
            }
            Op::Tick { .. } => {
                engine.tick(at, out);
                let ended = out.ended().iter().map(|ended| {
                    let process = name_of(engine, ended.hold);
                    (process, ended.hold.number, u64::from(ended.copies))
                });
                Answer::Ended(ended.collect())
            }
            Op::Limits { limits } => {
                engine.new_limits(checked(limits));
                Answer::Done
            }
            Op::EchoHeartbeat { .. } => unreachable!("spelt out before"),
        }
    }

    fn full_heartbeat(
        &self,
        engine: &mut Copies,
        agent: tollgate_engine::copies::AgentIx,
        (listed, awaiting, numbers): (&[RandomEntry], &[u64], (u64, u64)),
        out: &mut Effects,
    ) -> Answer {
        let entries = self.entries(listed);
        let listed: Vec<Listed<'_>> = entries
            .iter()
            .map(|entry| Listed {
                number: entry.number,
                domain: entry.domain,
                copies: entry.copies as u32,
                start: Timestamp::from_micros(entry.start_us),
                strict: entry.strict,
                seized: entry.seized.map(TransferId),
            })
            .collect();
        let at = Timestamp::from_micros(self.clock);
        let list = List {
            numbers: numbers.0..=numbers.1,
            listed: &listed,
            awaiting,
        };
        let done = engine.full_heartbeat(agent, at, &list, out);
        let verdicts = out.verdicts().iter();
        let verdicts = verdicts.map(|(id, of)| (id.number, verdict_on(engine, *id, of)));
        answered(done.map(|()| verdicts.collect::<Vec<_>>()))
    }

    /// The holds that an agent would list, made from the engine's list before the heartbeat.
    fn held_before(&self, engine: &Copies, agent: usize, awaiting: &[u64]) -> Holdings {
        let (name, epoch) = AGENTS[agent];
        let of = engine.oldest_first().filter(|view| {
            view.agent == name && view.epoch == epoch && view.state == HoldState::Live
        });
        of.filter(|view| !awaiting.contains(&view.id.number))
            .fold(Holdings::default(), |sum, view| {
                sum.with(view.id.number, view.copies)
            })
    }
}
