//! Reads the limits file for the core.
//!
//! Knows nothing of versions. What stays true: the text is what would go to the log: with the tables of its time
//! zones, and under a domain key without names of domains.

use std::path::Path;

use tollgate_limits::with_zone_tables;

use crate::bounded_file;
use crate::core::event::LimitsFile;
use crate::domains::Domains;

/// More than a document may have, so that the message about a document that is too long has its length.
const BYTES_MAX: u64 = 4 << 20;

/// Reads the limits file. A long one takes about ten milliseconds. Waits for nobody: neither the file nor that of the
/// domain key may be a pipe.
pub(super) fn read_file(path: &Path, key: Option<&Path>) -> LimitsFile {
    let domains = key.map_or_else(|| Ok(Domains::default()), Domains::read_again);
    let text = bounded_file::read_regular(path, BYTES_MAX)
        .map_err(|error| error.to_string())
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned()))
        .and_then(|text| {
            let document = domains.map_err(|fault| fault.to_string())?.document(text);
            document
                .map(with_zone_tables)
                .map_err(|mixture| mixture.to_string())
        });
    LimitsFile {
        name: path.display().to_string(),
        text,
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limits::Limits;
    use tollgate_limits::versions::text::Text;

    use super::*;

    #[test]
    fn a_pipe_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (pipe, path) = (dir.path().join("pipe"), dir.path().join("limits.toml"));
        std::fs::write(&path, "version = 1\nrules = 2\n").expect("written");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let refused = |of: &Path, key| read_file(of, key).text.expect_err("a pipe");
        assert_eq!(refused(&pipe, None), "not a regular file");
        let text = refused(&path, Some(&pipe));
        assert!(text.ends_with("pipe: not a regular file"), "{text}");
    }

    #[test]
    fn a_file_goes_to_the_log_with_the_tables_of_its_zones() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("limits.toml");
        let text =
            "version = 1\nrules = 2\n[rate.a]\nquota = [\"5/day\"]\nzone = \"Europe/Berlin\"\n";
        std::fs::write(&path, text).expect("written");
        let read = read_file(&path, None).text.expect("a document");
        assert!(read.starts_with(text) && read.contains("[zones.\"Europe/Berlin\"]"));
        assert_eq!(Limits::parse_logged(&read), Limits::parse(text));
        assert!(
            Limits::parse_logged(text).is_err(),
            "the log would lack the table"
        );
        // Time zone tables of another build make no difference.
        let in_force = Text::from(&*read.replace("+02:00", "+03:00"));
        assert!(in_force.differs_in_zones_alone(&read));
        assert!(!in_force.differs_in_zones_alone(&read.replace("5/day", "6/day")));
    }
}
