//! The report at the end of a demonstration: one JSON object, or a page for people.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::copies::{Returned, Subject};
use super::cost::Cost;
use super::replayed::BusyStretch;
use super::verdict::{PartCalls, Verdict};
use tollgate_replay::traffic::FileReading;

/// The report. Its fields are stable: new ones may be added.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DemoReport {
    /// The schema's name.
    pub schema: &'static str,
    /// Calls made before the outage.
    pub offered: u64,
    /// Of these, let through.
    pub let_through: u64,
    /// Of these, refused because of denials.
    pub refused: u64,
    /// Of these, refused by an agent's own policy.
    pub refused_by_policy: u64,
    /// Hits that were let through although an ideal limiter over the log refuses them.
    pub excess: u64,
    /// What an ideal in-line limiter would have let through of the calls offered.
    pub ideal_let_through: u64,
    /// (let through − ideal) ÷ ideal, the median of pairs and windows; of pairs whose calls ask for one copy.
    pub overshoot_percent_median: Option<f64>,
    /// The worst of them.
    pub overshoot_percent_worst: Option<f64>,
    /// The least of them; below zero: under-admission.
    pub overshoot_percent_least: Option<f64>,
    /// The same for all these windows together.
    pub overshoot_percent_whole: Option<f64>,
    /// The same for pairs whose calls ask for several copies each. The ideal limiter lets none of them through if
    /// not all have room, and Tollgate lets all through if one has.
    pub overshoot_percent_weighted: Option<f64>,
    /// How many windows were compared.
    pub overshoot_windows: usize,
    /// Refusals, outage included, that the independent model does not justify.
    pub unjustified_refusals: u64,
    /// Pairs, and resources under a global limit, of which more was let through before the outage than allowed: their
    /// limits, the calls offered within one denial delay, and one call per agent.
    pub effect_violations: u64,
    /// Copies let through before the outage that `effect_violations` covers.
    pub effect_judged: u64,
    /// Copies that it does not cover: their agent had no current watermark, or stamped them more than an eighth of a
    /// second late.
    pub effect_unjudged: u64,
    /// From the call that filled a window until the slowest agent's deny list had the denial: the median.
    pub denial_delay_us_p50: Option<u64>,
    /// The same: the 99th percentile.
    pub denial_delay_us_p99: Option<u64>,
    /// Denials before the outage.
    pub denials: u64,
    /// Of these, denials that some agent did not enter.
    pub denials_unheard: u64,
    /// The cost of a call, by blocks of 1,000.
    pub hit_ns_p50: Option<u64>,
    /// The cost of a single call, timer included.
    pub hit_ns_p99: Option<u64>,
    /// The cost of the timer alone.
    pub timer_ns_p99: Option<u64>,
    /// The cost of a call while the aggregator did not run.
    pub hit_ns_p50_blind: Option<u64>,
    /// Hits that the recorders took, of all that were let through.
    pub accepted_percent: f64,
    /// Calls made from the outage on.
    pub outage_offered: u64,
    /// Of these, let through.
    pub outage_let_through: u64,
    /// Of these, refused.
    pub outage_refused: u64,
    /// How long the aggregator did not run; null: it always ran.
    pub outage_ms: Option<u64>,
    /// From its restart until it was ready and the log had everything that agents had recorded by then.
    pub caught_up_ms: Option<u64>,
    /// The resource whose copies the killed process held; null if no resource of the limits is suitable.
    pub copies_resource: Option<String>,
    /// The copies that it held.
    pub copies_held: Option<u64>,
    /// The silence after which an agent is gone.
    pub copies_agent_timeout_ms: Option<u64>,
    /// From the kill until another process held all of them, confirmed by the aggregator; null if that never
    /// happened.
    pub copies_back_ms: Option<u64>,
    /// Of the copies held, those that the other process could not take.
    pub copies_lost: Option<u64>,
    /// Records of the log that the model could not read.
    pub log_records_unread: u64,
    /// The seed.
    pub seed: u64,
    /// If Kafka was the log: the prefix of its topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_prefix: Option<String>,
    /// If an access log was replayed: how many of its seconds were covered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log_covered_s: Option<u64>,
    /// Its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log_lines: Option<u64>,
    /// Its unreadable lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log_skipped: Option<u64>,
    /// How it was read: its format, and the field with the client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_log_read_as: Vec<FileReading>,
    /// The time over which the calls of one whole second (or minute) were spread; 0: they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log_spread_us: Option<u64>,
    /// Notes for people about how it was read.
    #[serde(skip)]
    pub access_log_notes: Vec<String>,
    /// The first unjustified refusals, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unjustified_shown: Vec<String>,
    /// The first effect violations, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effect_shown: Vec<String>,
}

/// The agents' own counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentCounts {
    /// Hits taken by recorders.
    pub accepted: u64,
    /// Hits dropped anywhere.
    pub dropped: u64,
}

impl DemoReport {
    /// The report of a verdict.
    pub fn of(
        verdict: Verdict,
        costs: &[(Option<Cost>, Option<Cost>)],
        counts: AgentCounts,
    ) -> Self {
        let PartCalls {
            offered,
            let_through,
            refused,
            by_policy,
        } = verdict.calls;
        let delay = verdict.delay_us();
        let overshoot = verdict.overshoot;
        // Each process measured for itself; the slowest one is reported.
        let worst = |pick: fn(&Cost) -> u64| {
            costs
                .iter()
                .filter_map(|(normal, _)| normal.as_ref().map(pick))
                .max()
        };
        let percent = |value: f64| (value * 1000.0).round() / 1000.0;
        Self {
            schema: "tollgate.demo/1",
            offered,
            let_through,
            refused,
            refused_by_policy: by_policy,
            excess: verdict.excess,
            ideal_let_through: verdict.ideal_let_through,
            overshoot_percent_median: overshoot.map(|o| percent(o.median)),
            overshoot_percent_worst: overshoot.map(|o| percent(o.worst)),
            overshoot_percent_least: overshoot.map(|o| percent(o.least)),
            overshoot_percent_whole: overshoot.map(|o| percent(o.whole)),
            overshoot_percent_weighted: verdict.overshoot_weighted.map(|o| percent(o.whole)),
            overshoot_windows: overshoot.map_or(0, |o| o.windows),
            unjustified_refusals: verdict.unjustified,
            denial_delay_us_p50: delay.map(|(p50, _)| p50),
            denial_delay_us_p99: delay.map(|(_, p99)| p99),
            denials: verdict.denials,
            denials_unheard: verdict.unheard,
            hit_ns_p50: worst(|cost| cost.p50_ns),
            hit_ns_p99: worst(|cost| cost.p99_ns),
            timer_ns_p99: worst(|cost| cost.timer_p99_ns),
            hit_ns_p50_blind: costs
                .iter()
                .filter_map(|(_, blind)| blind.map(|cost| cost.p50_ns))
                .max(),
            accepted_percent: percent(share_percent(counts)),
            outage_offered: verdict.later.offered,
            outage_let_through: verdict.later.let_through,
            outage_refused: verdict.later.refused,
            unjustified_shown: verdict.unjustified_shown,
            effect_violations: verdict.effect_violations,
            effect_judged: verdict.effect_judged,
            effect_unjudged: verdict.effect_unjudged,
            effect_shown: verdict.effect_shown,
            ..Self::default()
        }
    }

    /// Adds facts about the access log.
    pub fn with_stretch(mut self, stretch: Option<&BusyStretch>) -> Self {
        self.access_log_covered_s = stretch.map(|stretch| stretch.covered_s);
        self.access_log_lines = stretch.map(|stretch| stretch.lines);
        self.access_log_skipped = stretch.map(|stretch| stretch.skipped);
        self.access_log_spread_us = stretch.map(|stretch| stretch.spread_us);
        if let Some(stretch) = stretch {
            self.access_log_read_as.clone_from(&stretch.read_as);
            self.access_log_notes.clone_from(&stretch.notes);
        }
        self
    }

    /// Adds the result of the part with copies.
    pub(super) fn add_copies(&mut self, subject: &Subject, returned: &Returned) {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.copies_resource = Some(subject.resource.clone());
        self.copies_held = Some(returned.held.into());
        self.copies_agent_timeout_ms = Some(ms(subject.agent_timeout));
        self.copies_back_ms = returned.back.map(ms);
        self.copies_lost = Some(returned.lost.into());
    }

    /// The page for people.
    pub fn page(&self) -> String {
        let mut page = String::new();
        let mut row = |what: &str, value: String, note: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(page, "  {what:<34}{value:>14}  {note}");
        };
        self.calls_page(&mut row);
        self.overshoot_page(&mut row);
        self.delays_page(&mut row);
        self.outage_page(&mut row);
        self.copies_page(&mut row);
        for note in &self.access_log_notes {
            let _ = writeln!(page, "  {note}");
        }
        for shown in &self.unjustified_shown {
            let _ = writeln!(page, "  unjustified: {shown}");
        }
        for shown in &self.effect_shown {
            let _ = writeln!(page, "  not limited: {shown}");
        }
        page
    }

    /// The rows on calls and their outcome.
    fn calls_page(&self, row: &mut impl FnMut(&str, String, &str)) {
        let which = match self.outage_ms {
            Some(_) => "calls before the outage",
            None => "calls",
        };
        row("offered", self.offered.to_string(), which);
        row("let through", self.let_through.to_string(), "");
        row("refused", self.refused.to_string(), "");
        if self.refused_by_policy != 0 {
            row(
                "refused by policy",
                self.refused_by_policy.to_string(),
                "blind or unconfigured",
            );
        }
        row(
            "ideal in-line limiter",
            self.ideal_let_through.to_string(),
            "would have let through",
        );
    }

    /// The rows on overshoot, and on what the model found.
    fn overshoot_page(&self, row: &mut impl FnMut(&str, String, &str)) {
        row(
            "excess",
            self.excess.to_string(),
            "let through although a window was full",
        );
        row(
            "overshoot, whole run",
            percent(self.overshoot_percent_whole),
            "of pairs at a limit",
        );
        row(
            "overshoot, weighted",
            percent(self.overshoot_percent_weighted),
            "of pairs at a limit whose calls ask for several copies",
        );
        row(
            "overshoot, median",
            percent(self.overshoot_percent_median),
            "of pairs and windows at a limit",
        );
        row(
            "overshoot, worst",
            percent(self.overshoot_percent_worst),
            &format!("of {} windows", self.overshoot_windows),
        );
        row(
            "unjustified refusals",
            self.unjustified_refusals.to_string(),
            "by the independent model over the log",
        );
        row(
            "effect violations",
            self.effect_violations.to_string(),
            "above limit, one delay, a call an agent",
        );
        row(
            "  not judged",
            self.effect_unjudged.to_string(),
            &format!(
                "of {}: their agent received nothing from an aggregator, or stamped late",
                self.effect_judged.saturating_add(self.effect_unjudged)
            ),
        );
    }

    /// The rows on delays of denials and the cost of calls.
    fn delays_page(&self, row: &mut impl FnMut(&str, String, &str)) {
        row(
            "denial delay, p50",
            micros(self.denial_delay_us_p50),
            "filling call to slowest agent",
        );
        row(
            "denial delay, p99",
            micros(self.denial_delay_us_p99),
            &format!("of {} denials", self.denials),
        );
        row("a call, p50", nanos(self.hit_ns_p50), "blocks of 1,000");
        row(
            "a call, p99",
            nanos(self.hit_ns_p99),
            &format!("single calls; the timer alone {}", nanos(self.timer_ns_p99)),
        );
        row(
            "accepted by the recorder",
            format!("{:.3} %", self.accepted_percent),
            "",
        );
    }

    /// The rows on the outage.
    fn outage_page(&self, row: &mut impl FnMut(&str, String, &str)) {
        if let Some(away) = self.outage_ms {
            row("aggregator away", format!("{away} ms"), "calls went on:");
            row("  a call meanwhile, p50", nanos(self.hit_ns_p50_blind), "");
            row(
                "  let through, from then on",
                self.outage_let_through.to_string(),
                &format!("of {}", self.outage_offered),
            );
            row(
                "  caught up after",
                self.caught_up_ms
                    .map_or("-".into(), |ms| format!("{ms} ms")),
                "from its start; the log has all of it",
            );
        }
    }

    fn copies_page(&self, row: &mut impl FnMut(&str, String, &str)) {
        let Some(held) = self.copies_held else {
            return;
        };
        row(
            "copies of a killed process",
            held.to_string(),
            self.copies_resource.as_deref().unwrap_or_default(),
        );
        let timeout = self.copies_agent_timeout_ms.unwrap_or_default();
        row(
            "  held by another after",
            self.copies_back_ms
                .map_or("-".into(), |ms| format!("{ms} ms")),
            &format!("from the kill; agent_timeout is {timeout} ms"),
        );
        row(
            "  lost",
            self.copies_lost.unwrap_or_default().to_string(),
            "",
        );
    }

    /// Whether the demonstration succeeded: there were refusals, all justified; limits had their effect; no copies
    /// were lost.
    pub fn convinces(&self) -> bool {
        let all_back = self.copies_lost.is_none_or(|lost| lost == 0);
        0 < self.refused
            && self.unjustified_refusals == 0
            && self.effect_violations == 0
            && all_back
    }
}

fn share_percent(counts: AgentCounts) -> f64 {
    let all = counts.accepted.saturating_add(counts.dropped);
    if all == 0 {
        100.0
    } else {
        counts.accepted as f64 * 100.0 / all as f64
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} %"))
}

fn micros(value: Option<u64>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| format!("{:.2} ms", value as f64 / 1000.0),
    )
}

fn nanos(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value} ns"))
}
