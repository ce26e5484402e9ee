//! Whether anything of a topic was missed: its sequences from one publisher.
//!
//! ```text
//! frames 4 5 6      received, from 4 on; what was before is unknown
//! snapshot at 5     includes what was before 6: joined
//! frame 7           continues
//! frame 9           a gap: 8 was missed, not joined until another snapshot
//! ```
//!
//! Sequences do not show whether the last frame was missed: the listener doubts that if nothing follows for long.
//!
//! Knows nothing of the content of frames. What stays true: while joined, no frame was missed before the last one
//! received.

use tollgate_shared::time::Span;

use crate::clock::Mono;

/// The effect of a frame on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEffect {
    /// The frame continues a joined run: its watermarks count.
    Continues,
    /// The frame continues a run whose beginning is unknown.
    Unjoined,
    /// Frames were missed before it.
    Gap,
    /// The frame was already received, or is in the snapshot.
    Again,
}

/// The sequences of a topic from one publisher that were received without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first and the last sequence; `None` before the first.
    span: Option<(u64, u64)>,
    joined: bool,
    /// When the last frame arrived, or the run was joined.
    last_frame: Mono,
    /// The listener has asked since the topic fell silent.
    is_doubtful: bool,
}

impl Run {
    pub(crate) fn joined(&self) -> bool {
        self.joined
    }

    pub(crate) fn frame(&mut self, sequence: u64) -> FrameEffect {
        self.is_doubtful = false;
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

    /// Applies a snapshot that is valid at `sequence`. Returns whether the run is joined now.
    pub(crate) fn snapshot(&mut self, sequence: u64) -> bool {
        match self.span {
            // Frames between the snapshot and the first one received are missing.
            Some((first, _)) if sequence.saturating_add(1) < first => return self.joined,
            Some((first, last)) => {
                // The publisher has sent frames that did not arrive.
                self.is_doubtful &= sequence <= last;
                self.span = Some((first, last.max(sequence)));
            }
            None => self.span = Some((sequence.saturating_add(1), sequence)),
        }
        self.joined = true;
        true
    }

    /// A frame arrived now.
    pub(crate) fn note_frame(&mut self, sequence: u64, now: Mono) -> FrameEffect {
        self.came(now);
        self.frame(sequence)
    }

    /// Something of the topic arrived now: a frame, or the snapshot that joins it.
    pub(crate) fn came(&mut self, now: Mono) {
        self.last_frame = now;
    }

    /// The topic's silence may be doubted again.
    pub(crate) fn trust(&mut self) {
        self.is_doubtful = false;
    }

    /// Whether nothing has followed for this long: true once, until something follows.
    pub(crate) fn falls_silent(&mut self, silence: Span, now: Mono) -> bool {
        let falls = self.joined && !self.is_doubtful && silence <= now.since(self.last_frame);
        self.is_doubtful |= falls;
        falls
    }

    /// Something may have been missed on the topic.
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
    fn a_snapshot_before_the_first_frame_joins_no_topic() {
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
    fn a_gap_makes_a_topic_unjoined() {
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
