//! The paths within a journal's directory, and the content of two of its small files.
//!
//! ```text
//! DIR/journal                       the description: version, partitions, generation (below)
//! DIR/running                       exists while a process writes, or after it was killed: boot id and durability
//! DIR/lock                          locked while a process writes, as DIR itself is
//! DIR/ends                          how far each partition is known to reach (`ends`)
//! DIR/restored                      an operator put the journal back from a backup: the next opening removes the file
//! DIR/hits-00003/00000000000000018250.seg     a segment, named by the offset of its first record
//! DIR/limits-00000/…  DIR/denials-00003/…
//! ```
//!
//! The description consists of lines of words: `tollgate-journal 1`, `partitions 16`, `generation 2`, and
//! for each partition that had records when the generation began `begins hits 3 18250`. It and `ends` close with `end`
//! and the sum of all that: `sum 5f2c1e0c` (CRC-32). Does no I/O: names and texts alone.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use super::super::Stream;
use super::Ack;

/// The version of the format that this build writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// All streams, in the order in which the journal processes them.
pub const STREAMS: [Stream; 3] = [Stream::Limits, Stream::Hits, Stream::Denials];

/// The fault of a small file that is not as it was written.
pub const OTHER_SUM: &str =
    "its content is not what was written: its last line is the sum of another text";

/// The name of the file by which an operator states that the journal was put back from a backup.
pub const RESTORED: &str = "restored";

/// The file that describes the journal.
pub fn description(dir: &Path) -> PathBuf {
    dir.join("journal")
}

/// The file that exists while a process writes the journal.
pub fn running(dir: &Path) -> PathBuf {
    dir.join("running")
}

/// The file that a process locks while it writes the journal.
pub fn lock(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// The file that has how far each partition is known to reach.
pub fn ends(dir: &Path) -> PathBuf {
    dir.join("ends")
}

/// The directory of a partition.
pub fn partition(dir: &Path, stream: Stream, partition: u32) -> PathBuf {
    dir.join(format!("{}-{partition:05}", stream_name(stream)))
}

/// The partition of a directory, from its name; `None` for other names.
pub fn partition_named(name: &str) -> Option<(Stream, u32)> {
    let (stream, digits) = name.split_once('-')?;
    let is_ours = 5 <= digits.len() && digits.bytes().all(|b| b.is_ascii_digit());
    is_ours.then_some((stream_of(stream)?, digits.parse().ok()?))
}

/// The file of a segment, in its partition's directory.
pub fn segment(partition_dir: &Path, base: u64) -> PathBuf {
    partition_dir.join(format!("{base:020}.seg"))
}

/// The base offset of a segment file, from its name; `None` for other files.
pub fn segment_base(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// How many partitions a stream has.
pub fn partitions_of(stream: Stream, partitions: u32) -> u32 {
    match stream {
        Stream::Limits => 1,
        Stream::Hits | Stream::Denials => partitions,
    }
}

/// The name of a stream, in paths and in the small files.
pub fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Hits => "hits",
        Stream::Limits => "limits",
        Stream::Denials => "denials",
    }
}

/// The stream of a name; `None` for other words.
pub fn stream_of(stream_name: &str) -> Option<Stream> {
    STREAMS
        .into_iter()
        .find(|s| self::stream_name(*s) == stream_name)
}

/// What closes a small file, before its sum.
const END: &str = "\nend\n";

/// A small file's text with its sum behind it.
pub fn with_sum(text: &str) -> String {
    let sum = crc32fast::hash(text.as_bytes());
    format!("{text}sum {sum:08x}\n")
}

/// A small file's text without its sum; `None` if something else is behind its end, such as the sum of another text.
/// Files of earlier builds have no sum.
pub fn without_sum(text: &str) -> Option<&str> {
    let Some(end) = text.rfind(END) else {
        return Some(text);
    };
    let whole = &text[..end + END.len()];
    (text == whole || text == with_sum(whole)).then_some(whole)
}

/// The content of the file `journal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// How many partitions `hits` and `denials` have.
    pub partitions: u32,
    /// The generation of the log. It grows when the end of the log may have been lost.
    pub generation: u32,
    /// Where this generation begins in each partition that had records then.
    pub begins: Vec<(Stream, u32, u64)>,
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptionFault {
    /// A later build wrote it, with this version.
    Newer(u32),
    /// It cannot be parsed; the text says what was expected.
    Unreadable(String),
}

impl Description {
    /// Where the current generation begins in a partition.
    pub fn begin_of(&self, stream: Stream, partition: u32) -> u64 {
        let found = self
            .begins
            .iter()
            .find(|(s, p, _)| (*s, *p) == (stream, partition));
        found.map_or(0, |(_, _, begin)| *begin)
    }

    /// The description as text.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "tollgate-journal {VERSION}\npartitions {}\ngeneration {}\n",
            self.partitions, self.generation
        );
        for (stream, partition, begin) in &self.begins {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "begins {} {partition} {begin}", stream_name(*stream));
        }
        text.push_str("end\n");
        with_sum(&text)
    }

    /// Parses a description.
    pub fn from_text(text: &str) -> Result<Self, DescriptionFault> {
        let fault = |what: &str| DescriptionFault::Unreadable(format!("file `journal`: {what}"));
        let version: u32 = { text.lines().next() }
            .and_then(|line| line.strip_prefix("tollgate-journal "))
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| fault("expected `tollgate-journal` and a version"))?;
        if version > VERSION {
            return Err(DescriptionFault::Newer(version));
        }
        let text = without_sum(text).ok_or_else(|| fault(OTHER_SUM))?;
        let mut read = Self {
            partitions: 0,
            generation: 0,
            begins: Vec::new(),
        };
        for line in text.lines().skip(1) {
            if line == "end" {
                return match read.lacks() {
                    Some(what) => Err(fault(&what)),
                    None => Ok(read),
                };
            }
            if !read.takes(line) {
                return Err(fault(&format!(
                    "line `{line}`: expected `partitions` or `generation` and a number from 1 on, `begins` with stream, \
                     partition and offset, or `end`"
                )));
            }
        }
        Err(fault("it is cut short, expected an `end`"))
    }

    /// Takes a line between the title and the end; false if it cannot be one.
    fn takes(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["partitions", n] => n
                .parse()
                .map(|n: NonZeroU32| self.partitions = n.get())
                .is_ok(),
            ["generation", n] => n
                .parse()
                .map(|n: NonZeroU32| self.generation = n.get())
                .is_ok(),
            ["begins", s, p, o] => match (stream_of(s), p.parse(), o.parse()) {
                (Some(s), Ok(p), Ok(o)) => {
                    self.begins.push((s, p, o));
                    true
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// What the lines before the end lack, or have too much of.
    fn lacks(&self) -> Option<String> {
        for (name, number) in [
            ("partitions", self.partitions),
            ("generation", self.generation),
        ] {
            if number == 0 {
                return Some(format!("expected a line `{name}` before `end`"));
            }
        }
        let mut begins = self.begins.iter();
        let (stream, partition, _) = begins.find(|(s, p, _)| !self.has(*s, *p))?;
        let (name, partitions) = (stream_name(*stream), self.partitions);
        Some(format!(
            "it has `begins {name} {partition}` and `partitions {partitions}`, which do not fit"
        ))
    }

    /// Whether the journal has a partition.
    pub fn has(&self, stream: Stream, partition: u32) -> bool {
        partition < partitions_of(stream, self.partitions)
    }
}

/// The content of the file `running`: about the process that writes, or that was killed while it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The boot id of the machine then; `None` if it was not known.
    pub boot: Option<String>,
    /// How durable a record was when the process acknowledged it.
    pub ack: Ack,
}

impl Running {
    /// The content as text.
    pub fn to_text(&self) -> String {
        let ack = match self.ack {
            Ack::Written => "written",
            Ack::Synced => "synced",
        };
        format!("{ack} {}\n", self.boot.as_deref().unwrap_or("-"))
    }

    /// Parses the content. What cannot be parsed counts as the worst case: durability `written`, another
    /// boot.
    pub fn from_text(text: &str) -> Self {
        match text.trim_end().split_once(' ') {
            Some((ack, boot)) => Self {
                boot: (boot != "-").then(|| boot.to_owned()),
                ack: match ack {
                    "synced" => Ack::Synced,
                    _ => Ack::Written,
                },
            },
            None => Self {
                boot: None,
                ack: Ack::Written,
            },
        }
    }
}
