//! Notices: what pairs near their limits have left, on a topic of their own.
//!
//! ```text
//! message  topic of the resource's notices ('n' and the hash of the resource's topic), frame
//! frame    [version][seal 0][ [instance (16 bytes), sequence, sent (us), resource, [notice, ...]] ]
//! notice   [partition, domain, cause, left, limit, window (us), more in (us), near for (us), since (us)]
//! ```
//!
//! `sent` and `sequence` are as in the frames of resources. A notice is information and no reason to refuse:
//! it is in no log, a gap in its topic voids only notices, and none is sent again to an agent that missed
//! it. Knows nothing of how they are chosen.

use super::frame::{PLAIN, begin_frame, read_list};
use super::reader::{DecodeError, Reader};
use super::statement::Cause;
use super::writer::Writer;
use crate::names::NAME_BYTES_MAX;
use crate::time::{Span, Timestamp};

/// What one pair has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The partition that rules the pair.
    pub partition: u32,
    /// The pair's domain; `*`: all domains together, under the resource's global limit.
    pub domain: Box<str>,
    /// The constraint with the least room.
    pub cause: Cause,
    /// Copies that would have been granted at once at `since`.
    pub left: u64,
    /// The constraint's limit.
    pub limit: u64,
    /// That constraint's window.
    pub window: Span,
    /// How long, from `sent`, until it has room for more if no hit comes; [`Span::MAX`]: unknown.
    pub more_in: Span,
    /// How long, from `sent`, until the pair is no longer near its limit if no hit comes.
    pub near_for: Span,
    /// The pair's time: hits stamped later are not counted in `left`.
    pub since: Timestamp,
}

/// One frame of a resource's notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeFrame {
    /// Drawn at random when the publisher started.
    pub instance: u128,
    /// Counted by topic, without gaps.
    pub sequence: u64,
    /// The publisher's monotonic clock when the frame was sent.
    pub sent: Span,
    /// The resource.
    pub resource: Box<str>,
    /// The notices.
    pub notices: Vec<Notice>,
}

impl NoticeFrame {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one frame.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = begin_frame(bytes, "notices frame", (5, "5"))?;
        let frame = Self {
            instance: u128::from_be_bytes(reader.array_of_bytes("instance")?),
            sequence: reader.u64("sequence")?,
            sent: Span::from_micros(reader.u64("sent")?),
            resource: reader.text("resource", 1, NAME_BYTES_MAX)?.into(),
            notices: read_list(&mut reader, "notices", Notice::read)?,
        };
        reader.end()?;
        Ok(frame)
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        writer.begin(PLAIN);
        writer.array(5);
        writer.bytes(&self.instance.to_be_bytes());
        writer.u64(self.sequence);
        writer.u64(self.sent.as_micros());
        writer.text(&self.resource);
        writer.array(self.notices.len());
        for notice in &self.notices {
            notice.write(writer);
        }
    }
}

impl Notice {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("notice", 9, "9")?;
        Ok(Self {
            partition: reader.u32("partition")?,
            domain: reader.text("domain", 1, NAME_BYTES_MAX)?.into(),
            cause: Cause::read(reader)?,
            left: reader.u64("left")?,
            limit: reader.u64("limit")?,
            window: Span::from_micros(reader.u64("window")?),
            more_in: Span::from_micros(reader.u64("more in")?),
            near_for: Span::from_micros(reader.u64("near for")?),
            since: Timestamp::from_micros(reader.u64("since")?),
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(9);
        writer.u64(u64::from(self.partition));
        writer.text(&self.domain);
        self.cause.write(writer);
        writer.u64(self.left);
        writer.u64(self.limit);
        writer.u64(self.window.as_micros());
        writer.u64(self.more_in.as_micros());
        writer.u64(self.near_for.as_micros());
        writer.u64(self.since.as_micros());
    }
}
