//! The fields of hello and welcome in messages.
//!
//! Knows nothing of their meaning: see [`link`](super::link). A new field comes after the others, and may be
//! missing.

use serde::{Deserialize, Serialize};

use super::named::{self, Bytes, Id, Name, is_default};
use crate::epoch::SECRET_BYTES;
use crate::time::Span;

/// The most feeds that a welcome lists.
const FEEDS_MAX: usize = 16;
/// The most members that a welcome lists; agents cannot read one with more.
pub const MEMBERS_MAX: usize = 1_024;

/// The fields of a hello.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "a hello")]
pub(super) struct Hello<'a> {
    pub nonce: u64,
    #[serde(borrow)]
    pub agent: Name<'a>,
    pub secret: Bytes<SECRET_BYTES>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub before: Option<Bytes<SECRET_BYTES>>,
}

/// The fields of a welcome.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "a welcome")]
pub(super) struct Welcome<'a> {
    pub nonce: u64,
    pub instance: Id,
    pub partitions: u32,
    #[serde(borrow, default, deserialize_with = "named::list::<_, _, FEEDS_MAX>")]
    pub feeds: Box<[Name<'a>]>,
    pub clock: Span,
    #[serde(borrow, default, deserialize_with = "named::list::<_, _, MEMBERS_MAX>")]
    pub members: Box<[WelcomeMember<'a>]>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: u64,
}

/// The fields of a member in a welcome.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "a member")]
pub(super) struct WelcomeMember<'a> {
    pub instance: Id,
    #[serde(borrow)]
    pub address: Name<'a>,
}
