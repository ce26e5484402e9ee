//! The statement of one table of a document about limits, and how it is inherited.
//!
//! ```text
//! the resource    windows 100/s   bucket (silent)   tiers (silent)   hard 200/s
//! a plan                          bucket 5/s                                        replaces the window, too
//! a domain                        bucket "none"                                     has the hard limit alone
//! ```
//!
//! `rate`, `windows`, `bucket` and `tiers` are different forms of the usual limit, so a statement with one of
//! them replaces everything that was inherited of all of them; `"none"` removes only the field that states it.
//! The replacement is written into the statement when it is read ([`Stated::replacing`]), so that inheritance
//! goes field by field. Knows nothing of text. What stays true: inheritance is associative, so that a domain
//! may be put over its plan before the resource is known.

use std::sync::Arc;

use tollgate_shared::time::Span;

use super::rate::{Bucket, Calendar, Quota, RateClass, Tier, Window};
use super::zone::Zone;

/// The setting of one field in a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting<T> {
    /// The field is not stated: it is inherited.
    #[default]
    Inherited,
    /// The field is `"none"`: no such limit, whatever is inherited.
    Unstated,
    /// The field has this value.
    Value(T),
}

impl<T> Setting<T> {
    /// The stated value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Inherited | Self::Unstated => None,
        }
    }

    /// Replaces `Unstated` by `Inherited`, if there is nothing to inherit.
    pub(super) fn unstated_is_silent(&mut self) {
        if matches!(self, Self::Unstated) {
            *self = Self::Inherited;
        }
    }

    /// The same, for changes.
    pub fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Inherited | Self::Unstated => None,
        }
    }

    /// Whether the field is inherited.
    pub fn is_inherited(&self) -> bool {
        matches!(self, Self::Inherited)
    }

    fn or(self, other: &Self) -> Self
    where
        T: Clone,
    {
        match self {
            Self::Inherited => other.clone(),
            stated => stated,
        }
    }

    fn replaced(self) -> Self {
        match self {
            Self::Inherited => Self::Unstated,
            stated => stated,
        }
    }
}

/// A number of copies in a period of a calendar; the zone is stated separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allowance {
    /// Copies in one period.
    pub limit: u64,
    /// The kind of period.
    pub unit: Calendar,
}

/// The own statement of a resource, a domain, a plan or a candidate. The tiers are normalised.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stated {
    /// Sliding windows, in their order; a rate is a window.
    pub windows: Setting<Box<[Window]>>,
    /// A token bucket.
    pub bucket: Setting<Bucket>,
    /// Tiers; an empty list makes the resource inaccessible.
    pub tiers: Setting<Box<[Tier]>>,
    /// A hard limit in copies a second.
    pub hard: Setting<u64>,
    /// Quotas, in their order.
    pub quotas: Setting<Box<[Allowance]>>,
    /// The zone in whose time the quotas' periods begin.
    pub zone: Option<Arc<Zone>>,
    /// Whether a settlement may refund copies of an estimate.
    pub refunds: Option<bool>,
}

impl Stated {
    /// The statement of a resource without any constraint: it refuses everybody.
    pub fn inaccessible() -> Self {
        let tiers = Setting::Value(Box::default());
        Self {
            tiers,
            ..Self::default()
        }
        .replacing()
    }

    /// A statement of one window alone.
    pub fn rate(limit: u64, window: Span) -> Self {
        let windows = Setting::Value(Box::from([Window { limit, window }]));
        Self {
            windows,
            ..Self::default()
        }
        .replacing()
    }

    /// The statement with the fields that it replaces set to `Unstated`: a statement with windows, a bucket or
    /// tiers has none of the other two.
    #[must_use]
    pub fn replacing(self) -> Self {
        if !self.states_a_base_constraint() {
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
    pub fn states_a_base_constraint(&self) -> bool {
        self.windows.value().is_some()
            || self.bucket.value().is_some()
            || self.tiers.value().is_some()
    }

    /// Whether it states a constraint, or `"none"` for one.
    pub fn states_a_constraint(&self) -> bool {
        let silent = self.windows.is_inherited()
            && self.bucket.is_inherited()
            && self.tiers.is_inherited()
            && self.hard.is_inherited()
            && self.quotas.is_inherited();
        !silent
    }

    /// Its own settings, and for inherited fields those of the other statement.
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

    /// Its own settings over those that a resource states for all domains.
    ///
    /// A hard limit or a quota of its own opens a resource that is closed to all others, as windows, a bucket or tiers
    /// of its own do, which replace the empty list of tiers.
    #[must_use]
    pub fn over_default(self, default: &Self) -> Self {
        let states_one = self.hard.value().is_some() || self.quotas.value().is_some();
        let is_closed = default.tiers.value().is_some_and(|tiers| tiers.is_empty());
        let opens = states_one && is_closed && self.tiers.is_inherited();
        let both = self.or(default);
        match opens {
            true => Self {
                tiers: Setting::Unstated,
                ..both
            },
            false => both,
        }
    }

    /// The limits that it defines, with nothing left to inherit.
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
    fn stating_one_base_constraint_replaces_them_all() {
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
    fn an_unset_field_is_the_only_one_removed() {
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
    fn any_limit_of_its_own_opens_a_closed_resource() {
        let closed = Stated::inaccessible();
        let hard = Stated {
            hard: Setting::Value(3),
            ..Stated::default()
        };
        let quota = Stated {
            quotas: Setting::Value(Box::from([Allowance {
                limit: 3,
                unit: Calendar::Day,
            }])),
            ..Stated::default()
        };
        for own in [&hard, &quota] {
            let class = own.clone().over_default(&closed).class();
            assert!(
                !class.is_inaccessible() && !class.is_unlimited(),
                "{class:?}"
            );
        }
        // A plan, or the domain itself, that is let in nowhere stays so; and so does one without a limit of its own.
        let banned = Stated {
            tiers: Setting::Value(Box::default()),
            ..hard.clone()
        };
        let no_limit = Stated {
            hard: Setting::Unstated,
            refunds: Some(false),
            ..Stated::default()
        };
        for own in [banned, no_limit] {
            let class = own.over_default(&closed).class();
            assert!(class.is_inaccessible(), "{class:?}");
        }
        // Tiers that let somebody in are inherited.
        let tiers = Stated::rate(5, Span::from_secs(1));
        assert_eq!(hard.over_default(&tiers).class().windows.len(), 1);
    }

    #[test]
    fn a_plans_replacement_hides_the_default() {
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
