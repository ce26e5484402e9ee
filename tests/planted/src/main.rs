//! `plant`: writes the copy of the tree with all bugs, below `target/planted`.
//!
//! Knows nothing of the effects of a bug. What stays true: the tree itself is only read.

use std::path::Path;
use std::process::ExitCode;

use tollgate_planted::Planting;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let to = root.join("target/planted");
    let planted = Planting::read(&root).and_then(|planting| {
        planting.write(&root, &to)?;
        Ok(planting.bugs.len())
    });
    match planted {
        Ok(bugs) => {
            println!("target/planted: a copy of the tree with {bugs} bugs");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("plant: {fault}");
            ExitCode::FAILURE
        }
    }
}
