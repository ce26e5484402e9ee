//! The bytes of everything that crosses a process boundary: MessagePack after a version byte.
//!
//! ```text
//! log record   [version][kind][MessagePack array][16-byte tag, where only aggregators may write it]
//! feed frame   [version][seal][MessagePack array]
//! link message [version][kind][MessagePack array]
//! ```
//!
//! Arrays are only ever extended under a new version byte; a kind with its top bit set may be skipped by a build that
//! does not know it. Hellos, welcomes, public limits, members and manifests are maps of named fields instead, to
//! which every release may add: see [`named`]. Decoding is total: the result is a value that is well-formed in every
//! part, or a [`DecodeError`] with position and reason.

pub mod amendment;
pub mod denial;
pub mod frame;
mod greeting;
pub mod heartbeat;
pub mod hits;
pub mod holds;
pub mod limits_document;
pub mod link;
mod log_position;
pub mod member;
pub mod named;
pub mod notice;
pub mod public;
mod public_allowed;
mod public_descriptors;
mod public_networks;
mod public_rate;
mod reader;
pub mod record;
pub mod set_rows;
pub mod state_digest;
pub mod statement;
mod value;
pub mod verdict;
mod writer;

pub use reader::{DecodeError, FieldFault, Reader};
pub use writer::Writer;

/// The version that this build writes, and the only one that it reads.
pub const VERSION: u8 = 1;

/// The most bytes of a log record, a frame or a link message. Kafka's own default limit is a little above it.
pub const MESSAGE_BYTES_MAX: usize = 1_000_000;
