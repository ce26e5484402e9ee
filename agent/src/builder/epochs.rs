//! The file in which an agent leaves its epoch to the one that comes after it.
//!
//! ```text
//! 6f0c…32 hexadecimal digits, and a line end
//! ```
//!
//! The successor names the epoch that it finds, so that what that one held is given back at once
//! instead of after the silence of a dead agent. What stays true: the file is never half written.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::BuildError;

/// Leaves an epoch to whoever comes after, and returns the one that came before. A file that holds
/// none is taken for the first agent's: then the silence says it.
pub(super) fn succeed(path: &Path, epoch: u128) -> Result<Option<u128>, BuildError> {
    let fault = |source| BuildError::EpochFile {
        path: path.to_owned(),
        source,
    };
    let before = match std::fs::read(path) {
        Ok(bytes) => std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| u128::from_str_radix(text.trim(), 16).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(fault(error)),
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, format!("{epoch:032x}\n")).map_err(fault)?;
    std::fs::rename(&beside, path).map_err(fault)?;
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_found_by_the_one_after_it() {
        let name = format!("tollgate-epoch-{:032x}", rand::random::<u128>());
        let path = std::env::temp_dir().join(name);
        assert_eq!(succeed(&path, 7).unwrap(), None);
        assert_eq!(succeed(&path, 8).unwrap(), Some(7));
        std::fs::write(&path, "half").unwrap();
        assert_eq!(succeed(&path, 9).unwrap(), None);
        assert_eq!(succeed(&path, 10).unwrap(), Some(9));
        std::fs::remove_file(&path).unwrap();
        assert!(succeed(&path.join("not-a-directory"), 1).is_err());
    }
}
