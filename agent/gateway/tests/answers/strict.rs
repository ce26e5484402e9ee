//! Tests of copies of strict resources: granted, refused, and without a verdict in time.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate_agent::Scope;
use tollgate_agent::testing::{Ruling, TestAgent};

use super::{Running, text_of};

/// A question for one copy, with this `confirmed_within_ms` or none.
fn of_licences(within_ms: &str) -> String {
    format!(
        r#"{{"holds": [{{"resource": "licences", "domain": "acme", "lease_ms": 60000{within_ms}}}]}}"#
    )
}

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

impl Running {
    /// Waits until no copies are held.
    pub(super) async fn until_free(&self) {
        let until = Instant::now() + SOON;
        while !self.kit.held().is_empty() {
            assert!(Instant::now() < until, "{:?}", self.kit.held());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

const WITHIN: &str = r#", "confirmed_within_ms": 10000"#;

/// The number of the one hold that waits for an aggregator's verdict.
async fn waiting(kit: &TestAgent) -> u64 {
    let until = Instant::now() + SOON;
    loop {
        if let Some(held) = kit.held().first() {
            return held.number;
        }
        assert!(Instant::now() < until, "a hold waits for a verdict");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn strict_copies_are_used_once_an_aggregator_grants_them() {
    let running = Running::start().await;
    let kit = &running.kit;
    kit.strict("licences");
    let refused = running.post(&of_licences("")).await;
    let expected = "the resource is strict: expected confirmed_within_ms";
    assert!(refused.contains(expected), "{refused}");

    let question = of_licences(WITHIN);
    let granting = async { kit.rule("licences", waiting(kit).await, Ruling::Granted(1)) };
    let (granted, ()) = tokio::join!(running.post(&question), granting);
    assert!(
        granted.contains(r#""allowed":true,"blind":false"#),
        "{granted}"
    );
    assert_eq!(kit.held().len(), 1);
    let release = format!(r#"{{"release": ["{}"]}}"#, text_of(&granted, "hold"));
    let released = running.post(&release).await;
    assert!(released.contains(r#""released":[true]"#), "{released}");
    assert_eq!(kit.held(), []);

    let refusing = async { kit.rule("licences", waiting(kit).await, Ruling::Full(Scope::Pair)) };
    let (refused, ()) = tokio::join!(running.post(&question), refusing);
    assert!(
        refused.contains("the limit on copies in use is reached"),
        "{refused}"
    );

    // No verdict arrives in time, and the policy is to refuse then.
    let late = async {
        waiting(kit).await;
        kit.advance(Duration::from_secs(10));
    };
    let (refused, ()) = tokio::join!(running.post(&question), late);
    assert!(refused.contains(r#""allowed":false"#), "{refused}");
    assert_eq!(kit.held(), []);

    kit.copies_limit("sandbox", 1);
    let question = question.replace("licences", "sandbox");
    let refused = running.post(&question).await;
    let expected = "the resource is not strict: expected no confirmed_within_ms";
    assert!(refused.contains(expected), "{refused}");
    running.end().await;
}

#[tokio::test]
async fn strict_copies_are_let_through_together_with_others() {
    let running = Running::start().await;
    let kit = &running.kit;
    kit.strict("licences");
    kit.copies_limit("sandbox", 1);
    let both = format!(
        r#"{{"all_or_none": true, "holds": [
            {{"resource": "sandbox", "domain": "acme", "lease_ms": 60000}},
            {{"resource": "licences", "domain": "acme", "copies": 3, "lease_ms": 60000{WITHIN}}}]}}"#
    );
    let refusing = async { kit.rule("licences", waiting(kit).await, Ruling::Full(Scope::Pair)) };
    let (refused, ()) = tokio::join!(running.post(&both), refusing);
    assert!(refused.contains(r#""allowed":false"#), "{refused}");
    assert_eq!(kit.held(), []);
    let granting = async { kit.rule("licences", waiting(kit).await, Ruling::Granted(3)) };
    let (granted, ()) = tokio::join!(running.post(&both), granting);
    assert!(granted.contains(r#""holds":[""#), "{granted}");
    let copies: Vec<u32> = kit.held().iter().map(|held| held.copies).collect();
    assert_eq!(copies.iter().sum::<u32>(), 4, "{granted}");
    // The second id is that of the second hold.
    let (_, ids) = granted.split_once(r#""holds":["#).expect("ids");
    let second = ids.split('"').nth(3).expect("an id");
    running
        .post(&format!(r#"{{"release": ["{second}"]}}"#))
        .await;
    let held = kit.held();
    assert_eq!((held.len(), &*held[0].resource), (1, "sandbox"));
    running.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_gets_no_copies() {
    let running = Running::start().await;
    let kit = &running.kit;
    kit.strict("licences");
    let question = of_licences(WITHIN);
    let length = question.len();
    let mut peer = TcpStream::connect(&running.address)
        .await
        .expect("it accepts");
    let request = format!(
        "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{question}"
    );
    peer.write_all(request.as_bytes()).await.expect("it reads");
    waiting(kit).await;
    drop(peer);
    running.until_free().await;
    running.end().await;
}
