//! The fields that a type is read from, by what serde says of one that it does not know.
//!
//! For tests alone, which have this file in them by its path.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

/// Their names. The type has to refuse unknown fields.
pub fn fields_of<T: DeserializeOwned>() -> BTreeSet<String> {
    let refused = serde_json::from_str::<T>(r#"{"no such field": 1}"#).err();
    let refused = refused.expect("there is none").to_string();
    let (_, expected) = refused.split_once("expected").expect("what there is");
    let names = expected.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}
