//! Bans of domains on copy-limited resources: nothing more is granted, but holds stay.
//!
//! ```text
//! ban sandbox, acme, until 18:00    denied until then; acme keeps its holds
//! reserve 2 of acme                 granted 0, by the domain
//! hold 2 of acme                    in use already: counted, with an excess of 2
//! release 2 of acme                 no lift: acme is still banned
//! ```
//!
//! A domain may be banned and full at once. Full has no end, so its denial is the one that is stated last; when
//! there is room again, or nothing limits the copies any more, the ban is stated instead of a lift. Knows nothing
//! of why a domain is banned. What stays true: while a domain is banned no statement opens it, and its holds are
//! the same as without the ban.

use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::{admit_domain, partition_of_resource};
use tollgate_shared::wire::holds::{HoldAction, HoldOp};
use tollgate_shared::wire::statement::{Scope as Name, StatementKind};
use tollgate_shared::wire::verdict::HoldStatus;

use super::Engine;
use super::activations::{PairAction, ScopeToRule};
use super::holds::counted;
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

    /// Whether an operation takes copies for a banned domain, in a namespace that heeds denials.
    pub(super) fn is_banned_op(&self, index: usize, op: &HoldOp<'_>) -> bool {
        let (HoldAction::Hold { domain, .. } | HoldAction::Reserve { domain, .. }) = op.action
        else {
            return false;
        };
        if self.amended.len() == 0 {
            return false;
        }
        let Some(held) = self
            .holders
            .all()
            .get(index)
            .filter(|held| held.standing.stated)
        else {
            return false;
        };
        let domain = admit_domain(domain);
        let identity = self.identities.of_resource(&held.name).of(&domain);
        self.amended
            .of(identity, &held.name, &domain)
            .is_banned(self.now())
    }

    /// Rules a domain's ban again: states the denial if it is banned, and then the one of a full domain if it
    /// is full.
    pub(super) fn rule_copies_again(
        &mut self,
        again: ScopeToRule,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) {
        let (resource, domain) = (again.resource.clone(), again.domain.clone());
        let before = *position;
        self.rule_one_again(again, PairAction::Nothing, position, rulings);
        let Some(domain) = domain.filter(|_| *position != before) else {
            return;
        };
        let mut sink = self.sink(*position, rulings);
        let index = self.holders.find(&resource).ok();
        if let Some((held, _)) = index.and_then(|index| self.holders.at(index)) {
            held.denied
                .state_one_again(&held.name, CopiesScope::Domain(&domain), &mut sink);
        }
        *position = sink.position;
    }

    /// Denies banned domains that took copies and are not denied yet. In these cases the ban is older than the
    /// limits on their resource, or than the switch by which their namespace heeds denials again.
    pub(super) fn deny_banned(
        &mut self,
        banned: Vec<BannedPair>,
        position: &mut LogPosition,
        rulings: &mut Rulings,
    ) {
        for (resource, domain) in banned {
            let identity = self.identities.of_resource(&resource).of(&domain);
            let at = self.now();
            if self.denials.get(identity, at).is_none() {
                let again = ScopeToRule {
                    identity,
                    resource,
                    domain: Some(domain),
                    at,
                };
                self.rule_copies_again(again, position, rulings);
            }
        }
    }

    /// States the ban instead of a lift where a banned domain is not full any more: copies came back, or copies limit
    /// its resource no more. The same for any other denial that has followed from the ban. Checks the statements of a
    /// record from the `from`th on: a denial that a lift ended is not here any more, unless it was stated again behind
    /// it.
    pub(super) fn keep_banned(&mut self, from: usize, rulings: &mut Rulings) {
        if self.amended.len() == 0 {
            return;
        }
        let now = self.now();
        for stated in rulings.statements.iter_mut().skip(from) {
            let Name::Pair(domain) = &stated.statement.scope else {
                continue;
            };
            if stated.statement.kind != StatementKind::Lifted {
                continue;
            }
            let identity = self.identities.of_resource(&stated.resource).of(domain);
            let live = self.denials.get(identity, now).cloned();
            let position = stated.statement.position;
            if let Some(mut live) = live.filter(|live| live.position < position) {
                live.position = position;
                stated.statement.kind = StatementKind::Denied(live.denial);
                self.denials.put(identity, live);
            }
        }
    }
}

/// The status after a banned domain's reserve: 0 granted.
pub(super) fn nothing_granted(op: &HoldOp<'_>, counts: &mut HoldCounts) -> Option<HoldStatus> {
    let HoldAction::Reserve { domain, copies, .. } = op.action else {
        return None;
    };
    counts.not_granted += u64::from(copies);
    Some(HoldStatus {
        scope: Some(Name::Pair(admit_domain(domain).into())),
        ..counted(op.number, 0)
    })
}

/// The status after a banned domain's hold: all of it is excess.
pub(super) fn all_too_much(
    copies_held: &mut Copies,
    id: HoldId,
    op: &HoldOp<'_>,
    status: Option<HoldStatus>,
    counts: &mut HoldCounts,
) -> Option<HoldStatus> {
    let mut status = status?;
    if let HoldAction::Hold { domain, copies } = op.action
        && status.reason.is_none()
    {
        counts.excess += u64::from(copies - status.excess);
        copies_held.all_too_much(id);
        status.excess = copies;
        status.scope = Some(Name::Pair(admit_domain(domain).into()));
    }
    Some(status)
}

/// The domain for which an operation takes copies, as statements name it.
pub(super) fn domain_of(op: &HoldOp<'_>) -> Option<Arc<str>> {
    match op.action {
        HoldAction::Hold { domain, .. } | HoldAction::Reserve { domain, .. } => {
            Some((*admit_domain(domain)).into())
        }
        _ => None,
    }
}
