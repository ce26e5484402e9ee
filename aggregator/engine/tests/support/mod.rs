//! Random limits in three forms: for the model, for the rules, and as a document for the engine.
//!
//! The model shares no type with the engine, so each test needs everything in both forms; the
//! conversions are here and nowhere else. What stays true: the three forms have the same meaning.

#![allow(dead_code, reason = "each test uses its part")]

pub mod known;
pub mod log;
pub mod play;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;
use tollgate_limits::{Bucket, Calendar, Limits, Quota, RateClass, Tier, Window, Zone, normalise};
use tollgate_model as model;
use tollgate_shared::time::{Span, Timestamp};

/// One version of the limits: resources by name.
#[derive(Clone, Debug)]
pub struct Written {
    pub resources: BTreeMap<&'static str, model::ResourceLimits>,
    pub pairs_max: u64,
}

pub const RESOURCES: [&str; 2] = ["api.search", "export"];
/// How resources are configured: by name, or by a pattern that the first of them matches.
pub const CONFIGURED: [&str; 3] = ["api.search", "export", "api.*"];
pub const DOMAINS: [&str; 5] = ["acme", "globex", "initech", "10.1.2.3", "10.1.9.0/24"];
/// Names under which limits may be stated: domains, and networks of some.
const STATING: [&str; 6] = [
    "acme",
    "globex",
    "initech",
    "10.1.2.3",
    "10.1.0.0/16",
    "10.0.0.0/8",
];
/// Networks that may be banned instead of an address.
pub const NETWORKS: [&str; 2] = ["10.1.0.0/16", "10.0.0.0/8"];

/// The number of cases, unless `PROPTEST_CASES` states another.
pub fn cases(cases: u32) -> ProptestConfig {
    let requested = std::env::var("PROPTEST_CASES");
    let requested = requested.ok().and_then(|requested| requested.parse().ok());
    ProptestConfig::with_cases(requested.unwrap_or(cases))
}

pub fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Tiers whose spans are multiples of `unit_us`, from one up.
pub fn any_tier(unit_us: u64) -> impl Strategy<Value = model::Tier> {
    let span = prop_oneof![3 => 1u64..6, 1 => 1u64..60];
    let spans = (span, 1u64..6, 0u64..20, prop_oneof![Just(0u64), 0u64..30]);
    (
        prop_oneof![1 => Just(0u64), 12 => 1u64..7],
        spans,
        any::<bool>(),
    )
        .prop_map(
            move |(limit, (window, windows, odd, cooldown), skippable)| model::Tier {
                limit,
                window_us: window * unit_us,
                active_us: (window * windows + odd / 16) * unit_us,
                cooldown_us: cooldown * unit_us,
                skippable,
            },
        )
}

pub fn any_tiers(unit_us: u64) -> impl Strategy<Value = Vec<model::Tier>> {
    prop_oneof![
        1 => Just(Vec::new()),
        20 => prop::collection::vec(any_tier(unit_us), 1..5),
    ]
}

pub fn any_domain_limits(unit_us: u64) -> impl Strategy<Value = model::DomainLimits> {
    let hard = prop::option::of(prop_oneof![1 => Just(0u64), 9 => 1u64..9]);
    (any_tiers(unit_us), hard).prop_map(|(tiers, hard)| model::DomainLimits {
        tiers: Some(tiers),
        hard,
        ..model::DomainLimits::default()
    })
}

/// Every constraint, each stated or not, over windows of some units and periods of days.
pub fn any_constraints(unit_us: u64) -> impl Strategy<Value = model::DomainLimits> {
    let limit = || prop_oneof![1 => Just(0u64), 12 => 1u64..9, 1 => 4_000u64..4_200];
    let window = (limit(), 1u64..8).prop_map(move |(limit, window)| model::Window {
        limit,
        window_us: window * unit_us,
    });
    let quota = (limit(), 0usize..4, 0usize..3).prop_map(|(limit, unit, zone)| model::Quota {
        limit,
        unit: [
            model::Calendar::Day,
            model::Calendar::Week,
            model::Calendar::Month,
            model::Calendar::Year,
        ][unit],
        zone: any_zone(zone),
    });
    let bucket = (1u64..6, 1u64..9, 1u64..9, 0u64..9);
    let bucket = bucket.prop_map(move |(tokens, period, burst, debt)| model::Bucket {
        tokens,
        period_us: period * unit_us,
        burst,
        debt,
    });
    let rest = (
        prop::collection::vec(window, 0..4),
        prop::collection::vec(quota, 0..3),
        prop::option::of(bucket),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
    );
    (any_domain_limits(unit_us), rest).prop_map(
        |(limits, (windows, quotas, bucket, tiers, no_refunds))| model::DomainLimits {
            windows,
            quotas,
            bucket,
            tiers: limits.tiers.filter(|_| tiers),
            no_refunds,
            ..limits
        },
    )
}

fn any_zone(number: usize) -> model::Zone {
    match number {
        0 => model::Zone::fixed(0),
        1 => model::Zone::fixed(-19_800),
        // Clocks are set forward at an instant of the tests' time, and back over a midnight later.
        _ => model::Zone {
            name: "odd".to_owned(),
            first_offset_s: 3_600,
            changes: vec![(520_000_000, 7_200), (83_400_000_000, -3_600)],
        },
    }
}

/// One resource: sometimes with a global limit, and some domains with statements of their own.
pub fn any_resource(unit_us: u64) -> impl Strategy<Value = model::ResourceLimits> {
    let own = (
        prop::option::of(any_tiers(unit_us)),
        prop::option::of(1u64..9),
    )
        .prop_map(|(tiers, hard)| model::DomainOverride {
            tiers: own(tiers),
            hard: own(hard),
            ..model::DomainOverride::default()
        });
    let domains = prop::collection::btree_map(prop::sample::select(&STATING[..]), own, 0..3);
    let global = prop::option::of(prop_oneof![1 => Just(0u64), 9 => 1u64..20]);
    (any_domain_limits(unit_us), domains, global).prop_map(|(default, domains, global)| {
        model::ResourceLimits {
            default,
            domains: domains
                .into_iter()
                .filter(|(_, own)| *own != model::DomainOverride::default())
                .map(|(domain, own)| (domain.to_owned(), own))
                .collect(),
            global,
        }
    })
}

/// A domain's statement of a field, or none.
pub fn own<T>(stated: Option<T>) -> model::FieldStated<T> {
    stated.map_or(model::FieldStated::Inherited, model::FieldStated::Own)
}

/// Limits that differ little from others, so that a part of the state is kept.
pub fn like(limits: model::DomainLimits) -> impl Strategy<Value = model::DomainLimits> {
    let changes = (0usize..6, 0u64..8, 0usize..4, prop::option::of(1u64..9));
    changes.prop_map(move |(change, limit, index, hard)| {
        let mut limits = limits.clone();
        match change {
            0 => limits.hard = hard,
            1 => limits
                .tiers
                .iter_mut()
                .for_each(|tiers| tiers.truncate(index)),
            _ => {
                if let Some(window) = limits.windows.get_mut(index) {
                    window.limit = limit;
                }
                if let Some(quota) = limits.quotas.get_mut(index) {
                    quota.limit = limit;
                }
                if let Some(bucket) = &mut limits.bucket {
                    bucket.burst = limit.max(1);
                    bucket.period_us += u64::from(change == 3);
                }
                let tiers = limits.tiers.as_mut();
                if let Some(tier) = tiers.and_then(|tiers| tiers.get_mut(index)) {
                    tier.limit = limit;
                    tier.cooldown_us += u64::from(change == 2);
                    tier.skippable ^= change == 3;
                }
            }
        }
        limits
    })
}

pub fn class_of(limits: &model::DomainLimits) -> RateClass {
    let span = Span::from_micros;
    RateClass {
        hard: limits.hard,
        windows: limits
            .windows
            .iter()
            .map(|window| Window {
                limit: window.limit,
                window: span(window.window_us),
            })
            .collect(),
        quotas: limits
            .quotas
            .iter()
            .map(|quota| Quota {
                limit: quota.limit,
                unit: match quota.unit {
                    model::Calendar::Day => Calendar::Day,
                    model::Calendar::Week => Calendar::Week,
                    model::Calendar::Month => Calendar::Month,
                    model::Calendar::Year => Calendar::Year,
                },
                zone: Arc::new(zone_of(&quota.zone)),
            })
            .collect(),
        bucket: limits.bucket.map(|bucket| {
            let period = span(bucket.period_us);
            Bucket::new(bucket.tokens, period, bucket.burst, bucket.debt)
        }),
        tiers: limits.tiers.as_ref().map(|tiers| {
            let tiers: Vec<Tier> = tiers.iter().map(tier_of).collect();
            normalise(&tiers).0
        }),
        refunds: !limits.no_refunds,
    }
}

fn zone_of(zone: &model::Zone) -> Zone {
    let first = (Timestamp::ZERO, zone.first_offset_s);
    let changes = zone.changes.iter();
    let changes = changes.map(|(from_us, offset_s)| (at(*from_us), *offset_s));
    let offsets: Vec<_> = std::iter::once(first).chain(changes).collect();
    Zone::new(&zone.name, &offsets).expect("changes of a zone rise")
}

fn tier_of(tier: &model::Tier) -> Tier {
    Tier {
        limit: tier.limit,
        window: Span::from_micros(tier.window_us),
        active: Span::from_micros(tier.active_us),
        cooldown: Span::from_micros(tier.cooldown_us),
        skippable: tier.skippable,
    }
}

impl Written {
    pub fn for_the_model(&self) -> model::Limits {
        let resources = self.resources.iter();
        model::Limits {
            resources: resources
                .map(|(name, limits)| {
                    let global = global_of(name, limits);
                    (
                        (*name).to_owned(),
                        model::ResourceLimits {
                            global,
                            ..limits.clone()
                        },
                    )
                })
                .collect(),
            pairs_per_partition_max: self.pairs_max,
        }
    }

    pub fn for_the_engine(&self) -> Limits {
        let text = self.document();
        Limits::parse(&text).unwrap_or_else(|faults| panic!("{text}\n{faults}"))
    }

    pub fn document(&self) -> String {
        let mut text = format!(
            "version = 1\nrules = 2\n[engine]\npairs_per_partition_max = {}\n",
            self.pairs_max
        );
        for (name, limits) in &self.resources {
            write!(
                text,
                "[rate.\"{name}\"]\n{}",
                tiers_text(limits.default.tiers())
            )
            .unwrap();
            text.push_str(&windows_and_quotas_text(&limits.default));
            for (key, value) in [
                ("hard", limits.default.hard),
                ("global", global_of(name, limits)),
            ] {
                if let Some(value) = value {
                    writeln!(text, "{key} = \"{value}/s\"").unwrap();
                }
            }
            for (domain, own) in &limits.domains {
                writeln!(text, "[rate.\"{name}\".domains.\"{domain}\"]").unwrap();
                if let model::FieldStated::Own(tiers) = &own.tiers {
                    text.push_str(&tiers_text(tiers));
                }
                if let model::FieldStated::Own(hard) = own.hard {
                    writeln!(text, "hard = \"{hard}/s\"").unwrap();
                }
            }
        }
        text
    }
}

/// A global limit belongs to one resource, so a pattern has none.
fn global_of(name: &str, limits: &model::ResourceLimits) -> Option<u64> {
    limits.global.filter(|_| !name.ends_with('*'))
}

/// Windows of whole seconds, and quotas of days and months.
fn windows_and_quotas_text(limits: &model::DomainLimits) -> String {
    let windows = limits.windows.iter();
    let windows = windows.map(|of| format!("\"{}/{}s\"", of.limit, of.window_us / 1_000_000));
    let quotas = limits.quotas.iter().map(|of| match of.unit {
        model::Calendar::Day => format!("\"{}/day\"", of.limit),
        _ => format!("\"{}/month\"", of.limit),
    });
    let (windows, quotas): (Vec<_>, Vec<_>) = (windows.collect(), quotas.collect());
    let mut text = String::new();
    for (key, all) in [("windows", windows), ("quota", quotas)] {
        if !all.is_empty() {
            writeln!(text, "{key} = [{}]", all.join(", ")).unwrap();
        }
    }
    text
}

fn tiers_text(tiers: &[model::Tier]) -> String {
    let tier = |tier: &model::Tier| {
        format!(
            "{{ limit = {}, window = \"{}us\", active = \"{}us\", cooldown = \"{}us\", skippable = {} }}",
            tier.limit, tier.window_us, tier.active_us, tier.cooldown_us, tier.skippable
        )
    };
    let tiers: Vec<String> = tiers.iter().map(tier).collect();
    format!("tiers = [{}]\n", tiers.join(", "))
}
