//! Random limits documents, as operators push them.
//!
//! Limits are small and windows short, so that a few seconds of traffic exercise everything that a tier can do.
//! What stays true: every document parses, and a later one differs from the first by little more often than by
//! much, so that some of the state survives it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::constraints::Constraints;
use super::copy_limits::CopyLimits;
use super::random::Random;

/// The resources of calls; no document configures the last one.
pub const RESOURCES: [&str; 4] = ["api.search", "api.export", "bulk.load", "free.io"];

/// How many of them documents may configure.
const CONFIGURED: usize = 3;

/// The domains of calls.
pub const DOMAINS: [&str; 8] = [
    "acme", "globex", "initech", "hooli", "umbrella", "stark", "wayne", "tyrell",
];

/// One tier.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tier {
    limit: u64,
    window_us: u64,
    windows: u64,
    cooldown_us: u64,
    skippable: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Own {
    #[serde(skip_serializing_if = "Option::is_none")]
    tiers: Option<Vec<Tier>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hard: Option<u64>,
    #[serde(skip_serializing_if = "Constraints::says_nothing")]
    constraints: Constraints,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    name: String,
    default: Own,
    global: Option<u64>,
    domains: Vec<(String, Own)>,
}

/// A document in the form in which it is drawn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    resources: Vec<Resource>,
    /// The greatest number of pairs of a partition.
    pub(super) pairs_max: u64,
    /// Limits on copies, if any.
    pub copies: Option<CopyLimits>,
}

impl Document {
    /// Draws a first document.
    pub fn draw(random: &mut Random) -> Self {
        let count = random.between(1, CONFIGURED as u64) as usize;
        Self {
            resources: RESOURCES[..count]
                .iter()
                .map(|name| resource(random, name))
                .collect(),
            pairs_max: if random.one_in(12) {
                random.between(1, 12)
            } else {
                1_000_000
            },
            copies: None,
        }
    }

    /// Draws a document that differs by little, or by much.
    pub fn draw_like(&self, random: &mut Random) -> Self {
        let mut document = self.clone();
        match random.below(10) {
            0 => return Self::draw(random),
            1 if 1 < document.resources.len() => {
                document.resources.pop();
            }
            2 if document.resources.len() < CONFIGURED => {
                let name = RESOURCES[document.resources.len()];
                document.resources.push(resource(random, name));
            }
            3 => {
                let at = random.below(document.resources.len() as u64) as usize;
                document.resources[at].global = random.one_in(2).then(|| random.between(1, 60));
            }
            _ => {
                let at = random.below(document.resources.len() as u64) as usize;
                change(random, &mut document.resources[at]);
            }
        }
        document
    }

    /// Adds windows, buckets and quotas, and drops tiers where these limit alone: as in the
    /// previous version, or with a change.
    pub fn constrain(&mut self, before: Option<&Self>, random: &mut Random) {
        for resource in &mut self.resources {
            let known = before.map(|before| before.resources.iter());
            let known = known.and_then(|mut all| all.find(|of| of.name == resource.name));
            match known {
                Some(known) => resource.constrain_as(known, random),
                None => resource.constrain(random),
            }
        }
    }

    /// Whether the greatest number of pairs is so small that some pairs find no room.
    pub fn is_narrow(&self) -> bool {
        self.pairs_max < 1_000
    }

    /// Its text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "version = 1\nrules = 2\n[engine]\npairs_per_partition_max = {}\n",
            self.pairs_max
        );
        // Writing to a String does not fail.
        for resource in &self.resources {
            let _ = writeln!(text, "[rate.\"{}\"]", resource.name);
            own_text(&mut text, &resource.default);
            if let Some(global) = resource.global {
                let _ = writeln!(text, "global = \"{global}/s\"");
            }
            for (domain, own) in &resource.domains {
                let _ = writeln!(text, "[rate.\"{}\".domains.\"{domain}\"]", resource.name);
                own_text(&mut text, own);
            }
        }
        if let Some(copies) = &self.copies {
            copies.write(&mut text);
        }
        text
    }
}

fn own_text(text: &mut String, own: &Own) {
    if let Some(tiers) = &own.tiers {
        let tiers: Vec<String> = tiers
            .iter()
            .map(|tier| {
                format!(
                    "{{ limit = {}, window = \"{}us\", active = \"{}us\", cooldown = \"{}us\", \
                     skippable = {} }}",
                    tier.limit,
                    tier.window_us,
                    tier.window_us * tier.windows,
                    tier.cooldown_us,
                    tier.skippable
                )
            })
            .collect();
        let _ = writeln!(text, "tiers = [{}]", tiers.join(", "));
    }
    if let Some(hard) = own.hard {
        let _ = writeln!(text, "hard = \"{hard}/s\"");
    }
    own.constraints.write(text);
}

impl Resource {
    fn constrain(&mut self, random: &mut Random) {
        let constraints = Constraints::draw(random);
        if constraints.limits_by_itself() && !random.one_in(4) {
            self.default.tiers = None;
        }
        self.default.constraints = constraints;
        for domain in DOMAINS {
            if random.one_in(6) {
                self.set_constraints(domain, Constraints::draw_own(random));
            }
        }
    }

    /// Copies the constraints of the previous version, which lets most of the state survive, or makes one change.
    fn constrain_as(&mut self, before: &Self, random: &mut Random) {
        self.default.constraints = before.default.constraints.clone();
        for (domain, own) in &before.domains {
            if own.constraints != Constraints::default() {
                self.set_constraints(domain, own.constraints.clone());
            }
        }
        let changed = match random.below(self.domains.len() as u64 + 2) as usize {
            at if at < self.domains.len() => &mut self.domains[at].1.constraints,
            _ => &mut self.default.constraints,
        };
        if !random.one_in(3) {
            changed.change(random);
        }
        // Tiers are also added and dropped from version to version.
        let is_limited = self.default.constraints.limits_by_itself();
        if is_limited && (before.default.tiers.is_none() || random.one_in(8)) {
            self.default.tiers = None;
        }
    }

    /// Sets a domain's own constraints, beside its other statements.
    fn set_constraints(&mut self, domain: &str, constraints: Constraints) {
        match self.domains.iter_mut().find(|(of, _)| *of == domain) {
            Some((_, known)) => known.constraints = constraints,
            None => {
                let own = Own {
                    constraints,
                    ..Own::default()
                };
                self.domains.push((domain.to_owned(), own));
            }
        }
    }
}

fn resource(random: &mut Random, name: &str) -> Resource {
    let mut domains = Vec::new();
    for domain in DOMAINS {
        if random.one_in(6) {
            let own = Own {
                tiers: random.one_in(2).then(|| tiers(random)),
                hard: random.one_in(3).then(|| random.between(1, 30)),
                ..Own::default()
            };
            if own.tiers.is_some() || own.hard.is_some() {
                domains.push((domain.to_owned(), own));
            }
        }
    }
    Resource {
        name: name.to_owned(),
        default: Own {
            tiers: Some(tiers(random)),
            hard: random.one_in(3).then(|| random.between(1, 60)),
            ..Own::default()
        },
        global: random.one_in(3).then(|| random.between(1, 200)),
        domains,
    }
}

fn tiers(random: &mut Random) -> Vec<Tier> {
    let count = match random.below(30) {
        0 => 0,
        n => 1 + n % 3,
    };
    (0..count).map(|_| tier(random)).collect()
}

fn tier(random: &mut Random) -> Tier {
    Tier {
        limit: if random.one_in(25) {
            0
        } else {
            random.spread(1, 100)
        },
        window_us: random.spread(20_000, 4_000_000),
        windows: random.between(1, 4),
        cooldown_us: if random.one_in(2) {
            0
        } else {
            random.spread(50_000, 8_000_000)
        },
        skippable: random.one_in(2),
    }
}

fn change(random: &mut Random, resource: &mut Resource) {
    let tiers = resource.default.tiers.get_or_insert_default();
    let at = random.below(tiers.len().max(1) as u64) as usize;
    match (random.below(6), tiers.get_mut(at)) {
        (0, _) => resource.default.hard = random.one_in(2).then(|| random.between(1, 60)),
        (1, _) => {
            tiers.truncate(at);
            tiers.push(tier(random));
        }
        (2, Some(tier)) => tier.cooldown_us += 1_000,
        (3, Some(tier)) => tier.limit /= 2,
        (_, Some(tier)) => tier.limit = tier.limit * 2 + 1,
        (_, None) => tiers.push(tier(random)),
    }
}
