//! What the kit can tell an agent of a rate's limits, beside denials.
//!
//! What stays true: the agent takes it as it takes public limits and denials from aggregators.

use std::time::Duration;

use tollgate_shared::descriptors::{DescriptorRule, resource_of_rules};
use tollgate_shared::networks::AddressPrefixes;
use tollgate_shared::time::Span;
use tollgate_shared::wire::notice::Notice;
use tollgate_shared::wire::public::{Kind, PublicTier};

use super::TestAgent;
use crate::answer::Cause;

impl TestAgent {
    /// Tells the agent that no domain can ever be granted more copies of a resource at once.
    pub fn most_at_once(&self, resource: &str, most: u64) {
        self.learn(resource, |public| {
            (public.kind, public.most) = (Kind::Rate, Some(most));
        });
    }

    /// Tells the agent that every domain is limited by these windows: copies, and how long each is.
    pub fn windows(&self, resource: &str, windows: &[(u64, Duration)]) {
        self.learn(resource, |public| {
            let windows = windows.iter().map(|(limit, window)| PublicTier {
                limit: *limit,
                window: Span::from_std(*window),
            });
            (public.kind, public.windows) = (Kind::Rate, windows.collect());
        });
    }

    /// Tells the agent, as a denial does, that one domain can never be granted more at once.
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

    /// Tells the agent, as a notice does, that a domain has so many copies of a limit left, of one window of this
    /// length: as of now, and for as long.
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
        self.said()
            .near
            .take(&resource, 0, &notice, Span::ZERO, now);
    }

    /// Tells the agent that a resource's limits take nothing back of an estimate that was too high.
    pub fn keeps_estimates(&self, resource: &str) {
        self.learn(resource, |public| public.keeps_estimates = true);
    }

    /// Tells the agent that a resource limits addresses by their networks, of so many bits.
    pub fn addresses(&self, resource: &str, v4: u8, v6: u8) {
        self.learn(resource, |public| {
            public.addresses = Some(AddressPrefixes { v4, v6 });
        });
    }

    /// Tells the agent the rules of a domain of descriptors.
    pub fn descriptors(&self, domain: &str, rules: Vec<DescriptorRule>) {
        self.learn(&resource_of_rules(domain), |public| {
            (public.kind, public.descriptors) = (Kind::Descriptors, rules.into());
        });
    }

    /// Tells the agent that descriptors of a domain are refused that no rule matches.
    pub fn refuse_unmatched(&self, domain: &str) {
        self.learn(&resource_of_rules(domain), |public| public.refused = true);
    }

    /// Tells the agent that a resource is limited by copies.
    pub fn limited_by_copies(&self, resource: &str) {
        self.learn(resource, |public| {
            public.kind = Kind::Copies;
            public.copies.get_or_insert_default();
        });
    }

    /// Tells the agent that denials of a resource are grants, as where it is in shadow.
    pub fn ignored(&self, resource: &str) {
        self.learn(resource, |public| public.ignored = true);
    }
}
