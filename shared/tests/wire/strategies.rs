//! Random valid messages.

use super::*;

prop_compose! {
    pub fn a_log_position()(generation: u32, offset: u64, entry: u32) -> LogPosition {
        LogPosition { generation, offset, entry }
    }
}

pub fn a_cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        any::<u8>().prop_map(Cause::Tier),
        Just(Cause::Hard),
        Just(Cause::Global),
        Just(Cause::Inaccessible),
        Just(Cause::Unconfigured),
        Just(Cause::Blind),
        Just(Cause::Full),
        Just(Cause::Banned),
        any::<u8>().prop_map(Cause::Window),
        any::<u8>().prop_map(Cause::Quota),
        Just(Cause::Bucket),
        Just(Cause::TooMany),
        Just(Cause::NotRate),
    ]
}

pub fn a_name() -> impl Strategy<Value = String> {
    "[a-zé.:0-9]{1,20}"
}

pub fn a_statement() -> impl Strategy<Value = Statement> {
    let kind = prop_oneof![
        Just(StatementKind::Lifted),
        (
            any::<u64>(),
            a_cause(),
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
            any::<u64>()
        )
            .prop_map(
                |(end, cause, version, limit, window, most)| StatementKind::Denied(Denial {
                    end: Timestamp::from_micros(end),
                    cause,
                    version,
                    limit,
                    window: Span::from_micros(window),
                    most,
                })
            ),
    ];
    let scope = prop_oneof![
        a_name().prop_map(|name| Scope::Pair(name.into())),
        Just(Scope::Resource),
        a_name().prop_map(|name| Scope::Group(name.into())),
    ];
    (scope, a_log_position(), kind).prop_map(|(scope, position, kind)| Statement {
        scope,
        position,
        kind,
    })
}

pub fn a_statement_notice() -> impl Strategy<Value = StatementNotice> {
    (any::<u32>(), any::<u64>(), a_statement()).prop_map(|(partition, remaining, statement)| {
        StatementNotice {
            partition,
            remaining: Span::from_micros(remaining),
            statement,
        }
    })
}

prop_compose! {
    pub fn a_watermark()(partition: u32, generation: u32, random: u64, ruled: u64, at: u64, current: bool) -> Watermark {
        let log = LogId { generation, random };
        Watermark { partition, log, ruled, appended: Timestamp::from_micros(at), current }
    }
}

prop_compose! {
    pub fn some_copies()(
        limit: u64, global: Option<u64>, strict: bool, back: bool, max_age: Option<u64>, timeout: u64,
        groups in prop::collection::vec((a_name(), any::<u64>(), prop::option::of(prop::collection::vec(a_name(), 0..4))), 0..4),
    ) -> PublicCopies {
        let names = |of: Vec<String>| of.iter().map(|name| name.as_str().into()).collect();
        let groups = groups.into_iter().map(|(name, limit, members)| PublicGroup {
            name: name.as_str().into(), limit, members: members.map(names),
        });
        PublicCopies {
            limit, global,
            reserve: if strict { Reserving::Strict } else { Reserving::Optimistic },
            on_excess: if back { OnExcess::GiveBack } else { OnExcess::Keep },
            max_age: max_age.map(Span::from_micros),
            agent_timeout: Span::from_micros(timeout),
            groups: groups.collect(),
        }
    }
}

prop_compose! {
    /// The fields of public limits that only a rate has.
    pub fn some_rate()(
        windows in prop::collection::vec((any::<u64>(), any::<u64>()), 0..4),
        bucket: Option<(u64, u64, u64)>,
        quotas in prop::collection::vec((any::<u64>(), prop::sample::select(
            vec![QuotaUnit::Day, QuotaUnit::Week, QuotaUnit::Month, QuotaUnit::Year])), 0..4),
        most: Option<u64>, least: Option<u64>, global: Option<u64>, keeps_estimates: bool, addresses in prop::option::of((0u8..=32, 0u8..=128)),
        closed in prop::collection::btree_set("[a-z0-9.:/-]{1,20}", 0..4),
        limits_of: u64,
        allowed in prop::option::of(prop::collection::vec("[a-z0-9.:/-]{1,20}", 0..4)),
        networks in prop::collection::vec((any::<std::net::IpAddr>(), 1u8..=128, any::<Option<u64>>()), 0..4),
    ) -> Public {
        let window = |(limit, w)| PublicTier { limit, window: Span::from_micros(w) };
        Public {
            windows: windows.into_iter().map(window).collect(),
            bucket: bucket.map(|(tokens, period, burst)| PublicBucket { tokens, period: Span::from_micros(period), burst }),
            quotas: quotas.into_iter().map(|(limit, unit)| PublicQuota { limit, unit }).collect(),
            most, least, global, keeps_estimates, limits_of,
            closed: closed.into_iter().map(Box::from).collect(),
            allowed: allowed.and_then(|names| PublicAllowed::of(names.iter().map(String::as_str))),
            networks: PublicNetworks::of(networks.into_iter().map(|(address, bits, until)| PublicNetwork {
                network: AddressPrefixes { v4: bits.min(32), v6: bits }.network_of(address.to_canonical()),
                banned_until: until.map(Timestamp::from_micros),
            })),
            addresses: addresses.map(|(v4, v6)| AddressPrefixes { v4, v6 }),
            ..Public::default()
        }
    }
}

prop_compose! {
    pub fn some_rule()(
        keys in prop::sample::subsequence(vec!["path", "method=POST", "user=a*", "x="], 1..4),
        resource in prop_oneof![Just("edge"), Just("edge.x")],
        records: bool,
    ) -> DescriptorRule {
        let first = keys.first().and_then(|key| key.split('=').next()).unwrap_or_default();
        let domain = format!("{{{first}}}|");
        DescriptorRule::parse(&keys, resource, &domain, records).expect("a rule")
    }
}

prop_compose! {
    pub fn a_public()(
        version: u64,
        kind in prop_oneof![Just(Kind::Unconfigured), Just(Kind::Rate), Just(Kind::Copies), Just(Kind::Descriptors)],
        tiers in prop::collection::vec((any::<u64>(), any::<u64>()), 0..5),
        hard: Option<u64>,
        flags: (bool, bool, bool),
        local: Option<(u64, u64)>,
        closed: bool,
        rate in some_rate(),
        copies in some_copies(),
        rules in prop::collection::vec(some_rule(), 0..4),
    ) -> Public {
        let tiers = tiers.into_iter().map(|(limit, w)| PublicTier { limit, window: Span::from_micros(w) }).collect();
        let blind = match local {
            Some((limit, window)) => BlindPolicy::Local { limit, window: Span::from_micros(window) },
            None if closed => BlindPolicy::Closed,
            None => BlindPolicy::Open,
        };
        Public { version, kind, tiers, hard, has_overrides: flags.0, blind, refused: flags.1, ignored: flags.2, copies: (kind == Kind::Copies).then_some(copies), descriptors: if kind == Kind::Descriptors { rules.into() } else { Box::default() }, closed: if matches!(kind, Kind::Rate | Kind::Copies) { rate.closed.clone() } else { Box::default() }, allowed: rate.allowed.clone().filter(|_| matches!(kind, Kind::Rate | Kind::Copies)), networks: if kind == Kind::Descriptors { PublicNetworks::default() } else { rate.networks.clone() }, ..rate }
    }
}

/// The fields of an entry beside pair, instant and copies.
#[derive(Clone, Debug)]
pub struct Calls {
    calls: u32,
    min: Option<u32>,
    kind: u8,
    unguarded: bool,
    made: u64,
}

impl Calls {
    /// The same for an entry of one hit.
    pub fn of<'a>(&self, one: Hit<'a>) -> Hit<'a> {
        let kind = match self.kind {
            0 => HitKind::Hit,
            1 => HitKind::Charge,
            2 => HitKind::Estimate,
            _ => HitKind::Refund {
                made: Timestamp::from_micros(self.made),
                estimated: one.copies.saturating_add(self.calls),
                actual: one.copies.saturating_add(self.calls) - one.copies,
            },
        };
        let is_hit = kind == HitKind::Hit;
        Hit {
            calls: if self.kind == 3 { 1 } else { self.calls },
            min: self
                .min
                .filter(|_| is_hit)
                .map(|min| min.clamp(1, one.copies)),
            kind,
            unguarded: self.unguarded,
            ..one
        }
    }
}

prop_compose! {
    pub fn some_calls()(
        calls in 1u32.., min: Option<u32>, kind in 0u8..4, unguarded: bool, made in 0u64..1 << 60,
    ) -> Calls {
        Calls { calls, min, kind, unguarded, made }
    }
}
