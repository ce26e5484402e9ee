//! A short form of limits for tests: `2/1s active 20s | 4/1s active 2s cooldown 6s skippable`.

use std::sync::Arc;

use tollgate_shared::time::Span;

use tollgate_limits::{Bucket, Calendar, Quota, RateClass, Tier, Window, Zone, normalise};

/// Reads parts between `|`: tiers as `limit/window [active SPAN] [cooldown SPAN] [skippable]`, where the
/// active time defaults to the window; and `hard N`, `window N/SPAN`, `quota N/day`, `bucket N/SPAN burst N
/// debt N`. With other parts and no tier, tiers are not stated.
pub(crate) fn class(text: &str) -> RateClass {
    let mut class = RateClass::default();
    let (mut tiers, mut windows, mut quotas) = (Vec::new(), Vec::new(), Vec::new());
    for part in text
        .split('|')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let mut words = part.split_whitespace();
        let mut next = || words.next().expect("a word");
        match next() {
            "hard" => class.hard = Some(number(next())),
            "window" => {
                let (limit, window) = rate(next());
                windows.push(Window { limit, window });
            }
            "quota" => {
                let (limit, unit) = next().split_once('/').expect("limit/unit");
                quotas.push(Quota {
                    limit: number(limit),
                    unit: match unit {
                        "day" => Calendar::Day,
                        "week" => Calendar::Week,
                        "month" => Calendar::Month,
                        "year" => Calendar::Year,
                        other => panic!("what is {other:?}?"),
                    },
                    zone: Arc::new(Zone::default()),
                });
            }
            "bucket" => {
                let (tokens, period) = rate(next());
                let (_, burst, _, debt) = (next(), number(next()), next(), number(next()));
                class.bucket = Some(Bucket::new(tokens, period, burst, debt));
            }
            first => tiers.push(tier(first, words)),
        }
    }
    (class.windows, class.quotas) = (windows.into(), quotas.into());
    let stated = !tiers.is_empty() || class.is_unlimited();
    class.tiers = stated.then(|| normalise(&tiers).0);
    class
}

fn tier<'a>(first: &str, mut words: impl Iterator<Item = &'a str>) -> Tier {
    let (limit, window) = rate(first);
    let mut tier = Tier {
        limit,
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
    tier
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn rate(text: &str) -> (u64, Span) {
    let (limit, window) = text.split_once('/').expect("limit/window");
    (number(limit), span(window))
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
