//! A case's expected results, compared with its actual results.
//!
//! ```text
//! {"ops":[{"t":0,…,"expect":{"granted":1,"tier":2},"result":{"granted":1,"tier":1,"tier_hits":4}}]}
//!     -> ops[0].tier: found 1, expected 2
//! ```
//!
//! Only fields that an expectation states are compared, each as a whole; a stated field that the result lacks
//! is a difference. Knows nothing of rules and of files.

use std::fmt;

use serde_json::Value;

/// One field in which a result is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseDifference {
    /// Its path in the case, such as `ops[3].granted`.
    pub place: String,
    /// The value in the result, or `None` if the result has no such field.
    pub found: Option<Value>,
    /// The expected value.
    pub expected: Value,
}

impl fmt::Display for CaseDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, expected) = (&self.place, &self.expected);
        match &self.found {
            Some(found) => write!(f, "{place}: found {found}, expected {expected}"),
            None => write!(f, "{place}: found no such field, expected {expected}"),
        }
    }
}

/// Compares the results of a played case with its expectations. `None` means that it states none.
pub fn differences(case: &Value) -> Option<Vec<CaseDifference>> {
    let ops = case["ops"].as_array().map_or(&[][..], Vec::as_slice);
    let ops = ops.iter().enumerate();
    let ops = ops.map(|(index, op)| (format!("ops[{index}]"), op));
    let whole = std::iter::once(("expect".to_owned(), case));
    let mut differences = None;
    for (place, part) in whole.chain(ops) {
        if let (Some(expected), Some(found)) = (part.get("expect"), part.get("result")) {
            compare(place, expected, found, differences.get_or_insert_default());
        }
    }
    differences
}

fn compare(place: String, expected: &Value, found: &Value, differences: &mut Vec<CaseDifference>) {
    let mut different = |place: String, found: Option<&Value>, expected: &Value| {
        if found != Some(expected) {
            differences.push(CaseDifference {
                place,
                found: found.cloned(),
                expected: expected.clone(),
            });
        }
    };
    let Some(fields) = expected.as_object() else {
        return different(place, Some(found), expected);
    };
    for (name, expected) in fields {
        different(format!("{place}.{name}"), found.get(name), expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(case: Value) -> Option<Vec<String>> {
        let found = differences(&case)?;
        Some(found.iter().map(CaseDifference::to_string).collect())
    }

    #[test]
    fn fields_that_are_stated_are_compared_each_by_itself() {
        let expect = serde_json::json!({ "granted": 1, "tier": 2, "counts": {"a": 1}, "teir": 1 });
        let result = serde_json::json!({ "granted": 1, "tier": 1, "counts": {"a": 1, "b": 1} });
        let case = serde_json::json!({ "ops": [{}, { "expect": expect, "result": result }] });
        assert_eq!(
            shown(case).unwrap(),
            [
                "ops[1].counts: found {\"a\":1,\"b\":1}, expected {\"a\":1}",
                "ops[1].teir: found no such field, expected 1",
                "ops[1].tier: found 1, expected 2",
            ]
        );
    }

    #[test]
    fn values_other_than_objects_are_compared_whole() {
        let case = serde_json::json!({ "expect": [1], "result": [1, 2] });
        assert_eq!(shown(case).unwrap(), ["expect: found [1,2], expected [1]"]);
    }

    #[test]
    fn a_case_without_expectations_has_no_answer() {
        let case = serde_json::json!({ "ops": [{ "result": { "granted": 1 } }] });
        assert_eq!(shown(case), None);
    }
}
