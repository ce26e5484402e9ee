//! Limits documents: printed in normal form and parsed again, the limits are the same; a fault names a line.

use tollgate_limits::{Limits, check};

use crate::Memory;

/// A document's tree, its tables of names (which are rounded up), and a table of a time zone's offsets
/// (1.5 KiB for five bytes of `zone`). Warnings and faults are bounded by number.
const MEMORY: Memory = Memory {
    base: 512 << 10,
    per_byte: 2048,
};

/// `[text…]`
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let read = MEMORY.holds(bytes.len(), || Limits::parse(text));
    match read {
        Ok(limits) => {
            let printed = limits.normalised_text();
            match Limits::parse(&printed) {
                Ok(again) => assert_eq!(again, limits, "{printed}"),
                Err(faults) => panic!("normal form cannot be read: {faults}\n{printed}"),
            }
            let again = Limits::parse(&printed).map(|limits| limits.normalised_text());
            assert_eq!(
                again.as_deref().ok(),
                Some(&printed[..]),
                "normal form is a fixed point"
            );
        }
        Err(faults) => assert!(!faults.to_string().is_empty()),
    }
    let report = check(text, "limits.toml");
    assert_eq!(report.good, Limits::parse(text).is_ok());
}

/// The shipped documents, in parts that are short enough.
pub fn seeds() -> Vec<Vec<u8>> {
    let shipped = [
        include_str!("../../../config/limits.toml"),
        include_str!("../../../config/cookbook/batch.toml"),
        include_str!("../../../config/cookbook/blacklist.toml"),
        include_str!("../../../config/cookbook/bulkheads.toml"),
        include_str!("../../../config/cookbook/penalties.toml"),
        include_str!("../../../config/cookbook/probation.toml"),
        include_str!("../../../config/cookbook/punishment.toml"),
        include_str!("../../../config/cookbook/reserved.toml"),
    ];
    let without_remarks = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    };
    let mut seeds: Vec<Vec<u8>> = shipped.map(without_remarks).to_vec();
    seeds.retain(|seed| seed.len() <= 4096);
    let more = "[rate.\"api.*\"]\nrate = \"10/s\"\nwindows = [\"5/15s\"]\n\
        bucket = { rate = \"100/s\", burst = 500, debt = 500 }\n\
        quota = [\"1_000_000/month\"]\nzone = \"Europe/Berlin\"\nnear = \"10%\"\n\
        domains.\"10.0.0.0/8\" = { rate = \"none\", hard = \"1/s\" }\n\
        [rate.x]\nglobal = \"9/s\"\ntiers = [{ limit = 2, window = \"1s\", active = \"2s\", cooldown = \"6s\", skippable = true }]\n";
    seeds.push(more.as_bytes().to_vec());
    seeds
}
