//! The public part of a resource's limits: what agents learn with the feed, so that nothing has to be
//! configured twice.

use super::frame::read_list;
use super::public_descriptors::{read_rules, write_rules};
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::descriptors::DescriptorRule;
use crate::names::NAME_BYTES_MAX;
use crate::time::Span;

pub use super::public_rate::{AddressPrefixes, PublicBucket, PublicQuota, PublicTier, QuotaUnit};

/// The most tiers, windows or quotas that a resource may have.
pub const TIERS_MAX: u32 = 64;

/// The most bytes of groups and their members, names and a few bytes each, that public limits carry.
/// What is above it is not told, which is lenient: see [`PublicGroup::members`].
pub const GROUPS_BYTES_MAX: usize = 256 * 1024;

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
    /// No resource, but rules by which Envoy's descriptors are uses of resources.
    Descriptors,
}

/// When copies may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserving {
    /// At once; the aggregator's word comes after.
    #[default]
    Optimistic,
    /// Once the aggregator has granted them.
    Strict,
}

/// What happens with copies that were too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExcess {
    /// They are kept until they are released.
    #[default]
    Keep,
    /// Their holder is asked to give them back.
    GiveBack,
}

/// A group of domains with a limit of its own, as agents see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicGroup {
    /// Its name; a denial of it is a statement about this name.
    pub name: Box<str>,
    /// Copies of all its members together.
    pub limit: u64,
    /// Its members, ascending. None where there are too many to tell: agents then let through what
    /// the group's denial would refuse, and the aggregator counts it as excess.
    pub members: Option<Box<[Box<str>]>>,
}

/// What agents learn of a resource that is limited by copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicCopies {
    /// The default limit of one domain.
    pub limit: u64,
    /// What no domain's copies are above: the limit of all domains together; where some domains have limits of
    /// their own, the greatest that any has, if that is less.
    pub global: Option<u64>,
    /// When copies may be used.
    pub reserve: Reserving,
    /// What happens with copies that were too many.
    pub on_excess: OnExcess,
    /// How long a hold may last; none: without end.
    pub max_age: Option<Span>,
    /// The silence after which an agent is taken to be gone: it beats several times as often.
    pub agent_timeout: Span,
    /// The groups, by name.
    pub groups: Box<[PublicGroup]>,
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
    /// The default windows, all of which must have room.
    pub windows: Box<[PublicTier]>,
    /// The default bucket.
    pub bucket: Option<PublicBucket>,
    /// The default quotas.
    pub quotas: Box<[PublicQuota]>,
    /// The most copies that any domain's limits can ever grant at once. `None`: any number.
    pub most: Option<u64>,
    /// The least limit of any domain, in copies: by how few in use a pair may be full. Less where pairs are
    /// told as near later than usual. Domains that are granted nothing are left out. `None`: nothing
    /// limits any.
    pub least: Option<u64>,
    /// The same of all domains together, where they have a limit.
    pub global: Option<u64>,
    /// Whether nothing is taken back when a call turns out to have cost less than was estimated.
    pub keeps_estimates: bool,
    /// Which part of an address is the domain, where domains are addresses.
    pub addresses: Option<AddressPrefixes>,
    /// Whether some domain has limits of its own, so that the default may not hold for all.
    pub has_overrides: bool,
    /// What to do while blind.
    pub blind: BlindPolicy,
    /// Whether calls are refused without being asked: not configured and not allowed to be, or limited
    /// so that nobody is ever granted a hit.
    pub refused: bool,
    /// Whether denials are grants here (the namespace ignores what is configured, or a shadow).
    pub ignored: bool,
    /// Its copies; there exactly where `kind` is [`Kind::Copies`].
    pub copies: Option<PublicCopies>,
    /// The rules of a domain of descriptors, empty unless `kind` is [`Kind::Descriptors`].
    pub descriptors: Box<[DescriptorRule]>,
}

impl Public {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let whole = *reader;
        let len = reader.array("public limits")?;
        let version = reader.u64("version")?;
        let before = *reader;
        let kind = match reader.u8("kind")? {
            0 => Kind::Unconfigured,
            1 => Kind::Rate,
            2 => Kind::Copies,
            3 => Kind::Descriptors,
            found => return Err(before.error("kind", FieldFault::Kind { found })),
        };
        if len != kind.fields() {
            return Err(whole.error(
                "public limits",
                FieldFault::Length {
                    found: u64::from(len),
                    expected: "16, or 17 with copies or descriptors",
                },
            ));
        }
        Ok(Self {
            version,
            kind,
            tiers: read_short_list(reader, "tiers", PublicTier::read)?,
            hard: read_optional(reader, "hard")?,
            windows: read_short_list(reader, "windows", PublicTier::read)?,
            bucket: read_optional_with(reader, PublicBucket::read)?,
            quotas: read_short_list(reader, "quotas", PublicQuota::read)?,
            most: read_optional(reader, "most")?,
            least: read_optional(reader, "least")?,
            global: read_optional(reader, "global")?,
            keeps_estimates: reader.bool("keeps estimates")?,
            addresses: read_optional_with(reader, AddressPrefixes::read)?,
            has_overrides: reader.bool("has overrides")?,
            blind: BlindPolicy::read(reader)?,
            refused: reader.bool("refused")?,
            ignored: reader.bool("ignored")?,
            copies: match kind {
                Kind::Copies => Some(PublicCopies::read(reader)?),
                Kind::Rate | Kind::Unconfigured | Kind::Descriptors => None,
            },
            descriptors: match kind {
                Kind::Descriptors => read_rules(reader)?,
                Kind::Rate | Kind::Unconfigured | Kind::Copies => Box::default(),
            },
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(self.kind.fields() as usize);
        writer.u64(self.version);
        writer.u64(match self.kind {
            Kind::Unconfigured => 0,
            Kind::Rate => 1,
            Kind::Copies => 2,
            Kind::Descriptors => 3,
        });
        write_list(writer, &self.tiers, PublicTier::write);
        write_optional(writer, self.hard);
        write_list(writer, &self.windows, PublicTier::write);
        match self.bucket {
            Some(bucket) => bucket.write(writer),
            None => writer.nil(),
        }
        write_list(writer, &self.quotas, PublicQuota::write);
        write_optional(writer, self.most);
        write_optional(writer, self.least);
        write_optional(writer, self.global);
        writer.bool(self.keeps_estimates);
        match self.addresses {
            Some(addresses) => addresses.write(writer),
            None => writer.nil(),
        }
        writer.bool(self.has_overrides);
        self.blind.write(writer);
        writer.bool(self.refused);
        writer.bool(self.ignored);
        match (self.kind, &self.copies) {
            (Kind::Copies, Some(copies)) => copies.write(writer),
            (Kind::Copies, None) => PublicCopies::default().write(writer),
            (Kind::Descriptors, _) => write_rules(writer, &self.descriptors),
            (Kind::Rate | Kind::Unconfigured, _) => {}
        }
    }
}

impl Kind {
    /// Elements of the array that public limits of this kind are.
    const fn fields(self) -> u32 {
        match self {
            Self::Unconfigured | Self::Rate => 16,
            Self::Copies | Self::Descriptors => 17,
        }
    }
}

impl PublicCopies {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("copies", 7, "7")?;
        Ok(Self {
            limit: reader.u64("limit")?,
            global: read_optional(reader, "global")?,
            reserve: match read_choice(reader, "reserve")? {
                false => Reserving::Optimistic,
                true => Reserving::Strict,
            },
            on_excess: match read_choice(reader, "on excess")? {
                false => OnExcess::Keep,
                true => OnExcess::GiveBack,
            },
            max_age: read_optional(reader, "max age")?.map(Span::from_micros),
            agent_timeout: Span::from_micros(reader.u64("agent timeout")?),
            groups: read_list(reader, "groups", PublicGroup::read)?.into_boxed_slice(),
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(7);
        writer.u64(self.limit);
        write_optional(writer, self.global);
        writer.u64(u64::from(self.reserve == Reserving::Strict));
        writer.u64(u64::from(self.on_excess == OnExcess::GiveBack));
        write_optional(writer, self.max_age.map(Span::as_micros));
        writer.u64(self.agent_timeout.as_micros());
        writer.array(self.groups.len());
        for group in &self.groups {
            group.write(writer);
        }
    }
}

impl PublicGroup {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("group", 3, "3")?;
        Ok(Self {
            name: reader.text("group", 1, NAME_BYTES_MAX)?.into(),
            limit: reader.u64("limit")?,
            members: if reader.nil() {
                None
            } else {
                let name = |r: &mut Reader<'_>| Ok(r.text("member", 1, NAME_BYTES_MAX)?.into());
                Some(read_list(reader, "members", name)?.into_boxed_slice())
            },
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(3);
        writer.text(&self.name);
        writer.u64(self.limit);
        match &self.members {
            Some(members) => {
                writer.array(members.len());
                for member in members {
                    writer.text(member);
                }
            }
            None => writer.nil(),
        }
    }
}

/// Reads a list of at most as many as a resource may have tiers.
fn read_short_list<T>(
    reader: &mut Reader<'_>,
    field: &'static str,
    read: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Box<[T]>, DecodeError> {
    let mut after = *reader;
    let len = after.array(field)?;
    if TIERS_MAX < len {
        return Err(reader.error(
            field,
            FieldFault::Length {
                found: u64::from(len),
                expected: "at most 64",
            },
        ));
    }
    Ok(read_list(reader, field, read)?.into_boxed_slice())
}

fn write_list<T>(writer: &mut Writer, list: &[T], write: impl Fn(&T, &mut Writer)) {
    writer.array(list.len());
    for one in list {
        write(one, writer);
    }
}

fn read_optional_with<T>(
    reader: &mut Reader<'_>,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if reader.nil() {
        return Ok(None);
    }
    read(reader).map(Some)
}

fn read_optional(reader: &mut Reader<'_>, field: &'static str) -> Result<Option<u64>, DecodeError> {
    if reader.nil() {
        return Ok(None);
    }
    reader.u64(field).map(Some)
}

fn write_optional(writer: &mut Writer, value: Option<u64>) {
    match value {
        Some(value) => writer.u64(value),
        None => writer.nil(),
    }
}

fn read_choice(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, DecodeError> {
    let before = *reader;
    match reader.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(before.error(field, FieldFault::Kind { found })),
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
            found => Err(before.error("blind", FieldFault::Kind { found })),
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
