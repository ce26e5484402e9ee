//! Kills agents that hold copies with signal 9, many at a time; no copy is lost for ever.
//!
//! ```sh
//! TOLLGATE_KAFKA=required TOLLGATE_COPIES_KILLS=1000 \
//!     cargo test -p tollgate-tests --test copies_killed --test kafka -- agents_that_hold --nocapture
//! ```
//!
//! runs the full number, 50 at a time, on the journal and on a real Kafka; without the variable there are
//! some tens. `TOLLGATE_COPIES_KILLS_SEED` repeats a run's random choices. `tollgate_tests::holders::kills`
//! describes the comparison.

use std::time::Instant;

use tollgate_tests::holders::kills::{LIMITS, Order, kill_holders};
use tollgate_tests::holders::process::{HolderLine, monotonic_ns};
use tollgate_tests::holders::{Counted, Endpoints, Holder, SOON};
use tollgate_tests::serving::Serving;

#[test]
fn agents_that_hold_are_killed_and_no_copy_is_lost() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let serving = Serving::start(dir.path(), LIMITS, 4);
    let order = Order::from_environment();
    let report = kill_holders(&Endpoints::of(&serving), &order);
    println!("journal: {report}");
    report.check(&order);
}

#[test]
fn holds_of_a_returning_agent_count_exactly_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let serving = Serving::start(dir.path(), LIMITS, 4);
    let endpoints = Endpoints::of(&serving);
    let mut holders = [0, 1].map(|n| Holder::start(&endpoints, &format!("holder-{n}"), n, &[]));
    holders.iter().for_each(Holder::await_holding);
    for round in 0..3 {
        await_operations(&endpoints, 60.0);
        let held = holders.each_mut().map(Holder::settle);
        let [one, other] = [0, 1].map(|at| (&holders[at], &held[at]));
        let both = Counted::of([one, other]);
        endpoints.await_counted("sandbox", &both);
        holders[0].pause();
        endpoints.await_counted("sandbox", &Counted::of([other]));
        holders[0].resume();
        endpoints.await_counted("sandbox", &both);
        println!("round {round}: {both:?}");
        holders.iter_mut().for_each(Holder::go_on);
    }
    await_copies_back(&endpoints);
}

/// Waits until this many more operations have been ruled.
fn await_operations(endpoints: &Endpoints, more: f64) {
    let ruled = || endpoints.metric("tollgate_hold_operations_total");
    let (until, before) = (Instant::now() + SOON, ruled());
    while ruled() < before + more {
        assert!(Instant::now() < until, "they take and give back");
        std::thread::yield_now();
    }
}

/// The timeout is long enough that no living agent counts as gone, however busy the machine.
const STRICT: &str = r#"
version = 1
rules = 2
[engine]
agent_timeout = "4s"
[copies.licence]
limit = 3
reserve = "strict"
"#;

const STRICT_LIMIT: i64 = 3;
const HOLDERS: usize = 8;
const ROUNDS: usize = 3;
const ROUNDS_MAX: usize = 40;
const GRANTS_OF_A_ROUND: usize = 40;

/// When copies were in use: from after the grant to before the release, or to the kill of the user.
type Uses = Vec<(u64, u64)>;

#[test]
fn strict_copies_never_exceed_the_limit_despite_kills() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let serving = Serving::start(dir.path(), STRICT, 4);
    let endpoints = Endpoints::of(&serving);
    let mut started = 0u64;
    let mut start = || {
        started += 1;
        let more = ["--resource", "licence", "--strict"];
        Holder::start(&endpoints, &format!("strict-{started}"), started, &more)
    };
    let mut holders: Vec<(Holder, Vec<HolderLine>)> =
        (0..HOLDERS).map(|_| (start(), Vec::new())).collect();
    let (mut uses, mut killed_in_use) = (Uses::new(), 0);
    // Whether a killed agent is using a copy at that moment is chance: repeat until one was.
    for round in 1.. {
        if ROUNDS < round && 0 < killed_in_use {
            break;
        }
        assert!(round < ROUNDS_MAX, "nobody was killed while it used a copy");
        await_grants(&mut holders);
        // Kill half of them; the others go on.
        for (holder, mut lines) in holders.drain(..HOLDERS / 2) {
            let killed = monotonic_ns();
            lines.extend(holder.kill());
            let (of_it, in_use) = uses_of(&lines, killed);
            uses.extend(of_it);
            killed_in_use += usize::from(in_use);
        }
        holders.extend((0..HOLDERS / 2).map(|_| (start(), Vec::new())));
    }
    await_grants(&mut holders);
    for (holder, mut lines) in holders {
        let killed = monotonic_ns();
        lines.extend(holder.kill());
        uses.extend(uses_of(&lines, killed).0);
    }
    let most = most_at_once(&uses);
    println!(
        "grants {} killed_in_use {killed_in_use} most_at_once {most} excess {}",
        uses.len(),
        (most - STRICT_LIMIT).max(0)
    );
    assert!(most <= STRICT_LIMIT, "never more than it has");
    let refused = endpoints.metric("tollgate_copies_not_granted_total");
    assert!(0.0 < refused, "it was full, and somebody was told so");
    assert_eq!(endpoints.metric("tollgate_copies_excess_total"), 0.0);
    await_copies_back(&endpoints);
}

/// Waits until copies of dead agents have come back: on a fast machine none of them counts as gone yet.
fn await_copies_back(endpoints: &Endpoints) {
    let until = Instant::now() + SOON;
    while endpoints.metric("tollgate_copies_back_total") == 0.0 {
        assert!(Instant::now() < until, "no copy came back in time");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Waits until this many more have been granted.
fn await_grants(holders: &mut [(Holder, Vec<HolderLine>)]) {
    let until = Instant::now() + SOON;
    let mut grants = 0;
    while grants < GRANTS_OF_A_ROUND {
        assert!(Instant::now() < until, "{grants} grants in time");
        for (holder, lines) in holders.iter_mut() {
            let more = holder.output();
            let is_grant = |lines: &&HolderLine| matches!(lines, HolderLine::Granted(_));
            grants += more.iter().filter(is_grant).count();
            lines.extend(more);
        }
        std::thread::yield_now();
    }
}

/// The uses of one agent, and whether it was using a copy when it was killed.
fn uses_of(lines: &[HolderLine], killed: u64) -> (Uses, bool) {
    let (mut uses, mut since) = (Uses::new(), None);
    for one in lines {
        match (one, since) {
            (HolderLine::Granted(at), None) => since = Some(*at),
            (HolderLine::Gives(at), Some(from)) => {
                uses.push((from, *at));
                since = None;
            }
            other => panic!("{other:?}"),
        }
    }
    uses.extend(since.map(|from| (from, killed.max(from))));
    (uses, since.is_some())
}

fn most_at_once(uses: &Uses) -> i64 {
    // At one instant, ends sort before beginnings: a use that is over makes room.
    let ends = uses.iter().map(|(_, to)| (*to, -1));
    let mut steps: Vec<(u64, i64)> = uses
        .iter()
        .map(|(from, _)| (*from, 1))
        .chain(ends)
        .collect();
    steps.sort_unstable();
    let mut now = 0;
    let counts = steps.iter().map(|(_, step)| {
        now += step;
        now
    });
    counts.max().unwrap_or(0)
}
