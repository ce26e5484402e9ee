//! What an agent knows of one resource: its name, what calls must look out for, and its public limits.
//!
//! Calls read two or three atomics here; the listener writes them. Knows nothing of denials of single domains. What
//! stays true: a resource has one object in an agent.

mod doubts;
mod hurry;
mod policy;
mod registry;

use std::fmt;
use std::hash::Hasher as _;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use tollgate_shared::networks::{AddressPrefixes, may_be_address};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::public::{BlindPolicy, Kind, OnExcess, Public, Reserving};
use tollgate_shared::wire::statement::Cause;

use crate::blind::Local;
use crate::clock::{Clock, Mono};
use doubts::Doubt;
use hurry::Hurry;

pub(crate) use hurry::UNLIMITED;
pub(crate) use policy::{Policy, whole_seconds};
pub(crate) use registry::Resources;

/// The number of a resource within one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceId(pub(crate) u32);

/// The number of all resources for which there was no room.
pub(crate) const NO_RESOURCE: ResourceId = ResourceId(u32::MAX);

/// The whole resource is denied, or was.
pub(crate) const WHOLE: u32 = 1;
/// Calls are refused without a denial: the resource is not configured and has to be, or grants nothing to any domain.
pub(crate) const REFUSED: u32 = 2;
/// Denials of the resource are ignored.
pub(crate) const IGNORED: u32 = 4;
/// The policy `blind` of the resource is not `open`.
pub(crate) const NOT_OPEN: u32 = 8;
/// Some group of domains is denied, or was.
pub(crate) const GROUPS: u32 = 16;
/// The resource is limited by rate, as the aggregators announced.
pub(crate) const OF_RATE: u32 = 32;
/// The copies of the resource are used only once they are granted.
pub(crate) const STRICT: u32 = 64;
/// The resource is used as one that is limited by copies: everything about it belongs to one partition.
pub(crate) const OF_COPIES: u32 = 128;
/// The resource is limited by copies, as the aggregators announced: hits of it are a mistake.
pub(crate) const NOT_RATE: u32 = 256;
/// Domains that are addresses are limited by their networks.
pub(crate) const ADDRESSES: u32 = 512;
/// All domains of the resource together are near the global limit, or were.
pub(crate) const NEAR_WHOLE: u32 = 1_024;
/// The agent has not yet received the resource's limits: it does not know whether and how the resource is limited.
pub(crate) const LIMITS_UNKNOWN: u32 = 2_048;

/// Whether the call takes what a local rate under `blind` lets through, or only looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    Take,
    Look,
}

/// The limits close some domains: see [`Resource::is_closed`].
pub(crate) const CLOSED: u32 = 4_096;

/// Networks are banned or closed: see [`Resource::refusal_of_network`].
pub(crate) const NETWORKS: u32 = 8_192;

/// The limits let in certain domains alone: see [`Resource::is_closed`].
pub(crate) const ALLOW_LIST: u32 = 16_384;

/// One resource.
pub(crate) struct Resource {
    pub(crate) id: ResourceId,
    pub(crate) name: Arc<str>,
    seed: u64,
    shared_seed: SharedSeed,
    flags: AtomicU32,
    policy: AtomicU32,
    /// The most copies that a domain may have; [`u64::MAX`] if unknown.
    copies_limit: AtomicU64,
    /// The most copies that any domain can be granted at once; [`u64::MAX`] if unknown or unbounded.
    most: AtomicU64,
    /// A lower bound: no domain is known that can be granted less at once than this, so a call of this many copies is
    /// never too many.
    most_of_any: AtomicU64,
    /// The version of the newest limits for which a denial has lowered `most_of_any`.
    most_version: AtomicU64,
    /// How many bits of an address make its domain: of IPv4 in the lowest byte, of IPv6 in the next.
    address_bits: AtomicU32,
    joined: AtomicBool,
    /// A call was refused because of known limits, and the listener has not asked for them since.
    limits_doubted: Doubt,
    hurry: Hurry,
    public: RwLock<Arc<Public>>,
    local: RwLock<Option<Arc<Local>>>,
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Resource {
    pub(crate) fn new(id: ResourceId, name: &str, seed: u64) -> Self {
        let shared_seed = SharedSeed::from_u64(seed);
        let mut hasher = FoldHasher::with_seed(seed, &shared_seed);
        hasher.write(name.as_bytes());
        Self {
            id,
            name: name.into(),
            seed: hasher.finish(),
            shared_seed,
            flags: AtomicU32::new(0),
            policy: AtomicU32::new(0),
            copies_limit: AtomicU64::new(u64::MAX),
            most: AtomicU64::new(u64::MAX),
            most_of_any: AtomicU64::new(u64::MAX),
            most_version: AtomicU64::new(0),
            address_bits: AtomicU32::new(0),
            joined: AtomicBool::new(false),
            limits_doubted: Doubt::default(),
            hurry: Hurry::default(),
            public: RwLock::default(),
            local: RwLock::new(None),
        }
    }

    /// The fingerprint of a domain's use of this resource. Its seed is the agent's own random seed, so that nobody
    /// outside can search for names that share a fingerprint.
    #[inline]
    pub(crate) fn fingerprint(&self, domain: &str) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared_seed);
        hasher.write(domain.as_bytes());
        hasher.finish()
    }

    /// The fingerprint of a group's use of this resource; differs from every domain's, except by chance.
    pub(crate) fn fingerprint_of_group(&self, group: &str) -> u64 {
        let mut hasher = FoldHasher::with_seed(!self.seed, &self.shared_seed);
        hasher.write(group.as_bytes());
        hasher.finish()
    }

    /// The most copies that a domain may have, if known.
    #[inline]
    pub(crate) fn copies_limit(&self) -> Option<u64> {
        Some(self.copies_limit.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// Whether the resource is limited by rate, as the aggregators announced.
    pub(crate) fn is_joined_as_rate(&self) -> bool {
        self.flags() & OF_RATE != 0
    }

    /// Whether the resource is used as one that is limited by copies.
    pub(crate) fn is_of_copies(&self) -> bool {
        self.flags() & OF_COPIES != 0
    }

    /// Whether the known limits never grant this domain a hit, or copies, by limits of its own.
    pub(crate) fn is_closed(&self, domain: &str) -> bool {
        let is_it = || {
            let public = self.public();
            let closed = &public.closed;
            let allowed = public.allowed.as_ref();
            closed.binary_search_by(|one| (**one).cmp(domain)).is_ok()
                || allowed.is_some_and(|allowed| !allowed.allows(domain))
        };
        self.flags() & (CLOSED | ALLOW_LIST) != 0 && is_it()
    }

    /// Why no address of a domain's network is let in, and for how long, if an operator has banned the network or the
    /// known limits grant it nothing. Only for addresses and networks it takes the lock of the limits.
    pub(crate) fn refusal_of_network(
        &self,
        domain: &str,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<(Cause, Span)> {
        if !self.may_be_in_network(self.flags(), domain) {
            return None;
        }
        let Some(until) = self.public().networks.of_domain(domain)? else {
            return Some((Cause::Inaccessible, Span::MAX));
        };
        let left = match until {
            Timestamp::MAX => Span::MAX,
            until => until.since(now()),
        };
        (left != Span::ZERO).then_some((Cause::Banned, left))
    }

    /// Whether a call may be refused by known limits, although the filter of the deny list clears it.
    #[inline]
    pub(crate) fn may_be_refused(&self, flags: u32, domain: &str) -> bool {
        self.may_be_in_network(flags, domain) || (flags & ALLOW_LIST != 0 && self.is_closed(domain))
    }

    /// Whether a call has to ask [`Resource::refusal_of_network`].
    #[inline]
    pub(crate) fn may_be_in_network(&self, flags: u32, domain: &str) -> bool {
        flags & NETWORKS != 0 && may_be_address(domain)
    }

    /// Whether the resource is limited by copies, as the aggregators announced.
    pub(crate) fn is_known_as_copies(&self) -> bool {
        self.public().kind == Kind::Copies
    }

    /// The groups that a domain is known to belong to.
    pub(crate) fn groups_of(&self, domain: &str) -> Vec<Box<str>> {
        let public = self.public();
        let groups = public.copies.iter().flat_map(|copies| &copies.groups);
        groups
            .filter(|group| {
                let members = group.members.as_deref().unwrap_or_default();
                members
                    .binary_search_by(|member| (**member).cmp(domain))
                    .is_ok()
            })
            .map(|group| group.name.clone())
            .collect()
    }

    /// What calls must look out for; almost always 0.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flag(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// How many bits of an address make its domain, if [`ADDRESSES`] is set.
    pub(crate) fn addresses(&self) -> AddressPrefixes {
        let [v4, v6, ..] = self.address_bits.load(Ordering::Relaxed).to_le_bytes();
        AddressPrefixes { v4, v6 }
    }

    fn learn_addresses(&self, public: &Public) {
        if let Some(AddressPrefixes { v4, v6 }) = public.addresses {
            let bits = u32::from_le_bytes([v4, v6, 0, 0]);
            self.address_bits.store(bits, Ordering::Relaxed);
        }
        self.set_flag(ADDRESSES, public.addresses.is_some());
    }

    /// The most copies that any domain can be granted at once.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// No call of this many copies or fewer is too many.
    #[inline]
    pub(crate) fn most_of_any(&self) -> u64 {
        self.most_of_any.load(Ordering::Relaxed)
    }

    /// Some domain is granted at most this many copies at once, by limits of this version. Only the listener calls
    /// this, as it alone calls `learn`.
    pub(crate) fn lower_most_of_any(&self, version: u64, most: u64) {
        self.most_version.fetch_max(version, Ordering::Relaxed);
        self.most_of_any.fetch_min(most, Ordering::Relaxed);
    }

    fn learn_most(&self, public: &Public) {
        let most = public.most.filter(|_| public.kind == Kind::Rate);
        let most = most.unwrap_or(u64::MAX);
        self.most.store(most, Ordering::Relaxed);
        if public.limits_version() <= self.most_version.load(Ordering::Relaxed) {
            self.most_of_any.fetch_min(most, Ordering::Relaxed);
        } else {
            // Older limits' maxima of single domains no longer hold.
            self.most_of_any.store(most, Ordering::Relaxed);
        }
    }

    /// How soon calls of the resource have to be in the log.
    #[inline]
    pub(crate) fn hurry(&self) -> &Hurry {
        &self.hurry
    }

    /// The windows or the first tier, if they are the same for every domain.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        Policy(self.policy.load(Ordering::Relaxed))
    }

    /// Whether the agent has ever received the resource's limits.
    pub(crate) fn joined(&self) -> bool {
        self.joined.load(Ordering::Acquire)
    }

    pub(crate) fn set_joined(&self) {
        self.joined.store(true, Ordering::Release);
        self.set_flag(LIMITS_UNKNOWN, false);
    }

    pub(crate) fn public(&self) -> Arc<Public> {
        Arc::clone(&self.public.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether copies that were too many have to be given back.
    pub(crate) fn gives_back(&self) -> bool {
        let public = self.public();
        let copies = public.copies.as_ref();
        copies.is_some_and(|copies| copies.on_excess == OnExcess::GiveBack)
    }

    /// Applies public limits of the followed log, unless they are older than the known ones. Returns whether they are
    /// others.
    pub(crate) fn learn(&self, public: &Public) -> bool {
        let known = self.public();
        if public.version < known.version {
            return false;
        }
        let is_other = Public {
            version: public.version,
            limits_of: public.limits_of,
            // Bans change no limit.
            networks: public.networks.clone(),
            ..Public::clone(&known)
        } != *public;
        let blind_changed = known.blind != public.blind;
        // Calls wait for this lock, so the copy is made before.
        let new = Arc::new(public.clone());
        *self.public.write().unwrap_or_else(PoisonError::into_inner) = new;
        if blind_changed {
            let local = Local::of_policy(public.blind).map(Arc::new);
            *self.local.write().unwrap_or_else(PoisonError::into_inner) = local;
        }
        self.set_flag(REFUSED, public.refused);
        self.set_flag(CLOSED, !public.closed.is_empty());
        self.set_flag(ALLOW_LIST, public.allowed.is_some());
        self.set_flag(NETWORKS, !public.networks.is_empty());
        self.set_flag(IGNORED, public.ignored);
        self.set_flag(NOT_OPEN, public.blind != BlindPolicy::Open);
        self.policy.store(Policy::of(public).0, Ordering::Relaxed);
        self.learn_most(public);
        self.hurry.learn(public);
        self.learn_addresses(public);
        let copies = public.copies.as_ref();
        let strict = copies.is_some_and(|copies| copies.reserve == Reserving::Strict);
        self.set_flag(STRICT, strict);
        self.set_flag(OF_RATE, public.kind == Kind::Rate);
        self.set_flag(NOT_RATE, public.kind == Kind::Copies);
        if public.kind != Kind::Unconfigured {
            self.set_flag(OF_COPIES, public.kind == Kind::Copies);
        }
        // If some domain has a limit of its own, the default may not hold for every domain. The global limit does:
        // aggregators lower every other limit to it.
        let limit = copies.filter(|_| !public.ignored).map(|one| {
            let default = Some(one.limit).filter(|_| !public.has_overrides);
            default.into_iter().chain(one.global).min()
        });
        self.copies_limit
            .store(limit.flatten().unwrap_or(u64::MAX), Ordering::Relaxed);
        is_other
    }

    /// The known limits stay in force, but public limits of any version replace them.
    pub(crate) fn forget_version(&self) {
        self.most_version.store(0, Ordering::Relaxed);
        self.most_of_any.store(self.most(), Ordering::Relaxed);
        let mut known = self.public.write().unwrap_or_else(PoisonError::into_inner);
        if known.version != 0 {
            let known = Arc::make_mut(&mut known);
            (known.version, known.limits_of) = (0, 0);
        }
    }

    /// Whether a blind call of a domain may pass, or else how long until it may. With [`Asking::Take`] it takes from
    /// the local rate.
    ///
    /// Reads the cached clock first, and before it refuses the clock itself, as all refusals do: in a process that
    /// was suspended the cache is old, and in an agent that has ended it stays old for ever.
    pub(crate) fn passes_blind(
        &self,
        fingerprint: u64,
        copies: u32,
        asking: Asking,
        clock: &Clock,
    ) -> Result<(), Span> {
        let ask = |local: &Local, now: Mono| match asking {
            Asking::Take => local.take(fingerprint, copies, now),
            Asking::Look => local.look(fingerprint, copies, now),
        };
        match self.public().blind {
            BlindPolicy::Open => Ok(()),
            BlindPolicy::Closed | BlindPolicy::Local { limit: 0, .. } => Err(Span::MAX),
            BlindPolicy::Local { .. } => self.local().map_or(Ok(()), |local| {
                ask(&local, clock.cached()).or_else(|_| ask(&local, clock.read()))
            }),
        }
    }

    /// Gives back what was taken for a blind call that was not made after all.
    pub(crate) fn give_back_blind(&self, fingerprint: u64, copies: u32) {
        if let Some(local) = self.local() {
            local.give_back(fingerprint, copies);
        }
    }

    fn local(&self) -> Option<Arc<Local>> {
        let local = self.local.read().unwrap_or_else(PoisonError::into_inner);
        local.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::wire::public::PublicCopies;

    #[test]
    fn a_name_has_one_resource_and_numbers_have_a_bound() {
        let resources = Resources::new(7, 2);
        let (one, new) = resources.get("a");
        assert!(new);
        let (again, new) = resources.get("a");
        assert!(!new && Arc::ptr_eq(one.as_ref().expect("a"), again.as_ref().expect("a")));
        assert!(resources.get("b").0.is_some());
        assert!(resources.get("c").0.is_none());
        assert_eq!(resources.all().len(), 2);
    }

    #[test]
    fn one_domain_has_different_fingerprints_in_different_resources() {
        let resources = Resources::new(7, 9);
        let of = |name: &str| resources.get(name).0.expect("room").fingerprint("acme");
        assert_ne!(of("a"), of("b"));
        assert_eq!(of("a"), of("a"));
    }

    #[test]
    fn a_domains_limit_is_at_most_the_global_limit() {
        let resource = Resource::new(ResourceId(0), "a", 1);
        let limit = |version, global, has_overrides, ignored| {
            resource.learn(&Public {
                version,
                kind: Kind::Copies,
                has_overrides,
                ignored,
                copies: Some(PublicCopies {
                    limit: 10,
                    global,
                    ..PublicCopies::default()
                }),
                ..Public::default()
            });
            resource.copies_limit()
        };
        assert_eq!(limit(1, None, false, false), Some(10));
        assert_eq!(limit(2, Some(8), false, false), Some(8));
        assert_eq!(limit(3, Some(40), true, false), Some(40), "not the default");
        assert_eq!(limit(4, None, true, false), None);
        assert_eq!(limit(5, Some(40), true, true), None, "denials are grants");
    }

    #[test]
    fn older_public_limits_change_nothing() {
        let resource = Resource::new(ResourceId(0), "a", 1);
        resource.learn(&Public {
            version: 5,
            refused: true,
            ..Public::default()
        });
        resource.learn(&Public {
            version: 4,
            refused: false,
            ..Public::default()
        });
        assert_eq!(resource.flags() & REFUSED, REFUSED);
    }
}
