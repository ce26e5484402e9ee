//! Bans of domains on copy-limited resources: nothing more is granted, and what is held stays held.
//!
//! ```text
//! ban sandbox, acme, until 18:00    denied until then; acme holds what it holds
//! reserve 2 of acme                 granted 0, by the domain
//! hold 2 of acme                    in use already: counted, and 2 too many
//! release 2 of acme                 no lift: it is banned still
//! ```
//!
//! A domain may be banned and full at once. Full has no end, so of the two it is the one that is said last, and
//! when there is room again the ban is said in place of a lift. Knows nothing of what banning is for. What
//! stays true: while a domain is banned no statement opens it, and its holds are those that it would have
//! had.

use std::sync::Arc;

use tollgate_shared::names::{admit_domain, partition_of_resource};
use tollgate_shared::place::Place;
use tollgate_shared::wire::holds::{Does, HoldOp};
use tollgate_shared::wire::statement::{Cause, Says, Scope as Name};
use tollgate_shared::wire::verdict::VerdictSays;

use super::Engine;
use super::pointers::{Again, Touch};
use super::rulings::{HoldCounts, Rulings};
use crate::copies::{Copies, CopiesScope, HoldId};
use tollgate_limits::Limits;

/// Resource and domain of a banned domain that took copies.
pub(super) type BannedPair = (Arc<str>, Arc<str>);

/// Whether a resource of these limits is limited by copies, and its holds are counted in this partition.
pub(super) fn counts_here(limits: &Limits, resource: &str, at: (u32, u32)) -> bool {
    let (partition, partitions) = at;
    limits.copies(resource).is_some() && partition_of_resource(resource, partitions) == partition
}

impl Engine {
    /// Whether the holds of a resource are counted here.
    pub(super) fn counts_holds_of(&self, resource: &str) -> bool {
        let limits = &self.steps.newest().limits;
        counts_here(limits, resource, (self.partition, self.partitions))
    }

    /// Whether what an operation takes is banned: where the namespace heeds denials at all.
    pub(super) fn is_banned_op(&self, index: usize, op: &HoldOp<'_>) -> bool {
        let (Does::Hold { domain, .. } | Does::Reserve { domain, .. }) = op.does else {
            return false;
        };
        if self.amended.len() == 0 {
            return false;
        }
        let Some(held) = self.holders.all().get(index).filter(|held| held.stated) else {
            return false;
        };
        let domain = admit_domain(domain);
        let identity = self.identities.of_resource(&held.name).of(&domain);
        self.amended
            .of(identity, &held.name, &domain)
            .is_banned(self.now())
    }

    /// Rules the ban of a domain's copies: it is denied if it is banned, and said again to be full if it is.
    pub(super) fn rule_copies_again(
        &mut self,
        again: Again,
        place: &mut Place,
        rulings: &mut Rulings,
    ) {
        let (resource, domain) = (again.resource.clone(), again.domain.clone());
        let before = *place;
        self.rule_one_again(again, Touch::Nothing, place, rulings);
        let Some(domain) = domain.filter(|_| *place != before) else {
            return;
        };
        let mut voice = self.voice(*place, rulings);
        let index = self.holders.find(&resource).ok();
        if let Some((held, _)) = index.and_then(|index| self.holders.at(index)) {
            held.denied
                .say_one_again(&held.name, CopiesScope::Domain(&domain), &mut voice);
        }
        *place = voice.place;
    }

    /// Denies the banned domains that took copies and are not denied yet: the ban is older than the limits
    /// on their resource, or than what let its namespace be heeded again.
    pub(super) fn deny_banned(
        &mut self,
        banned: Vec<BannedPair>,
        place: &mut Place,
        rulings: &mut Rulings,
    ) {
        for (resource, domain) in banned {
            let identity = self.identities.of_resource(&resource).of(&domain);
            let at = self.now();
            if self.denials.get(identity, at).is_none() {
                let again = Again {
                    identity,
                    resource,
                    domain: Some(domain),
                    at,
                };
                self.rule_copies_again(again, place, rulings);
            }
        }
    }

    /// Where copies came back to a banned domain that was full, it is not open: the ban is said instead.
    /// Looks at what a record said from the `from`th statement on.
    pub(super) fn keep_banned(&mut self, from: usize, rulings: &mut Rulings) {
        if self.amended.len() == 0 {
            return;
        }
        let now = self.now();
        for said in rulings.statements.iter_mut().skip(from) {
            let Name::Pair(domain) = &said.statement.scope else {
                continue;
            };
            if said.statement.says != Says::Open || !self.counts_holds_of(&said.resource) {
                continue;
            }
            let identity = self.identities.of_resource(&said.resource).of(domain);
            let live = self.denials.get(identity, now).cloned();
            if let Some(mut live) = live.filter(|live| live.denial.cause == Cause::Banned) {
                live.place = said.statement.place;
                said.statement.says = Says::Denied(live.denial);
                self.denials.put(identity, live);
            }
        }
    }
}

/// What a banned domain's reserve is told: none.
pub(super) fn nothing_granted(op: &HoldOp<'_>, counts: &mut HoldCounts) -> Option<VerdictSays> {
    let Does::Reserve { domain, copies, .. } = op.does else {
        return None;
    };
    counts.not_granted += u64::from(copies);
    Some(VerdictSays::Granted {
        number: op.number,
        copies: 0,
        by: Some(Name::Pair(admit_domain(domain).into())),
    })
}

/// What a banned domain's hold is told: all of it is too much.
pub(super) fn all_too_much(
    copies_held: &mut Copies,
    id: HoldId,
    op: &HoldOp<'_>,
    says: Option<VerdictSays>,
    counts: &mut HoldCounts,
) -> Option<VerdictSays> {
    let (Some(VerdictSays::Counted { excess, .. }), Does::Hold { domain, copies }) =
        (&says, op.does)
    else {
        return says;
    };
    counts.excess += u64::from(copies - excess);
    copies_held.all_too_much(id);
    Some(VerdictSays::Counted {
        number: op.number,
        excess: copies,
        by: Some(Name::Pair(admit_domain(domain).into())),
    })
}

/// The domain that an operation takes copies for, as statements name it.
pub(super) fn domain_of(op: &HoldOp<'_>) -> Option<Arc<str>> {
    match op.does {
        Does::Hold { domain, .. } | Does::Reserve { domain, .. } => {
            Some((*admit_domain(domain)).into())
        }
        _ => None,
    }
}
