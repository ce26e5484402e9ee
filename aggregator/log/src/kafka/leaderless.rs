//! Which partitions without a leader are to be logged.
//!
//! ```text
//! found 3, 5   found 3, 5 (a moment later)   found 3, 7     found 3, 7 (a minute later)
//! 3, 5         -                             7              3, 7
//! ```
//!
//! Kafka keeps such a partition, and neither reads nor writes it; the client library reports it no otherwise than one
//! that does not exist. Knows nothing of what the partitions are for, and reads no clock. What stays true: a partition
//! is logged when it is first found, and at most once in each interval.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::topics::TopicPartition;

/// How often a partition is logged.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// When each partition was last logged.
#[derive(Debug, Default)]
pub(super) struct LeaderlessLines(BTreeMap<TopicPartition, Instant>);

impl LeaderlessLines {
    /// Logs, for each topic, the partitions that are due.
    pub fn log(&mut self, found: &[TopicPartition]) {
        for (topic, partitions) in self.due(found, Instant::now()) {
            tracing::error!(
                topic,
                ?partitions,
                "kafka partitions have no leader: nothing is read from them or written to them until they have one"
            );
        }
    }

    /// The partitions that are due at this instant, by topic.
    fn due(&mut self, found: &[TopicPartition], now: Instant) -> BTreeMap<String, Vec<i32>> {
        self.0.retain(|_, logged| now < *logged + TELL_EVERY);
        let mut due: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for partition in found {
            if !self.0.contains_key(partition) {
                self.0.insert(partition.clone(), now);
                let (topic, number) = partition;
                due.entry(topic.clone()).or_default().push(*number);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaderless_partition_is_logged_once_a_minute() {
        let mut lines = LeaderlessLines::default();
        let begun = Instant::now();
        let mut due = |second, numbers: &[i32]| {
            let partition = |number: &i32| ("t.hits".to_owned(), *number);
            let found: Vec<_> = numbers.iter().map(partition).collect();
            let due = lines.due(&found, begun + Duration::from_secs(second));
            due.get("t.hits").cloned().unwrap_or_default()
        };
        assert_eq!(due(0, &[3, 5]), [3, 5]);
        assert_eq!(due(1, &[3, 5]), [0; 0]);
        assert_eq!(due(2, &[3, 7]), [7]);
        assert_eq!(due(59, &[]), [0; 0]);
        assert_eq!(due(60, &[3, 7]), [3]);
        assert_eq!(due(62, &[3, 7]), [7]);
    }
}
