//! JSON Lines: one object a row, with the members `t`, `resource`, `domain`, `copies`, `min`.
//!
//! ```text
//! {"t":1455944445.25,"resource":"api.search","domain":"acme"}
//! {"t":"2016-02-20T05:00:46Z","resource":"api.search","domain":"globex","copies":3}
//! ```
//!
//! Other members are passed over.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::instant::{self, TimeUnit};
use super::{Row, Widths};

#[derive(Deserialize)]
struct Object<'a> {
    // As it is written: a number in seconds has more digits than a float keeps.
    #[serde(borrow)]
    t: &'a RawValue,
    #[serde(borrow, default)]
    resource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    domain: Option<Cow<'a, str>>,
    #[serde(default)]
    copies: Option<u64>,
    #[serde(default)]
    min: Option<u64>,
}

/// The row of a line; or what was expected.
pub(super) fn parse(line: &[u8], unit: TimeUnit) -> Result<Row<'_>, &'static str> {
    let object: Object<'_> = serde_json::from_slice(line)
        .map_err(|_| "an object with t, and with resource, domain, copies, min of their types")?;
    let text = object.t.get().trim_matches('"');
    let at = instant::parse(text, unit)
        .ok_or("an instant as t: a number since 1970, or a date as in RFC 3339")?;
    let widths = Widths {
        copies: object.copies,
        min: object.min,
    };
    let (copies, min) = widths.checked()?;
    Ok(Row {
        at,
        resource: object.resource,
        domain: object.domain,
        copies,
        min,
    })
}
