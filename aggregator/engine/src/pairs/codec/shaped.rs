//! The part of a stored state that only some pairs have: windows, quotas and a bucket.
//!
//! ```text
//! [shape][windows if many][stamps of each][kind, how long, count, estimates of each quota][level, estimates]
//! shape    windows, at most 7, in three bits; whether there is a bucket; quotas
//! ```
//!
//! Knows nothing of tiers and of the bytes before. What stays true: each state has exactly one encoding.

use tollgate_shared::time::Timestamp;

use super::TIERS_MAX;
use crate::rules::{Stamps, State};
use crate::varint;

/// If there are at least so many windows, their number is written separately from the shape.
const MANY_WINDOWS: u64 = 7;

/// Whether the state has a window, a quota or a bucket.
pub(super) fn is_shaped(state: &State) -> bool {
    !(state.windows.is_empty() && state.quotas.is_empty() && state.bucket.is_empty())
}

/// Gives a state so many windows, quotas and buckets, as new.
pub(super) fn fill(state: &mut State, (windows, quotas, buckets): (usize, usize, usize)) {
    state.windows.fill(windows);
    state.quotas.fill(quotas);
    state.bucket.fill(buckets);
}

/// Appends windows, quotas and the bucket.
pub(super) fn write_shaped(state: &State, time: Timestamp, bytes: &mut Vec<u8>) {
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
        // The period contains the pair's time, so its end is later.
        varint::write(bytes, quota.ends.since(time).as_micros());
        varint::write(bytes, quota.count);
        quota.estimates.write(time, bytes);
    }
    for bucket in state.bucket.iter() {
        varint::write(bytes, zigzag_level(bucket.level));
        bucket.estimates.write(time, bytes);
    }
}

/// Reads them, with stamps by `read`. `None` for bytes that [`write_shaped`] does not write.
#[inline]
pub(super) fn read_shaped(
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
    // Each has at least a byte: memory grows with the bytes present, not with the announced number.
    let left = TIERS_MAX.min(bytes.len().saturating_sub(*at) as u64 + 1);
    if shape == 0 || left <= windows || left <= quotas {
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

/// A level as an unsigned number: even from 0 up, odd below.
pub(super) fn zigzag_level(level: i64) -> u64 {
    ((level << 1) ^ (level >> 63)) as u64
}

fn unzigzag_level(level: u64) -> i64 {
    (level >> 1) as i64 ^ -((level & 1) as i64)
}
