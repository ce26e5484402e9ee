//! Tests that a call allocates nothing, once its thread is known. In an executable of its own, whose allocator counts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::hint::black_box;
use std::time::Duration;

use tollgate_agent::testing::TestAgent;

#[test]
fn a_known_threads_calls_allocate_nothing() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "denied", Duration::from_secs(60));
    // The thread's first call makes its ring; its first refusal allocates nothing.
    let _ = rate.hit("acme");
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            let _ = black_box(rate.hit(black_box("acme")));
            let _ = black_box(rate.hit_n(black_box("globex"), 3));
            let _ = black_box(rate.hit_up_to(black_box("globex"), 1..=3));
            let _ = black_box(rate.hit(black_box("denied")));
            let _ = black_box(rate.peek(black_box("acme")));
            let _ = black_box(kit.agent().hit_all(&[(&rate, "acme"), (&rate, "globex")]));
        }
    });
    assert_eq!(counted.count_total, 0);
    kit.go_blind();
    let blind = allocation_counter::measure(|| {
        for _ in 0..100 {
            let _ = black_box(rate.hit(black_box("acme")));
        }
    });
    assert_eq!(blind.count_total, 0);
    // A check of the counter: a name that is too long is replaced, which allocates.
    let long = "x".repeat(300);
    assert!(0 < allocation_counter::measure(|| _ = black_box(rate.hit(&long))).count_total);
}

#[test]
fn copies_of_a_known_pair_are_taken_without_allocating() {
    let kit = TestAgent::new();
    let sandbox = kit.agent().copies("sandbox");
    kit.copies_limit("sandbox", 3);
    let turn = || {
        for _ in 0..100 {
            let _ = black_box(sandbox.reserve(black_box("acme"), 1));
            let _ = black_box(sandbox.reserve_up_to(black_box("acme"), 1..=9));
            let _ = black_box(sandbox.reserve(black_box("acme"), 4));
        }
    };
    // The pair becomes known, and the tables grow to their size between two visits of the flusher.
    turn();
    assert!(kit.held().is_empty());
    let counted = allocation_counter::measure(turn);
    assert_eq!(counted.count_total, 0);
}
