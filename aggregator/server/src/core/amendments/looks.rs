//! Checks an operator's proposal before it is appended, as far as this aggregator can know.
//!
//! Knows nothing of appending. What stays true: a check changes nothing; what cannot be known here, because another
//! aggregator rules the partition, is not refused here.

use tollgate_limits::{Limits, NotChanged, Revision, StatedLimits, spelt_domain};
use tollgate_shared::escape::escaped;
use tollgate_shared::names::{check_domain, check_name, partition_of_pair, partition_of_resource};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::limits_document::REASON_BYTES_MAX;
use tollgate_shared::wire::set_rows::SetRow;
use tollgate_shared::wire::statement::Cause;

use super::super::partition::Partition;
use super::super::queries::Views;
use super::super::ready::log_time_of;
use super::{AmendmentRefused, Proposal};
use tollgate_limits::versions::own_of;
use tollgate_limits::versions::switches;

/// Bans and pardons that may last in one partition, which has an entry of up to 700 bytes for each: 46 MB at most. A
/// further ban is refused and counted. Instead of so many bans an operator can ban a network, or change the
/// resource's limits.
pub const AMENDED_MAX: usize = 65_536;

/// Whether one more ban may last beside `amended` bans and pardons.
fn room_for_ban(amended: usize) -> Result<(), AmendmentRefused> {
    match amended < AMENDED_MAX {
        true => Ok(()),
        false => Err(AmendmentRefused::TooMany {
            found: amended,
            most: AMENDED_MAX,
        }),
    }
}

impl Views<'_> {
    /// Whether the proposal can be carried out at all, as far as this process knows.
    pub(super) fn look_at(&self, proposal: &Proposal, act: &Act) -> Result<(), AmendmentRefused> {
        let not_now = |why: &str| AmendmentRefused::NotNow { why: why.into() };
        if let Some(down) = self.log_down {
            return Err(not_now(down));
        }
        if let Some(why) = self.limits.why_unread() {
            return Err(not_now(&why));
        }
        if self.proposals.is_full() {
            return Err(not_now("too many amendments are on their way"));
        }
        let found = self.limits.book.latest_number();
        if let Some(expected) = proposal.expected.filter(|expected| *expected != found) {
            return Err(AmendmentRefused::Conflict { expected, found });
        }
        if REASON_BYTES_MAX < proposal.why.len() {
            return Err(AmendmentRefused::Name {
                field: "why",
                name: format!("{} bytes", proposal.why.len()),
                fault: format!("expected at most {REASON_BYTES_MAX}"),
            });
        }
        check("who", &proposal.who)?;
        if self.limits.book.latest().is_none() {
            // It would be void in the log.
            return Err(AmendmentRefused::Nothing {
                what: "no limits are in force, expected a limits document first (`limits push`, or the file of `serve`)"
                    .to_owned(),
            });
        }
        self.look_at_act(act)
    }

    /// The act with its domain as the resource limits it, or `None` if the proposal already spells it so. They differ
    /// for an address of a resource that limits addresses by their networks, for a network in another spelling, and for
    /// a ban of an address in another spelling than gateways pass.
    pub(super) fn spelt(&self, act: &Act) -> Result<Option<Act>, AmendmentRefused> {
        if matches!(act, Act::Set(_) | Act::SetMany(_)) {
            return Ok(None);
        }
        let mut spelt = act.clone();
        let (resource, domain) = match &mut spelt {
            Act::Reset { resource, domain }
            | Act::Pardon { resource, domain }
            | Act::Refund {
                resource, domain, ..
            } => (Some(&**resource), domain),
            Act::Ban {
                resource, domain, ..
            }
            | Act::Unban { resource, domain } => (resource.as_deref(), domain),
            _ => return Ok(None),
        };
        let limits = self.limits.book.latest().map(|version| &version.limits);
        let rate = resource.and_then(|resource| limits?.rate(resource));
        let is_of_ban = matches!(act, Act::Ban { .. } | Act::Unban { .. });
        // A ban from before the resource limited addresses by so wide networks stays under its own name.
        let by_itself = spelt_domain(domain).ok();
        let by_itself = by_itself.filter(|domain| {
            matches!(act, Act::Unban { .. }) && self.limits.book.bans().has(resource, domain)
        });
        let limited = match (rate, limits.zip(resource)) {
            (Some(rate), _) if !is_of_ban => rate.limited_as(domain),
            (_, Some((limits, resource))) => limits.domain_of_entry(resource, domain),
            _ => spelt_domain(domain),
        };
        match by_itself.map_or(limited, Ok) {
            Ok(limited) if *limited == **domain => Ok(None),
            Ok(limited) => {
                *domain = limited.into();
                Ok(Some(spelt))
            }
            Err(fault) if matches!(act, Act::Ban { .. }) => Err(AmendmentRefused::Name {
                field: "domain",
                name: domain.to_string(),
                fault: fault.to_string(),
            }),
            // Callers may be limited under any domain that exists, so any domain can be opened again.
            Err(_) => Ok(None),
        }
    }

    fn look_at_act(&self, act: &Act) -> Result<(), AmendmentRefused> {
        match act {
            Act::Reset { resource, domain }
            | Act::Refund {
                resource, domain, ..
            } => {
                check_used(resource)?;
                self.is_rate(resource)?;
                check("domain", domain)?;
                self.has_counted(act, resource, domain)
            }
            Act::Pardon { resource, domain } => {
                check_used(resource)?;
                self.is_rate(resource)?;
                check("domain", domain)?;
                self.can_pardon(resource, domain)
            }
            Act::Ban {
                resource,
                domain,
                until,
            } => {
                check("domain", domain)?;
                self.ends_later(*until)?;
                match resource {
                    Some(resource) => {
                        check_used(resource)?;
                        self.is_limited(resource)?;
                    }
                    None => self.can_ban_everywhere(domain)?,
                }
                match self.is_banned(resource.as_deref(), domain) {
                    // The new ban replaces one that exists.
                    Ok(()) => Ok(()),
                    Err(_) => room_for_ban(self.amended_most()),
                }
            }
            Act::Unban { resource, domain } => {
                check("domain", domain)?;
                self.is_banned(resource.as_deref(), domain)
            }
            Act::ReleaseHold { resource, .. }
            | Act::ReleaseHolds { resource, .. }
            | Act::ReleaseTransfer { resource, .. } => {
                check_used(resource)?;
                // Copies may still be held although no limits name the resource any more.
                if !self.is_kept(resource) {
                    self.is_copies(resource)?;
                }
                self.is_held(act)
            }
            Act::Switch { namespace, .. } => {
                if &**namespace != switches::ALL {
                    check("namespace", namespace)?;
                }
                self.can_switch(act, namespace)
            }
            Act::Set(_) | Act::SetMany(_) => self.can_set(act.rows()),
        }
    }

    /// Whether an act that removes a namespace's switches has one to remove.
    fn can_switch(&self, act: &Act, namespace: &str) -> Result<(), AmendmentRefused> {
        let before = self.limits.book.switches();
        let mut after = before.clone();
        after.turn(act);
        match before.of(namespace).or(after.of(namespace)) {
            Some(_) => Ok(()),
            None => Err(AmendmentRefused::Nothing {
                what: format!("{}: no switch of this namespace is set", escaped(namespace)),
            }),
        }
    }

    /// Whether the changes result in valid limits, by the same check that every reader of the log makes.
    fn can_set(&self, rows: &[SetRow]) -> Result<(), AmendmentRefused> {
        let none = Limits::default();
        let latest = self.limits.book.latest();
        let limits = latest.map_or(&none, |version| &*version.limits);
        let mut revision = Revision::of(limits);
        let mut stated = StatedLimits::default();
        for (number, row) in rows.iter().enumerate() {
            let (resource, domain) = (&*row.resource, &*row.domain);
            check("domain", domain)?;
            let own = own_of(row);
            let again = { own.as_ref() }
                .and_then(|own| stated.stated_before(limits, number, (resource, domain), own));
            if let Some(again) = again {
                return Err(AmendmentRefused::Name {
                    field: "domain",
                    name: domain.to_owned(),
                    fault: format!(
                        "rows[{}] and rows[{number}] both state {} of {} of {resource}, expected it once",
                        again.first, again.what, again.domain
                    ),
                });
            }
            match revision.set(resource, domain, own.as_ref()) {
                Ok(()) => {}
                Err(NotChanged::NotConfigured(_) | NotChanged::ByPattern { .. }) => {
                    return Err(self.not_named(resource));
                }
                Err(
                    why
                    @ (NotChanged::Nothing(_) | NotChanged::InDocument(_) | NotChanged::TooMany),
                ) => {
                    return Err(AmendmentRefused::Nothing {
                        what: why.to_string(),
                    });
                }
                Err(why) => {
                    return Err(AmendmentRefused::Name {
                        field: "domain",
                        name: domain.to_owned(),
                        fault: why.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn log_now(&self) -> Timestamp {
        log_time_of(self.partitions, self.wall)
    }

    /// The act with the end of its ban put off until it has lasted so long by log time.
    pub(super) fn lasting(&self, mut act: Act, lasts: Option<Span>) -> Act {
        if let (Act::Ban { until, .. }, Some(lasts)) = (&mut act, lasts) {
            *until = self.log_now().saturating_add(lasts).max(*until);
        }
        act
    }

    /// Whether a ban would last at all: log time may be ahead of the operator's clock.
    fn ends_later(&self, until: Timestamp) -> Result<(), AmendmentRefused> {
        let log_now = self.log_now();
        match log_now < until {
            true => Ok(()),
            false => Err(AmendmentRefused::Nothing {
                what: format!(
                    "log time is {} s after the end of the ban already: expected an end that is later by more than that",
                    log_now.since(until).as_micros().div_ceil(1_000_000)
                ),
            }),
        }
    }

    /// Bans and pardons of the partition that has most.
    fn amended_most(&self) -> usize {
        let amended = self.partitions.iter().map(|one| one.ruler.amended());
        amended.max().unwrap_or(0)
    }

    /// Whether a ban everywhere reaches every resource. A resource that limits addresses by their networks knows no
    /// narrower domain than a network, and would let a single banned address through.
    fn can_ban_everywhere(&self, domain: &str) -> Result<(), AmendmentRefused> {
        let latest = self.limits.book.latest();
        let Some((resource, limited)) =
            latest.and_then(|version| version.limits.limits_otherwise(domain))
        else {
            return Ok(());
        };
        Err(AmendmentRefused::Name {
            field: "domain",
            name: domain.into(),
            fault: match limited {
                Ok(limited) => format!(
                    "resource {resource:?} limits it as {limited:?}, expected that network (or a ban on each resource)"
                ),
                Err(fault) => format!("resource {resource:?}: {fault}"),
            },
        })
    }

    fn is_rate(&self, resource: &str) -> Result<(), AmendmentRefused> {
        let limits = self.limits.book.latest().map(|version| &version.limits);
        match limits.and_then(|limits| limits.rate(resource)) {
            Some(_) => Ok(()),
            None => Err(self.unknown(resource, "rate")),
        }
    }

    fn is_limited(&self, resource: &str) -> Result<(), AmendmentRefused> {
        match self.is_rate(resource).is_ok() || self.is_copies(resource).is_ok() {
            true => Ok(()),
            false => Err(self.unknown(resource, "rate or copies")),
        }
    }

    fn is_copies(&self, resource: &str) -> Result<(), AmendmentRefused> {
        let limits = self.limits.book.latest().map(|version| &version.limits);
        match limits.and_then(|limits| limits.copies(resource)) {
            Some(_) => Ok(()),
            None => Err(self.unknown(resource, "copies")),
        }
    }

    /// Whether this aggregator counts copies of a resource.
    fn is_kept(&self, resource: &str) -> bool {
        let index = partition_of_resource(resource, self.settings.partitions);
        let held = self.ruled(index).map(|one| one.ruler.copies());
        held.is_some_and(|mut held| held.any(|(name, _)| **name == *resource))
    }

    fn unknown(&self, resource: &str, by: &'static str) -> AmendmentRefused {
        AmendmentRefused::UnknownResource {
            resource: resource.into(),
            by,
            version: self.limits.book.latest_number(),
        }
    }

    /// The refusal of a row for a resource that the limits do not name; a pattern may limit it.
    fn not_named(&self, resource: &str) -> AmendmentRefused {
        let latest = self.limits.book.latest();
        match latest.and_then(|version| version.limits.rate(resource)) {
            None => self.unknown(resource, "rate or copies"),
            Some(pattern) => AmendmentRefused::Name {
                field: "resource",
                name: resource.into(),
                fault: format!(
                    "limited by the pattern {:?}, expected a resource that the limits name",
                    pattern.name()
                ),
            },
        }
    }

    /// The partition, if this process rules it and can answer for it.
    fn ruled(&self, index: u32) -> Option<&Partition> {
        let partition = self.partitions.get(index as usize)?;
        partition.is_ready().then_some(partition)
    }

    /// Whether there is a state to reset, or a hit to refund.
    fn has_counted(&self, act: &Act, resource: &str, domain: &str) -> Result<(), AmendmentRefused> {
        let index = partition_of_pair(resource, domain, self.settings.partitions);
        let Some(Partition { ruler, .. }) = self.ruled(index) else {
            // Another aggregator rules the pair. If there is nothing to change there, the act has no effect.
            return Ok(());
        };
        let is_refund = matches!(act, Act::Refund { .. });
        let why = match ruler.pair(resource, domain) {
            None => "the aggregator has no state of this pair",
            Some(_) if is_refund && !ruler.counts_any(resource, domain) => {
                "no limit counts a hit of this pair"
            }
            Some(_) => return Ok(()),
        };
        Err(AmendmentRefused::Nothing {
            what: format!("{} {}: {why}", escaped(resource), escaped(domain)),
        })
    }

    fn can_pardon(&self, resource: &str, domain: &str) -> Result<(), AmendmentRefused> {
        let index = partition_of_pair(resource, domain, self.settings.partitions);
        let banned = "it is banned: see `tollgate unban`";
        let why = match self
            .ruled(index)
            .map(|one| one.ruler.denial(resource, domain))
        {
            // Another aggregator rules the pair, and knows whether it is denied. Bans are known here.
            None if self.is_banned_anyhow(resource, domain) => banned,
            None => return Ok(()),
            Some(None) => "it is not denied",
            Some(Some(denial)) if denial.cause == Cause::Banned => banned,
            Some(Some(denial)) if denial.end == Timestamp::MAX => {
                "its limits never let it in: see `tollgate limits`"
            }
            Some(Some(_)) => return Ok(()),
        };
        Err(AmendmentRefused::Nothing {
            what: format!("{} {}: {why}", escaped(resource), escaped(domain)),
        })
    }

    fn is_banned(&self, resource: Option<&str>, domain: &str) -> Result<(), AmendmentRefused> {
        match { self.limits.book.bans() }.lasts(resource, domain, self.log_now()) {
            true => Ok(()),
            false => Err(self.not_banned(resource, domain)),
        }
    }

    /// Whether a ban of the domain, or of a network with it, holds on the resource.
    fn is_banned_anyhow(&self, resource: &str, domain: &str) -> bool {
        let (bans, now) = (self.limits.book.bans(), self.log_now());
        let is_banned = |on| bans.lasts(on, domain, now);
        is_banned(Some(resource))
            || is_banned(None)
            || bans.around(Some(resource), domain, now).is_some()
    }

    fn not_banned(&self, resource: Option<&str>, domain: &str) -> AmendmentRefused {
        let bans = self.limits.book.bans();
        let around = bans.around(resource, domain, self.log_now());
        let hint = around.map_or(String::new(), |(on, network)| match on {
            Some(_) => format!(" by itself, but {network} is"),
            None => format!(" by itself, but {network} is, everywhere"),
        });
        AmendmentRefused::Nothing {
            what: format!(
                "{} {}: it is not banned{hint}",
                escaped(resource.unwrap_or("*")),
                escaped(domain)
            ),
        }
    }

    fn is_held(&self, act: &Act) -> Result<(), AmendmentRefused> {
        let (resource, what) = match act {
            Act::ReleaseHold { resource, .. } | Act::ReleaseHolds { resource, .. } => {
                (resource, "there is no such hold".to_owned())
            }
            Act::ReleaseTransfer { resource, transfer } => {
                (resource, format!("nothing is staged under {transfer}"))
            }
            _ => return Ok(()),
        };
        let index = partition_of_resource(resource, self.settings.partitions);
        match self.ruled(index) {
            Some(partition) if partition.ruler.holds_meant(act) == 0 => {
                Err(AmendmentRefused::Nothing {
                    what: format!("{}: {what}", escaped(resource)),
                })
            }
            _ => Ok(()),
        }
    }
}

/// Whether calls can name the resource. The limits also know a pattern by its name, but a pair of the pattern itself has
/// no calls, and an act on it would change nothing.
fn check_used(resource: &str) -> Result<(), AmendmentRefused> {
    match resource.contains('*') {
        false => Ok(()),
        true => Err(AmendmentRefused::Name {
            field: "resource",
            name: resource.into(),
            fault:
                "a pattern, expected one of the resources that it limits (a ban on all resources: \
                    `ban --everywhere`, or no resource by HTTP)"
                    .to_owned(),
        }),
    }
}

fn check(field: &'static str, name: &str) -> Result<(), AmendmentRefused> {
    let checked = match field {
        "domain" => check_domain(name),
        _ => check_name(name),
    };
    checked.map_err(|fault| AmendmentRefused::Name {
        field,
        name: name.into(),
        fault: fault.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_above_the_bound_on_bans_is_refused() {
        assert_eq!(room_for_ban(AMENDED_MAX - 1), Ok(()));
        let refused = room_for_ban(AMENDED_MAX).expect_err("as many as may be");
        assert_eq!(refused.code(), "too_many_bans");
        assert!(refused.to_string().contains("65536"), "{refused}");
    }
}
