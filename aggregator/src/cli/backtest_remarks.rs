//! What a backtest's figures do not show, on the standard error.
//!
//! Knows the recording, the limits documents and the suggestions, not the other results.

use tollgate_limits::{Limits, Mode, RateClass, RateResource};
use tollgate_replay::backtest::read::{Recording, RowReading};
use tollgate_replay::backtest::suggest::Suggestions;
use tollgate_replay::range::Utc;
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Timestamp;

use super::backtest_limits::Document;

/// The tables of zones in documents end here.
const ZONES_UNTIL: Timestamp = Timestamp::from_millis(2_840_140_800_000);

/// Reports resources whose limits deny nobody in a fleet, limits that the domain played shares with others, and traffic
/// from before or after the tables of zones.
pub(super) fn print(recording: &Recording, documents: &[Document], reading: &RowReading) {
    for Document { name, limits } in documents {
        let recorded = recording.pairs.resources();
        let rates = recorded.filter_map(|of| Some((of, limits.rate(of)?)));
        let shared = shared(rates.clone(), reading.only_domain.as_deref());
        if !shared.is_empty() {
            remark!(
                "{name}: only calls of one domain are played, and it shares limits with others (global ones, or those of a network), so that more are refused than the report says: {}",
                shared.join(", ")
            );
        }
        print_idle(name, limits, rates.map(|(of, _)| of), "report says");
        let extent = recording.tape.extent();
        print_unzoned(name, limits.classes(), (extent.first, extent.last));
    }
}

/// Reports those of some resources whose limits deny nobody in a fleet; `shown_by` shows what they would do.
pub(super) fn print_idle<'a>(
    name: &str,
    limits: &Limits,
    resources: impl Iterator<Item = &'a str>,
    shown_by: &str,
) {
    let is_idle = |of: &&str| {
        let is_shadow = |rate: &RateResource| rate.mode() != Mode::Enforced;
        limits.namespace_of(of).ignore_configured || limits.rate(of).is_some_and(is_shadow)
    };
    let idle = resources.filter(is_idle);
    let idle: Vec<String> = idle.map(|of| escaped(of).to_string()).collect();
    if !idle.is_empty() {
        remark!(
            "{name}: in shadow, or in a namespace that ignores limits, so that a fleet refuses nothing: {}; the \
             {shown_by} what these limits would do",
            idle.join(", ")
        );
    }
}

/// The resources of which a domain shares limits with other domains.
fn shared<'a>(
    rates: impl Iterator<Item = (&'a str, &'a RateResource)>,
    domain: Option<&str>,
) -> Vec<String> {
    let Some(domain) = domain else {
        return Vec::new();
    };
    let is_part = |rate: &RateResource| rate.limited_as(domain).is_ok_and(|of| of != domain);
    let shared = rates.filter(|(_, rate)| rate.global().is_some() || is_part(rate));
    shared.map(|(of, _)| escaped(of).to_string()).collect()
}

/// Reports that instants are before or after the tables of the zones by which quotas count.
pub(super) fn print_unzoned<'a>(
    name: &str,
    classes: impl IntoIterator<Item = &'a RateClass>,
    (first, last): (Timestamp, Timestamp),
) {
    let zones = classes.into_iter().flat_map(|class| &class.quotas);
    let changes = zones.filter_map(|quota| quota.zone.offsets().get(1));
    let from = changes.map(|(at, _)| *at).max();
    if let Some(from) = from.filter(|from| first < *from || ZONES_UNTIL <= last) {
        remark!(
            "{name}: the tables of its zones begin at {} and end in 2059: before and after that, quotas count by a fixed offset; [zones] may state more",
            Utc(from)
        );
    }
}

/// Reports the limited resources, and the constraints, for which there is no suggestion.
pub(super) fn print_unsuggested(
    recording: &Recording,
    documents: &[Document],
    suggestions: &Suggestions,
) {
    let is_limited = |name: &&str| documents.iter().any(|of| of.limits.rate(name).is_some());
    let Suggestions { found, unanswered } = suggestions;
    let is_found = |name: &&str| found.iter().any(|of| of.resource == *name);
    let is_unanswered = |name: &&str| unanswered.iter().any(|(of, _)| of == name);
    let is_suggested = |name: &&str| is_found(name) || is_unanswered(name);
    let recorded = recording.pairs.resources().filter(is_limited);
    let without = recorded.filter(|name| !is_suggested(name));
    let without: Vec<String> = without.map(|name| escaped(name).to_string()).collect();
    if !without.is_empty() {
        remark!(
            "no suggestion for {}: no window, bucket, quota, tier or hard limit of a domain is stated; global limits are not searched",
            without.join(", ")
        );
    }
    if !unanswered.is_empty() {
        let each = unanswered.iter();
        let each = each.map(|(resource, stated)| format!("{}: {stated}", escaped(resource)));
        let each: Vec<String> = each.collect();
        remark!(
            "no suggestion where no limit suffices that a document may state: {}",
            each.join("; ")
        );
    }
}
