//! Recorded traffic of other programs: access logs of many servers, CSV and JSON, also compressed.
//!
//! Knows nothing of limits. What stays true: an unreadable row is counted, and the first ones are
//! shown; it never ends the reading and never counts as a request.

pub mod clients;
pub mod csv;
mod dates;
mod discover;
mod forms;
pub mod instant;
mod json;
mod known;
mod lines;
mod names;
mod objects;
pub mod open;
pub mod pattern;
mod peek;
mod plan;
mod prefix;
mod quotes;
mod repair;
pub mod rows;
mod times;
mod w3c;
mod words;
mod wrap;

use std::borrow::Cow;
use std::num::NonZeroU32;

use tollgate_shared::time::Timestamp;

pub use clients::Clients;
pub use instant::{Instants, TimeUnit};
pub use lines::Unreadable;
pub use open::open;
pub use rows::{FileKind, FileReading, Rows, Wanted};

/// One recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// When it was made.
    pub at: Timestamp,
    /// The resource, if the row names it.
    pub resource: Option<Cow<'a, str>>,
    /// The domain, if the row names it.
    pub domain: Option<Cow<'a, str>>,
    /// Hits that it asked for.
    pub copies: NonZeroU32,
    /// The least number of hits that was of use; `None`: not stated.
    pub min: Option<NonZeroU32>,
}

impl Row<'_> {
    /// The row with owned texts.
    fn into_owned(self) -> Row<'static> {
        let owned = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        Row {
            at: self.at,
            resource: owned(self.resource),
            domain: owned(self.domain),
            copies: self.copies,
            min: self.min,
        }
    }
}

/// The names of CSV columns and JSON members, as far as the user stated them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The instant.
    pub t: Option<String>,
    /// The resource.
    pub resource: Option<String>,
    /// The domain.
    pub domain: Option<String>,
    /// Hits that the request asked for.
    pub copies: Option<String>,
    /// The least number of hits that was of use.
    pub min: Option<String>,
}

/// The valid values of copies and min.
const COPIES: &str = "whole numbers from 1 to 4294967295 for copies and min, min not above copies";

/// A whole number in any notation: `3`, `3.0`, `3e2`.
fn whole(text: &str) -> Result<u64, &'static str> {
    let text = text.trim_ascii();
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match text.parse::<f64>() {
        Ok(number) if number.fract() == 0.0 && (0.0..4_294_967_296.0).contains(&number) => {
            Ok(number as u64)
        }
        _ => Err(COPIES),
    }
}

/// Copies and min as a row states them.
#[derive(Clone, Copy, Debug, Default)]
struct Widths {
    copies: Option<u64>,
    min: Option<u64>,
}

impl Widths {
    fn checked(self) -> Result<(NonZeroU32, Option<NonZeroU32>), &'static str> {
        let whole = |number: u64| {
            let number = u32::try_from(number).ok().and_then(NonZeroU32::new);
            number.ok_or(COPIES)
        };
        let copies = whole(self.copies.unwrap_or(1))?;
        let min = self.min.map(whole).transpose()?;
        match min {
            Some(min) if copies < min => Err(COPIES),
            min => Ok((copies, min)),
        }
    }
}
