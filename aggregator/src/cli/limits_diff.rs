//! `tollgate limits diff`: how two versions differ, and which usage the second forgets.
//!
//! Knows no log. What stays true: with JSON the output is one object, as of every other command.

use serde::Serialize;
use similar::TextDiff;
use tollgate_limits::versions::Version;
use tollgate_limits::versions::switches::ALL;
use tollgate_limits::{Forgotten, Limits, Namespaces, forgotten};
use tollgate_shared::escape::escaped;

use super::Global;
use super::limits_effects::lines_of;
use super::limits_history::History;
use super::limits_show::rows_text;
use super::output::Format;
use crate::exit::{Exit, Failure};

#[derive(Serialize)]
struct DiffView {
    schema: &'static str,
    /// The versions that are compared.
    from: u64,
    to: u64,
    /// Whether their documents differ, or the switches over them, or the rows beside them.
    differs: bool,
    /// The difference, as `diff -u` writes it.
    diff: String,
    /// Resources of which the second would forget usage.
    forgets: Vec<Forgotten>,
    /// The number of further such resources.
    forgets_omitted: u64,
}

/// A version's document, what switches of namespaces override in it, and the rows beside it.
fn whole_text(version: &Version) -> String {
    let mut text = version.text.to_string();
    if let Ok(document) = Limits::parse_logged(&text) {
        let switches = switches_text(document.namespaces(), version.limits.namespaces());
        if !switches.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text += &switches;
    }
    if 0 < version.limits.rows_len() {
        text += &rows_text(&version.limits);
    }
    text
}

/// The settings of namespaces that switches override, one line each.
fn switches_text(document: &Namespaces, in_force: &Namespaces) -> String {
    let named = in_force.named.iter().map(|(name, namespace)| {
        let before = document.named.get(name).unwrap_or(&document.default);
        (&**name, before, namespace)
    });
    let all = std::iter::once((ALL, &document.default, &in_force.default)).chain(named);
    let mut text = String::new();
    for (name, before, namespace) in all {
        let name = escaped(name);
        for (switch, before, is) in [
            (
                "ignore_configured",
                before.ignore_configured,
                namespace.ignore_configured,
            ),
            (
                "allow_unconfigured",
                before.allow_unconfigured,
                namespace.allow_unconfigured,
            ),
        ] {
            if is != before {
                text += &format!("# switch of namespace {name}: {switch} = {is}\n");
            }
        }
    }
    text
}

impl DiffView {
    fn of(before: &Version, after: &Version) -> Self {
        let name = |version: &Version| format!("version {}", version.number);
        let (old, new) = (whole_text(before), whole_text(after));
        let diff = TextDiff::from_lines(&old, &new)
            .unified_diff()
            .header(&name(before), &name(after))
            .to_string();
        let (forgets, forgets_omitted) = forgotten(&before.limits, &after.limits);
        Self {
            schema: "tollgate.limits_diff/1",
            from: before.number,
            to: after.number,
            differs: !diff.is_empty(),
            diff,
            forgets,
            forgets_omitted,
        }
    }
}

/// Shows how two versions differ; without a second version, how the one in force differs from the first.
///
/// # Errors
///
/// If the log has no such version.
pub(super) fn diff(
    global: &Global,
    history: &History,
    from: u64,
    to: Option<u64>,
) -> Result<Exit, Failure> {
    let (from, to) = (history.find(Some(from))?, history.find(to)?);
    let view = DiffView::of(&from.version, &to.version);
    let exit = if view.differs { Exit::No } else { Exit::Done };
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => output.json(&view)?,
        Format::Text => {
            if view.differs {
                output.line(view.diff.trim_end())?;
            }
            lines_of(&(view.forgets, view.forgets_omitted))
                .iter()
                .try_for_each(|line| output.line(line))?;
        }
    }
    output.finish()?;
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use tollgate_limits::versions::LimitsBook;
    use tollgate_limits::versions::switches::Switches;
    use tollgate_server::core::limits_push::Pushed;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::amendment::Act;

    use super::*;

    const BUCKET: &str = "bucket = { rate = \"5/s\", burst = 5 }";

    fn version(number: u64, limit: &str) -> Version {
        let text = format!("version = 1\nrules = 2\n[rate.search]\n{limit}\n");
        let pushed = Pushed {
            push: 1,
            text: &text,
            expected: 0,
            who: "w",
            why: "y",
            at: Timestamp::ZERO,
        };
        let mut book = LimitsBook::default();
        let entered = book.read(number, Timestamp::ZERO, &pushed.record());
        entered.expect("a record");
        Version::clone(book.latest().expect("a document without faults"))
    }

    #[test]
    fn two_versions_are_compared_in_one_object() {
        let (before, after) = (version(1, BUCKET), version(2, "rate = \"5/s\""));
        let view = serde_json::to_value(DiffView::of(&before, &after)).expect("JSON");
        assert_eq!(view["from"].as_u64(), Some(before.number));
        assert_eq!(view["to"].as_u64(), Some(after.number));
        assert_eq!(view["differs"], true);
        let diff = view["diff"].as_str().expect("a text");
        assert!(
            diff.contains(&format!("-{BUCKET}\n+rate = \"5/s\"")),
            "{diff}"
        );
        assert!(!view["forgets"].as_array().expect("a list").is_empty());
        let same = DiffView::of(&version(1, BUCKET), &version(1, BUCKET));
        assert!(!same.differs && same.diff.is_empty() && same.forgets.is_empty());
    }

    #[test]
    fn versions_that_differ_in_a_switch_differ() {
        let before = version(1, BUCKET);
        let mut switches = Switches::default();
        switches.turn(&Act::Switch {
            namespace: "api".into(),
            ignore_configured: Some(true),
            allow_unconfigured: None,
        });
        let after = Version {
            limits: switches.over(&before.limits),
            ..before.clone()
        };
        let view = DiffView::of(&before, &after);
        let line = "+# switch of namespace api: ignore_configured = true";
        assert!(view.differs && view.diff.contains(line), "{}", view.diff);
    }
}
