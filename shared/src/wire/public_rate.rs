//! What public limits say of a rate: tiers, windows, a bucket, quotas, and what part of an address is a
//! domain. Information for headers and for the agent's own checks; denials are what it refuses by.

use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::time::Span;

pub use crate::networks::AddressPrefixes;

/// A tier, or a window by itself, as agents see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicTier {
    /// Hits that may fall within one window.
    pub limit: u64,
    /// The window.
    pub window: Span,
}

/// A token bucket as agents see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicBucket {
    /// Copies that it fills by.
    pub tokens: u64,
    /// In each period of this length.
    pub period: Span,
    /// Copies that it holds when it is full.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicQuota {
    /// Copies.
    pub limit: u64,
    /// In each period of the calendar.
    pub unit: QuotaUnit,
}

impl PublicTier {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("tier", 2, "2")?;
        Ok(Self {
            limit: reader.u64("limit")?,
            window: Span::from_micros(reader.u64("window")?),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(2);
        writer.u64(self.limit);
        writer.u64(self.window.as_micros());
    }
}

impl PublicBucket {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("bucket", 3, "3")?;
        Ok(Self {
            tokens: reader.u64("tokens")?,
            period: Span::from_micros(reader.u64("period")?),
            burst: reader.u64("burst")?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(3);
        writer.u64(self.tokens);
        writer.u64(self.period.as_micros());
        writer.u64(self.burst);
    }
}

impl PublicQuota {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("quota", 2, "2")?;
        let limit = reader.u64("limit")?;
        let before = *reader;
        let unit = match reader.u8("unit")? {
            0 => QuotaUnit::Day,
            1 => QuotaUnit::Week,
            2 => QuotaUnit::Month,
            3 => QuotaUnit::Year,
            found => return Err(before.error("unit", FieldFault::Kind { found })),
        };
        Ok(Self { limit, unit })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(2);
        writer.u64(self.limit);
        writer.u64(match self.unit {
            QuotaUnit::Day => 0,
            QuotaUnit::Week => 1,
            QuotaUnit::Month => 2,
            QuotaUnit::Year => 3,
        });
    }
}

impl AddressPrefixes {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("addresses", 2, "2")?;
        let bits = |reader: &mut Reader<'_>, field, most, expected| {
            let before = *reader;
            let bits = reader.u8(field)?;
            if most < bits {
                return Err(before.error(field, FieldFault::Range { expected }));
            }
            Ok(bits)
        };
        Ok(Self {
            v4: bits(reader, "bits of IPv4", 32, "at most 32")?,
            v6: bits(reader, "bits of IPv6", 128, "at most 128")?,
        })
    }

    pub(super) fn write(self, writer: &mut Writer) {
        writer.array(2);
        writer.u64(u64::from(self.v4));
        writer.u64(u64::from(self.v6));
    }
}
