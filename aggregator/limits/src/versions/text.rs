//! A limits document as a version has it: the text that was pushed, or that of the version before with one
//! domain changed, or many.
//!
//! ```text
//! version 18   40 MB as they were pushed
//! version 19   18, and acme has rate 9/s           a few bytes, until somebody wants to read it
//! ```
//!
//! Rulings need no text, so a changed one is written down only for those who read it, and once. That takes
//! as long as the document is large: the loop that rules never asks for it ([`Text::is_cheaply`]). What
//! stays true: the same changes give the same text, whenever it is read; changes that later ones override are
//! folded (`fold`), so that a text has about as many as there are domains that were changed.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::without_zone_tables;
use serde::{Serialize, Serializer};

use super::digest;
use super::edit::{NoEdit, TextEdit, apply};
use super::fold::folded;

/// The longest document that is written down to be compared with a file: a few milliseconds.
const CHEAP_BYTES_MAX: usize = 256 << 10;

/// Changes beyond twice those that folding left, before they are folded again: half a millisecond's worth.
const UNFOLDED_MAX: usize = 1_024;

/// The text of a version.
#[derive(Clone)]
pub struct Text(Arc<Node>);

struct Node {
    whole: OnceLock<(Arc<str>, [u8; 32])>,
    /// The one that it was made of, and how; nothing: it was pushed.
    made: Option<(Text, Box<[TextEdit]>)>,
    /// How many changes there are back to what was pushed, and with how many they are folded.
    changes: usize,
    fold_at: usize,
    /// Bytes of the text that was pushed.
    bytes: usize,
    plans: bool,
}

impl Text {
    /// One that was pushed, with its digest.
    pub fn whole(text: Arc<str>, digest: [u8; 32]) -> Self {
        let (bytes, plans) = (text.len(), text.contains("plans"));
        Self(Arc::new(Node {
            whole: OnceLock::from((text, digest)),
            made: None,
            changes: 0,
            fold_at: UNFOLDED_MAX,
            bytes,
            plans,
        }))
    }

    /// This one with changes, in their order.
    pub fn changed(&self, changes: Box<[TextEdit]>) -> Self {
        let count = self.0.changes + changes.len();
        if count <= self.0.fold_at {
            return self.made(self.clone(), changes, (count, self.0.fold_at));
        }
        let (pushed, mut all) = self.since_pushed();
        all.extend(changes);
        let left: Box<[TextEdit]> = folded(all).into();
        let counts = (left.len(), 2 * left.len() + UNFOLDED_MAX);
        self.made(pushed.clone(), left, counts)
    }

    fn made(&self, of: Self, changes: Box<[TextEdit]>, (count, fold_at): (usize, usize)) -> Self {
        Self(Arc::new(Node {
            whole: OnceLock::new(),
            made: Some((of, changes)),
            changes: count,
            fold_at,
            bytes: self.0.bytes,
            plans: self.0.plans,
        }))
    }

    /// What was pushed, and all changes since, in their order.
    fn since_pushed(&self) -> (&Self, Vec<TextEdit>) {
        let mut changes = Vec::new();
        let mut at = self;
        while let Some((before, made)) = &at.0.made {
            changes.extend(made.iter().rev().cloned());
            at = before;
        }
        changes.reverse();
        (at, changes)
    }

    /// Bytes of the text that was pushed, whatever was changed of it since.
    pub fn pushed_bytes(&self) -> usize {
        self.0.bytes
    }

    /// Whether there may be plans in it.
    pub fn may_have_plans(&self) -> bool {
        self.0.plans
    }

    /// The text, written down now if nobody has wanted it yet.
    ///
    /// # Errors
    ///
    /// Where a change cannot be made.
    pub fn read(&self) -> Result<Arc<str>, NoEdit> {
        Ok(Arc::clone(&self.written()?.0))
    }

    fn written(&self) -> Result<&(Arc<str>, [u8; 32]), NoEdit> {
        if let Some(whole) = self.0.whole.get() {
            return Ok(whole);
        }
        // Back to what was pushed, and all changes from there on in one go: writing one down on the way and
        // reading it again is not the same to a space, and whoever has read none of them has to have this text.
        let (pushed, changes) = self.since_pushed();
        let placed = changes
            .into_iter()
            .map(|one| ("as changed".to_owned(), one));
        let before = pushed.0.whole.get().map_or("", |(text, _)| text);
        let text = apply(before, &placed.collect::<Vec<_>>())?;
        let digest = digest(text.as_bytes());
        Ok(self.0.whole.get_or_init(|| (text.into(), digest)))
    }

    /// BLAKE3 of the text. Of one that nobody has read yet it takes as long as reading it does.
    pub fn digest(&self) -> [u8; 32] {
        self.written().map_or([0; 32], |(_, digest)| *digest)
    }

    /// Whether it has this digest, as far as that can be told without a pause: a long text that was
    /// changed is taken for another.
    pub fn is_cheaply(&self, digest: &[u8; 32]) -> bool {
        let cheap = self.0.whole.get().is_some() || self.0.bytes <= CHEAP_BYTES_MAX;
        cheap && self.digest() == *digest
    }

    /// Whether it differs from a document in the tables of time zones alone, as far as that can be told
    /// without a pause: a newer build knows of newer offsets, which is no change that anybody made.
    pub fn differs_in_zones_alone(&self, document: &str) -> bool {
        let cheap = self.0.whole.get().is_some() || self.0.bytes <= CHEAP_BYTES_MAX;
        cheap
            && document.contains("[zones.")
            && without_zone_tables(self) == without_zone_tables(document)
    }
}

impl Deref for Text {
    type Target = str;

    /// The text; empty where a change cannot be made, which versions are never made of.
    fn deref(&self) -> &str {
        self.written().map_or("", |(text, _)| text)
    }
}

impl Drop for Node {
    /// One after the other: a version may stand on thousands before it.
    fn drop(&mut self) {
        let mut next = self.made.take();
        while let Some((Text(before), _)) = next {
            next = Arc::into_inner(before).and_then(|mut node| node.made.take());
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.whole.get() {
            Some((text, _)) => write!(f, "Text({} bytes)", text.len()),
            None => f.write_str("Text(changed)"),
        }
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Own;

    fn change(domain: &str, rate: &str) -> Box<[TextEdit]> {
        let change = TextEdit {
            resource: "a".to_owned(),
            domain: Some(domain.to_owned()),
            own: Some(Own {
                rate: Some(rate.into()),
                ..Own::default()
            }),
        };
        Box::new([change])
    }

    #[test]
    fn a_long_chain_is_read_and_let_go_of_without_a_stack() {
        let document = "[rate.a] # ours\nrate = \"1/s\"\n";
        let mut text = Text::whole(document.into(), digest(document.as_bytes()));
        for n in 0..50_000 {
            text = text.changed(change(&format!("d{}", n % 3), &format!("{}/s", n + 1)));
        }
        let read = text.read().unwrap();
        assert!(read.starts_with("[rate.a] # ours\n"), "{read}");
        assert!(
            read.contains("50000/s") && !read.contains("49000/s"),
            "{read}"
        );
        assert!(text.0.changes <= 3 + UNFOLDED_MAX, "{}", text.0.changes);
        assert_eq!(text.digest(), digest(read.as_bytes()));
        assert!(text.is_cheaply(&digest(read.as_bytes())));
        drop(text);
    }

    #[test]
    fn a_text_is_the_same_whoever_has_read_the_ones_before() {
        let document = "[rate.a]\nrate = \"1/s\"\ndomains = { b = { rate = \"2/s\" } }\n";
        let made = |reads: bool| {
            let pushed = Text::whole(document.into(), digest(document.as_bytes()));
            ["c", "d", "e"].into_iter().fold(pushed, |text, domain| {
                if reads {
                    text.read().unwrap();
                }
                text.changed(change(domain, "3/s"))
            })
        };
        assert_eq!(&*made(true), &*made(false));
    }

    #[test]
    fn the_loop_does_not_write_down_what_is_long() {
        let document = format!(
            "[rate.a]\nrate = \"1/s\"\n# {}\n",
            "x".repeat(CHEAP_BYTES_MAX)
        );
        let text = Text::whole(document.as_str().into(), digest(document.as_bytes()));
        assert!(text.is_cheaply(&digest(document.as_bytes())));
        let text = text.changed(change("d", "2/s"));
        assert!(!text.is_cheaply(&digest(document.as_bytes())));
        assert!(text.0.whole.get().is_none(), "nobody has read it");
        assert!(text.contains("2/s"));
    }
}
