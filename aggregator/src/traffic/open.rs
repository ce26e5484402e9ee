//! Opens a text file that may be compressed, told apart by its first bytes, not by its name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// The lines of a file, unpacked where it is gzip or xz. `-` is stdin.
///
/// # Errors
///
/// What the file system says. Faults of the compression come while reading.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    if path == Path::new("-") {
        return unpacked(io::stdin());
    }
    unpacked(File::open(path)?)
}

fn unpacked(packed: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut file = BufReader::with_capacity(1 << 16, packed);
    let magic = file.fill_buf()?;
    if magic.starts_with(&XZ_MAGIC) {
        return Ok(buffered(lzma_rust2::XzReader::new(file, true)));
    }
    if magic.starts_with(&GZIP_MAGIC) {
        return Ok(buffered(flate2::bufread::MultiGzDecoder::new(file)));
    }
    Ok(Box::new(file))
}

fn buffered(reader: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 18, reader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn plain_gzip_and_xz_read_the_same() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "one\ntwo\n".repeat(1000);
        let plain = dir.path().join("plain");
        std::fs::write(&plain, &text).expect("written");
        let gz = dir.path().join("named-wrongly.txt");
        let mut encoder =
            flate2::write::GzEncoder::new(File::create(&gz).expect("created"), Default::default());
        encoder.write_all(text.as_bytes()).expect("packed");
        encoder.finish().expect("packed");
        let xz = dir.path().join("packed.xz");
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut encoder =
            lzma_rust2::XzWriter::new(File::create(&xz).expect("created"), options).expect("xz");
        encoder.write_all(text.as_bytes()).expect("packed");
        encoder.finish().expect("packed");
        for path in [plain, gz, xz] {
            let mut read = String::new();
            open(&path)
                .expect("opened")
                .read_to_string(&mut read)
                .expect("read");
            assert_eq!(read, text, "{}", path.display());
        }
    }
}
