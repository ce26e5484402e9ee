//! What is told of a swarm: for people, and as JSON.
//!
//! ```text
//! seeds           43341 from 4000000, 30 of them kept
//! violations      1
//!   seed 4027243  (--way 6) law 4, the second engine goes on at 3.200000 s: ...
//! ```
//!
//! Knows nothing of how seeds are run. What stays true: whatever makes a swarm fail is told in both, and what an
//! earlier part of it found as much as what the last one did. Where nothing is required, people are told only how much
//! was not met; JSON always names it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::history::History;
use super::swarm::Report;

/// Decisions in a second of one core.
pub fn per_second(report: &Report) -> u64 {
    (report.decisions as f64 / report.worked.as_secs_f64().max(1e-9)) as u64
}

/// For people.
pub fn text(first: u64, report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_text(&mut text, first, report);
    text
}

fn write_text(to: &mut String, first: u64, report: &Report) -> fmt::Result {
    writeln!(to, "date            {}", date())?;
    match &report.builds[..] {
        [build] => writeln!(to, "build           {build}")?,
        builds => {
            writeln!(
                to,
                "warning         several builds took part, and what is told may be of any of them"
            )?;
            for build in builds {
                writeln!(to, "  build         {build}")?;
            }
        }
    }
    let (seeds, kept) = (report.seeds, report.kept);
    writeln!(
        to,
        "seeds           {seeds} from {first}, {kept} of them kept"
    )?;
    writeln!(
        to,
        "decisions       {} ({} a second of one core)",
        report.decisions,
        per_second(report)
    )?;
    writeln!(
        to,
        "took            {} s, of which {} s at work",
        report.elapsed.as_secs(),
        report.worked.as_secs()
    )?;
    writeln!(to, "refused         {}", report.refusals)?;
    if !report.proves_something() {
        writeln!(to, "proves nothing  nobody was refused, so it has failed")?;
    }
    writeln!(to, "violations      {}", report.failed.len())?;
    for failed in &report.failed {
        let (seed, way) = (failed.seed, failed.way);
        writeln!(to, "  seed {seed}  (--way {way}) {}", failed.violation)?;
    }
    writeln!(to, "died holding    {}", report.returns.kills)?;
    if report.only_kills {
        writeln!(to, "back within     {} us", report.returns.longest_us)?;
    }
    if !report.rates.is_empty() {
        writeln!(to, "rates           {}", report.rates.join(" "))?;
    }
    let is_told = |times: u64| 0 < times || !report.is_held_to_nothing();
    writeln!(to, "faults          {}", faults(report))?;
    for kind in Fault::KINDS {
        let times = of_kind(report, kind);
        if is_told(times) {
            writeln!(to, "  {times:>12}  {kind}")?;
        }
    }
    writeln!(to, "met")?;
    for (what, times) in report.cover.all().filter(|(_, times)| is_told(*times)) {
        writeln!(to, "  {times:>12}  {what}")?;
    }
    for missing in report.missing() {
        writeln!(to, "never met       {missing}")?;
    }
    match report.is_held_to_nothing() {
        true => write_how_much_was_not_met(to, report),
        false => report.not_met_yet().iter().try_for_each(|(missing, from)| {
            writeln!(
                to,
                "not met yet     {missing}  (required from {from} seeds on)"
            )
        }),
    }
}

/// One line for all that was not met and need not have been.
fn write_how_much_was_not_met(to: &mut String, report: &Report) -> fmt::Result {
    let mut required: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, from) in report.not_met_yet() {
        *required.entry(from).or_default() += 1;
    }
    let (not_met, all) = (required.values().sum::<usize>(), Report::meetable());
    let why = match (not_met, report.only_kills || !report.rates.is_empty()) {
        (0, _) => return Ok(()),
        (_, true) => "none is required where all is about kills, or rates are asked for".to_owned(),
        (_, false) => {
            let required = required.iter();
            let parts =
                required.map(|(from, count)| format!("{count} required from {from} new seeds on"));
            parts.collect::<Vec<_>>().join(", ")
        }
    };
    writeln!(
        to,
        "not met         {not_met} of {all} counters and faults: {why}; --format json names them"
    )
}

/// As JSON; `shortest` is of the first seed that failed.
pub fn json(first: u64, report: &Report, shortest: Option<&History>) -> Value {
    let cover: Map<String, Value> = report
        .cover
        .all()
        .map(|(what, times)| (what.to_owned(), times.into()))
        .collect();
    let by_kind: Map<String, Value> = Fault::KINDS
        .into_iter()
        .map(|kind| (kind.to_owned(), of_kind(report, kind).into()))
        .collect();
    let failures: Vec<Value> = report
        .failed
        .iter()
        .map(|failed| {
            let violation = &failed.violation;
            json!({
                "seed": failed.seed,
                "way": failed.way,
                "law": violation.law,
                "check": violation.check,
                "at_us": violation.at_us,
                "what": violation.what,
            })
        })
        .collect();
    let not_met_yet = report.not_met_yet().into_iter();
    let not_met_yet: Vec<String> = not_met_yet.map(|(what, _)| what).collect();
    let failed_seeds: Vec<u64> = report.failed.iter().map(|failed| failed.seed).collect();
    json!({
        "schema": "tollgate.simulation/1",
        "date": date(),
        "builds": report.builds,
        "first_seed": first,
        "seeds": report.seeds,
        "kept_seeds": report.kept,
        "decisions": report.decisions,
        "decisions_per_s": per_second(report),
        "refusals": report.refusals,
        "proves_something": report.proves_something(),
        "faults": faults(report),
        "faults_by_kind": by_kind,
        "died_holding": report.returns.kills,
        "rates": report.rates,
        "back_within_us": report.only_kills.then_some(report.returns.longest_us),
        "elapsed_us": report.elapsed.as_micros() as u64,
        "worked_us": report.worked.as_micros() as u64,
        "coverage": cover,
        "never_met": report.missing(),
        "not_met_yet": not_met_yet,
        "failed_seeds": failed_seeds,
        "violation": failures.first(),
        "failures": failures,
        "shortest_history": shortest.map(History::json),
    })
}

fn date() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

fn faults(report: &Report) -> u64 {
    report.faults.values().sum()
}

fn of_kind(report: &Report, kind: &str) -> u64 {
    report.faults.get(kind).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::coverage::{COMMON, SELDOM};
    use super::super::report::SEEDS_THAT_MEET_THE_COMMON;
    use super::super::swarm::{Failed, SEEDS_THAT_MEET_ALL};
    use super::super::trace::Violation;
    use super::*;

    fn report() -> Report {
        Report {
            seeds: 3,
            kept: 1,
            refusals: 5,
            faults: BTreeMap::from([("cut", 2), ("disk full", 1)]),
            builds: vec!["one".to_owned()],
            ..Report::default()
        }
    }

    #[test]
    fn faults_are_told_by_kind_and_the_build_and_the_date_are_named() {
        let (text, json) = (text(1, &report()), json(1, &report(), None));
        assert!(text.contains("faults          3\n"), "{text}");
        assert!(text.contains("             2  cut\n"), "{text}");
        assert!(!text.contains("topic made anew\n"), "{text}");
        assert!(text.contains("build           one\n"), "{text}");
        assert!(text.contains("3 from 1, 1 of them kept\n"), "{text}");
        assert!(!text.contains("proves nothing"), "{text}");
        assert_eq!(json["faults"], 3);
        assert_eq!(json["faults_by_kind"]["cut"], 2);
        assert_eq!(json["builds"], json!(["one"]));
        assert!(json["date"].as_str().is_some_and(|date| date.len() == 20));
    }

    #[test]
    fn where_nothing_is_required_one_line_tells_how_much_was_not_met() {
        let one_line = |report: &Report| {
            let told = text(1, report);
            let lines = told.lines().filter(|line| line.contains("met  "));
            let lines: Vec<_> = lines.map(str::to_owned).collect();
            assert_eq!(lines.len(), 1, "{told}");
            assert!(told.lines().count() < 20, "{told}");
            lines.concat()
        };
        // Two kinds of faults were planned.
        let (all, few) = (Report::meetable(), report());
        let (common, seldom) = (COMMON.len(), SELDOM.len());
        let line = one_line(&few);
        let expected = format!(
            "not met         {} of {all} counters and faults: {common} required from 100 new seeds on, {} required \
             from 3000 new seeds on, {seldom} required from 40000 new seeds on; --format json names them",
            all - 2,
            all - 2 - common - seldom,
        );
        assert_eq!(line, expected);
        let rates = vec!["lost=0.5".to_owned()];
        for report in [
            Report {
                rates,
                seeds: 5_000,
                ..report()
            },
            Report {
                only_kills: true,
                seeds: 5_000,
                ..report()
            },
        ] {
            let line = one_line(&report);
            let expected = "none is required where all is about kills, or rates are asked for";
            assert!(line.contains(expected), "{line}");
            let told = json(1, &report, None);
            let not_yet = told["not_met_yet"].as_array().expect("a list");
            assert_eq!(not_yet.len(), all - 2);
        }
    }

    #[test]
    fn what_was_not_met_is_named_from_where_on_something_is_required() {
        let (few, enough) = (report(), SEEDS_THAT_MEET_ALL);
        assert!(few.is_good());
        let hundred = Report {
            seeds: SEEDS_THAT_MEET_THE_COMMON + few.kept,
            ..report()
        };
        let told = text(1, &hundred);
        assert!(told.contains("never met       hit excess\n"), "{told}");
        assert!(told.contains("             0  topic made anew\n"), "{told}");
        let line = format!("not met yet     fault: retention  (required from {enough} seeds on)\n");
        assert!(told.contains(&line), "{told}");
        let told = json(1, &few, None);
        let not_yet = told["not_met_yet"].as_array().expect("a list");
        assert!(not_yet.contains(&json!("fault: retention")));
        let many = Report {
            seeds: enough + few.kept,
            ..few
        };
        let told = text(1, &many);
        assert!(
            told.contains("never met       fault: retention\n"),
            "{told}"
        );
        assert!(!told.contains("not met yet     fault"), "{told}");
        let told = json(1, &many, None);
        let missing = told["never_met"].as_array().expect("a list");
        assert!(missing.contains(&json!("fault: retention")));
    }

    #[test]
    fn several_builds_are_a_warning() {
        let builds = vec!["one".to_owned(), "other".to_owned()];
        let text = text(1, &Report { builds, ..report() });
        assert!(
            text.contains("warning         several builds took part"),
            "{text}"
        );
        assert!(text.contains("build         one\n  build         other\n"));
    }

    #[test]
    fn it_says_why_a_swarm_in_which_nobody_was_refused_has_failed() {
        let report = Report {
            refusals: 0,
            ..report()
        };
        assert!(!report.is_good());
        assert!(text(1, &report).contains("proves nothing  nobody was refused"));
        assert_eq!(json(1, &report, None)["proves_something"], false);
    }

    #[test]
    fn every_seed_that_failed_is_told_with_its_way_and_the_first_is_the_violation() {
        let failed = |seed, way| Failed {
            seed,
            way,
            violation: Violation {
                law: 3,
                at_us: 5,
                check: "a check".into(),
                what: "what".to_owned(),
            },
        };
        let report = Report {
            failed: vec![failed(7, 3), failed(8, 6)],
            ..report()
        };
        let (text, json) = (text(1, &report), json(1, &report, None));
        assert!(
            text.contains("  seed 7  (--way 3) law 3, a check at 0.000005 s: what\n"),
            "{text}"
        );
        assert_eq!(json["failed_seeds"], json!([7, 8]));
        assert_eq!(json["violation"]["seed"], 7);
        assert_eq!(json["failures"][1]["way"], 6);
    }
}
