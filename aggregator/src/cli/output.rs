//! The output of results: stdout, or a file that appears complete or not at all.
//!
//! Logs and progress are never written here. What stays true: a file named by `-o` has either its old content or
//! all of the new result, and a symbolic link to it stays a link; a device or a pipe is written directly, since it
//! cannot be replaced; `-` is stdout, as it is stdin where a file is read; if the reader closes the pipe, the command
//! ends quietly.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use tollgate_shared::escape::{escaped, escaped_json, escaped_lines};

use super::interrupt;
use crate::exit::Failure;
use crate::replace::{behind_links, keep_mode_and_owner};

/// Cells of more characters do not widen their column.
const WIDTH_MAX: usize = 64;

/// The form of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one object a report, JSON Lines for lists.
    Json,
}

/// When results are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The open output of one command.
pub struct Output {
    sink: Sink,
    coloured: bool,
}

enum Sink {
    Stdout(BufWriter<io::Stdout>),
    File {
        writer: BufWriter<File>,
        temporary: PathBuf,
        target: PathBuf,
    },
    /// A target that is not a regular file.
    Device {
        writer: BufWriter<File>,
        target: PathBuf,
    },
    Done(io::Sink),
}

/// Whether results go to stdout: no file is named, or `-` is.
pub fn is_stdout(target: Option<&Path>) -> bool {
    target.is_none_or(|target| target == Path::new("-"))
}

impl Output {
    /// Opens the output in a command that a signal ends: a file if one is named, else stdout.
    ///
    /// # Errors
    ///
    /// As [`Output::open`], and [`Failure::Io`] if signals cannot be received.
    pub fn open_until_signal(target: Option<&Path>, color: Color) -> Result<Self, Failure> {
        if !is_stdout(target) {
            interrupt::end_on_signal().map_err(|source| Failure::Io {
                name: "signals".to_owned(),
                source,
            })?;
        }
        Self::open(target, color)
    }

    /// Opens the output: a file if one is named, else stdout.
    ///
    /// # Errors
    ///
    /// [`Failure::Create`] if the file cannot be created in its directory.
    pub fn open(target: Option<&Path>, color: Color) -> Result<Self, Failure> {
        let Some(target) = target.filter(|target| !is_stdout(Some(target))) else {
            let wanted = match color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => {
                    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                        && io::stdout().is_terminal()
                }
            };
            return Ok(Self {
                sink: Sink::Stdout(BufWriter::new(io::stdout())),
                coloured: wanted,
            });
        };
        let create_at = |at: &Path, source| Failure::Create {
            name: at.display().to_string(),
            source,
        };
        let target = &behind_links(target).map_err(|source| create_at(target, source))?;
        let create = |source| create_at(target, source);
        let is_device = std::fs::metadata(target).is_ok_and(|found| !found.is_file());
        if is_device {
            let file = File::options().write(true).open(target).map_err(create)?;
            return Ok(Self {
                sink: Sink::Device {
                    writer: BufWriter::new(file),
                    target: target.to_owned(),
                },
                coloured: color == Color::Always,
            });
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = target.with_file_name(name);
        let file = interrupt::create_temporary(&temporary).map_err(create)?;
        let replaced = std::fs::metadata(target).ok();
        let kept = replaced.map_or(Ok(()), |replaced| keep_mode_and_owner(&file, &replaced));
        let output = Self {
            sink: Sink::File {
                writer: BufWriter::new(file),
                temporary,
                target: target.to_owned(),
            },
            coloured: color == Color::Always,
        };
        kept.map(|()| output).map_err(create)
    }

    /// Whether it is read as it is written: stdout, a pipe or a device. Anything else that is written to stdout may then
    /// be among the results.
    pub fn is_direct(&self) -> bool {
        matches!(self.sink, Sink::Stdout(_) | Sink::Device { .. })
    }

    /// Lets only the file's owner read it, as it is with a journal: for results that have all of a log.
    ///
    /// # Errors
    ///
    /// [`Failure::Io`] if that cannot be set.
    pub fn keep_private(&self) -> Result<(), Failure> {
        use std::os::unix::fs::PermissionsExt as _;
        match &self.sink {
            Sink::File { writer, .. } => {
                let set = writer
                    .get_ref()
                    .set_permissions(std::fs::Permissions::from_mode(0o600));
                set.map_err(|source| self.failure(source))
            }
            _ => Ok(()),
        }
    }

    /// Whether colours are to be used.
    pub fn is_coloured(&self) -> bool {
        self.coloured
    }

    /// Writes one or more lines; control sequences of terminals are escaped. The caller has to escape line ends in
    /// names.
    ///
    /// # Errors
    ///
    /// [`Failure::Unread`] if the reader has closed the output, else [`Failure::Io`].
    pub fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        let text = line.to_string();
        let shown = escaped_lines(&text);
        self.write(format_args!("{shown}\n"))
    }

    /// Writes a text that programs read, such as a document, byte by byte: what is escaped in it would be another name. Only
    /// on a terminal it is shown like lines.
    ///
    /// # Errors
    ///
    /// As [`Output::line`].
    pub fn document(&mut self, text: &str) -> Result<(), Failure> {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        match &self.sink {
            Sink::Stdout(_) if io::stdout().is_terminal() => self.line(text.trim_end()),
            _ => self.write(format_args!("{text}{end}")),
        }
    }

    /// Writes lines with colours; the caller has escaped the names in them.
    ///
    /// # Errors
    ///
    /// As [`Output::line`].
    pub fn coloured(&mut self, lines: &str) -> Result<(), Failure> {
        self.write(format_args!("{lines}\n"))
    }

    /// Clears the screen.
    ///
    /// # Errors
    ///
    /// As [`Output::line`].
    pub fn clear(&mut self) -> Result<(), Failure> {
        self.write(format_args!("\x1b[H\x1b[J\n"))
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        let result = self.writer().write_fmt(text);
        result.map_err(|source| self.failure(source))
    }

    /// The output as bytes, for results that are not text.
    pub fn writer(&mut self) -> &mut (dyn Write + Send) {
        match &mut self.sink {
            Sink::Stdout(writer) => writer,
            Sink::File { writer, .. } | Sink::Device { writer, .. } => writer,
            Sink::Done(nothing) => nothing,
        }
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    ///
    /// As [`Output::line`].
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::Bug(error.to_string()))?;
        self.write(format_args!("{}\n", escaped_json(&text)))
    }

    /// Writes rows in columns of the necessary width, to which very long cells do not count: one name of 256 bytes would
    /// move the columns of all other rows out of sight. Cells are escaped like names, so each row is one line.
    ///
    /// # Errors
    ///
    /// As [`Output::line`].
    pub fn columns<const N: usize>(&mut self, rows: &[[String; N]]) -> Result<(), Failure> {
        let rows = rows.iter();
        let rows: Vec<[String; N]> = rows
            .map(|row| row.each_ref().map(|cell| escaped(cell).to_string()))
            .collect();
        let widths: [usize; N] = std::array::from_fn(|column| {
            let widths = rows.iter().map(|row| row[column].chars().count());
            let usual = widths.filter(|width| *width <= WIDTH_MAX);
            usual.max().unwrap_or(0)
        });
        for row in &rows {
            let cells = row.iter().zip(widths);
            let cells: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            self.line(cells.join("  ").trim_end())?;
        }
        Ok(())
    }

    /// Writes out everything so far, for readers that watch.
    ///
    /// # Errors
    ///
    /// As [`Output::line`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        let result = self.writer().flush();
        result.map_err(|source| self.failure(source))
    }

    /// Ends the output; a file is on the disk and gets its name now.
    ///
    /// # Errors
    ///
    /// As [`Output::line`].
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        if let Sink::File {
            writer,
            temporary,
            target,
        } = std::mem::replace(&mut self.sink, Sink::Done(io::sink()))
        {
            let named = |source| Failure::Io {
                name: target.display().to_string(),
                source,
            };
            let synced = writer.get_ref().sync_all();
            let renamed = synced.and_then(|()| std::fs::rename(&temporary, &target));
            renamed.map_err(|error| {
                let _ = std::fs::remove_file(&temporary);
                named(error)
            })?;
        }
        Ok(())
    }

    /// The failure of the command if the output cannot be written.
    pub fn failure(&self, source: io::Error) -> Failure {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Unread;
        }
        let name = match &self.sink {
            Sink::File { target, .. } | Sink::Device { target, .. } => target.display().to_string(),
            Sink::Stdout(_) | Sink::Done(_) => "stdout".to_owned(),
        };
        Failure::Io { name, source }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.sink, Sink::Done(io::sink())) {
            Sink::File { temporary, .. } => {
                let _ = std::fs::remove_file(temporary);
            }
            // What a failed command printed before it failed is still of use: dropping the writer writes it
            // out, and ignores a closed pipe.
            Sink::Stdout(writer) => drop(writer),
            Sink::Device { .. } | Sink::Done(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("report.json");
        std::fs::write(&target, "before").unwrap();

        let mut output = Output::open(Some(&target), Color::Auto).unwrap();
        output.line("half").unwrap();
        output.flush().unwrap();
        drop(output);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "before");

        let mut output = Output::open(Some(&target), Color::Auto).unwrap();
        output.line("whole").unwrap();
        output.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "whole\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_row_is_one_line_for_any_text() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("list");
        let mut output = Output::open(Some(&target), Color::Auto).unwrap();
        let long = "x".repeat(WIDTH_MAX + 1);
        let rows = [
            [&*long, "y"],
            ["RESOURCE", "DOMAIN"],
            ["a\\b", "ev\u{1b}[2Jil\nfake\tline"],
            ["c", "d"],
        ];
        output
            .columns(&rows.map(|row| row.map(str::to_owned)))
            .unwrap();
        output.finish().unwrap();
        assert_eq!(
            std::fs::read_to_string(&target).unwrap(),
            format!(
                "{long}  y\nRESOURCE  DOMAIN\na\\\\b      ev\\x1b[2Jil\\nfake\\tline\nc         d\n"
            )
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_a_device_a_device() {
        use std::os::unix::fs::FileTypeExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("report"), dir.path().join("link"));
        std::fs::write(&target, "before").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let write = |to: &Path| {
            let mut output = Output::open(Some(to), Color::Auto).unwrap();
            output.line("whole").unwrap();
            output.finish()
        };
        write(&link).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "whole\n");
        let null = Path::new("/dev/null");
        write(null).unwrap();
        assert!(
            std::fs::metadata(null)
                .unwrap()
                .file_type()
                .is_char_device()
        );
        let (later, to_later) = (dir.path().join("later"), dir.path().join("to-later"));
        std::os::unix::fs::symlink("later", &to_later).unwrap();
        write(&to_later).unwrap();
        assert!(to_later.is_symlink());
        assert_eq!(std::fs::read_to_string(&later).unwrap(), "whole\n");
        let nowhere = dir.path().join("nowhere");
        std::os::unix::fs::symlink("none/report", &nowhere).unwrap();
        let fault = Output::open(Some(&nowhere), Color::Auto).err().unwrap();
        assert!(
            fault.to_string().contains("none/report: No such"),
            "{fault}"
        );
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        let circle = Output::open(Some(&circle), Color::Auto);
        assert!(matches!(circle, Err(Failure::Create { .. })));
        let directory = Output::open(Some(dir.path()), Color::Auto);
        assert!(matches!(directory, Err(Failure::Create { .. })));
    }
}
