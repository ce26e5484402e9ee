//! A resource that changes its kind: limited by its rate first and by its copies then, or the other way round.

use tollgate_engine::engine::Fate;
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::wire::hits::Hit;

use crate::support::play::Play;

const CLOSED: &str = "[namespace.\"*\"]\nallow_unconfigured = false\n";
const RATE: &str = "[rate.sandbox]\nrate = \"2/m\"\n";
const COPIES: &str = "[copies.sandbox]\nlimit = 3\n";

const PARTITIONS: u32 = 4;

/// The partition that counts the copies of `sandbox`.
fn home() -> u32 {
    partition_of_resource("sandbox", PARTITIONS)
}

/// A domain whose hits on `sandbox` another partition rules, and that partition.
fn elsewhere() -> (String, u32) {
    let pairs = (0..).map(|number| {
        let domain = format!("tenant-{number}");
        let partition = partition_of_pair("sandbox", &domain, PARTITIONS);
        (domain, partition)
    });
    let mut others = pairs.filter(|(_, partition)| *partition != home());
    others.next().expect("a domain of another partition")
}

fn version_of(kind: &str) -> String {
    format!("{CLOSED}{kind}")
}

#[test]
fn hits_of_a_resource_of_copies_are_not_refused_where_unnamed_ones_are() {
    let (domain, partition) = elsewhere();
    for partition in [partition, home()] {
        let mut play = Play::of_partition(&version_of(RATE), partition, PARTITIONS);
        play.version(&version_of(COPIES));
        // An agent that does not know the version yet.
        play.hits("sandbox", &[&domain]);
        assert_eq!(play.output(), [""; 0]);
        assert_eq!(play.counts().unconfigured, 1);
        assert_eq!(play.engine.pairs(), 0);
    }
}

#[test]
fn a_denial_by_a_rate_ends_when_copies_limit_the_resource() {
    let (domain, partition) = elsewhere();
    let mut play = Play::of_partition(&version_of(RATE), partition, PARTITIONS);
    play.tick(500);
    play.hits("sandbox", &[&domain, &domain]);
    assert_eq!(play.output().len(), 1);
    play.version(&version_of(COPIES));
    assert_eq!(play.output(), [format!("sandbox {domain}: open")]);
    let at = play.engine.now();
    assert_eq!(
        play.next_batch("sandbox", &[Hit::one(0, &domain, at, 1)]),
        Fate::Applied
    );
    assert_eq!(
        play.output(),
        [""; 0],
        "a settlement or a hit in flight denies nothing"
    );
    play.version(&version_of(""));
    play.hits("sandbox", &[&domain]);
    assert_eq!(
        play.output(),
        [format!("sandbox {domain}: never, unconfigured")]
    );
    play.version(&version_of(COPIES));
    assert_eq!(play.output(), [format!("sandbox {domain}: open")]);
}
