//! Tests of warnings: documents that are valid, and what `tollgate check` says of them.
//!
//! Knows nothing of how a warning is found. What stays true: each test has a document beside it that is not warned of.

use super::check;

/// The warnings about a document.
#[track_caller]
fn warned(text: &str) -> Vec<String> {
    let report = check(text, "my.toml");
    assert!(report.good, "{report}");
    report.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_decimal_rate_that_becomes_a_burst_is_warned_of() {
    let of = |rate: &str| warned(&format!("rate.x.windows = [\"9000/m\", \"{rate}\"]"));
    let expected = "resource \"x\": windows[1]: treated as \"10001/10s\", all of which may come at once: a number with \
                    decimal places is whole hits in a longer window";
    assert_eq!(of("1000.1/s")[0], expected);
    for rate in ["0.5/s", "0.25/m", "2.0/s", "100/s"] {
        let found = of(rate);
        assert!(!found.iter().any(|of| of.contains("at once")), "{found:?}");
    }
    let bucket = "rate.x.bucket = { rate = \"100.5/s\", burst = 200 }";
    assert_eq!(warned(bucket), [""; 0]);
}
