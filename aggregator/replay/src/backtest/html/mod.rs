//! A self-contained page about a backtest: no network, no script.
//!
//! Knows only reports and traces. What stays true: whatever a name contains, the page shows it as
//! text.

mod style;
pub mod svg;

use std::fmt::Write as _;

use tollgate_limits::print_span;
use tollgate_shared::time::Span;

use super::report::{BacktestReport, PairReport, ResultReport};
use super::table::{count, instant, span};
use super::trace::{Column, Trace};
use crate::fill;
use svg::{Area, Bar, LEFT, Svg, WIDTH, bars, escaped, instants};

/// The page; `traces` has for each result the trace of a pair, if there is one.
pub fn page(report: &BacktestReport, traces: &[Option<Trace>]) -> String {
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>tollgate backtest</title>\n",
    );
    let _ = writeln!(html, "<style>{}</style>\n</head>\n<body>", style::STYLE);
    push_inputs(&mut html, report);
    push_summary(&mut html, report);
    push_suggestions(&mut html, report);
    for (number, result) in report.results.iter().enumerate() {
        push_result(
            &mut html,
            result,
            traces.get(number).and_then(Option::as_ref),
        );
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn push_inputs(html: &mut String, report: &BacktestReport) {
    let inputs = &report.inputs;
    let _ = writeln!(
        html,
        "<h1>Backtest</h1>\n<p>{}: {} rows, {} skipped, {} domains; {} to {}.</p>",
        escaped(&inputs.names.join(", ")),
        count(inputs.rows),
        count(inputs.skipped),
        count(inputs.domains),
        instant(inputs.first_us),
        instant(inputs.last_us),
    );
    for note in inputs.notes() {
        let _ = writeln!(html, "<p>{}</p>", escaped(&note));
    }
}

/// A table: names at the left, numbers at the right.
fn push_table(html: &mut String, heading: &[&str], rows: &[Vec<String>]) {
    html.push_str("<table>\n<tr>");
    for cell in heading {
        let _ = write!(html, "<th>{}</th>", escaped(cell));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
}

fn push_summary(html: &mut String, report: &BacktestReport) {
    let row = |result: &ResultReport| {
        vec![
            result.limits.clone(),
            count(result.calls),
            count(result.granted),
            count(result.refused),
            format!("{:.3}", 100.0 * result.refused_share),
            count(result.excess),
            count(result.domains),
            count(result.domains_refused),
        ]
    };
    let rows: Vec<_> = report.results.iter().map(row).collect();
    let heading = [
        "limits",
        "calls",
        "granted",
        "refused",
        "%",
        "excess",
        "domains",
        "domains refused",
    ];
    push_table(html, &heading, &rows);
}

fn push_suggestions(html: &mut String, report: &BacktestReport) {
    if report.suggestions.is_empty() {
        return;
    }
    html.push_str("<h2>Least limits</h2>\n<p>Each as the only constraint of every domain.</p>\n");
    let row = |of: &super::suggest::Suggestion| {
        vec![
            of.of(),
            of.written.clone(),
            count(of.refused),
            format!("{:.3}", 100.0 * of.refused_share),
        ]
    };
    let rows: Vec<_> = report.suggestions.iter().map(row).collect();
    push_table(html, &["resource", "least limit", "refused", "%"], &rows);
}

fn push_result(html: &mut String, result: &ResultReport, trace: Option<&Trace>) {
    let _ = writeln!(html, "<section>\n<h2>{}</h2>", escaped(&result.limits));
    html.push_str("<p class=\"legend\"><span class=\"granted\"></span>granted <span class=\"refused\"></span>refused</p>\n");
    let timeline = &result.timeline;
    let _ = writeln!(
        html,
        "<h3>Hits over time, by {}</h3>",
        span(timeline.stretch_us)
    );
    html.push_str(&timeline_plot(result));
    if !result.worst.is_empty() {
        html.push_str("<h3>The most refused pairs</h3>\n");
        html.push_str(&pairs_plot(&result.worst));
    }
    if let Some(trace) = trace {
        let _ = writeln!(
            html,
            "<h3>{} of {}</h3>\n<p class=\"legend\"><span class=\"held\"></span>used of a limit <span class=\"active\"></span>tier active <span class=\"cooling\"></span>tier cooling down</p>",
            escaped(&trace.domain),
            escaped(&trace.resource)
        );
        html.push_str(&trace_plot(trace));
    }
    if let Some(compared) = &result.compared {
        for (what, change) in [
            ("Newly refused", &compared.newly_refused),
            ("No longer refused", &compared.no_longer_refused),
        ] {
            let _ = writeln!(
                html,
                "<h3>{what}, against {}: {} pairs, {} calls</h3>",
                escaped(&compared.with),
                count(change.pairs),
                count(change.refused)
            );
            if !change.shown.is_empty() {
                html.push_str(&pairs_plot(&change.shown));
            }
        }
    }
    html.push_str("</section>\n");
}

fn timeline_plot(result: &ResultReport) -> String {
    let timeline = &result.timeline;
    let mut svg = Svg::new(230.0, "hits granted and refused over time");
    let within = Area {
        x: LEFT,
        y: 10.0,
        width: WIDTH - LEFT,
        height: 190.0,
    };
    let numbered = timeline.granted.iter().zip(&timeline.refused).enumerate();
    let bar = |(number, (granted, refused)): (usize, (&u64, &u64))| Bar {
        granted: *granted,
        refused: *refused,
        title: format!(
            "{}: {} hits, {} granted, {} refused",
            instant(timeline.from_us + number as u64 * timeline.stretch_us),
            count(granted + refused),
            count(*granted),
            count(*refused)
        ),
    };
    let all: Vec<Bar> = numbered.map(bar).collect();
    let lasts_us = all.len() as u64 * timeline.stretch_us;
    bars(&mut svg, within, &all);
    instants(&mut svg, within, timeline.from_us, lasts_us);
    svg.end()
}

fn pairs_plot(pairs: &[PairReport]) -> String {
    const ROW: f64 = 22.0;
    const NAMES: f64 = 330.0;
    const NUMBERS: f64 = 190.0;
    let mut svg = Svg::new(ROW * pairs.len() as f64 + 6.0, "calls of pairs");
    let most = pairs
        .iter()
        .map(|pair| pair.calls)
        .max()
        .unwrap_or(0)
        .max(1);
    let scale = (WIDTH - NAMES - NUMBERS) / most as f64;
    for (number, pair) in pairs.iter().enumerate() {
        let y = ROW * number as f64 + 4.0;
        let name = format!("{} {}", pair.resource, pair.domain);
        let title = format!(
            "{name}: {} calls, {} granted, {} refused",
            count(pair.calls),
            count(pair.granted),
            count(pair.refused)
        );
        // Cut long names at the edge of the plot; the tooltip shows them whole.
        let shown: String = match name.chars().count() {
            0..=44 => name.clone(),
            length => format!("…{}", name.chars().skip(length - 43).collect::<String>()),
        };
        svg.text(NAMES - 8.0, y + 13.0, "end", &shown);
        let area = |x: f64, calls: u64| Area {
            x,
            y,
            width: calls as f64 * scale,
            height: ROW - 6.0,
        };
        svg.mark("granted", area(NAMES, pair.granted), &title);
        let refused = Area {
            width: (pair.refused as f64 * scale).max(1.5),
            ..area(NAMES + pair.granted as f64 * scale, pair.refused)
        };
        svg.mark("refused", refused, &title);
        let numbers = format!("{} of {} refused", count(pair.refused), count(pair.calls));
        svg.text(WIDTH - NUMBERS + 8.0, y + 13.0, "start", &numbers);
    }
    svg.end()
}

fn trace_plot(trace: &Trace) -> String {
    const LANE: f64 = 90.0;
    const STEP: f64 = LANE + 26.0;
    let tiers = trace.class.tiers().len();
    let others = fill::lanes(&trace.class);
    let lanes = tiers + others.len() + 1;
    let mut svg = Svg::new(STEP * lanes as f64 + 24.0, "limits of a pair over time");
    let lane = |number: usize| Area {
        x: LEFT,
        y: STEP * number as f64 + 18.0,
        width: WIDTH - LEFT,
        height: LANE,
    };
    let width_us = trace.width.as_micros();
    let at = |number: usize| instant(trace.from.as_micros() + number as u64 * width_us);
    let columns = trace.columns.iter().enumerate();
    let bar = |(number, column): (usize, &Column)| Bar {
        granted: column.granted,
        refused: column.asked - column.granted,
        title: format!(
            "{}: {} hits, {} granted",
            at(number),
            count(column.asked),
            count(column.granted)
        ),
    };
    svg.text(LEFT, 12.0, "start", &format!("hits by {}", span(width_us)));
    bars(&mut svg, lane(0), &columns.map(bar).collect::<Vec<_>>());
    for number in 0..tiers {
        push_tier(&mut svg, trace, number, lane(number + 1));
    }
    for (number, of) in others.iter().enumerate() {
        let area = lane(tiers + number + 1);
        let used = |column: &Column| column.used.get(number).copied();
        push_fill(&mut svg, trace, area, of.limit, used);
        let words = format!("{}: {} {}", of.name, count(of.limit), of.over);
        svg.text(LEFT, area.y - 6.0, "start", &words);
    }
    let lasts_us = trace.columns.len() as u64 * width_us;
    instants(&mut svg, lane(lanes - 1), trace.from.as_micros(), lasts_us);
    svg.end()
}

/// A tier's lane: when it was active and cooling down, and how full its window was.
fn push_tier(svg: &mut Svg, trace: &Trace, number: usize, lane: Area) {
    let tier = &trace.class.tiers()[number];
    let lasts_us = trace.columns.len() as u64 * trace.width.as_micros();
    let x = |at: tollgate_shared::time::Timestamp| {
        let part = at.since(trace.from).as_micros() as f64 / lasts_us.max(1) as f64;
        lane.x + lane.width * part.min(1.0)
    };
    let entries = &trace.entries[number];
    for (index, entered) in entries.iter().enumerate() {
        let active_end = entered.saturating_add(tier.active);
        let cool_end = active_end.saturating_add(tier.cooldown);
        let again = entries.get(index + 1).copied().unwrap_or(cool_end);
        let mut band = |class, from, to: tollgate_shared::time::Timestamp| {
            let title = format!("{class} from {}", instant(entered.as_micros()));
            let (from, to) = (x(from), x(to.min(again)));
            let area = Area {
                x: from,
                width: to - from,
                ..lane
            };
            svg.mark(class, area, &title);
        };
        band("active", *entered, active_end);
        band("cooling", active_end, cool_end);
    }
    let held = |column: &Column| column.held.get(number).copied();
    push_fill(svg, trace, lane, tier.limit, held);
    let long = |span: Span| print_span(span);
    let words = format!(
        "tier {}: {} per {}, active {}, cooldown {}",
        number + 1,
        count(tier.limit),
        long(tier.window),
        long(tier.active),
        long(tier.cooldown)
    );
    svg.text(LEFT, lane.y - 6.0, "start", &words);
}

/// How full a limit was, column by column; a column without a call stays empty.
fn push_fill(
    svg: &mut Svg,
    trace: &Trace,
    lane: Area,
    limit: u64,
    used: impl Fn(&Column) -> Option<u64>,
) {
    let width = lane.width / trace.columns.len().max(1) as f64;
    for (index, column) in trace.columns.iter().enumerate() {
        let used = used(column).unwrap_or(0);
        let height = lane.height * (used as f64 / limit.max(1) as f64).min(1.0);
        let area = Area {
            x: lane.x + index as f64 * width,
            y: lane.y + lane.height - height,
            width: (width - 0.4).max(0.5),
            height,
        };
        let title = format!("{} of {} hits", count(used), count(limit));
        svg.mark("held", area, &title);
    }
    svg.rule(lane.y);
    svg.rule(lane.y + lane.height);
    svg.text(LEFT - 6.0, lane.y + 4.0, "end", &count(limit));
    svg.text(LEFT - 6.0, lane.y + lane.height + 4.0, "end", "0");
}
