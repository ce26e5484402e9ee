//! Where a JSON object ends, and where the next one begins if it does not.
//!
//! ```text
//! {"ua":"a"b"},      a quote too many: the object does not end
//! {"ua":"c"}         a line that begins with an object
//! ```
//!
//! Knows nothing of what members mean. What stays true: each byte is examined once.

/// The position within a JSON object.
#[derive(Debug, Default)]
pub(super) struct JsonPosition {
    pub depth: u32,
    in_text: bool,
    escaped: bool,
}

impl JsonPosition {
    /// Takes a byte. Returns whether it belongs to the object.
    pub fn takes(&mut self, byte: u8) -> bool {
        if self.depth == 0 && byte != b'{' {
            return false;
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            b'{' if !self.in_text => self.depth += 1,
            b'}' if !self.in_text => self.depth -= 1,
            _ => {}
        }
        true
    }
}

/// How an attempt to read an object ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum ObjectRead {
    /// At its closing brace.
    Whole,
    /// At the greatest length.
    TooLong,
    /// At the end of the text.
    Ends,
}

/// Where after the first line a line begins with an object. A line that begins with a name is within one.
pub(super) fn next_object(text: &[u8]) -> Option<usize> {
    let mut ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.find_map(|(end, _)| {
        let is_before = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        let line = &text[end + 1..];
        let before = line.iter().take_while(|byte| is_before(byte)).count();
        (line.get(before) == Some(&b'{')).then_some(end + 1)
    })
}
