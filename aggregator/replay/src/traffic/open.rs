//! Opens a text file that may be compressed or in another encoding, as its first bytes show, not its name.
//!
//! ```text
//! gzip, xz, zstd, bzip2     unpacked, with all members, and again if packed twice; trailing zeros are padding
//! UTF-16                    converted to UTF-8, with a byte order mark or without
//! UTF-8 with a mark         the mark is skipped
//! zip, tar, Parquet, …      an error that names the format and says what to do
//! ```
//!
//! Knows nothing of lines. What stays true: damage is an error, after everything that could be unpacked.

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

/// How often one file may be packed: a user may pack a file that a server packed.
const PACKED_MAX: usize = 3;

/// Formats that are not text: how each begins, and what to do with it.
const FOREIGN: [(&[u8], &str); 8] = [
    (
        b"PK\x03\x04",
        "a zip archive: unpack it, as in unzip -p FILE | tollgate backtest … -",
    ),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it"),
    (b"Rar!", "a RAR archive: unpack it"),
    (b"PAR1\x15", "a Parquet file: export it as CSV or JSON"),
    (b"SQLite format 3", "a database of SQLite: export it as CSV"),
    (
        b"\x04\x22\x4d\x18",
        "packed by lz4: unpack it, as in lz4 -dc FILE | tollgate backtest … -",
    ),
    (
        b"\x5d\x00\x00",
        "packed by lzma: unpack it, as in xz -dc FILE | tollgate backtest … -",
    ),
    (b"\xff\xfe\x00\x00", "in UTF-32: expected UTF-8 or UTF-16"),
];

/// The position of a tar's magic bytes, and the bytes.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// The lines of a file, unpacked and in UTF-8. `-` is stdin.
///
/// # Errors
///
/// Errors of the file system. Faults of the compression come while reading.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    if path == Path::new("-") {
        return decoded(unpacked(io::stdin())?);
    }
    decoded(unpacked(File::open(path)?)?)
}

fn unpacked(packed: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut file: Box<dyn BufRead + Send> = Box::new(BufReader::with_capacity(1 << 16, packed));
    for _ in 0..PACKED_MAX {
        let magic = file.fill_buf()?;
        file = if magic.starts_with(&XZ_MAGIC) {
            buffered(lzma_rust2::XzReader::new(file, true))
        } else if magic.starts_with(&GZIP_MAGIC) {
            buffered(Members::new(file, |rest| {
                Ok(flate2::bufread::GzDecoder::new(rest))
            }))
        } else if magic.starts_with(&BZIP2_MAGIC) {
            buffered(Members::new(file, |rest| {
                Ok(bzip2::bufread::BzDecoder::new(rest))
            }))
        } else if magic.starts_with(&ZSTD_MAGIC) || is_skippable(magic) {
            buffered(Members::new(file, zstd_frame))
        } else {
            return text(file);
        };
    }
    text(file)
}

/// The file, if it may be a text.
fn text(mut file: Box<dyn BufRead + Send>) -> io::Result<Box<dyn BufRead + Send>> {
    let first = file.fill_buf()?;
    let mut foreign = FOREIGN.iter();
    let is_tar = first
        .get(TAR.0..)
        .is_some_and(|rest| rest.starts_with(TAR.1));
    let what = match foreign.find(|(magic, _)| first.starts_with(magic)) {
        Some((_, what)) => *what,
        None if is_tar => "a tar archive: unpack it, as in tar -xOf FILE | tollgate backtest … -",
        None => return Ok(file),
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}

fn decoded(mut text: Box<dyn BufRead + Send>) -> io::Result<Box<dyn BufRead + Send>> {
    let first = text.fill_buf()?;
    if UTF_16_MARKS.iter().any(|mark| first.starts_with(mark)) {
        return Ok(buffered(encoding_rs_io::DecodeReaderBytes::new(text)));
    }
    if let Some(mark) = utf_16_mark(first) {
        let marked = io::Cursor::new(mark).chain(text);
        return Ok(buffered(encoding_rs_io::DecodeReaderBytes::new(marked)));
    }
    if first.starts_with(&UTF_8_MARK) {
        text.consume(UTF_8_MARK.len());
    }
    Ok(text)
}

/// The byte order mark that a text in UTF-16 should have: in the text of logs, one byte of two is zero.
fn utf_16_mark(first: &[u8]) -> Option<[u8; 2]> {
    const LOOKED_AT: usize = 32;
    let (pairs, _) = first.get(..LOOKED_AT)?.as_chunks::<2>();
    let is = |zero: usize| {
        pairs
            .iter()
            .all(|pair| pair[zero] == 0 && pair[1 - zero] != 0)
    };
    match (is(1), is(0)) {
        (true, _) => Some(UTF_16_MARKS[0]),
        (_, true) => Some(UTF_16_MARKS[1]),
        _ => None,
    }
}

fn buffered(reader: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 18, reader))
}

/// Unpacks one member of a file, and then returns the reader at what follows it.
trait PackedMember<R>: Read {
    fn rest(self) -> R;
}

impl<R: BufRead> PackedMember<R> for flate2::bufread::GzDecoder<R> {
    fn rest(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> PackedMember<R> for bzip2::bufread::BzDecoder<R> {
    fn rest(self) -> R {
        self.into_inner()
    }
}

type ZstdFrame<R> = StreamingDecoder<R, ruzstd::decoding::FrameDecoder>;

impl<R: BufRead> PackedMember<R> for ZstdFrame<R> {
    fn rest(self) -> R {
        self.into_inner()
    }
}

/// The members of a packed file, one after another. Tapes and some copying tools pad blocks with zeros, which end the
/// file; anything else after a member is damage.
struct Members<R, M> {
    rest: Option<R>,
    member: Option<M>,
    next: fn(R) -> io::Result<M>,
}

impl<R, M> Members<R, M> {
    const fn new(packed: R, next: fn(R) -> io::Result<M>) -> Self {
        Self {
            rest: Some(packed),
            member: None,
            next,
        }
    }
}

impl<R: BufRead, M: PackedMember<R>> Read for Members<R, M> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(member) = &mut self.member {
                let read = member.read(into)?;
                if 0 < read || into.is_empty() {
                    return Ok(read);
                }
                self.rest = self.member.take().map(M::rest);
            }
            let Some(mut rest) = self.rest.take() else {
                return Ok(0);
            };
            pass_skippable(&mut rest)?;
            if at_end_but_for_zeros(&mut rest)? {
                return Ok(0);
            }
            self.member = Some((self.next)(rest)?);
        }
    }
}

fn zstd_frame<R: BufRead>(rest: R) -> io::Result<ZstdFrame<R>> {
    StreamingDecoder::new(rest)
        .map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, fault.to_string()))
}

/// Whether bytes begin a skippable zstd frame, as parallel and seekable files have. No member of another format
/// begins like that.
fn is_skippable(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

fn pass_skippable(reader: &mut impl BufRead) -> io::Result<()> {
    while is_skippable(reader.fill_buf()?) {
        let mut head = [0; 8];
        reader.read_exact(&mut head)?;
        let [_, _, _, _, size @ ..] = head;
        let size = u64::from(u32::from_le_bytes(size));
        if io::copy(&mut reader.by_ref().take(size), &mut io::sink())? < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
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
                // Two of them in a row form one file.
                assert_eq!(
                    read(&packed.repeat(2)).expect(name),
                    text.repeat(2),
                    "{name}"
                );
                let padded = [&packed[..], &[0; 700]].concat();
                assert_eq!(read(&padded).expect(name), text, "{name}");
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
    fn skippable_zstd_frames_are_not_text() {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let frame = ruzstd::encoding::compress_to_vec(&b"one\n"[..], level);
        let own = [&[0x5e, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"abcd"].concat();
        for parts in [
            [&own[..], &frame, &frame],
            [&frame, &own, &frame],
            [&frame, &frame, &own],
        ] {
            assert_eq!(read(&parts.concat()).expect("frames"), "one\none\n");
        }
        assert!(read(&[&frame[..], &own[..10]].concat()).is_err());
    }

    #[test]
    fn files_packed_twice_are_unpacked_and_binaries_named() {
        let twice = {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(&gzip("one\n")).expect("packed");
            encoder.finish().expect("packed")
        };
        assert_eq!(read(&twice).expect("packed twice"), "one\n");
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, name) in [
            (&b"PK\x03\x04"[..], "zip"),
            (b"PAR1\x15", "Parquet"),
            (&tar, "tar"),
        ] {
            let fault = read(bytes).expect_err(name);
            assert!(fault.to_string().contains(name), "{fault}");
        }
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
        let text = "t,domain\n1,acme\n2,globex\n";
        for encode in [u16::to_le_bytes, u16::to_be_bytes] {
            let unmarked: Vec<u8> = text.encode_utf16().flat_map(encode).collect();
            assert_eq!(read(&unmarked).expect("read"), text);
        }
    }
}
