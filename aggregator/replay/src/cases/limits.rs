//! Limits as cases write them: all times in microseconds, offsets of zones in seconds east of UTC.
//!
//! ```text
//! {"windows":[{"limit":2,"window":1000000}],"hard":9,"domains":{"gold":{"bucket":{…},"hard":"none"}}}
//!     gold has the bucket and nothing else: a domain that states windows, a bucket or tiers replaces
//!     all three, and "none" removes one inherited field
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tollgate_shared::time::Span;

use tollgate_limits::{Bucket, Calendar, Quota, RateClass, Tier, Window, Zone, normalise};

/// A tier as cases write it, all times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseTier {
    limit: u64,
    window: u64,
    active: u64,
    cooldown: u64,
    skippable: bool,
}

/// The limits of a resource.
#[derive(Clone, Deserialize)]
#[serde(from = "WrittenLimits")]
pub(super) struct CaseLimits {
    default: CaseStated,
    pub global: Option<u64>,
    domains: BTreeMap<String, CaseStated>,
}

/// The limits of a resource in one object, as the case writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLimits {
    hard: Option<Own<u64>>,
    windows: Option<Own<Vec<CaseWindow>>>,
    quota: Option<Own<Vec<CaseQuota>>>,
    bucket: Option<Own<CaseBucket>>,
    tiers: Option<Own<Vec<CaseTier>>>,
    global: Option<u64>,
    #[serde(default)]
    domains: BTreeMap<String, CaseStated>,
}

impl From<WrittenLimits> for CaseLimits {
    fn from(written: WrittenLimits) -> Self {
        Self {
            default: CaseStated {
                hard: written.hard,
                windows: written.windows,
                quota: written.quota,
                bucket: written.bucket,
                tiers: written.tiers,
            },
            global: written.global,
            domains: written.domains,
        }
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseStated {
    hard: Option<Own<u64>>,
    windows: Option<Own<Vec<CaseWindow>>>,
    quota: Option<Own<Vec<CaseQuota>>>,
    bucket: Option<Own<CaseBucket>>,
    tiers: Option<Own<Vec<CaseTier>>>,
}

/// A field that is stated, or removed by `"none"`.
#[derive(Clone)]
enum Own<T> {
    Nothing,
    Is(T),
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Own<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Value::deserialize(deserializer)?;
        if written == "none" {
            return Ok(Self::Nothing);
        }
        // By hand, since an untagged enum does not report what is wrong with the value.
        T::deserialize(written).map(Self::Is).map_err(Error::custom)
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseWindow {
    limit: u64,
    window: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseQuota {
    limit: u64,
    unit: CaseUnit,
    offset_s: i32,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CaseUnit {
    Day,
    Week,
    Month,
    Year,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseBucket {
    rate: u64,
    period: u64,
    burst: u64,
    debt: Option<u64>,
}

impl<T> Own<T> {
    fn get(&self) -> Option<&T> {
        match self {
            Self::Nothing => None,
            Self::Is(own) => Some(own),
        }
    }
}

impl CaseStated {
    /// Whether it states windows, a bucket or tiers, and so replaces all three.
    fn replaces(&self) -> bool {
        of(self.windows.as_ref(), None).is_some()
            || of(self.bucket.as_ref(), None).is_some()
            || of(self.tiers.as_ref(), None).is_some()
    }
}

/// The stated field, or else the inherited one.
fn of<'a, T>(own: Option<&'a Own<T>>, inherited: Option<&'a Own<T>>) -> Option<&'a T> {
    own.or(inherited).and_then(Own::get)
}

impl CaseLimits {
    /// The limits of a domain.
    pub fn class_of(&self, domain: &str) -> RateClass {
        let (own, default) = (self.domains.get(domain), &self.default);
        let replaced = own.is_some_and(CaseStated::replaces);
        let below = Some(default).filter(|_| !replaced);
        let hard = of(own.and_then(|own| own.hard.as_ref()), default.hard.as_ref());
        let quotas = of(
            own.and_then(|own| own.quota.as_ref()),
            default.quota.as_ref(),
        );
        let windows = of(
            own.and_then(|own| own.windows.as_ref()),
            below.and_then(|below| below.windows.as_ref()),
        );
        let bucket = of(
            own.and_then(|own| own.bucket.as_ref()),
            below.and_then(|below| below.bucket.as_ref()),
        );
        let tiers = of(
            own.and_then(|own| own.tiers.as_ref()),
            below.and_then(|below| below.tiers.as_ref()),
        );
        RateClass {
            hard: hard.copied(),
            windows: windows
                .into_iter()
                .flatten()
                .map(|own| own.class())
                .collect(),
            quotas: quotas
                .into_iter()
                .flatten()
                .map(|own| own.class())
                .collect(),
            bucket: bucket.map(|own| own.class()),
            tiers: tiers.map(|tiers| {
                let tiers: Vec<Tier> = tiers.iter().copied().map(Tier::from).collect();
                normalise(&tiers).0
            }),
            refunds: true,
        }
    }
}

impl CaseWindow {
    fn class(self) -> Window {
        Window {
            limit: self.limit,
            window: Span::from_micros(self.window),
        }
    }
}

impl CaseQuota {
    fn class(self) -> Quota {
        let name = self.offset_s.to_string();
        Quota {
            limit: self.limit,
            unit: match self.unit {
                CaseUnit::Day => Calendar::Day,
                CaseUnit::Week => Calendar::Week,
                CaseUnit::Month => Calendar::Month,
                CaseUnit::Year => Calendar::Year,
            },
            zone: Arc::new(Zone::fixed(&name, self.offset_s)),
        }
    }
}

impl CaseBucket {
    fn class(self) -> Bucket {
        let period = Span::from_micros(self.period);
        let default = || Bucket::default_debt(self.rate, period, self.burst);
        let debt = self.debt.unwrap_or_else(default);
        Bucket::new(self.rate, period, self.burst, debt)
    }
}

impl From<CaseTier> for Tier {
    fn from(tier: CaseTier) -> Self {
        Self {
            limit: tier.limit,
            window: Span::from_micros(tier.window),
            active: Span::from_micros(tier.active),
            cooldown: Span::from_micros(tier.cooldown),
            skippable: tier.skippable,
        }
    }
}

impl From<Tier> for CaseTier {
    fn from(tier: Tier) -> Self {
        Self {
            limit: tier.limit,
            window: tier.window.as_micros(),
            active: tier.active.as_micros(),
            cooldown: tier.cooldown.as_micros(),
            skippable: tier.skippable,
        }
    }
}
