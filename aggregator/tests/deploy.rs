//! What operators are given in `deploy/` names metrics that exist, and every alert has its page.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use support::{LIMITS, directory, serve};

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    lasting: String,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Labels {
    severity: String,
}

#[derive(Deserialize)]
struct Annotations {
    summary: String,
    runbook: String,
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap()
}

fn rules() -> Vec<Rule> {
    let rules: Rules = serde_yaml_ng::from_str(&read("prometheus/tollgate.rules.yml")).unwrap();
    rules
        .groups
        .into_iter()
        .flat_map(|group| group.rules)
        .collect()
}

/// Expressions of every panel of the dashboard.
fn panels() -> Vec<String> {
    let board: serde_json::Value = serde_json::from_str(&read("grafana/tollgate.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

/// The metrics that a text speaks of.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("tollgate_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn alerts_and_panels_speak_of_metrics_that_an_aggregator_shows() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (status, text) = served.get("/metrics");
    assert_eq!(status, 200);
    let mut shown = metrics(&text);
    // Shown from the first wrong clock on.
    shown.insert("tollgate_agent_clock_moved_seconds".to_owned());
    let spoken_of: Vec<String> = rules()
        .into_iter()
        .map(|rule| rule.expr)
        .chain(panels())
        .collect();
    assert!(30 < spoken_of.len());
    for expression in spoken_of {
        let wanted = metrics(&expression);
        assert!(!wanted.is_empty(), "{expression}");
        let missing: Vec<_> = wanted.difference(&shown).collect();
        assert!(missing.is_empty(), "{expression}: {missing:?}");
    }
}

#[test]
fn every_alert_has_its_page_in_the_runbook_and_every_page_its_alert() {
    let runbook = read("RUNBOOK.md");
    let pages = runbook.lines().filter_map(|line| line.strip_prefix("### "));
    let mut alerts = BTreeSet::new();
    for rule in rules() {
        assert!(!rule.annotations.summary.is_empty() && !rule.lasting.is_empty());
        assert!(["info", "warning", "critical"].contains(&&*rule.labels.severity));
        let page = format!("deploy/RUNBOOK.md#{}", rule.alert.to_lowercase());
        assert_eq!(rule.annotations.runbook, page);
        assert!(alerts.insert(rule.alert.clone()), "{} twice", rule.alert);
    }
    assert_eq!(pages.map(str::to_owned).collect::<BTreeSet<_>>(), alerts);
}
