//! Tests of the header fields and texts of answers.

use super::*;
use crate::deny::Closed;
use tollgate_shared::log_position::LogPosition;

fn denied(remaining: Span, cause: Cause, limit: u64, window: Span) -> Denied {
    let closed = Closed {
        limit,
        window,
        cause,
    };
    let position = LogPosition {
        generation: 1,
        offset: 18_250,
        entry: 0,
    };
    let refusal = Refusal {
        scope: Scope::Pair,
        partition: 3,
        position,
        remaining,
        closed,
    };
    Denied::of_refusal(&refusal, Policy::NONE)
}

fn texts(headers: &Headers) -> Vec<(&'static str, String)> {
    headers.iter().collect()
}

#[test]
fn a_refusal_has_all_known_details() {
    let denied = denied(
        Span::from_millis(4_100),
        Cause::Tier(2),
        100,
        Span::from_secs(10),
    );
    assert_eq!(
        texts(&denied.headers()),
        [
            ("retry-after", "5".to_owned()),
            ("ratelimit-policy", "\"tier-2\";q=100;w=10".to_owned()),
            ("ratelimit", "\"tier-2\";r=0;t=5".to_owned()),
        ]
    );
    assert_eq!(
        denied.to_string(),
        "rate limited (tier 2), retry in 4.1s, code 3-18250-0-1"
    );
}

#[test]
fn unknown_details_are_left_out() {
    // A window that is not a whole number of seconds, and an unknown end.
    let odd = denied(Span::MAX, Cause::Hard, 7, Span::from_millis(1_500));
    assert_eq!(
        texts(&odd.headers()),
        [
            ("ratelimit-policy", "\"hard\";q=7".to_owned()),
            ("ratelimit", "\"hard\";r=0".to_owned())
        ]
    );
    assert_eq!(odd.retry_after(), None);
    let blind = Denied::by_policy(Cause::Blind, Span::from_millis(1));
    assert_eq!(texts(&blind.headers()), [("retry-after", "1".to_owned())]);
    assert_eq!(
        texts(&Allowed::new(1, false, Policy::default()).headers()),
        []
    );
}

#[test]
fn a_limit_on_copies_is_shown_in_its_unit() {
    let full = denied(Span::MAX, Cause::Full, 10, Span::ZERO);
    let headers = full.headers();
    let policy = "\"copies\";q=10;qu=\"concurrent-requests\"";
    assert_eq!(headers.rate_limit_policy(), Some(policy));
    assert_eq!(headers.rate_limit(), Some("\"copies\";r=0"));
    assert_eq!(headers.retry_after_secs(), None);
    assert_eq!(full.room(), None, "it has no window");
    let of_all = Denied {
        scope: Scope::Resource,
        ..full
    };
    let policy = of_all.headers().rate_limit_policy().map(str::to_owned);
    assert!(policy.is_some_and(|policy| policy.starts_with("\"copies-global\";q=10;")));
    // The limit is not known.
    assert_eq!(texts(&Denied::of_full(Scope::Group).headers()), []);
}

#[test]
fn an_allowed_call_near_its_limit_has_the_remainder() {
    let left = Left {
        remaining: 7,
        limit: 50,
        window: Span::from_secs(10),
        more_in: Span::from_millis(1_100),
        cause: Cause::Window(1),
    };
    let of = |left| Allowed::new(1, false, Policy::default()).with_left(Some(left));
    assert_eq!(
        texts(&of(left).headers()),
        [
            ("ratelimit-policy", "\"window-1\";q=50;w=10".to_owned()),
            ("ratelimit", "\"window-1\";r=7;t=2".to_owned()),
        ]
    );
    let more_in = Span::MAX;
    let headers = of(Left { more_in, ..left }).headers();
    assert_eq!(headers.rate_limit(), Some("\"window-1\";r=7"));
    assert_eq!((of(left).remaining(), of(left).is_near()), (Some(7), true));
}

#[test]
fn answers_are_small() {
    assert!(size_of::<Result<Allowed, Denied>>() <= 72);
    assert!(size_of::<Result<Allowed, crate::refused::Refused>>() <= 72);
}
