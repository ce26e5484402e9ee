//! What one pair has left, for the notices that agents get when that is little.
//!
//! Knows nothing of which agents get a notice, nor how often. What stays true: looking changes nothing, and no
//! ruling depends on it.

use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::Cause;

use super::Engine;
use super::rule::Rule;
use super::totals::class_of_everybody;
use crate::rules::left::near_from;
use crate::rules::request::LimitedBy;
use crate::rules::tiers;
use crate::stream::Closed;
use tollgate_limits::{RateClass, SECOND};

/// A pair near its limit, at its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairNear {
    /// Its time: the greatest instant among its entries.
    pub time: Timestamp,
    /// Copies that would be granted at once.
    pub left: u64,
    /// The constraint with no more room.
    pub cause: Cause,
    /// That constraint's limit.
    pub limit: u64,
    /// Its window.
    pub window: Span,
    /// When it has room for more, if no hit comes; [`Timestamp::MAX`]: never.
    pub more_at: Timestamp,
    /// When the pair is no longer near, if no hit comes; [`Timestamp::MAX`]: never.
    pub until: Timestamp,
}

/// The room from which pairs are near their limit, which is determined once for the entries of one class after another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NearFrom {
    /// The class of the entry before, and its room. The address is only compared.
    before: Option<(*const RateClass, Option<u64>)>,
}

impl NearFrom {
    /// The room for a class. All classes that it is asked for must stay where they are.
    pub fn of(&mut self, class: &RateClass, percent: Option<u8>) -> Option<u64> {
        if let Some((of, from)) = self.before
            && std::ptr::eq(of, class)
        {
            return from;
        }
        let from = percent.and_then(|percent| near_from(class, percent));
        self.before = Some((class, from));
        from
    }
}

impl Engine {
    /// What a domain's pair has left, if that is little enough for a notice. `None` also if the pair is not
    /// known, or its denials are not stated. For [`EVERYBODY`] it is what the global limit has left.
    pub fn near(&self, resource: &str, domain: &str) -> Option<PairNear> {
        if domain == EVERYBODY {
            return self.near_everybody(resource);
        }
        let identity = self.identities.of_resource(resource).of(domain);
        let mut stored = self.table.peek(identity)?;
        self.steps.migrate(&mut stored, resource, domain);
        let (limits, nothing) = (&self.steps.newest().limits, RateClass::inaccessible());
        let rule = Rule::of(limits, resource);
        let (class, _) = rule
            .class_of(limits, &nothing, domain)
            .filter(|(_, stated)| *stated)?;
        let near = stored.pair.near(class, rule.near()?)?;
        let time = stored.pair.now();
        let (closed, cause) = match near.left.by {
            LimitedBy::Hard => (Closed::Hard, Cause::Hard),
            LimitedBy::Window(index) => (Closed::Window(index), Cause::Window(index)),
            LimitedBy::Quota(index) => (Closed::Quota(index), Cause::Quota(index)),
            LimitedBy::Bucket => (Closed::Bucket, Cause::Bucket),
            LimitedBy::Global => return None,
            LimitedBy::Tier => {
                let tier = tiers::current_or_next(class, &stored.pair.state, time);
                let number = u8::try_from(tier).unwrap_or(u8::MAX);
                (Closed::Tier(tier), Cause::Tier(number))
            }
        };
        let (_, window) = closed.limit(class, time);
        Some(PairNear {
            time,
            left: near.left.copies,
            cause,
            limit: near.left.limit,
            window,
            more_at: near.left.more_at,
            until: near.until,
        })
    }

    /// The same for the global limit of a resource.
    fn near_everybody(&self, resource: &str) -> Option<PairNear> {
        let identity = self.identities.of_resource(resource).of(EVERYBODY);
        let mut stored = self.table.peek(identity)?;
        self.steps.migrate_whole(&mut stored, resource);
        let rule = Rule::of(&self.steps.newest().limits, resource);
        let Rule::Limited { rate, stated: true } = rule else {
            return None;
        };
        let class = class_of_everybody(Some(rate.global()?));
        let near = stored.pair.near(&class, rate.near())?;
        Some(PairNear {
            time: stored.pair.now(),
            left: near.left.copies,
            cause: Cause::Global,
            limit: near.left.limit,
            window: SECOND,
            more_at: near.left.more_at,
            until: near.until,
        })
    }
}
