//! Copies, end to end: agents beside a real aggregator and its journal; one agent is really killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tollgate_agent::{
    Agent, Cause, Change, Confirmation, Copies, FullScope, Hold, Refused, Scope, SeizeError, Stats,
};
use tollgate_tests::holders::{Counted, Endpoints};
use tollgate_tests::serving::Serving;

const LIMITS: &str = r#"
version = 1
rules = 2

[copies.sandbox]
limit = 2

[copies.licence]
limit = 9
global = 3
reserve = "strict"

[copies.gpu]
limit = 9
groups.probation = { limit = 2, members = ["new-1", "new-2"] }
"#;

/// Far more than anything here takes; the machine may be busy.
const SOON: Duration = Duration::from_secs(30);

/// The variable that gives the killed process the aggregator's address.
const HOLDER: &str = "COPIES_TEST_AGGREGATOR";
const HOLDER_EPOCH: &str = "COPIES_TEST_EPOCH_FILE";

struct World {
    aggregator: Serving,
    dir: TempDir,
}

/// An agent, and the denials and lifts that it received.
struct Listening {
    agent: Agent,
    events: UnboundedReceiver<(String, Change)>,
}

impl World {
    fn new(limits: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let aggregator = Serving::start(dir.path(), limits, 4);
        Self { aggregator, dir }
    }

    async fn agent(&self, name: &str, resource: &str) -> Listening {
        let (sender, events) = unbounded_channel();
        let sender = Mutex::new(sender);
        let agent = Agent::builder()
            .name(name)
            .aggregator(self.aggregator.agents.as_str())
            .on_statement(move |events| {
                let scope = events.domain().or(events.group()).unwrap_or("*").to_owned();
                let _ = sender
                    .lock()
                    .expect("not poisoned")
                    .send((scope, events.change()));
            })
            .build()
            .expect("good settings");
        let _ = agent.copies(resource);
        assert!(agent.ready(SOON).await, "the aggregator is heard");
        Listening { agent, events }
    }

    /// Starts a process that holds two sandboxes of acme, confirmed, until it is killed.
    fn holder(&self, epoch_file: Option<&Path>) -> Holder {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "holder", "--ignored", "--nocapture"])
            .env(HOLDER, &self.aggregator.agents)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(path) = epoch_file {
            command.env(HOLDER_EPOCH, path);
        }
        let mut process = command.spawn().expect("this program again");
        let output = process.stdout.take().expect("its output");
        let holds = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("holding"));
        assert!(holds, "it holds");
        Holder(process)
    }
}

struct Holder(Child);

impl Holder {
    /// Kills it with signal 9, so that it releases nothing.
    fn kill(mut self) -> Instant {
        self.0.kill().expect("it lives");
        self.0.wait().expect("it is gone");
        Instant::now()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Listening {
    fn copies(&self, resource: &str) -> Copies {
        self.agent.copies(resource)
    }

    /// Waits until the agent has received this change.
    async fn hears(&mut self, scope: &str, change: Change) {
        let wanted = (scope.to_owned(), change);
        let waited = tokio::time::timeout(SOON, async {
            while self.events.recv().await.expect("the agent lives") != wanted {}
        });
        assert!(waited.await.is_ok(), "not heard: {wanted:?}");
    }
}

async fn confirmed(hold: &Hold) -> Confirmation {
    let verdict = tokio::time::timeout(SOON, hold.confirmed()).await;
    verdict.expect("a verdict")
}

fn refused(result: Result<Hold, Refused>) -> (Cause, Scope) {
    match result {
        Err(Refused::Denied(denied)) => (denied.cause(), denied.scope()),
        other => panic!("{other:?}"),
    }
}

/// Waits until a copy is refused whose denial was received. The denial holds only under the lease of its
/// partition, which may come a moment later if nothing was ruled there before; copies taken until then are
/// excess.
async fn refused_soon(copies: &Copies, domain: &str) -> (Cause, Scope) {
    let until = Instant::now() + SOON;
    loop {
        match copies.reserve(domain, 1) {
            Ok(excess) => drop(excess),
            refusal => return refused(refusal),
        }
        assert!(Instant::now() < until, "a denial that holds");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A part of the tests below, in a process of its own.
#[tokio::test]
#[ignore = "a process that others start, and kill"]
async fn holder() {
    let Ok(aggregator) = std::env::var(HOLDER) else {
        return;
    };
    let mut builder = Agent::builder().name("holder").aggregator(aggregator);
    if let Ok(path) = std::env::var(HOLDER_EPOCH) {
        builder = builder.epoch_file(path);
    }
    let agent = builder.build().expect("good settings");
    let sandbox = agent.copies("sandbox");
    assert!(agent.ready(SOON).await);
    let hold = sandbox.reserve("acme", 2).expect("not full");
    assert_eq!(confirmed(&hold).await, Confirmation::Confirmed);
    println!("\nholding");
    // Until it is killed, or its parent has ended.
    let _ = std::io::stdin().read(&mut [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_domain_is_denied_elsewhere_until_a_copy_is_given_back() {
    let world = World::new(LIMITS);
    let (mut one, mut other) = (
        world.agent("one", "sandbox").await,
        world.agent("other", "sandbox").await,
    );
    let mut hold = one.copies("sandbox").reserve("acme", 2).expect("not full");
    assert_eq!(confirmed(&hold).await, Confirmation::Confirmed);
    other.hears("acme", Change::Denied).await;
    // Each agent hears each change once: what comes later is not taken for this.
    one.hears("acme", Change::Denied).await;
    assert_eq!(
        refused_soon(&other.copies("sandbox"), "acme").await,
        (Cause::Full, Scope::Pair)
    );
    let beta = other
        .copies("sandbox")
        .reserve("beta", 1)
        .expect("not full");
    assert_eq!(confirmed(&beta).await, Confirmation::Confirmed);
    hold.release(1).expect("it has two");
    other.hears("acme", Change::Opened).await;
    one.hears("acme", Change::Opened).await;
    let taken = other.copies("sandbox").reserve("acme", 1).expect("lifted");
    assert_eq!(confirmed(&taken).await, Confirmation::Confirmed);
    one.hears("acme", Change::Denied).await;
    drop((hold, taken));
    one.hears("acme", Change::Opened).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agents_copies_come_back() {
    let world = World::new(LIMITS);
    let mut other = world.agent("other", "sandbox").await;
    let holder = world.holder(None);
    other.hears("acme", Change::Denied).await;
    let full = (Cause::Full, Scope::Pair);
    assert_eq!(refused_soon(&other.copies("sandbox"), "acme").await, full);
    let killed = holder.kill();
    assert_eq!(refused(other.copies("sandbox").reserve("acme", 1)), full);
    other.hears("acme", Change::Opened).await;
    println!("copies_back_ms = {}", killed.elapsed().as_millis());
    let all = other.copies("sandbox").reserve("acme", 2).expect("lifted");
    assert_eq!(confirmed(&all).await, Confirmation::Confirmed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_ends_its_old_epoch_at_once() {
    // No test waits for an hour.
    let world = World::new(&format!("{LIMITS}\n[engine]\nagent_timeout = \"1h\"\n"));
    let mut other = world.agent("other", "sandbox").await;
    let epoch_file = world.dir.path().join("epoch");
    let holder = world.holder(Some(&epoch_file));
    other.hears("acme", Change::Denied).await;
    holder.kill();
    let successor = Agent::builder()
        .name("holder")
        .aggregator(world.aggregator.agents.as_str())
        .epoch_file(&epoch_file)
        .build()
        .expect("good settings");
    let _ = successor.copies("sandbox");
    other.hears("acme", Change::Opened).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_end_releases_all_copies() {
    let world = World::new(&format!("{LIMITS}\n[engine]\nagent_timeout = \"1h\"\n"));
    let one = world.agent("one", "sandbox").await;
    let mut other = world.agent("other", "sandbox").await;
    let _hold = one.copies("sandbox").reserve("acme", 2).expect("not full");
    other.hears("acme", Change::Denied).await;
    one.agent.shutdown(SOON).await;
    other.hears("acme", Change::Opened).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_copies_never_exceed_the_limit() {
    let world = World::new(LIMITS);
    let one = world.agent("one", "licence").await;
    let other = world.agent("other", "licence").await;
    let (mine, theirs) = (one.copies("licence"), other.copies("licence"));
    let reserves = (0..8).map(|n| {
        let licence = if n % 2 == 0 { &mine } else { &theirs }.clone();
        tokio::spawn(async move {
            let domain = format!("d{n}");
            licence.reserve_confirmed(&domain, 1, SOON).await
        })
    });
    let mut granted = Vec::new();
    for one in reserves.collect::<Vec<_>>() {
        match one.await.expect("no panic") {
            Ok(hold) => granted.push(hold),
            refusal => assert_eq!(refused(refusal), (Cause::Full, Scope::Resource)),
        }
    }
    assert_eq!(granted.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_move_between_processes_and_groups_are_limited() {
    let world = World::new(LIMITS);
    let (one, mut other) = (
        world.agent("one", "gpu").await,
        world.agent("other", "gpu").await,
    );
    let mut giver = one.copies("gpu").reserve("new-1", 2).expect("not full");
    assert_eq!(confirmed(&giver).await, Confirmation::Confirmed);
    other.hears("probation", Change::Denied).await;
    assert_eq!(
        refused_soon(&other.copies("gpu"), "new-2").await,
        (Cause::Full, Scope::Group)
    );
    assert!(other.copies("gpu").reserve("old", 1).is_ok());
    let id = giver.transfer(2, SOON).expect("it has two");
    let taken = other.copies("gpu").seize(id).await.expect("staged");
    assert_eq!(taken.copies(), 2);
    let again = one.copies("gpu").seize(id).await;
    assert_eq!(again.err(), Some(SeizeError::Unknown));
    // The copies count during a transfer: an agent that has not received the denial takes too many.
    drop(giver);
    let (_late, excess) = agent_without_the_denial(&world).await;
    let full = Confirmation::Excess {
        copies: 1,
        scope: Some(FullScope::Group("probation".into())),
    };
    assert_eq!(confirmed(&excess).await, full);
    drop((taken, excess));
    other.hears("probation", Change::Opened).await;
}

/// An agent that took a copy of a full group, because it had not received the denial yet. On a busy machine
/// some receive it in time.
async fn agent_without_the_denial(world: &World) -> (Listening, Hold) {
    for number in 0..20 {
        let late = world.agent(&format!("late-{number}"), "other").await;
        match late.copies("gpu").reserve("new-2", 1) {
            Ok(hold) => return (late, hold),
            denied => assert_eq!(refused(denied), (Cause::Full, Scope::Group)),
        }
    }
    panic!("all have heard at once");
}

/// The timeout is too long for an agent to count as gone in these tests: only agents' own records repair
/// counts.
fn nobody_is_missed() -> String {
    format!("{LIMITS}\n[engine]\nagent_timeout = \"1h\"\n")
}

/// Takes and releases copies until the agent's counters fulfil `done`.
async fn churn_until(one: &Listening, what: &str, done: impl Fn(&Stats) -> bool) {
    let sandbox = one.copies("sandbox");
    let until = Instant::now() + SOON;
    while !done(&one.agent.stats()) {
        assert!(Instant::now() < until, "{what}: {:?}", one.agent.stats());
        for n in 0..256 {
            drop(sandbox.reserve(&format!("busy-{n}"), 1));
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_were_lost_are_healed_by_the_next_list() {
    let world = World::new(&nobody_is_missed());
    let one = world.agent("one", "sandbox").await;
    let mut other = world.agent("other", "sandbox").await;
    let kept = one.copies("sandbox").reserve("kept", 2).expect("not full");
    let lost = one.copies("sandbox").reserve("acme", 2).expect("not full");
    assert_eq!(confirmed(&lost).await, Confirmation::Confirmed);
    other.hears("acme", Change::Denied).await;

    // More operations than can wait while the log takes nothing. The release of acme is in the middle of them,
    // after those that were sent already and before those that no longer fit.
    world.aggregator.pause();
    let before = one.agent.stats().hold_operations;
    churn_until(&one, "more waits than is under way", |stats| {
        before + 40_000 < stats.hold_operations
    })
    .await;
    assert_eq!(one.agent.stats().hold_operations_dropped, 0);
    drop(lost);
    churn_until(&one, "operations are dropped", |stats| {
        0 < stats.hold_operations_dropped
    })
    .await;
    world.aggregator.resume();

    other.hears("acme", Change::Opened).await;
    let all = other.copies("sandbox").reserve("acme", 2).expect("lifted");
    assert_eq!(confirmed(&all).await, Confirmation::Confirmed);
    // What is held still counts, to the copy.
    let expected = Counted {
        total: 4,
        domains: [("kept".to_owned(), 2), ("acme".to_owned(), 2)].into(),
        agents: [("one".to_owned(), 2), ("other".to_owned(), 2)].into(),
        staged: 0,
    };
    Endpoints::of(&world.aggregator).await_counted("sandbox", &expected);
    drop(kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unanswered_strict_reserve_ends_at_its_deadline() {
    let world = World::new(&nobody_is_missed());
    let one = world.agent("one", "licence").await;
    let other = world.agent("other", "licence").await;
    world.aggregator.pause();
    let deadline = Duration::from_millis(300);
    let begun = Instant::now();
    let (mine, theirs) = (one.copies("licence"), other.copies("licence"));
    let late = mine.reserve_confirmed("acme", 3, deadline).await;
    assert_eq!(refused(late).0, Cause::Blind, "closed is its default");
    assert!(deadline <= begun.elapsed());
    world.aggregator.resume();
    // The reserve is granted when its caller no longer waits, and the cancel after it releases it.
    let endpoints = Endpoints::of(&world.aggregator);
    let until = Instant::now() + SOON;
    while endpoints.metric("tollgate_hold_operations_total") < 2.0 {
        assert!(
            Instant::now() < until,
            "the reserve and its cancel are ruled"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(endpoints.metric("tollgate_copies_granted_total"), 3.0);
    endpoints.await_counted("licence", &Counted::default());
    // The agent that received the denial may not have received the lift yet.
    let all = loop {
        match theirs.reserve_confirmed("beta", 3, SOON).await {
            Ok(hold) => break hold,
            refusal => assert_eq!(refused(refusal), (Cause::Full, Scope::Resource)),
        }
        assert!(Instant::now() < until, "it is open again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(all.copies(), 3);
    assert_eq!(endpoints.metric("tollgate_copies_excess_total"), 0.0);
}
