//! The bodies of commands: READY, SUBSCRIBE, CANCEL, PING, PONG, ERROR.
//!
//! ```text
//! READY       [name length (1)][name][value length (4)][value] ...
//! ERROR       [reason length (1)][reason]
//! SUBSCRIBE   topic
//! PING        [time to live (2)][context, up to 16 bytes], answered by PONG with the context
//! ```
//!
//! What stays true: reading a command keeps nothing and allocates nothing, except for the token of a READY and
//! the reason of an ERROR, which are bounded by their lengths.

use crate::{SocketType, TOKEN_PROPERTY, Token, Violation};

/// The most bytes of a PING's context.
pub const PING_CONTEXT_BYTES_MAX: usize = 16;

/// A command after READY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    Subscribe(&'a [u8]),
    Cancel(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    Error(&'a [u8]),
    /// A command of a later version: ignored, as the specification requires.
    Other,
}

/// Splits a body into the command's name and its data.
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = body.split_first()?;
    rest.split_at_checked(usize::from(length))
}

/// Checks a READY: the type of the peer's socket, and its token, if it shows one.
pub(crate) fn check_ready(role: SocketType, body: &[u8]) -> Result<Option<Token>, Violation> {
    let Some((b"READY", mut rest)) = split(body) else {
        return Err(Violation::NotReady);
    };
    let malformed = Violation::Command {
        name: "READY",
        wrong: "a property is cut off",
    };
    let (mut found, mut token) = (None, None);
    while !rest.is_empty() {
        let (name, value) = split(rest).ok_or(malformed)?;
        let (length, value) = value.split_first_chunk::<4>().ok_or(malformed)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| malformed)?;
        let (value, behind) = value.split_at_checked(length).ok_or(malformed)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = Some(value);
        } else if name.eq_ignore_ascii_case(TOKEN_PROPERTY.as_bytes()) {
            token = Some(Token::new(value));
        }
        rest = behind;
    }
    let expected = role.peers();
    match found {
        Some(found) if expected.iter().any(|one| one.as_bytes() == found) => Ok(token),
        _ => Err(Violation::PeerType { expected }),
    }
}

/// Reads a command that came after READY.
pub(crate) fn read(body: &[u8]) -> Result<Command<'_>, Violation> {
    let Some((name, data)) = split(body) else {
        return Err(Violation::Command {
            name: "(unnamed)",
            wrong: "its name is cut off",
        });
    };
    Ok(match name {
        b"SUBSCRIBE" => Command::Subscribe(data),
        b"CANCEL" => Command::Cancel(data),
        b"PING" => match data.split_first_chunk::<2>() {
            Some((_, context)) if context.len() <= PING_CONTEXT_BYTES_MAX => Command::Ping(context),
            _ => {
                return Err(Violation::Command {
                    name: "PING",
                    wrong: "expected 2 to 18 bytes behind the name",
                });
            }
        },
        b"PONG" => Command::Pong,
        // A reason that is cut off counts as no reason.
        b"ERROR" => Command::Error(split(data).map_or(&[][..], |(reason, _)| reason)),
        _ => Command::Other,
    })
}
