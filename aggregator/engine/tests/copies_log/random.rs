//! Random fleets over a bad network: records are lost, duplicated and reordered, agents are killed,
//! cut off and restarted, the engine is restored, domains are banned; in the end no copies have leaked, and at any time
//! the statements show the denials in force.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::heartbeat::{HeartbeatHead, Holds, Listed};
use tollgate_shared::wire::holds::HoldAction;

use crate::play::{Play, RESOURCE, Sending, agent, listed, whole};

const NAMES: [&str; 3] = ["web", "job", "cron"];
const DOMAINS: [&str; 4] = ["acme", "globex", "new", "newer"];

const LIMITS: [&str; 6] = [
    "[copies.sandbox]\nlimit = 3\nglobal = 6\ngroups.young = { limit = 2, members = [\"new\", \"newer\"] }\n",
    "[copies.sandbox]\nlimit = 1\n",
    "[copies.sandbox]\nlimit = 8\nglobal = 4\ngroups.young = { limit = 0, members = [\"new\"] }\n",
    // They no longer name it, and what it takes is refused.
    "[namespace.\"*\"]\nallow_unconfigured = false\n",
    "[rate.sandbox]\nrate = \"9/s\"\n",
    "[namespace.sandbox]\nignore_configured = true\n[copies.sandbox]\nlimit = 2\n",
];

#[derive(Clone, Debug)]
enum Step {
    Take {
        agent: usize,
        domain: usize,
        copies: u32,
        strict: bool,
    },
    Release {
        agent: usize,
        which: usize,
    },
    Pass {
        from: usize,
        which: usize,
        to: usize,
    },
    Heartbeat {
        agent: usize,
        full: bool,
    },
    Kill {
        agent: usize,
        successor: bool,
    },
    Tick,
    Limits(usize),
    /// On the resource or everywhere; for as many milliseconds, or lifted.
    Ban {
        domain: usize,
        everywhere: bool,
        lasts: Option<u64>,
    },
    Restore,
}

/// The fate of a record on its way.
#[derive(Clone, Copy, Debug)]
enum Way {
    Arrives,
    Lost,
    Doubled,
    /// Arrives after the agent's next record.
    Late,
}

/// One process, as it sees itself.
struct Process {
    sending: Sending,
    /// The holds that it uses, by number: domain, copies, start, strict, seized from.
    uses: BTreeMap<u64, (usize, u32, u64, bool, Option<u128>)>,
    /// Strict reserves whose verdict it awaits.
    awaits: BTreeMap<u64, usize>,
    number: u64,
    late: Vec<Vec<u8>>,
}

struct Fleet {
    play: Play,
    processes: Vec<Process>,
    epochs: u128,
    transfers: u128,
}

fn process(name: &'static str, epoch: u128) -> Process {
    Process {
        sending: agent(name, epoch),
        uses: BTreeMap::new(),
        awaits: BTreeMap::new(),
        number: 0,
        late: Vec::new(),
    }
}

impl Fleet {
    fn new() -> Self {
        let processes = NAMES.iter().zip(1..);
        Self {
            play: Play::of(LIMITS[0]),
            processes: processes
                .map(|(name, epoch)| process(name, epoch))
                .collect(),
            epochs: 10,
            transfers: 0,
        }
    }

    fn step(&mut self, step: &Step, way: Way) {
        match *step {
            Step::Take {
                agent,
                domain,
                copies,
                strict,
            } => self.take((agent, domain), copies, strict, way),
            Step::Release { agent, which } => {
                let process = &mut self.processes[agent];
                let Some((number, copies)) = nth(process, which) else {
                    return;
                };
                process.uses.remove(&number);
                let act = HoldAction::Release { copies };
                let bytes = self.play.ops_bytes(&mut process.sending, &[(number, act)]);
                self.send(agent, bytes, way);
            }
            Step::Pass { from, which, to } => self.pass(from, which, to, way),
            Step::Heartbeat { agent, full } => {
                let bytes = self.heartbeat_of(agent, full);
                self.send(agent, bytes, way);
            }
            Step::Kill { agent, successor } => {
                let old = self.processes[agent].sending.epoch;
                self.epochs += 1;
                self.processes[agent] = process(NAMES[agent], self.epochs);
                if successor {
                    let head = HeartbeatHead {
                        replaces: Some(old),
                        ..HeartbeatHead::default()
                    };
                    let sending = &mut self.processes[agent].sending;
                    let bytes = self.play.heartbeat_bytes(sending, head, &[]);
                    self.send(agent, bytes, way);
                }
            }
            Step::Tick => {
                self.play.tick();
                self.take_verdicts();
            }
            Step::Limits(which) => drop(self.play.version(LIMITS[which])),
            Step::Ban {
                domain,
                everywhere,
                lasts,
            } => self.ban(domain, everywhere, lasts),
            Step::Restore => self.play.restart(),
        }
        self.play.check_statements();
    }

    fn take(&mut self, (agent, domain): (usize, usize), copies: u32, strict: bool, way: Way) {
        let now = self.play.now_ms;
        let process = &mut self.processes[agent];
        process.number += 1;
        let (number, name) = (process.number, DOMAINS[domain]);
        let act = if strict {
            process.awaits.insert(number, domain);
            HoldAction::Reserve {
                domain: name,
                copies,
                min: 1,
            }
        } else {
            process
                .uses
                .insert(number, (domain, copies, now, false, None));
            HoldAction::Hold {
                domain: name,
                copies,
            }
        };
        let bytes = self.play.ops_bytes(&mut process.sending, &[(number, act)]);
        self.send(agent, bytes, way);
    }

    fn ban(&mut self, domain: usize, everywhere: bool, lasts: Option<u64>) {
        let resource = (!everywhere).then(|| RESOURCE.into());
        let domain = DOMAINS[domain].into();
        self.play.amend(match lasts {
            Some(lasts) => Act::Ban {
                resource,
                domain,
                until: Timestamp::from_millis(self.play.now_ms + lasts),
            },
            None => Act::Unban { resource, domain },
        });
    }

    fn pass(&mut self, from: usize, which: usize, to: usize, way: Way) {
        let now = self.play.now_ms;
        let process = &mut self.processes[from];
        let Some((number, copies)) = nth(process, which) else {
            return;
        };
        let Some((domain, ..)) = process.uses.remove(&number) else {
            return;
        };
        self.transfers += 1;
        let id = TransferId(self.transfers);
        let act = HoldAction::Transfer {
            copies,
            to: id,
            ttl: Span::from_secs(3),
        };
        let bytes = self.play.ops_bytes(&mut process.sending, &[(number, act)]);
        self.send(from, bytes, way);
        let process = &mut self.processes[to];
        process.number += 1;
        let number = process.number;
        process
            .uses
            .insert(number, (domain, 0, now, false, Some(id.0)));
        let seize = [(number, HoldAction::Seize { from: id })];
        let bytes = self.play.ops_bytes(&mut process.sending, &seize);
        self.send(to, bytes, way);
    }

    fn heartbeat_of(&mut self, agent: usize, full: bool) -> Vec<u8> {
        let process = &mut self.processes[agent];
        let list: Vec<Listed<'_>> = process
            .uses
            .iter()
            .map(|(number, of)| Listed {
                strict: of.3,
                seized: of.4.map(TransferId),
                ..listed(*number, DOMAINS[of.0], of.1, of.2)
            })
            .collect();
        let awaiting: Vec<u64> = process.awaits.keys().copied().collect();
        let mut part = whole(&list);
        part.awaiting = &awaiting;
        if !full {
            let digest = list.iter().fold(Holdings::default(), |sum, of| {
                sum.with(of.number, of.copies)
            });
            part.holds = Holds::Digest(digest);
        }
        self.play
            .heartbeat_bytes(&mut process.sending, HeartbeatHead::default(), &[part])
    }

    fn send(&mut self, agent: usize, bytes: Vec<u8>, way: Way) {
        let late = std::mem::take(&mut self.processes[agent].late);
        match way {
            Way::Arrives | Way::Doubled => {
                self.play.apply(&bytes);
                self.take_verdicts();
                if matches!(way, Way::Doubled) {
                    self.play.apply(&bytes);
                    self.take_verdicts();
                }
            }
            Way::Lost => {}
            Way::Late => self.processes[agent].late.push(bytes),
        }
        for bytes in late {
            self.play.apply(&bytes);
            self.take_verdicts();
        }
    }

    /// Delivers verdicts to the processes; those drop what they cannot use.
    fn take_verdicts(&mut self) {
        use tollgate_shared::wire::holds::Op;
        use tollgate_shared::wire::verdict::HoldReason;
        let now = self.play.now_ms;
        for due in &self.play.rulings.verdicts {
            let found = self.processes.iter_mut().find(|process| {
                process.sending.name == &*due.agent && process.sending.epoch == due.epoch
            });
            let Some(process) = found else { continue };
            let Some(status) = &due.status else { continue };
            let number = status.number;
            match status.reason {
                Some(HoldReason::Refused(Some(Op::Release | Op::Transfer | Op::Cancel), _)) => {}
                Some(_) => {
                    process.uses.remove(&number);
                    process.awaits.remove(&number);
                }
                None => {
                    if let Some(domain) = process.awaits.remove(&number)
                        && 0 < status.copies
                    {
                        let uses = (domain, status.copies, now, true, None);
                        process.uses.insert(number, uses);
                    }
                    if let (Some(of), true) =
                        (process.uses.get_mut(&number), status.seized.is_some())
                    {
                        of.1 = status.copies;
                    }
                }
            }
        }
    }

    /// Heals the network and lets every process send heartbeats, for long enough.
    fn settle(&mut self) {
        self.play.version(LIMITS[0]);
        for _ in 0..8 {
            for agent in 0..self.processes.len() {
                let bytes = self.heartbeat_of(agent, true);
                self.send(agent, bytes, Way::Arrives);
            }
            self.play.tick();
            self.take_verdicts();
        }
    }

    /// Copies of each domain that the processes use.
    fn used(&self) -> BTreeMap<&'static str, u64> {
        let mut used = BTreeMap::new();
        for of in self
            .processes
            .iter()
            .flat_map(|process| process.uses.values())
        {
            *used.entry(DOMAINS[of.0]).or_default() += u64::from(of.1);
        }
        used
    }
}

fn nth(process: &Process, which: usize) -> Option<(u64, u32)> {
    // A seized hold is used once its number of copies is known.
    let mut uses = process.uses.iter().filter(|(_, of)| 0 < of.1);
    let len = uses.clone().count().max(1);
    uses.nth(which % len).map(|(number, of)| (*number, of.1))
}

fn step() -> impl Strategy<Value = Step> {
    let agent = 0..NAMES.len();
    prop_oneof![
        8 => (agent.clone(), 0..DOMAINS.len(), 1u32..4, proptest::bool::weighted(0.3))
            .prop_map(|(agent, domain, copies, strict)| Step::Take { agent, domain, copies, strict }),
        5 => (agent.clone(), 0usize..8).prop_map(|(agent, which)| Step::Release { agent, which }),
        2 => (agent.clone(), 0usize..8, agent.clone()).prop_map(|(from, which, to)| Step::Pass { from, which, to }),
        5 => (agent.clone(), any::<bool>()).prop_map(|(agent, full)| Step::Heartbeat { agent, full }),
        1 => (agent, any::<bool>()).prop_map(|(agent, successor)| Step::Kill { agent, successor }),
        5 => Just(Step::Tick),
        1 => (0..LIMITS.len()).prop_map(Step::Limits),
        2 => (0..DOMAINS.len(), any::<bool>(), prop::option::weighted(0.7, 0u64..6_000))
            .prop_map(|(domain, everywhere, lasts)| Step::Ban { domain, everywhere, lasts }),
        1 => Just(Step::Restore),
    ]
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![
        6 => Just(Way::Arrives),
        1 => Just(Way::Lost),
        1 => Just(Way::Doubled),
        1 => Just(Way::Late),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn in_the_end_exactly_what_is_in_use_is_counted(steps in prop::collection::vec((step(), way()), 1..80)) {
        let mut fleet = Fleet::new();
        for (step, way) in &steps {
            fleet.step(step, *way);
        }
        fleet.settle();
        let used = fleet.used();
        for domain in DOMAINS {
            let expected = used.get(domain).copied().unwrap_or(0);
            prop_assert_eq!(fleet.play.copies_of(domain), expected, "{}", domain);
        }
        prop_assert_eq!(fleet.play.total(), used.values().sum::<u64>());
    }
}
