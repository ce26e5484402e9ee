//! Resident bytes of this process.
//!
//! Read from `smaps_rollup`, which walks the page tables: the counters in `status` and `statm` are
//! kept per processor and may be off by some hundred kilobytes.

use anyhow::Context as _;

/// Resident bytes of this process now.
///
/// # Errors
///
/// If the kernel does not report it.
pub fn resident_bytes() -> anyhow::Result<u64> {
    const FILE: &str = "/proc/self/smaps_rollup";
    let text = std::fs::read_to_string(FILE).with_context(|| FILE)?;
    parse_rss(&text).with_context(|| format!("{FILE}: no line `Rss: … kB`"))
}

/// Resident bytes of another process now; `None` if it has ended or the kernel does not report it.
pub fn resident_bytes_of(pid: u32) -> Option<u64> {
    parse_rss(&std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn parse_rss(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_resident_bytes_is_read() {
        let text = "55d0-7ffc ---p 0 00:00 0   [rollup]\nRss:                1540 kB\nPss: 3 kB\n";
        assert_eq!(parse_rss(text), Some(1540 * 1024));
        assert_eq!(parse_rss("Pss: 3 kB\n"), None);
    }

    #[test]
    fn memory_that_was_written_is_resident() {
        // Much more than other tests of this process may free meanwhile.
        let before = resident_bytes().expect("on Linux");
        let block = std::hint::black_box(vec![1u8; 256 << 20]);
        let after = resident_bytes().expect("on Linux");
        assert!(before + (128 << 20) <= after, "{before} {after}");
        assert_eq!(block[1], 1);
    }
}
