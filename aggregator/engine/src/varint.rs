//! Whole numbers in as few bytes as they need: seven bits a byte, lowest first.
//!
//! ```text
//! 0..=127 -> 1 byte    300 -> AC 02    u64::MAX -> 10 bytes
//! ```
//!
//! The compact encoding that windows, stored pairs and snapshots share. Knows nothing of what a
//! number means. What stays true: a number has exactly one encoding, so equal states have equal
//! bytes, and [`read`] refuses all others.

/// The most bytes a number has.
const BYTES_MAX: usize = 10;

/// Appends `value`.
#[inline]
pub(crate) fn write(bytes: &mut Vec<u8>, value: u64) {
    match value < 0x80 {
        true => bytes.push(value as u8),
        false => write_long(bytes, value),
    }
}

fn write_long(bytes: &mut Vec<u8>, mut value: u64) {
    while 0x80 <= value {
        bytes.push((value as u8) | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads the number at `at`, and moves `at` behind it. `None` if the bytes end within it, or are
/// not the encoding that [`write`] writes.
#[inline]
pub(crate) fn read(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    read_rest(bytes, at, u64::from(first & 0x7f))
}

fn read_rest(bytes: &[u8], at: &mut usize, mut value: u64) -> Option<u64> {
    for index in 1..BYTES_MAX {
        let byte = *bytes.get(*at)?;
        *at += 1;
        // The tenth byte holds the one bit that is left of 64.
        if index == BYTES_MAX - 1 && 1 < byte {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return (byte != 0).then_some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_survives_and_has_one_form() {
        let edges = (0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + 1]
        });
        for value in edges.chain([u64::MAX, u64::MAX - 1]) {
            let mut bytes = Vec::new();
            write(&mut bytes, value);
            let mut at = 0;
            assert_eq!(read(&bytes, &mut at), Some(value));
            assert_eq!(at, bytes.len());
            assert!(bytes.len() <= BYTES_MAX);
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut], &mut 0), None);
            }
        }
    }

    #[test]
    fn longer_forms_of_a_number_are_refused() {
        assert_eq!(read(&[0x80, 0x00], &mut 0), None);
        let mut long = [0xff; 10];
        long[9] = 0x02;
        assert_eq!(read(&long, &mut 0), None);
    }
}
