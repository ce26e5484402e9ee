//! A refusal in sentences.

use tollgate_limits::print_span;
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Cause, Denial};

use super::constraints;
use super::follow::{ENTRIES_MAX, OTHERS_MAX};
use super::history::{PairStatement, Unremembered};
use super::view::{Explanation, Tally, TierView, VersionView, WindowView};
use crate::range::{UntilUtc, Utc};

/// States the findings in words.
pub(super) fn write(
    explanation: &mut Explanation,
    stated: &PairStatement,
    denial: &Denial,
    until: Timestamp,
) {
    let mut all = Vec::new();
    let limit = format!("{} in {}", denial.limit, print_span(denial.window));
    let who = match &explanation.domain {
        Some(domain) => format!("{} of {}", escaped(&explanation.resource), escaped(domain)),
        None => escaped(&explanation.resource).to_string(),
    };
    let closed = match denial.cause {
        Cause::Tier(0) => "no tier was active, and none could be entered".to_owned(),
        Cause::Tier(tier) => format!("tier {tier} was full ({limit})"),
        Cause::Hard => format!("the hard limit was reached ({limit})"),
        Cause::Inaccessible => "the resource is configured without tiers: inaccessible".to_owned(),
        Cause::Unconfigured => {
            "the resource is not configured, and its namespace does not allow unconfigured resources".to_owned()
        }
        Cause::Banned => banned(explanation.version.as_ref()),
        Cause::Window(_) | Cause::Quota(_) | Cause::Bucket => {
            constraints::closed_by(&explanation.constraints, &denial.cause.to_string())
        }
        other => other.to_string(),
    };
    all.push(format!(
        "{who} was denied from {} {}: {closed}, by limits version {}",
        since(stated.since, stated.is_older),
        UntilUtc(denial.end),
        denial.version
    ));
    if let Some(window) = explanation.window.as_ref().filter(|window| 0 < window.hits) {
        all.push(filled_by(window, denial.cause));
    }
    for tier in explanation
        .tiers
        .iter()
        .filter(|tier| tier.phase == "cooling")
    {
        all.push(cooling(tier));
    }
    if until != denial.end {
        all.push(match until {
            Timestamp::MAX => "a later statement denied it for ever".to_owned(),
            end => format!(
                "by a later statement, it was open again from {} on",
                Utc(end)
            ),
        });
    }
    all.push(refused(explanation, "hits"));
    if 0 < explanation.excess.hits {
        all.push(format!(
            "{} hits more were let through meanwhile (excess)",
            explanation.excess.hits
        ));
    }
    explanation.sentences = all;
}

/// When a denial began; of one that is older than what was read, before which instant.
pub(super) fn since(at: Timestamp, is_older: bool) -> String {
    match is_older {
        true => format!("before {}", Utc(at)),
        false => Utc(at).to_string(),
    }
}

/// How many calls agents refused under the code, and under the other codes of the denial; `unit`: what they asked for.
pub(super) fn refused(explanation: &Explanation, unit: &str) -> String {
    let Tally { calls, hits, .. } = &explanation.refused;
    let of_all = explanation.statements.iter().map(|of| of.refused_calls);
    let others = of_all.sum::<u64>().saturating_sub(*calls);
    let under_others = match others {
        0 => String::new(),
        _ => format!("; {others} more under the other codes of this denial"),
    };
    match calls {
        0 => format!("the log has no calls that agents refused under this code{under_others}"),
        _ => format!(
            "agents refused {calls} calls under this code, which asked for {hits} {unit}{under_others}"
        ),
    }
}

/// What is not counted because it was too much to be remembered: calls since `from`, and reports since `since`.
pub(super) fn uncounted(
    of: &Unremembered,
    from: Timestamp,
    since: Timestamp,
) -> impl Iterator<Item = String> {
    let is_since = |upto: Option<Timestamp>, since| upto.is_some_and(|upto| since <= upto);
    let only = |newest: usize, what: &str| {
        format!("only the newest {newest} {what} are counted, and there were more at that time")
    };
    let entries = is_since(of.entries_upto, from);
    let entries = entries.then(|| only(ENTRIES_MAX, "calls that were let through"));
    let reports = is_since(of.reports_upto, since);
    let reports = reports.then(|| only(OTHERS_MAX, "reports of refused calls"));
    entries.into_iter().chain(reports)
}

/// The agents whose hits filled a window, or used up a quota or a bucket.
fn filled_by(window: &WindowView, cause: Cause) -> String {
    let agents: Vec<String> = window
        .by_agent
        .iter()
        .take(5)
        .map(|of| format!("{} by {}", of.hits, escaped(&of.agent)))
        .collect();
    let what = match cause {
        Cause::Quota(_) | Cause::Bucket => "used it up",
        _ => "filled it",
    };
    format!(
        "{} hits {what} between {} and {}: {}",
        window.hits,
        Utc(Timestamp::from_micros(window.from_us)),
        Utc(Timestamp::from_micros(window.to_us)),
        agents.join(", ")
    )
}

/// The operator of the ban, and the reason, if the version is a ban.
pub(super) fn banned(version: Option<&VersionView>) -> String {
    match version.and_then(|version| version.amendment.as_ref()) {
        Some(amendment) => format!("an operator had banned it ({amendment})"),
        None => "an operator had banned it".to_owned(),
    }
}

fn cooling(tier: &TierView) -> String {
    let instant = |us: Option<u64>| us.map_or(Timestamp::MAX, Timestamp::from_micros);
    let by = match (&tier.entered_by, &tier.entered_at) {
        (Some(agent), Some(position)) => format!("by a hit of {} ({position})", escaped(agent)),
        _ => "before what was read".to_owned(),
    };
    let skipped = if tier.skippable {
        " (it is skippable)"
    } else {
        ""
    };
    format!(
        "tier {} was cooling down {}{skipped}: a burst had entered it at {}, {by}",
        tier.tier,
        UntilUtc(instant(tier.cooling_until_us)),
        Utc(instant(tier.entered_us))
    )
}
