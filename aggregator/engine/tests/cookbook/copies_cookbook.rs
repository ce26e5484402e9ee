//! The cookbook's examples of copies: each reads without a fault or a warning, and the rules do what its
//! comments describe.
//!
//! ```text
//! #   new-1   takes 3    gets 1     why              asks for 1 to 3 copies, is granted one
//! #   new-1   gives 1                                 releases one, of its oldest hold first
//! #   new-1   leaves probation                        the document again, without its name in the group
//! ```
//!
//! Knows nothing of aggregators. What stays true: every line of a table is played, and a table that
//! cannot be read is a failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_engine::copies::{Copies, CopiesRequest, CopyLimits, Effects, HoldId, NameKey};
use tollgate_limits::Limits;
use tollgate_shared::time::Timestamp;

const BULKHEADS: &str = include_str!("../../../../config/cookbook/bulkheads.toml");
const RESERVED: &str = include_str!("../../../../config/cookbook/reserved.toml");
const PROBATION: &str = include_str!("../../../../config/cookbook/probation.toml");
const BLACKLIST: &str = include_str!("../../../../config/cookbook/blacklist.toml");

/// The line before a table.
const TABLE: &str = "# What happens, from top to bottom:";

#[test]
fn bulkheads_rule_as_documented() {
    play(BULKHEADS, "cookbook.bulkheads", 9);
}

#[test]
fn a_reserved_set_rules_as_documented() {
    play(RESERVED, "cookbook.reserved", 8);
}

#[test]
fn probation_rules_as_documented() {
    play(PROBATION, "cookbook.probation", 9);
}

#[test]
fn a_blacklist_rules_as_documented() {
    play(BLACKLIST, "cookbook.blacklist", 7);
}

/// A line of a table.
enum Step<'a> {
    Takes { requested: u32, gets: u32 },
    Gives { copies: u32 },
    Leaves { group: &'a str },
}

fn steps(text: &str) -> impl Iterator<Item = (&str, Step<'_>)> {
    let (_, table) = text.split_once(TABLE).expect("a table");
    let lines = table.lines().map(|line| line.trim_start_matches('#'));
    lines.filter(|line| !line.trim().is_empty()).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| -> u32 { word.parse().unwrap_or_else(|_| panic!("{line}")) };
        let step = match words[1..] {
            ["takes", requested, "gets", gets, ..] => Step::Takes {
                requested: number(requested),
                gets: number(gets),
            },
            ["gives", copies, ..] => Step::Gives {
                copies: number(copies),
            },
            ["leaves", group, ..] => Step::Leaves { group },
            _ => panic!("not a line of a table: {line}"),
        };
        (words[0], step)
    })
}

fn limits(text: &str, resource: &str) -> Arc<CopyLimits> {
    let (limits, warnings) =
        Limits::parse_with_warnings(text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(warnings.list, []);
    let resource = limits.copies(resource).expect("it is configured");
    Arc::new(CopyLimits::from(resource))
}

/// The document without a domain's name in a group.
fn without(text: &str, group: &str, domain: &str) -> String {
    let lines = text.lines().map(|line| {
        if line.starts_with(&format!("groups.{group} ")) {
            let left = line.replace(&format!("{domain:?}, "), "");
            assert_ne!(left, line, "{domain} is in {group}");
            return left;
        }
        line.to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn play(text: &str, resource: &str, expected_steps: usize) {
    let mut document = text.to_owned();
    let mut copies = Copies::new(limits(text, resource), NameKey { k0: 1, k1: 2 });
    let agent = copies.agent("agent", 1);
    let mut out = Effects::new();
    let mut holds: BTreeMap<&str, Vec<(HoldId, u32)>> = BTreeMap::new();
    let mut played = 0;
    for (number, (domain, step)) in (0u64..).zip(steps(text)) {
        played += 1;
        let id = HoldId { agent, number };
        match step {
            Step::Takes { requested, gets } => {
                let ask = CopiesRequest {
                    id,
                    at: Timestamp::from_micros(number),
                    domain,
                    copies: requested,
                };
                let grant = copies.reserve(ask, 1, &mut out).expect("a good ask");
                assert_eq!(grant.granted, gets, "{domain} takes {requested}");
                if 0 < gets {
                    holds.entry(domain).or_default().push((id, gets));
                }
            }
            Step::Gives { copies: mut left } => {
                for (id, held) in holds.get_mut(domain).into_iter().flatten() {
                    let released = left.min(*held);
                    if 0 < released {
                        copies
                            .release(*id, released, &mut out)
                            .expect("it has them");
                        (*held, left) = (*held - released, left - released);
                    }
                }
                assert_eq!(left, 0, "{domain} holds fewer");
            }
            Step::Leaves { group } => {
                document = without(&document, group, domain);
                copies.new_limits(limits(&document, resource));
            }
        }
        copies.audit().expect("every count is the sum of its holds");
    }
    assert_eq!(played, expected_steps);
}
