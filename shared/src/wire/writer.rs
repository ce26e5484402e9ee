//! Writes MessagePack into a buffer that is reused. Writing cannot fail.

use rmp::encode::{self, ByteBuf};

use super::VERSION;

/// A message under construction. Keeps its memory from message to message.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: ByteBuf,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a message: version byte, then a second byte (kind or seal). Discards earlier content.
    pub fn begin(&mut self, second: u8) {
        self.buffer.as_mut_vec().clear();
        self.buffer
            .as_mut_vec()
            .extend_from_slice(&[VERSION, second]);
    }

    /// The message so far.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.as_slice()
    }

    /// Raw bytes, without a MessagePack head.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.as_mut_vec().extend_from_slice(bytes);
    }

    /// The buffer, to append bytes.
    pub(super) fn sink(&mut self) -> &mut Vec<u8> {
        self.buffer.as_mut_vec()
    }

    /// The head of an array.
    pub fn array(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let _ = encode::write_array_len(&mut self.buffer, len);
    }

    /// A whole number.
    pub fn u64(&mut self, value: u64) {
        let _ = encode::write_uint(&mut self.buffer, value);
    }

    /// A signed number.
    pub fn i64(&mut self, value: i64) {
        let _ = encode::write_sint(&mut self.buffer, value);
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        let _ = encode::write_bool(&mut self.buffer, value);
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        let _ = encode::write_str(&mut self.buffer, text);
    }

    /// Raw bytes after a MessagePack head.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let _ = encode::write_bin(&mut self.buffer, bytes);
    }

    /// Nil.
    pub fn nil(&mut self) {
        let _ = encode::write_nil(&mut self.buffer);
    }
}
