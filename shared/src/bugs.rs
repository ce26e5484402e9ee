//! Bugs put in by hand, one at a time, to see whether the simulation finds them.
//!
//! Each is one line in the room that it is about, which asks [`planted`]. Without the feature `bugs` that is
//! a constant `false`, and the line is gone from what is built; nothing that is shipped turns the feature
//! on. Knows nothing of what a bug does. What stays true: at most one is planted at a time, on one thread,
//! and others do not notice.

macro_rules! bugs {
    ($($bug:ident $name:literal $what:literal)*) => {
        /// A bug that can be put in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug {
            $(#[doc = $what] $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)*];

            /// Its name on command lines.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }

            /// What is wrong with it.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$bug => $what,)*
                }
            }
        }
    };
}

bugs! {
    TierCleared "tier-cleared" "a tier's window is cleared when the tier is entered"
    WindowEdge "window-edge" "a hit leaves its window one microsecond early"
    LateClimbs "late-climbs" "a late hit climbs as if it were in time"
    MinIgnored "min-ignored" "a request's min is not looked at"
    SequenceDropped "sequence-dropped" "a batch that was seen is ruled again"
    FutureStamps "future-stamps" "a stamp may lie after its append"
    TickUncounted "tick-uncounted" "every tick counts, whatever its slot"
    PairLeavesEarly "pair-leaves-early" "a pair leaves as soon as its windows are empty"
    TotalOutOfTurn "total-out-of-turn" "a total is applied whatever came before it"
    DenialKept "denial-kept" "a denial is not ruled again when a limit is raised"
    HashOrder "hash-order" "what is in force is said again in a hash map's order"
    HoleLeft "hole-left" "of segments that a power cut left without what is before them the first is dropped first"
    SnapshotOff "snapshot-off" "after a snapshot ruling goes on one record too late"
    SnapshotUnproved "snapshot-unproved" "a snapshot is taken for this log's without a look at it"
    SnapshotEarly "snapshot-early" "a snapshot is kept before the log has what its records caused"
    ManifestEarly "manifest-early" "a snapshot's manifest is sent before its chunks are acknowledged"
    TotalsNotAgain "totals-not-again" "a total whose append failed is not sent again"
    RestFromTick "rest-from-tick" "a denial's rest is told as of the newest tick"
    EvidenceFirst "evidence-first" "a heartbeat goes out before what was ruled in its turn"
    OlderWins "older-wins" "of two statements about a scope the later heard one holds"
    LeaseForgotten "lease-forgotten" "denials hold although nobody is heard"
    LateFrames "late-frames" "what a frame is late by is not taken off a denial's rest"
    GroupFullUnsaid "group-full-unsaid" "that a group is full is not said"
    WholeUnheard "whole-unheard" "an agent does not take that a whole resource of rates is denied"
    FullUnheard "full-unheard" "an agent does not take that copies are all in use"
    ShortUnheard "short-unheard" "an agent does not take a denial of a second or less"
    LeaseByRepeats "lease-by-repeats" "a lease is renewed by what was heard before"
    LeaseOfAll "lease-of-all" "news of one partition renew the leases of all"
    DeadlineEarly "deadline-early" "who waits for copies is refused after a second, however long it would wait"
    VerdictOfAnother "verdict-of-another" "a grant is taken for the first hold that waits for one"
    LimitsUnsynced "limits-unsynced" "limits are acknowledged before they are durable, as hits may be"
    WaitsUnbounded "waits-unbounded" "ruling goes on whatever waits for the log"
    BridgeUnsent "bridge-unsent" "a chain of totals that cannot go on is not bridged"
    RoomShort "room-short" "one copy less is granted than all limits leave room for"
    RoomOver "room-over" "one copy more is granted than all limits leave room for"
    Overtakes "overtakes" "holds and beats are applied in whatever order they come"
    BanGrants "ban-grants" "copies of a banned domain are granted"
    RaceWonTwice "race-won-twice" "of two that expect one version of the limits both win"
    GroupFullLate "group-full-late" "a group is full one copy late"
    GapUnseen "gap-unseen" "a gap in a topic's sequences is not noticed"
    UnlistedKept "unlisted-kept" "a snapshot ends nothing that it does not list"
    GenerationKept "generation-kept" "a new generation of a log voids nothing"
    NotNowIsTaken "not-now-is-taken" "a batch that the log refuses for now counts as taken"
    MinMerged "min-merged" "entries with a min are merged like others"
    IdentityLate "identity-late" "what is appended does not wait for the identity of its partition"
    AnswerBeforeSync "answer-before-sync" "an append is acknowledged before it is durable"
    DirectoryUnsynced "directory-unsynced" "a new segment's directory entry is not made durable"
    GoneCounted "gone-counted" "what the gone hold goes on counting"
    GoneByTime "gone-by-time" "silence is counted in slots of the log's time, whether or not a tick stands in them"
    EndForgotten "end-forgotten" "a hold that an operator ended is counted when its agent lists it"
    ReturnIgnored "return-ignored" "what an agent holds that comes back does not count again"
    UnlistedHeld "unlisted-held" "a hold that a beat does not list is kept"
    GroupKept "group-kept" "a group's count does not go down"
    ScopeLiftUnsaid "scope-lift-unsaid" "that a domain has room again is not said"
    TransferKept "transfer-kept" "what was handed over is not let go at its end"
    EndNotRestored "end-not-restored" "a transfer has no end after a snapshot"
    BeatsUnsent "beats-unsent" "an agent does not beat"
    UnguardedAlways "unguarded-always" "all calls are marked as unguarded"
    GuardedAlways "guarded-always" "no call is marked as unguarded"
    NeverCurrent "never-current" "no watermark is marked as current"
    ExcessUncounted "excess-uncounted" "by engine and model alike excess counts nowhere"
    DebtNotKept "debt-not-kept" "by engine and model alike debt is forgotten at a pair's next entry"
    DenialShort "denial-short" "by engine and model alike a denial ends within ten milliseconds"
    WeightedUnrefused "weighted-unrefused" "a call for several copies is let through whatever denies it"
    StampedEarly "stamped-early" "calls are stamped three seconds early"
}

#[cfg(feature = "bugs")]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug on this thread in place of the one that was, or none.
#[cfg(feature = "bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted.
#[cfg(feature = "bugs")]
#[inline]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted: never.
#[cfg(not(feature = "bugs"))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_name_of_its_own() {
        let mut names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Bug::ALL.len());
    }

    #[cfg(not(feature = "bugs"))]
    #[test]
    fn nothing_that_is_shipped_has_one() {
        assert!(!Bug::ALL.iter().any(|bug| planted(*bug)));
    }

    #[cfg(feature = "bugs")]
    #[test]
    fn one_is_planted_at_a_time_and_on_one_thread() {
        plant(Some(Bug::LateClimbs));
        assert!(planted(Bug::LateClimbs) && !planted(Bug::MinIgnored));
        let elsewhere = std::thread::spawn(|| planted(Bug::LateClimbs));
        assert!(!elsewhere.join().expect("it ends"));
        plant(None);
        assert!(!planted(Bug::LateClimbs));
    }
}
