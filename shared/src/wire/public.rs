//! The public part of a resource's limits, which agents learn from aggregators, so that nothing has to be configured
//! twice.
//!
//! A map of named fields ([`named`]), without fields that have their default values. An agent can read the limits of
//! an older or a later aggregator: an unknown kind, blind policy or quota unit is read as one that refuses nothing.

use serde::{Deserialize, Deserializer, Serialize};

use super::named::{self, Name, by_name, is_default};
use super::reader::{DecodeError, Reader};
use super::writer::Writer;
use super::{public_allowed, public_descriptors, public_rate};
use crate::descriptors::DescriptorRule;
use crate::time::Span;

pub use super::public_allowed::PublicAllowed;
pub use super::public_networks::{PublicNetwork, PublicNetworks};
pub use super::public_rate::{AddressPrefixes, PublicBucket, PublicQuota, PublicTier, QuotaUnit};

/// The most tiers, windows or quotas that a resource may have.
pub const TIERS_MAX: usize = 64;

/// The most bytes of groups and their members in public limits, names and a few bytes each. Groups and members beyond
/// it are left out, which is lenient: see [`PublicGroup::members`].
pub const GROUPS_BYTES_MAX: usize = 256 * 1024;

/// The most bytes of [`Public::closed`], counted by [`closed_bytes`]. Domains beyond it are left out, which is lenient:
/// agents let their calls through until they are denied.
pub const CLOSED_BYTES_MAX: usize = 64 * 1024;

/// The most networks of [`Public::networks`]. Narrower ones beyond it are left out, which is lenient, as above.
pub const NETWORKS_MAX: usize = 1_024;

/// About as many bytes as a closed domain takes in an agent's memory.
pub const fn closed_bytes(domain: &str) -> usize {
    domain.len() + size_of::<Box<str>>()
}

/// The first of these domains, as many as fit into [`CLOSED_BYTES_MAX`].
pub fn closed_within_bound<'d>(
    domains: impl Iterator<Item = &'d str>,
) -> impl Iterator<Item = &'d str> {
    let mut bytes = 0;
    domains.take_while(move |domain| {
        bytes += closed_bytes(domain);
        bytes <= CLOSED_BYTES_MAX
    })
}

/// How an agent treats calls while it is blind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Blind", into = "Blind")]
pub enum BlindPolicy {
    /// Lets them through.
    #[default]
    Open,
    /// Refuses them.
    Closed,
    /// Limits them by itself: a number of hits of one domain in each window.
    Local {
        /// Hits.
        limit: u64,
        /// The length of the window.
        window: Span,
    },
}

/// The kind of a resource.
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
    /// At once; the aggregator's verdict comes later.
    #[default]
    Optimistic,
    /// Once the aggregator has granted them.
    Strict,
}

/// How an agent treats copies that were too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExcess {
    /// They are kept until they are released.
    #[default]
    Keep,
    /// Their holder gets a request to release them.
    GiveBack,
}

/// A group of domains with a limit of its own, as agents see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicGroup {
    /// Its name; a denial of the group is a statement about this name.
    #[serde(deserialize_with = "named::name")]
    pub name: Box<str>,
    /// Copies of all its members together.
    pub limit: u64,
    /// Its members, ascending. `None` if there are too many to list: agents then let through what the group's denial
    /// would refuse, and the aggregator counts it as excess.
    #[serde(
        default,
        deserialize_with = "members",
        skip_serializing_if = "is_default"
    )]
    pub members: Option<Box<[Box<str>]>>,
}

/// What agents learn about a resource that is limited by copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicCopies {
    /// The default limit of one domain.
    pub limit: u64,
    /// No domain has more copies than this: the limit of all domains together; or, if some domains have limits of
    /// their own and that is less, the greatest of these.
    #[serde(default, skip_serializing_if = "is_default")]
    pub global: Option<u64>,
    /// When copies may be used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserve: Reserving,
    /// How an agent treats copies that were too many.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_excess: OnExcess,
    /// How long a hold may last; `None`: without end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_age: Option<Span>,
    /// The silence after which an agent counts as gone: agents send heartbeats several times as often.
    pub agent_timeout: Span,
    /// The groups, by name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub groups: Box<[PublicGroup]>,
}

/// The public part of one resource's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, expecting = "public limits")]
pub struct Public {
    /// The limits version that it belongs to; 0: none.
    pub version: u64,
    /// The kind of the resource.
    pub kind: Kind,
    /// The default tiers, lowest first.
    #[serde(deserialize_with = "few", skip_serializing_if = "is_default")]
    pub tiers: Box<[PublicTier]>,
    /// The default hard limit, hits a second.
    #[serde(skip_serializing_if = "is_default")]
    pub hard: Option<u64>,
    /// The default windows, all of which must have room.
    #[serde(deserialize_with = "few", skip_serializing_if = "is_default")]
    pub windows: Box<[PublicTier]>,
    /// The default bucket.
    #[serde(skip_serializing_if = "is_default")]
    pub bucket: Option<PublicBucket>,
    /// The default quotas.
    #[serde(
        deserialize_with = "public_rate::quotas",
        skip_serializing_if = "is_default"
    )]
    pub quotas: Box<[PublicQuota]>,
    /// The most copies that any domain's limits can ever grant at once. `None`: any number.
    #[serde(skip_serializing_if = "is_default")]
    pub most: Option<u64>,
    /// The least limit of any domain, in copies: with so many in use a pair may be full. It is reduced where pairs
    /// are announced as near later than usual. Domains that are granted nothing are left out. `None`: no domain has a
    /// limit.
    #[serde(skip_serializing_if = "is_default")]
    pub least: Option<u64>,
    /// The global limit, if there is one.
    #[serde(skip_serializing_if = "is_default")]
    pub global: Option<u64>,
    /// Whether nothing is refunded when a call turns out to have cost less than estimated.
    #[serde(skip_serializing_if = "is_default")]
    pub keeps_estimates: bool,
    /// Which part of an address is the domain, if addresses are limited by network.
    #[serde(skip_serializing_if = "is_default")]
    pub addresses: Option<AddressPrefixes>,
    /// Whether some domain has limits of its own, so that the defaults may not hold for all.
    #[serde(skip_serializing_if = "is_default")]
    pub has_overrides: bool,
    /// How agents treat calls while blind.
    #[serde(skip_serializing_if = "is_default")]
    pub blind: BlindPolicy,
    /// Whether agents refuse calls by themselves: the resource is not configured and its namespace refuses that, or
    /// its limits never grant a hit to anybody.
    #[serde(skip_serializing_if = "is_default")]
    pub refused: bool,
    /// Whether agents ignore denials here (the namespace ignores what is configured, or a shadow).
    #[serde(skip_serializing_if = "is_default")]
    pub ignored: bool,
    /// Its copies; `Some` exactly if `kind` is [`Kind::Copies`].
    #[serde(skip_serializing_if = "is_default")]
    pub copies: Option<PublicCopies>,
    /// The rules of a domain of descriptors, empty unless `kind` is [`Kind::Descriptors`].
    #[serde(with = "public_descriptors", skip_serializing_if = "is_default")]
    pub descriptors: Box<[DescriptorRule]>,
    /// Domains that agents refuse by themselves, ascending: limits of their own never grant them a hit, or copies. As many as fit
    /// into [`CLOSED_BYTES_MAX`], and each exactly by its name: not the domains without limits of their own where the
    /// resource grants nothing to these. Empty unless `kind` is [`Kind::Rate`] or [`Kind::Copies`].
    #[serde(deserialize_with = "closed", skip_serializing_if = "is_default")]
    pub closed: Box<[Box<str>]>,
    /// The version whose limits these are, if versions after it were operators' acts that left limits as they were; 0:
    /// it is `version`. See [`Public::limits_version`].
    #[serde(skip_serializing_if = "is_default")]
    pub limits_of: u64,
    /// Networks whose addresses agents refuse by themselves: banned ones, and those which limits of their own never grant
    /// a hit. Empty for descriptors.
    #[serde(skip_serializing_if = "is_default")]
    pub networks: PublicNetworks,
    /// All domains that are let in, if the resource grants nothing to others; agents refuse these by themselves. `None`
    /// if it grants something to others, or if there are too many to list. Empty unless `kind` is [`Kind::Rate`] or
    /// [`Kind::Copies`].
    #[serde(
        deserialize_with = "public_allowed::allowed",
        skip_serializing_if = "is_default"
    )]
    pub allowed: Option<PublicAllowed>,
}

impl Public {
    /// The version whose limits these are, which denials by these limits state. A ban is a version, too, and leaves
    /// the limits as they were.
    pub fn limits_version(&self) -> u64 {
        match self.limits_of {
            0 => self.version,
            version => version,
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut public: Self = named::read(reader, "public limits")?;
        public.copies = match public.kind {
            Kind::Copies => Some(public.copies.unwrap_or_default()),
            Kind::Rate | Kind::Unconfigured | Kind::Descriptors => None,
        };
        if public.kind != Kind::Descriptors {
            public.descriptors = Box::default();
        } else {
            public.networks = PublicNetworks::default();
        }
        if !matches!(public.kind, Kind::Rate | Kind::Copies) {
            public.closed = Box::default();
            public.allowed = None;
        }
        Ok(public)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        named::write(writer, self);
    }
}

by_name!(
    Kind,
    &[
        ("unconfigured", Kind::Unconfigured),
        ("rate", Kind::Rate),
        ("copies", Kind::Copies),
        ("descriptors", Kind::Descriptors),
    ]
);

by_name!(
    Reserving,
    &[
        ("optimistic", Reserving::Optimistic),
        ("strict", Reserving::Strict),
    ]
);

by_name!(
    OnExcess,
    &[("keep", OnExcess::Keep), ("give-back", OnExcess::GiveBack),]
);

/// A blind policy in its written form.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Blind {
    policy: BlindName,
    #[serde(default, skip_serializing_if = "is_default")]
    limit: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    window: Span,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BlindName {
    #[default]
    Open,
    Closed,
    Local,
}

by_name!(
    BlindName,
    &[
        ("open", BlindName::Open),
        ("closed", BlindName::Closed),
        ("local", BlindName::Local),
    ]
);

impl From<Blind> for BlindPolicy {
    fn from(blind: Blind) -> Self {
        match blind.policy {
            BlindName::Open => Self::Open,
            BlindName::Closed => Self::Closed,
            BlindName::Local => Self::Local {
                limit: blind.limit,
                window: blind.window,
            },
        }
    }
}

impl From<BlindPolicy> for Blind {
    fn from(policy: BlindPolicy) -> Self {
        let (policy, limit, window) = match policy {
            BlindPolicy::Open => (BlindName::Open, 0, Span::ZERO),
            BlindPolicy::Closed => (BlindName::Closed, 0, Span::ZERO),
            BlindPolicy::Local { limit, window } => (BlindName::Local, limit, window),
        };
        Self {
            policy,
            limit,
            window,
        }
    }
}

/// Reads a list with at most as many elements as a resource may have tiers.
fn few<'de, D, T>(deserializer: D) -> Result<Box<[T]>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    named::list::<_, _, TIERS_MAX>(deserializer)
}

/// Reads the closed domains, as many as fit into the bound: an aggregator that sends more costs its agents nothing.
fn closed<'de, D>(deserializer: D) -> Result<Box<[Box<str>]>, D::Error>
where
    D: Deserializer<'de>,
{
    let names = Vec::<Name<'de>>::deserialize(deserializer)?;
    let closed = closed_within_bound(names.iter().map(|Name(name)| *name));
    Ok(closed.map(Box::from).collect())
}

/// The names of a group's members.
type MemberNames = Box<[Box<str>]>;

fn members<'de, D>(deserializer: D) -> Result<Option<MemberNames>, D::Error>
where
    D: Deserializer<'de>,
{
    let names = Option::<Vec<Name<'de>>>::deserialize(deserializer)?;
    Ok(names.map(|names| names.iter().map(|Name(name)| (*name).into()).collect()))
}
