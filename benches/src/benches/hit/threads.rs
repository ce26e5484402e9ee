//! Two threads on one hot pair against one thread.
//!
//! Measured by the threads' CPU time: the agent's own threads and the aggregator also need the two
//! processors, and wall time would show how the processors were shared. Blocks of both threads
//! begin at the same instants, so that they contend. One thread is measured before and after two, because a machine may
//! become slower or faster meanwhile.

use super::looped::Loop;
use super::peer::Governor;
use super::{BLOCKS, Calls, ROUNDS};
use crate::harness::Session;
use crate::harness::calls::{Pace, by_blocks};
use crate::harness::figure::{Figure, Target};

pub(super) fn run(session: &mut Session, looped: &Loop) -> anyhow::Result<()> {
    session.step("two threads on one pair");
    let calls = Calls::on(0, 1);
    let governor = Governor::knowing(&calls);
    let name = calls.at(0);
    let ours = || {
        let _ = std::hint::black_box(looped.search.hit(name));
    };
    let peer = || governor.ready(name);
    let (mut ours_gain, mut peer_gain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours_gain.push(gain(&ours)?);
        peer_gain.push(gain(&peer)?);
    }
    if let Some(figure) = Figure::of_rounds("two threads on one pair, against one", "×", &ours_gain)
    {
        session.add(
            figure
                .target(Target::AtLeast(1.9))
                .peer("governor, key ready", &peer_gain)
                .note(
                    "by the time that the threads ran, a million calls a second each; 2 is perfect",
                ),
        );
    }
    Ok(())
}

/// How many times as much two threads do as one, per CPU time.
fn gain(call: &(impl Fn() + Sync)) -> anyhow::Result<f64> {
    let alone = || by_blocks(BLOCKS, Pace::million_per_second(), |_| call()).cpu_ns;
    let before = alone();
    let pace = Pace::million_per_second();
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| by_blocks(BLOCKS, pace, |_| call()));
        let one = by_blocks(BLOCKS, pace, |_| call());
        other.join().map(|other| (one, other))
    });
    let (one, other) = both.map_err(|_| anyhow::anyhow!("a calling thread panicked"))?;
    let alone = f64::midpoint(before, alone());
    Ok(alone / one.cpu_ns + alone / other.cpu_ns)
}
