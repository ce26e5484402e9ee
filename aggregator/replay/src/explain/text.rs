//! An explanation for people.

use std::fmt;

use tollgate_limits::print_span;
use tollgate_shared::escape::escaped;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::Cause;

use super::constraints;
use super::view::{DenialView, Explanation, HolderView, TierView};
use crate::range::{UntilUtc, Utc};
use crate::tags::unchecked_line;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sentence in &self.sentences {
            writeln!(f, "{sentence}")?;
        }
        if let Some(line) = unchecked_line(&self.unchecked_keys) {
            writeln!(f, "{line}")?;
        }
        if let Some(code) = &self.code {
            writeln!(f, "\ncode         {code}")?;
        }
        if let Some(denial) = &self.denial {
            writeln!(f, "partition    {}", self.partition)?;
            write_denial(f, denial)?;
        }
        self.write_window(f)?;
        write_holders(f, &self.holders)?;
        self.write_same_code(f)?;
        self.write_moment(f)?;
        self.write_calls(f)?;
        self.write_statements(f)?;
        self.write_version(f)
    }
}

impl Explanation {
    /// Which agents' hits filled the window.
    fn write_window(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(window) = &self.window {
            let what = match self.reason {
                "bucket" | "quota" => "the newest hits that used it up, by agent",
                _ => "hits that filled the window, by agent",
            };
            writeln!(f, "\n{what}")?;
            for of in &window.by_agent {
                writeln!(
                    f,
                    "{:>12}  {} ({} to {})",
                    of.hits,
                    escaped(&of.agent),
                    at(of.first_us),
                    at(of.last_us)
                )?;
            }
            writeln!(f, "and by time")?;
            for step in &window.by_time {
                writeln!(f, "{:>12}  from {}", step.hits, at(step.from_us))?;
            }
        }
        Ok(())
    }

    /// The other denials that have the code.
    fn write_same_code(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for of in &self.same_code {
            let of_whom = match (&of.domain, &of.group) {
                (Some(domain), _) => escaped(domain).to_string(),
                (None, Some(group)) => format!("group {}", escaped(group)),
                (None, None) => "all domains together".to_owned(),
            };
            writeln!(f, "\nalso denied  {of_whom}, under the same code")?;
            write_denial(f, &of.denial)?;
            write_holders(f, &of.holders)?;
        }
        Ok(())
    }

    /// The state of constraints and tiers at that moment.
    fn write_moment(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.constraints.is_empty() {
            writeln!(f, "\nconstraints at that moment")?;
        }
        for of in &self.constraints {
            writeln!(f, "  {}", constraints::constraint_text(of))?;
        }
        if !self.tiers.is_empty() {
            writeln!(f, "\ntiers at that moment")?;
        }
        for tier in self.tiers.iter().rev() {
            write_tier(f, tier)?;
        }
        if let Some(picture) = &self.picture {
            writeln!(f, "\n{}", picture.trim_end())?;
        }
        Ok(())
    }

    /// The calls that were refused or in excess, by agent.
    fn write_calls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, tally) in [
            ("refused calls", &self.refused),
            ("excess hits", &self.excess),
        ] {
            for of in &tally.by_agent {
                writeln!(
                    f,
                    "{what}: {} by {} ({} to {})",
                    of.hits,
                    escaped(&of.agent),
                    at(of.first_us),
                    at(of.last_us)
                )?;
            }
        }
        Ok(())
    }

    /// The statements in order, and the call in question.
    fn write_statements(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if 1 < self.statements.len() {
            writeln!(f, "\nstated one after the other")?;
        }
        for stated in self.statements.iter().filter(|_| 1 < self.statements.len()) {
            let end = stated
                .until_us
                .map_or_else(String::new, |us| format!(" until {}", at(us)));
            writeln!(
                f,
                "{:>24}  {} at {}{end}",
                stated.code.as_deref().unwrap_or("-"),
                stated.says,
                at(stated.at_us)
            )?;
        }
        if let Some(call) = &self.call {
            write!(
                f,
                "\nthe call nearest to that instant: {} of {}, {} hits ({} granted, {} excess, {} late), at {}",
                call.position,
                escaped(&call.agent),
                call.copies,
                call.granted,
                call.excess,
                call.late,
                at(call.at_us)
            )?;
            match call.stamp_us == call.at_us {
                true => writeln!(f)?,
                false => writeln!(f, " ({} by its agent's clock)", at(call.stamp_us))?,
            }
        }
        Ok(())
    }

    /// The limits in force.
    fn write_version(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(version) = &self.version {
            write!(
                f,
                "\nlimits version {} ({})",
                version.number,
                &version.digest[..16.min(version.digest.len())]
            )?;
            for line in version.excerpt.lines() {
                write!(f, "\n    {line}")?;
            }
        }
        Ok(())
    }
}

/// A denial: by which limit, since when, until when.
fn write_denial(f: &mut fmt::Formatter<'_>, denial: &DenialView) -> fmt::Result {
    let DenialView { cause, limit, .. } = denial;
    let is_full = *cause == Cause::Full.to_string();
    match is_full {
        true => writeln!(f, "limit        {limit} copies at a time")?,
        false => writeln!(
            f,
            "limit        {cause}: {limit} in {}",
            span(denial.window_us)
        )?,
    }
    writeln!(f, "since        {}", at(denial.since_us))?;
    match denial.until_us {
        Some(us) => writeln!(f, "until        {}", at(us))?,
        // Holds end when their agents say so.
        None if is_full => writeln!(f, "until        beyond the end of the log")?,
        None => writeln!(f, "until        for ever")?,
    }
    match denial.recorded_us {
        Some(us) => writeln!(f, "announced    {} (when it was recorded)", at(us)),
        None => writeln!(f, "announced    not recorded"),
    }
}

/// The agents that held the copies.
fn write_holders(f: &mut fmt::Formatter<'_>, holders: &[HolderView]) -> fmt::Result {
    if !holders.is_empty() {
        writeln!(f, "\nwho held copies of it")?;
    }
    for of in holders {
        let agent = escaped(of.agent.as_deref().unwrap_or("(staged)"));
        let since = at(of.oldest_us);
        writeln!(
            f,
            "{:>12}  {agent}, in {} holds, the oldest of {since}",
            of.copies, of.holds
        )?;
    }
    Ok(())
}

fn write_tier(f: &mut fmt::Formatter<'_>, tier: &TierView) -> fmt::Result {
    write!(
        f,
        "  tier {}  {} of {} in {}, {}",
        tier.tier,
        tier.hits,
        tier.limit,
        span(tier.window_us),
        tier.phase
    )?;
    match tier.phase {
        "active" => write!(f, " {}", until(tier.active_until_us))?,
        "cooling" => write!(f, " down {}", until(tier.cooling_until_us))?,
        _ => {}
    }
    if let Some(us) = tier.entered_us {
        write!(f, ", entered at {}", at(us))?;
    }
    if let Some(agent) = &tier.entered_by {
        write!(f, " by {}", escaped(agent))?;
    }
    writeln!(f)
}

fn at(us: u64) -> Utc {
    Utc(Timestamp::from_micros(us))
}

fn until(us: Option<u64>) -> UntilUtc {
    UntilUtc(us.map_or(Timestamp::MAX, Timestamp::from_micros))
}

fn span(us: u64) -> String {
    print_span(Span::from_micros(us)).to_string()
}
