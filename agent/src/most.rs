//! The most copies that a pair can ever be granted at once, as denials state it.
//!
//! ```text
//! public limits        no domain of api.search can be granted more than 1000 at once
//! denial of acme       its limits grant 10 at most              hit_n("acme", 500): too many, for 10 minutes
//! ```
//!
//! What a denial states is kept after the denial's end, because it is true until the limits change. Without it a
//! small tenant could go on with large calls, each let through because its window is empty. `moka` keeps these
//! entries, bounded and expiring; the next denial of an evicted pair refuses it again. Calls look in here only if
//! they have more copies than the least maximum that is known of any pair of the resource. Of copies, the maximum is the
//! domain's own limit: with it a domain that holds nothing could take as many as the domain with most may have.
//!
//! Knows nothing of windows. What stays true: a call is too many only under its exact names, and only while the agent
//! knows no newer limits than those of the denial.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tollgate_shared::time::Span;

use crate::clock::Mono;
use crate::resource::{Resource, ResourceId};

/// How long an entry is kept.
const KEPT_FOR: Span = Span::from_secs(600);

/// The most pairs that are remembered. At some 300 bytes each they may take 20 MB.
const PAIRS_MAX: u64 = 65_536;

#[derive(Debug)]
struct KnownMost {
    resource: ResourceId,
    domain: Box<str>,
    /// The version of the limits that grant `most`.
    version: u64,
    most: u64,
    /// By the agent's clock, which tests move; the cache's own expiry only frees its memory.
    until: Mono,
}

/// The remembered entries.
#[derive(Debug)]
pub(crate) struct Mosts {
    pairs: Cache<u64, Arc<KnownMost>>,
}

impl Default for Mosts {
    fn default() -> Self {
        Self {
            pairs: Cache::builder()
                .max_capacity(PAIRS_MAX)
                .time_to_live(Duration::from_micros(KEPT_FOR.as_micros()))
                .build(),
        }
    }
}

impl Mosts {
    /// The agent received a denial of a pair: the limits of this version grant at most this many copies.
    pub(crate) fn remember(
        &self,
        resource: &Resource,
        domain: &str,
        (version, most): (u64, u64),
        now: Mono,
    ) {
        let fingerprint = resource.fingerprint(domain);
        let of_all = resource.copies_limit().unwrap_or(u64::MAX);
        if resource.most().min(of_all) <= most {
            // The maximum for all domains is as low already.
            self.pairs.invalidate(&fingerprint);
            return;
        }
        resource.lower_most_of_any(version, most);
        let known = KnownMost {
            resource: resource.id,
            domain: domain.into(),
            version,
            most,
            until: now.plus(KEPT_FOR),
        };
        self.pairs.insert(fingerprint, Arc::new(known));
    }

    /// Versions are of another log from now on.
    pub(crate) fn forget(&self) {
        self.pairs.invalidate_all();
    }

    /// The most copies that a pair can be granted at once, or have; [`u64::MAX`] if unknown.
    pub(crate) fn of(&self, resource: &Resource, domain: &str, now: Mono) -> u64 {
        let known = self.pairs.get(&resource.fingerprint(domain));
        let known = known.filter(|known| {
            known.resource == resource.id
                && *known.domain == *domain
                && now < known.until
                && resource.public().limits_version() <= known.version
        });
        let of_all = resource.most();
        known.map_or(of_all, |known| known.most.min(of_all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::wire::public::{Kind, Public};

    const NOW: Mono = Mono(5_000_000);

    fn limits(version: u64, most: Option<u64>) -> Public {
        Public {
            version,
            kind: Kind::Rate,
            most,
            ..Public::default()
        }
    }

    #[test]
    fn a_pair_is_held_to_the_lesser_of_its_own_and_all() {
        let (mosts, resource) = (Mosts::default(), Resource::new(ResourceId(0), "r", 1));
        assert_eq!(mosts.of(&resource, "acme", NOW), u64::MAX);
        resource.learn(&limits(3, Some(1_000)));
        assert_eq!(
            (mosts.of(&resource, "acme", NOW), resource.most_of_any()),
            (1_000, 1_000)
        );
        mosts.remember(&resource, "acme", (3, 10), NOW);
        assert_eq!(mosts.of(&resource, "acme", NOW), 10);
        assert_eq!(mosts.of(&resource, "globex", NOW), 1_000);
        assert_eq!(resource.most_of_any(), 10);
        mosts.remember(&resource, "acme", (3, u64::MAX), NOW);
        assert_eq!(mosts.of(&resource, "acme", NOW), 1_000);
    }

    #[test]
    fn a_denials_limit_ends_after_ten_minutes_or_with_newer_limits() {
        let (mosts, resource) = (Mosts::default(), Resource::new(ResourceId(0), "r", 1));
        resource.learn(&limits(3, None));
        mosts.remember(&resource, "acme", (4, 10), NOW);
        assert_eq!(
            mosts.of(&resource, "acme", NOW.plus(Span::from_secs(599))),
            10
        );
        assert_eq!(mosts.of(&resource, "acme", NOW.plus(KEPT_FOR)), u64::MAX);
        // The limits of the denial's version are learnt after the denial.
        resource.learn(&limits(4, None));
        assert_eq!(
            (mosts.of(&resource, "acme", NOW), resource.most_of_any()),
            (10, 10)
        );
        // A ban is version 5, and leaves the limits as they were.
        resource.learn(&Public {
            limits_of: 4,
            ..limits(5, None)
        });
        assert_eq!(
            (mosts.of(&resource, "acme", NOW), resource.most_of_any()),
            (10, 10)
        );
        resource.learn(&limits(6, None));
        assert_eq!(mosts.of(&resource, "acme", NOW), u64::MAX);
        assert_eq!(resource.most_of_any(), u64::MAX);
    }
}
