//! Tests of what the hold table promises to calls and to the hold session.

use super::*;
use crate::resource::Resources;

const AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

struct Bench {
    hold_table: HoldTable,
    resource: Arc<Resource>,
}

impl Bench {
    fn new(holds_max: usize) -> Self {
        let resources = Resources::new(1, 10);
        Self {
            hold_table: HoldTable::new(holds_max),
            resource: resources.get("sandbox").0.expect("room"),
        }
    }

    fn take(&self, domain: &str, copies: u32, limit: Option<u64>) -> Option<Ticket> {
        self.take_up_to(domain, copies, copies, limit)
            .map(|(ticket, _)| ticket)
    }

    fn take_up_to(
        &self,
        domain: &str,
        min: u32,
        max: u32,
        limit: Option<u64>,
    ) -> Option<(Ticket, u32)> {
        let wanted = WantedCopies {
            fingerprint: self.resource.fingerprint(domain),
            domain,
            max,
            min,
            limit,
            at: AT,
        };
        match self.hold_table.take(&self.resource, &wanted) {
            Taken::Copies(ticket, copies) => Some((ticket, copies)),
            Taken::Full => None,
        }
    }

    fn give(&self, ticket: Ticket, copies: u32, over: bool) {
        self.hold_table
            .note(ticket, AT, copies, over, || NoticeKind::Release { copies });
    }

    fn held(&self, domain: &str) -> u64 {
        let fingerprint = self.resource.fingerprint(domain);
        self.hold_table.held(&self.resource, fingerprint, domain)
    }

    /// Number and kind of each notice.
    fn sweep(&self) -> Vec<(u64, &'static str)> {
        let mut notices = Vec::new();
        self.hold_table.sweep(&mut notices);
        let kind = |what: &NoticeKind| match what {
            NoticeKind::Hold { .. } => "hold",
            NoticeKind::Release { .. } => "release",
            NoticeKind::Cancel => "cancel",
            NoticeKind::Rare(_) => "rare",
        };
        notices
            .iter()
            .map(|notice| (notice.number, kind(&notice.what)))
            .collect()
    }
}

#[test]
fn a_process_takes_no_more_than_a_domain_may_have() {
    let bench = Bench::new(1 << 10);
    let three = bench.take("acme", 3, Some(5)).expect("3 of 5");
    assert_eq!(bench.take("acme", 3, Some(5)), None);
    assert!(bench.take("beta", 5, Some(5)).is_some(), "another domain");
    let (_, two) = bench.take_up_to("acme", 1, 4, Some(5)).expect("2 are left");
    assert_eq!((two, bench.held("acme")), (2, 5));
    bench.give(three, 2, false);
    assert_eq!(bench.held("acme"), 3);
    assert!(bench.take("acme", 2, Some(5)).is_some());
    assert_eq!(bench.take("acme", 1, Some(5)), None);
    assert!(bench.take("acme", 1, None).is_some(), "no limit is known");
}

#[test]
fn notices_keep_their_order_across_shards() {
    let bench = Bench::new(1 << 12);
    let mut kinds = Vec::new();
    let mut last: Option<Ticket> = None;
    for n in 0..500 {
        if let Some(ticket) = last.take() {
            bench.give(ticket, 1, true);
            kinds.push((ticket.number, "release"));
        }
        let ticket = bench.take(&format!("d{n}"), 1, None).expect("room");
        kinds.push((ticket.number, "hold"));
        last = Some(ticket);
    }
    assert_eq!(bench.sweep(), kinds);
    assert_eq!(bench.sweep(), []);
}

#[test]
fn a_release_is_swept_before_later_holds_of_other_threads() {
    let bench = Arc::new(Bench::new(HOLDS_MAX));
    let (sender, receiver) = std::sync::mpsc::channel::<(Ticket, u64)>();
    const ROUNDS: u64 = 20_000;
    let other = Arc::clone(&bench);
    let giver = std::thread::spawn(move || {
        for (ticket, round) in receiver {
            other.give(ticket, 1, true);
            // Only now the next hold is taken, in another shard.
            let _ = other.take(&format!("after{}", round % 50), 1, None);
        }
    });
    let taker = {
        let bench = Arc::clone(&bench);
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                let domain = format!("before{}", round % 50);
                let ticket = bench.take(&domain, 1, None).expect("room");
                sender.send((ticket, round)).expect("the giver lives");
            }
        })
    };
    let mut numbers = 0;
    let mut orders = Vec::new();
    loop {
        let over = taker.is_finished() && giver.is_finished();
        let mut notices = Vec::new();
        bench.hold_table.sweep(&mut notices);
        numbers += notices.len();
        orders.extend(notices.iter().map(|notice| notice.order));
        if over && notices.is_empty() {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(numbers as u64, 3 * ROUNDS);
    assert!(orders.is_sorted(), "across sweeps, too");
    taker.join().expect("took");
    giver.join().expect("gave");
}

#[test]
fn beyond_the_bound_holds_are_granted_and_counted() {
    let bench = Bench::new(1);
    let first = bench.take("acme", 1, None).expect("on record");
    let second = bench.take("acme", 1, None).expect("granted all the same");
    assert_ne!(first.number, 0);
    assert_eq!((second.number, bench.hold_table.unrecorded()), (0, 1));
    assert_eq!(bench.held("acme"), 2);
    bench.give(second, 1, true);
    bench.give(first, 1, true);
    assert_eq!(
        bench.sweep(),
        [(first.number, "hold"), (first.number, "release")]
    );
    assert_eq!(bench.held("acme"), 0);
    assert_ne!(bench.take("acme", 1, None).expect("room again").number, 0);
}

#[test]
fn without_sweeps_notices_are_bounded_and_releases_kept() {
    let bench = Bench::new(HOLDS_MAX);
    let held = bench.take("acme", 1, None).expect("on record");
    for _ in 0..WORDS_MAX {
        let ticket = bench.take("acme", 1, None).expect("granted");
        bench.give(ticket, 1, true);
    }
    assert!(0 < bench.hold_table.unrecorded());
    bench.give(held, 1, true);
    let notices = bench.sweep();
    assert_eq!(notices.last(), Some(&(held.number, "release")));
    assert!(notices.len() <= WORDS_MAX + 2, "{}", notices.len());
    assert_ne!(bench.take("acme", 1, None).expect("granted").number, 0);
}

#[test]
fn pairs_that_are_idle_make_room_for_others() {
    let bench = Bench::new(SHARDS);
    for n in 0..10_000 {
        let ticket = bench.take(&format!("d{n}"), 1, Some(1)).expect("granted");
        bench.give(ticket, 1, true);
        bench.sweep();
    }
    let pairs: usize = bench
        .hold_table
        .shards
        .iter()
        .map(|shard| shard.lock().pairs.len())
        .sum();
    assert!(pairs <= SHARDS * PAIRS_MIN, "{pairs}");
    assert_eq!(bench.hold_table.unrecorded(), 0);
}

#[test]
fn the_bound_on_holds_is_the_same_for_all_domains_and_shards() {
    const MAX: usize = 64;
    let bench = Bench::new(MAX);
    let scattered: Vec<String> = (0..2 * MAX).map(|n| format!("d{n}")).collect();
    let of_one_shard = (0..).map(|n| format!("s{n}"));
    let shard = |domain: &String| shard_of(bench.resource.fingerprint(domain));
    let of_one_shard = of_one_shard.filter(|domain| shard(domain) == 5);
    let of_one_shard: Vec<String> = of_one_shard.take(2 * MAX).collect();
    let mut unrecorded = 0;
    for domains in [&scattered, &of_one_shard, &scattered] {
        let (fit, beyond) = domains.split_at(MAX);
        let take = |domain: &String| bench.take(domain, 1, Some(1)).expect("granted");
        let held: Vec<Ticket> = fit.iter().map(take).collect();
        assert!(held.iter().all(|ticket| ticket.number != 0), "{held:?}");
        assert!(fit.iter().all(|domain| bench.held(domain) == 1));
        assert_eq!(bench.take(&fit[MAX - 1], 1, Some(1)), None, "it is summed");
        let more: Vec<Ticket> = beyond.iter().map(take).collect();
        unrecorded += MAX as u64;
        assert_eq!(bench.hold_table.unrecorded(), unrecorded);
        let shards = bench.hold_table.shards.iter();
        let pairs: usize = shards.map(|shard| shard.lock().pairs.len()).sum();
        assert!(pairs <= MAX + SHARDS * PAIRS_MIN, "{pairs}");
        for ticket in held.into_iter().chain(more) {
            bench.give(ticket, 1, true);
        }
        bench.sweep();
        assert_eq!(bench.hold_table.pairs_beyond.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn pairs_of_one_shard_may_have_any_place_and_tag() {
    let of_places = (0..16).map(|place| shard_of(5 << 40 | place));
    let of_tags = (0..128).map(|tag| shard_of(5 << 40 | tag << 57));
    assert!(of_places.chain(of_tags).all(|shard| shard == 5));
    let shards = (0..SHARDS as u64).map(|bits| shard_of(bits << 40));
    assert!(shards.eq(0..SHARDS));
}

#[test]
fn a_pair_that_is_refused_takes_no_room_beyond_the_bound() {
    let bench = Bench::new(SHARDS);
    for n in 0..10_000 {
        assert_eq!(bench.take(&format!("d{n}"), 1, Some(0)), None);
    }
    let shards = bench.hold_table.shards.iter();
    let most = shards.map(|shard| shard.lock().pairs.len()).max();
    assert_eq!(most, Some(PAIRS_MIN));
}

#[test]
fn after_the_end_nothing_is_recorded_and_no_caller_waits() {
    let bench = Bench::new(1 << 10);
    let ticket = bench.take("acme", 2, None).expect("granted");
    let (answer, mut notice) = tokio::sync::oneshot::channel();
    bench.hold_table.note(ticket, AT, 0, false, || {
        NoticeKind::Rare(Box::new(RareNotice::Watch { answer }))
    });
    bench.hold_table.close();
    assert!(notice.try_recv().is_err());
    bench.give(ticket, 2, true);
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.take("acme", 1, None).expect("granted").number, 0);
}
