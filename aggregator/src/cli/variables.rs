//! Variables of the environment whose names are almost a setting's: a misspelt one would be ignored silently.
//!
//! Only names close to a setting's are reported. Others that begin with `TOLLGATE_` are somebody's own: where a service
//! is called `tollgate`, Kubernetes sets `TOLLGATE_SERVICE_HOST` and its like.

use std::collections::BTreeSet;
use std::env::VarError;
use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;
use clap::builder::Resettable;
use tollgate_server::config::{OPTIONS, PROPERTIES, most_like, variable};

use super::Cli;
use crate::exit::Failure;

const PREFIX: &str = "TOLLGATE_";

/// What only agents read (`AgentBuilder::from_env`), and what no flag sets.
const OF_AGENTS: [&str; 7] = [
    "TOLLGATE_AGENT_NAME",
    "TOLLGATE_AGGREGATORS",
    "TOLLGATE_EPOCH_FILE",
    "TOLLGATE_INSECURE",
    "TOLLGATE_KAFKA",
    "TOLLGATE_KAFKA_PROPERTIES_FILE",
    "TOLLGATE_KILL_SWITCH",
];

/// The command for an environment in which a variable with an empty value is not set: compose files and scripts pass an
/// unset variable on as an empty one.
pub fn without_empty(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| match arg.get_env().is_some_and(is_empty) {
            true => arg.env(Resettable::<clap::builder::OsStr>::Reset),
            false => arg,
        })
        .mut_subcommands(without_empty)
}

/// The value of a variable.
///
/// # Errors
///
/// [`Failure::Usage`] if the value is not UTF-8.
pub fn text(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::Usage(format!("{name}: is not UTF-8"))),
    }
}

/// A remark for each of these names that differs a little from a setting's.
pub fn misspelt(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let candidates: BTreeSet<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX))
        .collect();
    if candidates.is_empty() {
        return Vec::new();
    }
    let known = settings();
    candidates
        .iter()
        .filter(|name| !known.contains(*name))
        .filter_map(|name| {
            let ends = known.iter().map(|setting| end(setting));
            let meant = most_like(end(name), ends)?;
            Some(format!(
                "{name}: no setting, ignored; did you mean {PREFIX}{meant}?"
            ))
        })
        .collect()
}

/// Of a name with the prefix, what follows: what all have in common says nothing of their likeness.
fn end(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn settings() -> BTreeSet<String> {
    let from_variables = OPTIONS.iter().filter(|path| **path != PROPERTIES);
    let mut known: BTreeSet<String> = from_variables.map(|path| variable(path)).collect();
    known.extend(OF_AGENTS.map(str::to_owned));
    with_flags_of(&Cli::command(), &mut known);
    known
}

fn with_flags_of(command: &clap::Command, known: &mut BTreeSet<String>) {
    for variable in command.get_arguments().filter_map(clap::Arg::get_env) {
        known.insert(variable.to_string_lossy().into_owned());
    }
    for below in command.get_subcommands() {
        with_flags_of(below, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<String> {
        misspelt(names.iter().map(OsString::from))
    }

    #[test]
    fn a_variable_close_to_a_setting_is_reported() {
        for (name, meant) in [
            ("TOLLGATE_AGREGATORS", "TOLLGATE_AGGREGATORS"),
            ("TOLLGATE_LISTEN_HTPP", "TOLLGATE_LISTEN_HTTP"),
            ("TOLLGATE_JOURNAL_DIRS", "TOLLGATE_JOURNAL_DIR"),
            ("TOLLGATE_TLS_CAFILE", "TOLLGATE_TLS_CA_FILE"),
            ("TOLLGATE_URI", "TOLLGATE_URL"),
        ] {
            let remark = format!("{name}: no setting, ignored; did you mean {meant}?");
            assert_eq!(of(&[name]), [remark]);
        }
    }

    #[test]
    fn settings_and_names_of_others_are_not_reported() {
        let others = [
            "TOLLGATE_PORT",
            "TOLLGATE_PORT_7401_TCP",
            "TOLLGATE_PORT_7401_TCP_ADDR",
            "TOLLGATE_SERVICE_HOST",
            "TOLLGATE_SERVICE_PORT",
            "TOLLGATE_SERVICE_PORT_AGENTS",
            "TOLLGATE_TEST_ROTATIONS",
            "HOME",
        ];
        assert_eq!(of(&others), [""; 0]);
        for name in settings() {
            assert_eq!(of(&[&name]), [""; 0]);
        }
        // Of a flag of a command, of the configuration, of agents.
        for name in ["TOLLGATE_URL", "TOLLGATE_NAME", "TOLLGATE_KILL_SWITCH"] {
            assert!(settings().contains(name), "{name}");
        }
    }
}
