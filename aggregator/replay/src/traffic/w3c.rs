//! Logs in the W3C extended format, as IIS and CloudFront write them: the file names its columns.
//!
//! ```text
//! #Version: 1.0
//! #Fields: date time x-edge-location sc-bytes c-ip cs-method …
//! 2019-12-04 21:02:31 LAX1 392 192.0.2.100 GET …
//! ```
//!
//! Instants are in UTC. A new heading may name other columns anywhere, as IIS writes when it
//! starts. What stays true: a line before the first heading is refused.

use super::forms::LineReading;
use super::instant::Instants;
use super::pattern::{Pattern, Piece};

/// The beginning of a line that names the columns.
pub(super) const FIELDS: &str = "#Fields:";

/// The meaning of a line that begins with `#`.
pub(super) fn directive(
    line: &[u8],
    client: Option<&str>,
    instants: &Instants,
) -> Option<Result<LineReading, String>> {
    let names = str::from_utf8(line).ok()?.strip_prefix(FIELDS)?.trim();
    let names: Vec<&str> = names.split_ascii_whitespace().collect();
    // CloudFront separates names by blanks, but values by tabs.
    let is_cloudfront = |name: &&str| name.starts_with("x-edge") || *name == "timestamp(ms)";
    let separator = match line.contains(&b'\t') || names.iter().any(is_cloudfront) {
        true => Piece::Text(Box::new([b'\t'])),
        false => Piece::Gap,
    };
    let pattern = Pattern::of_columns(&names, &separator, client, instants);
    Some(pattern.map(|pattern| LineReading {
        name: "w3c".to_owned(),
        pattern,
        guessed: true,
    }))
}
