//! Recorded traffic from elsewhere: access logs, CSV and JSON Lines, plain or compressed.
//!
//! Knows nothing of limits. What stays true: a line that cannot be read is counted and, for the
//! first of them, shown; it never ends the reading and never counts as a request.

pub mod access_log;
pub(crate) mod csv;
pub mod instant;
mod json_lines;
mod lines;
pub mod open;
pub mod rows;

use std::borrow::Cow;
use std::num::NonZeroU32;

use tollgate_shared::time::Timestamp;

pub use access_log::{AccessLog, Request};
pub use instant::TimeUnit;
pub use lines::Unreadable;
pub use open::open;
pub use rows::{Kind, Rows};

/// One recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// When it was made.
    pub at: Timestamp,
    /// What it used, where the row says so.
    pub resource: Option<Cow<'a, str>>,
    /// On whose behalf, where the row says so.
    pub domain: Option<Cow<'a, str>>,
    /// Hits that it asked for.
    pub copies: NonZeroU32,
    /// Below how many of them it had no use for any; none: not said.
    pub min: Option<NonZeroU32>,
}

/// What the columns of a CSV are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The instant.
    pub t: String,
    /// The resource.
    pub resource: String,
    /// The domain.
    pub domain: String,
    /// Hits that were asked for.
    pub copies: String,
    /// The least number of them that was of use.
    pub min: String,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            t: "t".to_owned(),
            resource: "resource".to_owned(),
            domain: "domain".to_owned(),
            copies: "copies".to_owned(),
            min: "min".to_owned(),
        }
    }
}

/// What is expected of copies and of min.
const COPIES: &str = "whole numbers from 1 to 4294967295 for copies and min, min not above copies";

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
