//! A limits document on its way into the log: its chunks.
//!
//! Whoever pushes, an aggregator its file or an operator by hand, writes the same. Knows nothing of what
//! is in the document. What stays true: the chunks of one push, in their order, are the document.

use tollgate_shared::names::NAME_BYTES_MAX;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::limits_chunk::{CHUNK_BYTES_MAX, LimitsChunk, REASON_BYTES_MAX};

use tollgate_limits::versions::digest;

/// A document that is pushed.
#[derive(Clone, Copy, Debug)]
pub struct Pushed<'a> {
    /// Drawn at random.
    pub push: u128,
    /// The document.
    pub text: &'a str,
    /// The version that is taken to be in force; 0: none.
    pub expected: u64,
    /// Who pushes. What is too long is cut.
    pub who: &'a str,
    /// And why. What is too long is cut.
    pub why: &'a str,
    /// The pusher's clock.
    pub at: Timestamp,
}

impl Pushed<'_> {
    /// The records, in the order in which they have to be appended.
    pub fn records(&self) -> Vec<Vec<u8>> {
        let parts: Vec<&[u8]> = match self.text.len() {
            0 => vec![&[]],
            _ => self.text.as_bytes().chunks(CHUNK_BYTES_MAX).collect(),
        };
        let digest = digest(self.text.as_bytes());
        let mut writer = Writer::new();
        parts
            .iter()
            .enumerate()
            .map(|(index, bytes)| {
                let chunk = LimitsChunk {
                    push: self.push,
                    index: index as u32,
                    count: parts.len() as u32,
                    expected: self.expected,
                    digest,
                    who: cut(self.who, NAME_BYTES_MAX),
                    why: cut(self.why, REASON_BYTES_MAX),
                    at: self.at,
                    bytes,
                };
                chunk.encode(&mut writer);
                writer.as_slice().to_vec()
            })
            .collect()
    }
}

/// A text, cut where it is too long.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limits::versions::{Entered, LimitsBook, Void};

    fn enter(book: &mut LimitsBook, from: u64, pushed: &Pushed<'_>) -> Entered {
        let records = pushed.records();
        let mut last = Entered::Part;
        for (offset, record) in (from..).zip(&records) {
            last = book.enter(offset, &LimitsChunk::decode(record).unwrap());
        }
        last
    }

    #[test]
    fn a_document_of_many_chunks_is_one_version_and_who_expected_another_is_told() {
        let comment = "# a long one\n".repeat(100_000);
        let text = format!("version = 1\nrules = 2\n{comment}");
        let pushed = Pushed {
            push: 7,
            text: &text,
            expected: 0,
            who: "me",
            why: &"long ".repeat(1_000),
            at: Timestamp::ZERO,
        };
        assert!(2 < pushed.records().len());
        let mut book = LimitsBook::default();
        let Entered::Version { push: 7, version } = enter(&mut book, 1, &pushed) else {
            panic!("it is good");
        };
        assert_eq!(*version.text, text);
        let late = enter(&mut book, 10, &Pushed { push: 8, ..pushed });
        assert!(
            matches!(
                late,
                Entered::Void {
                    push: 8,
                    why: Void::Conflict { expected: 0, .. }
                }
            ),
            "{late:?}"
        );
    }
}
