//! Sizes, as operators write them: `16MiB`, `8GiB`, `500kB`, `1_000_000B`.
//!
//! Durations are read as in limits documents. What stays true: a size is a whole number of bytes, and a size
//! without a unit is refused, because people mean different units.

/// The size in bytes that a text states.
pub fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 9] = [
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    let (number, letters, behind) = number_and_unit(text)?;
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == letters)?;
    (behind.is_empty()).then(|| number.checked_mul(*unit))?
}

/// The digits at the beginning of a text, the letters after them, and the rest.
fn number_and_unit(text: &str) -> Option<(u64, &str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_')?;
    let (digits, rest) = text.split_at(end);
    let end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (letters, rest) = rest.split_at(end);
    if digits.split('_').any(str::is_empty) {
        return None;
    }
    Some((digits.replace('_', "").parse().ok()?, letters, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_exactly_or_not_at_all() {
        assert_eq!(bytes("16MiB"), Some(16 << 20));
        assert_eq!(bytes("8GiB"), Some(8 << 30));
        assert_eq!(bytes("1_500B"), Some(1_500));
        for wrong in ["", "16", "16mib", "MiB", "1MiB2", "1__0B", "99999999TiB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
