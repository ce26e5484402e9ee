//! Tests of what the courier promises to the log, and to the callers whose hits it carries.

use super::*;
use crate::deny::DenyView;
use crate::flusher::Packer;
use crate::recorder::{Happened, RecorderEvent};
use crate::resource::ResourceId;
use crate::urgency::Urgency;
use tollgate_shared::wire::record::Record;

const NOW: Mono = Mono(1_000_000);
const WALL: Timestamp = Timestamp::from_millis(1_700_000_000_000);

struct Bench {
    packer: Packer,
    courier: Courier,
}

impl Bench {
    fn new(partitions: u32) -> Self {
        let resources = Arc::new(Resources::new(1, 10));
        resources.get("r");
        let urgency = Urgency::new(Arc::new(DenyView::new(64)), Span::ZERO, usize::MAX);
        let mut packer = Packer::new(Arc::clone(&resources), Arc::new(urgency), 1 << 20);
        packer.set_partitions(partitions, NOW);
        Self {
            packer,
            courier: Courier::new("agent-1", 77, resources),
        }
    }

    /// One hit, in a batch of its own.
    fn hit(&mut self, domain: &str) {
        let event = RecorderEvent {
            resource: ResourceId(0),
            domain,
            at: WALL,
            happened: Happened::Hit {
                copies: 1,
                min: None,
                unguarded: false,
            },
        };
        self.packer.take(&event, NOW, WALL);
        while let Some(parcel) = self.packer.next(NOW, true) {
            self.courier.take(parcel);
        }
    }

    fn send_all(&mut self, now: Mono) -> Vec<Outgoing> {
        self.send_all_at(now, WALL)
    }

    fn send_all_at(&mut self, now: Mono, wall: Timestamp) -> Vec<Outgoing> {
        std::iter::from_fn(|| self.courier.next(now, wall)).collect()
    }
}

fn sequence(outgoing: &Outgoing) -> u64 {
    match Record::decode(&outgoing.record) {
        Ok(Record::Hits(batch)) => batch.sender.sequence,
        other => panic!("{other:?}"),
    }
}

fn after(span: Span) -> Mono {
    NOW.plus(span)
}

#[test]
fn sequences_count_from_one_in_each_partition() {
    let mut bench = Bench::new(4);
    for n in 0..40 {
        bench.hit(&format!("t{n}"));
    }
    let mut last = BTreeMap::new();
    for outgoing in bench.send_all(NOW) {
        let before = last
            .insert(outgoing.partition, sequence(&outgoing))
            .unwrap_or(0);
        assert_eq!(sequence(&outgoing), before + 1);
    }
    assert_eq!(last.len(), 4);
    assert_eq!(last.values().sum::<u64>(), 40);
}

#[test]
fn sequences_in_flight_are_at_most_127_apart() {
    let mut bench = Bench::new(1);
    (0..300).for_each(|_| bench.hit("a"));
    let sent = bench.send_all(NOW);
    assert_eq!(
        sent.iter().map(sequence).collect::<Vec<_>>(),
        (1..=128).collect::<Vec<_>>()
    );
    // All but the first are acknowledged, and the window still begins at the first.
    sent[1..]
        .iter()
        .for_each(|one| bench.courier.acknowledged(one.id));
    assert!(bench.send_all(NOW).is_empty());
    bench.courier.acknowledged(sent[0].id);
    assert_eq!(bench.send_all(NOW).len(), 128);
}

#[test]
fn a_record_has_the_stamp_of_its_last_sending() {
    let mut bench = Bench::new(1);
    bench.hit("a");
    let first = bench.send_all(NOW);
    bench.courier.connection_lost(NOW);
    let later = Span::from_secs(150);
    let again = bench.send_all_at(after(later), WALL.saturating_add(later));
    let stamps = |outgoing: &[Outgoing]| match Record::decode(&outgoing[0].record) {
        Ok(Record::Hits(batch)) => (batch.sender.sent, batch.hits()[0].at),
        other => panic!("{other:?}"),
    };
    assert_eq!(stamps(&first), (WALL, WALL));
    assert_eq!(stamps(&again), (WALL.saturating_add(later), WALL));
}

#[test]
fn after_a_lost_connection_only_unacknowledged_records_are_resent() {
    let mut bench = Bench::new(1);
    (0..5).for_each(|_| bench.hit("a"));
    let sent = bench.send_all(NOW);
    bench.courier.acknowledged(sent[1].id);
    bench.courier.connection_lost(NOW);
    let again = bench.send_all(after(Span::from_secs(9)));
    let expected: Vec<Outgoing> = [0, 2, 3, 4]
        .map(|index: usize| sent[index].clone())
        .to_vec();
    assert_eq!(again, expected);
    assert!(bench.send_all(after(Span::from_secs(9))).is_empty());
}

#[test]
fn nothing_is_sent_again_five_minutes_after_it_was_first_sent() {
    let mut bench = Bench::new(1);
    bench.hit("a");
    let sent = bench.send_all(NOW);
    let late = after(Span::from_secs(300));
    bench.courier.connection_lost(late);
    bench.courier.tick(late);
    assert!(bench.send_all(late).is_empty());
    let counts = bench.courier.counts();
    assert_eq!((counts.batches_given_up, counts.hits_given_up), (1, 1));
    // An answer that arrives after that changes nothing.
    bench.courier.acknowledged(sent[0].id);
    assert_eq!(bench.courier.counts().hits_acknowledged, 0);
    assert_eq!(bench.courier.len(), 0);
}

#[test]
fn an_unanswered_batch_is_resent_on_its_connection() {
    let mut bench = Bench::new(1);
    bench.hit("a");
    let sent = bench.send_all(NOW);
    bench.courier.tick(after(Span::from_secs(2)));
    assert!(bench.send_all(after(Span::from_secs(2))).is_empty());
    bench.courier.tick(after(Span::from_secs(3)));
    assert_eq!(bench.send_all(after(Span::from_secs(3))), sent);
    assert_eq!(bench.courier.counts().batches_sent_again, 1);
}

#[test]
fn not_now_is_retried_later_and_never_is_not() {
    let mut bench = Bench::new(1);
    bench.hit("a");
    bench.hit("a");
    let sent = bench.send_all(NOW);
    bench.courier.not_now(sent[0].id, NOW);
    bench.courier.refused(sent[1].id);
    assert!(bench.send_all(NOW).is_empty());
    assert_eq!(bench.send_all(after(Span::from_millis(100))), sent[..1]);
    let counts = bench.courier.counts();
    assert_eq!((counts.batches_refused, counts.hits_given_up), (1, 1));
}

/// The pauses until something is sent again, in ms, where the log answers "not now" each time.
fn pauses_ms(bench: &mut Bench, from_ms: u64, pauses: usize) -> (Vec<u64>, u64) {
    let (mut found, mut last) = (Vec::new(), from_ms);
    for ms in from_ms.. {
        let sent = bench.send_all(after(Span::from_millis(ms)));
        if !sent.is_empty() {
            assert_eq!(sent.len(), 1, "one record is enough to try");
            bench
                .courier
                .not_now(sent[0].id, after(Span::from_millis(ms)));
            found.push(ms - last);
            last = ms;
        }
        if found.len() == pauses {
            break;
        }
    }
    (found, last)
}

#[test]
fn a_log_without_room_is_tried_less_and_less_often() {
    let mut bench = Bench::new(1);
    (0..200).for_each(|_| bench.hit("a"));
    let sent = bench.send_all(NOW);
    assert_eq!(sent.len(), 128);
    for one in &sent {
        bench.courier.not_now(one.id, NOW);
    }
    let (pauses, full_ms) = pauses_ms(&mut bench, 0, 6);
    assert_eq!(pauses, [100, 200, 400, 800, 1_000, 1_000]);
    assert_eq!(bench.courier.counts().batches_sent_again, 6);
    // There is room: the record that tries is taken, and all others follow at once.
    let room = after(Span::from_millis(full_ms + 1_000));
    let tries = bench.send_all(room);
    assert_eq!(tries, sent[..1]);
    bench.courier.acknowledged(tries[0].id);
    let mut rest = bench.send_all(room);
    assert_eq!(rest[..127], sent[1..]);
    while let Some(one) = rest.pop() {
        bench.courier.acknowledged(one.id);
        rest.extend(bench.send_all(room));
    }
    let counts = bench.courier.counts();
    assert_eq!((counts.hits_acknowledged, counts.hits_given_up), (200, 0));
    // The next time the pauses begin anew.
    bench.hit("a");
    let one = bench.send_all(room);
    bench.courier.not_now(one[0].id, room);
    assert_eq!(pauses_ms(&mut bench, full_ms + 1_000, 2).0, [100, 200]);
}

#[test]
fn a_pause_ends_with_its_connection_and_holds_up_no_other_queue() {
    let mut bench = Bench::new(4);
    for n in 0..40 {
        bench.hit(&format!("t{n}"));
    }
    let sent = bench.send_all(NOW);
    let of = |partition: u32| sent.iter().filter(move |one| one.partition == partition);
    of(0).for_each(|one| bench.courier.not_now(one.id, NOW));
    of(1).for_each(|one| bench.courier.acknowledged(one.id));
    for n in 40..80 {
        bench.hit(&format!("t{n}"));
    }
    let more = bench.send_all(NOW);
    assert!(!more.is_empty() && more.iter().all(|one| one.partition != 0));
    bench.courier.connection_lost(NOW);
    let again = bench.send_all(NOW);
    assert!(of(0).all(|one| again.contains(one)));
}

#[test]
fn an_acknowledgement_counts_once() {
    let mut bench = Bench::new(1);
    bench.hit("a");
    let sent = bench.send_all(NOW);
    bench.courier.acknowledged(sent[0].id);
    bench.courier.acknowledged(sent[0].id);
    let counts = bench.courier.counts();
    assert_eq!(
        (counts.batches_acknowledged, counts.hits_acknowledged),
        (1, 1)
    );
}

#[test]
fn in_the_end_everything_is_accounted_for() {
    let mut bench = Bench::new(2);
    for n in 0..10 {
        bench.hit(&format!("t{n}"));
    }
    for one in bench.send_all(NOW).into_iter().take(4) {
        bench.courier.acknowledged(one.id);
    }
    bench.hit("late");
    bench.courier.give_up();
    let counts = bench.courier.counts();
    assert_eq!((counts.hits_acknowledged, counts.hits_given_up), (4, 7));
}
