//! The rate in public limits: tiers, windows, a bucket, quotas. Information for headers and for the
//! agent's own checks; agents refuse by denials.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::named;
use super::public::TIERS_MAX;
use crate::time::Span;

pub use crate::networks::AddressPrefixes;

/// A tier, or a window by itself, as agents see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicTier {
    /// Hits that may fall within one window.
    pub limit: u64,
    /// The window.
    pub window: Span,
}

/// A token bucket as agents see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicBucket {
    /// Copies that flow in.
    pub tokens: u64,
    /// In each period of this length.
    pub period: Span,
    /// Copies of a full bucket.
    pub burst: u64,
}

/// The calendar period of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaUnit {
    /// From midnight.
    Day,
    /// From Monday.
    Week,
    /// From the first of the month.
    Month,
    /// From the first of January.
    Year,
}

/// A quota as agents see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PublicQuota {
    /// Copies.
    pub limit: u64,
    /// In each period of the calendar.
    pub unit: QuotaUnit,
}

/// The names of units in messages.
const UNITS: [(&str, QuotaUnit); 4] = [
    ("day", QuotaUnit::Day),
    ("week", QuotaUnit::Week),
    ("month", QuotaUnit::Month),
    ("year", QuotaUnit::Year),
];

impl Serialize for QuotaUnit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(named::name_of(self, &UNITS))
    }
}

/// Reads quotas. Quotas with an unknown unit are left out.
pub(super) fn quotas<'de, D>(deserializer: D) -> Result<Box<[PublicQuota]>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct QuotaRead {
        limit: u64,
        #[serde(deserialize_with = "unit")]
        unit: Option<QuotaUnit>,
    }

    fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<QuotaUnit>, D::Error> {
        named::choice(deserializer, &UNITS)
    }

    let quotas: Box<[QuotaRead]> = named::list::<_, _, TIERS_MAX>(deserializer)?;
    let known = quotas.iter().filter_map(|quota| {
        Some(PublicQuota {
            limit: quota.limit,
            unit: quota.unit?,
        })
    });
    Ok(known.collect())
}
