//! An audit of what operators did: remarks on what the model cannot check.

use super::*;

/// The independent model knows no switches. What it cannot check is a remark, not a difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_remarks_on_what_the_model_cannot_check() {
    let world = World::new().await;
    world.fill("acme", 5).await;
    world.done("ban api.export mallory");
    let push = |limits: &str| {
        let before = world.version();
        std::fs::write(world.dir.path().join("limits.toml"), limits).expect("written");
        world.served.signal("HUP");
        let is_new = |limits: &Value| Some(before) < limits["version"].as_u64();
        world.served.await_json("/v1/limits", is_new);
    };
    let export = "[rate.\"api.export\"]\nrate = \"1000/s\"\n";
    push(&LIMITS.replace(export, ""));
    // A version limits another resource by copies for a while.
    push(&LIMITS.replace(
        "[rate.\"api.search\"]\ntiers",
        "[copies.\"api.search\"]\nlimit = 1\n#",
    ));
    push(&LIMITS.replace(export, ""));
    let hits = world.served.metric("tollgate_hits_granted_total");
    until("the agent knows the limits", || {
        world.search.hit("globex").is_ok()
    })
    .await;
    until("it is ruled", || {
        hits < world.served.metric("tollgate_hits_granted_total")
    })
    .await;
    let kinds = |report: &Value| -> Vec<String> {
        let remarks = report["remarks"].as_array().expect("a list").iter();
        let kinds = remarks.map(|remark| remark["kind"].as_str().expect("a kind").to_owned());
        kinds.filter(|kind| kind.starts_with("model")).collect()
    };
    let report = world.audit();
    assert_eq!(kinds(&report), ["model_copies"], "{report:#}");
    // The hits of acme came before.
    let checked = report["model"]["entries"].as_u64();
    assert!(Some(0) < checked, "{report:#}");
    world.done("namespaces kill api");
    until("the ban is lifted", || world.denials(&[]).is_empty()).await;
    let report = world.audit();
    assert!(
        kinds(&report).contains(&"model_unenforced".to_owned()),
        "{report:#}"
    );
}
