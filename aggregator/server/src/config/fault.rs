//! Faults in `tollgate.toml`, reported so that an operator can correct them.
//!
//! ```text
//! tollgate.toml: listen.http = "7400": expected an address such as "127.0.0.1:7400"
//! tollgate.toml: listen.htpp: unknown option, did you mean `listen.http`?
//! TOLLGATE_LISTEN_HTTP: listen.http = "7400": expected an address such as "127.0.0.1:7400"
//! ```
//!
//! Knows nothing of what options mean. What stays true: a fault names where the value was written: the file,
//! a variable, or a flag.

use std::fmt;

/// One fault: the path of the option, where it was written, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionFault {
    /// The file's name, the variable, or the flag.
    pub origin: String,
    /// The option's path, as in `listen.http`; empty where the text itself cannot be read.
    pub path: String,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The text is not TOML.
    Syntax {
        /// The parser's message.
        why: String,
    },
    /// There is no such option.
    Unknown {
        /// The option that is spelt most like it.
        similar: Option<&'static str>,
    },
    /// The option has another name since an earlier build.
    Renamed {
        /// The new name.
        now: &'static str,
    },
    /// The option exists, and its value is invalid.
    Value {
        /// The value, as it would be written in TOML.
        found: String,
        /// Which values are allowed.
        expected: &'static str,
    },
    /// The value is valid, but not beside that of another option.
    Contradiction {
        /// The value, as it would be written in TOML.
        found: String,
        /// The relation to the other option's value, as in "less than".
        relation: &'static str,
        /// The other option.
        other: &'static str,
        /// Its value, as it would be written in TOML.
        other_value: String,
        /// Whether that is its default: nobody stated it.
        is_default: bool,
    },
    /// The value is valid in Tollgate, but this build does not support it.
    NotYet {
        /// The value, as it would be written in TOML.
        found: String,
        /// What this build supports instead.
        instead: &'static str,
    },
}

impl fmt::Display for OptionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        match &self.kind {
            FaultKind::Syntax { why } => f.write_str(why),
            FaultKind::Unknown { similar: None } => write!(f, "{}: unknown option", self.path),
            FaultKind::Unknown {
                similar: Some(similar),
            } => write!(
                f,
                "{}: unknown option, did you mean `{similar}`?",
                self.path
            ),
            FaultKind::Renamed { now } => {
                write!(f, "{}: no longer an option, expected {now}", self.path)
            }
            FaultKind::Value { found, expected } => {
                write!(f, "{} = {found}: expected {expected}", self.path)
            }
            FaultKind::Contradiction {
                found,
                relation,
                other,
                other_value,
                is_default,
            } => {
                let default = if *is_default { ", the default" } else { "" };
                write!(
                    f,
                    "{} = {found}: expected {relation} {other} = {other_value}{default}",
                    self.path
                )
            }
            FaultKind::NotYet { found, instead } => write!(
                f,
                "{} = {found}: not supported by this build yet; {instead}",
                self.path
            ),
        }
    }
}

/// All faults of a configuration; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionFaults(pub Vec<OptionFault>);

impl OptionFaults {
    /// Whether all of them were written in flags or variables, not in a file.
    pub fn are_of_no_file(&self) -> bool {
        let is_of_none = |origin: &str| origin.starts_with("--") || origin.starts_with("TOLLGATE_");
        self.0.iter().all(|fault| is_of_none(&fault.origin))
    }
}

impl fmt::Display for OptionFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for OptionFaults {}

/// The name most similar to `wanted`, if it is so similar that it was probably meant.
pub fn most_like<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // One mistake in a short name, three in a long one: a higher bound would suggest unrelated names.
    let allowed = (wanted.len() / 4).clamp(1, 3);
    names
        .map(|name| (distance(wanted, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters have to be inserted, removed, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + change);
            if 1 < i && 1 < j && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_recognised_and_a_strange_one_is_not() {
        let names = ["listen.http", "listen.feed", "journal.dir"];
        let like = |wanted| most_like(wanted, names.iter().copied());
        assert_eq!(like("listen.htpp"), Some("listen.http"));
        assert_eq!(like("listne.feed"), Some("listen.feed"));
        assert_eq!(like("journal.directory"), None);
        assert_eq!(distance("windwo", "window"), 1);
    }
}
