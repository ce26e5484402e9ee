//! The texts of warnings: what each kind says below its place.
//!
//! Knows nothing of places, or of how a warning is found. What stays true: a text says what happens, and, where there is
//! a usual remedy, what is expected instead.

use std::fmt;

use tollgate_shared::networks::is_wide;
use tollgate_shared::time::Span;

use super::normal::TierChange;
use super::spelling::print_rate;
use super::units::print_span;
use super::warning::WarningKind;

impl fmt::Display for WarningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.fixed_text() {
            return f.write_str(text);
        }
        let quoted = |span: Span| format!("\"{}\"", print_span(span));
        match *self {
            Self::Normalised(TierChange::WindowCut { before, after }) => write!(
                f,
                "{} is longer than the tier is active, treated as {}",
                quoted(before),
                quoted(after)
            ),
            Self::Normalised(TierChange::ActiveTrimmed { before, after }) => write!(
                f,
                "{} is not a whole number of windows, treated as {}",
                quoted(before),
                quoted(after)
            ),
            Self::NeverBinds { .. } | Self::NeverFull { .. } => self.write_window(f),
            Self::QuotaNeverBinds { .. } | Self::QuotaAboveLonger { .. } => self.write_quota(f),
            Self::NotANetwork { .. } | Self::WholeNetwork { .. } | Self::NetworkMember { .. } => {
                self.write_network(f)
            }
            Self::TiersAddUp { .. } | Self::TierWithoutCooldown { .. } => self.write_tiers(f),
            Self::LoweredToGlobal { before, after } => {
                write!(f, "{before} is above the global limit, treated as {after}")
            }
            Self::HardAboveGlobal { hard, global } => write!(
                f,
                "\"{hard}/s\" for one domain is above \"{global}/s\" for all together"
            ),
            Self::NeverReached { below } => {
                write!(
                    f,
                    "never reached without excess, tier[{below}] below it is never full"
                )
            }
            Self::RuleNeverMatches { first } => write!(
                f,
                "never matches: rule[{first}] matches all that it does, and comes first"
            ),
            Self::ManyBytes { bytes } => write!(
                f,
                "a domain at its limit takes about {} of state, above 64 KiB",
                Bytes(bytes)
            ),
            Self::DecimalRate { rate } => write!(
                f,
                "treated as \"{}\", all of which may come at once: a number with decimal places is whole hits in a \
                 longer window",
                print_rate(rate)
            ),
            Self::Normalised(TierChange::Dropped)
            | Self::NoTierLeft
            | Self::NeverEntered
            | Self::NothingStated
            | Self::ZoneWithoutQuota
            | Self::ClosedBeyondBound
            | Self::AllowedBeyondBound
            | Self::NotLetIn
            | Self::CandidateClosed
            | Self::ResourceWithoutLimits
            | Self::PlanWithoutMembers
            | Self::PlanWithoutLimits
            | Self::SpeltCopiesAddress
            | Self::FixedZoneStated
            | Self::UnseenCharacter
            | Self::SpeltAddress => Ok(()),
        }
    }
}

impl WarningKind {
    /// The text of warnings that contain no variable part.
    const fn fixed_text(&self) -> Option<&'static str> {
        Some(match self {
            Self::Normalised(TierChange::Dropped) => "never active, left out",
            Self::NoTierLeft => "no tier is ever active, so these limits grant nothing",
            Self::NeverEntered => {
                "never entered: a refused hit enters nothing (a prison grants one: limit = 1)"
            }
            Self::NothingStated => {
                "states no constraint, so all hits are refused (`rate = \"none\"` lets all through)"
            }
            Self::ZoneWithoutQuota => {
                "states when the periods of a quota begin, but there is no quota"
            }
            Self::ClosedBeyondBound => {
                "more domains have a limit of 0 than agents learn (64 KiB of names, the first in their order; 512 \
                 networks of IPv4 and of IPv6, the widest; with more than 10,000 entries neither networks nor domains \
                 of copies): those are refused from their first call, the others from their first denial on"
            }
            Self::AllowedBeyondBound => {
                "more domains are let in than agents learn (64 KiB of names, 512 networks, 10,000 entries): the \
                 others are refused from their first denial on, so that one call of each passes"
            }
            Self::NotLetIn => {
                "always refused: the resource lets in only domains with limits of their own, and this entry states \
                 none (tiers = \"none\" would let the domain in)"
            }
            Self::CandidateClosed => {
                "grants nothing, because the resource states no limit itself; promoted, it would be the only limits \
                 of the resource and let all in (tiers = \"none\" in the candidate has that effect already now)"
            }
            Self::ResourceWithoutLimits => "has no limits in this document",
            Self::PlanWithoutMembers => "has no members",
            Self::PlanWithoutLimits => "no resource states limits for it",
            Self::SpeltCopiesAddress => {
                "each spelling of this address holds copies by itself, as ::ffff:192.0.2.1 beside 192.0.2.1: callers \
                 have to pass addresses in one spelling"
            }
            Self::FixedZoneStated => "this table has no effect: the zone's name states its offset",
            Self::UnseenCharacter => {
                "has white space at an end, or a character that is not seen: calls have to pass the same name"
            }
            Self::SpeltAddress => {
                "each spelling of this address counts by itself, as ::ffff:192.0.2.1 beside 192.0.2.1: with \
                 `addresses` all of them count as one domain"
            }
            _ => return None,
        })
    }

    fn write_tiers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TiersAddUp { sum, last } => write!(
                f,
                "tiers add up: one after the other they let {sum} through in the longest window, not {last}; if all \
                 of them are to hold at once, expected `windows` with the same numbers"
            ),
            Self::TierWithoutCooldown { sum } => write!(
                f,
                "has no cooldown, so it adds to what is below it all the time: {sum} in its window; for a burst \
                 expected a cooldown, or `bucket = {{ rate = \"...\", burst = ... }}`"
            ),
            _ => Ok(()),
        }
    }

    fn write_window(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NeverBinds {
                most,
                limit,
                window,
            } => write!(
                f,
                "never reached without excess: {limit} in \"{}\" lets at most {most} through in it",
                print_span(window)
            ),
            Self::NeverFull {
                limit,
                hard,
                hits_max,
            } => write!(
                f,
                "{limit} is never reached without excess: hard = \"{hard}/s\" lets at most {hits_max} through in a window"
            ),
            _ => Ok(()),
        }
    }

    fn write_quota(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::QuotaNeverBinds { most, limit, unit } => write!(
                f,
                "never reached without excess: {limit} in a {} lets at most {most} through in it",
                unit.name()
            ),
            Self::QuotaAboveLonger { limit, unit } => write!(
                f,
                "not reached within a {}, which has at most {limit}",
                unit.name()
            ),
            _ => Ok(()),
        }
    }

    fn write_network(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotANetwork { meant } => write!(
                f,
                "is a name, not a network, expected \"{meant}\" if a network is meant"
            ),
            Self::WholeNetwork { network } => write!(
                f,
                "applies to all of \"{network}\", which `addresses` of this resource limits as one"
            ),
            Self::NetworkMember { network } if !is_wide(&network) => {
                write!(
                    f,
                    "a member is spelt as calls do not spell it, expected \"{}\"",
                    network.addr()
                )
            }
            Self::NetworkMember { network } => write!(
                f,
                "\"{network}\" does not make its addresses members, expected single domains"
            ),
            _ => Ok(()),
        }
    }
}

/// A number of bytes as people read it.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1_024 {
            return write!(f, "{} B", self.0);
        }
        let mut tenths = u128::from(self.0) * 10 / 1_024;
        let mut unit = 0;
        while 10_240 <= tenths && unit + 1 < UNITS.len() {
            tenths /= 1_024;
            unit += 1;
        }
        write!(f, "{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}
