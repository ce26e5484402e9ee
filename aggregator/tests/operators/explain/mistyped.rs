//! A mistyped code or resource does not look like an answer.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_resource_or_code_is_no_answer() {
    let world = World::new().await;
    let found = world.explain(&["abc"]);
    assert_eq!(found["reason"], "no_limit", "{found:#}");
    let text = found["sentences"][0].as_str().expect("a sentence");
    assert!(
        text.contains("abc by all domains was not denied: no limits of a resource of that name"),
        "{text}"
    );
    // A resource that is known, without and with a global limit.
    let text = |resource: &str| world.explain(&[resource])["sentences"][0].to_string();
    assert!(text("api.search").contains("was not denied: it has no global limit"));
    assert!(text("api.wide").ends_with("was not denied\""));
    // An aggregator's answer is text, not JSON.
    let url = format!("http://{}", world.served.http);
    let (exit, stdout, stderr) = run(world.dir.path(), &["explain", "9-9-9-9", "--url", &url]);
    assert_eq!(exit, 1, "{stdout}{stderr}");
    assert_eq!(
        stderr.trim_end(),
        "tollgate: 9-9-9-9: the log has no such partition"
    );
}
