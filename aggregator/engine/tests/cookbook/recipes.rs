//! The recipes of the cookbook: each is a document without a fault or a warning, and its calls get the answers
//! that it states.

use std::collections::BTreeMap;

use tollgate_shared::time::Timestamp;

use tollgate_engine::rules::refund::Settlement;
use tollgate_engine::stream::{Closed, Entry, Pair, PairEvent};
use tollgate_limits::{Calendar, Limits, RateClass, parse_span, print_span};

const RECIPES: &str = include_str!("../../../../config/cookbook/recipes.md");

/// Midnight of a day in the middle of a month, in UTC.
const START: Timestamp = Timestamp::from_millis(1_795_564_800_000);

#[test]
fn every_recipe_is_valid_and_rules_as_documented() {
    let blocks = |kind: &str| -> Vec<&str> {
        let begin = format!("```{kind}\n");
        let blocks = RECIPES.split(begin.as_str()).skip(1);
        blocks.filter_map(|rest| rest.split("```").next()).collect()
    };
    let (documents, calls) = (blocks("toml"), blocks("text"));
    assert_eq!((documents.len(), calls.len()), (7, 7));
    let mut wrong = String::new();
    for (document, calls) in documents.iter().zip(calls) {
        let read = Limits::parse_with_warnings(document);
        let (limits, warnings) = read.unwrap_or_else(|faults| panic!("{document}{faults}"));
        assert_eq!(warnings.list, [], "{document}");
        let mut pairs = BTreeMap::new();
        for line in calls.lines() {
            let mut words = line
                .split("  ")
                .map(str::trim)
                .filter(|next_word| !next_word.is_empty());
            let mut next_word = || words.next().unwrap_or_else(|| panic!("{line:?}"));
            let (resource, domain, at, call) = (next_word(), next_word(), next_word(), next_word());
            let expected = words.next().unwrap_or_else(|| panic!("{line:?}"));
            let now = START.saturating_add(parse_span(at).expect("a duration"));
            let rate = limits.rate(resource).expect("it is configured");
            let domain = rate.limited_as(domain).expect("a domain");
            let class = limits
                .class_of(resource, &domain)
                .expect("it is configured");
            let pair = pairs
                .entry((resource, domain))
                .or_insert_with(|| Pair::of(class));
            let answer = answer(pair, class, now, call);
            if answer != expected {
                wrong.push_str(&format!("{line}\n    is: {answer}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The answer of an agent that has received every statement so far.
fn answer(pair: &mut Pair, class: &RateClass, now: Timestamp, call: &str) -> String {
    if let Some(settled) = call.strip_prefix("settle ") {
        let words: Vec<&str> = settled.split(' ').collect();
        let [estimate, "of", made, "at", actual] = *words else {
            panic!("{call:?}");
        };
        let number = |text: &str| text.parse::<u64>().expect("copies");
        let settlement = Settlement {
            made: START.saturating_add(parse_span(made).expect("a duration")),
            copies: number(estimate) - number(actual),
            actual: number(actual),
        };
        let event = PairEvent::Settlement(settlement);
        let ruled = pair.rule(class, now, event, false);
        return format!("given back: {}, {}", ruled.refunded, left(pair, class, now));
    }
    let copies = call.parse().expect("copies");
    if let Some(closure) = pair.closure(class, now) {
        let by = match closure.by {
            Closed::Hard => "hard".to_owned(),
            Closed::Window(of) => {
                let window = class.windows[usize::from(of)].window;
                format!("window \"{}\"", print_span(window))
            }
            Closed::Quota(of) => match class.quotas[usize::from(of)].unit {
                Calendar::Day => "quota of the day".to_owned(),
                Calendar::Month => "quota of the month".to_owned(),
                unit => format!("{unit:?}"),
            },
            Closed::Bucket => "bucket".to_owned(),
            Closed::Tier(tier) => format!("tier {tier}"),
            Closed::Inaccessible => "inaccessible".to_owned(),
        };
        return match closure.end {
            Timestamp::MAX => format!("refused for ever: {by}"),
            end => format!("refused for {}: {by}", print_span(end.since(now))),
        };
    }
    if class.most_at_once().is_some_and(|most| most < copies) {
        return "too many at once, ever".to_owned();
    }
    let entry = Entry {
        copies,
        estimated: true,
        ..Entry::default()
    };
    pair.rule(class, now, PairEvent::Entry(entry), false);
    format!("let through, {}", left(pair, class, now))
}

fn left(pair: &Pair, class: &RateClass, now: Timestamp) -> String {
    match pair.room(class, now) {
        Some(left) => format!("{} left", left.copies),
        None => "never limited".to_owned(),
    }
}
