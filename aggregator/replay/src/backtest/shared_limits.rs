//! Since when limits that several pairs share have been full: a resource's global limit, and those of a network.
//!
//! ```text
//! global = "1000/s", all domains ask for 5000/s      full all the time: what becomes free is taken within a millisecond
//! global = "1/s", one call a minute                  full for a second each minute
//! ```
//!
//! A pair that calls once a second sees neither: other pairs may have taken what became free between two of its calls,
//! or nobody may have wanted it. Knows nothing of calls. What stays true: instants of one limit never fall.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tollgate_engine::rules::Until;
use tollgate_shared::time::{Span, Timestamp};

/// Room that others take within this time does not end a stretch in which a limit was full: the window of a global
/// limit. Pairs take room at once if they ask for more than there is.
const TAKEN_WITHIN: Span = Span::from_secs(1);

/// The shared limits of one limits file.
#[derive(Debug, Default)]
pub(super) struct SharedLimits {
    /// Global limits, by resource number.
    global: HashMap<u32, FullStretch, RandomState>,
    /// The limits of networks, by the number of their first pair.
    network: HashMap<u32, FullStretch, RandomState>,
}

/// A time in which a limit was full.
#[derive(Clone, Copy, Debug)]
struct FullStretch {
    since: Timestamp,
    /// When it has room again, by what is known.
    until: Timestamp,
}

impl SharedLimits {
    /// Since when a resource's global limit has been full; `now` if it has room.
    pub fn global(&mut self, resource: u32, now: Timestamp, opens: Until) -> Timestamp {
        full_since(&mut self.global, resource, now, opens)
    }

    /// Since when the limits of a network have been full; `now` if they have room.
    pub fn network(&mut self, lead: u32, now: Timestamp, opens: Until) -> Timestamp {
        full_since(&mut self.network, lead, now, opens)
    }
}

fn full_since(
    all: &mut HashMap<u32, FullStretch, RandomState>,
    limit: u32,
    now: Timestamp,
    opens: Until,
) -> Timestamp {
    let until = match opens {
        Until::Now => return now,
        Until::At(opens) => opens,
        Until::Never => Timestamp::MAX,
    };
    let begins = FullStretch { since: now, until };
    let stretch = all.entry(limit).or_insert(begins);
    if stretch.until.saturating_add(TAKEN_WITHIN) < now {
        *stretch = begins;
    }
    stretch.until = until;
    stretch.since
}

#[cfg(test)]
mod tests {
    use tollgate_limits::Limits;

    use super::*;
    use crate::backtest::pairs::Pairs;
    use crate::backtest::replay::Player;
    use crate::backtest::tally::PairTally;
    use crate::backtest::tape::{Call, CallKind};

    /// Plays calls of one hit, each at a millisecond, by two domains; returns the first one's counts.
    fn played(
        limits: &str,
        (us, others): (&str, &str),
        calls: impl Iterator<Item = (u64, bool)>,
    ) -> PairTally {
        let limits = Limits::parse(limits).expect("good");
        let mut pairs = Pairs::default();
        let (us, others) = (pairs.number_of("r", us), pairs.number_of("r", others));
        let mut player = Player::new(&pairs, &limits);
        for (ms, is_ours) in calls {
            player.call(&Call {
                at: Timestamp::from_millis(ms),
                pair: if is_ours { us } else { others },
                copies: 1,
                min: 1,
                kind: CallKind::LetThrough,
            });
        }
        *player.tally(us)
    }

    const GLOBAL: &str = "[rate.r]\nrate = \"9/s\"\nglobal = \"4/s\"\n";
    const NETWORK: &str = "[rate.r]\nrate = \"4/s\"\naddresses = { v4 = 24, v6 = 64 }\n";

    #[test]
    fn room_that_others_take_at_once_ends_no_stretch() {
        // Others ask for eight a second. What became free since the second before is taken before our call.
        let second = |second: u64| {
            let calls = (0..8).map(|ms| (ms, false)).chain([(8, true)]);
            calls.map(move |(ms, is_ours)| (1_001 * second + ms, is_ours))
        };
        for (limits, domains) in [
            (GLOBAL, ("us", "others")),
            (NETWORK, ("10.0.0.1", "10.0.0.2")),
        ] {
            let tally = played(limits, domains, (0..60).flat_map(second));
            assert_eq!((tally.refused(), tally.granted.calls), (60, 0), "{limits}");
            assert_eq!(tally.longest.calls, 60, "{limits}");
            assert_eq!(tally.longest.span().as_micros(), 59_059_000, "{limits}");
        }
    }

    #[test]
    fn room_that_nobody_wanted_ends_a_stretch() {
        // Each minute others fill the limit once, and two calls are refused.
        let minute = |minute: u64| {
            let at = [(0, false), (1, false), (2, false), (3, false)];
            let calls = at.into_iter().chain([(100, true), (600, true)]);
            calls.map(move |(ms, is_ours)| (60_000 * minute + ms, is_ours))
        };
        for (limits, domains) in [
            (GLOBAL, ("us", "others")),
            (NETWORK, ("10.0.0.1", "10.0.0.2")),
        ] {
            let tally = played(limits, domains, (0..3).flat_map(minute));
            assert_eq!((tally.refused(), tally.longest.calls), (6, 2), "{limits}");
            assert_eq!(tally.longest.span().as_micros(), 500_000, "{limits}");
        }
    }
}
