//! The record that pushes a limits document into the log.
//!
//! An aggregator that pushes its file and an operator who pushes by hand write the same record. Knows nothing of
//! the document's content.

use tollgate_shared::names::NAME_BYTES_MAX;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::limits_document::{LimitsDocument, REASON_BYTES_MAX};

/// A document that is pushed.
#[derive(Clone, Copy, Debug)]
pub struct Pushed<'a> {
    /// Drawn at random.
    pub push: u128,
    /// The document. One that is longer than a record has faults, and is not pushed.
    pub text: &'a str,
    /// The version that the pusher takes to be in force; 0: none.
    pub expected: u64,
    /// Who pushes. A text that is too long is cut.
    pub who: &'a str,
    /// The reason. A text that is too long is cut.
    pub why: &'a str,
    /// The pusher's clock.
    pub at: Timestamp,
}

impl Pushed<'_> {
    /// The record.
    pub fn record(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        LimitsDocument {
            push: self.push,
            expected: self.expected,
            who: cut(self.who, NAME_BYTES_MAX),
            why: cut(self.why, REASON_BYTES_MAX),
            at: self.at,
            text: self.text,
        }
        .encode(&mut writer);
        writer.as_slice().to_vec()
    }
}

/// A text, cut if it is too long.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use tollgate_shared::wire::MESSAGE_BYTES_MAX;
    use tollgate_shared::wire::limits_document::DOCUMENT_BYTES_MAX;

    use super::*;
    use tollgate_limits::versions::{Entered, LimitsBook, Void};

    #[test]
    fn the_longest_document_fits_and_a_wrong_version_conflicts() {
        let head = "version = 1\nrules = 2\n";
        let text = format!("{head}#{}", "x".repeat(DOCUMENT_BYTES_MAX - head.len() - 1));
        let pushed = Pushed {
            push: 7,
            text: &text,
            expected: 0,
            who: &"long ".repeat(1_000),
            why: &"long ".repeat(1_000),
            at: Timestamp::ZERO,
        };
        let record = pushed.record();
        assert!(record.len() < MESSAGE_BYTES_MAX);
        let mut book = LimitsBook::default();
        let entered = book.read(1, Timestamp::ZERO, &record).unwrap();
        let Some(Entered::Version { push: 7, version }) = entered else {
            panic!("{entered:?}");
        };
        assert_eq!((version.number, &*version.text), (1, &*text));
        let late = Pushed { push: 8, ..pushed }.record();
        let late = book.read(2, Timestamp::ZERO, &late).unwrap();
        assert!(
            matches!(
                late,
                Some(Entered::Void {
                    push: 8,
                    why: Void::Conflict { expected: 0, .. }
                })
            ),
            "{late:?}"
        );
        let longer = Pushed {
            text: &(text.clone() + "x"),
            ..pushed
        };
        assert!(LimitsDocument::decode(&longer.record()).is_err());
    }
}
