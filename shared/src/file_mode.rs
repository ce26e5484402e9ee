//! Checks, by what a system says of a file, whether it may be opened: whether it is protected from other users of the
//! machine, and whether it is a file at all.
//!
//! Opens nothing: the caller passes what it found. On systems without modes there is no check of them.

use std::fs::Metadata;
use std::io;

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

/// A permission that others must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeFault {
    /// The file contains a secret, and every user can read it.
    #[error(
        "mode {mode:04o} lets every user of this machine read a secret, expected 0600 (chmod 600), or 0640 for a group"
    )]
    Exposed {
        /// Its mode.
        mode: u32,
    },
    /// The file determines which peers are trusted, and every user can change it.
    #[error(
        "mode {mode:04o} lets every user of this machine write it, expected 0644 (chmod 644) or less"
    )]
    Writable {
        /// Its mode.
        mode: u32,
    },
}

/// Checks whether a file of this mode may contain a secret.
///
/// # Errors
///
/// [`ModeFault::Exposed`] if every user may read, write or run it.
pub const fn check_secret(mode: u32) -> Result<(), ModeFault> {
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err(ModeFault::Exposed {
            mode: mode & PERMISSIONS,
        }),
    }
}

/// Checks whether a file of this mode may determine which peers are trusted.
///
/// # Errors
///
/// [`ModeFault::Writable`] if every user may write it.
pub const fn check_believed(mode: u32) -> Result<(), ModeFault> {
    match mode & 0o002 {
        0 => Ok(()),
        _ => Err(ModeFault::Writable {
            mode: mode & PERMISSIONS,
        }),
    }
}

/// Checks whether a path names a regular file: opening a pipe waits for somebody at its other end, and a device has no
/// end. Takes what [`std::fs::metadata`] returned; if that is an error, opening the file says why.
///
/// # Errors
///
/// If something else than a regular file was found.
pub fn check_regular(found: &io::Result<Metadata>) -> io::Result<()> {
    match found {
        Ok(found) if !found.is_file() => Err(io::Error::other("not a regular file")),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_expose_secrets_or_trusted_files_are_refused() {
        for (mode, keeps_a_secret, is_believed) in [
            (0o100_600, true, true),
            (0o100_640, true, true),
            (0o100_660, true, true),
            (0o100_644, false, true),
            (0o100_604, false, true),
            (0o100_602, false, false),
            (0o100_666, false, false),
        ] {
            assert_eq!(check_secret(mode).is_ok(), keeps_a_secret, "{mode:o}");
            assert_eq!(check_believed(mode).is_ok(), is_believed, "{mode:o}");
        }
        let fault = check_secret(0o100_644).expect_err("exposed").to_string();
        assert!(fault.starts_with("mode 0644 lets every user"), "{fault}");
    }
}
