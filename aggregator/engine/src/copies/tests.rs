//! Clauses of the rules, one promise each.

use std::sync::Arc;

use tollgate_shared::holdings::Holdings;
use tollgate_shared::time::{Span, Timestamp};

use super::*;

const S: u64 = 1_000_000;

/// A resource, and the effects of the last operation on it.
struct Played {
    copies: Copies,
    out: Effects,
}

fn under(limits: CopyLimitsBuilder) -> Played {
    Played {
        copies: Copies::new(Arc::new(limits.build()), NameKey { k0: 1, k1: 2 }),
        out: Effects::new(),
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn listed(number: u64, domain: &str, copies: u32) -> Listed<'_> {
    Listed {
        number,
        domain,
        copies,
        start: at(0),
        strict: false,
        seized: None,
    }
}

impl Played {
    fn id(&mut self, agent: &str, number: u64) -> HoldId {
        let agent = self.copies.agent(agent, 1);
        HoldId { agent, number }
    }

    fn hold(&mut self, agent: &str, number: u64, domain: &str, copies: u32) -> Taken {
        let id = self.id(agent, number);
        let ask = CopiesRequest {
            id,
            at: at(0),
            domain,
            copies,
        };
        self.out.clear();
        self.copies.hold(ask, &mut self.out).expect("counted")
    }

    fn reserve(&mut self, agent: &str, number: u64, domain: &str, copies: u32) -> u32 {
        let id = self.id(agent, number);
        let ask = CopiesRequest {
            id,
            at: at(0),
            domain,
            copies,
        };
        self.out.clear();
        let grant = self.copies.reserve(ask, 1, &mut self.out);
        grant.expect("answered").granted
    }

    fn release(&mut self, agent: &str, number: u64, copies: u32) -> Result<(), OpRefused> {
        let id = self.id(agent, number);
        self.out.clear();
        self.copies.release(id, copies, &mut self.out)
    }

    fn transfer(&mut self, agent: &str, number: u64, copies: u32, to: u128) {
        let id = self.id(agent, number);
        let ttl = Span::from_secs(30);
        self.out.clear();
        let staged = self
            .copies
            .transfer(id, copies, TransferId(to), at(0), ttl, &mut self.out);
        staged.expect("staged");
    }

    fn list(&mut self, agent: &str, holds: &[Listed<'_>]) -> Vec<HoldVerdict> {
        let agent = self.copies.agent(agent, 1);
        self.out.clear();
        let list = List::whole(holds, &[]);
        let (at, out) = (at(9 * S), &mut self.out);
        let applied = self.copies.full_heartbeat(agent, at, &list, out);
        applied.expect("applied");
        let verdicts = self.out.verdicts().iter();
        verdicts.map(|(_, verdict)| *verdict).collect()
    }

    fn gone(&mut self, agent: &str) -> u64 {
        let agent = self.copies.agent(agent, 1);
        self.out.clear();
        self.copies.agent_gone(agent, &mut self.out)
    }

    fn of(&self, domain: &str) -> u64 {
        self.copies.domain(domain).copies
    }

    fn stated(&self) -> Vec<(CopiesScope<'_>, bool)> {
        self.out.scopes().collect()
    }
}

fn counted(excess: u32, by: Option<Limiter>) -> HoldVerdict {
    HoldVerdict::Counted(Taken { excess, by })
}

#[test]
fn a_lift_is_stated_with_the_release_that_makes_room() {
    let mut played = under(CopyLimits::builder(2).global(Some(3)));
    played.hold("A", 1, "a", 2);
    assert_eq!(played.stated(), [(CopiesScope::Domain("a"), true)]);
    played.hold("A", 2, "b", 1);
    assert_eq!(played.stated(), [(CopiesScope::Resource, true)]);
    played.release("A", 1, 1).expect("released");
    assert_eq!(
        played.stated(),
        [
            (CopiesScope::Domain("a"), false),
            (CopiesScope::Resource, false)
        ]
    );
    played.release("A", 1, 1).expect("released");
    assert_eq!(played.stated(), []);
}

#[test]
fn a_domain_whose_limit_is_zero_is_denied_and_never_lifted() {
    let mut played = under(CopyLimits::builder(5).domain("bad", 0));
    assert_eq!(played.reserve("A", 1, "bad", 1), 0);
    assert_eq!(played.stated(), [(CopiesScope::Domain("bad"), true)]);
    assert_eq!(played.hold("A", 1, "bad", 1).excess, 1);
    assert_eq!(played.stated(), [(CopiesScope::Domain("bad"), true)]);
    played.release("A", 1, 1).expect("released");
    assert_eq!(played.stated(), []);
    assert!(played.copies.is_full(CopiesScope::Domain("bad")));
}

#[test]
fn copies_in_transfer_neither_deny_nor_lift() {
    // Full, and below the limit by less than what is transferred: in both cases no count has
    // changed.
    for limit in [3, 4] {
        let mut played = under(CopyLimits::builder(limit).global(Some(4)));
        played.hold("A", 1, "a", 3);
        played.transfer("A", 1, 2, 7);
        assert_eq!(played.stated(), [], "limit {limit}");
        played.out.clear();
        let id = played.id("B", 1);
        let seized = played.copies.seize(TransferId(7), id, &mut played.out);
        assert_eq!(seized, Ok(2));
        assert_eq!(played.stated(), [], "limit {limit}");
        assert_eq!(played.of("a"), 3);
    }
}

#[test]
fn a_tick_earlier_than_one_before_it_changes_nothing() {
    let mut played = under(CopyLimits::builder(3).max_age(Some(Span::from_secs(5))));
    played.copies.tick(at(9 * S), &mut played.out);
    let (snapshot, digest) = (played.copies.snapshot(), played.copies.digest());
    played.copies.tick(at(3 * S), &mut played.out);
    assert_eq!(played.copies.now(), at(9 * S));
    assert_eq!(played.copies.snapshot(), snapshot);
    assert_eq!(played.copies.digest(), digest);
    // A hold that was too old at nine seconds is not young again.
    assert_eq!(played.list("A", &[listed(1, "a", 1)]), [HoldVerdict::Ended]);
}

#[test]
fn the_stager_may_seize_its_copies_and_only_once() {
    let mut played = under(CopyLimits::builder(3));
    played.hold("A", 1, "a", 3);
    played.transfer("A", 1, 3, 7);
    for (number, seized) in [(2, Ok(3)), (3, Err(OpRefused::UnknownTransfer))] {
        let id = played.id("A", number);
        let result = played.copies.seize(TransferId(7), id, &mut played.out);
        assert_eq!(result, seized);
    }
    assert_eq!(played.gone("A"), 3);
}

#[test]
fn staged_copies_are_let_go_at_their_end_and_not_before() {
    let mut played = under(CopyLimits::builder(3));
    played.hold("A", 1, "a", 3);
    played.transfer("A", 1, 3, 7);
    played.copies.tick(at(30 * S - 1), &mut played.out);
    assert_eq!(played.of("a"), 3);
    played.out.clear();
    played.copies.tick(at(30 * S), &mut played.out);
    assert_eq!(played.of("a"), 0);
    assert_eq!(played.stated(), [(CopiesScope::Domain("a"), false)]);
}

#[test]
fn a_returning_agents_holds_count_in_their_first_groups() {
    let red = || CopyLimits::builder(9).group("red", 4, ["a"]);
    let mut played = under(red());
    played.hold("A", 1, "a", 3);
    played.hold("A", 2, "a", 1);
    assert_eq!(played.gone("A"), 4);
    assert_eq!(played.of("a"), 0);
    assert_eq!(played.release("A", 1, 1), Err(OpRefused::UnknownHold));
    let blue = CopyLimits::builder(9).group("blue", 4, ["a"]);
    played.copies.new_limits(Arc::new(blue.build()));
    // It released one of the first hold while it was cut off.
    let verdicts = played.list("A", &[listed(1, "a", 2), listed(2, "a", 1)]);
    assert_eq!(verdicts, [counted(0, None), counted(0, None)]);
    let groups: Vec<(&str, u64)> = played
        .copies
        .counts_of_groups()
        .map(|count| (count.name, count.copies))
        .collect();
    assert_eq!(groups, [("blue", 0), ("red", 3)]);
}

#[test]
fn returning_holds_count_even_above_the_limit() {
    let mut played = under(CopyLimits::builder(3));
    played.hold("A", 1, "a", 2);
    played.gone("A");
    assert_eq!(played.reserve("B", 1, "a", 3), 3);
    let verdicts = played.list("A", &[listed(1, "a", 2)]);
    assert_eq!(verdicts, [counted(2, Some(Limiter::Domain))]);
    assert_eq!(played.of("a"), 5);
}

#[test]
fn a_full_heartbeat_heals_a_lost_release() {
    let mut played = under(CopyLimits::builder(2));
    played.hold("A", 1, "a", 2);
    // The release of hold 1 and the reserve of hold 2 were lost.
    let verdicts = played.list("A", &[listed(2, "a", 2)]);
    assert_eq!(verdicts, [counted(0, None)]);
    assert_eq!(played.of("a"), 2);
    assert_eq!(played.list("A", &[]), []);
    assert_eq!(played.of("a"), 0);
    assert_eq!(played.stated(), [(CopiesScope::Domain("a"), false)]);
}

#[test]
fn a_hold_ended_by_an_operator_stays_ended_when_listed() {
    let mut played = under(CopyLimits::builder(5));
    played.hold("A", 1, "a", 2);
    let id = played.id("A", 1);
    assert_eq!(played.copies.end_hold(id, &mut played.out), Ok(2));
    assert_eq!(played.list("A", &[listed(1, "a", 2)]), [HoldVerdict::Ended]);
    assert_eq!(played.list("A", &[]), []);
    assert_eq!(played.list("A", &[listed(1, "a", 2)]), [HoldVerdict::Ended]);
    played.gone("A");
    assert_eq!(played.list("A", &[listed(1, "a", 2)]), [HoldVerdict::Ended]);
    assert_eq!(played.of("a"), 0);
    let ask = CopiesRequest {
        id,
        at: at(0),
        domain: "a",
        copies: 1,
    };
    let again = played.copies.hold(ask, &mut played.out);
    assert_eq!(again, Err(OpRefused::HoldEnded));
}

#[test]
fn a_hold_past_its_age_ends_with_the_tick_for_good() {
    let mut played = under(CopyLimits::builder(5).max_age(Some(Span::from_secs(60))));
    played.hold("A", 1, "a", 2);
    played.copies.tick(at(60 * S - 1), &mut played.out);
    assert_eq!(played.of("a"), 2);
    played.out.clear();
    played.copies.tick(at(60 * S), &mut played.out);
    assert_eq!(played.of("a"), 0);
    let ended: Vec<u64> = played.out.ended().iter().map(|e| e.hold.number).collect();
    assert_eq!(ended, [1]);
    assert_eq!(played.list("A", &[listed(1, "a", 2)]), [HoldVerdict::Ended]);
    // Another hold, which was already too old when a heartbeat first listed it.
    assert_eq!(played.list("A", &[listed(2, "a", 2)]), [HoldVerdict::Ended]);
}

#[test]
fn a_transfer_does_not_make_copies_younger() {
    let mut played = under(CopyLimits::builder(5).max_age(Some(Span::from_secs(60))));
    played.hold("A", 1, "a", 2);
    played.copies.tick(at(20 * S), &mut played.out);
    played.transfer("A", 1, 2, 7);
    let id = played.id("B", 1);
    let seized = played.copies.seize(TransferId(7), id, &mut played.out);
    assert_eq!(seized, Ok(2));
    played.copies.tick(at(60 * S), &mut played.out);
    assert_eq!(played.of("a"), 0);
}

#[test]
fn a_heartbeat_claims_seized_copies_once() {
    let mut played = under(CopyLimits::builder(5));
    played.hold("A", 1, "a", 4);
    played.transfer("A", 1, 4, 7);
    let seized = |number| Listed {
        seized: Some(TransferId(7)),
        ..listed(number, "a", 3)
    };
    // The seize was lost, and one copy released since.
    assert_eq!(played.list("B", &[seized(1)]), [counted(0, None)]);
    assert_eq!(played.of("a"), 3);
    assert_eq!(
        played.list("C", &[seized(1)]),
        [HoldVerdict::UnknownTransfer]
    );
    assert_eq!(played.list("B", &[seized(1)]), []);
    played.gone("B");
    assert_eq!(played.of("a"), 0);
    assert_eq!(played.list("B", &[seized(1)]), [counted(0, None)]);
    assert_eq!(played.of("a"), 3);
}

#[test]
fn copies_taken_while_blind_replace_the_reserve_of_their_id() {
    let mut played = under(CopyLimits::builder(4));
    assert_eq!(played.reserve("A", 1, "a", 3), 3);
    assert_eq!(played.copies.optimistic(), 0);
    // The verdict came too late: the agent went ahead with two.
    assert_eq!(played.hold("A", 1, "a", 2).excess, 0);
    assert_eq!((played.of("a"), played.copies.optimistic()), (2, 2));
}

#[test]
fn a_heartbeat_does_not_change_an_awaited_reserve() {
    let mut played = under(CopyLimits::builder(4));
    played.reserve("A", 1, "a", 3);
    let agent = played.copies.agent("A", 1);
    let out = &mut played.out;
    let applied = played
        .copies
        .full_heartbeat(agent, at(1), &List::whole(&[], &[1, 2]), out);
    assert_eq!(applied, Ok(()));
    assert_eq!(played.of("a"), 3);
    let nothing = Holdings::default();
    let out = &mut played.out;
    let digest = played
        .copies
        .digest_heartbeat(agent, nothing, &[1, 1, 2], out);
    assert_eq!(digest, Ok(DigestOutcome::Equal));
    let digest = played.copies.digest_heartbeat(agent, nothing, &[2], out);
    assert_eq!(digest, Ok(DigestOutcome::Differs));
    // The verdict is known now, and the agent does not list it: its cancel was lost.
    played.list("A", &[]);
    assert_eq!(played.of("a"), 0);
}

#[test]
fn an_ended_epoch_holds_nothing_and_its_records_are_void() {
    let mut played = under(CopyLimits::builder(4));
    played.hold("A", 1, "a", 3);
    let id = played.id("A", 1);
    assert_eq!(played.copies.epoch_over(id.agent, &mut played.out), 3);
    let list = [listed(1, "a", 3)];
    let result =
        played
            .copies
            .full_heartbeat(id.agent, at(1), &List::whole(&list, &[]), &mut played.out);
    assert_eq!(result, Err(OpRefused::EpochOver));
    assert_eq!(played.release("A", 1, 1), Err(OpRefused::EpochOver));
    let successor = played.copies.agent("A", 2);
    let ask = CopiesRequest {
        id: HoldId {
            agent: successor,
            number: 1,
        },
        at: at(1),
        domain: "a",
        copies: 4,
    };
    let taken = played.copies.hold(ask, &mut played.out).expect("counted");
    assert_eq!(taken.excess, 0);
}

#[test]
fn at_the_bound_holds_are_not_counted_and_nothing_is_evicted() {
    let mut played = under(CopyLimits::builder(9).holds_max(2));
    played.hold("A", 1, "a", 1);
    played.hold("A", 2, "a", 1);
    let before = played.copies.digest();
    let ask = CopiesRequest {
        id: played.id("A", 3),
        at: at(0),
        domain: "a",
        copies: 1,
    };
    let refused = played.copies.hold(ask, &mut played.out);
    assert_eq!(refused, Err(OpRefused::AtCapacity));
    assert_eq!(played.copies.digest(), before);
    assert_eq!(played.copies.counters().not_counted, 1);
    played.release("A", 1, 1).expect("released");
    assert_eq!(played.hold("A", 3, "a", 1).excess, 0);
}

#[test]
fn ended_ids_are_bounded_and_the_least_is_forgotten_first() {
    let mut played = under(CopyLimits::builder(9));
    let most = ENDED_IDS_MAX as u64 + 2;
    for number in 0..most {
        played.hold("A", number, "a", 1);
        let id = played.id("A", number);
        assert_eq!(played.copies.end_hold(id, &mut played.out), Ok(1));
    }
    let agent = played.copies.agent("A", 1);
    assert_eq!(played.copies.ended_of(agent).next(), Some(2));
    assert_eq!(played.copies.ended_of(agent).count(), ENDED_IDS_MAX);
    assert_eq!(played.copies.counters().ended_forgotten, 2);
    let snapshot = played.copies.snapshot();
    let limits = Arc::clone(&played.copies.limits);
    let restored = Copies::restore(&snapshot, limits, NameKey { k0: 1, k1: 2 });
    let digest = restored.map(|restored| restored.digest());
    assert_eq!(digest, Ok(played.copies.digest()));
}

#[test]
fn version_numbers_may_wrap_around_for_a_domain() {
    let mut played = under(CopyLimits::builder(5).domain("a", 3));
    played.hold("A", 1, "a", 1);
    played.hold("A", 2, "b", 1);
    played.copies.first_class = u32::MAX - 2;
    for limit in [4, 6, 8] {
        let limits = CopyLimits::builder(2).domain("a", limit);
        played.copies.new_limits(Arc::new(limits.build()));
        let limit_of = |domain| played.copies.domain(domain).limit;
        assert_eq!((limit_of("a"), limit_of("b")), (Some(limit), Some(2)));
    }
    played.hold("A", 3, "a", 1);
    assert_eq!(played.copies.domain("a").limit, Some(8));
}

#[test]
fn copies_of_empty_and_long_domains_are_limited() {
    let mut played = under(CopyLimits::builder(2));
    let long = "é".repeat(200);
    played.hold("A", 1, &long, 2);
    played.hold("A", 2, "", 2);
    assert_eq!(played.reserve("A", 3, &long, 1), 0);
    assert_eq!(played.reserve("A", 3, "", 1), 0);
    assert_eq!(played.of("(empty)"), 2);
}

#[test]
fn counts_beyond_thirty_two_bits_are_counted() {
    let mut played = under(CopyLimits::builder(u64::MAX));
    for number in 0..3 {
        played.hold("A", number, "a", u32::MAX);
    }
    assert_eq!(played.of("a"), 3 * u64::from(u32::MAX));
    assert_eq!(played.gone("A"), 3 * u64::from(u32::MAX));
    assert_eq!(played.copies.audit(), Ok(()));
}

#[test]
fn bytes_that_are_not_a_snapshot_are_refused() {
    let mut played = under(CopyLimits::builder(9).group("red", 4, ["a"]));
    played.hold("A", 1, "a", 3);
    played.hold("B", 1, "b", 3);
    played.transfer("B", 1, 1, 7);
    let id = played.id("A", 1);
    let ended = played.copies.end_hold(id, &mut played.out);
    assert_eq!(ended, Ok(3));
    played.hold("A", 2, "a", 3);
    let snapshot = played.copies.snapshot();
    let restore = |bytes: &[u8]| {
        let limits = Arc::clone(&played.copies.limits);
        Copies::restore(bytes, limits, NameKey { k0: 1, k1: 2 })
    };
    for end in 0..snapshot.len() {
        assert!(restore(&snapshot[..end]).is_err(), "cut at {end}");
    }
    for at in 0..snapshot.len() {
        for bit in 0..8 {
            let mut bytes = snapshot.clone();
            bytes[at] ^= 1 << bit;
            // Either refused, or the canonical form of another sound state.
            if let Ok(restored) = restore(&bytes) {
                assert_eq!(restored.snapshot(), bytes, "bit {bit} of byte {at}");
                assert_eq!(restored.audit(), Ok(()));
                assert_ne!(restored.digest(), played.copies.digest());
            }
        }
    }
    let mut longer = snapshot;
    longer.push(0);
    assert_eq!(
        restore(&longer).err(),
        Some(RestoreFault::Trailing { bytes: 1 })
    );
}
