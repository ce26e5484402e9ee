//! From a descriptor of Envoy to a request to the agent: a resource, a domain, and an amount.
//!
//! ```text
//! rules of the limits            [path: /api/x, remote_address: 203.0.113.7]   edge.api, 203.0.113.7
//! the descriptor's own names     [resource: api.search, domain: acme]          api.search, acme
//!                                [resource: api.search, remote_address: …]     api.search, the address
//!
//! hits_addend   none, or 0 of the whole request   1 hit
//!               0 of the descriptor               asks without counting
//!               negative                          gives copies back
//! […, tollgate: record]                           records without asking
//! […, request: ID]                                the request for which copies are taken and given back
//! ```
//!
//! Rules come first. Knows nothing of limits. What stays true: a descriptor's entries are Envoy's configuration, so
//! they are trusted; a limit in the request itself is not.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_agent::{Applied, Descriptors};

use crate::state::Undecided;

/// The request of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorAsk {
    pub resource: String,
    pub domain: String,
    /// The request's id, if an entry has it; otherwise empty.
    pub request: String,
    pub act: DescriptorAct,
}

/// The amount, and whether to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorAct {
    /// May this many hits proceed, or this many copies be used?
    Take(u32),
    /// Might one hit proceed? Nothing is counted.
    Look,
    /// This many hits have happened already.
    Record(u32),
    /// This many copies are no longer in use.
    Release(u64),
}

/// The result of reading a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorRead {
    Ask(DescriptorAsk),
    /// The descriptor is let through without a decision.
    Undecided(Undecided),
    /// No rule matches, and the namespace of the rules refuses what is not configured.
    Refused,
}

/// The kind of call with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RlsCall {
    /// Asks and counts.
    Should,
    /// Asks without counting.
    Check,
    /// Counts without asking.
    Report,
}

/// Reads a descriptor; `addend` is that of the whole request.
pub(crate) fn read(
    rules: &Descriptors,
    descriptor: &RateLimitDescriptor,
    addend: u32,
    call: RlsCall,
) -> DescriptorRead {
    let entries = descriptor.entries.iter();
    let entries: Vec<(&str, &str)> = entries.map(|entry| (&*entry.key, &*entry.value)).collect();
    let find = |key: &str| entries.iter().find(|(name, _)| *name == key);
    let request = find("request").map_or("", |(_, value)| value);
    let ask = |resource: String, domain: String, records| {
        DescriptorRead::Ask(DescriptorAsk {
            resource,
            domain,
            request: request.to_owned(),
            act: act(descriptor, addend, call, records),
        })
    };
    let unmatched = match rules.apply(&entries) {
        Applied::Matched(found) => return ask(found.resource, found.domain, found.records),
        Applied::Unmatched { refused: true } => DescriptorRead::Refused,
        Applied::Unmatched { refused: false } | Applied::NoRules => {
            DescriptorRead::Undecided(Undecided::NoRule)
        }
    };
    let Some((_, resource)) = find("resource") else {
        return unmatched;
    };
    let Some((_, domain)) = find("domain").or_else(|| find("remote_address")) else {
        return match unmatched {
            DescriptorRead::Refused => DescriptorRead::Refused,
            _ => DescriptorRead::Undecided(Undecided::NoDomain),
        };
    };
    let records = find("tollgate").is_some_and(|(_, value)| *value == "record");
    ask((*resource).to_owned(), (*domain).to_owned(), records)
}

fn act(
    descriptor: &RateLimitDescriptor,
    addend: u32,
    call: RlsCall,
    records: bool,
) -> DescriptorAct {
    let own = descriptor.hits_addend.as_ref().map(|addend| addend.value);
    let hits = own.unwrap_or(u64::from(addend.max(1)));
    // No limit is that great, so a greater number is refused as well.
    let copies = u32::try_from(hits).unwrap_or(u32::MAX);
    match call {
        _ if descriptor.is_negative_hits => DescriptorAct::Release(hits),
        RlsCall::Check => DescriptorAct::Look,
        _ if records || call == RlsCall::Report => DescriptorAct::Record(copies),
        _ if copies == 0 => DescriptorAct::Look,
        RlsCall::Should | RlsCall::Report => DescriptorAct::Take(copies),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use envoy_types::pb::google::protobuf::UInt64Value;
    use tollgate_agent::DescriptorRule;
    use tollgate_agent::testing::TestAgent;

    fn descriptor(entries: &[(&str, &str)], addend: Option<u64>) -> RateLimitDescriptor {
        let entry = |(key, value): &(&str, &str)| Entry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            hits_addend: addend.map(|value| UInt64Value { value }),
            ..RateLimitDescriptor::default()
        }
    }

    fn ask(resource: &str, domain: &str, act: DescriptorAct) -> DescriptorRead {
        DescriptorRead::Ask(DescriptorAsk {
            resource: resource.to_owned(),
            domain: domain.to_owned(),
            request: String::new(),
            act,
        })
    }

    #[test]
    fn a_descriptor_names_resource_and_domain_itself() {
        let kit = TestAgent::new();
        let rules = kit.agent().descriptors("edge");
        let of = |entries: &[(&str, &str)], addend, whole| {
            read(&rules, &descriptor(entries, addend), whole, RlsCall::Should)
        };
        let named = [("resource", "r"), ("domain", "d")];
        assert_eq!(of(&named, None, 0), ask("r", "d", DescriptorAct::Take(1)));
        assert_eq!(of(&named, None, 7), ask("r", "d", DescriptorAct::Take(7)));
        assert_eq!(of(&named, Some(0), 7), ask("r", "d", DescriptorAct::Look));
        assert_eq!(
            of(&named, Some(3), 7),
            ask("r", "d", DescriptorAct::Take(3))
        );
        let most = ask("r", "d", DescriptorAct::Take(u32::MAX));
        assert_eq!(of(&named, Some(u64::MAX), 0), most);
        let by_address = [("resource", "r"), ("remote_address", "203.0.113.7")];
        assert_eq!(
            of(&by_address, None, 0),
            ask("r", "203.0.113.7", DescriptorAct::Take(1))
        );
        let recorded = [("resource", "r"), ("domain", "d"), ("tollgate", "record")];
        assert_eq!(
            of(&recorded, Some(9), 0),
            ask("r", "d", DescriptorAct::Record(9))
        );
        assert_eq!(
            of(&[("resource", "r")], None, 0),
            DescriptorRead::Undecided(Undecided::NoDomain)
        );
        assert_eq!(
            of(&[("path", "/")], None, 0),
            DescriptorRead::Undecided(Undecided::NoRule)
        );
        assert_eq!(
            of(&[], None, 0),
            DescriptorRead::Undecided(Undecided::NoRule)
        );
    }

    #[test]
    fn rules_in_limits_take_precedence() {
        let kit = TestAgent::new();
        let rule = |keys: &[&str], records| {
            DescriptorRule::parse(keys, "edge", "{resource}", records).expect("a rule")
        };
        kit.descriptors(
            "edge",
            vec![rule(&["resource"], false), rule(&["resource", "x"], true)],
        );
        let rules = kit.agent().descriptors("edge");
        let of =
            |entries: &[(&str, &str)]| read(&rules, &descriptor(entries, None), 0, RlsCall::Should);
        assert_eq!(
            of(&[("resource", "r")]),
            ask("edge", "r", DescriptorAct::Take(1))
        );
        assert_eq!(
            of(&[("resource", "r"), ("x", "")]),
            ask("edge", "r", DescriptorAct::Record(1))
        );
        let own = [("resource", "r"), ("domain", "d")];
        assert_eq!(
            of(&own),
            ask("r", "d", DescriptorAct::Take(1)),
            "no rule matches"
        );
        assert_eq!(
            of(&[("y", "")]),
            DescriptorRead::Undecided(Undecided::NoRule)
        );
        kit.refuse_unmatched("edge");
        assert_eq!(of(&[("y", "")]), DescriptorRead::Refused);
        let nobody = [("resource", "r"), ("y", "")];
        assert_eq!(of(&nobody), DescriptorRead::Refused, "it names no domain");
        assert_eq!(of(&own), ask("r", "d", DescriptorAct::Take(1)));
    }

    #[test]
    fn each_kind_of_call_takes_looks_or_records() {
        let kit = TestAgent::new();
        let rules = kit.agent().descriptors("edge");
        let named = descriptor(&[("resource", "r"), ("domain", "d")], Some(4));
        let negative = RateLimitDescriptor {
            is_negative_hits: true,
            ..named.clone()
        };
        for (call, act) in [
            (RlsCall::Should, DescriptorAct::Take(4)),
            (RlsCall::Check, DescriptorAct::Look),
            (RlsCall::Report, DescriptorAct::Record(4)),
        ] {
            assert_eq!(read(&rules, &named, 0, call), ask("r", "d", act));
            assert_eq!(
                read(&rules, &negative, 0, call),
                ask("r", "d", DescriptorAct::Release(4))
            );
        }
    }
}
