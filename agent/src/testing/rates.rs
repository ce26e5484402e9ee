//! The testing kit's limits of rates, beside denials.
//!
//! What stays true: the agent processes them like public limits and denials of aggregators.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_shared::descriptors::{DescriptorRule, resource_of_rules};
use tollgate_shared::networks::{AddressPrefixes, NetworkName, network as network_named};
use tollgate_shared::time::Span;
use tollgate_shared::wire::notice::Notice;
use tollgate_shared::wire::public::{
    Kind, PublicAllowed, PublicNetwork, PublicNetworks, PublicTier,
};

use super::TestAgent;
use crate::answer::Cause;

impl TestAgent {
    /// States that no domain can ever be granted more copies of a resource at once.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.most_at_once("api.search", 10);
    /// assert!(search.hit_n("acme", 11).is_err());
    /// ```
    pub fn most_at_once(&self, resource: &str, most: u64) {
        self.learn(resource, |public| {
            (public.kind, public.most) = (Kind::Rate, Some(most));
        });
    }

    /// States that these windows limit every domain: copies, and the length of each window.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.windows("api.search", &[(100, Duration::from_secs(60))]);
    /// assert!(search.hit("acme").is_ok_and(|allowed| allowed.headers().rate_limit_policy().is_some()));
    /// ```
    pub fn windows(&self, resource: &str, windows: &[(u64, Duration)]) {
        self.learn(resource, |public| {
            let windows = windows.iter().map(|(limit, window)| PublicTier {
                limit: *limit,
                window: Span::from_std(*window),
            });
            (public.kind, public.windows) = (Kind::Rate, windows.collect());
        });
    }

    /// States, as a denial does, that one domain can never be granted more at once.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.most_at_once_of("api.search", "acme", 10);
    /// assert!(search.hit_n("globex", 11).is_ok());
    /// ```
    pub fn most_at_once_of(&self, resource: &str, domain: &str, most: u64) {
        let shared = self.agent.shared();
        if let Some(resource) = self.resource(resource) {
            let version = resource.public().version;
            let (domain, now) = (shared.admit(domain), shared.clock.read());
            shared
                .mosts
                .remember(&resource, &domain, (version, most), now);
        }
    }

    /// States, as a notice does, that a domain has this many copies left of a limit with one window of this length.
    /// The notice holds from now on, for the length of the window.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.near("api.search", "acme", 7, 50, Duration::from_secs(10));
    /// assert!(search.hit("acme").is_ok_and(|allowed| allowed.is_near()));
    /// ```
    pub fn near(&self, resource: &str, domain: &str, left: u64, limit: u64, window: Duration) {
        let shared = self.agent.shared();
        let Some(resource) = self.resource(resource) else {
            return;
        };
        let window = Span::from_std(window);
        let notice = Notice {
            partition: 0,
            domain: Box::from(&*shared.admit(domain)),
            cause: Cause::Window(0),
            left,
            limit,
            window,
            more_in: window,
            near_for: window,
            since: shared.clock.read_wall(),
        };
        let now = shared.clock.read();
        self.state()
            .near
            .take(&resource, 0, &notice, Span::ZERO, now);
    }

    /// States that a resource's limits give nothing back of an estimate that was too high.
    ///
    /// ```
    /// use tollgate_agent::Settled;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let tokens = kit.agent().rate("llm.tokens");
    /// kit.keeps_estimates("llm.tokens");
    /// let estimate = tokens.hit_estimated("acme", 800)?;
    /// assert_eq!(estimate.settle(620)?, Settled::Kept);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keeps_estimates(&self, resource: &str) {
        self.learn(resource, |public| public.keeps_estimates = true);
    }

    /// States that a resource limits addresses by their networks, with prefixes of this many bits.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.addresses("api.search", 24, 56);
    /// let _ = search.hit("10.0.0.7");
    /// assert_eq!(kit.recorded()[0].domain, "10.0.0.0/24");
    /// ```
    pub fn addresses(&self, resource: &str, v4: u8, v6: u8) {
        self.learn(resource, |public| {
            public.addresses = Some(AddressPrefixes { v4, v6 });
        });
    }

    /// States the rules of a domain of descriptors.
    ///
    /// ```
    /// use tollgate_agent::Applied;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.descriptors("envoy", Vec::new());
    /// let applied = kit.agent().descriptors("envoy").apply(&[("tenant", "acme")]);
    /// assert!(matches!(applied, Applied::Unmatched { .. }));
    /// ```
    pub fn descriptors(&self, domain: &str, rules: Vec<DescriptorRule>) {
        self.learn(&resource_of_rules(domain), |public| {
            (public.kind, public.descriptors) = (Kind::Descriptors, rules.into());
        });
    }

    /// States that descriptors of a domain are refused if no rule matches them.
    ///
    /// ```
    /// use tollgate_agent::Applied;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// kit.descriptors("envoy", Vec::new());
    /// kit.refuse_unmatched("envoy");
    /// let applied = kit.agent().descriptors("envoy").apply(&[("tenant", "acme")]);
    /// assert!(matches!(applied, Applied::Unmatched { refused: true }));
    /// ```
    pub fn refuse_unmatched(&self, domain: &str) {
        self.learn(&resource_of_rules(domain), |public| public.refused = true);
    }

    /// States that a resource's limits grant this domain nothing, as `rate = "0/s"` for it does, or a limit of 0 copies.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.close("api.search", "acme");
    /// assert!(search.hit("acme").is_err());
    /// assert!(search.hit("globex").is_ok());
    /// ```
    pub fn close(&self, resource: &str, domain: &str) {
        let domain = Box::from(&*self.agent.shared().admit(domain));
        self.learn(resource, |public| {
            if public.kind != Kind::Copies {
                public.kind = Kind::Rate;
            }
            let closed = public.closed.iter().cloned().chain([domain]);
            let closed: BTreeSet<Box<str>> = closed.collect();
            public.closed = closed.into_iter().collect();
        });
    }

    /// States that a resource's limits let in these domains and networks alone, as an allow list does.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.allow_only("api.search", &["acme", "10.0.0.0/8"]);
    /// assert!(search.hit("acme").is_ok() && search.hit("10.1.2.3").is_ok());
    /// assert!(search.hit("globex").is_err());
    /// ```
    pub fn allow_only(&self, resource: &str, domains: &[&str]) {
        let admitted = domains
            .iter()
            .map(|domain| self.agent.shared().admit(domain));
        let admitted: Vec<_> = admitted.collect();
        self.learn(resource, |public| {
            if public.kind != Kind::Copies {
                public.kind = Kind::Rate;
            }
            public.allowed = PublicAllowed::of(admitted.iter().map(|domain| &**domain));
        });
    }

    /// Bans a network on a resource for some time, as an operator does. `None`: its limits grant the network nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.ban_network("api.search", "203.0.113.0/24", Some(Duration::from_secs(60)));
    /// let denied = search.hit("203.0.113.7").unwrap_err();
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    /// assert!(search.hit("198.51.100.7").is_ok());
    /// ```
    ///
    /// # Panics
    ///
    /// If the network is not spelt as one.
    #[expect(clippy::panic, reason = "a test states a network that is none")]
    pub fn ban_network(&self, resource: &str, network: &str, lasts: Option<Duration>) {
        let NetworkName::Network(network) = network_named(network) else {
            panic!("{network:?}: found no network, expected one like \"203.0.113.0/24\"");
        };
        let now = self.agent.shared().clock.read_wall();
        let until = lasts.map(|lasts| now.saturating_add(Span::from_std(lasts)));
        self.learn(resource, |public| {
            let added = PublicNetwork {
                network,
                banned_until: until,
            };
            public.networks = PublicNetworks::of(public.networks.iter().copied().chain([added]));
        });
    }

    /// States that a resource is limited by copies.
    ///
    /// ```
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.limited_by_copies("api.search");
    /// assert!(search.hit("acme").is_err());
    /// ```
    pub fn limited_by_copies(&self, resource: &str) {
        self.learn(resource, |public| {
            public.kind = Kind::Copies;
            public.copies.get_or_insert_default();
        });
    }

    /// States that a resource ignores denials, as in shadow mode.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_agent::testing::TestAgent;
    ///
    /// let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// kit.deny("api.search", "acme", Duration::from_secs(5));
    /// kit.ignored("api.search");
    /// assert!(search.hit("acme").is_ok());
    /// ```
    pub fn ignored(&self, resource: &str) {
        self.learn(resource, |public| public.ignored = true);
    }
}
