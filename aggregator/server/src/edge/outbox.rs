//! What waits to be sent to one connection.
//!
//! A frame for many connections is one piece of memory that all their queues share. What stays true: bytes are
//! sent in the order in which they were queued, and only whole frames are dropped.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::Bytes;
use tokio::time::Instant;

/// Pieces in one system call.
const PIECES_MAX: usize = 32;

/// Memory of a queue entry beside its bytes.
pub const ENTRY_BYTES: usize = size_of::<Bytes>();

/// The queue of one connection.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: VecDeque<Bytes>,
    /// Bytes of the first frame that have been written.
    written: usize,
    waiting: usize,
    /// Since when the peer has taken nothing of what waits.
    stalled: Option<Instant>,
    /// When the peer last took something.
    took: Option<Instant>,
}

impl Outbox {
    /// The number of bytes that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Since when the peer has taken nothing of what waits.
    pub fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    /// When the peer, or the operating system for it, last took something.
    pub fn took(&self) -> Option<Instant> {
        self.took
    }

    /// Queues a frame; returns whether the queue was empty.
    pub fn push(&mut self, frame: Bytes) -> bool {
        let was_empty = self.frames.is_empty();
        self.waiting += frame.len() + ENTRY_BYTES;
        self.frames.push_back(frame);
        was_empty
    }

    /// Drops everything but the rest of a frame of which the peer has a part: what is queued next is a frame to it.
    pub fn clear_behind_first(&mut self) {
        let begun = self.frames.pop_front().filter(|_| 0 < self.written);
        let written = self.written;
        self.clear();
        if let Some(begun) = begun {
            self.waiting = begun.len() - written + ENTRY_BYTES;
            self.written = written;
            self.frames.push_back(begun);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes what `write` takes without waiting; returns whether the queue is empty.
    ///
    /// # Errors
    ///
    /// The error of `write`, except `WouldBlock`.
    pub fn flush(
        &mut self,
        now: Instant,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        while !self.frames.is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let mut count = 0;
            for (piece, frame) in pieces.iter_mut().zip(&self.frames) {
                let from = if count == 0 { self.written } else { 0 };
                *piece = IoSlice::new(&frame[from..]);
                count += 1;
            }
            match write(&pieces[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.take_off(written);
                    (self.stalled, self.took) = (None, Some(now));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled.get_or_insert(now);
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // The memory of a burst must not be kept for ever.
        if 64 < self.frames.capacity() {
            self.frames = VecDeque::new();
        }
        Ok(true)
    }

    fn take_off(&mut self, mut written: usize) {
        while let Some(first) = self.frames.front() {
            let left = first.len() - self.written;
            if written < left {
                self.written += written;
                self.waiting -= written;
                return;
            }
            written -= left;
            self.waiting -= left + ENTRY_BYTES;
            self.written = 0;
            self.frames.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_peer_has_in_part_is_sent_to_its_end() {
        let mut outbox = Outbox::default();
        outbox.push(Bytes::from_static(b"whole"));
        outbox.push(Bytes::from_static(b"part"));
        outbox.push(Bytes::from_static(b"never"));
        let mut sent = Vec::new();
        let mut room = 7;
        let mut write = |outbox: &mut Outbox, more: usize| {
            room += more;
            outbox.flush(Instant::now(), |pieces| {
                let taken = pieces[0].len().min(room);
                room -= taken;
                sent.extend_from_slice(&pieces[0][..taken]);
                match taken {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    taken => Ok(taken),
                }
            })
        };
        assert!(!write(&mut outbox, 0).expect("no fault"));
        outbox.clear_behind_first();
        assert_eq!(outbox.waiting(), 2 + ENTRY_BYTES);
        outbox.push(Bytes::from_static(b"why"));
        assert!(write(&mut outbox, 100).expect("no fault"));
        // At a border nothing is left.
        outbox.push(Bytes::from_static(b"later"));
        outbox.clear_behind_first();
        assert_eq!(outbox.waiting(), 0);
        assert_eq!(sent, b"wholepartwhy");
    }

    fn frame(byte: u8, bytes: usize) -> Bytes {
        vec![byte; bytes].into()
    }

    #[test]
    fn bytes_go_out_in_order_however_few_are_taken_at_once() {
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for one in 0..100u8 {
            let bytes = frame(one, usize::from(one) % 7 + 1);
            expected.extend_from_slice(&bytes);
            assert_eq!(outbox.push(bytes), one == 0);
        }
        let mut out = Vec::new();
        let mut turn = 0;
        while !outbox
            .flush(Instant::now(), |pieces| {
                turn += 1;
                if turn % 3 == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                let taken = all.len().min(turn % 11 + 1);
                out.extend_from_slice(&all[..taken]);
                Ok(taken)
            })
            .unwrap()
        {}
        assert_eq!(out, expected);
        assert_eq!(outbox.waiting(), 0);
    }

    #[test]
    fn a_stall_lasts_from_the_first_refusal_to_the_next_byte() {
        let mut outbox = Outbox::default();
        outbox.push(frame(1, 10));
        let refused = |_: &[IoSlice<'_>]| Err(io::ErrorKind::WouldBlock.into());
        let began = Instant::now();
        for second in 0..5 {
            let now = began + Duration::from_secs(second);
            assert!(!outbox.flush(now, refused).unwrap());
        }
        assert_eq!(outbox.stalled(), Some(began));
        let mut once = true;
        let later = began + Duration::from_secs(9);
        let one_byte = |_: &[IoSlice<'_>]| match std::mem::take(&mut once) {
            true => Ok(1),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        assert!(!outbox.flush(later, one_byte).unwrap());
        assert_eq!(outbox.stalled(), Some(later));
        assert_eq!(outbox.waiting(), 9 + ENTRY_BYTES);
    }
}
