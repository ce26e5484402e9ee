//! Files in place of others.
//!
//! A result is written beside a file and renamed over it. What stays true: users who could read or write the file
//! still can; a symbolic link to it stays a link.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

/// Gives a file the mode of the file that it replaces, and its owner and group if the system allows that.
pub fn keep_mode_and_owner(file: &File, replaced: &Metadata) -> io::Result<()> {
    // Only root may give a file away.
    let _ = fchown(file, None, Some(replaced.gid()));
    let _ = fchown(file, Some(replaced.uid()), None);
    file.set_permissions(replaced.permissions())
}

/// The file that a path leads to. It need not exist, also if the path is a link to it: the result is then written to
/// where the link leads, as a shell does it.
pub fn behind_links(target: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(target) {
        Ok(found) => return Ok(found),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // A pipe has no path: /dev/stdout leads to `pipe:[123]`.
        Err(_) if target.exists() => return Ok(target.to_owned()),
        Err(_) => {}
    }
    // Links in a circle are another error.
    let mut target = target.to_owned();
    while let Ok(next) = std::fs::read_link(&target) {
        target = target.with_file_name(next);
    }
    Ok(target)
}
