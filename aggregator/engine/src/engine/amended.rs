//! Lasting effects of amendments: which pairs, domains and networks are banned, and which pairs are
//! pardoned.
//!
//! ```text
//! ban      api.search, mallory, until 18:00     denied until then, whatever the windows allow
//! ban      everywhere, mallory                  denied on every resource until an operator unbans it
//! pardon   api.search, acme, until 12:00:07     no denial is stated before then, or until a hit is granted; hits
//!                                               count as usual
//! ```
//!
//! There is one entry for each scope that an operator named, however often, until it has ended by log
//! time. Knows nothing of how the acts were written. What stays true: an entry is removed when a counted
//! tick reaches its end, and an entry that a later amendment overrides leaves nothing behind. So the
//! content is a function of the log, and as large as what is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Cause, Denial};

use super::network_bans::NetworkBans;
use crate::pairs::Identity;

/// A ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ban {
    /// When it ends by itself.
    pub until: Timestamp,
    /// The version of the amendment.
    pub version: u64,
}

/// What amendments state about one pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PairAmendments {
    /// Its ban.
    pub ban: Option<Ban>,
    /// Until when no denial of it is stated. A hit that is granted earlier ends it: then a version, a refund or a
    /// settlement has opened the pair, and its limits apply again.
    pub pardon: Option<Timestamp>,
}

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AmendedScope {
    /// One pair.
    Pair(Identity),
    /// A domain on every resource.
    Domain(Box<str>),
    /// A network on a resource, or on every one.
    Network(Option<Box<str>>, Box<str>),
}

/// All entries of a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Amended {
    pairs: BTreeMap<Identity, PairAmendments>,
    domains: BTreeMap<Box<str>, Ban>,
    networks: NetworkBans,
    /// The coming ends, each of an entry that is here.
    ends: BTreeSet<(Timestamp, AmendedScope)>,
    digest: u128,
}

impl PairAmendments {
    /// Whether a hit at `at` is banned.
    pub fn is_banned(&self, at: Timestamp) -> bool {
        self.ban.is_some_and(|ban| at < ban.until)
    }

    /// Whether denials are withheld at `now`.
    pub fn is_pardoned(&self, now: Timestamp) -> bool {
        self.pardon.is_some_and(|until| now < until)
    }

    /// The same after an entry: a grant that shows that the limits are open ends the pardon.
    pub fn after_entry(self, shows_open: bool) -> Self {
        Self {
            pardon: self.pardon.filter(|_| !shows_open),
            ..self
        }
    }

    /// The denial to state at `now`, where `own` is the one by limits alone.
    pub fn denial(&self, own: Option<Denial>, now: Timestamp) -> Option<Denial> {
        let own = own.filter(|_| !self.is_pardoned(now));
        match self.ban.filter(|ban| now < ban.until) {
            Some(ban) if own.is_none_or(|own| own.end <= ban.until) => Some(ban.denial()),
            _ => own,
        }
    }

    /// The instants at which its ban or its pardon ends.
    fn ends(&self) -> impl Iterator<Item = Timestamp> {
        let ends = [self.ban.map(|ban| ban.until), self.pardon];
        ends.into_iter().flatten()
    }

    const fn is_nothing(&self) -> bool {
        self.ban.is_none() && self.pardon.is_none()
    }
}

impl Ban {
    fn denial(self) -> Denial {
        Denial {
            end: self.until,
            cause: Cause::Banned,
            version: self.version,
            limit: 0,
            window: Span::ZERO,
            most: u64::MAX,
        }
    }
}

impl Amended {
    /// What amendments state about a pair; of several bans the one that lasts longest.
    #[inline]
    pub fn of(&self, identity: Identity, resource: &str, domain: &str) -> PairAmendments {
        if self.pairs.is_empty() && self.domains.is_empty() && self.networks.len() == 0 {
            return PairAmendments::default();
        }
        let mut found = self.pair(identity);
        let everywhere = self.domains.get(domain).copied();
        let others = [everywhere, self.networks.of(resource, domain)];
        for other in others.into_iter().flatten() {
            if found.ban.is_none_or(|ban| ban.until < other.until) {
                found.ban = Some(other);
            }
        }
        found
    }

    /// What amendments state about the pair itself, without bans of its domain or networks.
    pub fn pair(&self, identity: Identity) -> PairAmendments {
        self.pairs.get(&identity).copied().unwrap_or_default()
    }

    /// Pardons a pair until then; a ban that it has stays.
    pub fn pardon_pair(&mut self, identity: Identity, until: Timestamp) {
        let pardon = Some(until);
        let of_pair = self.pair(identity);
        self.set_pair(identity, PairAmendments { pardon, ..of_pair });
    }

    /// Ends a pair's pardon; a ban that it has stays.
    pub fn end_pardon(&mut self, identity: Identity) {
        let pardon = None;
        let of_pair = self.pair(identity);
        self.set_pair(identity, PairAmendments { pardon, ..of_pair });
    }

    /// Sets what amendments state about a pair.
    pub fn set_pair(&mut self, identity: Identity, of_pair: PairAmendments) {
        let before = self.pairs.remove(&identity);
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(pair_mark(identity, &before));
            for end in before.ends() {
                self.will_not_end(end, || AmendedScope::Pair(identity));
            }
        }
        if of_pair.is_nothing() {
            return;
        }
        self.digest = self.digest.wrapping_add(pair_mark(identity, &of_pair));
        for end in of_pair.ends() {
            self.will_end(end, || AmendedScope::Pair(identity));
        }
        self.pairs.insert(identity, of_pair);
    }

    /// Bans a domain on every resource; `None` lifts the ban.
    pub fn set_domain(&mut self, domain: &str, ban: Option<Ban>) {
        if let Some(before) = self.domains.remove(domain) {
            self.digest = self.digest.wrapping_sub(domain_mark(domain, before));
            self.will_not_end(before.until, || AmendedScope::Domain(domain.into()));
        }
        if let Some(ban) = ban {
            self.digest = self.digest.wrapping_add(domain_mark(domain, ban));
            self.will_end(ban.until, || AmendedScope::Domain(domain.into()));
            self.domains.insert(domain.into(), ban);
        }
    }

    /// Bans a network, given in its canonical spelling; `None` lifts the ban.
    pub fn set_network(&mut self, resource: Option<&str>, network: &str, ban: Option<Ban>) {
        let whom = || AmendedScope::Network(resource.map(Into::into), network.into());
        if let Some(before) = self.networks.set(resource, network, ban) {
            let mark = network_mark(resource, network, before);
            self.digest = self.digest.wrapping_sub(mark);
            self.will_not_end(before.until, whom);
        }
        if let Some(ban) = ban {
            let mark = network_mark(resource, network, ban);
            self.digest = self.digest.wrapping_add(mark);
            self.will_end(ban.until, whom);
        }
    }

    /// Removes the entries that have ended by a counted tick at `now`.
    pub fn end_by(&mut self, now: Timestamp) {
        while let Some((end, _)) = self.ends.first()
            && *end <= now
        {
            let Some((_, whom)) = self.ends.pop_first() else {
                break;
            };
            match whom {
                AmendedScope::Pair(identity) => {
                    let of_pair = self.pair(identity);
                    let left = PairAmendments {
                        ban: of_pair.ban.filter(|ban| now < ban.until),
                        pardon: of_pair.pardon.filter(|until| now < *until),
                    };
                    if left != of_pair {
                        self.set_pair(identity, left);
                    }
                }
                AmendedScope::Domain(domain) => {
                    if self
                        .domains
                        .get(&domain)
                        .is_some_and(|ban| ban.until <= now)
                    {
                        self.set_domain(&domain, None);
                    }
                }
                AmendedScope::Network(resource, network) => {
                    let resource = resource.as_deref();
                    if self.networks.has_ended(resource, &network, now) {
                        self.set_network(resource, &network, None);
                    }
                }
            }
        }
    }

    /// What amendments state about single pairs, ascending.
    pub fn pairs(&self) -> impl Iterator<Item = (Identity, PairAmendments)> {
        self.pairs
            .iter()
            .map(|(identity, of_pair)| (*identity, *of_pair))
    }

    /// The domains that are banned everywhere, ascending.
    pub fn domains(&self) -> impl Iterator<Item = (&str, Ban)> {
        self.domains.iter().map(|(domain, ban)| (&**domain, *ban))
    }

    /// The networks that are banned, on a resource or everywhere, ascending.
    pub fn networks(&self) -> impl Iterator<Item = (&str, Option<&str>, Ban)> {
        self.networks.iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.pairs.len() + self.domains.len() + self.networks.len()
    }

    /// A digest of the content alone.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    fn will_end(&mut self, end: Timestamp, whom: impl FnOnce() -> AmendedScope) {
        if end < Timestamp::MAX {
            self.ends.insert((end, whom()));
        }
    }

    /// Forgets the end of an entry that is removed. Otherwise each new ban of the same domain would leave
    /// an end behind.
    fn will_not_end(&mut self, end: Timestamp, whom: impl FnOnce() -> AmendedScope) {
        if end < Timestamp::MAX {
            self.ends.remove(&(end, whom()));
        }
    }
}

/// What an entry adds to the digest.
fn pair_mark(identity: Identity, of_pair: &PairAmendments) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write_u128(identity.0);
    let instant = |at: Option<Timestamp>| at.map_or(0, Timestamp::as_micros);
    hasher.write_u64(instant(of_pair.ban.map(|ban| ban.until)));
    hasher.write_u64(of_pair.ban.map_or(0, |ban| ban.version));
    hasher.write_u64(instant(of_pair.pardon));
    hasher.finish128().as_u128()
}

fn domain_mark(domain: &str, ban: Ban) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write_u64(ban.until.as_micros());
    hasher.write_u64(ban.version);
    hasher.write(domain.as_bytes());
    hasher.finish128().as_u128()
}

fn network_mark(resource: Option<&str>, network: &str, ban: Ban) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write_u64(ban.until.as_micros());
    hasher.write_u64(ban.version);
    hasher.write(network.as_bytes());
    hasher.write_u8(0xff);
    if let Some(resource) = resource {
        hasher.write(resource.as_bytes());
        hasher.write_u8(0xff);
    }
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_micros(us)
    }

    fn ban(until: u64) -> Option<Ban> {
        Some(Ban {
            until: at(until),
            version: 9,
        })
    }

    #[test]
    fn ended_amendments_leave_no_trace_in_the_digest() {
        let mut amended = Amended::default();
        let (a, b) = (Identity(1), Identity(2));
        amended.set_pair(
            a,
            PairAmendments {
                ban: ban(50),
                pardon: Some(at(20)),
            },
        );
        amended.set_domain("d", ban(30));
        amended.set_domain(
            "e",
            Some(Ban {
                until: Timestamp::MAX,
                version: 9,
            }),
        );
        let mut other = Amended::default();
        other.set_domain(
            "e",
            Some(Ban {
                until: Timestamp::MAX,
                version: 9,
            }),
        );
        assert!(
            amended.of(a, "r", "x").is_pardoned(at(19))
                && amended.of(b, "r", "d").is_banned(at(29))
        );
        amended.end_by(at(29));
        assert_eq!(
            amended.pair(a),
            PairAmendments {
                ban: ban(50),
                pardon: None
            }
        );
        amended.end_by(at(50));
        assert_eq!((amended.len(), amended.digest()), (1, other.digest()));
        // An end is not forgotten because an entry was written twice.
        amended.set_domain("d", ban(60));
        amended.set_domain("d", ban(70));
        amended.end_by(at(60));
        assert!(amended.domains().any(|(domain, _)| domain == "d"));
        amended.end_by(at(70));
        assert_eq!(amended.digest(), other.digest());
    }

    #[test]
    fn an_overridden_amendment_leaves_no_state() {
        let mut amended = Amended::default();
        let pair = Identity(1);
        for until in 1_000..2_000 {
            amended.set_domain("d", ban(until));
            amended.set_network(Some("r"), "10.0.0.0/8", ban(until));
            let pardon = Some(at(3_000 - until));
            let ban = ban(until);
            amended.set_pair(pair, PairAmendments { ban, pardon });
        }
        assert_eq!((amended.len(), amended.ends.len()), (3, 4));
        amended.set_domain("d", None);
        amended.set_network(Some("r"), "10.0.0.0/8", None);
        amended.set_pair(pair, PairAmendments::default());
        assert_eq!((amended.len(), amended.ends.len()), (0, 0));
        assert_eq!(amended.digest(), 0);
    }

    #[test]
    fn of_bans_and_closures_the_last_end_is_stated() {
        let own = |end| {
            Some(Denial {
                end: at(end),
                cause: Cause::Hard,
                version: 1,
                limit: 1,
                window: Span::ZERO,
                most: u64::MAX,
            })
        };
        let of_pair = PairAmendments {
            ban: ban(50),
            pardon: Some(at(20)),
        };
        let end = |own, now| {
            of_pair
                .denial(own, at(now))
                .map(|denial| (denial.end, denial.cause))
        };
        assert_eq!(end(None, 10), Some((at(50), Cause::Banned)));
        assert_eq!(end(own(60), 30), Some((at(60), Cause::Hard)));
        assert_eq!(end(own(60), 19), Some((at(50), Cause::Banned)), "pardoned");
        assert_eq!(end(own(60), 55), Some((at(60), Cause::Hard)));
        assert_eq!(end(None, 50), None);
    }
}
