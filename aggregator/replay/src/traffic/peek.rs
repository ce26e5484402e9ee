//! A text whose first lines are examined before it is read.
//!
//! Lines that are too long to be read are passed over: they show nothing about the others. What stays true: examining
//! loses nothing; an error of the first read is reported when reading arrives there.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use super::lines::LINE_BYTES_MAX;
use super::plan::is_in_array;

/// How many lines are examined: enough to see which field varies.
const LINES_MAX: usize = 200;

/// How many bytes are examined.
const BYTES_MAX: usize = 256 << 10;

/// How many bytes are held, with lines that are too long to be read.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The longest line that is read.
const LINE_MAX: usize = LINE_BYTES_MAX as usize;

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
        // Where the last line begins, and how many bytes before it may be examined.
        let (mut begin, mut examined) = (0, 0);
        while lines < LINES_MAX
            && examined + (head.len() - begin).min(LINE_MAX) < BYTES_MAX
            && head.len() < HELD_BYTES_MAX
        {
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
                    if line.is_some_and(|end| end < upto) {
                        lines += 1;
                        let length = head.len() - begin;
                        examined += if length <= LINE_MAX { length } else { 0 };
                        begin = head.len();
                    }
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

    /// The head of the text, without lines that are too long to be read if there are others.
    pub fn head(&self) -> Cow<'_, [u8]> {
        let whole = &self.head[..self.head.len().min(BYTES_MAX)];
        let lines = || self.head.split_inclusive(|byte| *byte == b'\n');
        if lines().all(|line| line.len() <= LINE_MAX) || is_in_array(whole) {
            return Cow::Borrowed(whole);
        }
        let short: Vec<&[u8]> = lines().filter(|line| line.len() <= LINE_MAX).collect();
        let short = short.concat();
        match short.trim_ascii().is_empty() {
            true => Cow::Borrowed(whole),
            false => Cow::Owned(short),
        }
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
        assert_eq!(*Peeked::new(text.as_slice()).head(), *b"one\n");
    }

    #[test]
    fn lines_that_are_too_long_are_passed_over_and_not_lost() {
        let long = "x".repeat(3 * BYTES_MAX) + "\n";
        for text in [
            long.clone() + "one\ntwo\n",
            format!("one\n{long}{long}two\n"),
            format!("one\ntwo\n{}", long.trim_end()),
        ] {
            let mut peeked = Peeked::new(text.as_bytes());
            assert_eq!(*peeked.head(), *b"one\ntwo\n");
            let mut read = String::new();
            peeked.read_to_string(&mut read).expect("memory");
            assert!(read == text);
        }
        // A text of one line, an array for example, shows its beginning.
        for text in [long.clone(), format!("[{{}},{long}{{}}]\n")] {
            let peeked = Peeked::new(text.as_bytes());
            assert!(*peeked.head() == text.as_bytes()[..BYTES_MAX]);
        }
        let peeked = Peeked::new(io::BufReader::new(io::repeat(b'x')));
        assert_eq!(peeked.head().len(), BYTES_MAX);
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
