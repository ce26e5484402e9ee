//! A resource that changes its kind: limited by its rate first and by its copies then, or the other way round.

use tollgate_engine::engine::Fate;
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::{Hit, Sender};
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};

use crate::support::log::START_US;
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

fn ban(domain: &str, after_ms: u64) -> Act {
    Act::Ban {
        resource: Some("sandbox".into()),
        domain: domain.into(),
        until: Timestamp::from_millis(START_US / 1_000 + after_ms),
    }
}

fn unban(domain: &str) -> Act {
    Act::Unban {
        resource: Some("sandbox".into()),
        domain: domain.into(),
    }
}

/// An agent asks for a copy; returns how many it is granted.
fn reserve(play: &mut Play, number: u64, domain: &str) -> u32 {
    let at = Timestamp::from_millis(play.now_ms);
    let sender = Sender {
        agent: "job-1",
        epoch: 1,
        sequence: number,
        sent: at,
    };
    let op = HoldOp {
        resource: 0,
        number,
        at,
        action: HoldAction::Reserve {
            domain,
            copies: 1,
            min: 1,
        },
    };
    let mut writer = Writer::new();
    write_holds(&mut writer, &sender, &["sandbox"], [op].into_iter());
    assert_eq!(play.apply(writer.as_slice()), Fate::Applied);
    let status = play.rulings.verdicts[0].status.as_ref();
    status.expect("a status").copies
}

#[test]
fn a_ban_of_a_rate_holds_for_the_copies_that_are_limited_later() {
    let (domain, partition) = elsewhere();
    let mut play = Play::of_partition(RATE, home(), PARTITIONS);
    play.tick(500);
    play.amend(ban(&domain, 60_000));
    assert_eq!(
        play.output(),
        [""; 0],
        "another partition rules its hits, and denies it"
    );
    play.version(COPIES);
    assert_eq!(play.output(), [""; 0], "a version starts no denial");
    assert_eq!(reserve(&mut play, 1, &domain), 0);
    assert_eq!(
        play.output(),
        [format!("sandbox {domain}: 60000000, banned")]
    );
    play.amend(unban(&domain));
    assert_eq!(play.output(), [format!("sandbox {domain}: open")]);
    assert_eq!(reserve(&mut play, 2, &domain), 1);
    // The partition of its hits denies it until its own end of the ban.
    let mut play = Play::of_partition(RATE, partition, PARTITIONS);
    play.tick(500);
    play.amend(ban(&domain, 60_000));
    assert_eq!(
        play.output(),
        [format!("sandbox {domain}: 60000000, banned")]
    );
    play.version(COPIES);
    assert_eq!(play.output(), [""; 0]);
    play.amend(unban(&domain));
    assert_eq!(play.output(), [format!("sandbox {domain}: open")]);
}

#[test]
fn a_ban_that_no_partition_denies_by_ends_with_its_unban_and_by_itself() {
    let (domain, _) = elsewhere();
    let mut play = Play::of_partition(RATE, home(), PARTITIONS);
    play.tick(500);
    play.amend(ban(&domain, 60_000));
    assert_eq!(play.engine.amended(), 1);
    play.amend(unban(&domain));
    assert_eq!(play.engine.amended(), 0);
    play.amend(ban(&domain, 1_500));
    play.tick(1_000);
    play.version(COPIES);
    assert_eq!(reserve(&mut play, 1, &domain), 1, "it has ended");
    assert_eq!(play.engine.amended(), 0);
}
