//! Which domains are banned from copies, by what operators wrote and by the log's time.
//!
//! ```text
//! version 7   ban gpu.slot, acme, until 12:00:08
//! version 9   ban everywhere, acme, for ever
//! version 11  unban gpu.slot, acme            banned still: everywhere
//! ```
//!
//! Knows nothing of copies. What stays true: of one resource and domain the last word holds, and so it is of a domain
//! everywhere; of the two the one that lasts longer.

use std::collections::BTreeMap;

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;

/// All bans of a partition, over or not.
#[derive(Debug, Default)]
pub(super) struct Bans {
    /// By resource (none: everywhere) and domain.
    ends: BTreeMap<(Option<Box<str>>, Box<str>), Timestamp>,
    /// When the newest limits came: what ended by then is over, even if no tick has said so.
    limits_came: Timestamp,
}

impl Bans {
    /// Limits come, `at` by the append of their pointer.
    pub(super) fn new_limits(&mut self, at: Timestamp) {
        self.limits_came = self.limits_came.max(at);
    }

    /// What an operator did comes, `at` by the append of its pointer.
    pub(super) fn enter(&mut self, act: &Act, at: Timestamp) {
        match act {
            Act::Ban {
                resource,
                domain,
                until,
            } => {
                let of = (resource.clone(), domain.clone());
                // What is over when it comes bans nobody, and ends what was there.
                match at < *until {
                    true => self.ends.insert(of, *until),
                    false => self.ends.remove(&of),
                };
            }
            Act::Unban { resource, domain } => {
                self.ends.remove(&(resource.clone(), domain.clone()));
            }
            _ => {}
        }
    }

    /// Whether a domain is banned from a resource when the log's time is `log`.
    pub(super) fn is_banned(&self, resource: &str, domain: &str, log: Timestamp) -> bool {
        let end = |of: Option<&str>| self.ends.get(&(of.map(Into::into), domain.into()));
        let last = end(Some(resource)).max(end(None));
        last.is_some_and(|until| self.limits_came.max(log) < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn ban(resource: Option<&str>, until: Timestamp) -> Act {
        Act::Ban {
            resource: resource.map(Into::into),
            domain: "acme".into(),
            until,
        }
    }

    #[test]
    fn of_two_bans_the_longer_holds_and_each_is_taken_back_by_itself() {
        let mut bans = Bans::default();
        bans.enter(&ban(Some("gpu.slot"), at(8)), at(1));
        assert!(bans.is_banned("gpu.slot", "acme", at(7)));
        assert!(!bans.is_banned("gpu.slot", "acme", at(8)));
        assert!(!bans.is_banned("gpu.slot", "globex", at(7)));
        assert!(!bans.is_banned("seat.pool", "acme", at(7)));
        bans.enter(&ban(None, at(12)), at(2));
        assert!(bans.is_banned("gpu.slot", "acme", at(11)));
        let unban = |resource: Option<&str>| Act::Unban {
            resource: resource.map(Into::into),
            domain: "acme".into(),
        };
        bans.enter(&unban(None), at(3));
        assert!(bans.is_banned("gpu.slot", "acme", at(7)));
        assert!(!bans.is_banned("gpu.slot", "acme", at(11)));
        bans.enter(&unban(Some("gpu.slot")), at(4));
        assert!(!bans.is_banned("gpu.slot", "acme", at(5)));
    }

    #[test]
    fn what_ended_before_limits_came_is_over_even_if_no_tick_has_said_so() {
        let mut bans = Bans::default();
        bans.enter(&ban(None, at(8)), at(1));
        assert!(bans.is_banned("gpu.slot", "acme", at(2)));
        let mut late = Bans::default();
        late.enter(&ban(None, at(20)), at(1));
        late.enter(&ban(None, at(8)), at(9));
        assert!(
            !late.is_banned("gpu.slot", "acme", at(2)),
            "over when it came"
        );
        bans.new_limits(at(9));
        assert!(!bans.is_banned("gpu.slot", "acme", at(2)));
    }
}
