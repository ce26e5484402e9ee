//! Acts of operators, clause by clause: each takes effect from the activation's record on, on the scopes
//! that it names, and for as long as it states.

use tollgate_engine::engine::{Engine, Fate};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::hits::Hit;

use crate::support::log::START_US;
use crate::support::play::Play;

const TWO_A_MINUTE: &str = "[rate.search]\ntiers = [{ limit = 2, window = \"1m\", active = \"1m\" }]\n[rate.export]\nrate = \"9/s\"\n";

fn pardon(domain: &str) -> Act {
    Act::Pardon {
        resource: "search".into(),
        domain: domain.into(),
    }
}

fn reset(domain: &str) -> Act {
    Act::Reset {
        resource: "search".into(),
        domain: domain.into(),
    }
}

fn refund(hits: u64) -> Act {
    Act::Refund {
        resource: "search".into(),
        domain: "acme".into(),
        hits,
    }
}

/// A ban until so many microseconds after the log's beginning; `None`: for ever.
fn ban(resource: Option<&str>, until_us: Option<u64>) -> Act {
    let until = until_us.map_or(Timestamp::MAX, |us| Timestamp::from_micros(START_US + us));
    Act::Ban {
        resource: resource.map(Into::into),
        domain: "acme".into(),
        until,
    }
}

fn unban(resource: Option<&str>) -> Act {
    Act::Unban {
        resource: resource.map(Into::into),
        domain: "acme".into(),
    }
}

/// `search` of acme is full, and denied for a minute.
fn denied() -> Play {
    let mut play = Play::of(TWO_A_MINUTE);
    play.tick(500);
    play.hits("search", &["acme", "acme"]);
    assert_eq!(play.output(), ["search acme: 60500001, tier 1"]);
    play
}

#[test]
fn a_pardoned_pair_is_counted_but_not_denied_too_soon() {
    let mut play = denied();
    play.tick(1_000);
    assert_eq!(play.amend(pardon("acme")), Fate::Applied);
    assert_eq!(play.output(), ["search acme: open"]);
    play.hits("search", &["acme"; 5]);
    assert_eq!((play.output().len(), play.counts().excess), (0, 5));
    // The window has room: the hits that fill it cause a denial again, despite the pardon.
    play.tick(60_500);
    play.hits("search", &["acme", "acme"]);
    assert_eq!(play.counts().granted, 2);
    assert_eq!(play.output(), ["search acme: 122000001, tier 1"]);
    assert_eq!(play.engine.amended(), 0, "it has ended");
}

const THREE_AN_HOUR: &str = "[rate.search]\nrate = \"3/h\"\n";

/// `search` of acme was let through four times under three an hour, and is pardoned.
fn pardoned() -> Play {
    let mut play = Play::of(THREE_AN_HOUR);
    play.tick(500);
    play.hits("search", &["acme"; 4]);
    assert_eq!(play.counts().excess, 1);
    play.tick(1_000);
    play.amend(pardon("acme"));
    assert_eq!(play.output(), ["search acme: open"]);
    play.hits("search", &["acme"]);
    assert_eq!((play.output().len(), play.counts().excess), (0, 1));
    play
}

#[test]
fn a_pardon_is_over_once_the_limits_grant_a_hit() {
    type Opened = fn(&mut Play);
    let opened: [(&str, Opened); 4] = [
        ("window:0", |play| {
            play.version("[rate.search]\nrate = \"6/h\"\n");
        }),
        ("window:0", |play| {
            play.version("[rate.search]\nrate = \"3/h\"\ndomains.acme = { rate = \"6/h\" }\n");
        }),
        ("window:0", |play| {
            play.amend(refund(3));
        }),
        ("tier 1", |play| {
            let tier = "tiers = [{ limit = 2, window = \"1h\", active = \"1h\" }]";
            play.version(&format!("[rate.search]\n{tier}\n"));
        }),
    ];
    for (number, (cause, open)) in opened.into_iter().enumerate() {
        let mut play = pardoned();
        open(&mut play);
        assert!(play.output().is_empty(), "{number}");
        play.tick(1_000);
        let before = play.engine.digest();
        play.hits("search", &["acme"]);
        assert_eq!(
            (play.counts().granted, play.engine.amended()),
            (1, 0),
            "{number}"
        );
        assert_ne!(play.engine.digest(), before);
        play.hits("search", &["acme"; 5]);
        let (granted, output) = (play.counts().granted, play.output());
        assert!(
            0 < granted && play.counts().excess < 5,
            "{number}: {output:?}"
        );
        let denied = output
            .first()
            .is_some_and(|of| of.starts_with("search acme: 36"));
        assert!(denied && output[0].ends_with(cause), "{number}: {output:?}");
    }
}

/// A late hit of an earlier period is granted there, which shows nothing of this one.
#[test]
fn a_late_grant_does_not_end_a_pardon() {
    let mut play = Play::of("[rate.search]\nquota = \"2/day\"\n");
    // Half a second before and after the beginning of a day.
    play.tick(57_599_500);
    let before = Timestamp::from_millis(play.now_ms);
    play.tick(1_000);
    play.hits("search", &["acme"; 2]);
    assert_eq!(play.output(), ["search acme: 144000000000, quota:0"]);
    play.tick(100);
    play.amend(pardon("acme"));
    assert_eq!(play.output(), ["search acme: open"]);
    play.next_batch("search", &[Hit::one(0, "acme", before, 1)]);
    assert_eq!((play.counts().granted, play.counts().late), (1, 0));
    assert_eq!((play.output().len(), play.engine.amended()), (0, 1));
    // Nor does one of this period that has no room; one of the next does.
    play.hits("search", &["acme"]);
    assert_eq!((play.counts().excess, play.engine.amended()), (1, 1));
}

#[test]
fn a_version_that_leaves_no_room_does_not_end_a_pardon() {
    let mut play = pardoned();
    play.version("[rate.search]\nrate = \"2/h\"\n");
    play.hits("search", &["acme"; 2]);
    assert_eq!((play.output().len(), play.counts().excess), (0, 2));
    assert_eq!(play.engine.amended(), 1);
}

#[test]
fn a_banned_hit_does_not_end_a_pardon_and_a_granted_one_no_ban() {
    let mut play = pardoned();
    play.amend(refund(3));
    play.amend(ban(Some("search"), Some(9_000_000)));
    play.hits("search", &["acme"]);
    assert_eq!((play.counts().excess, play.engine.amended()), (1, 1));
    play.tick(9_000);
    assert_eq!(play.engine.amended(), 1, "the ban has ended");
    play.amend(ban(Some("export"), None));
    play.hits("search", &["acme"]);
    assert_eq!(
        (play.counts().granted, play.engine.amended()),
        (1, 1),
        "the other ban"
    );
    assert_eq!(play.output().len(), 1, "denied: it is full");
}

#[test]
fn a_pardon_takes_debt_back_to_the_limit() {
    let mut play = denied();
    play.tick(1_000);
    play.hits("search", &["acme", "acme"]);
    assert_eq!(play.output(), ["search acme: 61500001, tier 1"]);
    play.amend(pardon("acme"));
    assert_eq!(play.output(), ["search acme: open"]);
    // The two hits in excess are forgiven, so there is room when the first two have left.
    play.tick(59_500);
    play.hits("search", &["acme", "acme"]);
    assert_eq!(play.counts().granted, 2);
}

#[test]
fn a_pardon_changes_neither_closed_nor_unknown_pairs() {
    let mut play = Play::of("[rate.search]\ntiers = []\n");
    play.tick(500);
    play.hits("search", &["acme"]);
    assert_eq!(play.output(), ["search acme: never, inaccessible"]);
    play.amend(pardon("acme"));
    assert_eq!((play.output().len(), play.engine.amended()), (0, 0));
    for act in [pardon("globex"), reset("globex"), unban(None)] {
        assert_eq!(play.amend(act), Fate::Applied);
        assert_eq!((play.output().len(), play.engine.pairs()), (0, 1));
    }
}

#[test]
fn a_reset_forgets_what_was_used_and_a_refund_the_newest_of_it() {
    let mut play = denied();
    play.amend(reset("acme"));
    assert_eq!(play.output(), ["search acme: open"]);
    play.tick(1_000);
    play.hits("search", &["acme"]);
    play.tick(1_000);
    play.hits("search", &["acme"]);
    assert_eq!(play.output(), ["search acme: 61500001, tier 1"]);
    play.amend(refund(1));
    assert_eq!(play.output(), ["search acme: open"]);
    // The older of the two counts still: the next denial lasts until it leaves.
    play.hits("search", &["acme", "acme"]);
    assert_eq!((play.counts().granted, play.counts().excess), (1, 1));
    assert_eq!(
        play.output(),
        [
            "search acme: 61500001, tier 1",
            "search acme: 62500001, tier 1"
        ],
        "the second is excess and counts"
    );
    play.amend(refund(u64::MAX));
    play.hits("search", &["acme", "acme"]);
    assert_eq!(play.counts().granted, 2, "all were given back");
}

#[test]
fn a_ban_denies_until_its_end_and_hits_meanwhile_are_excess() {
    let mut play = Play::of(TWO_A_MINUTE);
    play.tick(500);
    play.amend(ban(Some("search"), Some(9_000_000)));
    assert_eq!(
        play.output(),
        ["search acme: 9000000, banned"],
        "never met, and denied"
    );
    play.hits("search", &["acme", "acme"]);
    assert_eq!((play.counts().excess, play.output().len()), (2, 0));
    play.hits("export", &["acme"]);
    assert_eq!(play.counts().granted, 1);
    play.tick(9_000);
    assert_eq!(
        (play.engine.amended(), play.engine.live_denials().count()),
        (0, 0)
    );
    play.hits("search", &["acme", "acme"]);
    assert_eq!(play.counts().granted, 2, "they took nothing of its window");
    // Of a ban and a full window the longer one is stated, and the other once that is lifted.
    play.amend(ban(Some("search"), None));
    assert_eq!(play.output(), ["search acme: never, banned"]);
    play.amend(pardon("acme"));
    assert!(play.output().is_empty(), "a ban is not pardoned");
    play.amend(unban(Some("search")));
    // The pardon covered its full window as well, so nothing is left.
    assert_eq!(play.output(), ["search acme: open"]);
}

#[test]
fn a_domain_banned_everywhere_is_denied_everywhere() {
    let mut play = Play::of(TWO_A_MINUTE);
    play.tick(500);
    play.amend(ban(None, None));
    let mut output = play.output();
    output.sort();
    assert_eq!(
        output,
        ["export acme: never, banned", "search acme: never, banned"]
    );
    play.hits("unheard.of", &["acme", "globex"]);
    assert_eq!(play.output(), ["unheard.of acme: never, banned"]);
    assert_eq!((play.counts().excess, play.counts().unconfigured), (1, 1));
    // New limits leave it in force; unban lifts it everywhere.
    play.version("[rate.search]\nrate = \"1/s\"\n");
    assert!(play.output().is_empty());
    play.amend(unban(None));
    assert_eq!(play.output().len(), 3, "{:?}", play.output());
    assert_eq!(play.engine.live_denials().count(), 0);
    play.tick(700_000);
    assert_eq!((play.engine.pairs(), play.engine.amended()), (0, 0));
}

#[test]
fn a_banned_network_denies_an_address_at_its_next_hit() {
    let ban = |resource: Option<&str>| Act::Ban {
        resource: resource.map(Into::into),
        domain: "10.1.0.0/16".into(),
        until: Timestamp::MAX,
    };
    let mut play = Play::of("[rate.search]\nrate = \"2/m\"\n[rate.\"api.*\"]\nrate = \"2/m\"\n");
    play.tick(500);
    play.hits("search", &["10.1.2.3", "10.1.2.3", "10.1.9.9", "10.2.2.3"]);
    assert_eq!(play.output(), ["search 10.1.2.3: 60500001, window:0"]);
    // The names of denied domains are known: their denials are extended at once.
    play.amend(ban(Some("search")));
    assert_eq!(play.output(), ["search 10.1.2.3: never, banned"]);
    let digest = play.engine.digest();
    let chunks = play.engine.snapshot();
    let restored = Engine::restore(0, 1, &chunks, &play.versions);
    play.engine = restored.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(play.engine.digest(), digest);
    play.hits("search", &["10.1.9.9", "10.2.2.3", "::ffff:10.1.7.7"]);
    assert_eq!(
        play.output(),
        [
            "search 10.1.9.9: never, banned",
            "search 10.2.2.3: 60500001, window:0",
            "search ::ffff:10.1.7.7: never, banned"
        ]
    );
    assert_eq!((play.counts().granted, play.counts().excess), (1, 2));
    play.hits("api.export", &["10.1.9.9"]);
    assert!(
        play.output().is_empty(),
        "banned on the other resource alone"
    );
    let unban = Act::Unban {
        resource: Some("search".into()),
        domain: "10.1.0.0/16".into(),
    };
    play.amend(unban);
    let output = play.output();
    assert!(
        output.contains(&"search ::ffff:10.1.7.7: open".to_owned()),
        "{output:?}"
    );
    // A ban everywhere also applies to a resource that is configured by a pattern, but never under the
    // pattern's own name.
    play.amend(ban(None));
    assert_eq!(play.output().len(), 2, "those that are denied still");
    play.hits("api.export", &["10.1.9.9"]);
    assert_eq!(play.output(), ["api.export 10.1.9.9: never, banned"]);
}

#[test]
fn no_number_of_amendments_makes_a_pair_forget_its_tiers() {
    let mut play = denied();
    for number in 0..300 {
        play.amend(pardon(&format!("tenant-{number}")));
    }
    assert_eq!(play.engine.version(), Some(play.offset + 99));
    play.hits("search", &["acme"]);
    assert_eq!(play.counts().excess, 1, "its window is as full as before");
}

#[test]
fn bans_and_pardons_are_in_snapshots_and_in_the_digest() {
    let mut play = denied();
    let before = play.engine.digest();
    play.amend(pardon("acme"));
    let pardoned = play.engine.digest();
    play.amend(ban(None, Some(90_000_000)));
    let digests = [before, pardoned, play.engine.digest()];
    assert!(digests[0] != digests[1] && digests[1] != digests[2]);
    let chunks = play.engine.snapshot();
    let restored = Engine::restore(0, 1, &chunks, &play.versions);
    play.engine = restored.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(play.engine.digest(), digests[2]);
    play.amend(unban(None));
    play.hits("search", &["acme"]);
    assert_eq!(
        (play.output().len(), play.counts().excess),
        (0, 1),
        "still pardoned"
    );
}

#[test]
fn of_amendments_that_others_override_a_snapshot_has_the_last() {
    let bytes_after = |bans: u64| {
        let mut play = denied();
        for n in 0..bans {
            // Never the same end twice, and the last end in both.
            let until_us = 1_000_000_000 + (bans - n) * 1_000;
            for resource in [None, Some("search")] {
                play.amend(ban(resource, Some(until_us)));
            }
            if n.is_multiple_of(2) {
                play.amend(unban(None));
                play.amend(ban(None, Some(until_us)));
            }
        }
        assert_eq!(play.engine.amended(), 2);
        let bytes: usize = play.engine.snapshot().iter().map(Vec::len).sum();
        // An hour later all of them are gone.
        play.tick(3_600_000);
        assert_eq!(play.engine.amended(), 0);
        bytes
    };
    let (one, many) = (bytes_after(1), bytes_after(500));
    // Offsets and version numbers are longer.
    assert!(many <= one + 64, "{one} bytes of one, {many} of many");
}
