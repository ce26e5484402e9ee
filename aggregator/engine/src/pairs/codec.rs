//! A pair's state as bytes: what lies in a block.
//!
//! ```text
//! [flags][time, 7 bytes][slots beyond the ten minutes][version][tiers if many][stated denial]
//! [shape: how many windows and quotas, whether a bucket]          where there is any of them
//! for each window [stamps]
//! for each quota  [kind][how long its period lasts][count][estimates]
//! for a bucket    [level][estimates]
//! for each tier   [stamps][0 inactive | 1 + how far its entry is from its oldest hit]
//! one window, one hit   10 ·······t 00 03 01 01 00                13 bytes, 29 with the identity
//! ```
//!
//! Equal states have equal bytes. Knows nothing of blocks or limits. What stays true: reading takes
//! exactly what writing gives, and nothing else, so that a broken snapshot is found and not ruled by.

use tollgate_shared::time::Timestamp;

use super::alive::slot_of;
use super::identity::{Identity, Words, pad};
use crate::limits::RateClass;
use crate::rules::{Stamps, State};
use crate::stream::{Pair, STAYS};
use crate::varint;

/// A pair as it is stored: its state, and what the engine knows beside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// What the rules remember.
    pub pair: Pair,
    /// Which of the versions that this log has seen it was ruled by last.
    pub ordinal: u32,
    /// The end of the denial that was stated, if that has not passed at the pair's time.
    pub stated: Option<Timestamp>,
    /// The slot up to which it stays.
    pub leaves: u64,
}

/// Flags in the first byte. Where [`LARGE`] is set only [`LONG`] may be set beside it, so no state
/// begins with FF.
const TIERS: u8 = 0x0f;
/// There are windows, quotas or a bucket.
const SHAPED: u8 = 0x10;
const STATED: u8 = 0x20;
const LARGE: u8 = 0x40;
/// The time needs its eighth byte: not before the year 4253.
const LONG: u8 = 0x80;

/// The most bytes of a state that a block holds.
pub(super) const BLOCK_BYTES_MAX: usize = super::arena::STATE_BYTES_MAX;

/// Tiers from which on their number stands apart.
const MANY: usize = TIERS as usize;

/// The most tiers, windows or quotas that a pair has.
const TIERS_MAX: u64 = 1 << 16;

/// Windows from which on their number stands apart from the shape.
const MANY_WINDOWS: u64 = 7;

/// What a block says without being read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    flags: u8,
    time: Timestamp,
    /// The slot up to which the pair stays.
    pub leaves: u64,
    /// Which version it was ruled by last.
    pub ordinal: u32,
    /// Where the state is, if it outgrew blocks.
    pub large: Option<u32>,
}

fn leaves_at_least(time: Timestamp) -> u64 {
    slot_of(time.saturating_add(STAYS))
}

impl Stored {
    /// Makes this a new pair of a class under a version.
    pub fn begin(&mut self, class: &RateClass, ordinal: u32) {
        self.pair.state.begin(class);
        self.begin_known(ordinal);
    }

    /// Makes this a resource's own new pair under a version: it has one window, the global limit's.
    pub fn begin_whole(&mut self, ordinal: u32) {
        self.pair.state.begin_window();
        self.begin_known(ordinal);
    }

    fn begin_known(&mut self, ordinal: u32) {
        self.pair.time = None;
        self.ordinal = ordinal;
        self.stated = None;
        self.leaves = 0;
    }

    /// Bytes of the windows' runs alone: how long writing will take.
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
        if MANY <= tiers.len() {
            varint::write(bytes, tiers.len() as u64);
        }
        if let Some(end) = self.stated {
            // Never is written as 0, since no denial in force ends at the pair's time.
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

    /// Appends what stands in a block for a state that lies elsewhere.
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
        varint::write(bytes, self.leaves.saturating_sub(leaves_at_least(time)));
        varint::write(bytes, u64::from(self.ordinal));
    }

    /// Reads a state in place of this one, and moves `at` behind it. None for other bytes.
    pub fn read(&mut self, bytes: &[u8], at: &mut usize) -> Option<()> {
        let head = Head::read(bytes, at)?;
        match head.large {
            None => self.read_behind(&head, bytes, at, Stamps::read),
            Some(_) => None,
        }
    }

    /// The same for a block's state whose head was read: bytes that were written here.
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
        (self.leaves, self.ordinal) = (head.leaves, head.ordinal);
        self.pair.time = Some(time);
        let mut tiers = u64::from(flags & TIERS);
        if tiers == MANY as u64 {
            tiers =
                varint::read(bytes, at).filter(|tiers| (MANY as u64..TIERS_MAX).contains(tiers))?;
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

    /// What the state adds to the digest of all pairs. `buffer` is written over: with the state, up to
    /// a whole word, if it fits a block.
    ///
    /// Of a state that fits a block it is its bytes', of a larger one that of what its windows come
    /// to; which one it is depends on the state alone, wherever it lies.
    pub fn digest(&mut self, identity: Identity, buffer: &mut Vec<u8>) -> u128 {
        if self.run_bytes() <= BLOCK_BYTES_MAX {
            buffer.clear();
            self.write(buffer);
            pad(buffer);
            if buffer.len() <= BLOCK_BYTES_MAX {
                return digest_of_bytes(identity, buffer);
            }
        }
        let now = self.pair.now();
        let state = &mut self.pair.state;
        let mut words = Words::new();
        let ordinal = u64::from(self.ordinal) << 40;
        words.add(now.as_micros(), self.leaves ^ ordinal);
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

fn is_shaped(state: &State) -> bool {
    !(state.windows.is_empty() && state.quotas.is_empty() && state.bucket.is_empty())
}

/// Makes a state's windows, quotas and buckets so many, as if new.
fn fill(state: &mut State, (windows, quotas, buckets): (usize, usize, usize)) {
    state.windows.fill(windows);
    state.quotas.fill(quotas);
    state.bucket.fill(buckets);
}

/// Appends windows, quotas and the bucket.
fn write_shaped(state: &State, time: Timestamp, bytes: &mut Vec<u8>) {
    let (windows, quotas) = (state.windows.len() as u64, state.quotas.len() as u64);
    let bucket = state.bucket.len() as u64;
    varint::write(bytes, windows.min(MANY_WINDOWS) | bucket << 3 | quotas << 4);
    if MANY_WINDOWS <= windows {
        varint::write(bytes, windows);
    }
    for stamps in state.windows.iter() {
        stamps.write(time, bytes);
    }
    for quota in state.quotas.iter() {
        varint::write(bytes, u64::from(quota.kind));
        // A period that holds the pair's time ends after it.
        varint::write(bytes, quota.ends.since(time).as_micros());
        varint::write(bytes, quota.count);
        quota.estimates.write(time, bytes);
    }
    for bucket in state.bucket.iter() {
        varint::write(bytes, zigzag_level(bucket.level));
        bucket.estimates.write(time, bytes);
    }
}

#[inline]
fn read_shaped(
    state: &mut State,
    time: Timestamp,
    bytes: &[u8],
    at: &mut usize,
    read: impl Fn(&mut Stamps, Timestamp, &[u8], &mut usize) -> Option<()>,
) -> Option<()> {
    let shape = varint::read(bytes, at)?;
    let (mut windows, bucket, quotas) = (shape & 7, shape >> 3 & 1, shape >> 4);
    if windows == MANY_WINDOWS {
        windows = varint::read(bytes, at).filter(|windows| MANY_WINDOWS <= *windows)?;
    }
    if shape == 0 || TIERS_MAX <= windows || TIERS_MAX <= quotas {
        return None;
    }
    fill(state, (windows as usize, quotas as usize, bucket as usize));
    for stamps in state.windows.iter_mut() {
        read(stamps, time, bytes, at)?;
    }
    for quota in state.quotas.iter_mut() {
        quota.kind = u32::try_from(varint::read(bytes, at)?).ok()?;
        let lasts = varint::read(bytes, at)?;
        quota.ends = Timestamp::from_micros(time.as_micros().checked_add(lasts)?);
        quota.count = varint::read(bytes, at)?;
        read(&mut quota.estimates, time, bytes, at)?;
    }
    for bucket in state.bucket.iter_mut() {
        bucket.level = unzigzag_level(varint::read(bytes, at)?);
        bucket.at = time;
        read(&mut bucket.estimates, time, bytes, at)?;
    }
    Some(())
}

fn zigzag_level(level: i64) -> u64 {
    ((level << 1) ^ (level >> 63)) as u64
}

fn unzigzag_level(level: u64) -> i64 {
    (level >> 1) as i64 ^ -((level & 1) as i64)
}

/// What a state of these bytes, up to a whole word, adds to the digest of all pairs.
#[inline]
pub(super) fn digest_of_bytes(identity: Identity, bytes: &[u8]) -> u128 {
    let mut words = Words::new();
    words.add_bytes(bytes);
    words.of(identity)
}

impl Head {
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
        let beyond = varint::read(bytes, at)?;
        let ordinal = u32::try_from(varint::read(bytes, at)?).ok()?;
        let large = match flags & LARGE {
            0 => None,
            _ => Some(u32::try_from(varint::read(bytes, at)?).ok()?),
        };
        Some(Self {
            flags,
            time,
            leaves: leaves_at_least(time).checked_add(beyond)?,
            ordinal,
            large,
        })
    }
}

/// How far an instant is from another: even before it, odd after it. None is farther than half of
/// all time.
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
mod tests {
    use proptest::prelude::*;
    use tollgate_shared::time::Span;

    use super::*;
    use crate::limits::{Tier, Window};
    use crate::rules::picture::class;
    use crate::stream::Entry;

    fn stored() -> impl Strategy<Value = Stored> {
        let hits = prop::collection::vec((0u64..3_000_000, 1u64..4), 1..40);
        let (tiers, windows) = (0usize..18, 0usize..10);
        (hits, tiers, windows, 0usize..4, 0u64..3, 0u32..400).prop_map(
            |(hits, tiers, windows, others, stated, ordinal)| {
                let tier = Tier {
                    limit: 5,
                    window: Span::from_secs(2),
                    active: Span::from_secs(2),
                    cooldown: Span::ZERO,
                    skippable: true,
                };
                let window = Window {
                    limit: 4,
                    window: Span::from_secs(1),
                };
                let others = match others {
                    0 => class(""),
                    1 => class("quota 9/day | quota 20/year"),
                    2 => class("bucket 2/3s burst 4 debt 9"),
                    _ => class("quota 3/month | bucket 1/1s burst 1000 debt 1"),
                };
                let class = RateClass {
                    tiers: (tiers != 17).then(|| vec![tier; tiers].into()),
                    windows: vec![window; windows].into(),
                    ..others
                };
                let mut pair = Pair::of(&class);
                for (at, copies) in hits {
                    let entry = Entry {
                        copies,
                        estimated: at % 3 == 0,
                        ..Entry::default()
                    };
                    pair.entry(&class, Timestamp::from_micros(1 << 40 | at), entry);
                }
                let leaves = leaves_at_least(pair.now()) + stated * 7;
                let stated = [
                    None,
                    Some(Timestamp::MAX),
                    Some(Timestamp::from_micros(1 << 41)),
                ];
                let stated = stated[leaves as usize % 3];
                Stored {
                    pair,
                    ordinal,
                    stated,
                    leaves,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_state_survives_being_stored(mut stored in stored()) {
            let mut buffer = Vec::new();
            let mut bytes = Vec::new();
            stored.write(&mut bytes);
            let (mut read, mut at) = (Stored::default(), 0);
            prop_assert!(read.read(&bytes, &mut at).is_some());
            prop_assert_eq!(at, bytes.len());
            let digest = stored.digest(Identity(5), &mut buffer);
            prop_assert_eq!(read.digest(Identity(5), &mut buffer), digest);
            let mut again = Vec::new();
            read.write(&mut again);
            prop_assert_eq!(&again, &bytes);
            let head = Head::read(&bytes, &mut 0).expect("a head");
            prop_assert_eq!((head.leaves, head.ordinal), (stored.leaves, stored.ordinal));
            for cut in 0..bytes.len() {
                prop_assert!(Stored::default().read(&bytes[..cut], &mut 0).is_none());
            }
        }

        #[test]
        fn broken_bytes_are_read_as_a_state_that_is_written_as_they_are_or_not_at_all(
            stored in stored(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = Vec::new();
            stored.write(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = to;
            let (mut read, mut end) = (Stored::default(), 0);
            if read.read(&bytes, &mut end).is_some() {
                let mut again = Vec::new();
                read.write(&mut again);
                prop_assert_eq!(&again[..], &bytes[..end]);
            }
        }
    }

    fn bytes_of(limits: &str) -> usize {
        let class = class(limits);
        let mut pair = Pair::of(&class);
        let now = Timestamp::from_micros(1_795_000_000_000_000);
        let entry = Entry {
            copies: 1,
            ..Entry::default()
        };
        pair.entry(&class, now, entry);
        let stored = Stored {
            leaves: slot_of(pair.stays_until(&class)),
            pair,
            ordinal: 3,
            stated: None,
        };
        let mut bytes = Vec::new();
        stored.write(&mut bytes);
        bytes.len()
    }

    #[test]
    fn one_tier_or_window_with_one_hit_fits_the_smallest_block() {
        for limits in ["5/10s", "window 5/10s"] {
            let bytes = bytes_of(limits);
            assert!(bytes <= 16, "{limits}: {bytes}");
        }
    }

    #[test]
    fn a_bucket_or_quota_of_any_period_takes_at_most_48_bytes() {
        let identity = 16;
        for limits in [
            "quota 1000000000/year",
            "bucket 1/31536000s burst 1000 debt 1000",
            "bucket 4294967291/1s burst 100000 debt 100000",
        ] {
            let bytes = bytes_of(limits);
            assert!(bytes + identity <= 48, "{limits}: {bytes}");
        }
    }
}
