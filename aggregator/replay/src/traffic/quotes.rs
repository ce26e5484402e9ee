//! Where a row of a CSV ends that has quoted fields: a quote may be closed some lines behind the one that opens it.
//!
//! ```text
//! 1,"one                     a quote is open: the row goes on
//! two, ""three"" ",acme      closed, and a separator behind it: the row ends
//! 2,"a"b,acme                something follows the quote that closes a field: no row of a CSV
//! 3,5" pipe,acme             within a field a quote is one
//! ```
//!
//! Knows nothing of columns: whatever may separate fields does. What stays true: a line is looked at once.

/// What separates fields of a CSV, the likeliest first.
pub(super) const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// Whether a row of a CSV has ended where its line does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quoted {
    /// No quote is open.
    #[default]
    Closed,
    /// A quote is open.
    Open,
    /// Something follows a quote that closes a field.
    Broken,
}

/// Where in a row of a CSV one is.
#[derive(Debug, Default)]
pub(super) struct Quotes {
    pub at: Quoted,
}

impl Quotes {
    /// Goes on by a line, its end included.
    pub fn pass(&mut self, line: &[u8]) -> Quoted {
        let mut rest = line;
        if self.at == Quoted::Open {
            rest = self.close(rest);
        }
        while self.at == Quoted::Closed && !rest.is_empty() {
            // A quote opens a field where nothing but blanks stands before it.
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

    /// To behind the quote that closes the field, and the separator that follows it.
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
