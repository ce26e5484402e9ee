//! Limits written down again as a document: the canonical one of all that mean the same.
//!
//! Plans are expanded and namespaces' defaults written out, so the document stands for itself. What
//! stays true: reading what is printed gives equal limits, and equal limits print alike.

use std::fmt::{self, Write as _};

use tollgate_shared::time::Span;

use super::rate::Tier;
use super::resource::{CopiesResource, Excess, Mode, RateResource, Reserve, Resource, Stated};
use super::settings::{BlindPolicy, EngineSettings, Namespace, Rate, RateUnit};
use super::units::{print_rate, print_span};
use super::version::Limits;

impl Limits {
    /// The checked and normalised document as TOML.
    pub fn normalised_text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write_limits(&mut text, self);
        text
    }
}

fn write_limits(out: &mut String, limits: &Limits) -> fmt::Result {
    writeln!(out, "version = 1\nrules = {}\n", limits.rules())?;
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
    Ok(())
}

fn write_namespace(out: &mut String, name: &str, namespace: &Namespace) -> fmt::Result {
    let Namespace {
        allow_unconfigured,
        ignore_configured,
        blind,
    } = namespace;
    writeln!(out, "\n[namespace.{}]", Key(name))?;
    writeln!(out, "allow_unconfigured = {allow_unconfigured}")?;
    writeln!(out, "ignore_configured = {ignore_configured}")?;
    writeln!(out, "blind = {}", Blind(*blind))
}

fn write_rate(out: &mut String, rate: &RateResource) -> fmt::Result {
    let name = Key(rate.name());
    writeln!(out, "\n[rate.{name}]")?;
    write_fields(out, rate.stated(), "\n")?;
    if let Some(global) = rate.global() {
        writeln!(out, "global = \"{global}/s\"")?;
    }
    writeln!(out, "blind = {}", Blind(rate.blind()))?;
    writeln!(out, "shadow = {}", rate.mode() == Mode::Shadow)?;
    if let Some(candidate) = rate.candidate() {
        writeln!(out, "\n[rate.{name}.candidate]")?;
        write_fields(out, candidate, "\n")?;
    }
    if rate.overrides().next().is_some() {
        writeln!(out, "\n[rate.{name}.domains]")?;
    }
    for (domain, over) in rate.overrides() {
        write!(out, "{} = {{ ", Key(domain))?;
        write_fields(out, &over.stated, ", ")?;
        // The last field brought a separator; nothing stated leaves none.
        if out.ends_with(", ") {
            out.truncate(out.len() - 2);
            out.push(' ');
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}

/// `rate` or `tiers`, and `hard`, each followed by `end`.
fn write_fields(out: &mut String, stated: &Stated, end: &str) -> fmt::Result {
    if let Some(tiers) = &stated.tiers {
        match one_rate(tiers) {
            Some(rate) => write!(out, "rate = \"{}\"{end}", print_rate(rate))?,
            None => write_tiers(out, tiers, end)?,
        }
    }
    match stated.hard {
        Some(hard) => write!(out, "hard = \"{hard}/s\"{end}"),
        None => Ok(()),
    }
}

/// The rate that these tiers are another spelling of.
fn one_rate(tiers: &[Tier]) -> Option<Rate> {
    let [tier] = tiers else {
        return None;
    };
    let units = [
        RateUnit::Second,
        RateUnit::Minute,
        RateUnit::Hour,
        RateUnit::Day,
    ];
    let unit = units.into_iter().find(|unit| unit.span() == tier.window)?;
    let plain = tier.active == tier.window && tier.cooldown == Span::ZERO && !tier.skippable;
    plain.then_some(Rate {
        hits: tier.limit,
        unit,
    })
}

fn write_tiers(out: &mut String, tiers: &[Tier], end: &str) -> fmt::Result {
    // A list may be broken into lines wherever its table ends with one; within braces it may not.
    let broken = end == "\n" && 1 < tiers.len();
    out.push_str("tiers = [");
    for (index, tier) in tiers.iter().enumerate() {
        match (broken, index) {
            (true, _) => out.push_str("\n  "),
            (false, 0) => {}
            (false, _) => out.push_str(", "),
        }
        let (window, active) = (print_span(tier.window), print_span(tier.active));
        write!(
            out,
            "{{ limit = {}, window = \"{window}\", active = \"{active}\"",
            tier.limit
        )?;
        if tier.cooldown != Span::ZERO {
            write!(out, ", cooldown = \"{}\"", print_span(tier.cooldown))?;
        }
        if tier.skippable {
            out.push_str(", skippable = true");
        }
        out.push_str(if broken { " }," } else { " }" });
    }
    write!(out, "{}]{end}", if broken { "\n" } else { "" })
}

fn write_copies(out: &mut String, copies: &CopiesResource) -> fmt::Result {
    let name = Key(copies.name());
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
    writeln!(out, "blind = {}", Blind(copies.blind))?;
    for (group, of) in &copies.groups {
        writeln!(out, "\n[copies.{name}.groups.{}]", Key(group))?;
        writeln!(out, "limit = {}", of.limit)?;
        let members: Vec<String> = of.members.iter().map(|m| Text(m).to_string()).collect();
        writeln!(out, "members = [{}]", members.join(", "))?;
    }
    if copies.overrides().next().is_some() {
        writeln!(out, "\n[copies.{name}.domains]")?;
    }
    for (domain, limit) in copies.overrides() {
        writeln!(out, "{} = {limit}", Key(domain))?;
    }
    Ok(())
}

/// A blind policy as TOML.
struct Blind(BlindPolicy);

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BlindPolicy::Open => f.write_str("\"open\""),
            BlindPolicy::Closed => f.write_str("\"closed\""),
            BlindPolicy::Local(rate) => write!(f, "{{ local = \"{}\" }}", print_rate(rate)),
        }
    }
}

/// A key as TOML: bare where it can be.
pub(super) struct Key<'a>(pub(super) &'a str);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !self.0.is_empty() && self.0.bytes().all(bare) {
            f.write_str(self.0)
        } else {
            Text(self.0).fmt(f)
        }
    }
}

/// A string as TOML. Checked names have no control characters.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            if c == '"' || c == '\\' {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_print_as_a_rate_only_where_they_are_one() {
        let cases = [
            (r#"limit = 7, window = "1m", active = "60s""#, true),
            (
                r#"limit = 7, window = "1m", active = "60s", skippable = true"#,
                false,
            ),
            (
                r#"limit = 7, window = "1m", active = "60s", cooldown = "1us""#,
                false,
            ),
            (r#"limit = 7, window = "1m", active = "2m""#, false),
            (r#"limit = 7, window = "2m", active = "2m""#, false),
        ];
        for (tier, is_rate) in cases {
            let limits = Limits::parse(&format!("rate.x.tiers = [{{ {tier} }}]"));
            let printed = limits.as_ref().map(Limits::normalised_text);
            let printed = printed.expect("it is right");
            assert_eq!(printed.contains("rate = \"7/m\""), is_rate, "{printed}");
            assert_eq!(Limits::parse(&printed), limits);
        }
    }
}
