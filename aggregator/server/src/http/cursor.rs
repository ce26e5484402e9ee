//! Cursors: where a page of denials, of bans or of holds ends, in the form in which the next one is requested.
//!
//! ```text
//! ["api.search",3,"pair","acme"]  in hexadecimal        the row of acme's denial, ruled in partition 3
//! [null,"10.0.0.0/8"]                                   the row of a ban on every resource
//! [1455944445250000,"gpu","job","0…7",3,null]           the row of the hold job#3, taken at that instant
//! ```
//!
//! Hexadecimal, so that any name can stand in a URL unescaped. Knows nothing of requests.

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::Scope;

use crate::core::bans::BanCursor;
use crate::core::hold_order::{HoldCursor, Holder};
use crate::core::live::At;
use crate::core::view::DenialsCursor;
use tollgate_shared::hex::hex;

/// The cursor of a denial's row, as text.
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

impl Serialize for DenialsCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (scope, name) = match &self.at.scope {
            Scope::Pair(domain) => ("pair", Some(&**domain)),
            Scope::Group(group) => ("group", Some(&**group)),
            Scope::Resource => ("resource", None),
        };
        let text = json!([self.resource, self.at.partition, scope, name]).to_string();
        serializer.serialize_str(&hex(text.as_bytes()))
    }
}

/// Reads a denial's cursor; `None`: the text is invalid.
pub(super) fn read(text: &str) -> Option<DenialsCursor> {
    let (resource, partition, scope, name): (String, u32, String, Option<String>) = unhex(text)?;
    let scope = match (&*scope, name) {
        ("pair", Some(domain)) => Scope::Pair(domain.into()),
        ("group", Some(group)) => Scope::Group(group.into()),
        ("resource", None) => Scope::Resource,
        _ => return None,
    };
    let at = At { partition, scope };
    Some(DenialsCursor {
        resource: resource.into(),
        at,
    })
}

/// Reads a ban's cursor; `None`: the text is invalid.
pub(super) fn read_ban(text: &str) -> Option<BanCursor> {
    let (resource, domain): (Option<String>, String) = unhex(text)?;
    Some(BanCursor(resource, domain))
}

impl Serialize for BanCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = json!([self.0, self.1]).to_string();
        serializer.serialize_str(&hex(text.as_bytes()))
    }
}

/// The fields of a hold's cursor: start, resource, agent, epoch, number, transfer.
type HoldRow = (
    u64,
    String,
    Option<String>,
    Option<String>,
    Option<u64>,
    Option<String>,
);

/// The cursor of a hold's row.
pub(super) fn of_hold(row: &Value) -> Option<HoldCursor> {
    let fields = [
        "start_us", "resource", "agent", "epoch", "number", "transfer",
    ];
    let row = fields.map(|field| row[field].clone());
    hold_at(serde_json::from_value(row.into_iter().collect()).ok()?)
}

/// Reads a hold's cursor; `None`: the text is invalid.
pub(super) fn read_hold(text: &str) -> Option<HoldCursor> {
    hold_at(unhex(text)?)
}

fn hold_at((start_us, resource, agent, epoch, number, transfer): HoldRow) -> Option<HoldCursor> {
    let holder = match (agent, epoch, number, transfer) {
        (Some(name), Some(epoch), Some(number), None) => Holder::Agent {
            name: name.into(),
            epoch: u128::from_str_radix(&epoch, 16).ok()?,
            number,
        },
        (None, None, None, Some(transfer)) => Holder::Staged(transfer.parse().ok()?),
        _ => return None,
    };
    Some(HoldCursor {
        start: Timestamp::from_micros(start_us),
        resource: resource.into(),
        holder,
    })
}

impl Serialize for HoldCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&shown_hold(self))
    }
}

/// A hold's cursor, as text.
pub(super) fn shown_hold(cursor: &HoldCursor) -> String {
    let (start_us, resource) = (cursor.start.as_micros(), &cursor.resource);
    let row = match &cursor.holder {
        Holder::Staged(transfer) => {
            let transfer = transfer.to_string();
            json!([start_us, resource, null, null, null, transfer])
        }
        Holder::Agent {
            name,
            epoch,
            number,
        } => {
            let epoch = format!("{epoch:032x}");
            json!([start_us, resource, name, epoch, number, null])
        }
    };
    hex(row.to_string().as_bytes())
}

/// Reads JSON that was written in hexadecimal.
fn unhex<T: DeserializeOwned>(text: &str) -> Option<T> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    });
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    serde_json::from_slice(&bytes).ok()
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
            assert_eq!(serde_json::to_value(&read).ok(), Some(shown.into()));
            assert_eq!((&*read.resource, read.at.partition), ("r.\"s\"", 3));
            assert_eq!(read.at.scope, expected);
        }
    }

    #[test]
    fn a_holds_cursor_is_read_as_it_was_printed() {
        let held = json!({"start_us": 5, "resource": "r.\"s\"", "agent": "w\u{1b}&", "number": u64::MAX,
            "epoch": format!("{:032x}", u128::MAX), "transfer": null, "copies": 3});
        let staged = json!({"start_us": 5, "resource": "r.\"s\"", "agent": null, "number": null, "epoch": null,
            "transfer": format!("{:032x}", 7)});
        let [held, staged] = [held, staged].map(|row| of_hold(&row).expect("a place"));
        for place in [&held, &staged] {
            let shown = shown_hold(place);
            assert!(shown.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert_eq!(read_hold(&shown).as_ref(), Some(place));
            assert_eq!(read(&shown), None, "of denials it is none");
        }
        assert!(staged < held, "what is staged comes first");
    }

    #[test]
    fn a_bans_cursor_is_read_as_it_was_shown() {
        for resource in [None, Some("r.\"s\"".to_owned())] {
            let place = BanCursor(resource, "a\n\u{1b}&".to_owned());
            let shown = serde_json::to_value(&place).expect("JSON");
            let shown = shown.as_str().expect("a text");
            assert!(shown.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert_eq!(read_ban(shown), Some(place));
        }
    }

    #[test]
    fn an_invalid_cursor_is_refused() {
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
            assert!(read_hold(text).is_none(), "{text}");
            assert!(read_ban(text).is_none(), "{text}");
        }
    }
}
