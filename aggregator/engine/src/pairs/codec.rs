//! Encodes a pair's state as bytes: the content of a block.
//!
//! ```text
//! [flags][time, 7 bytes][slots beyond the ten minutes, and its rest][version][print][tiers if many][stated denial]
//! [shape: how many windows and quotas, whether a bucket]          if there is any of them
//! for each window [stamps]
//! for each quota  [kind][how long its period lasts][count][estimates]
//! for a bucket    [level][estimates]
//! for each tier   [stamps][0 inactive | 1 + distance of its entry from its oldest hit]
//! one window, one hit   10 ·······t 00 03 ·· 01 01 00             15 bytes, 31 with the identity
//! ```
//!
//! Equal states have equal bytes. Knows nothing of blocks or limits. What stays true: reading accepts exactly the
//! output of writing, so that a broken snapshot is detected and never used.

mod shaped;

use tollgate_shared::time::Timestamp;

use super::alive::{Rest, Stay, slot_of};
use super::identity::{Identity, Words, pad};
use crate::rules::Stamps;
use crate::rules::carry_over::print_of;
use crate::stream::{Pair, STAYS};
use crate::varint;
use shaped::{fill, is_shaped, read_shaped, write_shaped, zigzag_level};
use tollgate_limits::RateClass;

/// A pair as it is stored: its state, and what the engine keeps beside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// Its state under the rules.
    pub pair: Pair,
    /// The ordinal of the version by which it was ruled last.
    pub ordinal: u32,
    /// The fingerprint of the limits by which it was ruled last: see [`print_of`].
    pub print: u16,
    /// The end of the denial that was stated, if that has not passed at the pair's time.
    pub stated: Option<Timestamp>,
    /// The slot up to which it stays if no room is made.
    pub leaves: u64,
    /// How soon after its time it is evicted when room is made.
    pub rest: Rest,
}

/// Flags in the first byte. If [`LARGE`] is set, only [`LONG`] may be set with it, so no state begins with FF.
const TIERS: u8 = 0x0f;
/// There are windows, quotas or a bucket.
const SHAPED: u8 = 0x10;
const STATED: u8 = 0x20;
const LARGE: u8 = 0x40;
/// The time needs its eighth byte: not before the year 4253.
const LONG: u8 = 0x80;

/// Number of bits of a rest.
const REST_BITS: u32 = 2;

/// The most bytes of a state that a block holds.
pub(super) const BLOCK_BYTES_MAX: usize = super::arena::STATE_BYTES_MAX;

/// If there are at least so many tiers, their number is written separately.
const MANY: usize = TIERS as usize;

/// The most tiers, windows or quotas that a pair has.
const TIERS_MAX: u64 = 1 << 16;

/// What can be read from a block without decoding the whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    flags: u8,
    time: Timestamp,
    /// How long the pair stays.
    pub stay: Stay,
    /// The ordinal of the version by which it was ruled last.
    pub ordinal: u32,
    /// The number of the state if it outgrew blocks.
    pub large: Option<u32>,
}

fn leaves_at_least(time: Timestamp) -> u64 {
    slot_of(time.saturating_add(STAYS))
}

impl Stored {
    /// Makes this a new pair of a class under a version.
    pub fn begin(&mut self, class: &RateClass, ordinal: u32) {
        self.pair.state.begin(class);
        self.print = print_of(class);
        self.begin_known(ordinal);
    }

    /// Makes this a resource's own new pair under a version: it has one window, that of the global limit.
    pub fn begin_whole(&mut self, ordinal: u32) {
        self.pair.state.begin_window();
        self.print = 0;
        self.begin_known(ordinal);
    }

    fn begin_known(&mut self, ordinal: u32) {
        self.pair.time = None;
        self.ordinal = ordinal;
        self.stated = None;
        (self.leaves, self.rest) = (0, Rest::LONG);
    }

    /// Sets how long the pair stays: it was ruled at its own time, and remembers something until `matters`.
    ///
    /// By the limits that rule it now: of a later version only denied pairs are ruled again, and other pairs stay
    /// as long as was determined here.
    #[inline]
    pub fn stays(&mut self, matters: Timestamp) {
        let until = matters.max(self.stated.unwrap_or_default());
        self.rest = Rest::of(self.pair.now(), until);
        self.stays_at_least(until);
    }

    /// Extends the pair's stay to an instant, or to its ten minutes if that is later. A pair that stays longer than
    /// these remembers something for as long, so making room does not shorten its stay.
    pub fn stays_at_least(&mut self, until: Timestamp) {
        let ten_minutes = self.pair.stays_until();
        if ten_minutes < until {
            self.rest = Rest::LONG;
        }
        self.leaves = slot_of(until.max(ten_minutes));
    }

    /// The first byte of its first window; 0 without one.
    pub(super) fn first_byte(&self) -> u8 {
        let state = &self.pair.state;
        let tier = state.tiers.first().map(|tier| &tier.window);
        let window = state.windows.first().or(tier);
        window.map_or(0, Stamps::first_byte)
    }

    /// Bytes of the windows' runs alone, an estimate of how long writing will take.
    pub fn run_bytes(&self) -> usize {
        let state = &self.pair.state;
        let windows = state.windows.iter().map(Stamps::run_bytes);
        let tiers = state.tiers.iter().map(|tier| tier.window.run_bytes());
        let quotas = state.quotas.iter().map(|quota| quota.estimates.run_bytes());
        let bucket = state
            .bucket
            .iter()
            .map(|bucket| bucket.estimates.run_bytes());
        windows.chain(tiers).chain(quotas).chain(bucket).sum()
    }

    /// Appends the state.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let state = &self.pair.state;
        let time = self.pair.now();
        let tiers = &state.tiers;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(is_shaped(state), SHAPED) | flag(self.stated.is_some(), STATED);
        self.write_head(flags | tiers.len().min(MANY) as u8, bytes);
        bytes.extend_from_slice(&self.print.to_le_bytes());
        if MANY <= tiers.len() {
            varint::write(bytes, tiers.len() as u64);
        }
        if let Some(end) = self.stated {
            // Never is written as 0, which is free: no denial in force ends at the pair's time.
            let distance = end.since(time).as_micros();
            varint::write(bytes, if end == Timestamp::MAX { 0 } else { distance });
        }
        if flags & SHAPED != 0 {
            write_shaped(state, time, bytes);
        }
        for tier in tiers.iter() {
            tier.window.write(time, bytes);
            let near = tier.window.oldest().unwrap_or(time);
            let entered = |entered| zigzag(near, entered).saturating_add(1);
            varint::write(bytes, tier.entered.map_or(0, entered));
        }
    }

    /// Appends the content of a block whose state is stored elsewhere.
    pub fn write_large(&self, number: u32, bytes: &mut Vec<u8>) {
        self.write_head(LARGE, bytes);
        varint::write(bytes, u64::from(number));
    }

    fn write_head(&self, flags: u8, bytes: &mut Vec<u8>) {
        let time = self.pair.now();
        let time_bytes = time.as_micros().to_le_bytes();
        match time_bytes[7] {
            0 => {
                bytes.push(flags);
                bytes.extend_from_slice(&time_bytes[..7]);
            }
            _ => {
                bytes.push(flags | LONG);
                bytes.extend_from_slice(&time_bytes);
            }
        }
        let beyond = self.leaves.saturating_sub(leaves_at_least(time));
        varint::write(bytes, beyond << REST_BITS | self.rest.bits());
        varint::write(bytes, u64::from(self.ordinal));
    }

    /// Reads a state into this one, and moves `at` behind it. `None` for invalid bytes.
    pub fn read(&mut self, bytes: &[u8], at: &mut usize) -> Option<()> {
        let head = Head::read(bytes, at)?;
        match head.large {
            None => self.read_behind(&head, bytes, at, Stamps::read),
            Some(_) => None,
        }
    }

    /// The same for a block's state whose head was read: its bytes are known to be valid.
    pub(super) fn load_behind(&mut self, head: &Head, bytes: &[u8], at: &mut usize) -> Option<()> {
        self.read_behind(head, bytes, at, Stamps::load)
    }

    #[inline]
    fn read_behind(
        &mut self,
        head: &Head,
        bytes: &[u8],
        at: &mut usize,
        read: impl Fn(&mut Stamps, Timestamp, &[u8], &mut usize) -> Option<()>,
    ) -> Option<()> {
        let Head { flags, time, .. } = *head;
        (self.leaves, self.rest) = (head.stay.leaves, head.stay.rest);
        self.ordinal = head.ordinal;
        self.print = u16::from_le_bytes(*bytes.get(*at..)?.first_chunk()?);
        *at += 2;
        self.pair.time = Some(time);
        let mut tiers = u64::from(flags & TIERS);
        if tiers == MANY as u64 {
            tiers =
                varint::read(bytes, at).filter(|tiers| (MANY as u64..TIERS_MAX).contains(tiers))?;
            // Each has at least a byte: memory grows with the bytes present, not with the announced number.
            if bytes.len().saturating_sub(*at) < tiers as usize {
                return None;
            }
        }
        self.stated = match flags & STATED {
            0 => None,
            _ => Some(match varint::read(bytes, at)? {
                0 => Timestamp::MAX,
                distance => Timestamp::from_micros(time.as_micros().checked_add(distance)?),
            }),
        };
        let state = &mut self.pair.state;
        match flags & SHAPED {
            0 => fill(state, (0, 0, 0)),
            _ => read_shaped(state, time, bytes, at, &read)?,
        }
        state.tiers.fill(tiers as usize);
        for tier in state.tiers.iter_mut() {
            read(&mut tier.window, time, bytes, at)?;
            let near = tier.window.oldest().unwrap_or(time);
            tier.entered = match varint::read(bytes, at)? {
                0 => None,
                far => Some(unzigzag(near, far - 1)?),
            };
        }
        Some(())
    }

    /// The state's part in the digest of all pairs. Overwrites `buffer`: with the state, padded to a whole word, or
    /// with nothing if the state is clearly larger than a block.
    ///
    /// The digest of a state that fits in a block is that of its bytes; for a larger one it is that of its windows'
    /// sums. Which one applies depends on the state alone, wherever it is stored.
    pub fn digest(&mut self, identity: Identity, buffer: &mut Vec<u8>) -> u128 {
        buffer.clear();
        if self.run_bytes() <= BLOCK_BYTES_MAX {
            self.write(buffer);
            pad(buffer);
            if buffer.len() <= BLOCK_BYTES_MAX {
                return digest_of_bytes(identity, buffer);
            }
        }
        let now = self.pair.now();
        let state = &mut self.pair.state;
        let mut words = Words::new();
        let ordinal = u64::from(self.ordinal) << 40 | u64::from(self.print) << 24;
        let rest = self.rest.bits().rotate_right(REST_BITS);
        words.add(now.as_micros(), self.leaves ^ ordinal ^ rest);
        for stamps in state.windows.iter_mut() {
            words.add(stamps.hits(), stamps.sum());
        }
        for quota in state.quotas.iter_mut() {
            words.add(
                quota.count ^ u64::from(quota.kind).rotate_left(32),
                quota.ends.as_micros(),
            );
            words.add(quota.estimates.hits(), quota.estimates.sum());
        }
        for bucket in state.bucket.iter_mut() {
            words.add(
                zigzag_level(bucket.level) ^ bucket.estimates.hits().rotate_left(40),
                bucket.estimates.sum(),
            );
        }
        for tier in state.tiers.iter_mut() {
            let entered = tier.entered.map_or(u64::MAX, Timestamp::as_micros);
            words.add(
                entered ^ tier.window.hits().rotate_left(40),
                tier.window.sum(),
            );
        }
        let stated = self.stated.map_or(0, Timestamp::as_micros);
        words.add(stated, state.tiers.len() as u64);
        words.of(identity)
    }
}

/// The part of a state with these bytes, padded to a whole word, in the digest of all pairs.
#[inline]
pub(super) fn digest_of_bytes(identity: Identity, bytes: &[u8]) -> u128 {
    let mut words = Words::new();
    words.add_bytes(bytes);
    words.of(identity)
}

impl Head {
    /// The number of the state in a block, if it outgrew blocks.
    #[inline]
    pub fn number_of_large(bytes: &[u8]) -> Option<u32> {
        match bytes.first()? & LARGE {
            0 => None,
            _ => Self::read(bytes, &mut 0)?.large,
        }
    }

    /// Reads the head of a state, and moves `at` behind it.
    #[inline]
    pub fn read(bytes: &[u8], at: &mut usize) -> Option<Self> {
        let flags = *bytes.get(*at)?;
        let eight = bytes.get(*at + 1..)?;
        let time = match flags & LONG {
            0 => {
                let seven: &[u8; 7] = eight.first_chunk()?;
                let [a, b, c, d, e, f, g] = *seven;
                *at += 8;
                u64::from_le_bytes([a, b, c, d, e, f, g, 0])
            }
            _ => {
                *at += 9;
                u64::from_le_bytes(
                    *eight
                        .first_chunk()
                        .filter(|eight: &&[u8; 8]| eight[7] != 0)?,
                )
            }
        };
        let time = Timestamp::from_micros(time);
        let both = varint::read(bytes, at)?;
        let (beyond, rest) = (both >> REST_BITS, Rest::of_bits(both));
        let ordinal = u32::try_from(varint::read(bytes, at)?).ok()?;
        let large = match flags & LARGE {
            0 => None,
            _ => Some(u32::try_from(varint::read(bytes, at)?).ok()?),
        };
        Some(Self {
            flags,
            time,
            stay: Stay {
                leaves: leaves_at_least(time).checked_add(beyond)?,
                rest,
            },
            ordinal,
            large,
        })
    }
}

/// The distance of an instant from another: even if it is before, odd if after. No distance exceeds half of all
/// time.
fn zigzag(near: Timestamp, at: Timestamp) -> u64 {
    match at <= near {
        true => near.since(at).as_micros().saturating_mul(2),
        false => at.since(near).as_micros().saturating_mul(2) - 1,
    }
}

fn unzigzag(near: Timestamp, far: u64) -> Option<Timestamp> {
    let near = near.as_micros();
    let at = match far % 2 {
        0 => near.checked_sub(far / 2),
        _ => near.checked_add(far / 2 + 1),
    };
    at.map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests;
