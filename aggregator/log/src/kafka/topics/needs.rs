//! The settings that each topic needs, and whether a topic has them.
//!
//! ```text
//! cleanup.policy   the broker has "compact"   expected "delete"   records that are needed would go
//! ```
//!
//! One table for creating topics, checking them and refusing to start. Does no I/O. What stays true: a
//! topic created by this table passes it; a difference that could change or lose a ruling is
//! [`Weight::Must`].

use std::fmt;

use super::Topic;

/// Room for the longest record and its framing, whatever a cluster's default may be.
pub const MESSAGE_MAX_BYTES: u64 = 1_048_588;

/// Three brokers keep each record, so that one may be down for repair while another fails.
pub(super) const REPLICATION: usize = 3;

/// Recovery reads back to the last snapshot but one, and an operator needs time to notice that no
/// snapshots are taken.
const RETENTION_MIN_MS: u64 = 60 * 60 * 1000;

/// The bound on the topic of dead letters, which help to find a producer and rule nothing.
const DEAD_LETTER_BYTES: u64 = 64 << 20;
const DEAD_LETTER_BYTES_MAX: u64 = 1 << 30;
const DEAD_LETTER_MS: u64 = 7 * 86_400_000;
const DEAD_LETTER_MS_MAX: u64 = 90 * 86_400_000;

/// Only closed segments are removed, so the topic may exceed its bound by this much.
const DEAD_LETTER_SEGMENT_BYTES: u64 = 8 << 20;

/// How often segments of compacted topics are closed, in milliseconds. Only closed segments are
/// compacted.
const COMPACTED_SEGMENT_MS: &str = "600000";

/// The expected value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This text.
    Is(&'static str),
    /// A number of at least this; -1 stands for "without bound".
    AtLeast(u64),
    /// A number of at most this.
    AtMost(u64),
    /// This number.
    Exactly(u64),
}

/// How severe a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// An aggregator refuses to start: rulings could be lost or differ.
    Must,
    /// An aggregator starts, and the operator should know.
    Should,
}

/// One setting that a topic needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub setting: &'static str,
    pub expected: Expected,
    pub weight: Weight,
    pub why: &'static str,
}

/// One setting of a topic: the broker's value, beside the needed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, as brokers call it; `partitions` and `replication.factor` are the topic's shape.
    pub name: &'static str,
    /// The broker's value.
    pub found: String,
    /// The needed value.
    pub expected: Expected,
    /// Whether it fits.
    pub fits: bool,
    /// How severe a difference is.
    pub weight: Weight,
    /// Why the value is needed.
    pub why: &'static str,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(text) => f.write_str(text),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::Exactly(number) => write!(f, "{number}"),
        }
    }
}

impl Expected {
    fn is_met_by(self, found: &str) -> bool {
        match self {
            Self::Is(text) => found == text,
            Self::AtLeast(least) => {
                found == "-1" || found.parse::<u64>().is_ok_and(|found| least <= found)
            }
            Self::AtMost(most) => found.parse::<u64>().is_ok_and(|found| found <= most),
            Self::Exactly(number) => found.parse() == Ok(number),
        }
    }
}

impl Need {
    /// The setting with the value that was found.
    pub fn check(self, found: String) -> Setting {
        Setting {
            name: self.setting,
            fits: self.expected.is_met_by(&found),
            found,
            expected: self.expected,
            weight: self.weight,
            why: self.why,
        }
    }
}

/// The shape that a topic needs: how many partitions, and how many copies of each. `brokers` is how many
/// there are.
pub(super) fn shape(topic: Topic, partitions: u32, copies: usize) -> [Need; 2] {
    [
        Need {
            setting: "partitions",
            expected: Expected::Exactly(u64::from(topic.partitions(partitions))),
            weight: match topic.is_required() {
                true => Weight::Must,
                false => Weight::Should,
            },
            why: "the number of partitions determines the partition of a pair, for ever",
        },
        Need {
            setting: "replication.factor",
            expected: Expected::AtLeast(copies as u64),
            weight: Weight::Should,
            why: "one broker may be away for repair while another fails",
        },
    ]
}

/// The properties that a topic needs. `copies` is how many brokers keep each record, `hits_kept_ms` how
/// long hits are kept, if that is known.
pub(super) fn properties(topic: Topic, copies: usize, hits_kept_ms: Option<&str>) -> Vec<Need> {
    if topic == Topic::DeadLetters {
        return bounds().into();
    }
    let mut needs = vec![
        must(
            "message.timestamp.type",
            "LogAppendTime",
            "append times must be the broker's, not the writer's",
        ),
        must(
            "unclean.leader.election.enable",
            "false",
            "what was acknowledged must survive the loss of a broker",
        ),
        Need {
            setting: "max.message.bytes",
            expected: Expected::AtLeast(MESSAGE_MAX_BYTES),
            weight: Weight::Must,
            why: "the longest record must fit",
        },
        Need {
            setting: "min.insync.replicas",
            // If only one broker were in sync, its loss would take acknowledged records.
            expected: Expected::AtLeast(if REPLICATION <= copies { 2 } else { 1 }),
            weight: Weight::Should,
            why: "records that only one broker has are lost with it",
        },
    ];
    match topic {
        Topic::Hits | Topic::Denials | Topic::Limits => needs.push(must(
            "cleanup.policy",
            "delete",
            "compaction would remove records that are needed",
        )),
        Topic::State | Topic::Members => needs.push(must(
            "cleanup.policy",
            "compact",
            "the newest record of each key must stay, however old it is",
        )),
        Topic::DeadLetters => {}
    }
    needs.extend(retention(topic, hits_kept_ms));
    needs
}

/// A property whose value is required.
const fn must(setting: &'static str, expected: &'static str, why: &'static str) -> Need {
    Need {
        setting,
        expected: Expected::Is(expected),
        weight: Weight::Must,
        why,
    }
}

/// How long, and in how many bytes, a topic's records are kept.
fn retention(topic: Topic, hits_kept_ms: Option<&str>) -> Vec<Need> {
    let kept = |least, why| Need {
        setting: "retention.ms",
        expected: Expected::AtLeast(least),
        weight: Weight::Should,
        why,
    };
    // A bound on bytes removes records however young they are.
    let unbounded = |why| Need {
        setting: "retention.bytes",
        expected: Expected::Is("-1"),
        weight: Weight::Should,
        why,
    };
    match topic {
        Topic::Limits => Vec::from([
            must("retention.ms", "-1", "limits are kept for ever"),
            must("retention.bytes", "-1", "limits are kept for ever"),
        ]),
        Topic::Hits => {
            let why = "recovery begins at a snapshot, and continues with the hits after it";
            vec![kept(RETENTION_MIN_MS, why), unbounded(why)]
        }
        Topic::Denials => {
            let least = match hits_kept_ms {
                Some("-1") => u64::MAX,
                Some(text) => text.parse().unwrap_or(RETENTION_MIN_MS),
                None => RETENTION_MIN_MS,
            };
            let why = "denials are kept at least as long as hits";
            vec![kept(least, why), unbounded(why)]
        }
        Topic::State | Topic::Members | Topic::DeadLetters => Vec::new(),
    }
}

/// The bounds that the topic of dead letters needs.
fn bounds() -> [Need; 3] {
    let should = |setting, expected, why| Need {
        setting,
        expected,
        weight: Weight::Should,
        why,
    };
    let why = "a producer of garbage must not fill the brokers' disks";
    [
        should("cleanup.policy", Expected::Is("delete"), why),
        should(
            "retention.bytes",
            Expected::AtMost(DEAD_LETTER_BYTES_MAX),
            why,
        ),
        should("retention.ms", Expected::AtMost(DEAD_LETTER_MS_MAX), why),
    ]
}

/// The properties that a topic is created with: the needed ones, and useful ones.
pub(super) fn made_with(topic: Topic, copies: usize) -> Vec<(&'static str, String)> {
    if topic == Topic::DeadLetters {
        return vec![
            ("cleanup.policy", "delete".to_owned()),
            ("retention.bytes", DEAD_LETTER_BYTES.to_string()),
            ("retention.ms", DEAD_LETTER_MS.to_string()),
            ("segment.bytes", DEAD_LETTER_SEGMENT_BYTES.to_string()),
        ];
    }
    let mut properties: Vec<(&'static str, String)> = properties(topic, copies, None)
        .into_iter()
        // The cluster decides how long hits are kept, unless that is too short.
        .filter(|need| !(need.setting == "retention.ms" && need.weight == Weight::Should))
        .map(|need| match need.expected {
            Expected::Is(text) => (need.setting, text.to_owned()),
            Expected::AtLeast(number) | Expected::AtMost(number) | Expected::Exactly(number) => {
                (need.setting, number.to_string())
            }
        })
        .collect();
    if matches!(topic, Topic::State | Topic::Members) {
        properties.push(("segment.ms", COMPACTED_SEGMENT_MS.to_owned()));
        properties.push(("min.cleanable.dirty.ratio", "0.1".to_owned()));
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_topic_meets_its_needs() {
        for topic in Topic::ALL {
            for copies in [1, 3] {
                let made = made_with(topic, copies);
                for need in properties(topic, copies, None) {
                    let found = made.iter().find(|(name, _)| *name == need.setting);
                    let Some((_, found)) = found else {
                        assert_eq!(need.setting, "retention.ms");
                        continue;
                    };
                    assert!(need.check(found.clone()).fits, "{topic:?} {need:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_may_be_without_bound_and_texts_are_exact() {
        assert!(Expected::AtLeast(5).is_met_by("-1"));
        assert!(!Expected::AtMost(5).is_met_by("-1"));
        assert!(Expected::AtMost(5).is_met_by("5") && !Expected::AtMost(5).is_met_by("6"));
        assert!(Expected::AtLeast(5).is_met_by("5"));
        assert!(!Expected::AtLeast(5).is_met_by("4"));
        assert!(!Expected::AtLeast(5).is_met_by(""));
        assert!(!Expected::Is("delete").is_met_by("compact,delete"));
        assert!(!Expected::Exactly(4).is_met_by("5"));
    }

    #[test]
    fn topics_kept_by_age_have_no_bound_of_bytes() {
        for topic in [Topic::Hits, Topic::Denials, Topic::Limits] {
            let mut needs = properties(topic, 1, None).into_iter();
            let bytes = needs
                .find(|need| need.setting == "retention.bytes")
                .unwrap();
            assert!(!bytes.check("1073741824".to_owned()).fits, "{topic:?}");
        }
    }

    #[test]
    fn denials_are_kept_as_long_as_hits_are() {
        let kept = |hits| {
            let needs = properties(Topic::Denials, 1, Some(hits));
            let need = needs
                .into_iter()
                .find(|need| need.setting == "retention.ms");
            need.unwrap().expected
        };
        assert_eq!(kept("7000"), Expected::AtLeast(7_000));
        assert!(!kept("-1").is_met_by("604800000"));
        assert!(kept("-1").is_met_by("-1"));
    }
}
