//! What is said of copies that are not counted here: of resources that no limits limit by copies, and of
//! those that another partition rules.

use tollgate_engine::engine::{Engine, Rulings};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::holds::Does;
use tollgate_shared::wire::record::Record;

use crate::play::{Play, RESOURCE, Sending, agent};
use crate::{SANDBOX, hold, release};

#[test]
fn what_is_not_limited_is_let_through_or_refused_and_never_kept() {
    let reserve = Does::Reserve {
        domain: "acme",
        copies: 9,
        min: 1,
    };
    let mut play = Play::of("");
    let mut web = agent("web", 1);
    play.ops(
        &mut web,
        &[(1, hold("acme", 4)), (2, reserve), (1, release(4))],
    );
    let said = ["web: 1 counted, 0 too many", "web: 2 granted 9"];
    assert_eq!(play.said(), said);
    play.version("[namespace.\"*\"]\nallow_unconfigured = false\n");
    play.ops(&mut web, &[(3, hold("acme", 4))]);
    assert_eq!(
        play.said(),
        ["web: 3 refused: the resource is not configured"]
    );
    assert_eq!(play.engine.copies().count(), 0);
}

#[test]
fn what_belongs_to_another_partition_is_told_so() {
    let mut play = Play::of(SANDBOX);
    let home = partition_of_resource(RESOURCE, 7);
    let mut elsewhere = Engine::new((home + 1) % 7, 7);
    let mut web: Sending = agent("web", 1);
    let bytes = play.ops_bytes(&mut web, &[(1, hold("acme", 1))]);
    let mut rulings = Rulings::new();
    let record = Record::decode(&bytes).expect("a record");
    // A version first, so that the resource is known.
    let (&version, _) = play.versions.iter().next().expect("a version");
    let pointer = tollgate_shared::wire::record::Pointer {
        version,
        digest: [0; 32],
    };
    let at = Timestamp::from_millis(play.now_ms);
    elsewhere.apply(
        0,
        at,
        &Record::Pointer(pointer),
        &play.versions,
        &mut rulings,
    );
    elsewhere.apply(1, at, &record, &play.versions, &mut rulings);
    play.rulings = rulings;
    assert_eq!(
        play.said(),
        ["web: 1 refused: the resource belongs to another partition"]
    );
}
