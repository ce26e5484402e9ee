//! The core of an aggregator: everything that it decides, as a state machine without I/O.
//!
//! ```text
//! log, agents, HTTP, limits file, time ── Event ──> Core ── Effect ──> log, feed, link, HTTP
//! ```
//!
//! One loop owns it, hands it events one after the other, and does what its effects say; a simulation
//! does the same with a log, a clock and a network of its own. It knows no socket, no file and no clock.
//!
//! What stays true: rulings are a function of the log alone; nothing rules before its record is in the
//! log; every queue has a bound and a counter.

pub mod amendments;
pub mod announce;
mod answered;
pub mod assignment;
mod bridges;
pub mod candidates;
pub mod counters;
pub mod event;
pub mod limits_push;
pub mod live;
pub mod partition;
pub mod recordings;
pub mod resources;
pub mod ruler;
pub mod snapshots;
pub mod testimonies;
pub mod totals;
pub mod usage;
pub mod verdicts;
pub mod view;

mod agents;
mod clocks;
mod following;
mod forged;
mod giving;
pub mod hold_order;
pub mod holds;
mod identities;
mod limits_desk;
mod notices;
mod queries;
mod rule;
mod turn;
mod withheld;
#[cfg(feature = "wrong-engine")]
mod wrong;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Span;
use tollgate_shared::wire::link::Member;
use tollgate_shared::wire::record::OwnersPen;

use announce::{Announcer, Ready, TOPIC_KEY_UNPROTECTED};
use bridges::Bridges;
use counters::Counters;
use event::{Effect, Event, Now, Peer};
use identities::Identities;
use limits_desk::LimitsDesk;
use notices::Notices;
use partition::{Partition, Stage};
use resources::Resources;
use snapshots::Policy;
use tollgate_log::{Chunks, LogEvent, Stream, Ticket};
use tollgate_shared::place::LogId;
use totals::{ChainKey, Totals};
use verdicts::Verdicts;

/// What a core is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The aggregator's name, in its ticks.
    pub owner: String,
    /// Where all that is drawn at random comes from: the instance, log ids, names of pushes.
    pub seed: [u8; 32],
    /// Signs what only aggregators may write.
    pub key: MacKey,
    /// How many partitions the log has.
    pub partitions: u32,
    /// The consumer group, where there may be several that rule the same partitions.
    pub group: Option<Box<str>>,
    /// Partitions whose first record must state this generation: see [`Start::unbegun`].
    pub start: Start,
    /// Where agents find the feed, as `tcp://host:port`.
    pub feeds: Vec<Box<str>>,
    /// How often quiet topics say that they are quiet.
    pub heartbeat: Span,
    /// Whether the limits file is pushed when it differs.
    pub follow_file: bool,
    /// When snapshots are taken, if they are.
    pub snapshots: Option<Policy>,
    /// How many statements, and how many totals, of one partition may wait for the log before nothing more of it is
    /// ruled: [`recordings::WAITING_MAX`], but where that is to be met.
    pub waiting_max: usize,
}

/// In what state the log was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The log's generation.
    pub generation: u32,
    /// Partitions that have no record of this generation yet. The first record that is appended to each
    /// must be the one that states it.
    pub unbegun: Vec<(Stream, u32)>,
    /// Snapshots by partition, newest first.
    pub snapshots: BTreeMap<u32, Vec<Chunks>>,
}

impl Start {
    /// Takes the newest snapshot of a partition that was not taken yet.
    fn take_snapshot(&mut self, partition: u32) -> Option<Chunks> {
        let found = self.snapshots.get_mut(&partition)?;
        (!found.is_empty()).then(|| found.remove(0))
    }
}

/// What an append was for.
#[derive(Clone, Debug)]
enum Purpose {
    Genesis(Stream, u32),
    Tick(u32),
    Pointer(u32),
    Total(ChainKey),
    Evidence(u32),
    Testimony,
    /// One that is not needed any more is not repeated, and another is made where it is.
    Bridge,
    Chunk(u128),
    Amendment(u128),
    Agent {
        peer: Peer,
        id: u64,
        partition: u32,
    },
}

/// The core.
pub struct Core {
    settings: Settings,
    instance: u128,
    random: blake3::OutputReader,
    partitions: Vec<Partition>,
    limits: LimitsDesk,
    proposals: amendments::Proposals,
    totals: Totals,
    bridges: Bridges,
    announcer: Announcer,
    notices: Notices,
    /// What was ruled since the process began, by resource.
    resources: Resources,
    verdicts: Verdicts,
    verdict_frames: u64,
    givings: giving::Desk,
    appends: HashMap<Ticket, Purpose>,
    appends_of_agents: usize,
    last_ticket: u64,
    identities: Identities,
    withheld: withheld::Withheld,
    next_heartbeat: Span,
    log_down: Option<String>,
    /// Whether partitions are followed: not before the limits have been read.
    following_hits: bool,
    /// Whether the limits that were found or given at the start rule every partition.
    started: bool,
    /// Whether partitions come and go.
    shared: bool,
    /// Whether partitions were shared out to this process yet, be it none.
    joined: bool,
    /// The others of the fleet.
    members: Vec<Member>,
    /// Partitions that other groups rule, too.
    ruled_too: BTreeSet<u32>,
    /// Partitions that were shared out to this process and are beyond those that there should be.
    surplus: BTreeSet<u32>,
    /// How many times restoring a partition began.
    attempts: u64,
    /// Whether it is wrong on purpose.
    #[cfg(feature = "wrong-engine")]
    wrong: bool,
    counters: Counters,
    clocks: clocks::Clocks,
    /// What candidates would have done since the process began, by resource.
    candidates: candidates::Ever,
    effects: Vec<Effect>,
}

impl Core {
    /// A core that has seen nothing; the effects begin to follow the log.
    pub fn new(settings: Settings) -> (Self, Vec<Effect>) {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate 2026-11 aggregator randomness");
        hasher.update(&settings.seed);
        let mut random = hasher.finalize_xof();
        let instance = draw_u128(&mut random);
        let mut core = Self {
            instance,
            random,
            partitions: (0..settings.partitions)
                .map(|index| Partition::new(index, settings.partitions))
                .collect(),
            limits: LimitsDesk::default(),
            proposals: amendments::Proposals::default(),
            totals: Totals::default(),
            bridges: Bridges::default(),
            announcer: Announcer::new(instance, TOPIC_KEY_UNPROTECTED),
            notices: Notices::default(),
            resources: Resources::default(),
            verdicts: Verdicts::default(),
            verdict_frames: 0,
            givings: giving::Desk::default(),
            appends: HashMap::new(),
            appends_of_agents: 0,
            last_ticket: 0,
            identities: Identities::default(),
            withheld: withheld::Withheld::default(),
            next_heartbeat: Span::ZERO,
            log_down: None,
            following_hits: false,
            started: false,
            shared: false,
            joined: false,
            members: Vec::new(),
            ruled_too: BTreeSet::new(),
            surplus: BTreeSet::new(),
            attempts: 0,
            #[cfg(feature = "wrong-engine")]
            wrong: false,
            counters: Counters::default(),
            clocks: clocks::Clocks::default(),
            candidates: candidates::Ever::default(),
            effects: Vec::new(),
            settings,
        };
        // Identities first: nothing may be appended before them.
        for at in &core.settings.start.unbegun {
            core.identities.want(*at);
        }
        core.begin_partitions(Span::ZERO);
        core.follow(Stream::Limits, 0, 0);
        let effects = std::mem::take(&mut core.effects);
        (core, effects)
    }

    /// Handles one event, and hands out what is to be done about it, in order.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Log(event) => self.log_says(now, event),
            Event::Agent { peer, request } => self.agent_asks(now, peer, request),
            Event::Room(peer, room) => self.room(peer, room),
            Event::Query { id, query } => self.answer_query(now, id, query),
            Event::LimitsFile(file) => self.limits_file_read(now, file),
            Event::SnapshotSaved { partition, saved } => self.snapshot_saved(now, partition, saved),
            Event::Members(members) => self.members = members,
            Event::RuledToo(partitions) => self.ruled_too = partitions,
            Event::Assigned(partitions) => self.assigned(&partitions),
            Event::Revoked(partitions) => self.revoked(now, &partitions),
            Event::Restored {
                partition,
                attempt,
                restored,
            } => self.restored(partition, attempt, restored),
            Event::Turn => self.turn(now),
        }
        self.withhold(now.clock);
        effects.append(&mut self.effects);
    }

    /// When the next [`Event::Turn`] is due although nothing else happens.
    pub fn next_turn(&self) -> Span {
        self.wake_at()
    }

    /// This process's instance, as frames carry it.
    pub fn instance(&self) -> u128 {
        self.instance
    }

    fn log_says(&mut self, now: Now, event: LogEvent) {
        match event {
            LogEvent::Delivered {
                stream: Stream::Hits,
                partition,
                records,
            } => self.hits_delivered(now, partition, &records),
            LogEvent::Delivered {
                stream: Stream::Limits,
                records,
                ..
            } => self.limits_delivered(now, &records),
            // Evidence is written here and read by others.
            LogEvent::Delivered {
                stream: Stream::Denials,
                ..
            } => {}
            LogEvent::CaughtUp {
                stream,
                partition,
                next,
            } => self.caught_up(now, stream, partition, next),
            LogEvent::Following {
                stream,
                partition,
                from,
            } => self.following(stream, partition, from),
            LogEvent::Gap {
                stream,
                partition,
                wanted,
                next,
            } => self.gap(now, stream, partition, wanted, next),
            LogEvent::Broken {
                stream,
                partition,
                next,
                why,
            } => self.broken(stream, partition, next, why),
            LogEvent::Appended {
                ticket,
                result,
                taken,
            } => self.answered(now, ticket, result, taken),
            LogEvent::Down { why } => {
                if self.log_down.is_none() {
                    tracing::error!(why, "the log takes nothing; trying again");
                }
                self.log_down = Some(why);
            }
            LogEvent::Up => {
                if self.log_down.take().is_some() {
                    tracing::info!("the log takes records again");
                }
            }
            LogEvent::Closed => {}
        }
    }

    /// Where limits documents may be parsed before their records come.
    pub fn preparing(&self) -> tollgate_limits::versions::parsed::Parsed {
        self.limits.book.preparing()
    }

    fn append(
        &mut self,
        stream: Stream,
        partition: u32,
        record: Vec<u8>,
        purpose: Purpose,
    ) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.appends.insert(ticket, purpose);
        self.effects.push(Effect::Append {
            stream,
            partition,
            ticket,
            record,
        });
        ticket
    }

    fn follow(&mut self, stream: Stream, partition: u32, from: u64) {
        self.effects.push(Effect::Follow {
            stream,
            partition,
            from,
        });
    }

    /// States the identity of partitions that have none of this generation yet.
    fn begin_partitions(&mut self, clock: Span) {
        for (stream, partition) in self.identities.due(clock) {
            if self.has_begun(stream, partition) {
                self.identities.forget((stream, partition));
                continue;
            }
            let log = LogId {
                generation: self.generation_to_begin(stream, partition),
                random: draw_u64(&mut self.random),
            };
            let record = OwnersPen::new(&self.settings.key, partition).genesis(log);
            let ticket = self.append(
                stream,
                partition,
                record,
                Purpose::Genesis(stream, partition),
            );
            self.identities.sent((stream, partition), ticket);
        }
    }

    /// Whether an identity came back of which the log had said that it does not have it: stated once more, it
    /// would be of the next generation. A journal's partitions had others before.
    fn has_begun(&self, stream: Stream, partition: u32) -> bool {
        let found = self.partitions.get(partition as usize);
        self.shared && stream == Stream::Hits && found.is_some_and(|of| of.log().is_some())
    }

    /// Has the identity of a partition stated that has none, once.
    fn begin_if_new(&mut self, clock: Span, stream: Stream, partition: u32) {
        self.identities.want((stream, partition));
        self.begin_partitions(clock);
    }

    /// Begins partitions again of which the log has taken the identity and nothing came back: it went with a
    /// topic that was made anew before anything of it was read, which nobody is told.
    fn begin_lost(&mut self, clock: Span) {
        for partition in &self.partitions {
            let at = (Stream::Hits, partition.index);
            let is_without = partition.stage == Stage::Ruling && partition.log().is_none();
            if is_without && self.identities.is_late(at, clock) {
                self.identities.forget(at);
                self.identities.want(at);
            }
        }
    }

    fn ready(&self, clock: Span) -> BTreeMap<u32, Ready> {
        self.partitions
            .iter()
            .filter_map(|partition| Some((partition.index, partition.ready(clock)?)))
            .collect()
    }
}

fn draw_u64(random: &mut blake3::OutputReader) -> u64 {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn draw_u128(random: &mut blake3::OutputReader) -> u128 {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    u128::from_le_bytes(bytes)
}
