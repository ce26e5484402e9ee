//! The part of a resource's limits that agents learn with the feed.
//!
//! Agents decide by denials, not by limits; they need these for headers, for what to do while
//! blind, and for resources that nobody configured.

use tollgate_shared::wire::public::{BlindPolicy as PublicBlind, Kind, Public, PublicTier};

use super::resource::{Mode, Resource};
use super::settings::BlindPolicy;
use super::version::Limits;

impl Limits {
    /// What agents learn about a resource, configured or not; `version` is these limits' own.
    pub fn public(&self, resource: &str, version: u64) -> Public {
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
                has_overrides: copies.overrides().len() != 0,
                blind: public_blind(copies.blind),
                ignored: namespace.ignore_configured,
                ..unconfigured
            },
            Some(Resource::Rate(rate)) => {
                let class = self.class(rate.default_class());
                let tiers = class.tiers.iter().map(|tier| PublicTier {
                    limit: tier.limit,
                    window: tier.window,
                });
                Public {
                    kind: Kind::Rate,
                    tiers: tiers.collect(),
                    hard: class.hard,
                    has_overrides: rate.overrides().len() != 0,
                    blind: public_blind(rate.blind()),
                    ignored: namespace.ignore_configured || rate.mode() == Mode::Shadow,
                    ..unconfigured
                }
            }
        }
    }
}

fn public_blind(blind: BlindPolicy) -> PublicBlind {
    match blind {
        BlindPolicy::Open => PublicBlind::Open,
        BlindPolicy::Closed => PublicBlind::Closed,
        BlindPolicy::Local(rate) => PublicBlind::Local {
            limit: rate.hits,
            window: rate.unit.span(),
        },
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::time::Span;

    use super::*;

    #[test]
    fn agents_learn_what_they_need_and_nothing_of_single_domains() {
        let limits = Limits::parse(
            r#"
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
            "#,
        )
        .expect("it is right");
        let search = Public {
            version: 7,
            kind: Kind::Rate,
            tiers: [PublicTier {
                limit: 5,
                window: Span::from_secs(2),
            }]
            .into(),
            hard: Some(200),
            has_overrides: true,
            blind: PublicBlind::Local {
                limit: 6,
                window: Span::from_secs(60),
            },
            refused: false,
            ignored: false,
        };
        assert_eq!(limits.public("api.search", 7), search);
        let public = |resource| limits.public(resource, 7);
        assert!(public("api.export").ignored && !public("api.export").has_overrides);
        assert!(public("old.thing").ignored);
        assert_eq!(public("api.box").kind, Kind::Copies);
        assert_eq!(public("api.box").blind, PublicBlind::Closed);
        let unknown = public("api.unknown");
        assert_eq!((unknown.kind, unknown.refused), (Kind::Unconfigured, true));
        assert_eq!(unknown.blind, PublicBlind::Closed);
        assert!(!public("web").refused);
    }
}
