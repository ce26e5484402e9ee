//! Where a CSV row with quoted fields ends: a quote may be closed several lines below.
//!
//! ```text
//! 1,"one                     a quote is open: the row goes on
//! two, ""three"" ",acme      closed, and a separator behind it: the row ends
//! 2,"a"b,acme                something follows the quote that closes a field: no row of a CSV
//! 3,5" pipe,acme             within a field a quote is one
//! ```
//!
//! Knows nothing of columns: any known separator counts. What stays true: each line is examined
//! once.

/// Separators of CSV fields, the likeliest first.
pub(super) const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// Whether a CSV row ends with its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quoted {
    /// No quote is open.
    #[default]
    Closed,
    /// A quote is open.
    Open,
    /// Something other than a separator follows a closing quote.
    Broken,
}

/// The position within a CSV row.
#[derive(Debug, Default)]
pub(super) struct Quotes {
    pub at: Quoted,
}

impl Quotes {
    /// Takes a line, including its end.
    pub fn pass(&mut self, line: &[u8]) -> Quoted {
        let mut rest = line;
        if self.at == Quoted::Open {
            rest = self.close(rest);
        }
        while self.at == Quoted::Closed && !rest.is_empty() {
            // A quote opens a field if only blanks precede it.
            let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
            match rest[blanks..].strip_prefix(b"\"") {
                Some(inside) => rest = self.close(inside),
                None => {
                    let end = rest.iter().position(|byte| is_separator(*byte));
                    rest = end.map_or(&[][..], |end| &rest[end + 1..]);
                }
            }
        }
        self.at
    }

    /// Moves past the quote that closes the field, and past the separator after it.
    fn close<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        loop {
            let Some(quote) = rest.iter().position(|byte| *byte == b'"') else {
                self.at = Quoted::Open;
                return &[];
            };
            let behind = &rest[quote + 1..];
            if let Some(inside) = behind.strip_prefix(b"\"") {
                rest = inside;
                continue;
            }
            let blanks = behind.iter().take_while(|byte| **byte == b' ').count();
            self.at = match behind[blanks..].first() {
                None | Some(b'\r' | b'\n') => Quoted::Closed,
                Some(byte) if is_separator(*byte) => Quoted::Closed,
                Some(_) => Quoted::Broken,
            };
            return behind.get(blanks + 1..).unwrap_or_default();
        }
    }
}

fn is_separator(byte: u8) -> bool {
    SEPARATORS.contains(&char::from(byte))
}
