//! Copies through a real aggregator: agents hold, are confirmed and denied, die, and return; and `tollgate holds`
//! lists the holds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, Confirmation, Copies, Hold, Refused, SeizeError};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};

use crate::support::{DEADLINE, Dealer, Served, directory, run, run_line, serve, until};

const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 2
groups.probation = { limit = 1, members = ["new"] }
[copies.gpu]
limit = 1
reserve = "strict"
"#;

async fn agent(served: &Served, name: &str) -> Agent {
    agent_of(served, name, &["sandbox", "gpu"]).await
}

/// An agent that has received the limits of these resources.
async fn agent_of(served: &Served, name: &str, resources: &[&str]) -> Agent {
    let agent = Agent::builder()
        .name(name)
        .aggregator(served.agents.to_string())
        .build()
        .expect("good settings");
    for resource in resources {
        let _ = agent.copies(resource);
    }
    assert!(agent.ready(DEADLINE).await, "{name} hears the aggregator");
    agent
}

const BLACKLIST: &str = include_str!("../../../config/cookbook/blacklist.toml");

fn is_denied(copies: &Copies, domain: &str) -> bool {
    matches!(copies.peek(domain), Err(Refused::Denied(_)))
}

/// The holds, as the command lists them for programs: resource, domain, agent, copies, state.
fn listed(served: &Served, more: &[&str]) -> Vec<(String, String, String, u64, String)> {
    let url = format!("http://{}", served.http);
    let args = [&["holds", "--url", &url, "--format", "json"], more].concat();
    let (code, stdout, stderr) = run(Path::new("."), &args);
    assert_eq!((code, &*stderr), (0, ""));
    let row = |line: &str| {
        let hold: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(hold["schema"], "tollgate.holds/1");
        let text = |field: &str| hold[field].as_str().unwrap_or_default().to_owned();
        let copies = hold["copies"].as_u64().expect("copies");
        (
            text("resource"),
            text("domain"),
            text("agent"),
            copies,
            text("state"),
        )
    };
    stdout.lines().map(row).collect()
}

fn row(of: (&str, &str, &str, u64, &str)) -> (String, String, String, u64, String) {
    (of.0.into(), of.1.into(), of.2.into(), of.3, of.4.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_held_by_one_process_are_denied_to_another() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (web, job) = (agent(&served, "web").await, agent(&served, "job").await);
    let (ours, theirs) = (web.copies("sandbox"), job.copies("sandbox"));

    let hold = ours.reserve("acme", 2).expect("room");
    assert_eq!(hold.confirmed().await, Confirmation::Confirmed);
    until("acme is denied elsewhere", || is_denied(&theirs, "acme")).await;
    let of_group = ours.reserve("new", 1).expect("room");
    assert_eq!(of_group.confirmed().await, Confirmation::Confirmed);
    until("the group is denied elsewhere", || {
        is_denied(&theirs, "new")
    })
    .await;
    assert!(!is_denied(&theirs, "globex"));

    let rows = listed(&served, &[]);
    let expected = [
        row(("sandbox", "acme", "web", 2, "held")),
        row(("sandbox", "new", "web", 1, "held")),
    ];
    assert_eq!(rows, expected);
    assert_eq!(listed(&served, &["--group", "probation"]), expected[1..]);
    assert_eq!(listed(&served, &["--agent", "job"]), []);
    assert_eq!(
        listed(&served, &["--domain", "acme", "--limit", "5"]),
        expected[..1]
    );
    let url = format!("http://{}", served.http);
    let (code, text, _) = run(Path::new("."), &["holds", "--url", &url]);
    assert_eq!(code, 0);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let columns = [
        "AGE", "RESOURCE", "DOMAIN", "GROUP", "COPIES", "STATE", "AGENT",
    ];
    assert_eq!(lines[0], columns, "{text}");
    assert_eq!(lines[2][2..6], ["new", "probation", "1", "held"], "{text}");
    assert!(lines[2][6].starts_with("web#"), "{text}");
    assert_eq!(listed(&served, &["--state", "held"]), expected);
    assert_eq!(listed(&served, &["--state", "staged"]), []);
    assert_eq!(listed(&served, &["--state", "lost"]), []);
    let (code, one, stderr) = run(Path::new("."), &["holds", "--url", &url, "--limit", "1"]);
    assert_eq!((code, one.lines().count()), (0, 2));
    assert!(stderr.contains("there are more; see --limit"), "{stderr}");

    drop(hold);
    until("acme is open again", || !is_denied(&theirs, "acme")).await;
    drop(of_group);
    until("the group is open again", || !is_denied(&theirs, "new")).await;
    served.await_json("/v1/holds", |view| {
        view["holds"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(served.metric("tollgate_copies_excess_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_copies_are_granted_before_use_within_the_limit() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (web, job) = (agent(&served, "web").await, agent(&served, "job").await);
    let (ours, theirs) = (web.copies("gpu"), job.copies("gpu"));
    let (one, other) = tokio::join!(
        ours.reserve_confirmed("acme", 1, DEADLINE),
        theirs.reserve_confirmed("acme", 1, DEADLINE),
    );
    assert!(
        one.is_ok() != other.is_ok(),
        "one of two: {one:?} {other:?}"
    );
    assert_eq!(served.metric("tollgate_copies"), 1.0);
    drop((one, other));
    served.await_json("/v1/holds", |view| {
        view["holds"].as_array().is_some_and(Vec::is_empty)
    });
    // The aggregator knows first; the lift of the pair's denial is still on its way.
    until("acme is open again", || !is_denied(&theirs, "acme")).await;
    let again = theirs.reserve_confirmed("acme", 1, DEADLINE).await;
    assert!(again.is_ok(), "{again:?}");
}

/// An agent that takes two copies for `acme`, in a hold of this number, and then is silent for ever.
async fn hold_and_die(served: &Served, name: &str, number: u64) {
    let mut dead = Dealer::named(served.agents, name, 1).await;
    let (_, partitions, _) = dead.hello().await;
    let sender = dead.sender(1);
    let op = HoldOp {
        resource: 0,
        number,
        at: sender.sent,
        action: HoldAction::Hold {
            domain: "acme",
            copies: 2,
        },
    };
    let mut writer = Writer::new();
    write_holds(&mut writer, &sender, &["sandbox"], [op].into_iter());
    let partition = partition_of_resource("sandbox", partitions);
    dead.append(partition, writer.as_slice()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_means_the_hold_that_counts_after_a_crash() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let web = agent(&served, "web").await;
    let hold = web.copies("sandbox").reserve("new", 1).expect("room");
    assert_eq!(hold.confirmed().await, Confirmation::Confirmed);
    let view = served.json("/v1/holds");
    let number = view["holds"][0]["number"].as_u64().expect("a number");
    // The process that had the name before.
    hold_and_die(&served, "web", number).await;
    let both_listed = |view: &serde_json::Value| {
        let holds = view["holds"].as_array().expect("a list");
        holds.iter().filter(|of| of["number"] == number).count() == 2
    };
    served.await_json("/v1/holds", both_listed);
    let web_hold = format!("web#{number}");
    let (code, output) = release(&served, &web_hold);
    assert_eq!(code, 65, "both count: {output}");
    for text in ["new: held, ", "acme: held, ", " old", "expected --domain"] {
        assert!(output.contains(text), "{text}: {output}");
    }
    served.await_json("/v1/holds", |view| {
        let holds = view["holds"].as_array().expect("a list");
        holds.iter().any(|of| of["state"] == "lost")
    });
    let (code, output) = release(&served, &web_hold);
    assert_eq!(code, 0, "{output}");
    assert_eq!(listed(&served, &["--state", "held"]), []);
    assert_eq!(listed(&served, &["--state", "lost"]).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_dead_process_are_free_after_its_timeout() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let job = agent(&served, "job").await;
    let theirs = job.copies("sandbox");
    let taken = Instant::now();
    hold_and_die(&served, "dead", 1).await;
    until("acme is denied", || is_denied(&theirs, "acme")).await;
    until("acme is back", || !is_denied(&theirs, "acme")).await;
    let back_after = taken.elapsed();
    // Four ticks of half a second; the first may come at once, and late itself, so that the last is nearer to it. A
    // busy machine may be late.
    assert!(Duration::from_millis(1_250) <= back_after, "{back_after:?}");
    println!("copies_back_ms {}", back_after.as_millis());
    assert_eq!(served.metric("tollgate_agents_gone_total"), 1.0);
    assert_eq!(served.metric("tollgate_copies_back_total"), 2.0);
    assert_eq!(served.metric("tollgate_copies"), 0.0);
    assert!(theirs.reserve("acme", 2).is_ok());
}

/// Waits until so many copies are staged; returns all holds.
fn await_staged(served: &Served, count: usize) -> serde_json::Value {
    served.await_json("/v1/holds", |view| {
        let holds = view["holds"].as_array().expect("a list");
        holds.iter().filter(|of| of["state"] == "staged").count() == count
    })
}

/// An operator ends holds of `sandbox`: exit code and output.
fn release(served: &Served, what: &str) -> (i32, String) {
    let url = format!("http://{}", served.http);
    let line = format!("holds release --resource sandbox --url {url} {what} --reason test");
    let (code, out, err) = run_line(Path::new("."), &line);
    (code, out + &err)
}

/// A release that cannot be done changes nothing.
fn refused_releases_change_nothing(served: &Served, first: &str) {
    let first = format!("--transfer {first}");
    let other = format!("--transfer {}", "0".repeat(32));
    let cases: [(&str, i32, &str); 6] = [
        ("--transfer ab", 64, "expected 32 hexadecimal digits"),
        (&other, 1, "nothing is staged under 0000"),
        (&format!("{first} web#1"), 64, "cannot be used with"),
        (&format!("{first} --domain acme"), 64, "cannot be used with"),
        (&format!("{first} --agent web"), 64, "cannot be used with"),
        ("", 64, "--domain, --agent or --transfer"),
    ];
    let before = served.json("/v1/limits");
    for (what, code, text) in cases {
        let (found, output) = release(served, what);
        assert_eq!(found, code, "{what}: {output}");
        assert!(output.contains(text), "{what}: {output}");
    }
    assert_eq!(served.json("/v1/limits"), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_releases_staged_copies_by_id_or_domain() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let web = agent(&served, "web").await;
    let sandbox = web.copies("sandbox");
    let mut hold = sandbox.reserve("acme", 2).expect("room");
    assert_eq!(hold.confirmed().await, Confirmation::Confirmed);
    let ids = [(); 2].map(|()| hold.transfer(1, Duration::from_secs(86_400)));
    let ids = ids.map(|id| id.expect("it counts"));
    let view = await_staged(&served, 2);
    let texts = ids.map(|id| id.to_string());
    assert!(texts.iter().any(|id| view["holds"][0]["transfer"] == **id));

    let first = &*texts[0];
    refused_releases_change_nothing(&served, first);
    await_staged(&served, 2);

    let (code, output) = release(&served, &format!("--transfer {first}"));
    assert_eq!(code, 0, "{output}");
    let expected = format!("release sandbox transfer {first}");
    assert!(output.contains(&expected), "{output}");
    await_staged(&served, 1);
    let seized = sandbox.seize(ids[0]).await;
    assert!(matches!(seized, Err(SeizeError::Unknown)), "{seized:?}");
    let (code, output) = release(&served, "--domain acme");
    assert_eq!(code, 0, "{output}");
    let expected = "all of domain acme, agent *, and staged copies";
    assert!(output.contains(expected), "{output}");
    await_staged(&served, 0);
    assert_eq!(served.metric("tollgate_copies"), 0.0);
    assert_eq!(
        served.metric("tollgate_transfers_ended_by_operator_total"),
        2.0
    );
    assert!(sandbox.reserve("acme", 2).is_ok());
    let audit = "audit --journal tollgate-data --model all";
    let (code, output, err) = run_line(dir.path(), audit);
    assert_eq!(code, 0, "{output}{err}");
    assert!(
        output.contains(&format!("transfer {first}, by")),
        "{output}{err}"
    );
}

#[test]
fn invalid_commands_end_with_the_documented_exit_codes() {
    let here = Path::new(".");
    let (code, _, stderr) = run(here, &["holds", "--url", "http://127.0.0.1:1"]);
    assert_eq!(code, 69, "{stderr}");
    let (code, _, stderr) = run(here, &["holds", "--resource", "a*"]);
    assert_eq!(code, 64, "{stderr}");
    assert!(
        stderr.contains("'a*' for '--resource <RESOURCE>'"),
        "{stderr}"
    );
    let (code, _, _) = run(here, &["holds", "--url", "nowhere"]);
    assert_eq!(code, 64);
    for (flag, value, expected) in [
        ("--limit", "0", "1..=4294967295"),
        ("--state", "idle", "held, lost, staged"),
    ] {
        let (code, _, stderr) = run(here, &["holds", flag, value]);
        assert_eq!(code, 64, "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cookbooks_blacklist_limits_an_agent_as_documented() {
    let dir = directory(&format!("version = 1\nrules = 2\n{BLACKLIST}"));
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let agent = agent_of(&served, "web", &["cookbook.blacklist"]).await;
    let copies = agent.copies("cookbook.blacklist");
    let (_, table) = BLACKLIST
        .split_once("# What happens, from top to bottom:")
        .expect("a table");
    let mut held: BTreeMap<&str, Vec<Hold>> = BTreeMap::new();
    let mut played = 0;
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        match words[..] {
            [] => continue,
            [who, "takes", requested, "gets", gets, ..] => {
                let (requested, gets): (u32, u32) = (number(requested), number(gets));
                // Copies that were released can be taken as soon as the agent has received that.
                if 0 < gets {
                    until(line, || !is_denied(&copies, who)).await;
                }
                let taken = copies
                    .reserve_confirmed_up_to(who, 1..=requested, DEADLINE)
                    .await;
                let got = taken.as_ref().map_or(0, Hold::copies);
                assert_eq!(got, gets, "{line}: {taken:?}");
                held.entry(who).or_default().extend(taken);
            }
            [who, "gives", copies] => {
                let hold = held.get_mut(who).and_then(|holds| holds.first_mut());
                let hold = hold.expect("it holds something");
                hold.release(number(copies)).expect("so many");
            }
            _ => panic!("not a line of the table: {line}"),
        }
        played += 1;
    }
    assert_eq!(played, 7);
    assert_eq!(served.metric("tollgate_copies_excess_total"), 0.0);
}

fn number(word: &str) -> u32 {
    word.parse().unwrap_or_else(|_| panic!("{word}: a number"))
}
