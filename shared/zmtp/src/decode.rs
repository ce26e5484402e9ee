//! From bytes to events: greeting, READY, then messages and commands.
//!
//! ```text
//! Greeting ──64 bytes──> Header ──flags, length──> Body ──length bytes──> event, Header
//! ```
//!
//! Knows nothing of time: how long a peer may take is decided by the caller, which can use
//! [`Decoder::is_between_messages`] and [`Decoder::held`] for that.

use bytes::Bytes;

use crate::command::{self, Command};
use crate::{GREETING_BYTES, PeerLimits, SocketType, Token, Violation};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The least capacity that is reserved for a body that arrives in pieces, so that single bytes do not each
/// allocate.
const BODY_BYTES_MIN: usize = 256;

/// The cost of a `Bytes` and its place in a message, in addition to the bytes of a frame, rounded up.
const PART_OVERHEAD: usize = 96;

/// What was read from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Ready {
        /// Whether the peer understands PING: it speaks ZMTP 3.1 or later.
        pings: bool,
        /// The token in its READY.
        token: Option<Token>,
    },
    /// A message, as its frames; at least one. A publisher never gets one.
    Message(Vec<Bytes>),
    /// For a publisher only: the peer subscribes to a topic.
    Subscribe(Bytes),
    /// For a publisher only: the peer cancels a subscription.
    Cancel(Bytes),
    /// A PING, which has to be answered by a PONG with this context.
    Ping(Bytes),
    /// The answer to a PING.
    Pong,
}

#[derive(Debug)]
enum DecodeStage {
    Greeting {
        bytes: Box<[u8; GREETING_BYTES]>,
        have: usize,
    },
    Header {
        bytes: [u8; 9],
        have: usize,
    },
    Body {
        flags: u8,
        length: usize,
        body: Vec<u8>,
    },
    /// A violation occurred: nothing is read any more.
    Broken(Violation),
}

const HEADER: DecodeStage = DecodeStage::Header {
    bytes: [0; 9],
    have: 0,
};

/// Decodes the bytes of one connection.
#[derive(Debug)]
pub struct Decoder {
    role: SocketType,
    limits: PeerLimits,
    stage: DecodeStage,
    pings: bool,
    is_ready: bool,
    parts: Vec<Bytes>,
    peer_error: Option<Box<str>>,
}

impl Decoder {
    /// A decoder for a new connection; `role` is the socket type of this side.
    pub fn new(role: SocketType, limits: PeerLimits) -> Self {
        Self {
            role,
            limits,
            stage: DecodeStage::Greeting {
                bytes: Box::new([0; GREETING_BYTES]),
                have: 0,
            },
            pings: false,
            is_ready: false,
            parts: Vec::new(),
            peer_error: None,
        }
    }

    /// The next event in these bytes, which are removed from the front of `input`; `None` once all bytes are
    /// consumed and more are needed.
    ///
    /// # Errors
    ///
    /// The [`Violation`] that ends the connection; every later call returns it again.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Violation> {
        loop {
            let step = self.step(input);
            if let Err(violation) = step {
                // The buffered parts are not needed any more.
                self.stage = DecodeStage::Broken(violation);
                self.parts = Vec::new();
            }
            match step? {
                DecodeStep::Event(event) => return Ok(Some(event)),
                DecodeStep::On => {}
                DecodeStep::More => return Ok(None),
            }
        }
    }

    /// Whether the peer's READY was accepted.
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The reason in the peer's ERROR, for which [`Violation::PeerError`] was returned: the peer's own text.
    pub fn peer_error(&self) -> Option<&str> {
        self.peer_error.as_deref()
    }

    /// Whether nothing is incomplete: no header, no frame, and no message with missing frames.
    pub fn is_between_messages(&self) -> bool {
        matches!(self.stage, DecodeStage::Header { have: 0, .. }) && self.parts.is_empty()
    }

    /// The bytes of memory that incomplete input takes.
    pub fn held(&self) -> usize {
        let body = match &self.stage {
            DecodeStage::Body { body, .. } => body.capacity(),
            DecodeStage::Greeting { .. } => GREETING_BYTES,
            DecodeStage::Header { .. } | DecodeStage::Broken(_) => 0,
        };
        let parts = self.parts.iter().map(|part| part.len() + PART_OVERHEAD);
        body + parts.sum::<usize>()
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<DecodeStep, Violation> {
        match &mut self.stage {
            DecodeStage::Broken(violation) => return Err(*violation),
            DecodeStage::Greeting { bytes, have } => {
                take_into(&mut **bytes, have, GREETING_BYTES, input);
                check_greeting(bytes.get(..*have).unwrap_or_default())?;
                if *have < GREETING_BYTES {
                    return Ok(DecodeStep::More);
                }
                // The version, after the signature of ten bytes.
                self.pings = bytes.get(10..12).is_some_and(|found| [3, 1][..] <= *found);
                self.stage = HEADER;
            }
            DecodeStage::Header { bytes, have } => {
                take_into(bytes, have, 1, input);
                let wanted = if bytes[0] & LONG == 0 { 2 } else { 9 };
                take_into(bytes, have, wanted, input);
                if *have < wanted {
                    return Ok(DecodeStep::More);
                }
                let [flags, long @ ..] = *bytes;
                let length = match wanted {
                    2 => u64::from(long[0]),
                    _ => u64::from_be_bytes(long),
                };
                let length = self.check_header(flags, length)?;
                self.stage = DecodeStage::Body {
                    flags,
                    length,
                    body: Vec::new(),
                };
            }
            DecodeStage::Body {
                flags,
                length,
                body,
            } => {
                let (flags, length) = (*flags, *length);
                let (taken, rest) = input.split_at((length - body.len()).min(input.len()));
                grow(body, taken.len(), length);
                body.extend_from_slice(taken);
                *input = rest;
                if body.len() < length {
                    return Ok(DecodeStep::More);
                }
                let body = std::mem::take(body);
                self.stage = HEADER;
                return self.take_frame(flags, body);
            }
        }
        Ok(DecodeStep::On)
    }

    /// The length of a frame according to its header, if it is allowed.
    fn check_header(&self, flags: u8, length: u64) -> Result<usize, Violation> {
        if COMMAND | LONG < flags || flags & (COMMAND | MORE) == COMMAND | MORE {
            return Err(Violation::Flags { found: flags });
        }
        let is_command = flags & COMMAND != 0;
        if !is_command && !self.is_ready {
            return Err(Violation::NotReady);
        }
        let allowed = match (self.is_ready, is_command) {
            (false, _) => self.limits.ready_bytes_max,
            (true, true) => self.limits.command_bytes_max,
            (true, false) => self.limits.frame_bytes_max,
        };
        if !is_command && self.limits.parts_max <= self.parts.len() {
            let allowed = self.limits.parts_max;
            return Err(Violation::TooManyParts { allowed });
        }
        // A publisher accepts only subscriptions, and they have one frame.
        if self.role == SocketType::Pub && flags & MORE != 0 {
            return Err(Violation::NotASubscription);
        }
        match usize::try_from(length) {
            Ok(length) if length <= allowed => Ok(length),
            _ => Err(Violation::FrameTooLong {
                found: length,
                allowed,
            }),
        }
    }

    fn take_frame(&mut self, flags: u8, body: Vec<u8>) -> Result<DecodeStep, Violation> {
        if !self.is_ready {
            // A peer that refuses this one may say why in place of its READY.
            if let Ok(Command::Error(reason)) = command::read(&body) {
                return Err(self.refused(reason));
            }
            let token = command::check_ready(self.role, &body)?;
            self.is_ready = true;
            let pings = self.pings;
            return Ok(DecodeStep::Event(Event::Ready { pings, token }));
        }
        if flags & COMMAND != 0 {
            return self.take_command(&body);
        }
        let frame = Bytes::from(body);
        if self.role == SocketType::Pub {
            return match frame.first() {
                Some(1) => Ok(DecodeStep::Event(Event::Subscribe(frame.slice(1..)))),
                Some(0) => Ok(DecodeStep::Event(Event::Cancel(frame.slice(1..)))),
                _ => Err(Violation::NotASubscription),
            };
        }
        self.parts.push(frame);
        if flags & MORE != 0 {
            return Ok(DecodeStep::On);
        }
        Ok(DecodeStep::Event(Event::Message(std::mem::take(
            &mut self.parts,
        ))))
    }

    fn take_command(&mut self, body: &[u8]) -> Result<DecodeStep, Violation> {
        let is_publisher = self.role == SocketType::Pub;
        Ok(match command::read(body)? {
            Command::Subscribe(topic) if is_publisher => {
                DecodeStep::Event(Event::Subscribe(Bytes::copy_from_slice(topic)))
            }
            Command::Cancel(topic) if is_publisher => {
                DecodeStep::Event(Event::Cancel(Bytes::copy_from_slice(topic)))
            }
            Command::Subscribe(_) | Command::Cancel(_) => {
                return Err(Violation::Command {
                    name: "SUBSCRIBE or CANCEL",
                    wrong: "this socket publishes nothing",
                });
            }
            Command::Ping(context) => {
                DecodeStep::Event(Event::Ping(Bytes::copy_from_slice(context)))
            }
            Command::Pong => DecodeStep::Event(Event::Pong),
            Command::Error(reason) => return Err(self.refused(reason)),
            Command::Other => DecodeStep::On,
        })
    }

    /// Keeps the reason in the peer's ERROR.
    fn refused(&mut self, reason: &[u8]) -> Violation {
        self.peer_error = Some(String::from_utf8_lossy(reason).into());
        Violation::PeerError
    }
}

enum DecodeStep {
    /// An event is complete.
    Event(Event),
    /// Go on with the remaining bytes.
    On,
    /// More bytes are needed.
    More,
}

/// Fills `into` from `have` up to `wanted`, as far as there are bytes.
fn take_into(into: &mut [u8], have: &mut usize, wanted: usize, input: &mut &[u8]) {
    let room = into.get_mut(*have..wanted).unwrap_or_default();
    let (taken, rest) = input.split_at(room.len().min(input.len()));
    for (to, from) in room.iter_mut().zip(taken) {
        *to = *from;
    }
    *have += taken.len();
    *input = rest;
}

/// Makes room for more bytes of a body: at most doubles the capacity, and never exceeds its length.
fn grow(body: &mut Vec<u8>, more: usize, length: usize) {
    let needed = body.len() + more;
    if body.capacity() < needed {
        let target = needed
            .max(2 * body.capacity())
            .max(BODY_BYTES_MIN)
            .min(length);
        body.reserve_exact(target - body.len());
    }
}

/// Refuses at the first wrong byte, without waiting for a peer that speaks another protocol.
fn check_greeting(bytes: &[u8]) -> Result<(), Violation> {
    let wrong = |at: usize, expected| {
        let found = bytes.get(at).copied().unwrap_or(0);
        Err(Violation::Greeting {
            at,
            found,
            expected,
        })
    };
    if bytes.first().is_some_and(|found| *found != 0xff) {
        return wrong(0, "0xff");
    }
    if bytes.get(9).is_some_and(|found| found & 1 == 0) {
        return wrong(9, "an odd number, as 0x7f");
    }
    if bytes.get(10).is_some_and(|found| *found < 3) {
        return wrong(10, "version 3 or later");
    }
    let mechanism = bytes.get(12..32);
    if mechanism.is_some_and(|name| {
        name.strip_prefix(b"NULL")
            .is_none_or(|rest| rest != [0; 16])
    }) {
        return Err(Violation::Mechanism);
    }
    Ok(())
}
