//! The first instant at which a condition holds, searched for instead of computed.

/// The instant that stands for "for ever". Sums that overflow saturate here, so nothing that is due
/// at this instant ever happens.
pub(crate) const FOR_EVER_US: u64 = u64::MAX;

/// The first instant of `start_us..=last_us` at which `is_open` holds. `is_open` must not turn from
/// true to false within this span.
pub(crate) fn first_instant(
    start_us: u64,
    last_us: u64,
    is_open: impl Fn(u64) -> bool,
) -> Option<u64> {
    if !is_open(last_us) {
        return None;
    }
    let (mut low_us, mut high_us) = (start_us, last_us);
    // `is_open(high_us)` holds all along, and nothing before `low_us` is open.
    while low_us < high_us {
        let middle_us = low_us + (high_us - low_us) / 2;
        if is_open(middle_us) {
            high_us = middle_us;
        } else {
            low_us = middle_us + 1;
        }
    }
    Some(high_us)
}
