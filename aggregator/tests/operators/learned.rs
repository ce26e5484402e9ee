//! What running agents learn of new limits, of which no denial tells them.

use tollgate_agent::{Agent, Cause, Rate};

use crate::amendments::{LIMITS, World};
use crate::support::{DEADLINE, until};

impl World {
    /// Puts other limits in force.
    fn push(&self, limits: &str) {
        let file = self.dir.path().join("limits.toml");
        std::fs::write(file, limits).expect("written");
        self.served.signal("HUP");
    }
}

/// The windows that a call's headers name.
fn policy(rate: &Rate) -> Option<String> {
    let headers = rate.peek("globex").expect("it has room").headers();
    headers.rate_limit_policy().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_open_a_resource_that_a_version_opens() {
    let world = World::new().await;
    let closed = "[rate.closed]\ntiers = []\n";
    let write = |more: &str| world.push(&format!("{LIMITS}{more}"));
    let before = world.version();
    write(closed);
    until("it is a version", || before < world.version()).await;
    let rate = world.agent.rate("closed");
    let denied = |rate: &Rate| rate.hit("acme").err().map(|denied| denied.cause());
    until("nobody may use it", || {
        denied(&rate) == Some(Cause::Inaccessible)
    })
    .await;
    write(&closed.replace("tiers = []", "rate = \"1000/s\""));
    until("it is open", || denied(&rate).is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_agent_learns_limits_that_deny_nobody() {
    let world = World::new().await;
    let before = policy(&world.export).expect("it is limited");
    assert!(before.contains("q=1000;w=1"), "{before}");
    world.push(&LIMITS.replace("1000/s", "2000/s"));
    until("the agent names the new limit", || {
        policy(&world.export).is_some_and(|now| now.contains("q=2000;w=1"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_a_kill_switch_are_unguarded_in_agents_that_ran_before() {
    let world = World::new().await;
    let before = policy(&world.search);
    assert!(before.is_some());
    world.done("namespaces kill api");
    until("the agent knows", || policy(&world.search).is_none()).await;
    for _ in 0..30 {
        let _ = world.search.hit("acme").expect("nothing is enforced");
    }
    until("they are ruled", || {
        world.served.metric("tollgate_hits_excess_total") == 25.0
    })
    .await;
    world.done("namespaces restore api");
    until("the agent knows that, too", || {
        policy(&world.search) == before
    })
    .await;
    let audit = world.audit();
    assert_eq!(audit["equal"], true, "{audit:#}");
    assert_eq!(audit["excess_by_cause"]["unguarded"], 25, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_of_a_domain_whose_limit_is_0_passes() {
    let closed = (0..20).map(|n| format!("domains.d{n}.rate = \"0/s\"\n"));
    let limits = LIMITS.replace(
        "rate = \"1000/s\"\n",
        &format!("rate = \"1000/s\"\n{}", closed.collect::<String>()),
    );
    let world = World::of(&limits, "").await;
    let denied = |rate: &Rate, domain: &str| rate.hit(domain).err().map(|denied| denied.cause());
    // A hundred first calls: each pair's of each of five agents.
    for n in 0..5 {
        let agent = Agent::builder()
            .name(format!("web-{n}"))
            .aggregator(world.served.agents.to_string())
            .build()
            .expect("good settings");
        let export = agent.rate("api.export");
        assert!(agent.ready(DEADLINE).await, "it knows the limits");
        for domain in (0..20).map(|n| format!("d{n}")) {
            assert_eq!(
                denied(&export, &domain),
                Some(Cause::Inaccessible),
                "{domain}"
            );
        }
        assert_eq!(denied(&export, "acme"), None);
        let _ = agent.shutdown(DEADLINE).await;
    }
    until("the others' calls are ruled", || {
        world.served.metric("tollgate_hits_granted_total") == 5.0
    })
    .await;
    assert_eq!(world.served.metric("tollgate_hits_excess_total"), 0.0);
    // The log knows the refused calls, and no denial of them.
    assert_eq!(
        world.served.json("/v1/denials")["denials"],
        serde_json::json!([])
    );
    let audit = world.audit();
    assert_eq!(audit["equal"], true, "{audit:#}");
    // A row opens one of them, a row closes another domain, and a document opens all but that one.
    let export = &world.export;
    world.done("limits set api.export --domain d7 --rate 500/s");
    until("the row opens it", || denied(export, "d7").is_none()).await;
    assert_eq!(denied(export, "d8"), Some(Cause::Inaccessible));
    world.done("limits set api.export --domain later --rate 0/s");
    // Only looked at, so that no denial refuses it.
    until("the row closes it", || export.peek("later").is_err()).await;
    assert_eq!(denied(export, "later"), Some(Cause::Inaccessible));
    world.push(LIMITS);
    until("the document opens it", || denied(export, "d8").is_none()).await;
    assert_eq!(denied(export, "later"), Some(Cause::Inaccessible));
    world.done("limits set api.export --domain later --remove");
    until("it has no row any more", || {
        denied(export, "later").is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_hold_of_a_domain_that_may_have_no_copies_passes() {
    let groups =
        "limit = 2\ndomains.acme = 0\ngroups.trial = { limit = 0, members = [\"new-1\"] }\n";
    let world = World::of(&LIMITS.replace("limit = 2\n", groups), "").await;
    let sandbox = world.agent.copies("sandbox");
    for domain in ["acme", "new-1"] {
        let refused = sandbox.reserve(domain, 1).expect_err("its first hold");
        assert_eq!(
            refused.denied().map(|denied| denied.cause()),
            Some(Cause::Full)
        );
    }
    assert!(sandbox.reserve("beta", 2).is_ok());
    world.done("limits set sandbox --domain acme --limit 1");
    until("the row opens it", || sandbox.reserve("acme", 1).is_ok()).await;
    assert!(sandbox.reserve("new-1", 1).is_err());
    world.done("limits set sandbox --domain later --limit 0");
    until("the row closes it", || sandbox.peek("later").is_err()).await;
    assert_eq!(world.audit()["equal"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_of_a_name_that_an_allow_list_does_not_have_passes() {
    let list = "[rate.\"api.export\"]\ntiers = []\ndomains.acme.rate = \"1000/s\"\n";
    let world = World::of(
        &LIMITS.replace("[rate.\"api.export\"]\nrate = \"1000/s\"\n", list),
        "",
    )
    .await;
    let export = &world.export;
    for n in 0..100 {
        let denied = export
            .hit(&format!("made-up-{n}"))
            .expect_err("its first call");
        assert_eq!(denied.cause(), Cause::Inaccessible);
    }
    let _ = export.hit("acme").expect("it is listed");
    world.done("limits set api.export --domain globex --rate 5/s");
    until("the row lets it in", || export.peek("globex").is_ok()).await;
    world.done("limits set api.export --domain globex --remove");
    until("it is listed no more", || export.peek("globex").is_err()).await;
    until("calls are ruled", || {
        world.served.metric("tollgate_hits_granted_total") == 1.0
    })
    .await;
    assert_eq!(world.denials(&[]), Vec::<serde_json::Value>::new());
    assert_eq!(world.audit()["equal"], true);
}
