//! Prints limits as a document: the canonical one of all documents with the same meaning.
//!
//! Plans are expanded and namespaces' defaults written out, so the document is complete by itself. Only a pattern that
//! matches resources of several namespaces has no one default of `blind`: its `blind` is printed only if it is stated.
//! What stays true: the printed document reads as equal limits, and equal limits print the same
//! text.

use std::fmt::{self, Write as _};

use tollgate_shared::descriptors::DescriptorRule;
use tollgate_shared::networks::AddressPrefixes;

use super::print_stated::write_stated;
use super::resource::{CopiesResource, Excess, Mode, RateResource, Reserve, Resource};
use super::settings::{BlindPolicy, EngineSettings, Namespace};
use super::spelling::print_rate;
use super::toml_text::{TomlKey, TomlText};
use super::units::print_span;
use super::version::Limits;
use super::zone_tables::table_text;

impl Limits {
    /// The checked and normalised document as TOML.
    pub fn normalised_text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write_limits(&mut text, self);
        text
    }
}

impl RateResource {
    /// The limits of a domain, including inherited ones, as fields of a document.
    pub fn limits_text_of(&self, domain: &str) -> String {
        let own = self.override_for(domain).stated.clone();
        let mut stated = own.over_default(self.stated());
        // There is nothing left to inherit, so `none` need not be stated.
        stated.windows.unstated_is_silent();
        stated.bucket.unstated_is_silent();
        stated.tiers.unstated_is_silent();
        stated.hard.unstated_is_silent();
        stated.quotas.unstated_is_silent();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write_stated(&mut text, &stated, "\n");
        text
    }
}

fn write_limits(out: &mut String, limits: &Limits) -> fmt::Result {
    writeln!(out, "version = 1\nrules = {}\n", limits.rules())?;
    if !limits.record_keys().is_empty() {
        let ids = limits
            .record_keys()
            .iter()
            .map(|id| TomlText(id).to_string());
        let ids: Vec<String> = ids.collect();
        writeln!(out, "record_keys = [{}]\n", ids.join(", "))?;
    }
    let EngineSettings {
        pairs_per_partition_max,
        agent_timeout,
        epochs_per_partition_max,
    } = limits.engine();
    writeln!(out, "[engine]")?;
    writeln!(out, "pairs_per_partition_max = {pairs_per_partition_max}")?;
    writeln!(out, "agent_timeout = \"{}\"", print_span(*agent_timeout))?;
    writeln!(out, "epochs_per_partition_max = {epochs_per_partition_max}")?;
    write_namespace(out, "*", &limits.namespaces().default)?;
    for (name, namespace) in &limits.namespaces().named {
        write_namespace(out, name, namespace)?;
    }
    for resource in limits.resources() {
        match resource {
            Resource::Rate(rate) => write_rate(out, rate)?,
            Resource::Copies(copies) => write_copies(out, copies)?,
        }
    }
    for (name, rules) in limits.descriptors() {
        write_descriptors(out, name, rules)?;
    }
    for zone in limits.named_zones() {
        out.push_str(&table_text(zone));
    }
    Ok(())
}

fn write_namespace(out: &mut String, name: &str, namespace: &Namespace) -> fmt::Result {
    let Namespace {
        allow_unconfigured,
        ignore_configured,
        blind,
    } = namespace;
    writeln!(out, "\n[namespace.{}]", TomlKey(name))?;
    writeln!(out, "allow_unconfigured = {allow_unconfigured}")?;
    writeln!(out, "ignore_configured = {ignore_configured}")?;
    writeln!(out, "blind = {blind}")
}

fn write_rate(out: &mut String, rate: &RateResource) -> fmt::Result {
    let name = TomlKey(rate.name());
    writeln!(out, "\n[rate.{name}]")?;
    write_stated(out, rate.stated(), "\n")?;
    if let Some(global) = rate.global() {
        writeln!(out, "global = \"{global}/s\"")?;
    }
    writeln!(out, "near = \"{}%\"", rate.near())?;
    if let Some(AddressPrefixes { v4, v6 }) = rate.addresses() {
        writeln!(out, "addresses = {{ v4 = {v4}, v6 = {v6} }}")?;
    }
    if let Some(blind) = rate.blind() {
        writeln!(out, "blind = {blind}")?;
    }
    writeln!(out, "shadow = {}", rate.mode() == Mode::Shadow)?;
    if rate.large_state() {
        writeln!(out, "large_state = true")?;
    }
    if let Some(candidate) = rate.candidate() {
        writeln!(out, "\n[rate.{name}.candidate]")?;
        write_stated(out, candidate, "\n")?;
    }
    if rate.has_overrides() {
        writeln!(out, "\n[rate.{name}.domains]")?;
    }
    for (domain, over) in rate.overrides() {
        write!(out, "{} = {{ ", TomlKey(domain))?;
        write_stated(out, &over.stated, ", ")?;
        // The last field added a separator; an empty statement has none.
        if out.ends_with(", ") {
            out.truncate(out.len() - 2);
            out.push(' ');
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}

fn write_copies(out: &mut String, copies: &CopiesResource) -> fmt::Result {
    let name = TomlKey(copies.name());
    writeln!(out, "\n[copies.{name}]\nlimit = {}", copies.limit)?;
    if let Some(global) = copies.global {
        writeln!(out, "global = {global}")?;
    }
    let reserve = match copies.reserve {
        Reserve::Optimistic => "optimistic",
        Reserve::Strict => "strict",
    };
    let on_excess = match copies.on_excess {
        Excess::Keep => "keep",
        Excess::GiveBack => "give-back",
    };
    writeln!(out, "reserve = \"{reserve}\"\non_excess = \"{on_excess}\"")?;
    if let Some(max_age) = copies.max_age {
        writeln!(out, "max_age = \"{}\"", print_span(max_age))?;
    }
    writeln!(out, "blind = {}", copies.blind)?;
    for (group, of) in &copies.groups {
        writeln!(out, "\n[copies.{name}.groups.{}]", TomlKey(group))?;
        writeln!(out, "limit = {}", of.limit)?;
        let members: Vec<String> = of.members.iter().map(|m| TomlText(m).to_string()).collect();
        writeln!(out, "members = [{}]", members.join(", "))?;
    }
    if copies.has_overrides() {
        writeln!(out, "\n[copies.{name}.domains]")?;
    }
    for (domain, limit) in copies.overrides() {
        writeln!(out, "{} = {limit}", TomlKey(domain))?;
    }
    Ok(())
}

/// Writes the rules of a domain of descriptors as in a document.
fn write_descriptors(out: &mut String, name: &str, rules: &[DescriptorRule]) -> fmt::Result {
    writeln!(out, "\n[descriptors.{}]\nrules = [", TomlKey(name))?;
    for rule in rules {
        let keys = rule
            .keys()
            .iter()
            .map(|key| TomlText(&key.to_string()).to_string());
        let keys: Vec<String> = keys.collect();
        let resource = TomlText(rule.resource().text());
        let domain = TomlText(rule.domain().text());
        let record = if rule.records() {
            ", record = true"
        } else {
            ""
        };
        writeln!(
            out,
            "  {{ keys = [{}], resource = {resource}, domain = {domain}{record} }},",
            keys.join(", ")
        )?;
    }
    writeln!(out, "]")
}

/// As TOML.
impl fmt::Display for BlindPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BlindPolicy::Open => f.write_str("\"open\""),
            BlindPolicy::Closed => f.write_str("\"closed\""),
            BlindPolicy::Local(rate) => write!(f, "{{ local = \"{}\" }}", print_rate(rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn printed(text: &str) -> String {
        let limits = Limits::parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        let printed = limits.normalised_text();
        assert_eq!(Limits::parse(&printed), Ok(limits), "{printed}");
        printed
    }

    #[test]
    fn every_constraint_is_printed_as_people_write_it() {
        let text = printed(
            r#"
            [rate."llm.*"]
            hard = "9 per second"
            windows = ["0.5/s", "1000/m"]
            bucket = { rate = "100000/m", burst = 200_000 }
            quota = "5 per month"
            zone = "Europe/Berlin"
            near = "5%"
            addresses = {}
            refunds = false
            "#,
        );
        for line in [
            "[rate.\"llm.*\"]",
            "windows = [\"1/2s\", \"1000/m\"]",
            "bucket = { rate = \"100000/m\", burst = 200000, debt = 200000 }",
            "hard = \"9/s\"",
            "quota = [\"5/month\"]",
            "zone = \"Europe/Berlin\"",
            "refunds = false",
            "near = \"5%\"",
            "addresses = { v4 = 32, v6 = 64 }",
            "[zones.\"Europe/Berlin\"]",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}\n{text}");
        }
    }

    #[test]
    fn unstated_settings_are_printed_where_not_replaced() {
        let text = printed(
            r#"
            [rate.x]
            rate = "5/s"
            hard = "9/s"
            domains.a = { bucket = "none", hard = "none" }
            domains.b = { rate = "7/s", bucket = "none" }
            domains.c = { rate = "none" }
            domains.d = {}
            "#,
        );
        let domains = text.split("[rate.x.domains]\n").nth(1).expect("domains");
        let expected = "a = { bucket = \"none\", hard = \"none\" }\nb = { rate = \"7/s\" }\n\
             c = { rate = \"none\" }\nd = { }\n";
        assert_eq!(domains, expected);
    }
}
