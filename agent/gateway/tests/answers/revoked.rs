//! Tests of holds that their services should give up: a renewal is how a service learns of it.

use tollgate_agent::Scope;
use tollgate_agent::testing::Ruling;

use crate::{Running, text_of};

/// Takes three copies, has the aggregator rule on them, and renews them. Returns the answer to the renewal, and how
/// many holds are left.
async fn renewed_after(gives_back: bool, ruling: Ruling) -> (bool, usize) {
    let running = Running::start().await;
    let kit = &running.kit;
    kit.copies_limit("sandbox", 3);
    if gives_back {
        kit.give_back_excess("sandbox");
    }
    let hold =
        r#"{"holds": [{"resource": "sandbox", "domain": "acme", "copies": 3, "lease_ms": 60000}]}"#;
    let taken = running.post(hold).await;
    let renew = format!(
        r#"{{"renew": [{{"hold": "{}", "lease_ms": 60000}}]}}"#,
        text_of(&taken, "hold")
    );
    let renewed = running.post(&renew).await;
    assert!(renewed.contains(r#""renewed":[true]"#), "{renewed}");
    let number = kit.held().first().expect("it is held").number;
    kit.rule("sandbox", number, ruling);
    let renewed = running.post(&renew).await;
    let is_renewed = renewed.contains(r#""renewed":[true]"#);
    let again = running.post(&renew).await;
    assert_eq!(again.contains(r#""renewed":[true]"#), is_renewed, "{again}");
    let held = kit.held().len();
    running.end().await;
    (is_renewed, held)
}

#[tokio::test]
async fn a_renewal_gives_excess_back_where_the_limits_ask_for_it() {
    let excess = || Ruling::Excess(1, Scope::Pair);
    assert_eq!(renewed_after(true, excess()).await, (false, 0));
    assert_eq!(renewed_after(false, excess()).await, (true, 1));
    assert_eq!(renewed_after(true, Ruling::Confirmed).await, (true, 1));
}
