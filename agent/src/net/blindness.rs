//! When an agent says in its log that it is blind, and that it no longer is.
//!
//! ```text
//! a partition has no current watermark for 10 s    one line; after the minute for which the last one held, or at the start
//! all partitions are current again                 one more
//! ```
//!
//! Without these lines a service whose limits do not apply looks like any other one. Knows nothing of leases. What stays
//! true: each line follows one of the other kind.

use tollgate_shared::time::Span;

use crate::clock::Mono;

/// An agent that starts is blind until it is connected.
const PATIENCE: Span = Span::from_secs(10);

/// What the agent has said.
#[derive(Debug, Default)]
pub(super) struct Blindness {
    is_said: bool,
}

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlindNews {
    /// The agent has been blind for this long.
    Blind(Span),
    /// It no longer is.
    Over,
}

impl Blindness {
    /// What is to be said at `now`, if anything is; `since`: since when the agent has been blind.
    pub(super) fn look(&mut self, since: Option<Mono>, now: Mono) -> Option<BlindNews> {
        let blind_for = since.map(|since| now.since(since));
        match blind_for {
            Some(blind_for) if !self.is_said && PATIENCE <= blind_for => {
                self.is_said = true;
                Some(BlindNews::Blind(blind_for))
            }
            None if std::mem::take(&mut self.is_said) => Some(BlindNews::Over),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blindness_and_its_end_are_each_said_once() {
        let mut blindness = Blindness::default();
        let at = |seconds| Mono(5_000_000).plus(Span::from_secs(seconds));
        let since = Some(at(0));
        assert_eq!(blindness.look(since, at(9)), None);
        assert_eq!(blindness.look(None, at(9)), None, "connected in time");
        assert_eq!(
            blindness.look(since, at(10)),
            Some(BlindNews::Blind(PATIENCE))
        );
        assert_eq!(blindness.look(since, at(99)), None);
        assert_eq!(blindness.look(None, at(99)), Some(BlindNews::Over));
        assert_eq!(blindness.look(None, at(99)), None);
    }
}
