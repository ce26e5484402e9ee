//! Tests of calls that agents refused, in batches that came twice: an agent sends a batch again if it does not know
//! whether the log has it.

use tollgate_shared::wire::statement::Cause;

use super::log::MemoryLog;
use super::{CHANGED, THREE, V1};

#[test]
fn refused_calls_of_a_pair_count_once() {
    let mut log = MemoryLog::new(THREE);
    let code = log.hits(1_000, "alpha", V1, 3);
    log.refused(1_200, "alpha", V1, (4, Cause::Window(0), code));
    log.again(1_300);
    let found = log.explained_code(code).expect("an explanation");
    assert_eq!(found.refused.calls, 4, "{found}");
}

#[test]
fn calls_refused_by_a_global_limit_count_once() {
    let mut log = MemoryLog::new(&THREE.replace("rate = \"3/s\"", "global = \"3/s\""));
    log.hits(1_000, "alpha", V1, 3);
    let code = log.totals(1_010, V1.0, 3);
    log.refused(1_200, "alpha", V1, (4, Cause::Global, code));
    log.again(1_300);
    let found = log.explained_code(code).expect("an explanation");
    assert_eq!(found.refused.calls, 4, "{found}");
}

#[test]
fn calls_refused_for_want_of_copies_count_once() {
    let customer = ("web.cc", "cc");
    let mut log = MemoryLog::new(CHANGED);
    let code = log.hold(1_000, customer, 2);
    log.refused(1_200, "alpha", customer, (4, Cause::Full, code));
    log.again(1_300);
    let found = log.explained_code(code).expect("an explanation");
    assert_eq!(found.refused.calls, 4, "{found}");
}
