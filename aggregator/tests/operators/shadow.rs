//! Commands that play limits which refuse nobody in a fleet say so.

use crate::support::{directory, run};

const LIMITS: &str = r#"
version = 1
rules = 2
[namespace.old]
ignore_configured = true
[rate.enforced]
rate = "2/s"
[rate.shown]
rate = "2/s"
shadow = true
[rate."old.search"]
rate = "2/s"
"#;

#[test]
fn a_simulation_says_that_a_fleet_refuses_nothing() {
    let dir = directory(LIMITS);
    let simulate = |resource: &str| {
        let line = ["simulate", "--limits", "limits.toml", "--at", "0s,0s,0s"];
        let (code, picture, remarks) =
            run(dir.path(), &[&line[..], &["--resource", resource]].concat());
        assert_eq!(code, 0, "{remarks}");
        assert!(picture.contains("1 refused"), "{picture}");
        remarks
    };
    assert_eq!(simulate("enforced"), "");
    for resource in ["shown", "old.search"] {
        let expected = format!(
            "limits.toml: in shadow, or in a namespace that ignores limits, so that a fleet refuses nothing: {resource}; \
             the picture shows what these limits would do\n"
        );
        assert_eq!(simulate(resource), expected);
    }
}
