//! Values that are written as text.
//!
//! An aggregator makes a view while it rules nothing, and the text only in the thread that writes the answer. Knows
//! nothing of what the values are. What stays true: what is read back displays as what was written.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One of a few names, such as `pair` or `held`. A client also takes names that it does not know.
pub type Keyword = Cow<'static, str>;

/// A value whose JSON is the text that it displays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsText<T> {
    /// The value, where the answer is made.
    Value(T),
    /// Its text, where the answer was read.
    Text(Box<str>),
}

impl<T> From<T> for AsText<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl<T: Display> Display for AsText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<T: Display> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T> Deserialize<'de> for AsText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(Self::Text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tollgate_shared::wire::statement::Cause;

    use super::*;
    use crate::denials::{DenialView, DenialsView};

    fn denial() -> Value {
        json!({
            "resource": "api.search", "scope": "pair", "domain": "acme", "group": null, "cause": "tier 2",
            "limit": 5, "window_us": 1_000_000, "end_us": null, "remaining_us": null, "code": "3-18250-0-1",
            "partition": 3, "version": 7,
        })
    }

    #[test]
    fn a_value_is_written_as_its_text_and_read_back_as_that() {
        let written = serde_json::to_value(AsText::from(Cause::Tier(2))).expect("JSON");
        assert_eq!(written, "tier 2");
        let read: AsText<Cause> = serde_json::from_value(written).expect("a text");
        assert_eq!(read, AsText::Text("tier 2".into()));
        assert_eq!(read.to_string(), Cause::Tier(2).to_string());
        let number = serde_json::from_value::<AsText<Cause>>(json!(2));
        assert!(number.is_err(), "a number is not a text");
    }

    #[test]
    fn a_list_is_read_with_rows_as_types_or_as_they_came() {
        let mut row = denial();
        row["of_a_later_release"] = json!(true);
        let list = json!({
            "schema": "tollgate.denials/1", "denials": [row], "omitted": 2, "next": "5b22", "partitions_missing": [1],
        });
        let as_types: DenialsView = serde_json::from_value(list.clone()).expect("a list");
        let known = serde_json::to_value(&as_types.denials[0]).expect("JSON");
        assert_eq!(known, denial(), "a field that is not known is left out");
        let as_they_came: DenialsView<Value> = serde_json::from_value(list.clone()).expect("one");
        assert_eq!(serde_json::to_value(&as_they_came).expect("JSON"), list);
        let mut without = denial();
        without.as_object_mut().expect("an object").remove("code");
        assert!(serde_json::from_value::<DenialView>(without).is_err());
    }
}
