//! Programs of this workspace beside this one, built again before they are used.
//!
//! `cargo run` builds only the program that it runs, so an aggregator beside it may be out of date.
//! If cargo started this program, cargo is asked to build the other one; else the existing one is
//! used, and the user is responsible for its version.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

/// The path of a package's program in this workspace.
///
/// # Errors
///
/// If it cannot be built, or does not exist.
pub fn program(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let ours = std::env::current_exe().context("this program's path")?;
    let path = ours.with_file_name(name);
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", package, "--bin", name]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let status = build.status().with_context(|| format!("building {name}"))?;
        if !status.success() {
            bail!("building {name}: {status}");
        }
    }
    if !path.is_file() {
        bail!(
            "{}: not there; build it by `cargo build --release -p {package}`",
            path.display()
        );
    }
    Ok(path)
}
