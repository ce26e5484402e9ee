//! Reads the file with the fleet's record keys: `security.key_file`, and `--key-file` of commands.
//!
//! Knows nothing of which keys count. What stays true: a file that other users of the machine can read is refused; no
//! fault shows a key.

use std::path::{Path, PathBuf};

use tollgate_shared::keyring::{KEY_FILE_BYTES_MAX, Keyring, KeyringFault};
use tollgate_tls::{TlsFault, read_secrets};

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordKeyFault {
    /// It cannot be read, or other users can read it.
    #[error(transparent)]
    File(#[from] TlsFault),
    /// Its content is invalid.
    #[error("{}: {fault}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: KeyringFault,
    },
}

/// The keys of a file.
///
/// # Errors
///
/// [`RecordKeyFault`] names the file, and the line.
pub fn read(path: &Path) -> Result<Keyring, RecordKeyFault> {
    let file = read_secrets(path, KEY_FILE_BYTES_MAX)?;
    Keyring::parse(&file).map_err(|fault| RecordKeyFault::Bad {
        path: path.to_owned(),
        fault,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_bad_key_file_is_named_with_its_line_or_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet.keys");
        let fault = || read(&path).expect_err("bad").to_string();
        assert!(fault().starts_with(&format!("{}: ", path.display())));
        let key = "5f2c1e0c41aa87b39d6e5f2c1e0c41aa87b39d6e";
        std::fs::write(&path, format!("k1 {key}\nk2 {key}\n")).unwrap();
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode(0o644)).unwrap();
        let exposed = fault();
        assert!(exposed.contains("mode 0644 lets every user"), "{exposed}");
        std::fs::set_permissions(&path, mode(0o640)).unwrap();
        let twice = format!("{}: line 2: id \"k2\" has the key of", path.display());
        assert!(fault().starts_with(&twice), "{}", fault());
        std::fs::write(&path, format!("k1 {key}\n")).unwrap();
        assert_eq!(read(&path).unwrap().ids().collect::<Vec<_>>(), ["k1"]);
    }
}
