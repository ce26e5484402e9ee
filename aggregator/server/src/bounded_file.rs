//! Files that are read whole, but no longer ones than expected.
//!
//! A path may name a device, or by mistake a disk image, so memory is bounded and not only the text. Knows nothing of
//! contents. What stays true: at most one byte more than allowed is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tollgate_shared::file_mode::check_regular;

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
///
/// If it cannot be read, or is longer.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?, bytes_max)
}

/// The same of a file that is read again while the process runs.
///
/// # Errors
///
/// As [`read`] and [`open_regular`].
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular(path)?, bytes_max)
}

/// Opens a file that is read again while the process runs. Waits for nobody: a pipe in its place could hold up the
/// reader for ever.
///
/// # Errors
///
/// If it cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(without_waiting)
        .open(path)?;
    check_regular(&Ok(file.metadata()?))?;
    Ok(file)
}

/// Reads the rest of a source, which has at most `bytes_max` bytes.
///
/// # Errors
///
/// As [`read`].
pub fn read_all(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= bytes_max => Ok(bytes),
        _ => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {bytes_max} bytes"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused_after_the_bound() {
        let error = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "longer than 1048576 bytes");
        assert_eq!(read_all(&b"four"[..], 4).expect("just"), b"four");
        assert!(read_all(&b"fives"[..], 4).is_err());
    }
}
