//! What one table of a document states of limits, and how it is inherited.
//!
//! ```text
//! the resource    windows 100/s   bucket (silent)   tiers (silent)   hard 200/s
//! a plan                          bucket 5/s                                        replaces the window, too
//! a domain                        bucket "none"                                     has the hard limit alone
//! ```
//!
//! `rate`, `windows`, `bucket` and `tiers` are different ways to say what is usual, so whoever states one of
//! them replaces what was inherited of all; `"none"` takes away the one field that it stands for. To replace is
//! written into the statement when it is read ([`Stated::replacing`]), so that inheritance goes field by field.
//! Knows nothing of text. What stays true: to inherit is associative, so that a domain may be put over its plan
//! before the resource is known.

use std::sync::Arc;

use tollgate_shared::time::Span;

use super::rate::{Bucket, Calendar, Quota, RateClass, Tier, Window};
use super::zone::Zone;

/// What a statement says of one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting<T> {
    /// Nothing: it is inherited.
    #[default]
    Inherited,
    /// There is none, whatever is inherited.
    Unstated,
    /// This.
    Value(T),
}

impl<T> Setting<T> {
    /// What is stated, if something is.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Inherited | Self::Unstated => None,
        }
    }

    /// Says nothing in place of "none", where there is nothing to be inherited.
    pub(super) fn unstated_is_silent(&mut self) {
        if matches!(self, Self::Unstated) {
            *self = Self::Inherited;
        }
    }

    /// The same, to be changed.
    pub fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Inherited | Self::Unstated => None,
        }
    }

    /// Whether it is left to what is inherited.
    pub fn is_inherited(&self) -> bool {
        matches!(self, Self::Inherited)
    }

    fn or(self, other: &Self) -> Self
    where
        T: Clone,
    {
        match self {
            Self::Inherited => other.clone(),
            said => said,
        }
    }

    fn replaced(self) -> Self {
        match self {
            Self::Inherited => Self::Unstated,
            said => said,
        }
    }
}

/// How many copies in which period of a calendar; whose calendar is stated beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allowance {
    /// Copies in one period.
    pub limit: u64,
    /// What the period is.
    pub unit: Calendar,
}

/// What a resource, a domain, a plan or a candidate states itself. The tiers are normalised.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stated {
    /// Sliding windows, in their order; a rate is one.
    pub windows: Setting<Box<[Window]>>,
    /// A token bucket.
    pub bucket: Setting<Bucket>,
    /// Tiers; an empty list makes the resource inaccessible.
    pub tiers: Setting<Box<[Tier]>>,
    /// A hard limit in copies a second.
    pub hard: Setting<u64>,
    /// Quotas, in their order.
    pub quotas: Setting<Box<[Allowance]>>,
    /// In whose time the quotas' periods begin.
    pub zone: Option<Arc<Zone>>,
    /// Whether a settlement may take back what was estimated.
    pub refunds: Option<bool>,
}

impl Stated {
    /// The statement of a resource that states no constraint: nobody is let in.
    pub fn inaccessible() -> Self {
        let tiers = Setting::Value(Box::default());
        Self {
            tiers,
            ..Self::default()
        }
        .replacing()
    }

    /// One window alone.
    pub fn rate(limit: u64, window: Span) -> Self {
        let windows = Setting::Value(Box::from([Window { limit, window }]));
        Self {
            windows,
            ..Self::default()
        }
        .replacing()
    }

    /// The statement with what it replaces taken away by name: who states windows, a bucket or tiers has no
    /// other of the three.
    #[must_use]
    pub fn replacing(self) -> Self {
        if !self.states_a_usual() {
            return self;
        }
        Self {
            windows: self.windows.replaced(),
            bucket: self.bucket.replaced(),
            tiers: self.tiers.replaced(),
            ..self
        }
    }

    /// Whether it states windows, a bucket or tiers.
    pub fn states_a_usual(&self) -> bool {
        self.windows.value().is_some()
            || self.bucket.value().is_some()
            || self.tiers.value().is_some()
    }

    /// Whether it says something of a constraint, be it that there is none.
    pub fn says_a_constraint(&self) -> bool {
        let silent = self.windows.is_inherited()
            && self.bucket.is_inherited()
            && self.tiers.is_inherited()
            && self.hard.is_inherited()
            && self.quotas.is_inherited();
        !silent
    }

    /// What it states, and where it is silent, what the other one states.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            windows: self.windows.or(&other.windows),
            bucket: self.bucket.or(&other.bucket),
            tiers: self.tiers.or(&other.tiers),
            hard: self.hard.or(&other.hard),
            quotas: self.quotas.or(&other.quotas),
            zone: self.zone.or_else(|| other.zone.clone()),
            refunds: self.refunds.or(other.refunds),
        }
    }

    /// The limits that it is, with nothing left to be inherited.
    pub fn class(&self) -> RateClass {
        let zone = self.zone.clone().unwrap_or_default();
        let quota = |of: &Allowance| Quota {
            limit: of.limit,
            unit: of.unit,
            zone: Arc::clone(&zone),
        };
        let quotas = self.quotas.value().map(|all| all.iter().map(quota));
        RateClass {
            hard: self.hard.value().copied(),
            windows: self.windows.value().cloned().unwrap_or_default(),
            quotas: quotas.map(Iterator::collect).unwrap_or_default(),
            bucket: self.bucket.value().copied(),
            tiers: self.tiers.value().cloned(),
            refunds: self.refunds.unwrap_or(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> Setting<Bucket> {
        Setting::Value(Bucket {
            tokens: 1,
            period: Span::from_millis(10),
            burst: 5,
            debt: 100,
        })
    }

    #[test]
    fn to_state_one_of_the_usual_replaces_all_of_them() {
        let base = Stated {
            hard: Setting::Value(200),
            ..Stated::rate(100, Span::from_secs(1))
        };
        let own = Stated {
            bucket: bucket(),
            ..Stated::default()
        };
        let class = own.replacing().or(&base).class();
        assert_eq!((class.windows.len(), class.hard), (0, Some(200)));
        assert!(class.bucket.is_some() && class.tiers.is_none());
    }

    #[test]
    fn none_takes_away_that_field_alone() {
        let base = Stated {
            bucket: bucket(),
            hard: Setting::Value(200),
            ..Stated::rate(100, Span::from_secs(1))
        };
        let own = Stated {
            bucket: Setting::Unstated,
            ..Stated::default()
        };
        let class = own.or(&base).class();
        assert_eq!((class.windows.len(), class.hard), (1, Some(200)));
        assert_eq!(class.bucket, None);
    }

    #[test]
    fn what_a_plan_replaced_does_not_come_back_from_the_default() {
        let base = Stated {
            tiers: Setting::Value(Box::default()),
            ..Stated::default()
        }
        .replacing();
        let plan = Stated::rate(100, Span::from_secs(1));
        let own = Stated {
            windows: Setting::Unstated,
            ..Stated::default()
        };
        let class = own.or(&plan).or(&base).class();
        assert!(class.is_unlimited(), "{class:?}");
    }
}
