//! How a domain that an operation names is found and limited, and for how many copies it has room.
//!
//! Knows nothing of operations, nor of single holds. What stays true: nothing here changes how many copies are held.

use super::effects::{Limiter, OpRefused};
use super::state::Copies;

/// Room for a domain, and the limit with the least room.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainRoom {
    pub(super) copies: u64,
    pub(super) by: Limiter,
}

/// A domain that an operation names, which need not be here yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedDomain<'a> {
    pub(super) name: &'a str,
    pub(super) tag: u32,
    pub(super) slot: Option<u32>,
    pub(super) class: u32,
    pub(super) set: u32,
}

impl Copies {
    /// The domain and how it is limited.
    #[inline]
    pub(super) fn ask<'a>(&mut self, name: &'a str) -> AskedDomain<'a> {
        let tag = self.domains.tag_of(name);
        let slot = self.domains.find(name, tag);
        let class = match slot {
            Some(slot) => self.class_at(slot),
            None => self.limits.class_of(name),
        };
        AskedDomain {
            name,
            tag,
            slot,
            class,
            set: self.groups.set_of_class(class),
        }
    }

    /// A domain's slot; the domain is added if it is not here.
    pub(super) fn come_in(&mut self, asked: &AskedDomain<'_>) -> u32 {
        match asked.slot {
            Some(slot) => slot,
            None => {
                let class = self.first_class + asked.class;
                self.domains.insert(asked.name, asked.tag, class)
            }
        }
    }

    /// The class of a domain that is here. It is looked up by name at the domain's first use under these limits.
    #[inline]
    pub(super) fn class_at(&mut self, slot: u32) -> u32 {
        let known = self.domains.class_at(slot).checked_sub(self.first_class);
        known.unwrap_or_else(|| {
            let class = self.limits.class_of(self.domains.name(slot));
            self.domains.set_class(slot, self.first_class + class);
            class
        })
    }

    /// As [`class_at`](Self::class_at), without storing the result.
    pub(super) fn class_seen(&self, slot: u32) -> u32 {
        let known = self.domains.class_at(slot).checked_sub(self.first_class);
        known.unwrap_or_else(|| self.limits.class_of(self.domains.name(slot)))
    }

    /// Room for more copies of a domain under the groups in force. Among limits with equal room the domain's is
    /// named first, then groups by name.
    #[inline]
    pub(super) fn room(&self, asked: &AskedDomain<'_>) -> DomainRoom {
        let held = asked.slot.map_or(0, |slot| self.domains.at(slot).copies());
        self.room_with(self.limit_of_class(asked.class), held, asked.set)
    }

    pub(super) fn room_with(&self, limit: u64, held: u64, set: u32) -> DomainRoom {
        let mut room = DomainRoom {
            copies: limit.saturating_sub(held),
            by: Limiter::Domain,
        };
        let mut narrow = |copies: u64, by: Limiter| {
            if copies < room.copies {
                room = DomainRoom { copies, by };
            }
        };
        for (ix, group) in self.groups.of_set(set) {
            if let Some(limit) = group.limit {
                narrow(limit.saturating_sub(group.copies), Limiter::Group(ix));
            }
        }
        if let Some(global) = self.limits.global {
            narrow(global.saturating_sub(self.total), Limiter::Resource);
        }
        room
    }

    pub(super) fn limit_of_class(&self, class: u32) -> u64 {
        self.limits.classes[class as usize].limit
    }

    pub(super) fn resource_full(&self) -> bool {
        self.limits
            .global
            .is_some_and(|global| global <= self.total)
    }

    /// Whether one more hold or transfer may be kept.
    pub(super) fn has_place(&self) -> bool {
        let kept = u64::from(self.holds.len()) + u64::from(self.staging.len());
        kept < u64::from(self.limits.holds_max)
    }

    pub(super) fn at_capacity(&mut self) -> OpRefused {
        self.counters.not_counted += 1;
        OpRefused::AtCapacity
    }
}
