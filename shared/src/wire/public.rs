//! The public part of a resource's limits: what agents learn with the feed, so that nothing has to be
//! configured twice.

use super::reader::{DecodeError, Fault, Reader};
use super::writer::Writer;
use crate::time::Span;

/// The most tiers that a resource may have.
pub const TIERS_MAX: u32 = 64;

/// What an agent does with calls while it is blind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlindPolicy {
    /// Lets them through.
    #[default]
    Open,
    /// Refuses them.
    Closed,
    /// Limits by itself: so many hits of one domain in each window.
    Local {
        /// Hits.
        limit: u64,
        /// In each window of this length.
        window: Span,
    },
}

/// A tier as agents see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicTier {
    /// Hits that may fall within one window.
    pub limit: u64,
    /// The window.
    pub window: Span,
}

/// What a resource is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not in the limits document.
    #[default]
    Unconfigured,
    /// Limited by rate.
    Rate,
    /// Limited by copies.
    Copies,
}

/// The public part of one resource's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Public {
    /// The limits version that it is of; 0: none.
    pub version: u64,
    /// What it is.
    pub kind: Kind,
    /// The default tiers, lowest first.
    pub tiers: Box<[PublicTier]>,
    /// The default hard limit, hits a second.
    pub hard: Option<u64>,
    /// Whether some domain has limits of its own, so that the default may not hold for all.
    pub has_overrides: bool,
    /// What to do while blind.
    pub blind: BlindPolicy,
    /// Whether calls are refused without being asked: not configured, and not allowed to be.
    pub refused: bool,
    /// Whether denials are grants here (the namespace ignores what is configured, or a shadow).
    pub ignored: bool,
}

impl Public {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("public limits", 8, "8")?;
        let version = reader.u64("version")?;
        let before = *reader;
        let kind = match reader.u8("kind")? {
            0 => Kind::Unconfigured,
            1 => Kind::Rate,
            2 => Kind::Copies,
            found => return Err(before.error("kind", Fault::Kind { found })),
        };
        let before = *reader;
        let len = reader.array("tiers")?;
        if TIERS_MAX < len {
            return Err(before.error(
                "tiers",
                Fault::Length {
                    found: u64::from(len),
                    expected: "at most 64",
                },
            ));
        }
        let mut tiers = Vec::with_capacity(len as usize);
        for _ in 0..len {
            reader.fixed_array("tier", 2, "2")?;
            let limit = reader.u64("limit")?;
            tiers.push(PublicTier {
                limit,
                window: Span::from_micros(reader.u64("window")?),
            });
        }
        Ok(Self {
            version,
            kind,
            tiers: tiers.into_boxed_slice(),
            hard: if reader.nil() {
                None
            } else {
                Some(reader.u64("hard")?)
            },
            has_overrides: reader.bool("has overrides")?,
            blind: BlindPolicy::read(reader)?,
            refused: reader.bool("refused")?,
            ignored: reader.bool("ignored")?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(8);
        writer.u64(self.version);
        writer.u64(match self.kind {
            Kind::Unconfigured => 0,
            Kind::Rate => 1,
            Kind::Copies => 2,
        });
        writer.array(self.tiers.len());
        for tier in &self.tiers {
            writer.array(2);
            writer.u64(tier.limit);
            writer.u64(tier.window.as_micros());
        }
        match self.hard {
            Some(hard) => writer.u64(hard),
            None => writer.nil(),
        }
        writer.bool(self.has_overrides);
        self.blind.write(writer);
        writer.bool(self.refused);
        writer.bool(self.ignored);
    }
}

impl BlindPolicy {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("blind", 3, "3")?;
        let before = *reader;
        let (kind, limit, window) = (
            reader.u8("blind")?,
            reader.u64("limit")?,
            reader.u64("window")?,
        );
        match kind {
            0 => Ok(Self::Open),
            1 => Ok(Self::Closed),
            2 => Ok(Self::Local {
                limit,
                window: Span::from_micros(window),
            }),
            found => Err(before.error("blind", Fault::Kind { found })),
        }
    }

    fn write(self, writer: &mut Writer) {
        let (kind, limit, window) = match self {
            Self::Open => (0, 0, Span::ZERO),
            Self::Closed => (1, 0, Span::ZERO),
            Self::Local { limit, window } => (2, limit, window),
        };
        writer.array(3);
        writer.u64(kind);
        writer.u64(limit);
        writer.u64(window.as_micros());
    }
}
