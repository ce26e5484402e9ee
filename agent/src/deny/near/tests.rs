//! Notices: what is left by them, and when they end.

use super::*;

const NOW: Mono = Mono(5_000_000);

fn notice(domain: &str, left: u64, since_ms: u64) -> Notice {
    Notice {
        partition: 1,
        domain: domain.into(),
        cause: Cause::Window(0),
        left,
        limit: 50,
        window: Span::from_secs(1),
        more_in: Span::from_millis(20),
        near_for: Span::from_millis(90),
        since: Timestamp::from_millis(since_ms),
    }
}

struct Kit {
    list: NearList,
    resource: Resource,
}

impl Kit {
    fn new(max: usize) -> Self {
        let view = Arc::new(DenyView::new(64));
        Self {
            list: NearList::new(view, max),
            resource: Resource::new(ResourceId(0), "r", 1),
        }
    }

    fn take(&self, notice: &Notice, now: Mono) -> Noticed {
        self.list.take(&self.resource, 0, notice, Span::ZERO, now)
    }

    fn left(&self, domain: &str, copies: u32, at_ms: u64, now: Mono) -> Option<u64> {
        let taking = Taking {
            copies,
            at: Timestamp::from_millis(at_ms),
            now,
        };
        let fingerprint = self.resource.fingerprint(domain);
        let left = self
            .list
            .view
            .left(&self.resource, fingerprint, domain, taking);
        assert!(left.is_none() || self.list.view.maybe(fingerprint));
        left.map(|left| left.remaining)
    }
}

#[test]
fn calls_since_a_notice_reduce_what_is_left() {
    let kit = Kit::new(9);
    assert_eq!(kit.take(&notice("acme", 20, 1_000), NOW), Noticed::Nearing);
    assert_eq!(kit.left("acme", 0, 1_001, NOW), Some(20));
    assert_eq!(kit.list.view.near_called(), Mono::ZERO);
    assert_eq!(kit.left("acme", 3, 1_010, NOW), Some(17));
    assert_eq!(kit.list.view.near_called(), NOW);
    assert_eq!(kit.left("acme", 2, 1_050, NOW), Some(15));
    assert_eq!(kit.left("globex", 1, 1_050, NOW), None);
    // This notice includes the three of 1,010, and not the two of 1,050.
    assert_eq!(kit.take(&notice("acme", 16, 1_040), NOW), Noticed::Renewed);
    assert_eq!(kit.left("acme", 0, 1_050, NOW), Some(14));
    assert_eq!(kit.take(&notice("acme", 19, 1_020), NOW), Noticed::Known);
    assert_eq!(kit.left("acme", 50, 1_060, NOW), Some(0));
}

#[test]
fn a_notice_ends_by_itself_and_leaves_the_filter() {
    let mut kit = Kit::new(9);
    kit.take(&notice("acme", 20, 1_000), NOW);
    let end = NOW.plus(Span::from_millis(90));
    assert_eq!(kit.left("acme", 0, 1_000, end), None);
    kit.list.expire(end);
    assert_eq!(kit.list.len(), 0);
    assert!(!kit.list.view.maybe(kit.resource.fingerprint("acme")));
    // A notice without an end holds for a minute; one in a delayed frame holds for that much less.
    let mut long = notice("acme", 20, 1_000);
    (long.near_for, long.more_in) = (Span::MAX, Span::MAX);
    kit.take(&long, NOW);
    assert_eq!(
        kit.left("acme", 0, 1_000, NOW.plus(Span::from_secs(59))),
        Some(20)
    );
    assert_eq!(kit.left("acme", 0, 1_000, NOW.plus(HOLDS_FOR)), None);
    let late = Span::from_millis(90);
    let taken = kit
        .list
        .take(&kit.resource, 0, &notice("globex", 1, 0), late, NOW);
    assert_eq!(taken, Noticed::Known);
}

#[test]
fn a_notice_ends_where_calls_are_followed_by_no_other() {
    let mut kit = Kit::new(9);
    let mut long = notice("acme", 20, 1_000);
    long.near_for = Span::MAX;
    kit.take(&long, NOW);
    // Calls that only look are followed by none.
    let called = NOW.plus(Span::from_secs(20));
    assert_eq!(kit.left("acme", 0, 21_000, called), Some(20));
    assert_eq!(kit.left("acme", 1, 21_000, called), Some(19));
    let second = called.plus(Span::from_secs(2));
    assert_eq!(kit.left("acme", 1, 23_000, second), Some(18));
    // This notice includes the first call, and not the second.
    long.since = Timestamp::from_millis(22_000);
    assert_eq!(kit.take(&long, second), Noticed::Renewed);
    let last = second.plus(RENEWED_WITHIN);
    assert_eq!(kit.left("acme", 0, 23_000, Mono(last.0 - 1)), Some(19));
    assert_eq!(kit.left("acme", 0, 23_000, last), None);
    kit.list.expire(last);
    assert_eq!(kit.list.len(), 0);
    // Includes both.
    long.since = Timestamp::from_millis(24_000);
    assert_eq!(kit.take(&long, last), Noticed::Nearing);
    let much_later = last.plus(Span::from_secs(50));
    assert_eq!(kit.left("acme", 0, 24_000, much_later), Some(20));
}

#[test]
fn a_lift_and_other_limits_void_what_they_change() {
    let kit = Kit::new(9);
    for domain in ["acme", "globex", EVERYBODY] {
        kit.take(&notice(domain, 20, 1_000), NOW);
    }
    kit.list.void_pair(&kit.resource, "initech");
    kit.list.void_pair(&kit.resource, "acme");
    assert_eq!(kit.left("acme", 0, 1_000, NOW), None);
    assert_eq!(kit.left("globex", 0, 1_000, NOW), Some(20));
    kit.list.void_resource(ResourceId(3));
    assert_eq!(kit.list.len(), 2);
    kit.list.void_resource(kit.resource.id);
    assert_eq!(kit.list.len(), 0);
}

#[test]
fn a_pair_with_a_notice_is_urgent_as_long_as_it_holds() {
    let kit = Kit::new(1);
    let is_urgent = |domain: &str, now| {
        let fingerprint = kit.resource.fingerprint(domain);
        kit.list.view.recent().has(fingerprint, now)
    };
    kit.take(&notice("acme", 20, 1_000), NOW);
    assert!(is_urgent("acme", NOW.plus(Span::from_millis(89))));
    assert!(!is_urgent("acme", NOW.plus(Span::from_millis(107))));
    // Whether or not there is room for the notice.
    assert_eq!(kit.take(&notice("globex", 20, 1_000), NOW), Noticed::NoRoom);
    assert!(is_urgent("globex", NOW) && !kit.resource.hurry().is_on(NOW));
    kit.take(&notice(EVERYBODY, 20, 1_000), NOW);
    assert!(kit.resource.hurry().is_on(NOW.plus(Span::from_millis(89))));
    assert!(!kit.resource.hurry().is_on(NOW.plus(Span::from_millis(90))));
}

#[test]
fn a_notice_of_all_domains_is_looked_for_where_there_is_one() {
    let kit = Kit::new(9);
    kit.take(&notice("acme", 20, 1_000), NOW);
    assert_eq!(kit.resource.flags() & NEAR_WHOLE, 0);
    kit.take(&notice(EVERYBODY, 9, 1_000), NOW);
    assert_eq!(kit.resource.flags() & NEAR_WHOLE, NEAR_WHOLE);
    assert_eq!(kit.left(EVERYBODY, 2, 1_010, NOW), Some(7));
}

#[test]
fn a_gap_voids_that_publishers_notices() {
    let kit = Kit::new(2);
    kit.take(&notice("acme", 20, 1_000), NOW);
    let other = &notice("globex", 20, 1_000);
    kit.list.take(&kit.resource, 1, other, Span::ZERO, NOW);
    assert_eq!(
        kit.take(&notice("initech", 20, 1_000), NOW),
        Noticed::NoRoom
    );
    kit.list.void(0, Some(ResourceId(3)));
    assert_eq!(kit.list.len(), 2);
    kit.list.void(0, Some(kit.resource.id));
    assert_eq!(kit.left("acme", 0, 1_000, NOW), None);
    assert_eq!(kit.left("globex", 0, 1_000, NOW), Some(20));
    kit.list.void_partition(1);
    assert_eq!(kit.list.len(), 0);
}

#[test]
fn calls_let_through_may_count_too_long_and_are_never_lost() {
    let mut recent = Recent::default();
    for n in 0..100 {
        recent.add(Timestamp::from_millis(1_000 + 10 * n), 1);
    }
    assert_eq!(recent.sum(), 100);
    recent.forget_upto(Timestamp::from_millis(1_500));
    assert_eq!(recent.sum(), 100);
    recent.forget_upto(Timestamp::from_millis(1_960));
    assert_eq!(recent.sum(), 3);
    recent.forget_upto(Timestamp::from_millis(1_990));
    assert_eq!(recent.sum(), 0);
}
