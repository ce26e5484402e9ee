//! The file in which an agent stores the secret of its epoch for its successor.
//!
//! ```text
//! 6f0c…64 hexadecimal digits, and a line end
//! ```
//!
//! The successor presents the secret that it finds. So its predecessor's copies are given back at once instead of
//! after `agent_timeout`. What stays true: the file is never half written, and only its owner can read it.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use tollgate_shared::epoch::{EpochSecret, SECRET_BYTES};
use tollgate_shared::file_mode::check_regular;

use crate::error::BuildError;

/// Stores a secret for the successor, and returns the predecessor's. A file without a valid secret is treated as if
/// there were no predecessor: then the aggregators free its copies after `agent_timeout`.
pub(super) fn succeed(path: &Path, secret: EpochSecret) -> Result<Option<EpochSecret>, BuildError> {
    let fault = |source| BuildError::EpochFile {
        path: path.to_owned(),
        source,
    };
    check_regular(&std::fs::metadata(path)).map_err(fault)?;
    let before = match std::fs::read(path) {
        Ok(bytes) => read(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(fault(error)),
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // A file that an earlier run left half written may be readable by others.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(fault(error)),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&beside).map_err(fault)?;
    file.write_all(written(secret).as_bytes()).map_err(fault)?;
    drop(file);
    std::fs::rename(&beside, path).map_err(fault)?;
    Ok(before)
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
        assert_eq!(succeed(&path, a).unwrap(), None);
        assert_eq!(succeed(&path, b).unwrap(), Some(a));
        std::fs::write(&path, "half").unwrap();
        assert_eq!(succeed(&path, c).unwrap(), None);
        assert_eq!(succeed(&path, d).unwrap(), Some(c));
        std::fs::remove_file(&path).unwrap();
        assert!(succeed(&path.join("not-a-directory"), a).is_err());
        let fault = succeed(&std::env::temp_dir(), a).unwrap_err().to_string();
        assert!(fault.ends_with("not a regular file"), "{fault}");
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
    }
}
