//! Domains as keyed hashes, end to end: calls of agents with a domain key are ruled and announced under hashes, which
//! anybody with the name and the key can find, and no name is in the log.

use std::path::Path;

use tollgate_agent::{Agent, Cause, Refused};

use crate::support::{DEADLINE, Served, directory, run, run_line, serve, until};

const LIMITS: &str = r#"
version = 1
rules = 2
[plans]
gold = ["midas-corp"]
[rate."api.search"]
tiers = [{ limit = 5, window = "10m", active = "10m" }]
[rate."api.search".plans.gold]
tiers = [{ limit = 100, window = "10m", active = "10m" }]
[rate."api.search".domains.croesus-inc]
tiers = [{ limit = 2, window = "10m", active = "10m" }]
[rate."api.search".domains.shut-gmbh]
rate = "0/s"
[rate."web.login"]
rate = "2/h"
addresses = { v4 = 24 }
domains."198.51.100.0/24".rate = "0/s"
[copies.sandbox]
limit = 2
domains = { croesus-inc = 1 }
"#;

const KEY: &str = "8f14e45fceea167a5a36dedd4bea2543";

/// The names that must not be found anywhere.
const NAMES: [&str; 4] = ["midas-corp", "croesus-inc", "acme-ltd", "shut-gmbh"];

fn agent(dir: &Path, served: &Served) -> Agent {
    Agent::builder()
        .name("web")
        .aggregator(served.agents.to_string())
        .domain_key_file(dir.join("domain.key"))
        .build()
        .expect("good settings")
}

fn write_key(dir: &Path, name: &str, key: &str) {
    let path = dir.join(name);
    std::fs::write(&path, key).expect("a file");
    set_mode(&path, 0o600);
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("set");
}

/// Files below a directory that have any of the names in them.
fn with_names(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            with_names(&path, found);
            continue;
        }
        let bytes = std::fs::read(&path).expect("a file");
        for name in NAMES {
            if bytes
                .windows(name.len())
                .any(|part| part == name.as_bytes())
            {
                found.push(format!("{name} in {}", path.display()));
            }
        }
    }
}

/// Runs commands on an aggregator: exit code and output.
struct Operator<'a> {
    dir: &'a Path,
    served: &'a Served,
}

impl Operator<'_> {
    fn without_key(&self, command: &str) -> (i32, String) {
        let line = format!("{command} --url http://{}", self.served.http);
        let (code, out, err) = run_line(self.dir, &line);
        (code, out + &err)
    }

    fn with_key(&self, command: &str) -> (i32, String) {
        self.without_key(&format!("{command} --domain-key domain.key"))
    }
}

fn lists_have_hashes_and_no_names(operator: &Operator<'_>) {
    let (_, all) = operator.without_key("denials");
    assert_eq!(all.matches("h~").count(), 4, "{all}");
    for list in ["denials", "holds", "top", "limits"] {
        let (_, answer) = operator.served.get(&format!("/v1/{list}"));
        for name in NAMES {
            assert!(!answer.contains(name), "{name} in {answer}");
        }
    }
}

/// `denied` is the code of the denial of `acme-ltd`.
fn lookups_by_name_need_the_key(operator: &Operator<'_>, denied: &str) {
    let (code, one) = operator.with_key("denials --domain acme-ltd");
    assert_eq!((code, one.matches("h~").count()), (0, 1), "{one}");
    let (_, none) = operator.without_key("denials --domain acme-ltd");
    assert!(none.starts_with("no denials"), "{none}");
    let (_, held) = operator.with_key("holds --domain croesus-inc");
    assert!(held.contains("h~"), "{held}");
    let (_, shown) = operator.with_key("pairs show api.search midas-corp");
    assert!(shown.contains("100 of 100 hits"), "{shown}");
    let (code, why) = operator.with_key("explain api.search shut-gmbh");
    assert!(code == 0 && why.contains("refused by agents"), "{why}");
    let (code, why) = operator.with_key("explain api.search acme-ltd");
    assert!(code == 0 && why.contains(denied), "{why}");
    let (_, why) = operator.without_key("explain api.search acme-ltd");
    assert!(!why.contains(denied), "{why}");
}

/// With the key an act applies to the hash. Without it the act would apply to nobody, and leave the name in the log.
fn acts_by_name_need_the_key(operator: &Operator<'_>) {
    let (code, output) = operator.with_key("reset api.search acme-ltd --reason test");
    assert!(code == 0 && output.contains("h~"), "{output}");
    for act in [
        "ban --everywhere acme-ltd --reason test",
        "limits set api.search --domain acme-ltd --rate 9/m --reason test",
    ] {
        let (code, output) = operator.without_key(act);
        assert!(code != 0 && output.contains("--domain-key"), "{output}");
    }
}

fn the_journal_has_no_names_and_is_read_by_name(dir: &Path) {
    let mut found = Vec::new();
    with_names(&dir.join("tollgate-data"), &mut found);
    assert!(found.is_empty(), "{found:?}");
    let on_journal = |command: &str| run_line(dir, &format!("{command} --journal tollgate-data"));
    let (code, out, _) = on_journal("explain api.search croesus-inc --domain-key domain.key");
    assert!(code == 0 && out.contains("tier 1"), "{out}");
    let (code, out, err) = on_journal("audit --model all");
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = on_journal(
        "backtest --limits limits.toml --domain croesus-inc --domain-key domain.key --format json",
    );
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
    let granted = report["results"][0]["granted"].as_u64();
    assert_eq!((code, granted), (0, Some(2)), "by its override: {out}{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_key_hides_names_and_lookups_by_name_work() {
    let dir = directory(LIMITS);
    let dir = dir.path();
    write_key(dir, "domain.key", KEY);
    let served = serve(dir, &["--domain-key", "domain.key"]);
    served.await_ready();
    let agent = agent(dir, &served);
    let (search, sandbox) = (agent.rate("api.search"), agent.copies("sandbox"));
    assert!(agent.ready(DEADLINE).await, "it hears the aggregator");

    let denied = search.hit("shut-gmbh").expect_err("its first call");
    assert_eq!(denied.cause(), Cause::Inaccessible);
    // The default, a plan and an override of the document apply, by the hashes of their domains.
    for (domain, limit) in [("acme-ltd", 5), ("croesus-inc", 2), ("midas-corp", 100)] {
        for _ in 0..limit {
            let _ = search.hit(domain).expect("it has room");
        }
        until(domain, || search.peek(domain).is_err()).await;
    }
    let denied = search.hit("acme-ltd").expect_err("its window is full");
    let hold = sandbox.reserve("croesus-inc", 1).expect("it has room");
    until("its own limit is reached", || {
        matches!(sandbox.peek("croesus-inc"), Err(Refused::Denied(_)))
    })
    .await;
    assert_eq!(sandbox.held("croesus-inc"), 1);
    assert!(sandbox.peek("acme-ltd").is_ok());

    let code = denied.code().expect("the aggregator denied it");
    let operator = Operator {
        dir,
        served: &served,
    };
    lists_have_hashes_and_no_names(&operator);
    lookups_by_name_need_the_key(&operator, &code.to_string());
    acts_by_name_need_the_key(&operator);
    until("it is reset", || search.peek("acme-ltd").is_ok()).await;
    drop(hold);
    agent.shutdown(DEADLINE).await;
    drop(served);

    the_journal_has_no_names_and_is_read_by_name(dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_typed_is_hashed_as_agents_hash_it() {
    let dir = directory(LIMITS);
    let dir = dir.path();
    write_key(dir, "domain.key", KEY);
    let served = serve(dir, &["--domain-key", "domain.key"]);
    served.await_ready();
    let agent = agent(dir, &served);
    let login = agent.rate("web.login");
    assert!(agent.ready(DEADLINE).await, "it hears the aggregator");
    let denied = login.hit("198.51.100.7").expect_err("its first call");
    assert_eq!(denied.cause(), Cause::Inaccessible);
    for _ in 0..2 {
        let _ = login.hit("203.0.113.7").expect("it has room");
    }
    until("its network is denied", || {
        login.peek("203.0.113.8").is_err()
    })
    .await;

    let url = format!("http://{}", served.http);
    let run_command = |args: &[&str]| {
        let key = ["--url", &url, "--domain-key", "domain.key"];
        let (code, out, err) = run(dir, &[args, &key].concat());
        (code, out + &err)
    };
    let typed = "203.0.113.9";
    let (code, shown) = run_command(&["pairs", "show", "web.login", typed]);
    assert!(code == 0 && shown.contains("2 of 2"), "{shown}");
    let (_, listed) = run_command(&["denials", "--resource", "web.login", "--domain", typed]);
    assert!(listed.contains("h~"), "{listed}");
    let (code, why) = run_command(&["explain", "web.login", typed]);
    assert!(code == 0 && why.contains("was denied"), "{why}");
    let reason = ["--reason", "a test"];
    // Agents hash its network, of which the aggregator cannot know that the address is in it.
    let (code, output) = run_command(&[&["ban", "--everywhere", typed], &reason[..]].concat());
    let expected = "resource \"web.login\" limits it as \"203.0.113.0/24\", expected a ban on each";
    assert!(code == 65 && output.contains(expected), "{output}");
    let act = |verb: &str| run_command(&[&[verb, "web.login", typed], &reason[..]].concat());
    let (code, output) = act("reset");
    assert_eq!(code, 0, "{output}");
    until("it is reset", || login.peek("203.0.113.7").is_ok()).await;
    let (code, output) = act("ban");
    assert_eq!(code, 0, "{output}");
    until("its network is banned", || {
        login.hit("203.0.113.8").is_err()
    })
    .await;
    drop(served);
    let journal = ["explain", "web.login", typed, "--journal", "tollgate-data"];
    let key = ["--domain-key", "domain.key"];
    let (code, why, err) = run(dir, &[&journal[..], &key].concat());
    assert!(code == 0 && why.contains("had banned it"), "{why}{err}");
}

#[test]
fn rows_that_cannot_be_hashed_are_named_by_their_lines() {
    let dir = directory(LIMITS);
    let dir = dir.path();
    write_key(dir, "domain.key", KEY);
    let served = serve(dir, &["--domain-key", "domain.key"]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    let import = |rows: &str, more: &[&str]| {
        let table = format!("resource,domain,rate\n{rows}");
        std::fs::write(dir.join("rows.csv"), table).expect("a file");
        let import = [
            "limits", "import", "rows.csv", "--reason", "x", "--url", &url,
        ];
        let (code, out, err) = run(dir, &[&import[..], more].concat());
        (code, out + &err)
    };
    let key = ["--domain-key", "domain.key"];
    let (code, text) = import("api.search,zed,9/s\n", &[]);
    let expected = "rows.csv:2: domain \"zed\": agents use hashes";
    assert!(code == 65 && text.contains(expected), "{text}");
    let (code, text) = import("api.search,zed,9/s\nweb.login,10.0.0.0/8,9/s\n", &key);
    assert!(
        code == 65 && text.contains("rows.csv:3: \"10.0.0.0/8\" is a network"),
        "{text}"
    );
    let set = [
        "limits",
        "set",
        "web.login",
        "--rate",
        "9/s",
        "--reason",
        "x",
    ];
    let set_of = |domain: &str| {
        let more = ["--domain", domain, "--url", &url];
        let (code, out, err) = run(dir, &[&set[..], &more, &key].concat());
        (code, out + &err)
    };
    // An address is hashed as its network: both name one row.
    let (code, text) = set_of("203.0.113.9");
    assert_eq!(code, 0, "{text}");
    let (code, text) = import("api.search,zed,9/s\nweb.login,203.0.113.0/24,8/s\n", &key);
    assert_eq!(code, 0, "{text}");
    assert_eq!(served.json("/v1/limits")["rows"], 2);
}

#[test]
fn invalid_keys_and_documents_are_refused() {
    let dir = directory(LIMITS);
    let dir = dir.path();
    write_key(dir, "short.key", "secret\n");
    write_key(dir, "domain.key", KEY);
    write_key(dir, "other.key", &KEY.replace('8', "9"));
    let check = |args: &[&str]| {
        let (code, out, err) = run(dir, &[&["check", "limits.toml"], args].concat());
        (code, out + &err)
    };
    let (code, text) = check(&["--domain-key", "short.key"]);
    assert_eq!(
        (code, &*text),
        (
            65,
            "tollgate: domain key short.key: has 6 bytes, expected 32 to 4096 drawn at random, as \
             `openssl rand -hex 32` draws\n"
        )
    );
    let (code, text) = check(&["--domain-key", "nowhere.key"]);
    assert!(code == 66 && text.contains("nowhere.key"), "{text}");
    let (code, _, err) = run(
        dir,
        &[
            "serve",
            "--limits",
            "limits.toml",
            "--domain-key",
            "short.key",
        ],
    );
    assert!(code == 65 && err.contains("has 6 bytes"), "{err}");

    assert_eq!(check(&["--domain-key", "domain.key"]).0, 0);
    let key = dir.join("other.key");
    set_mode(&key, 0o644);
    let exposed = "other.key: mode 0644 lets every user of this machine read a secret";
    let (code, text) = check(&["--domain-key", "other.key"]);
    assert!(code == 65 && text.contains(exposed), "{text}");
    let built = Agent::builder().domain_key_file(&key).build();
    let fault = built.map(drop).expect_err("exposed").to_string();
    assert!(fault.contains(exposed), "{fault}");
    set_mode(&key, 0o640);
    let hash = "h~012345~0123456789abcdef0123456789abcdef";
    let mixed = LIMITS.replace("midas-corp", hash);
    std::fs::write(dir.join("limits.toml"), &mixed).expect("a file");
    let (code, text) = check(&[]);
    assert!(
        code == 65 && text.contains("is a name beside domains"),
        "{text}"
    );
    let (code, text) = check(&["--domain-key", "other.key"]);
    assert!(
        code == 65 && text.contains("under the key 012345"),
        "{text}"
    );
}
