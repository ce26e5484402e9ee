//! Keys for fleets without a PKI: a CA, certificates, tokens and record keys, in files.
//!
//! What stays true: a file with a secret is created with mode 0600, and appears complete or not at all; a CA is never
//! overwritten.

pub mod certificates;
pub mod fleet;
pub mod tokens;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::replace::{behind_links, keep_mode_and_owner};

/// What `keys cert` takes.
#[derive(Debug, clap::Args)]
pub struct CertArgs {
    /// The file name and first name of the certificate: the server name of a fleet, or an agent's name
    pub name: String,
    /// A further name or address of the certificate; may be repeated
    #[arg(long = "also", value_name = "NAME")]
    pub also: Vec<String>,
    /// For how many days it is valid
    #[arg(long, default_value_t = 365, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

/// What `keys token` takes.
#[derive(Debug, clap::Args)]
pub struct TokenArgs {
    /// The token's name: amendments and log lines name its bearer by it
    pub name: String,
    /// A role that the token grants; may be repeated: agent, relay, viewer, operator, admin, member
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub roles: Vec<String>,
    /// The name that agents may have, or a prefix of it with `*` at the end [default: any]
    #[arg(long, value_name = "NAME")]
    pub agents: Option<String>,
    /// A namespace that the token is for; may be repeated [default: all]
    #[arg(long = "namespace", value_name = "NAME")]
    pub namespaces: Vec<String>,
    /// For how many days it is valid [default: no end]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: Option<u32>,
    /// The DNS name of a client certificate that is used in place of a token: no token is created
    #[arg(long, value_name = "NAME")]
    pub certificate: Option<String>,
}

/// Checks a name that is also used as a file name.
fn check_file_name(name: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    match matches!(name.len(), 1..=100) && name.chars().all(is_plain) && !name.starts_with('.') {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "name {name:?}: expected 1 to 100 of the letters a-z A-Z 0-9 . _ - :, the first not a dot"
        ))),
    }
}

/// Creates the directory, with access for its owner only, if it does not exist.
fn make_dir(dir: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|source| Failure::Create {
        name: dir.display().to_string(),
        source,
    })
}

/// Locks a file against changes by other processes, until the result is dropped.
fn lock(path: &Path) -> Result<File, Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&beside)
        .and_then(|file| file.lock().map(|()| file));
    opened.map_err(|source| Failure::Create {
        name: PathBuf::from(beside).display().to_string(),
        source,
    })
}

/// Writes a complete file with this mode, or in place of one of the same name, of which it gets mode and owner. Where the
/// name is a link, the file that it leads to is replaced: aggregators may follow that one.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let path = &behind_links(path).map_err(|source| Failure::Create {
        name: path.display().to_string(),
        source,
    })?;
    let replaced = fs::metadata(path).ok();
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let failed = |source| Failure::Create {
        name: path.display().to_string(),
        source,
    };
    // A temporary file left by an earlier process may have another mode.
    let _ = fs::remove_file(&beside);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file: File| {
            if let Some(replaced) = &replaced {
                keep_mode_and_owner(&file, replaced)?;
                // But for those who may read a secret that they should not.
                let kept = replaced.permissions().mode() & (mode | 0o770);
                file.set_permissions(fs::Permissions::from_mode(kept))?;
            }
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map_err(failed)
}

/// The text of a file.
fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|source| Failure::Input {
        name: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_behind_a_link_is_replaced_and_keeps_its_mode() {
        let dir = std::env::temp_dir().join(format!("tollgate-keys-{}", std::process::id()));
        make_dir(&dir).expect("a directory");
        let (file, link) = (dir.join("followed"), dir.join("link"));
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode));
        let mode = || fs::metadata(&file).expect("it").permissions().mode() & 0o777;
        write(&link, "a", 0o644).expect("new");
        assert_eq!(mode(), 0o644);
        set(0o640).expect("a mode");
        write(&link, "b", 0o644).expect("replaced");
        assert_eq!((read(&file).expect("it"), mode()), ("b".to_owned(), 0o640));
        // A secret that everybody may read is not left so.
        set(0o644).expect("a mode");
        write(&link, "c", 0o600).expect("replaced");
        assert_eq!((read(&file).expect("it"), mode()), ("c".to_owned(), 0o640));
        assert!(fs::symlink_metadata(&link).expect("it").is_symlink());
        fs::remove_dir_all(&dir).expect("removed");
    }
}
