//! The file in which an agent stores the secret of its epoch for its successor.
//!
//! ```text
//! 6f0c…64 hexadecimal digits, and a line end
//! ```
//!
//! The successor presents the secret that it finds. So its predecessor's copies are given back at once instead of
//! after `agent_timeout`. An agent keeps a file beside it locked while it lives: workers that share a file would end each
//! other's epochs otherwise, again and again. Children of a fork keep it locked, too. What stays true: the file is never
//! half written, and only its owner can read it; nobody presents the secret of an agent that lives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use tollgate_shared::epoch::{EpochSecret, SECRET_BYTES};
use tollgate_shared::file_mode::check_regular;

use crate::error::BuildError;

/// The result of taking a file over.
#[derive(Debug, Default)]
pub(super) struct Succession {
    /// The predecessor's secret.
    pub(super) before: Option<EpochSecret>,
    /// The lock, until this is dropped. `None`: another agent has it, which lives.
    pub(super) lock: Option<File>,
}

/// Stores a secret for the successor, and returns the predecessor's. A file without a valid secret is treated as if
/// there were no predecessor: then the aggregators free its copies after `agent_timeout`. So is the file of an agent that
/// lives, which is left alone.
pub(super) fn succeed(path: &Path, secret: EpochSecret) -> Result<Succession, BuildError> {
    let fault = |source| BuildError::EpochFile {
        path: path.to_owned(),
        source,
    };
    check_regular(&std::fs::metadata(path)).map_err(fault)?;
    let (_, lock) = beside(path, ".lock", OpenOptions::new().create(true)).map_err(fault)?;
    // A file system without locks is used without.
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        tracing::warn!(
            path = %path.display(),
            "the epoch file is that of an agent that lives: expected a file for each agent. If this process is killed, \
             what it holds is free after agent_timeout"
        );
        return Ok(Succession::default());
    }
    let before = match std::fs::read(path) {
        Ok(bytes) => read(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(fault(error)),
    };
    // A file that an earlier run left half written may be readable by others.
    match std::fs::remove_file(named(path, ".new")) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(fault(error)),
        _ => {}
    }
    let new = beside(path, ".new", OpenOptions::new().create_new(true));
    let (name, mut file) = new.map_err(fault)?;
    file.write_all(written(secret).as_bytes()).map_err(fault)?;
    std::fs::rename(name, path).map_err(fault)?;
    let lock = Some(lock);
    Ok(Succession { before, lock })
}

fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Opens a file beside another, for writing, and for its owner alone if it is new.
fn beside(path: &Path, ending: &str, options: &mut OpenOptions) -> io::Result<(PathBuf, File)> {
    let name = named(path, ending);
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    let file = options.open(&name)?;
    Ok((name, file))
}

fn written(secret: EpochSecret) -> String {
    let mut text = String::with_capacity(2 * SECRET_BYTES + 1);
    for half in secret.bytes().chunks(16) {
        let number = half
            .iter()
            .fold(0_u128, |n, byte| n << 8 | u128::from(*byte));
        text.push_str(&format!("{number:032x}"));
    }
    text.push('\n');
    text
}

fn read(bytes: &[u8]) -> Option<EpochSecret> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    if text.len() != 2 * SECRET_BYTES {
        return None;
    }
    let (first, second) = text.split_at_checked(SECRET_BYTES)?;
    let mut secret = [0; SECRET_BYTES];
    for (half, digits) in secret.chunks_mut(16).zip([first, second]) {
        half.copy_from_slice(&u128::from_str_radix(digits, 16).ok()?.to_be_bytes());
    }
    Some(EpochSecret::new(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_found_by_the_one_after_it() {
        let name = format!("tollgate-epoch-{:032x}", rand::random::<u128>());
        let path = std::env::temp_dir().join(name);
        let [a, b, c, d] = [7, 0x0f, 9, 0xf0].map(|byte| EpochSecret::new([byte; SECRET_BYTES]));
        let before = |secret| succeed(&path, secret).unwrap().before;
        assert_eq!(before(a), None);
        assert_eq!(before(b), Some(a));
        std::fs::write(&path, "half").unwrap();
        assert_eq!(before(c), None);
        assert_eq!(before(d), Some(c));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(named(&path, ".lock")).unwrap();
        assert!(succeed(&path.join("not-a-directory"), a).is_err());
        let fault = succeed(&std::env::temp_dir(), a).unwrap_err().to_string();
        assert!(fault.ends_with("not a regular file"), "{fault}");
    }

    #[test]
    fn an_agent_that_lives_has_no_successor() {
        let name = format!("tollgate-epoch-{:032x}", rand::random::<u128>());
        let path = std::env::temp_dir().join(name);
        let [a, b, c] = [1, 2, 3].map(|byte| EpochSecret::new([byte; SECRET_BYTES]));
        let first = succeed(&path, a).unwrap();
        let second = succeed(&path, b).unwrap();
        assert_eq!((second.before, second.lock.is_some()), (None, false));
        drop(first);
        assert_eq!(succeed(&path, c).unwrap().before, Some(a));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(named(&path, ".lock")).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_its_user_can_read_the_stored_secret() {
        use std::os::unix::fs::PermissionsExt as _;
        let name = format!("tollgate-epoch-{:032x}", rand::random::<u128>());
        let path = std::env::temp_dir().join(name);
        let beside = path.with_extension("new");
        std::fs::write(&beside, "readable by all").unwrap();
        for _ in 0..2 {
            succeed(&path, EpochSecret::new([7; SECRET_BYTES])).unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(named(&path, ".lock")).unwrap();
    }
}
