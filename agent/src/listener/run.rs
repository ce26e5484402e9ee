//! Whether anything of a topic was missed: its sequences from one publisher.
//!
//! ```text
//! frames 4 5 6      heard, from 4 on; what was before is not known
//! snapshot at 5     what was before 6 is in it: joined
//! frame 7           continues
//! frame 9           a gap: 8 was missed, not joined until another snapshot
//! ```
//!
//! Whether its last frame was missed no sequence tells: that is doubted where nothing follows for long.
//!
//! Knows nothing of what frames say. What stays true: while joined, nothing was missed that something followed.

use tollgate_shared::time::Span;

use crate::clock::Mono;

/// What a frame does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEffect {
    /// It continues a joined run: what it says is evidence.
    Continues,
    /// It continues a run whose beginning is not known.
    Unjoined,
    /// Something was missed before it.
    Gap,
    /// It was heard, or is in the snapshot.
    Again,
}

/// The sequences of a topic from one publisher that were heard without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first and the last sequence; none before anything was heard.
    span: Option<(u64, u64)>,
    joined: bool,
    /// When the last frame was heard, or the run was joined.
    heard: Mono,
    /// It was asked about since it fell silent.
    doubted: bool,
}

impl Run {
    pub(crate) fn joined(&self) -> bool {
        self.joined
    }

    pub(crate) fn frame(&mut self, sequence: u64) -> FrameEffect {
        self.doubted = false;
        match self.span {
            Some((_, last)) if sequence <= last => FrameEffect::Again,
            Some((first, last)) if sequence == last.saturating_add(1) => {
                self.span = Some((first, sequence));
                if self.joined {
                    FrameEffect::Continues
                } else {
                    FrameEffect::Unjoined
                }
            }
            before => {
                *self = Self {
                    span: Some((sequence, sequence)),
                    joined: false,
                    ..*self
                };
                if before.is_some() {
                    FrameEffect::Gap
                } else {
                    FrameEffect::Unjoined
                }
            }
        }
    }

    /// A snapshot that is true at `sequence`; whether the run is joined by it.
    pub(crate) fn snapshot(&mut self, sequence: u64) -> bool {
        match self.span {
            // Frames between the snapshot and the first one heard are missing.
            Some((first, _)) if sequence.saturating_add(1) < first => return self.joined,
            Some((first, last)) => {
                // It has spoken, and was not heard.
                self.doubted &= sequence <= last;
                self.span = Some((first, last.max(sequence)));
            }
            None => self.span = Some((sequence.saturating_add(1), sequence)),
        }
        self.joined = true;
        true
    }

    /// A frame that came now.
    pub(crate) fn heard(&mut self, sequence: u64, now: Mono) -> FrameEffect {
        self.came(now);
        self.frame(sequence)
    }

    /// Something of it came now: a frame, or the snapshot that joins it.
    pub(crate) fn came(&mut self, now: Mono) {
        self.heard = now;
    }

    /// Its silence may be doubted again.
    pub(crate) fn trust(&mut self) {
        self.doubted = false;
    }

    /// Whether nothing has followed for so long: true once, until something does.
    pub(crate) fn falls_silent(&mut self, silence: Span, now: Mono) -> bool {
        let falls = self.joined && !self.doubted && silence <= now.since(self.heard);
        self.doubted |= falls;
        falls
    }

    /// Whatever was heard, something may have been missed since.
    pub(crate) fn interrupted(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(run: &mut Run, sequences: &[u64]) -> Vec<FrameEffect> {
        sequences.iter().map(|one| run.frame(*one)).collect()
    }

    #[test]
    fn frames_count_once_a_snapshot_has_joined_them() {
        let mut run = Run::default();
        assert_eq!(frames(&mut run, &[4, 5, 6]), [FrameEffect::Unjoined; 3]);
        assert!(run.snapshot(5));
        assert_eq!(
            frames(&mut run, &[6, 7]),
            [FrameEffect::Again, FrameEffect::Continues]
        );
    }

    #[test]
    fn a_snapshot_from_before_the_first_frame_joins_nothing() {
        let mut run = Run::default();
        run.frame(4);
        assert!(!run.snapshot(2));
        assert!(run.snapshot(3));
        assert_eq!(run.frame(5), FrameEffect::Continues);
    }

    #[test]
    fn a_snapshot_that_comes_before_any_frame_is_continued() {
        let mut run = Run::default();
        assert!(run.snapshot(7));
        assert_eq!(
            frames(&mut run, &[7, 8]),
            [FrameEffect::Again, FrameEffect::Continues]
        );
        let mut fresh = Run::default();
        fresh.snapshot(0);
        assert_eq!(fresh.frame(1), FrameEffect::Continues);
    }

    #[test]
    fn a_snapshot_ahead_of_the_frames_covers_them() {
        let mut run = Run::default();
        run.frame(4);
        assert!(run.snapshot(6));
        assert_eq!(
            frames(&mut run, &[5, 6, 7]),
            [
                FrameEffect::Again,
                FrameEffect::Again,
                FrameEffect::Continues
            ]
        );
    }

    #[test]
    fn a_gap_unjoins() {
        let mut run = Run::default();
        run.snapshot(3);
        assert_eq!(
            frames(&mut run, &[4, 6, 7]),
            [
                FrameEffect::Continues,
                FrameEffect::Gap,
                FrameEffect::Unjoined
            ]
        );
        assert!(!run.joined() && !run.snapshot(4) && run.snapshot(5));
        run.interrupted();
        assert!(!run.joined());
    }
}
