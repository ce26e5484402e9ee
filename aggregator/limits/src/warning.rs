//! Warnings: what is valid in a limits document, but questionable.
//!
//! A warning never stops anything: the document has the effect that the warning describes. Each names
//! the place, and for a change the old and the effective value. Knows nothing of how it was detected.

use std::cell::RefCell;
use std::fmt;

use ipnet::IpNet;
use serde::Serialize;
use serde::ser::SerializeStruct as _;
use tollgate_shared::time::Span;

use super::normal::TierChange;
use super::path::Path;
use super::rate::Calendar;
use super::settings::Rate;
use super::units::print_span;

/// How many warnings are reported one by one; the others are counted.
pub const WARNINGS_MAX: usize = 1_000;

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarningKind {
    /// Normalisation changed a tier.
    Normalised(TierChange),
    /// Tiers were stated, but none is ever active.
    NoTierLeft,
    /// A limit on copies is above the global one.
    LoweredToGlobal {
        /// As written.
        before: u64,
        /// As effective.
        after: u64,
    },
    /// One domain may make more hits a second than all domains together.
    HardAboveGlobal {
        /// One domain's.
        hard: u64,
        /// All domains'.
        global: u64,
    },
    /// The hard limit keeps a tier from ever being full.
    NeverFull {
        /// The tier's limit.
        limit: u64,
        /// The hard limit.
        hard: u64,
        /// How many hits the hard limit allows in one window.
        hits_max: u64,
    },
    /// A tier below is never full and never skipped, so no hit climbs to this one.
    NeverReached {
        /// The number of the tier below, from 1.
        below: usize,
    },
    /// Neither this tier nor any above it grants a hit, and a refused hit enters no tier.
    NeverEntered,
    /// A resource states no constraint, and no domain has one of its own.
    NothingStated,
    /// A zone without a quota.
    ZoneWithoutQuota,
    /// A window, or a hard limit, that another one of at least its length never lets fill.
    NeverBinds {
        /// Copies that the other one allows in the window.
        most: u64,
        /// The other one's limit.
        limit: u64,
        /// The other one's length.
        window: Span,
    },
    /// A quota that another one keeps from ever being reached.
    QuotaNeverBinds {
        /// Copies that the other one allows in the period.
        most: u64,
        /// The other one's limit.
        limit: u64,
        /// The other one's period.
        unit: Calendar,
    },
    /// A quota whose limit is not below that of a longer period; it can be reached only across two of
    /// those.
    QuotaAboveLonger {
        /// The longer one's limit.
        limit: u64,
        /// The longer one's period.
        unit: Calendar,
    },
    /// A domain that looks like a network, but is the name of one domain alone.
    NotANetwork {
        /// The network that it probably means.
        meant: IpNet,
    },
    /// An address whose resource limits a whole network as one domain.
    WholeNetwork {
        /// That network.
        network: IpNet,
    },
    /// A network among the members of a group, which are single domains; or an address in another spelling than the
    /// canonical one, in which calls pass it.
    NetworkMember {
        /// The network, or the address.
        network: IpNet,
    },
    /// Tiers that look like windows which all hold at once, but add up.
    TiersAddUp {
        /// How many hits they allow within the longest window.
        sum: u64,
        /// The limit of the last of them.
        last: u64,
    },
    /// A tier above another that is always available.
    TierWithoutCooldown {
        /// How many hits this tier and those below it allow in its window.
        sum: u64,
    },
    /// A rule of descriptors matches nothing that an earlier one does not match, which takes precedence.
    RuleNeverMatches {
        /// The number of the earlier one, from 1.
        first: usize,
    },
    /// A domain at its limit takes much memory.
    ManyBytes {
        /// How much.
        bytes: u64,
    },
    /// More domains, or networks, are granted nothing than agents learn.
    ClosedBeyondBound,
    /// More domains are let in, and nobody else, than agents learn.
    AllowedBeyondBound,
    /// An entry on a resource that lets in only listed domains states nothing that lets its domain in.
    NotLetIn,
    /// A rate with decimal places, which becomes more than one hit in a longer window.
    DecimalRate {
        /// What it becomes.
        rate: Rate,
    },
    /// A candidate grants nothing, because its resource states no limit; promoted, it would let all in.
    CandidateClosed,
    /// A rule of descriptors is for a resource that has no limits.
    ResourceWithoutLimits,
    /// A plan that no domain is a member of.
    PlanWithoutMembers,
    /// A plan that no resource states limits for.
    PlanWithoutLimits,
    /// A table of a zone whose name states its offset, so that the table is not used.
    FixedZoneStated,
    /// A name of a domain has white space at an end, or a character that nobody sees.
    UnseenCharacter,
    /// The entry of an address, whose spellings are limited each by itself.
    SpeltAddress,
    /// The same of copies, where nothing makes one domain of the spellings.
    SpeltCopiesAddress,
}

impl WarningKind {
    /// A stable code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Normalised(TierChange::Dropped) => "tier_dropped",
            Self::Normalised(TierChange::WindowCut { .. }) => "window_cut",
            Self::Normalised(TierChange::ActiveTrimmed { .. }) => "active_trimmed",
            Self::NoTierLeft => "no_tier_left",
            Self::LoweredToGlobal { .. } => "lowered_to_global",
            Self::HardAboveGlobal { .. } => "hard_above_global",
            Self::NeverFull { .. } => "never_full",
            Self::NeverReached { .. } => "never_reached",
            Self::NeverEntered => "never_entered",
            Self::NothingStated => "nothing_stated",
            Self::ZoneWithoutQuota => "zone_without_quota",
            Self::NeverBinds { .. } => "never_binds",
            Self::QuotaNeverBinds { .. } => "quota_never_binds",
            Self::QuotaAboveLonger { .. } => "quota_above_longer",
            Self::NotANetwork { .. } => "not_a_network",
            Self::WholeNetwork { .. } => "whole_network",
            Self::NetworkMember { .. } => "network_member",
            Self::TiersAddUp { .. } => "tiers_add_up",
            Self::TierWithoutCooldown { .. } => "tier_without_cooldown",
            Self::RuleNeverMatches { .. } => "rule_never_matches",
            Self::ManyBytes { .. } => "many_bytes",
            Self::ClosedBeyondBound => "closed_beyond_bound",
            Self::AllowedBeyondBound => "allowed_beyond_bound",
            Self::NotLetIn => "not_let_in",
            Self::DecimalRate { .. } => "decimal_rate",
            Self::CandidateClosed => "candidate_closed",
            Self::ResourceWithoutLimits => "resource_without_limits",
            Self::PlanWithoutMembers => "plan_without_members",
            Self::PlanWithoutLimits => "plan_without_limits",
            Self::FixedZoneStated => "fixed_zone_stated",
            Self::UnseenCharacter => "unseen_character",
            Self::SpeltAddress | Self::SpeltCopiesAddress => "spelt_address",
        }
    }

    /// The written and the effective value, if they differ.
    pub fn before_and_after(&self) -> Option<(String, String)> {
        match *self {
            Self::Normalised(
                TierChange::WindowCut { before, after }
                | TierChange::ActiveTrimmed { before, after },
            ) => Some((print_span(before), print_span(after))),
            Self::LoweredToGlobal { before, after } => {
                Some((before.to_string(), after.to_string()))
            }
            _ => None,
        }
    }
}

/// One warning, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The path to the place, as in `resource "api.search": tier[1].window`. Warnings of
    /// normalisation number tiers as written, all others as effective.
    pub path: Box<str>,
    /// What it is about.
    pub kind: WarningKind,
    /// How many further domains of this resource it applies to.
    pub alike: u64,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.kind)?;
        match self.alike {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more domain)"),
            more => write!(f, " (and {more} more domains)"),
        }
    }
}

impl Serialize for Warning {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let changed = self.kind.before_and_after();
        let mut fields = serializer.serialize_struct("Warning", 6)?;
        fields.serialize_field("code", self.kind.code())?;
        fields.serialize_field("path", &self.path)?;
        fields.serialize_field("message", &self.kind.to_string())?;
        fields.serialize_field("before", &changed.as_ref().map(|(before, _)| before))?;
        fields.serialize_field("after", &changed.as_ref().map(|(_, after)| after))?;
        fields.serialize_field("further_domains", &self.alike)?;
        fields.end()
    }
}

/// All warnings about a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Warnings {
    /// The first [`WARNINGS_MAX`].
    pub list: Vec<Warning>,
    /// How many more there are.
    pub omitted: u64,
}

/// Collects warnings while a document is read and judged.
#[derive(Default)]
pub(super) struct Collector(RefCell<Warnings>);

impl Collector {
    pub(super) fn add(&self, path: &Path<'_>, kind: WarningKind) {
        self.add_alike(path, kind, 0);
    }

    pub(super) fn add_alike(&self, path: &Path<'_>, kind: WarningKind, alike: u64) {
        let mut warnings = self.0.borrow_mut();
        if WARNINGS_MAX <= warnings.list.len() {
            warnings.omitted += 1;
            return;
        }
        warnings.list.push(Warning {
            path: path.to_string().into_boxed_str(),
            kind,
            alike,
        });
    }

    pub(super) fn finish(self) -> Warnings {
        self.0.into_inner()
    }
}
