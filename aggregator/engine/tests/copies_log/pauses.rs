//! Agents that are silent because ticks paused: without an aggregator, or without a log, no agent can be heard.

use proptest::prelude::*;
use tollgate_engine::engine::AgentChange;
use tollgate_model::copies::{
    AgentFate, CopiesModel, CopiesOutcome, CopiesVersion, HeartbeatRecord, Process, SentBy,
};
use tollgate_shared::holdings::Holdings;

use crate::play::{Play, agent};
use crate::{SANDBOX, digest, hold};

/// Two agents that hold copies, and two counted ticks.
fn held_by_two() -> Play {
    let mut play = Play::of(SANDBOX);
    play.ops(&mut agent("dead", 1), &[(1, hold("acme", 1))]);
    play.ops(&mut agent("lives", 1), &[(1, hold("acme", 2))]);
    play.tick();
    play
}

/// The half seconds of ticks until the first agent is gone.
fn ticks_until_gone(play: &mut Play) -> u64 {
    let tick = (1..=100).find(|_| {
        play.tick();
        !play.rulings.agents.is_empty()
    });
    tick.expect("an agent is gone")
}

#[test]
fn in_a_stalled_log_no_agent_is_gone() {
    let mut play = held_by_two();
    // An hour without any record, and then one tick.
    play.now_ms += 3_600_000;
    play.tick();
    assert_eq!((play.total(), play.rulings.agents.len()), (3, 0));
}

#[test]
fn after_an_outage_living_holders_keep_their_copies() {
    for away_ms in [1_000, 2_000, 6_000, 20_000, 60_000, 3_600_000] {
        let mut play = held_by_two();
        let mut lives = agent("lives", 1);
        lives.sequence = 1;
        play.now_ms += away_ms - 500 + 100;
        play.tick();
        play.restart();
        // The agent tries again after another length of the outage, or after its longest pause, and needs a second.
        let mut returned_ms = 0;
        while returned_ms < away_ms.min(15_000) + 500 {
            play.tick();
            assert_eq!(play.rulings.agents.len(), 0, "away for {away_ms} ms");
            returned_ms += 500;
        }
        play.heartbeat(&mut lives, digest(Holdings::default().with(1, 2)));
        assert!(play.output().is_empty() && play.rulings.agents.is_empty());
        assert_eq!(play.total(), 3, "away for {away_ms} ms");
    }
}

#[test]
fn copies_of_the_dead_are_free_again_after_the_grace() {
    // The timeout, and twice the outage or twenty seconds more; a tick was counted before the outage, and one ends it.
    for (away_ms, ticks) in [(1_001, 4 + 5), (6_000, 4 + 24), (60_000, 4 + 40)] {
        let mut play = held_by_two();
        play.now_ms += away_ms - 500;
        play.tick();
        play.restart();
        assert_eq!(ticks_until_gone(&mut play), ticks - 2, "{away_ms} ms");
        assert_eq!(play.rulings.agents.len(), 2);
        assert_eq!(play.total(), 0);
    }
}

#[test]
fn an_agent_heard_since_an_outage_has_the_usual_timeout() {
    let mut play = held_by_two();
    let mut lives = agent("lives", 1);
    lives.sequence = 1;
    play.now_ms += 60_000;
    play.tick();
    play.heartbeat(&mut lives, digest(Holdings::default().with(1, 2)));
    play.restart();
    assert_eq!(ticks_until_gone(&mut play), 4);
    let gone = &play.rulings.agents[0];
    assert_eq!(
        (&*gone.agent, gone.change),
        ("lives", AgentChange::Gone { copies: 2 })
    );
}

#[test]
fn ticks_of_a_quiet_partition_are_no_pause() {
    // Each 400 ms; of two in one half second the first counts.
    let mut play = held_by_two();
    play.now_ms -= 100;
    let ticks = (2..=20).find(|_| {
        play.tick();
        play.now_ms -= 100;
        !play.rulings.agents.is_empty()
    });
    assert_eq!(ticks, Some(5), "1.6 to 2 s after the last record");
}

/// The document with a timeout of so many seconds.
fn with_timeout(secs: u64) -> String {
    format!("[engine]\nagent_timeout = \"{secs}s\"\n{SANDBOX}")
}

#[test]
fn a_shorter_timeout_counts_from_the_next_heartbeat() {
    for later in [&[2][..], &[39, 20, 2], &[2, 40, 2]] {
        let mut play = Play::of(&with_timeout(40));
        let mut lives = agent("lives", 1);
        play.ops(&mut agent("dead", 1), &[(1, hold("acme", 1))]);
        play.ops(&mut lives, &[(1, hold("acme", 2))]);
        // Its next heartbeat is due ten seconds after this one: it does not know the version yet.
        for tick in 1..=19 {
            play.tick();
            if tick == 12 {
                for secs in later {
                    play.version(&with_timeout(*secs));
                }
                play.restart();
            }
            assert_eq!((play.total(), play.rulings.agents.len()), (3, 0), "{tick}");
        }
        play.heartbeat(&mut lives, digest(Holdings::default().with(1, 2)));
        assert_eq!(ticks_until_gone(&mut play), 4, "of the new timeout");
        assert_eq!(play.total(), 1);
        assert_eq!(ticks_until_gone(&mut play), 80 - 19 - 4, "of the old one");
        assert_eq!(play.total(), 0);
    }
}

#[test]
fn a_longer_timeout_holds_at_once() {
    let mut play = Play::of(&with_timeout(2));
    play.ops(&mut agent("web", 1), &[(1, hold("acme", 1))]);
    play.tick();
    play.version(&with_timeout(10));
    assert_eq!(ticks_until_gone(&mut play), 20 - 1);
}

/// One agent of two sends a heartbeat, or a tick comes after some milliseconds, or a version with another timeout.
#[derive(Clone, Copy, Debug)]
enum Event {
    Heartbeat(usize),
    Tick(u64),
    Timeout(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..2_usize).prop_map(Event::Heartbeat),
        8 => (500..1_100_u64).prop_map(Event::Tick),
        1 => (1_000..30_000_u64).prop_map(Event::Tick),
        1 => (1..20_u64).prop_map(Event::Timeout),
    ]
}

fn fate(change: AgentChange) -> AgentFate {
    match change {
        AgentChange::Gone { copies } => AgentFate::Gone(copies),
        AgentChange::Returned => AgentFate::Returned,
        AgentChange::Over { copies } => AgentFate::Over(copies),
        AgentChange::Twin => AgentFate::Twin,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn engine_and_model_miss_agents_at_the_same_ticks(events in prop::collection::vec(event(), 1..120)) {
        let (mut play, mut model) = (Play::of(SANDBOX), CopiesModel::new());
        // Two epochs of one name, so that twins are compared too.
        let mut agents = [agent("web", 1), agent("web", 2)];
        for event in events {
            let outcome = match event {
                Event::Tick(after_ms) => {
                    play.now_ms += after_ms - 500;
                    play.tick();
                    model.tick(play.now_ms * 1_000, |_, _| true)
                }
                Event::Timeout(secs) => {
                    play.version(&with_timeout(secs));
                    let limits = CopiesVersion {
                        timeout_ticks: 2 * secs,
                        ..CopiesVersion::default()
                    };
                    model.new_limits(1, limits, play.now_ms * 1_000);
                    CopiesOutcome::default()
                }
                Event::Heartbeat(index) => {
                    let from = &mut agents[index];
                    play.heartbeat_without_parts(from);
                    model.heartbeat(&HeartbeatRecord {
                        sender: SentBy {
                            agent: from.name,
                            epoch: from.epoch,
                            sequence: from.sequence,
                            moved_us: 0,
                            appended_us: play.now_ms * 1_000,
                        },
                        replaces: None,
                        more: false,
                        last: false,
                        parts: Vec::new(),
                    })
                }
            };
            let news = play.rulings.agents.iter();
            let found: Vec<(Process, AgentFate)> = news
                .map(|of| ((of.agent.to_string(), of.epoch), fate(of.change)))
                .collect();
            prop_assert_eq!(found, outcome.agents);
            if play.now_ms % 7 == 0 {
                play.restart();
            }
        }
    }
}
