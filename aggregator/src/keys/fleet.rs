//! Adds a record key, with which aggregators sign their records in the log, to `DIR/fleet.keys`.
//!
//! What stays true: existing keys stay, since records under them are checked as long as the log has them.

use std::path::Path;

use tollgate_server::record_keys;
use tollgate_shared::hex::hex;
use tollgate_shared::keyring::{CHECKSUM_ID, Keyring, is_key_id};

use super::{lock, make_dir, read, write};
use crate::exit::Failure;

const FILE: &str = "fleet.keys";

const HEADING: &str = "# Keys under which aggregators sign their records in the log (security.key_file), as `id key`. All\n\
    # aggregators have all of them; limits name those that count (record_keys). A key stays here as long as the log has\n\
    # records under it.\n";

/// Adds a key, under this id or under the first of k1, k2, … that is free; returns lines for the operator.
///
/// # Errors
///
/// If the id is invalid or taken, or the file is invalid, readable by other users, or cannot be written.
pub fn make(dir: &Path, id: Option<&str>) -> Result<Vec<String>, Failure> {
    let path = dir.join(FILE);
    make_dir(dir)?;
    let _locked = lock(&path)?;
    let (keys, before) = match path.exists() {
        false => (Keyring::default(), HEADING.to_owned()),
        true => {
            let keys = record_keys::read(&path);
            let keys = keys.map_err(|fault| Failure::Data(fault.to_string()))?;
            (keys, read(&path)?)
        }
    };
    let is_there = |id: &str| keys.ids().any(|of| of == id);
    let id = match id {
        None => (1..)
            .map(|number: u32| format!("k{number}"))
            .find(|id| !is_there(id))
            .unwrap_or_default(),
        Some(id) if !is_key_id(id) || id == CHECKSUM_ID => {
            return Err(Failure::Usage(format!(
                "--id: {} bytes, expected 1 to 16 of a-z, 0-9, _ and -, other than \"{CHECKSUM_ID}\"",
                id.len()
            )));
        }
        Some(id) if is_there(id) => {
            return Err(Failure::Data(format!(
                "{}: id \"{id}\" stands there already, expected another",
                path.display()
            )));
        }
        Some(id) => id.to_owned(),
    };
    let key = hex(&rand::random::<[u8; 32]>());
    let separator = if before.ends_with('\n') { "" } else { "\n" };
    write(&path, &format!("{before}{separator}{id} {key}\n"), 0o600)?;
    Ok(vec![
        format!(
            "{}: key \"{id}\", for all aggregators and no agents (security.key_file)",
            path.display()
        ),
        "it counts once limits name it (record_keys); for the steps see deploy/RUNBOOK.md, \"The fleet's key\""
            .to_owned(),
    ])
}
