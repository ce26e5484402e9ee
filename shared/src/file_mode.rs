//! Whether a file is kept from other users of its machine, by its mode.
//!
//! Knows no files: whoever opens one has its mode. On systems without modes nobody asks.

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

/// What others may do with a file that they must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeFault {
    /// The file has a secret, and is anybody's.
    #[error(
        "mode {mode:04o} lets every user of this machine read a secret, expected 0600 (chmod 600), or 0640 for a group"
    )]
    Exposed {
        /// Its mode.
        mode: u32,
    },
    /// The file says who is believed, and anybody may change it.
    #[error(
        "mode {mode:04o} lets every user of this machine write it, expected 0644 (chmod 644) or less"
    )]
    Writable {
        /// Its mode.
        mode: u32,
    },
}

/// Whether a file of this mode may have a secret in it.
///
/// # Errors
///
/// [`ModeFault::Exposed`] where every user may read, write or run it.
pub const fn check_secret(mode: u32) -> Result<(), ModeFault> {
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err(ModeFault::Exposed {
            mode: mode & PERMISSIONS,
        }),
    }
}

/// Whether a file of this mode may say who is believed.
///
/// # Errors
///
/// [`ModeFault::Writable`] where every user may write it.
pub const fn check_believed(mode: u32) -> Result<(), ModeFault> {
    match mode & 0o002 {
        0 => Ok(()),
        _ => Err(ModeFault::Writable {
            mode: mode & PERMISSIONS,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_neither_read_secrets_nor_write_what_is_believed() {
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
        let said = check_secret(0o100_644).expect_err("exposed").to_string();
        assert!(said.starts_with("mode 0644 lets every user"), "{said}");
    }
}
