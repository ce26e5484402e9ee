//! `tollgate check --resource R --domain D`: which entry of a document rules one domain, and its limits.
//!
//! ```text
//! api.search, 10.1.2.3     ruled by resource "api.*": domain "10.1.0.0/16", of plan "gold"
//! web.login, 203.0.113.7   limited as 203.0.113.0/24, ruled by resource "web.login": its default
//! ```
//!
//! Comments say what else decides about a call of the domain: groups, the limit of all domains together, shadow, and
//! the policy while its agent is blind.
//!
//! Asks no aggregator: only the document is read. What stays true: the answer is what an aggregator with this
//! document rules by.

use std::fmt;
use std::str::FromStr as _;

use serde::Serialize;
use tollgate_limits::{Limits, Mode, RateResource, Resource};
use tollgate_shared::escape::escaped;
use tollgate_shared::names::namespace;
use toml_edit::{DocumentMut, Item};

/// The domain in question.
pub struct Question<'a> {
    /// The document's name.
    pub file: &'a str,
    /// The document as it may stand in the log.
    pub text: &'a str,
    /// The resource.
    pub resource: &'a str,
    /// The domain, as typed.
    pub domain: &'a str,
    /// The domain's name in the log, before the resource's `addresses` apply.
    pub limited_as: &'a str,
}

/// Which entry rules a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RulingEntry {
    /// Name and version of this object's schema.
    pub schema: &'static str,
    /// The document's name.
    pub file: String,
    /// The resource in question.
    pub resource: String,
    /// The domain in question.
    pub domain: String,
    /// The domain under which it is limited.
    pub limited_as: String,
    /// `rate` or `copies`; `None`: the resource is not configured.
    pub kind: Option<&'static str>,
    /// Whether hits are let through if the resource is not configured.
    pub allow_unconfigured: bool,
    /// The name or pattern under which the resource is configured.
    pub entry_resource: Option<String>,
    /// The domain or network whose entry rules; `None`: the resource's default.
    pub entry_domain: Option<String>,
    /// The plan that gives limits to that domain or network.
    pub entry_plan: Option<String>,
    /// Whether the entry states limits itself, beside a plan.
    pub entry_is_own: bool,
    /// The groups of a copy-limited resource that the domain is a member of.
    pub groups: Vec<String>,
    /// The limit of each of these groups, in copies of all members together.
    pub group_limits: Vec<u64>,
    /// The limit of all domains together: hits a second, or copies.
    pub global: Option<u64>,
    /// Whether the resource is in shadow: ruled and counted, but nobody is refused.
    pub shadow: bool,
    /// Whether its namespace ignores limits: likewise.
    pub ignore_configured: bool,
    /// Whether the limits grant nothing, whatever the domain has used.
    pub grants_nothing: bool,
    /// What an agent does while blind, as TOML.
    pub blind: String,
    /// Its limits including inherited ones, as they would stand in a document.
    pub limits: Option<String>,
}

/// Finds the entry that rules.
pub fn ruling_entry(limits: &Limits, question: &Question<'_>) -> RulingEntry {
    let Question {
        file,
        text,
        resource,
        domain,
        limited_as,
    } = *question;
    let namespace = limits.namespace_of(resource);
    let mut entry = RulingEntry {
        schema: "tollgate.check_domain/1",
        file: file.to_owned(),
        resource: resource.to_owned(),
        domain: domain.to_owned(),
        limited_as: limited_as.to_owned(),
        kind: None,
        allow_unconfigured: namespace.allow_unconfigured,
        entry_resource: None,
        entry_domain: None,
        entry_plan: None,
        entry_is_own: false,
        groups: Vec::new(),
        group_limits: Vec::new(),
        global: None,
        shadow: false,
        ignore_configured: namespace.ignore_configured,
        grants_nothing: false,
        blind: limits.blind_of(resource).to_string(),
        limits: None,
    };
    let Some(found) = limits.resource(resource) else {
        return entry;
    };
    entry.entry_resource = Some(found.name().to_owned());
    match found {
        Resource::Rate(rate) => {
            let limited = limited_as_of(rate, limited_as);
            entry.kind = Some("rate");
            entry.entry_domain = rate.ruling_domain(&limited).map(String::from);
            entry.limits = Some(rate.limits_text_of(&limited));
            entry.global = rate.global();
            entry.shadow = rate.mode() == Mode::Shadow;
            let class = limits.class(rate.class_of(&limited));
            entry.grants_nothing = class.grants_nothing() || entry.global == Some(0);
            entry.limited_as = limited;
        }
        Resource::Copies(copies) => {
            entry.kind = Some("copies");
            entry.entry_domain = copies.ruling_domain(limited_as).map(String::from);
            entry.limits = Some(format!("limit = {}\n", copies.limit_of(limited_as)));
            entry.global = copies.global;
            let groups = copies.groups_of(limited_as);
            let groups = groups.map(|(name, group)| (name.to_owned(), group.limit));
            (entry.groups, entry.group_limits) = groups.unzip();
            entry.grants_nothing =
                copies.limit_of(limited_as) == 0 || entry.group_limits.contains(&0);
        }
    }
    if let Some(ruling) = &entry.entry_domain {
        let is_ruling = |name: &str| match found {
            Resource::Rate(rate) => limited_as_of(rate, name) == *ruling,
            Resource::Copies(_) => name == ruling,
        };
        let stated = StatedAt::of(text, found, &is_ruling);
        entry.entry_plan = stated.plan;
        entry.entry_is_own = stated.own;
    }
    entry
}

/// The domain under which a name is limited; an invalid name is returned unchanged.
fn limited_as_of(rate: &RateResource, name: &str) -> String {
    rate.limited_as(name)
        .map_or_else(|_| name.to_owned(), String::from)
}

/// Where a document states limits of a domain.
#[derive(Default)]
struct StatedAt {
    own: bool,
    plan: Option<String>,
}

impl StatedAt {
    fn of(text: &str, resource: &Resource, is_ruling: &dyn Fn(&str) -> bool) -> Self {
        let Ok(document) = DocumentMut::from_str(text) else {
            return Self::default();
        };
        let kind = match resource {
            Resource::Rate(_) => "rate",
            Resource::Copies(_) => "copies",
        };
        let table = |item: Option<&Item>, key: &str| item?.as_table_like()?.get(key).cloned();
        let stated = table(document.get(kind), resource.name());
        let of_resource = |key: &str| table(stated.as_ref(), key);
        let names = |of: Option<Item>| -> Vec<String> {
            let of = of.as_ref().and_then(Item::as_table_like);
            let keys = of.map(|of| of.iter().map(|(key, _)| key.to_owned()).collect());
            keys.unwrap_or_default()
        };
        let has_ruling = |plan: &String| {
            let members = table(document.get("plans"), plan);
            let members = members.as_ref().and_then(Item::as_array);
            let mut names = members
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str());
            names.any(is_ruling)
        };
        Self {
            own: names(of_resource("domains"))
                .iter()
                .any(|name| is_ruling(name)),
            plan: names(of_resource("plans")).into_iter().find(has_ruling),
        }
    }
}

impl fmt::Display for RulingEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |name: &str| format!("\"{}\"", escaped(name));
        let (resource, domain) = (quoted(&self.resource), quoted(&self.domain));
        writeln!(f, "# {}: resource {resource}, domain {domain}", self.file)?;
        if self.limited_as != self.domain {
            writeln!(f, "# limited as {}", quoted(&self.limited_as))?;
        }
        let Some(of) = &self.entry_resource else {
            let becomes = match self.allow_unconfigured {
                true => "let through (allow_unconfigured = true)",
                false => "refused (allow_unconfigured = false)",
            };
            writeln!(f, "# not configured, so hits are {becomes}")?;
            return match self.allow_unconfigured {
                true => self.write_blind(f),
                false => Ok(()),
            };
        };
        write!(f, "# ruled by resource {}: ", quoted(of))?;
        match (&self.entry_domain, &self.entry_plan) {
            (None, _) => writeln!(f, "its default, no entry of the domain's own")?,
            (Some(of), None) => writeln!(f, "domain {}", quoted(of))?,
            (Some(of), Some(plan)) if self.entry_is_own => {
                let (of, plan) = (quoted(of), quoted(plan));
                writeln!(f, "domain {of}, which overrides plan {plan}")?;
            }
            (Some(of), Some(plan)) => {
                writeln!(
                    f,
                    "plan {}, of which {} is a member",
                    quoted(plan),
                    quoted(of)
                )?;
            }
        }
        self.write_shared(f)?;
        self.write_refusals(f)?;
        match (self.limits.as_deref(), self.global) {
            (None | Some(""), None) => writeln!(f, "# no constraint: all hits are let through"),
            (None | Some(""), Some(_)) => writeln!(f, "# no constraint of single domains"),
            (Some(limits), _) => f.write_str(limits),
        }
    }
}

impl RulingEntry {
    /// The limits that the domain shares with others.
    fn write_shared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (group, limit) in self.groups.iter().zip(&self.group_limits) {
            let group = escaped(group);
            writeln!(
                f,
                "# member of group \"{group}\": limit = {limit} of all members together"
            )?;
        }
        match (self.global, self.kind) {
            (None, _) => Ok(()),
            (Some(global), Some("rate")) => {
                writeln!(f, "# global = \"{global}/s\" of all domains together")
            }
            (Some(global), _) => writeln!(f, "# global = {global} of all domains together"),
        }
    }

    /// Whom these limits refuse apart from what they count: nobody, this domain always, or it while its agent is blind.
    fn write_refusals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nobody = "is ruled and counted, but nobody is refused";
        if self.ignore_configured {
            let namespace = escaped(namespace(&self.resource));
            return writeln!(
                f,
                "# namespace \"{namespace}\" has ignore_configured = true: the resource {nobody}"
            );
        }
        if self.shadow {
            return writeln!(f, "# shadow = true: the resource {nobody}");
        }
        if self.grants_nothing {
            writeln!(
                f,
                "# these limits grant nothing: the domain is always refused"
            )?;
        }
        self.write_blind(f)
    }

    fn write_blind(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# while its agent is blind: blind = {}", self.blind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"
[namespace.jobs]
allow_unconfigured = false
[namespace.old]
ignore_configured = true
[namespace.pay]
blind = "closed"
[plans]
gold = ["acme", "globex", "10.2.0.0/16"]
[rate."api.*"]
rate = "20/s"
hard = "50/s"
[rate."api.*".plans.gold]
rate = "100/s"
[rate."api.*".domains]
globex = { hard = "70/s" }
"10.0.0.0/8" = { rate = "5/s" }
[rate."web.login"]
rate = "10/m"
addresses = { v4 = 24 }
domains = { "203.0.113.9" = { rate = "none" } }
[copies.sandbox]
limit = 3
global = 40
domains = { acme = 9 }
groups.probation = { limit = 4, members = ["acme"] }
[rate.together]
global = "2/s"
[rate.trial]
rate = "5/s"
shadow = true
blind = "closed"
[rate."old.search"]
rate = "5/s"
[rate."pay.in"]
tiers = []
hard = "9/s"
domains = { acme = { hard = "3/s" }, globex = { hard = "none" } }
"#;

    /// The line about blind agents, unless the document states something else.
    const OPEN: &str = "# while its agent is blind: blind = \"open\"\n";

    fn shown(resource: &str, domain: &str) -> String {
        let limits = Limits::parse(DOCUMENT).unwrap_or_else(|faults| panic!("{faults}"));
        let question = Question {
            file: "limits.toml",
            text: DOCUMENT,
            resource,
            domain,
            limited_as: domain,
        };
        let shown = ruling_entry(&limits, &question).to_string();
        let (first, rest) = shown.split_once('\n').expect("two lines");
        assert_eq!(
            first,
            format!("# limits.toml: resource \"{resource}\", domain \"{domain}\"")
        );
        rest.to_owned()
    }

    #[test]
    fn the_entry_that_rules_is_named_with_its_limits() {
        let default = format!(
            "# ruled by resource \"api.*\": its default, no entry of the domain's own\n{OPEN}"
        );
        let limits = "rate = \"20/s\"\nhard = \"50/s\"\n";
        assert_eq!(shown("api.search", "initech"), format!("{default}{limits}"));
        assert_eq!(
            shown("api.search", "acme"),
            format!(
                "# ruled by resource \"api.*\": plan \"gold\", of which \"acme\" is a member\n{OPEN}\
                 rate = \"100/s\"\nhard = \"50/s\"\n"
            )
        );
        assert_eq!(
            shown("api.search", "globex"),
            format!(
                "# ruled by resource \"api.*\": domain \"globex\", which overrides plan \"gold\"\n{OPEN}\
                 rate = \"100/s\"\nhard = \"70/s\"\n"
            )
        );
        assert_eq!(
            shown("api.search", "10.1.2.3"),
            format!(
                "# ruled by resource \"api.*\": domain \"10.0.0.0/8\"\n{OPEN}rate = \"5/s\"\nhard = \"50/s\"\n"
            )
        );
        assert!(
            shown("api.search", "10.2.2.3")
                .contains("plan \"gold\", of which \"10.2.0.0/16\" is a member")
        );
        assert_eq!(
            shown("web.login", "203.0.113.77"),
            format!(
                "# limited as \"203.0.113.0/24\"\n\
                 # ruled by resource \"web.login\": domain \"203.0.113.0/24\"\n{OPEN}\
                 # no constraint: all hits are let through\n"
            )
        );
        assert_eq!(
            shown("sandbox", "acme"),
            format!(
                "# ruled by resource \"sandbox\": domain \"acme\"\n\
                 # member of group \"probation\": limit = 4 of all members together\n\
                 # global = 40 of all domains together\n{OPEN}limit = 9\n"
            )
        );
        assert!(shown("jobs.run", "acme").contains("not configured, so hits are refused"));
        assert!(shown("other", "acme").contains("not configured, so hits are let through"));
    }

    #[test]
    fn comments_say_what_else_decides_about_a_call() {
        let default = |of: &str| {
            format!("# ruled by resource \"{of}\": its default, no entry of the domain's own\n")
        };
        assert_eq!(
            shown("together", "acme"),
            format!(
                "{}# global = \"2/s\" of all domains together\n{OPEN}# no constraint of single domains\n",
                default("together")
            )
        );
        assert_eq!(
            shown("trial", "acme"),
            format!(
                "{}# shadow = true: the resource is ruled and counted, but nobody is refused\nrate = \"5/s\"\n",
                default("trial")
            )
        );
        assert!(
            shown("old.search", "acme").contains(
                "# namespace \"old\" has ignore_configured = true: the resource is ruled and counted, but nobody"
            )
        );
        let closed = "# while its agent is blind: blind = \"closed\"\n";
        let nothing = "# these limits grant nothing: the domain is always refused\n";
        for (domain, ruled, rest) in [
            ("acme", "domain \"acme\"\n", "hard = \"3/s\"\n".to_owned()),
            ("globex", "domain \"globex\"\n", "tiers = []\n".to_owned()),
            (
                "initech",
                "its default, no entry of the domain's own\n",
                "tiers = []\nhard = \"9/s\"\n".to_owned(),
            ),
        ] {
            let refused = if domain == "acme" { "" } else { nothing };
            let expected =
                format!("# ruled by resource \"pay.in\": {ruled}{refused}{closed}{rest}");
            assert_eq!(shown("pay.in", domain), expected);
        }
        assert!(shown("pay.unknown", "acme").ends_with(closed));
    }
}
