//! Acts on copies: a hold that an operator ends, and a ban of a domain that holds some.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_ended_by_an_operator_stays_ended() {
    let world = World::new().await;
    let sandbox = world.agent.copies("sandbox");
    let kept = sandbox.reserve("acme", 1).expect("room");
    let ended = sandbox.reserve("acme", 1).expect("room");
    assert_eq!(ended.confirmed().await, Confirmation::Confirmed);
    let holds = world.served.await_json("/v1/holds", |view| {
        view["holds"]
            .as_array()
            .is_some_and(|holds| holds.len() == 2)
    });
    let newest = holds["holds"][1]["number"].as_u64().expect("a number");
    let release = "holds release --resource sandbox";
    let (code, out) = world.operator(&format!("{release} web#999"));
    assert_eq!(code, 1, "{out}");
    let (code, out) = world.operator(release);
    assert_eq!(code, 64, "{out}");
    world.done(&format!("{release} web#{newest}"));
    let one = |view: &Value| {
        view["holds"]
            .as_array()
            .is_some_and(|holds| holds.len() == 1)
    };
    world.served.await_json("/v1/holds", one);
    // After two full heartbeats it is still ended.
    let heartbeats = world.served.metric("tollgate_heartbeats_total");
    until("heartbeats have come", || {
        heartbeats + 4.0 <= world.served.metric("tollgate_heartbeats_total")
    })
    .await;
    assert!(one(&world.served.json("/v1/holds")));
    assert_eq!(
        world
            .served
            .metric("tollgate_holds_ended_by_operator_total"),
        1.0
    );
    world.done(&format!("{release} --domain acme"));
    world.served.await_json("/v1/holds", |view| {
        view["holds"].as_array().is_some_and(Vec::is_empty)
    });
    drop((kept, ended));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_banned_domain_gets_no_copies_and_keeps_what_it_holds() {
    let world = World::new().await;
    let sandbox = world.agent.copies("sandbox");
    let one = sandbox.reserve("acme", 1).expect("room");
    assert_eq!(one.confirmed().await, Confirmation::Confirmed);
    let url = format!("http://{}", world.served.http);
    world.refuses("unban sandbox acme", 1, "it is not banned");
    world.refuses("ban sandbocks acme", 65, "rate or copies");

    world.done("ban sandbox acme --for 1h");
    until("it is denied", || sandbox.peek("acme").is_err()).await;
    assert!(sandbox.peek("globex").is_ok());
    let Err(Refused::Denied(denied)) = sandbox.reserve("acme", 1) else {
        panic!("it is banned");
    };
    assert_eq!(denied.cause(), Cause::Banned);
    assert!(denied.retry_after().is_some_and(|wait| {
        (Duration::from_secs(3_500)..Duration::from_secs(3_601)).contains(&wait)
    }));
    assert_eq!(world.served.json("/v1/holds")["holds"][0]["copies"], 1);
    // Releasing it frees nothing.
    drop(one);
    world.served.await_json("/v1/holds", |view| {
        view["holds"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(world.denials(&["--cause", "banned"]).len(), 1);
    assert!(sandbox.peek("acme").is_err());
    let code = denied.code().expect("an operator did it").to_string();
    let (exit, stdout, error) = run(world.dir.path(), &["explain", &code, "--url", &url]);
    assert!(
        exit == 0 && stdout.contains("ban sandbox acme until"),
        "{stdout}{error}"
    );
    assert_eq!(world.audit()["equal"], true);

    world.done("unban sandbox acme");
    until("it is let in", || sandbox.peek("acme").is_ok()).await;
    assert!(sandbox.reserve("acme", 2).is_ok());
    assert_eq!(world.audit()["equal"], true);
}
