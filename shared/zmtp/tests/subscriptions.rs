//! Compares the index of subscriptions with a plain set of pairs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_zmtp::Subscriptions;

#[derive(Clone, Debug)]
enum Step {
    Subscribe(u64, u8),
    Cancel(u64, u8),
    Remove(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (connection, topic) = (0..6u64, 0..5u8);
    prop_oneof![
        4 => (connection.clone(), topic.clone()).prop_map(|(c, t)| Step::Subscribe(c, t)),
        2 => (connection.clone(), topic).prop_map(|(c, t)| Step::Cancel(c, t)),
        1 => connection.prop_map(Step::Remove),
    ]
}

proptest! {
    #[test]
    fn the_index_agrees_with_a_set_of_pairs(steps in prop::collection::vec(step(), 0..60)) {
        let mut index = Subscriptions::default();
        let mut pairs = BTreeSet::new();
        for step in steps {
            match step {
                Step::Subscribe(connection, topic) => {
                    pairs.insert((connection, topic));
                    let of_it = pairs.iter().filter(|(one, _)| *one == connection).count();
                    prop_assert_eq!(index.subscribe(connection, topic), of_it);
                }
                Step::Cancel(connection, topic) => {
                    pairs.remove(&(connection, topic));
                    index.cancel(connection, &topic);
                }
                Step::Remove(connection) => {
                    pairs.retain(|(one, _)| *one != connection);
                    index.remove(connection);
                }
            }
            prop_assert_eq!(index.len(), pairs.len());
            prop_assert_eq!(index.is_empty(), pairs.is_empty());
            for topic in 0..5 {
                let found: BTreeSet<u64> = index.subscribers(&topic).iter().copied().collect();
                let expected = pairs.iter().filter(|(_, one)| *one == topic).map(|(one, _)| *one);
                prop_assert_eq!(found.len(), index.subscribers(&topic).len(), "each once");
                prop_assert_eq!(found, expected.collect::<BTreeSet<u64>>());
            }
            for connection in 0..6 {
                let expected = pairs.iter().filter(|(one, _)| *one == connection).count();
                prop_assert_eq!(index.of_connection(connection), expected);
            }
        }
    }
}
