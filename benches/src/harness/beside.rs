//! Programs of this workspace that lie beside this one, built anew before they are used.
//!
//! `cargo run` builds the program that it runs and no other, so an aggregator that lies there may be
//! of another day. Where cargo started us it is asked to build; otherwise what lies there is used,
//! and who started us without cargo answers for it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

/// The program of this name of a package of this workspace.
///
/// # Errors
///
/// Where it cannot be built, or is not there.
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
