//! Encodes messages and commands, once for all the connections to which they are sent.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::{GREETING_BYTES, SocketType, TOKEN_PROPERTY, Token};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The announced version: PING, SUBSCRIBE and CANCEL are commands from 3.1 on.
const VERSION: [u8; 2] = [3, 1];

/// Greeting and READY: the beginning of a connection. With the NULL mechanism both sides may send it without
/// waiting for the other.
pub fn opening(role: SocketType) -> Bytes {
    opening_with(role, None)
}

/// The same with a token that identifies this side to the peer. Use it only on connections that nobody else can
/// read.
pub fn opening_with(role: SocketType, token: Option<&Token>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(GREETING_BYTES + 128);
    bytes.put_u8(0xff);
    bytes.put_bytes(0, 8);
    bytes.put_u8(0x7f);
    bytes.put_slice(&VERSION);
    bytes.put_slice(b"NULL");
    bytes.put_bytes(0, GREETING_BYTES - bytes.len());
    let mut ready = BytesMut::new();
    put_property(&mut ready, "Socket-Type", role.name().as_bytes());
    if let Some(token) = token {
        put_property(&mut ready, TOKEN_PROPERTY, token.as_bytes());
    }
    put_command(&mut bytes, b"READY", &[&ready]);
    bytes.freeze()
}

/// A message of these frames; without frames it is empty.
pub fn message(parts: &[&[u8]]) -> Bytes {
    let size = parts.iter().map(|part| part.len() + 9).sum();
    let mut bytes = BytesMut::with_capacity(size);
    if let Some((last, before)) = parts.split_last() {
        for part in before {
            put_frame(&mut bytes, MORE, &[part]);
        }
        put_frame(&mut bytes, 0, &[last]);
    }
    bytes.freeze()
}

/// Subscribes to all topics with this prefix: as a message, which publishers of all versions understand.
pub fn subscribe(topic: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(topic.len() + 10);
    put_frame(&mut bytes, 0, &[&[1], topic]);
    bytes.freeze()
}

/// Cancels a subscription.
pub fn cancel(topic: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(topic.len() + 10);
    put_frame(&mut bytes, 0, &[&[0], topic]);
    bytes.freeze()
}

/// A PING without a context and without a time to live: the sender watches the time itself.
pub fn ping() -> Bytes {
    command(b"PING", &[&[0, 0]])
}

/// The answer to a PING with this context.
pub fn pong(context: &[u8]) -> Bytes {
    command(b"PONG", &[context])
}

/// An ERROR with the reason why the connection ends; a longer reason is cut after 255 bytes.
pub fn error(reason: &str) -> Bytes {
    let end = reason.floor_char_boundary(usize::from(u8::MAX));
    let reason = reason.get(..end).unwrap_or_default();
    command(b"ERROR", &[&[reason.len() as u8], reason.as_bytes()])
}

/// A property of a READY; names have at most 255 bytes, and values far less than four billion.
fn put_property(into: &mut BytesMut, name: &str, value: &[u8]) {
    into.put_u8(name.len() as u8);
    into.put_slice(name.as_bytes());
    into.put_u32(value.len() as u32);
    into.put_slice(value);
}

fn command(name: &[u8], data: &[&[u8]]) -> Bytes {
    let mut bytes = BytesMut::new();
    put_command(&mut bytes, name, data);
    bytes.freeze()
}

fn put_command(into: &mut BytesMut, name: &[u8], data: &[&[u8]]) {
    // The longest name has nine bytes.
    let head: [&[u8]; 2] = [&[name.len() as u8], name];
    put_frame(into, COMMAND, &[&head, data].concat());
}

/// One frame with a body of these pieces.
fn put_frame(into: &mut BytesMut, flags: u8, body: &[&[u8]]) {
    let length: usize = body.iter().map(|piece| piece.len()).sum();
    match u8::try_from(length) {
        Ok(length) => {
            into.put_u8(flags);
            into.put_u8(length);
        }
        Err(_) => {
            into.put_u8(flags | LONG);
            into.put_u64(length as u64);
        }
    }
    for piece in body {
        into.put_slice(piece);
    }
}
