//! Where a page of denials ends, as the next one is asked for.
//!
//! ```text
//! ["api.search",3,"pair","acme"]  in hexadecimal        the row of acme's denial, ruled in partition 3
//! ```
//!
//! Hexadecimal, so that whatever a name consists of stands in an address as it is. Knows nothing of who asks.

use serde_json::{Value, json};
use tollgate_shared::wire::statement::Scope;

use crate::core::live::At;
use crate::core::view::Cursor;
use tollgate_shared::hex::hex;

/// The cursor of a row, to be shown.
pub(super) fn of_row(row: &Value) -> Option<String> {
    let scope = row["scope"].as_str()?;
    let name = match scope {
        "pair" => &row["domain"],
        "group" => &row["group"],
        _ => &Value::Null,
    };
    let text = json!([row["resource"], row["partition"], scope, name]).to_string();
    Some(hex(text.as_bytes()))
}

/// A cursor that was shown; none: it is none.
pub(super) fn read(text: &str) -> Option<Cursor> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    });
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    let (resource, partition, scope, name): (String, u32, String, Option<String>) =
        serde_json::from_slice(&bytes).ok()?;
    let scope = match (&*scope, name) {
        ("pair", Some(domain)) => Scope::Pair(domain.into()),
        ("group", Some(group)) => Scope::Group(group.into()),
        ("resource", None) => Scope::Resource,
        _ => return None,
    };
    let at = At { partition, scope };
    Some(Cursor {
        resource: resource.into(),
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_shown_whatever_names_consist_of() {
        for (scope, name, expected) in [
            (
                "pair",
                "a\n\u{1b}[2J&=%",
                Scope::Pair("a\n\u{1b}[2J&=%".into()),
            ),
            ("group", "g", Scope::Group("g".into())),
            ("resource", "", Scope::Resource),
        ] {
            let row = json!({"resource": "r.\"s\"", "partition": 3, "scope": scope,
                "domain": name, "group": name});
            let shown = of_row(&row).expect("a cursor");
            assert!(shown.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let read = read(&shown).expect("the same");
            assert_eq!((&*read.resource, read.at.partition), ("r.\"s\"", 3));
            assert_eq!(read.at.scope, expected);
        }
    }

    #[test]
    fn what_is_no_cursor_is_none() {
        for text in [
            "",
            "5",
            "zz",
            "5b5d",
            "é",
            &hex(b"[1,2,3,4]"),
            &hex(b"[\"r\",1,\"pair\",null]"),
        ] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
