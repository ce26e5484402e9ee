//! Opens a text file that may be compressed or in another encoding, told by its first bytes, not by its name.
//!
//! ```text
//! gzip, xz, zstd, bzip2     unpacked, all members of it; zeros behind a gzip are padding
//! UTF-16 with its mark      read as UTF-8
//! UTF-8 with its mark       the mark is passed over
//! ```
//!
//! Knows nothing of lines. What stays true: what is damaged is an error, after all that could be unpacked.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BZIP2_MAGIC: [u8; 3] = *b"BZh";
const UTF_8_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
const UTF_16_MARKS: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];

/// The lines of a file, unpacked and in UTF-8. `-` is stdin.
///
/// # Errors
///
/// What the file system says. Faults of the compression come while reading.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    if path == Path::new("-") {
        return decoded(unpacked(io::stdin())?);
    }
    decoded(unpacked(File::open(path)?)?)
}

fn unpacked(packed: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut file = BufReader::with_capacity(1 << 16, packed);
    let magic = file.fill_buf()?;
    if magic.starts_with(&XZ_MAGIC) {
        return Ok(buffered(lzma_rust2::XzReader::new(file, true)));
    }
    if magic.starts_with(&GZIP_MAGIC) {
        return Ok(buffered(Gzip {
            member: Some(flate2::bufread::GzDecoder::new(file)),
        }));
    }
    if magic.starts_with(&ZSTD_MAGIC) {
        return Ok(buffered(Zstd {
            frame: Frame::Between(Some(file)),
        }));
    }
    if magic.starts_with(&BZIP2_MAGIC) {
        return Ok(buffered(bzip2::bufread::MultiBzDecoder::new(file)));
    }
    Ok(Box::new(file))
}

fn decoded(mut text: Box<dyn BufRead + Send>) -> io::Result<Box<dyn BufRead + Send>> {
    let first = text.fill_buf()?;
    if UTF_16_MARKS.iter().any(|mark| first.starts_with(mark)) {
        return Ok(buffered(encoding_rs_io::DecodeReaderBytes::new(text)));
    }
    if first.starts_with(&UTF_8_MARK) {
        text.consume(UTF_8_MARK.len());
    }
    Ok(text)
}

fn buffered(reader: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 18, reader))
}

/// The members of a gzip, one after another. Blocks of tapes and of some copies are padded with zeros, which
/// end it; anything else behind a member is damage.
struct Gzip<R> {
    member: Option<flate2::bufread::GzDecoder<R>>,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(into)?;
            if 0 < read || into.is_empty() {
                return Ok(read);
            }
            let Some(member) = self.member.take() else {
                break;
            };
            let mut rest = member.into_inner();
            if !at_end_but_for_zeros(&mut rest)? {
                self.member = Some(flate2::bufread::GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

fn at_end_but_for_zeros(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(true);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let whole = zeros == bytes.len();
        reader.consume(zeros);
        if !whole {
            return Ok(false);
        }
    }
}

/// The frames of a zstd, one after another.
struct Zstd<R: Read> {
    frame: Frame<R>,
}

enum Frame<R: Read> {
    Inside(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
    Between(Option<R>),
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.frame {
                Frame::Inside(frame) => {
                    let read = frame.read(into)?;
                    if 0 < read || into.is_empty() {
                        return Ok(read);
                    }
                    let ended = std::mem::replace(&mut self.frame, Frame::Between(None));
                    if let Frame::Inside(frame) = ended {
                        self.frame = Frame::Between(Some(frame.into_inner()));
                    }
                }
                Frame::Between(rest) => {
                    let Some(mut rest) = rest.take() else {
                        return Ok(0);
                    };
                    if rest.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let frame = StreamingDecoder::new(rest).map_err(|fault| {
                        io::Error::new(io::ErrorKind::InvalidData, fault.to_string())
                    })?;
                    self.frame = Frame::Inside(Box::new(frame));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn read(bytes: &[u8]) -> io::Result<String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("named-wrongly.txt");
        std::fs::write(&path, bytes).expect("written");
        let mut read = String::new();
        open(&path)?.read_to_string(&mut read)?;
        Ok(read)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        encoder.write_all(text.as_bytes()).expect("packed");
        encoder.finish().expect("packed")
    }

    #[test]
    fn however_it_is_packed_it_reads_the_same() {
        let text = "one\ntwo\n".repeat(1000);
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut xz = lzma_rust2::XzWriter::new(Vec::new(), options).expect("xz");
        xz.write_all(text.as_bytes()).expect("packed");
        let xz = xz.finish().expect("packed");
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(text.as_bytes(), level);
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bzip2.write_all(text.as_bytes()).expect("packed");
        let bzip2 = bzip2.finish().expect("packed");
        for (name, packed) in [
            ("plain", text.as_bytes().to_vec()),
            ("gzip", gzip(&text)),
            ("xz", xz),
            ("zstd", zstd),
            ("bzip2", bzip2),
        ] {
            assert_eq!(read(&packed).expect(name), text, "{name}");
            if name != "plain" && name != "xz" {
                // Two of them in a row are one file.
                assert_eq!(
                    read(&packed.repeat(2)).expect(name),
                    text.repeat(2),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn zeros_behind_a_gzip_are_padding_and_anything_else_is_damage() {
        let packed = gzip("one\n");
        assert_eq!(
            read(&[&packed[..], &[0; 700]].concat()).expect("padded"),
            "one\n"
        );
        assert!(read(&[&packed[..], b"more"].concat()).is_err());
        assert!(read(&packed[..packed.len() - 3]).is_err());
    }

    #[test]
    fn marks_of_encodings_are_no_text() {
        let utf_16 = |encode: fn(u16) -> [u8; 2]| -> Vec<u8> {
            "\u{feff}t,é\n".encode_utf16().flat_map(encode).collect()
        };
        for bytes in [
            utf_16(u16::to_le_bytes),
            utf_16(u16::to_be_bytes),
            "\u{feff}t,é\n".as_bytes().to_vec(),
        ] {
            assert_eq!(read(&bytes).expect("read"), "t,é\n");
        }
    }
}
