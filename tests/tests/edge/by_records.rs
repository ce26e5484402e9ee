//! Records that anybody who can connect may send: in another's name, or with very many epochs or domains.

use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};
use tollgate_shared::wire::link::FromAggregator;

use crate::attacked::Attacked;
use crate::peer::Hitter;

/// Partitions of the journal.
const PARTITIONS: u32 = 4;

/// A record of one hit.
fn record(sender: &Sender<'_>, resource: &str, domain: &str) -> Vec<u8> {
    let mut writer = Writer::new();
    let hit = Hit::one(0, domain, sender.sent, 1);
    let none: [Refused<'_>; 0] = [];
    write_hits(
        &mut writer,
        sender,
        &[resource],
        [hit].into_iter(),
        none.into_iter(),
    );
    writer.as_slice().to_vec()
}

/// A domain whose pair with `zz` belongs to a partition.
fn domain_of(partition: u32) -> String {
    let mut all = (0..).map(|number| format!("tenant-{number}"));
    let is_of = |one: &String| partition_of_pair("zz", one, PARTITIONS) == partition;
    all.find(is_of).expect("one of endlessly many")
}

#[test]
fn an_unauthorised_record_is_refused_before_the_log() {
    let mut attacked = Attacked::start("");
    let mut hitter = Hitter::new(&attacked.serving.agents);
    let own = hitter.sender();
    let far = |sent: Timestamp| sent.saturating_add(Span::from_secs(86_400 * 3));
    let cases = [
        (
            "not_its_own",
            Sender {
                agent: "honest",
                ..own
            },
        ),
        ("not_its_own", Sender { epoch: 1, ..own }),
        (
            "sequence",
            Sender {
                sequence: 1 << 62,
                ..own
            },
        ),
        (
            "sent",
            Sender {
                sent: far(own.sent),
                ..own
            },
        ),
        (
            "sent",
            Sender {
                sent: Timestamp::ZERO,
                ..own
            },
        ),
    ];
    for (reason, sender) in cases {
        let before = attacked.refused(reason);
        let partition = partition_of_pair("api.day", "victim", PARTITIONS);
        let answer = hitter.append(partition, &record(&sender, "api.day", "victim"));
        assert!(
            matches!(answer, FromAggregator::Refused { .. }),
            "{reason}: {answer:?}"
        );
        assert_eq!(attacked.refused(reason), before + 1, "{reason}");
    }
    // A pair of another partition.
    let sender = hitter.sender();
    let answer = hitter.append(0, &record(&sender, "zz", &domain_of(3)));
    assert!(
        matches!(answer, FromAggregator::Refused { .. }),
        "{answer:?}"
    );
    assert_eq!(attacked.refused("misrouted"), 1);
    // An aggregator's record, and an unknown one: kinds 6 and 99.
    for (reason, bytes) in [("kind", [1, 6, 0x90]), ("kind", [1, 99, 0x90])] {
        let before = attacked.refused(reason);
        let answer = hitter.append(0, &bytes);
        assert!(
            matches!(answer, FromAggregator::Refused { .. }),
            "{answer:?}"
        );
        assert_eq!(attacked.refused(reason), before + 1);
    }
    let denials = attacked.page("/v1/denials?domain=victim");
    assert_eq!(denials["denials"].as_array().map(Vec::len), Some(0));
    attacked.denials_arrive();
    attacked.has_grown_at_most(0);
}

#[test]
fn nobody_holds_copies_as_everybody() {
    let attacked = Attacked::start("");
    let mut hitter = Hitter::new(&attacked.serving.agents);
    let mut writer = Writer::new();
    let sender = hitter.sender();
    let everybody = HoldOp {
        resource: 0,
        number: 1,
        at: sender.sent,
        action: HoldAction::Hold {
            domain: "*",
            copies: 1_000,
        },
    };
    write_holds(&mut writer, &sender, &["sandbox"], [everybody].into_iter());
    let answer = hitter.append(0, writer.as_slice());
    assert!(
        matches!(answer, FromAggregator::Refused { .. }),
        "{answer:?}"
    );
    assert_eq!(attacked.refused("malformed"), 1);
}

#[test]
fn epochs_of_one_name_are_bounded() {
    let epochs_max = "[engine]\nepochs_per_partition_max = 4\n";
    let mut attacked = Attacked::under(epochs_max, "");
    for number in 1..=24 {
        let mut hitter = Hitter::of_secret(&attacked.serving.agents, [number; 32]);
        for partition in 0..PARTITIONS {
            let sender = hitter.sender();
            let answer = hitter.append(partition, &record(&sender, "zz", &domain_of(partition)));
            assert!(
                matches!(answer, FromAggregator::Appended { .. }),
                "{answer:?}"
            );
        }
    }
    attacked.until("epochs are given up", |now| {
        4 * (24 - 4) <= now.metric("tollgate_epochs_given_up_total ")
    });
    // The name with the most epochs gives one up: this agent is still limited, and so is a new
    // process.
    for _ in 0..4 {
        attacked.denials_arrive();
    }
    attacked.has_grown_at_most(0);
}

#[test]
fn pairs_are_bounded_and_new_domains_find_room() {
    let cap = "[engine]\npairs_per_partition_max = 200\n[rate.\"api.short\"]\nrate = \"1/s\"\n";
    let mut attacked = Attacked::under(cap, "");
    let mut hitter = Hitter::new(&attacked.serving.agents);
    let names = |from: usize| (from..from + 4_000).map(|n| format!("2001:db8::{n:x}"));
    let flood = |hitter: &mut Hitter, from: usize| {
        for partition in 0..PARTITIONS {
            let of = |one: &String| partition_of_pair("api.short", one, PARTITIONS) == partition;
            let domains: Vec<String> = names(from).filter(of).collect();
            let record = hitter.record("api.short", &domains);
            let answer = hitter.append(partition, &record);
            assert!(matches!(answer, FromAggregator::Appended { .. }));
        }
    };
    flood(&mut hitter, 0);
    attacked.until("the rest is only counted", |now| {
        4_000 - 4 * 200 <= now.metric("tollgate_hits_at_cap_total ")
    });
    assert!(attacked.metric("tollgate_pairs ") <= 4 * 200 + 8);
    // The flood's windows end within a second and a half; then a newcomer is limited again.
    attacked.denials_arrive();
    attacked.until("who remembers nothing has left", |now| {
        now.denials_arrive();
        0 < now.metric("tollgate_pairs_evicted_total ")
    });
    flood(&mut hitter, 10_000);
    attacked.denials_arrive();
    attacked.has_grown_at_most(0);
}
