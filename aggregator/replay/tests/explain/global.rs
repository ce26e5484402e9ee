//! Tests of explanations where a domain's own limits and a global one refuse.

use tollgate_shared::wire::hits::Hit;

use super::log::{MemoryLog, at};
use super::{THREE, V1, ban};

/// A log in which a domain's own limit refused, and then the global one.
fn refused_by_both(agent: &str) -> MemoryLog {
    let limits = THREE.replace("3/s\"", "3/s\"\nglobal = \"5/s\"");
    let mut log = MemoryLog::new(&limits);
    log.hits(1_000, "alpha", V1, 3);
    log.hits(10_000, agent, (V1.0, "v2"), 2);
    log.totals(10_010, V1.0, 6);
    log
}

#[test]
fn what_refused_last_is_named_be_it_the_global_limit() {
    let mut log = refused_by_both("beta");
    let found = log.explained(V1, None);
    let cause = |of: &tollgate_replay::explain::Explanation| {
        let denial = of.denial.as_ref().expect("a denial");
        denial.cause.clone()
    };
    assert_eq!(cause(&found), "global", "{found}");
    // Of an instant, the domain's own denial is named.
    let then = log.explained(V1, Some(1_500));
    assert_ne!(cause(&then), "global", "{then}");
    log.hits(20_000, "alpha", V1, 3);
    let found = log.explained(V1, None);
    assert_ne!(cause(&found), "global", "{found}");
}

#[test]
fn a_denial_that_holds_still_is_named_before_a_later_one() {
    let mut log = refused_by_both("beta");
    log.act(20_000, ban(at(120_000)));
    log.hits(20_100, "beta", (V1.0, "v2"), 2);
    log.totals(20_110, V1.0, 6);
    let found = log.explained(V1, None);
    let denial = found.denial.as_ref().expect("a denial");
    assert_eq!(denial.cause, "banned", "{found}");
}

#[test]
fn excess_is_not_called_granted() {
    let found = refused_by_both("beta").explained_everybody(V1.0, 10_500);
    let text = found.to_string();
    assert!(text.contains("6 hits of all domains filled it"), "{text}");
}

#[test]
fn a_late_call_is_explained_by_its_own_delay() {
    let tiers = "tiers = [{ limit = 3, window = \"1s\", active = \"20s\" }]";
    let mut log = MemoryLog::new(&THREE.replace("rate = \"3/s\"", tiers));
    log.hits(9_000, "alpha", V1, 1);
    log.hit(9_100, "alpha", V1.0, Hit::one(0, V1.1, at(5_000), 1));
    let found = log.explained(V1, Some(5_000));
    assert_eq!(found.reason, "late", "{found}");
    let text = found.to_string();
    assert!(
        text.contains("in the log 4100000 us after its stamp"),
        "{text}"
    );
}
