//! A text whose first lines are examined before it is read.
//!
//! What stays true: examining loses nothing; an error of the first read is reported when reading
//! arrives there.

use std::io::{self, BufRead, Read};

/// How many lines are examined: enough to see which field varies.
const LINES_MAX: usize = 200;

/// How many bytes are examined.
const BYTES_MAX: usize = 256 << 10;

/// A reader with the head of its text in memory.
#[derive(Debug)]
pub struct Peeked<R> {
    head: Vec<u8>,
    at: usize,
    fault: Option<io::Error>,
    rest: R,
}

impl<R: BufRead> Peeked<R> {
    /// Reads the first lines of a text into memory.
    pub fn new(mut rest: R) -> Self {
        let mut head = Vec::new();
        let mut fault = None;
        let mut lines = 0;
        while lines < LINES_MAX && head.len() < BYTES_MAX {
            match rest.fill_buf() {
                Ok([]) => break,
                // A log that was truncated while it was written begins with zeros, perhaps many.
                Ok(bytes @ [0, ..]) if head.is_empty() => {
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    rest.consume(zeros);
                }
                Ok(bytes) => {
                    let line = bytes.iter().position(|byte| *byte == b'\n');
                    let upto = line.map_or(bytes.len(), |end| end + 1);
                    let upto = upto.min(BYTES_MAX);
                    head.extend_from_slice(&bytes[..upto]);
                    rest.consume(upto);
                    lines += usize::from(line.is_some());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
        }
        Self {
            head,
            at: 0,
            fault,
            rest,
        }
    }

    /// The head of the text.
    pub fn head(&self) -> &[u8] {
        &self.head
    }
}

impl<R: BufRead> Read for Peeked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let read = bytes.len().min(into.len());
        into[..read].copy_from_slice(&bytes[..read]);
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Peeked<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at < self.head.len() {
            return Ok(&self.head[self.at..]);
        }
        match self.fault.take() {
            Some(error) => Err(error),
            None => self.rest.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        if self.at < self.head.len() {
            self.at += bytes;
        } else {
            self.rest.consume(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peeking_loses_no_bytes() {
        let text: String = (0..1_000).map(|line| format!("line {line}\n")).collect();
        let mut peeked = Peeked::new(text.as_bytes());
        assert_eq!(
            peeked.head().split(|byte| *byte == b'\n').count(),
            LINES_MAX + 1
        );
        let mut read = String::new();
        peeked.read_to_string(&mut read).expect("memory");
        assert_eq!(read, text);
    }

    #[test]
    fn any_number_of_zeros_before_the_text_is_passed_over() {
        let text = [&vec![0; 2 * BYTES_MAX][..], b"one\n"].concat();
        assert_eq!(Peeked::new(text.as_slice()).head(), b"one\n");
    }

    #[test]
    fn a_fault_is_reported_at_its_position() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let text = b"one\n".chain(io::BufReader::new(Broken));
        let mut peeked = Peeked::new(io::BufReader::new(text));
        let mut line = String::new();
        assert_eq!(peeked.read_line(&mut line).expect("the first"), 4);
        assert!(peeked.read_line(&mut line).is_err());
    }
}
