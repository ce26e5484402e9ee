//! The state of all requests: the agent, its handles, trusted proxies, what services hold, and counters.

use std::sync::Arc;

use ipnet::IpNet;
use metrics::counter;
use tollgate_agent::{Agent, Headers, HttpAnswer, Rate};

use crate::kept::Kept;
use crate::subject::DomainFrom;

/// The settings of a gateway.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where to find the domain of a request, if the query does not state it.
    pub domain: Option<DomainFrom>,
    /// Networks of proxies whose X-Forwarded-For is trusted. If empty, only the web server in front of the gateway is
    /// trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether clients also get the older fields `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy_headers: bool,
}

impl Settings {
    /// The header fields of a request that is let through.
    pub(crate) fn shown(&self, headers: Headers) -> Headers {
        match self.legacy_headers {
            true => headers.with_legacy(),
            false => headers,
        }
    }

    /// The answer to a request that is refused.
    pub(crate) fn told_refused(&self, answer: HttpAnswer) -> HttpAnswer {
        match self.legacy_headers {
            true => answer.with_legacy_headers(),
            false => answer,
        }
    }
}

/// Why a request was let through without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// Neither the query nor the gateway states where the domain is, or the query's value is invalid.
    NoDomainConfigured,
    /// The request has no domain at the configured place.
    NoDomain,
    /// The cost is not a whole number below 2³².
    BadCost,
    /// The resource is limited by copies, not by rate.
    NotRate,
    /// No limits can have the resource's name.
    BadResource,
    /// No rule matches a descriptor, and it does not name a resource.
    NoRule,
    /// Copies of the resource are used only once an aggregator has granted them, and this interface does not wait for
    /// that.
    Strict,
    /// Negative hits of a resource that is limited by rate: hits cannot be given back.
    NegativeHits,
    /// Copies are given back that are not held here.
    NotHeld,
    /// The call makes no sense to the agent.
    Misuse,
}

impl Undecided {
    /// The name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoDomainConfigured => "no_domain_configured",
            Self::NoDomain => "no_domain",
            Self::BadCost => "bad_cost",
            Self::NotRate => "not_rate",
            Self::BadResource => "bad_resource",
            Self::NoRule => "no_rule",
            Self::Strict => "strict",
            Self::NegativeHits => "negative_hits",
            Self::NotHeld => "not_held",
            Self::Misuse => "misuse",
        }
    }

    /// The text for the caller.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoDomainConfigured => {
                "no domain is configured, expected domain=header:NAME, domain=name:NAME or domain=ip"
            }
            Self::NoDomain => "the request has no domain where it is configured to be",
            Self::BadCost => "the cost is not a whole number below 4294967296",
            Self::NotRate => "the resource is limited by copies, not by rate",
            Self::BadResource => {
                "the resource is not a name of 1 to 256 bytes without `*` and control characters"
            }
            Self::NoRule => "no resource is named, and no rule matches",
            Self::Strict => "the resource is strict: its copies are granted by an aggregator",
            Self::NegativeHits => "negative hits of a resource that is limited by rate",
            Self::NotHeld => "copies that are not held here",
            Self::Misuse => "the call is invalid",
        }
    }
}

/// State that requests share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub agent: Agent,
    pub settings: Arc<Settings>,
    pub kept: Arc<Kept>,
}

impl Shared {
    /// The handle of a resource: the agent looks it up, and keeps a bounded number of them.
    pub fn rate(&self, resource: &str) -> Rate {
        self.agent.rate(resource)
    }

    /// Counts an answer.
    pub fn note(answer: &'static str) {
        counter!("tollgate_gateway_answers_total", "answer" => answer).increment(1);
    }

    /// Counts a request that was let through without a decision.
    pub fn note_undecided(why: Undecided) {
        counter!("tollgate_gateway_undecided_total", "reason" => why.name()).increment(1);
    }
}
