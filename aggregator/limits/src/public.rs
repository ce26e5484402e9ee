//! The part of a resource's limits that agents learn.
//!
//! Agents decide by denials, not by limits. They need these for headers, for calls while blind, and for resources
//! that are not configured.

use tollgate_shared::descriptors::rules_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::public::{
    BlindPolicy as PublicBlind, GROUPS_BYTES_MAX, Kind, OnExcess, Public, PublicBucket,
    PublicCopies, PublicGroup, PublicQuota, PublicTier, QuotaUnit, Reserving,
};

use super::rate::Calendar;
use super::resource::{CopiesResource, Excess, Mode, RateResource, Reserve, Resource};
use super::settings::BlindPolicy;
use super::version::Limits;

impl Limits {
    /// What agents learn about a resource, configured or not; `version` is the number of these limits.
    pub fn public(&self, resource: &str, version: u64) -> Public {
        if let Some(rules) = self.public_descriptors(resource, version) {
            return rules;
        }
        let namespace = self.namespace_of(resource);
        let unconfigured = Public {
            version,
            blind: public_blind(namespace.blind),
            ..Public::default()
        };
        match self.resource(resource) {
            None => Public {
                refused: !namespace.allow_unconfigured,
                ..unconfigured
            },
            Some(Resource::Copies(copies)) => Public {
                kind: Kind::Copies,
                has_overrides: copies.has_overrides(),
                blind: public_blind(copies.blind),
                ignored: namespace.ignore_configured,
                copies: Some(public_copies(copies, self.engine().agent_timeout)),
                ..unconfigured
            },
            Some(Resource::Rate(rate)) => Public {
                ignored: namespace.ignore_configured || rate.mode() == Mode::Shadow,
                ..self.public_rate(rate, namespace.ignore_configured, unconfigured)
            },
        }
    }

    /// Whether agents learn the same from both, whatever resources they use.
    pub fn is_public_equal(&self, other: &Self) -> bool {
        let names = |limits: &Self| -> Vec<Box<str>> {
            let resources = limits.resources().iter();
            resources.map(|resource| resource.name().into()).collect()
        };
        let mut names = [names(self), names(other)].concat();
        names.sort_unstable();
        names.dedup();
        // A resource is one of these, matches a pattern that is one of these, or has its namespace's switches alone.
        self.namespaces == other.namespaces
            && self.descriptors == other.descriptors
            && names
                .iter()
                .all(|name| self.public(name, 0) == other.public(name, 0))
    }

    /// The rules that agents learn under this name. A descriptor without a rule is a use of what is not configured.
    fn public_descriptors(&self, resource: &str, version: u64) -> Option<Public> {
        let domain = rules_of_resource(resource)?;
        let refused = !self.namespace_of(domain).allow_unconfigured;
        let rules = self.descriptors.get(domain);
        (refused || rules.is_some()).then(|| Public {
            version,
            kind: Kind::Descriptors,
            refused,
            descriptors: rules.cloned().unwrap_or_default(),
            ..Public::default()
        })
    }

    fn public_rate(&self, rate: &RateResource, ignored: bool, unconfigured: Public) -> Public {
        let class = self.class(rate.default_class());
        let windows = class.windows.iter().map(|window| PublicTier {
            limit: window.limit,
            window: window.window,
        });
        let tiers = class.tiers().iter().map(|tier| PublicTier {
            limit: tier.limit,
            window: tier.window,
        });
        let bucket = class.bucket.map(|bucket| PublicBucket {
            tokens: bucket.tokens,
            period: bucket.period,
            burst: bucket.burst,
        });
        let quotas = class.quotas.iter().map(|quota| PublicQuota {
            limit: quota.limit,
            unit: public_unit(quota.unit),
        });
        let has_overrides = rate.has_overrides();
        Public {
            kind: Kind::Rate,
            windows: windows.collect(),
            tiers: tiers.collect(),
            bucket,
            quotas: quotas.collect(),
            hard: class.hard,
            most: self.most_of_any(rate),
            least: self.least_of_any(rate),
            global: rate.global().map(|global| as_near(global, rate.near())),
            keeps_estimates: !class.refunds,
            addresses: rate.addresses(),
            has_overrides,
            blind: public_blind(rate.blind()),
            // Otherwise a caller that uses a new name each time would cause a denial without end for each of them.
            refused: class.grants_nothing()
                && !has_overrides
                && !ignored
                && rate.mode() != Mode::Shadow,
            ..unconfigured
        }
    }

    /// The least limit of any domain, as agents have to apply it; see [`as_near`]. With tiers it is 0, so that no call
    /// waits in an agent: a hit stamped before its pair's tier was entered counts nowhere, which happens to a call that
    /// waited while another agent sent at once. It is 0 for allow lists, too: others pass until denied.
    fn least_of_any(&self, rate: &RateResource) -> Option<u64> {
        if self.class(rate.default_class()).grants_nothing() {
            return Some(0);
        }
        let of_overrides = rate.override_classes();
        let all = std::iter::once(rate.default_class()).chain(of_overrides);
        let mut least = None;
        for class in all.map(|class| self.class(class)) {
            if !class.tiers().is_empty() {
                return Some(0);
            }
            least = least.into_iter().chain(class.least()).min();
        }
        least.map(|limit| as_near(limit, rate.near()))
    }

    /// The most copies that the limits of any domain can grant at once. `None`: any number.
    ///
    /// Checks each override of the document once, and each distinct override of rows.
    fn most_of_any(&self, rate: &RateResource) -> Option<u64> {
        let most = |class| self.class(class).most_at_once();
        let of_overrides = rate.override_classes().map(most);
        let mut of_all = std::iter::once(most(rate.default_class())).chain(of_overrides);
        // `None` is the greatest.
        let greatest = of_all.try_fold(0, |so_far: u64, most| Some(so_far.max(most?)));
        greatest
            .map(|most| rate.global().map_or(most, |global| most.min(global)))
            .or(rate.global())
    }
}

/// A limit as agents have to apply it if they let calls of pairs wait that are not near: they rely on a fifth of it
/// being left when they get the notice about the pair.
fn as_near(limit: u64, near_percent: u8) -> u64 {
    const USUAL: u64 = 20;
    let percent = u64::from(near_percent).min(USUAL);
    limit / USUAL * percent + limit % USUAL * percent / USUAL
}

fn public_unit(unit: Calendar) -> QuotaUnit {
    match unit {
        Calendar::Day => QuotaUnit::Day,
        Calendar::Week => QuotaUnit::Week,
        Calendar::Month => QuotaUnit::Month,
        Calendar::Year => QuotaUnit::Year,
    }
}

fn public_copies(copies: &CopiesResource, agent_timeout: Span) -> PublicCopies {
    PublicCopies {
        limit: copies.limit,
        global: nobody_is_above(copies),
        reserve: match copies.reserve {
            Reserve::Optimistic => Reserving::Optimistic,
            Reserve::Strict => Reserving::Strict,
        },
        on_excess: match copies.on_excess {
            Excess::Keep => OnExcess::Keep,
            Excess::GiveBack => OnExcess::GiveBack,
        },
        max_age: copies.max_age,
        agent_timeout,
        groups: public_groups(copies, GROUPS_BYTES_MAX),
    }
}

/// A number of copies that no domain exceeds, apart from the default limit of domains without a limit of their own.
fn nobody_is_above(copies: &CopiesResource) -> Option<u64> {
    let greatest = copies.has_overrides().then_some(copies.greatest);
    copies.global.into_iter().chain(greatest).min()
}

/// The groups of a resource, as far as they fit into `bytes`: first the names of all, then the members of one after
/// the other.
fn public_groups(copies: &CopiesResource, bytes: usize) -> Box<[PublicGroup]> {
    // Names of fields, heads of texts and arrays, and the limit.
    const GROUP: usize = 48;
    const MEMBER: usize = 3;
    let mut left = bytes;
    let mut groups: Vec<PublicGroup> = Vec::new();
    for (name, group) in &copies.groups {
        let Some(rest) = left.checked_sub(name.len() + GROUP) else {
            break;
        };
        left = rest;
        groups.push(PublicGroup {
            name: name.clone(),
            limit: group.limit,
            members: None,
        });
    }
    for public_group in &mut groups {
        let Some(group) = copies.groups.get(&public_group.name) else {
            continue;
        };
        let size: usize = group.members.iter().map(|name| name.len() + MEMBER).sum();
        if let Some(rest) = left.checked_sub(size) {
            left = rest;
            public_group.members = Some(group.members.iter().map(Into::into).collect());
        }
    }
    groups.into_boxed_slice()
}

fn public_blind(blind: BlindPolicy) -> PublicBlind {
    match blind {
        BlindPolicy::Open => PublicBlind::Open,
        BlindPolicy::Closed => PublicBlind::Closed,
        BlindPolicy::Local(rate) => PublicBlind::Local {
            limit: rate.hits,
            window: rate.window,
        },
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::time::Span;

    use super::*;

    #[test]
    fn limits_that_grant_nothing_are_refused_by_the_agent() {
        let limits = Limits::parse(
            r#"
            [rate.closed]
            tiers = []
            [rate.zero]
            rate = "0/s"
            [rate.none]
            rate = "5/s"
            hard = "0/s"
            [rate.some]
            tiers = []
            domains.acme.rate = "5/s"
            [rate.shown]
            tiers = []
            shadow = true
            [rate.open]
            rate = "1/s"
            "#,
        )
        .expect("it is right");
        let refused: Vec<&str> = ["closed", "zero", "none", "some", "shown", "open"]
            .into_iter()
            .filter(|resource| limits.public(resource, 1).refused)
            .collect();
        assert_eq!(refused, ["closed", "zero", "none"]);
    }

    #[test]
    fn what_agents_learn_is_compared_whatever_they_use() {
        let base = r#"
            [namespace.api]
            blind = "closed"
            [rate."api.*"]
            rate = "5/s"
            domains.acme.rate = "6/s"
            [copies.box]
            limit = 3
            [descriptors.envoy]
            rules = [{ keys = ["tenant"], resource = "api.x", domain = "{tenant}" }]
            "#;
        let parse = |text: &str| Limits::parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        let limits = parse(base);
        let equals = |from: &str, to: &str| {
            assert!(base.contains(from), "{from}");
            let other = parse(&base.replace(from, to));
            let equal = limits.is_public_equal(&other);
            assert_eq!(equal, other.is_public_equal(&limits), "{to}");
            equal
        };
        assert!(equals("[namespace.api]", "[namespace.api]"));
        let one_more = "domains.acme.rate = \"6/s\"\ndomains.zeta.rate = \"5/s\"";
        assert!(equals("domains.acme.rate = \"6/s\"", one_more));
        for (from, to) in [
            ("\"closed\"", "\"open\""),
            ("rate = \"5/s\"", "rate = \"4/s\""),
            ("limit = 3", "limit = 3\nreserve = \"strict\""),
            (
                "[copies.box]",
                "[rate.\"api.own\"]\nrate = \"1/s\"\n[copies.box]",
            ),
            (
                "[copies.box]",
                "[namespace.old]\nignore_configured = true\n[copies.box]",
            ),
            ("\"api.x\"", "\"api.y\""),
        ] {
            assert!(!equals(from, to), "{to}");
        }
    }

    const OF_BOTH_KINDS: &str = r#"
            [namespace.api]
            allow_unconfigured = false
            blind = "closed"
            [namespace.old]
            ignore_configured = true
            [rate."api.search"]
            hard = "200/s"
            global = "500/s"
            blind = { local = "6/m" }
            tiers = [{ limit = 5, window = "2s", active = "4s", cooldown = "1s" }]
            domains.acme.rate = "9/s"
            [rate."api.export"]
            rate = "1/s"
            shadow = true
            [rate."old.thing"]
            rate = "1/s"
            [copies."api.box"]
            limit = 3
            global = 7
            reserve = "strict"
            on_excess = "give-back"
            max_age = "1h"
            groups.new = { limit = 2, members = ["b", "a"] }
            groups.all = { limit = 9, members = ["a"] }
            "#;

    /// What agents learn of a resource of this document.
    fn public(resource: &str) -> Public {
        let limits = Limits::parse(OF_BOTH_KINDS).expect("it is right");
        limits.public(resource, 7)
    }

    #[test]
    fn agents_learn_no_limits_of_single_domains() {
        let search = Public {
            version: 7,
            kind: Kind::Rate,
            tiers: [PublicTier {
                limit: 5,
                window: Span::from_secs(2),
            }]
            .into(),
            hard: Some(200),
            most: Some(9),
            least: Some(0),
            global: Some(500),
            has_overrides: true,
            blind: PublicBlind::Local {
                limit: 6,
                window: Span::from_secs(60),
            },
            refused: false,
            ignored: false,
            ..Public::default()
        };
        assert_eq!(public("api.search"), search);
        assert!(public("api.export").ignored && !public("api.export").has_overrides);
        assert!(public("old.thing").ignored);
        assert_eq!(public("api.search").copies, None);
        let unknown = public("api.unknown");
        assert_eq!((unknown.kind, unknown.refused), (Kind::Unconfigured, true));
        assert_eq!(unknown.blind, PublicBlind::Closed);
        assert!(!public("web").refused);
    }

    #[test]
    fn agents_learn_the_groups_of_copies_with_their_members() {
        assert_eq!(public("api.box").kind, Kind::Copies);
        assert_eq!(public("api.box").blind, PublicBlind::Closed);
        let group = |name: &str, limit, members: &[&str]| PublicGroup {
            name: name.into(),
            limit,
            members: Some(members.iter().map(|name| (*name).into()).collect()),
        };
        let sandbox = PublicCopies {
            limit: 3,
            global: Some(7),
            reserve: Reserving::Strict,
            on_excess: OnExcess::GiveBack,
            max_age: Some(Span::from_secs(3_600)),
            agent_timeout: Span::from_secs(2),
            groups: [group("all", 7, &["a"]), group("new", 2, &["a", "b"])].into(),
        };
        assert_eq!(public("api.box").copies, Some(sandbox));
    }

    #[test]
    fn agents_apply_the_least_limit_sooner_where_notices_are_late() {
        let limits = Limits::parse(
            r#"
            [rate.plain]
            windows = ["100/s", "500/m"]
            bucket = { rate = "50/s", burst = 80 }
            domains.acme.rate = "40/s"
            domains.prison.rate = "0/s"
            [rate.late]
            rate = "100/s"
            global = "1000/s"
            near = "5%"
            [rate.listed]
            tiers = []
            domains.acme.rate = "100/s"
            [rate.never]
            rate = "100/s"
            near = "0%"
            [rate.early]
            rate = "100/s"
            near = "60%"
            [rate.open]
            hard = "none"
            rate = "none"
            global = "70/s"
            "#,
        )
        .expect("it is right");
        let of = |name| {
            let public = limits.public(name, 1);
            (public.least, public.global)
        };
        assert_eq!(
            of("plain"),
            (Some(40), None),
            "a single domain that is granted nothing is left out"
        );
        assert_eq!(of("late"), (Some(25), Some(250)));
        assert_eq!(of("never"), (Some(0), None));
        assert_eq!(of("listed"), (Some(0), None));
        assert_eq!(of("early"), (Some(100), None));
        assert_eq!(of("open"), (None, Some(70)));
    }

    #[test]
    fn agents_learn_what_no_domain_may_exceed_with_overrides() {
        let limits = Limits::parse(
            "version = 1\nrules = 2\n[copies.box]\nlimit = 3\nglobal = 90\ndomains = { a = 50, b = 1 }\n\
             [copies.few]\nlimit = 3\ndomains = { a = 2 }\n[copies.one]\nlimit = 3\n",
        )
        .expect("it is right");
        let greatest = |limits: &Limits, name| {
            let copies = limits.public(name, 1).copies;
            copies.and_then(|copies| copies.global)
        };
        assert_eq!(greatest(&limits, "box"), Some(50));
        assert_eq!(greatest(&limits, "few"), Some(3), "the default is above it");
        assert_eq!(greatest(&limits, "one"), None, "it is the default");
        let own = |limit| crate::Own {
            limit: Some(limit),
            ..crate::Own::default()
        };
        let raised = limits
            .with_own("box", "c", Some(&own(900)))
            .expect("it may");
        assert_eq!(
            greatest(&raised, "box"),
            Some(90),
            "and what is changed since"
        );
    }

    #[test]
    fn members_that_do_not_fit_are_left_out_group_by_group() {
        let limits = Limits::parse(
            "version = 1\nrules = 2\n[copies.box]\nlimit = 3\n\
             groups.a = { limit = 2, members = [\"one\", \"two\", \"three\"] }\n\
             groups.b = { limit = 2, members = [\"one\"] }\n",
        )
        .expect("it is right");
        let copies = limits.copies("box").expect("box");
        let public_group = |bytes| {
            let groups = public_groups(copies, bytes);
            let members = |group: &PublicGroup| group.members.as_ref().map(|of| of.len());
            groups.iter().map(members).collect::<Vec<_>>()
        };
        assert_eq!(public_group(1_000), [Some(3), Some(1)]);
        assert_eq!(public_group(107), [None, Some(1)]);
        assert_eq!(public_group(98), [None, None]);
        assert_eq!(public_group(49), [None]);
        assert_eq!(public_group(48), []);
    }
}
