//! A short form of limits for tests: `2/1s active 20s | 4/1s active 2s cooldown 6s skippable`.

use tollgate_shared::time::Span;

use crate::limits::{RateClass, Tier, normalise};

/// Reads `limit/window [active SPAN] [cooldown SPAN] [skippable]`, tiers between `|`, and `hard N`
/// as a part of its own. Without an active time it is the window.
pub(crate) fn class(text: &str) -> RateClass {
    let mut tiers = Vec::new();
    let mut hard = None;
    for part in text
        .split('|')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let mut words = part.split_whitespace();
        let first = words.next().expect("a part has a word");
        if first == "hard" {
            hard = Some(words.next().expect("a number").parse().expect("a number"));
            continue;
        }
        let (limit, window) = first.split_once('/').expect("limit/window");
        let window = span(window);
        let mut tier = Tier {
            limit: limit.parse().expect("a limit"),
            window,
            active: window,
            cooldown: Span::ZERO,
            skippable: false,
        };
        while let Some(word) = words.next() {
            match word {
                "active" => tier.active = span(words.next().expect("a span")),
                "cooldown" => tier.cooldown = span(words.next().expect("a span")),
                "skippable" => tier.skippable = true,
                other => panic!("what is {other:?}?"),
            }
        }
        tiers.push(tier);
    }
    let tiers = Some(normalise(&tiers).0);
    RateClass {
        tiers,
        hard,
        ..RateClass::default()
    }
}

fn span(text: &str) -> Span {
    match text.strip_suffix("us") {
        Some(micros) => Span::from_micros(micros.parse().expect("microseconds")),
        None => {
            let seconds = text.strip_suffix('s').expect("a span ends with s or us");
            let seconds: f64 = seconds.parse().expect("seconds");
            Span::from_micros((seconds * 1e6).round() as u64)
        }
    }
}
