//! `tollgate limits convert`: settings that cannot be converted.

use super::convert::converted;
use crate::support::{directory, run};

#[test]
fn a_rate_out_of_range_is_a_fault_at_its_setting() {
    let tree = |limit: &str| {
        format!("domain: shop\ndescriptors:\n  - key: user\n    rate_limit:\n{limit}")
    };
    let list = |limit: &str| format!("- namespace: shop\n  variables: [user]\n{limit}");
    for (from, text, line) in [
        (
            "envoy-ratelimit",
            tree(
                "      unit: hour\n      unit_multiplier: 100000000000\n      requests_per_unit: 5\n",
            ),
            6,
        ),
        (
            "envoy-ratelimit",
            tree(
                "      unit: hour\n      unit_multiplier: 2\n      requests_per_unit: 4294967296\n",
            ),
            7,
        ),
        (
            "limitador",
            list("  max_value: 5\n  seconds: 100000000000\n"),
            4,
        ),
        (
            "limitador",
            list("  max_value: 4294967296\n  seconds: 60\n"),
            3,
        ),
    ] {
        let dir = directory("");
        std::fs::write(dir.path().join("theirs.yaml"), &text).expect("a file");
        let args = ["limits", "convert", "--from", from, "theirs.yaml"];
        let (code, _, fault) = run(dir.path(), &args);
        assert_ne!(code, 0, "{text}");
        let place = format!("at line {line} column");
        assert!(fault.contains(&place), "{place}: {fault}");
        assert!(fault.contains("expected"), "{fault}");
    }
    converted(
        "limitador",
        &list("  max_value: 4294967295\n  seconds: 315360000\n"),
    );
}
