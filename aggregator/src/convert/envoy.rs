//! Configurations of envoyproxy/ratelimit: a tree of descriptors under a domain.
//!
//! ```text
//! domain: edge                             [rate."edge.tenant"]  rate = "20/m"
//! descriptors:                             [rate."edge.tenant".domains]  acme = { rate = "30/m" }
//! - key: tenant, 20 a minute          ──>  [descriptors.edge]
//! - key: tenant, value: acme, 30           rules = [{ keys = ["tenant"], resource = "edge.tenant", domain = "{tenant}" }]
//! ```
//!
//! Each node with a limit becomes a resource with a rule; a value of a last key with its own limit becomes a domain
//! with own limits, if that means the same. Rules stand in the order in which the original looks: values, then
//! prefixes, then the key alone. Scalars are read literally, as in the original: `1.10` and `True` are these texts.
//! What stays true: each value of a key has its own count, as in the original.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use serde_yaml_ng::Value;
use tollgate_shared::names::check_name;

use super::draft::{Draft, DraftResource, IN_RANGE, LimitGrant, domain_of};
use super::position::{YamlStep, located};

/// A boolean in any spelling of YAML 1.1, which the original reads.
#[derive(Clone, Copy, Default)]
struct Truth(bool);

impl<'de> Deserialize<'de> for Truth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match &*text.to_ascii_lowercase() {
            "true" | "yes" | "y" | "on" => Ok(Self(true)),
            "false" | "no" | "n" | "off" | "null" | "~" | "" => Ok(Self(false)),
            _ => {
                let fault = format!("{text:?}: expected true or false");
                Err(serde::de::Error::custom(fault))
            }
        }
    }
}

#[derive(Deserialize)]
struct Root {
    domain: String,
    descriptors: Option<Vec<Node>>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Node {
    key: String,
    value: Option<String>,
    rate_limit: Option<RateLimit>,
    descriptors: Option<Vec<Node>>,
    #[serde(default)]
    shadow_mode: Truth,
    #[serde(default)]
    quota_mode: Truth,
    #[serde(default)]
    share_threshold: Truth,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
    /// Its position in the source.
    #[serde(skip)]
    position: Vec<YamlStep>,
}

#[derive(Deserialize)]
struct RateLimit {
    unit: Option<String>,
    #[serde(default)]
    requests_per_unit: u64,
    unit_multiplier: Option<u64>,
    #[serde(default)]
    unlimited: Truth,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// The values of a key that a node matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Values {
    One(String),
    From(String),
    Any,
}

/// A key on the way to a node.
#[derive(Clone, Debug)]
struct NodeStep {
    key: String,
    values: Values,
    /// All values share one count.
    shared: bool,
}

impl Node {
    fn values(&self) -> Values {
        match self.value.as_deref() {
            None | Some("") => Values::Any,
            Some(text) => match text.strip_suffix('*') {
                Some(prefix) => Values::From(prefix.to_owned()),
                None => Values::One(text.to_owned()),
            },
        }
    }

    fn step(&self) -> NodeStep {
        NodeStep {
            key: self.key.clone(),
            values: self.values(),
            shared: self.share_threshold.0,
        }
    }

    /// Whether both match the same values of the same key.
    fn is_alike(&self, other: &Self) -> bool {
        self.key == other.key && self.values() == other.values()
    }

    /// Whether it matches all values that another matches, and more.
    fn is_wider_than(&self, other: &Self) -> bool {
        let covers = match (self.values(), other.values()) {
            (Values::Any, _) => true,
            (Values::From(prefix), Values::One(value) | Values::From(value)) => {
                value.starts_with(&prefix)
            }
            _ => false,
        };
        self.key == other.key && covers && !self.is_alike(other)
    }

    /// Whether the original lets through what is above its limit.
    const fn is_shadow(&self) -> bool {
        self.shadow_mode.0 || self.quota_mode.0
    }

    fn children(&self) -> &[Node] {
        self.descriptors.as_deref().unwrap_or_default()
    }
}

/// Sets the positions of descriptors and of all below them.
fn locate(descriptors: &mut Option<Vec<Node>>, above: &[YamlStep]) {
    for (index, node) in descriptors.iter_mut().flatten().enumerate() {
        let step = [YamlStep::Key("descriptors"), YamlStep::Item(index)];
        node.position = [above, &step].concat();
        locate(&mut node.descriptors, &node.position);
    }
}

impl NodeStep {
    /// Its text in a rule, and in a name.
    fn text(&self) -> String {
        match &self.values {
            Values::Any => self.key.clone(),
            Values::One(value) => format!("{}={value}", self.key),
            Values::From(prefix) => format!("{}={prefix}*", self.key),
        }
    }

    /// Why a rule would be misread with it, if so.
    fn fault(&self) -> Option<&'static str> {
        match &self.values {
            _ if self.key.contains('=') => Some("a key with `=` in it cannot be expressed"),
            Values::Any if self.key.ends_with('*') => {
                Some("a key that ends in `*` is a prefix in the original, and has no equivalent")
            }
            Values::One(_) | Values::From(_) if self.key.ends_with('!') => {
                Some("a key that ends in `!`, with a value, cannot be expressed")
            }
            _ => None,
        }
    }

    const fn is_one(&self) -> bool {
        matches!(self.values, Values::One(_))
    }
}

/// Reads a configuration.
pub(super) fn read(text: &str) -> Result<Draft, String> {
    let mut root: Root = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    locate(&mut root.descriptors, &[]);
    let mut reading = EnvoyReading {
        source: text,
        domain: root.domain.clone(),
        draft: Draft::default(),
        slides: false,
        unlimited: None,
    };
    reading.others("the document", &root.other);
    reading.walk(root.descriptors.as_deref().unwrap_or_default(), &[])?;
    if reading.slides {
        let text = "windows of seconds, minutes and hours slide here; in the original a new window begins with each unit";
        reading.draft.differs("rate_limit", text);
    }
    Ok(reading.draft)
}

struct EnvoyReading<'t> {
    source: &'t str,
    domain: String,
    draft: Draft,
    /// Whether some limit is a sliding window.
    slides: bool,
    /// The resource for unlimited values, once it is needed.
    unlimited: Option<String>,
}

impl EnvoyReading<'_> {
    fn others(&mut self, place: &str, other: &BTreeMap<String, Value>) {
        for key in other.keys() {
            self.draft
                .differs(place, format!("`{key}` has no equivalent, and is left out"));
        }
    }

    fn walk(&mut self, nodes: &[Node], above: &[NodeStep]) -> Result<(), String> {
        let mut order: Vec<&Node> = nodes.iter().collect();
        // Of several prefixes the first that matches counts, as in the original.
        order.sort_by_key(|node| match node.values() {
            Values::One(_) => 0,
            Values::From(_) => 1,
            Values::Any => 2,
        });
        for node in order {
            let mut path = above.to_vec();
            path.push(node.step());
            let place = place_of(&path);
            let mut alike = nodes.iter().filter(|other| other.is_alike(node));
            if let Some(second) = alike.nth(1) {
                let fault = format!("{place}: stands in this list twice");
                return Err(located(self.source, &second.position, &fault));
            }
            self.others(&place, &node.other);
            if node.quota_mode.0 {
                let text = "`quota_mode` is a shadow here; the original also reports it in dynamic metadata";
                self.draft.differs(&place, text);
            }
            let wider = || nodes.iter().filter(|other| other.is_wider_than(node));
            let is_override = wider().any(|default| is_override(node, default, nodes, above));
            match &node.rate_limit {
                // The key's default includes it.
                _ if is_override => {}
                Some(limit) => self.limit(node, limit, nodes, &path)?,
                // A value without a limit is an exception from a limit of its key, or of a prefix.
                None if wider().any(|other| other.rate_limit.is_some()) => self.except(&path),
                None => {}
            }
            if let Some(other) = wider().find(|other| !other.children().is_empty()) {
                let text = format!(
                    "in the original a descriptor that matches nothing below it is not limited; here one may match what \
                     stands below `{}`",
                    other.step().text()
                );
                self.draft.differs(&place, text);
            }
            self.walk(node.children(), &path)?;
        }
        Ok(())
    }

    /// Adds a node with a limit: a resource, and the rule that leads to it.
    fn limit(
        &mut self,
        node: &Node,
        limit: &RateLimit,
        siblings: &[Node],
        path: &[NodeStep],
    ) -> Result<(), String> {
        let place = place_of(path);
        let grant = self.grant_in_range(&place, node, limit)?;
        let name = self.draft.name(&format!("{}.{place}", self.domain));
        let Some(above) = path.len().checked_sub(1).and_then(|len| path.get(..len)) else {
            return Ok(());
        };
        let mut domains = Vec::new();
        for other in siblings
            .iter()
            .filter(|other| is_override(other, node, siblings, above))
        {
            let Values::One(value) = other.values() else {
                continue;
            };
            let mut path = above.to_vec();
            path.push(other.step());
            let grant = match &other.rate_limit {
                Some(limit) => self.grant_in_range(&place_of(&path), other, limit)?,
                None => LimitGrant::Unlimited,
            };
            domains.push((value, grant));
        }
        if self.lead(&place, path, &name) {
            self.draft.add(DraftResource {
                name,
                grants: vec![grant],
                shadow: node.is_shadow(),
                domains,
            });
        }
        Ok(())
    }

    /// Adds a value that is not limited although its key is.
    fn except(&mut self, path: &[NodeStep]) {
        let name = match &self.unlimited {
            Some(name) => name.clone(),
            None => {
                let name = self.draft.name(&format!("{}.unlimited", self.domain));
                self.unlimited = Some(name.clone());
                self.draft.add(DraftResource {
                    name: name.clone(),
                    grants: vec![LimitGrant::Unlimited],
                    shadow: false,
                    domains: Vec::new(),
                });
                name
            }
        };
        self.lead(&place_of(path), path, &name);
    }

    /// Adds the rule that leads from descriptors to a resource.
    fn lead(&mut self, place: &str, path: &[NodeStep], resource: &str) -> bool {
        let keys: Vec<String> = path.iter().map(NodeStep::text).collect();
        let varies = path.iter().enumerate();
        let varies = varies.filter(|(_, step)| !step.is_one() && !step.shared);
        let names: Vec<&str> = path.iter().map(|step| &*step.key).collect();
        let domain = domain_of(&names, varies.map(|(at, _)| at));
        if let Some(fault) = path.iter().find_map(NodeStep::fault) {
            self.draft.differs(place, format!("left out: {fault}"));
            return false;
        }
        let (descriptors, names) = (self.domain.clone(), (resource, &*domain));
        self.draft.rule(place, &descriptors, &keys, names)
    }

    /// The grant of a node, which a document may state.
    fn grant_in_range(
        &mut self,
        place: &str,
        node: &Node,
        limit: &RateLimit,
    ) -> Result<LimitGrant, String> {
        let grant = self.grant(place, node, limit)?;
        if grant.is_in_range() {
            return Ok(grant);
        }
        let hits = limit.requests_per_unit;
        let (field, value) = match (limit.unit_multiplier, u32::try_from(hits)) {
            (Some(many), Ok(_)) => ("unit_multiplier", many),
            _ => ("requests_per_unit", hits),
        };
        let fault = format!("{place}: rate_limit.{field} = {value}: {IN_RANGE}");
        let within = [YamlStep::Key("rate_limit"), YamlStep::Key(field)];
        let path = [&*node.position, &within].concat();
        Err(located(self.source, &path, &fault))
    }

    fn grant(&mut self, place: &str, node: &Node, limit: &RateLimit) -> Result<LimitGrant, String> {
        self.others(place, &limit.other);
        if limit.unlimited.0 {
            return Ok(LimitGrant::Unlimited);
        }
        let unit = limit
            .unit
            .as_deref()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let (hits, many) = (
            limit.requests_per_unit,
            limit.unit_multiplier.unwrap_or(1).max(1),
        );
        let rate = |unit: &str| match many {
            1 => format!("{hits}/{unit}"),
            many => format!("{hits}/{many}{unit}"),
        };
        let (short, days) = match &*unit {
            "second" => ("s", 0),
            "minute" => ("m", 0),
            "hour" => ("h", 0),
            "day" => ("day", 1),
            "week" => ("week", 7),
            "month" => ("month", 30),
            "year" => ("year", 365),
            _ => {
                let fault = format!(
                    "{place}: rate_limit.unit = {unit:?}: expected second, minute, hour, day, week, month or year"
                );
                let unit = [YamlStep::Key("rate_limit"), YamlStep::Key("unit")];
                let path = [&*node.position, &unit].concat();
                return Err(located(self.source, &path, &fault));
            }
        };
        if days == 0 {
            self.slides = true;
            return Ok(LimitGrant::Rate(rate(short)));
        }
        if many != 1 {
            let Some(days) = many.checked_mul(days) else {
                let fault = format!(
                    "{place}: rate_limit.unit_multiplier = {many}: expected at most {}",
                    u64::MAX / days
                );
                let multiplier = [
                    YamlStep::Key("rate_limit"),
                    YamlStep::Key("unit_multiplier"),
                ];
                let path = [&*node.position, &multiplier].concat();
                return Err(located(self.source, &path, &fault));
            };
            let text = format!("{many} {unit}s at a time are a sliding window of {days} days here");
            self.draft.differs(place, text);
            return Ok(LimitGrant::Rate(format!("{hits}/{days}d")));
        }
        if days != 1 {
            let text = format!(
                "a {unit} is one of the calendar here, and {days} days since 1970 in the original"
            );
            self.draft.differs(place, text);
        }
        Ok(LimitGrant::Quota(format!("{hits}/{short}")))
    }
}

/// Whether a node is an override: a value of a key with its own limit instead of the key's default, which can be a
/// domain with own limits. That requires that all keys before it have one value each, that no prefix comes before the
/// key's default, and that its value is valid as a domain.
fn is_override(node: &Node, default: &Node, siblings: &[Node], above: &[NodeStep]) -> bool {
    let Values::One(value) = node.values() else {
        return false;
    };
    let is_plain = !node.is_shadow() && !default.is_shadow() && !default.share_threshold.0;
    // A network would match all its addresses, and an address of IPv6 all its spellings.
    let is_many = value.parse::<IpNet>().is_ok() || value.parse::<Ipv6Addr>().is_ok();
    let is_name = check_name(&value).is_ok() && !is_many;
    let mut wider = siblings.iter().filter(|other| other.is_wider_than(node));
    default.rate_limit.is_some()
        && default.values() == Values::Any
        && default.is_wider_than(node)
        && wider.all(|other| std::ptr::eq(other, default))
        && above.iter().all(NodeStep::is_one)
        && is_plain
        && is_name
}

fn place_of(path: &[NodeStep]) -> String {
    let steps: Vec<String> = path.iter().map(NodeStep::text).collect();
    steps.join(".")
}
