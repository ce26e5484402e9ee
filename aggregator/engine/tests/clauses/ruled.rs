//! What the engine promises beside the rules: what is ruled, what is only counted, when it stops,
//! and what a snapshot restores. Each test plays records and reads the statements.

mod causes;
mod many_versions;
mod rows;
mod snapshots;

use tollgate_engine::engine::{Engine, Fate, SnapshotFault, Stop};
use tollgate_shared::log_position::LogId;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};
use tollgate_shared::wire::record::{Total, kind};
use tollgate_shared::wire::statement::Cause;

use crate::support::log::START_US;
use crate::support::play::{LOG, Play, pen};

const TWO: &str =
    "[rate.\"api.search\"]\ntiers = [{ limit = 2, window = \"1s\", active = \"20s\" }]\n";

#[test]
fn a_denial_is_stated_once_at_the_entry_that_closes_the_pair() {
    let mut play = Play::of(TWO);
    play.hits("api.search", &["acme", "globex", "acme", "acme"]);
    assert_eq!(play.output(), ["api.search acme: 1000001, tier 1"]);
    let position = play.rulings.statements[0].statement.position;
    assert_eq!(
        (position.generation, position.offset, position.entry),
        (1, 2, 2)
    );
    let counts = play.counts();
    assert_eq!((counts.granted, counts.excess), (3, 1));
    play.hits("api.search", &["acme"]);
    assert_eq!(play.output(), [""; 0], "an equal end is not repeated");
    play.tick(2_000);
    play.hits("api.search", &["acme"]);
    assert_eq!(play.output(), [""; 0], "what ended by itself needs no lift");
}

#[test]
fn an_unconfigured_resource_is_let_through_or_refused() {
    let mut play = Play::of("[namespace.api]\nallow_unconfigured = false\n");
    play.hits("files.read", &["acme"]);
    assert_eq!((play.output().len(), play.counts().unconfigured), (0, 1));
    assert_eq!(play.engine.pairs(), 0);
    play.hits("api.search", &["acme", "acme"]);
    assert_eq!(play.output(), ["api.search acme: never, unconfigured"]);
    assert_eq!(play.counts().excess, 2);
    play.version(TWO);
    assert_eq!(play.output(), ["api.search acme: open"]);
    play.version("[namespace.api]\nallow_unconfigured = false\n");
    assert_eq!(play.output(), [""; 0], "a version starts no denial");
    play.hits("api.search", &["acme"]);
    assert_eq!(play.output(), ["api.search acme: never, unconfigured"]);
}

#[test]
fn a_resource_limited_in_copies_has_no_rate() {
    let mut play = Play::of("[copies.sandbox]\nlimit = 3\n");
    play.hits("sandbox", &["acme"]);
    assert_eq!(play.counts().unconfigured, 1);
}

#[test]
fn a_shadow_or_ignored_namespace_is_ruled_without_denials() {
    let ignored = format!("[namespace.api]\nignore_configured = true\n{TWO}");
    let shadow = format!("{TWO}shadow = true\n");
    for quiet in [ignored, shadow] {
        let mut play = Play::of(&quiet);
        play.hits("api.search", &["acme", "acme", "acme"]);
        let counts = play.counts();
        assert_eq!((counts.granted, counts.excess), (2, 1));
        assert_eq!(play.output(), [""; 0]);
        play.version(TWO);
        assert_eq!(play.output(), [""; 0], "a version starts no denial");
        play.hits("api.search", &["acme"]);
        assert_eq!(play.output(), ["api.search acme: 1000001, tier 1"]);
        play.version(&quiet);
        assert_eq!(play.output(), ["api.search acme: open"]);
        assert_eq!(play.engine.live_denials().count(), 0);
    }
}

#[test]
fn refused_calls_are_counted_and_never_ruled() {
    let mut play = Play::of(TWO);
    let at = Timestamp::from_millis(play.now_ms);
    let refused = Refused {
        resource: 0,
        domain: "acme",
        calls: 40,
        copies: 41,
        first: at,
        last: at,
        cause: Cause::Tier(1),
        position: None,
    };
    play.batch("api.search", 1, &[], &[refused]);
    let counts = play.counts();
    assert_eq!((counts.refused_calls, counts.refused_copies), (40, 41));
    assert_eq!((counts.entries, play.engine.pairs()), (0, 0));
}

#[test]
fn only_pairs_of_the_partition_are_ruled() {
    let domains = ["acme", "globex", "initech", "hooli", "umbrella", "wayne"];
    let mut play = Play::of_partition(TWO, 1, 3);
    play.hits("api.search", &domains);
    let ours = domains.iter();
    let ours = ours.filter(|domain| partition_of_pair("api.search", domain, 3) == 1);
    let ours = ours.count() as u64;
    assert!(0 < ours && ours < domains.len() as u64);
    let counts = play.counts();
    assert_eq!(counts.granted, ours);
    assert_eq!(counts.misrouted, domains.len() as u64 - ours);
}

#[test]
fn at_the_cap_a_new_pair_is_only_counted_and_none_evicted() {
    let capped = format!("[engine]\npairs_per_partition_max = 2\n{TWO}");
    let mut play = Play::of(&capped);
    play.hits("api.search", &["a", "b", "c", "a"]);
    let counts = play.counts();
    assert_eq!((counts.granted, counts.at_cap), (3, 1));
    // Active for 20 s: a pair still remembers something a minute after its hit.
    play.tick(59_000);
    play.hits("api.search", &["a", "c"]);
    assert_eq!(play.counts().at_cap, 1, "b stays");
    play.tick(2_000);
    play.hits("api.search", &["c"]);
    assert_eq!((play.counts().granted, play.rulings.evicted), (1, 1));
    assert_eq!(play.engine.pairs(), 2, "b has left, a has not");
}

#[test]
fn at_the_cap_pairs_that_remember_nothing_go_first() {
    let capped = "[engine]\npairs_per_partition_max = 2\n[rate.\"api.search\"]\nrate = \"2/s\"\n";
    let mut play = Play::of(capped);
    play.hits("api.search", &["a", "b", "c"]);
    assert_eq!(play.counts().at_cap, 1);
    play.tick(1_000);
    play.hits("api.search", &["b", "b", "c"]);
    assert_eq!(
        play.counts().at_cap,
        1,
        "a's second is over, its slot is not"
    );
    play.tick(1_000);
    play.hits("api.search", &["c", "d"]);
    let counts = play.counts();
    assert_eq!(
        (counts.granted, counts.at_cap, play.rulings.evicted),
        (1, 1, 1)
    );
    // A snapshot restores the pairs that are left, and evicted ones stay evicted.
    let chunks = play.engine.snapshot();
    let restored = Engine::restore(0, 1, &chunks, &play.versions).expect("a snapshot");
    assert_eq!(restored.digest(), play.engine.digest());
    assert_eq!(restored.pairs(), 2);
}

#[test]
fn a_resource_s_own_pair_is_ruled_at_the_cap_as_well() {
    let global = "[rate.\"api.search\"]\nrate = \"9/s\"\nglobal = \"1/s\"\n";
    let mut play = Play::of(&format!("[engine]\npairs_per_partition_max = 1\n{global}"));
    play.hits("api.search", &["a"]);
    let due = play.rulings.totals_due[0].clone();
    let from = (due.source_partition, due.source_offset);
    let total = pen().totals(&due.resource, from, &due.counted);
    assert_eq!(play.apply(&total), Fate::Applied);
    assert_eq!(play.output(), ["api.search *: 1000001, global"]);
}

#[test]
fn at_the_cap_the_global_limit_still_counts_new_domains() {
    let global = "[rate.\"api.search\"]\nrate = \"2/s\"\nglobal = \"9/s\"\n";
    let mut play = Play::of(&format!("[engine]\npairs_per_partition_max = 1\n{global}"));
    play.hits("api.search", &["a"]);
    play.hits("api.search", &["b", "c", "c", "b"]);
    assert_eq!((play.counts().granted, play.counts().at_cap), (0, 4));
    let totalled = |play: &Play| {
        let dues = play.rulings.totals_due.iter();
        let counted = dues.flat_map(|due| due.counted.iter());
        counted.map(|one| one.copies).sum::<u32>()
    };
    assert_eq!(totalled(&play), 4);
    // One entry alone uses no more of it than a domain may: its limit, and as much debt.
    let hit = Hit::one(0, "d", Timestamp::from_millis(play.now_ms), 1_000_000);
    play.batch("api.search", 100, &[hit], &[]);
    assert_eq!((play.counts().at_cap, totalled(&play)), (1_000_000, 4));
}

#[test]
fn at_the_bound_an_agent_is_given_up_and_counted_from_then_on() {
    let bound = format!("[engine]\nepochs_per_partition_max = 1\n{TWO}");
    let mut play = Play::of(&bound);
    play.hits("api.search", &["acme"]);
    let sent = Timestamp::from_millis(play.now_ms);
    let sender = Sender {
        agent: "web-2",
        epoch: 10,
        sequence: 1,
        sent,
    };
    let hit = Hit::one(0, "acme", sent, 1);
    let mut writer = Writer::new();
    let none: [Refused<'_>; 0] = [];
    write_hits(
        &mut writer,
        &sender,
        &["api.search"],
        [hit].into_iter(),
        none.into_iter(),
    );
    let newcomer = writer.as_slice().to_vec();
    assert_eq!(play.apply(&newcomer), Fate::Applied);
    assert_eq!(play.counts().granted, 1, "a new process is limited");
    assert_eq!(play.rulings.epochs_given_up, 1);
    // The longest-silent agent makes room, and its records are only counted.
    assert_eq!(
        play.hits("api.search", &["acme"]),
        Fate::TooManyAgents { entries: 1 }
    );
    assert_eq!(play.apply(&newcomer), Fate::Duplicate { entries: 1 });
}

#[test]
fn a_total_is_applied_once_and_not_after_a_later_one() {
    let global = "[rate.\"api.search\"]\nrate = \"9/s\"\nglobal = \"3/s\"\n";
    let mut source = Play::of(global);
    let mut due = Vec::new();
    for domains in [&["a", "b"][..], &[], &["c", "c"]] {
        source.hits("api.search", domains);
        due.append(&mut source.rulings.totals_due);
    }
    assert_eq!(due.len(), 2, "nothing granted, nothing to total");
    let record = |due: &tollgate_engine::engine::TotalDue| {
        let from = (due.source_partition, due.source_offset);
        pen().totals(&due.resource, from, &due.counted)
    };
    let mut play = Play::of(global);
    assert_eq!(play.apply(&record(&due[0])), Fate::Applied);
    assert_eq!(play.apply(&record(&due[0])), Fate::TotalOutOfOrder);
    assert_eq!(play.apply(&record(&due[1])), Fate::Applied);
    assert_eq!(play.output(), ["api.search *: 1000001, global"]);
    let counts = play.rulings.global_counts[0].counts;
    assert_eq!((counts.granted, counts.excess), (1, 1));
    assert_eq!(play.apply(&record(&due[0])), Fate::TotalOutOfOrder);
    let view = play.engine.everybody("api.search").expect("totalled");
    // Copies that were let through count, granted or not.
    assert_eq!((view.last_second, view.remaining), (4, 0));
    assert_eq!(
        view.denial.map(|live| live.denial.cause),
        Some(Cause::Global)
    );
}

#[test]
fn the_next_generation_restates_what_is_in_force() {
    let mut play = Play::of(TWO);
    play.tick(0);
    play.hits("api.search", &["acme", "acme", "globex", "globex", "hooli"]);
    play.log = LogId {
        generation: 2,
        random: 6,
    };
    let genesis = pen().genesis(play.log);
    assert_eq!(play.apply(&genesis), Fate::Applied);
    assert_eq!(play.output().len(), 2);
    let positions = play.rulings.statements.iter();
    let positions: Vec<_> = positions.map(|said| said.statement.position).collect();
    assert!(positions.iter().all(|position| position.generation == 2));
    assert_ne!(positions[0], positions[1]);
    // The state goes on: the pairs are the same.
    play.hits("api.search", &["acme"]);
    assert_eq!(play.counts().excess, 1);
    let twin = LogId {
        generation: 2,
        random: 7,
    };
    for other in [LOG, twin] {
        play.log = other;
        assert_eq!(play.tick(1_000), Fate::OfAnotherLog);
    }
    assert_eq!(
        play.engine.log_time(),
        Some(Timestamp::from_micros(START_US))
    );
}

#[test]
fn a_truncated_log_has_its_identity_from_a_tick() {
    // A tick of the previous log was in flight when the topic was recreated.
    for (offset, begins) in [(0, true), (7, false)] {
        let mut play = Play::of(TWO);
        play.engine = Engine::new(0, 1);
        play.offset = offset;
        let stale = match begins {
            true => Fate::OfAnotherLog,
            false => Fate::Applied,
        };
        assert_eq!(play.tick(0), stale);
        assert_eq!(play.engine.log(), (!begins).then_some(LOG));
        let fresh = LogId {
            generation: 1,
            random: 6,
        };
        let genesis = pen().genesis(fresh);
        let begun = match begins {
            true => Fate::Applied,
            false => Fate::OfAnotherLog,
        };
        assert_eq!(play.apply(&genesis), begun);
        assert_eq!(play.engine.log(), Some(if begins { fresh } else { LOG }));
    }
}

#[test]
fn a_tick_counts_once_a_slot() {
    let mut play = Play::of(TWO);
    assert_eq!(play.tick(0), Fate::Applied);
    assert_eq!(play.tick(499), Fate::TickIgnored);
    assert_eq!(play.tick(1), Fate::Applied);
}

#[test]
fn an_unknown_kind_is_skipped_only_if_marked_skippable() {
    let mut play = Play::of(TWO);
    let mut writer = Writer::new();
    writer.begin(kind::SKIPPABLE | 9);
    writer.array(0);
    let fate = play.apply(writer.as_slice());
    assert_eq!(
        fate,
        Fate::UnknownSkipped {
            kind: kind::SKIPPABLE | 9
        }
    );
    writer.begin(99);
    writer.array(0);
    let upto = play.engine.applied_upto();
    let stop = Stop::UnknownKind {
        kind: 99,
        offset: play.offset,
    };
    assert_eq!(play.apply(writer.as_slice()), Fate::Stopped(stop));
    assert_eq!(play.hits("api.search", &["acme"]), Fate::Stopped(stop));
    assert_eq!(play.rulings.stopped(), Some(stop));
    assert_eq!((play.engine.pairs(), play.engine.applied_upto()), (0, upto));
}

#[test]
fn an_activation_of_an_unknown_version_stops_the_partition() {
    let mut play = Play::of(TWO);
    let known = play.engine.version().expect("a version");
    assert_eq!(play.activate(known), Fate::ActivationKnown);
    assert_eq!(play.activate(known - 1), Fate::ActivationKnown);
    let stop = Stop::MissingVersion {
        version: known + 7,
        offset: play.offset,
    };
    assert_eq!(play.activate(known + 7), Fate::Stopped(stop));
    assert_eq!(play.engine.version(), Some(known));
}

#[test]
fn pairs_that_a_version_resets_are_counted_by_resource() {
    let document = |window: &str| format!("[rate.\"api.search\"]\nwindows = [\"2/{window}\"]\n");
    let mut play = Play::of(&document("1h"));
    play.tick(0);
    // It is denied, so the version rules it again; the other pairs follow at their next entries.
    play.hits("api.search", &["denied", "denied", "seldom", "never"]);
    let mut forgotten = Vec::new();
    let mut note = |play: &Play| {
        let all = play.rulings.counts.iter();
        forgotten.push(all.map(|of| of.counts.pairs_forgotten).sum::<u64>());
    };
    play.version(&document("2h"));
    note(&play);
    play.version(&document("1s"));
    note(&play);
    play.hits("api.search", &["denied", "seldom", "new"]);
    note(&play);
    play.hits("api.search", &["denied", "seldom", "new"]);
    note(&play);
    assert_eq!(forgotten, [0, 1, 1, 0]);
}

#[test]
fn a_query_changes_nothing_and_shows_what_is_left() {
    let mut play = Play::of(
        "[rate.\"api.search\"]\nhard = \"3/s\"\ntiers = [{ limit = 5, window = \"10s\", active = \"1m\" }]\n",
    );
    play.tick(0);
    play.hits("api.search", &["acme", "acme"]);
    let digest = play.engine.digest();
    let view = play.engine.pair("api.search", "acme").expect("known");
    assert_eq!((view.tier, view.tier_limit, view.tier_hits), (1, 5, 2));
    assert_eq!(
        (view.hard, view.last_second, view.remaining),
        (Some(3), 2, 1)
    );
    assert_eq!(view.denial, None);
    play.hits("api.search", &["acme"]);
    let live: Vec<_> = play.engine.live_denials().cloned().collect();
    assert_eq!(live.len(), 1);
    assert_eq!(
        live[0].remaining(play.engine.now()),
        Span::from_micros(1_000_001)
    );
    assert_ne!(play.engine.digest(), digest);
    assert!(play.engine.pair("api.search", "nobody").is_none());
}

#[test]
fn restated_denials_take_the_log_position_of_the_restatement() {
    let mut play = Play::of(TWO);
    play.hits("api.search", &["acme", "acme", "globex", "globex"]);
    let before = play.engine.digest();
    let log = LogId {
        generation: 2,
        random: 6,
    };
    play.apply(&pen().genesis(log));
    let said = play.rulings.statements.iter();
    let said: Vec<_> = said.map(|said| said.statement.position).collect();
    assert_eq!(said.len(), 2);
    let positions =
        |engine: &Engine| -> Vec<_> { engine.live_denials().map(|live| live.position).collect() };
    assert_eq!(positions(&play.engine), said);
    assert!(said.iter().all(|position| position.generation == 2));
    assert_ne!(play.engine.digest(), before, "it is another log's");
}

#[test]
fn denials_before_the_logs_identity_are_stated_again_with_it() {
    let mut play = Play::of(TWO);
    (play.engine, play.offset) = (Engine::new(0, 1), 0);
    // The record was in flight to the topic that this one replaced.
    play.version(TWO);
    play.hits("api.search", &["acme", "acme"]);
    assert_eq!(play.rulings.statements[0].statement.position.generation, 0);
    play.apply(&pen().genesis(LOG));
    let said = play.rulings.statements[0].statement.position;
    assert_eq!((said.generation, said.offset), (1, 2));
    let live = play.engine.live_denials().next().expect("it is in force");
    assert_eq!(live.position, said);
}
