//! Where options come from: a flag overrides the environment, which overrides the file, which overrides the
//! default. Knows the names of all options, but not their meaning.
//!
//! What stays true: an option that is not in [`OPTIONS`] is a fault, wherever it was written; reading
//! never stops at the first fault.

use std::collections::BTreeMap;

use toml::Value;

use super::fault::{FaultKind, OptionFault, most_like};

/// All options, by path. `kafka.properties` takes any key below it.
pub const OPTIONS: [&str; 55] = [
    "name",
    "threads",
    "log.kind",
    "journal.dir",
    "journal.partitions",
    "journal.ack",
    "journal.retention",
    "journal.retention_bytes",
    "kafka.bootstrap",
    "kafka.topic_prefix",
    "kafka.group",
    "kafka.partitions",
    "kafka.properties_file",
    "kafka.properties",
    "limits.file",
    "limits.follow_file",
    "listen.http",
    "listen.agents",
    "listen.feed",
    "listen.advertise",
    "listen.connections_max",
    "listen.handshake_timeout",
    "listen.pending_per_address_max",
    "listen.pending_max",
    "listen.message_timeout",
    "listen.unfinished_max",
    "listen.appends_per_connection_max",
    "listen.appends_per_address_max",
    "listen.appends_max",
    "listen.ping_after",
    "listen.silence_timeout",
    "listen.stall_timeout",
    "listen.queues_max",
    "listen.hosts",
    "listen.probe",
    "listen.probe_metrics",
    "listen.tls.cert",
    "listen.tls.key",
    "listen.tls.client_ca",
    "listen.tls.server_name",
    "listen.insecure.http",
    "listen.insecure.agents",
    "listen.insecure.feed",
    "feed.heartbeat",
    "feed.subscriber_queue_max",
    "feed.subscriptions_max",
    "feed.subscriptions_total_max",
    "snapshot.every",
    "snapshot.entries_max",
    "snapshot.keep_hourly",
    "security.tokens_file",
    "security.key_file",
    "security.domain_key_file",
    "telemetry.log",
    "telemetry.log_format",
];

/// Options of earlier builds, and their new names.
const RENAMED: [(&str, &str); 2] = [
    (
        "security.insecure_listen",
        "`listen.insecure.http`, `listen.insecure.agents` and `listen.insecure.feed` = \"trusted-network\"",
    ),
    ("security.admin_token_file", "`security.tokens_file`"),
];

/// The option that only files set: it has as many values as there are properties of the client.
pub const PROPERTIES: &str = "kafka.properties";

/// An option that was given beside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The option's path.
    pub path: &'static str,
    /// The flag or the variable, for messages.
    pub origin: String,
    /// Its text, as it would stand between quotes.
    pub text: String,
}

/// The variable of an option: `listen.http` is `TOLLGATE_LISTEN_HTTP`.
pub fn variable(path: &str) -> String {
    format!("TOLLGATE_{}", path.replace('.', "_").to_uppercase())
}

/// The options given in the environment: `lookup` returns the value of a variable. An empty one counts as unset:
/// compose files and scripts pass an unset variable on as an empty one, which must not turn off what the file turns on.
/// Of `[listen.insecure]` it counts: it withdraws the trust that a file gives.
///
/// # Errors
///
/// The first one of `lookup`.
pub fn from_environment<E>(
    lookup: impl Fn(&str) -> Result<Option<String>, E>,
) -> Result<Vec<Given>, E> {
    let mut given = Vec::new();
    for path in OPTIONS.into_iter().filter(|path| *path != PROPERTIES) {
        let origin = variable(path);
        let counts = |text: &String| !text.is_empty() || path.starts_with("listen.insecure.");
        if let Some(text) = lookup(&origin)?.filter(counts) {
            given.push(Given { path, origin, text });
        }
    }
    Ok(given)
}

/// All sections, including nested ones.
fn sections() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().flat_map(|path| {
        let dots = path.match_indices('.');
        dots.filter_map(|(at, _)| path.get(..at))
    })
}

/// The paths of all values below a table. A table that is not a section is one value, whatever is in it.
fn paths_of(table: &toml::Table, above: &str, into: &mut Vec<String>) {
    for (key, value) in table {
        let path = match above {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        match value {
            Value::Table(section) if path != PROPERTIES && sections().any(|one| one == path) => {
                paths_of(section, &path, into);
            }
            _ => into.push(path),
        }
    }
}

/// All options that were given. Values are taken by path; faults are collected.
pub struct ConfigSource {
    file: String,
    tree: toml::Table,
    given: BTreeMap<&'static str, Given>,
    /// The faults so far.
    pub faults: Vec<OptionFault>,
}

impl ConfigSource {
    /// Reads the text of a file called `file`; `given` is in ascending order of strength.
    pub fn new(file: &str, text: &str, given: Vec<Given>) -> Self {
        let mut source = Self {
            file: file.to_owned(),
            tree: toml::Table::new(),
            given: given.into_iter().map(|given| (given.path, given)).collect(),
            faults: Vec::new(),
        };
        match text.parse::<toml::Table>() {
            Ok(tree) => source.tree = tree,
            Err(error) => {
                let why = error.to_string().trim_end().to_owned();
                source.fault(file.to_owned(), "", FaultKind::Syntax { why });
            }
        }
        source.refuse_unknown();
        source
    }

    fn refuse_unknown(&mut self) {
        let mut found = Vec::new();
        paths_of(&self.tree, "", &mut found);
        for path in found {
            if let Some((_, now)) = RENAMED.iter().find(|(before, _)| *before == path) {
                self.fault(self.file.clone(), &path, FaultKind::Renamed { now });
            } else if sections().any(|section| section == path) {
                let found = self.in_file(&path).map(ToString::to_string);
                let kind = FaultKind::Value {
                    found: found.unwrap_or_default(),
                    expected: "a table, in which its options are",
                };
                self.fault(self.file.clone(), &path, kind);
            } else if !OPTIONS.contains(&path.as_str()) {
                let names = OPTIONS.iter().copied().chain(sections());
                let similar = most_like(&path, names);
                self.fault(self.file.clone(), &path, FaultKind::Unknown { similar });
            }
        }
    }

    fn fault(&mut self, origin: String, path: &str, kind: FaultKind) {
        self.faults.push(OptionFault {
            origin,
            path: path.to_owned(),
            kind,
        });
    }

    /// Reports that an option's value is invalid.
    pub fn refuse(&mut self, path: &'static str, expected: &'static str) {
        let (origin, found) = self.found(path);
        self.fault(origin, path, FaultKind::Value { found, expected });
    }

    /// Reports that two options contradict each other: the first one's value should be in this relation to the second
    /// one's. At least one of them is stated; the text of a default is given, as it would be written in TOML.
    pub fn refuse_pair(
        &mut self,
        [first, second]: [(&'static str, String); 2],
        [relation, inverse]: [&'static str; 2],
    ) {
        // The fault stands where a value was stated.
        let (one, other, relation) = match self.is_stated(first.0) {
            true => (first, second, relation),
            false => (second, first, inverse),
        };
        let is_default = !self.is_stated(other.0);
        let other_value = match is_default {
            true => other.1,
            false => self.found(other.0).1,
        };
        let (origin, found) = self.found(one.0);
        let kind = FaultKind::Contradiction {
            found,
            relation,
            other: other.0,
            other_value,
            is_default,
        };
        self.fault(origin, one.0, kind);
    }

    fn is_stated(&self, path: &str) -> bool {
        self.given.contains_key(path) || self.in_file(path).is_some()
    }

    /// Whether an option has a fault already.
    pub fn is_refused(&self, path: &str) -> bool {
        self.faults.iter().any(|fault| fault.path == path)
    }

    /// Reports that this build does not support an option's value.
    pub fn not_yet(&mut self, path: &'static str, instead: &'static str) {
        let (origin, found) = self.found(path);
        self.fault(origin, path, FaultKind::NotYet { found, instead });
    }

    /// The file, flag or variable that states an option; the file for a default.
    pub fn origin(&self, path: &'static str) -> String {
        self.found(path).0
    }

    fn found(&self, path: &'static str) -> (String, String) {
        match self.given.get(path) {
            Some(given) => (given.origin.clone(), format!("{:?}", given.text)),
            None => (
                self.file.clone(),
                self.in_file(path)
                    .map_or_else(|| "(nothing)".to_owned(), ToString::to_string),
            ),
        }
    }

    fn in_file(&self, path: &str) -> Option<&Value> {
        let mut within = &self.tree;
        let mut rest = path;
        while let Some((section, behind)) = rest.split_once('.') {
            within = within.get(section)?.as_table()?;
            rest = behind;
        }
        within.get(rest)
    }

    /// Takes an option: `from_text` reads a text (of a flag, a variable or the file), `from_value` any other
    /// value of the file. If it is missing or invalid, the default is used.
    fn take<T>(
        &mut self,
        path: &'static str,
        expected: &'static str,
        default: T,
        from_text: impl Fn(&str) -> Option<T>,
        from_value: impl Fn(&Value) -> Option<T>,
    ) -> T {
        let read = match (self.given.get(path), self.in_file(path)) {
            (Some(given), _) => from_text(&given.text),
            (None, Some(Value::String(text))) => from_text(text),
            (None, Some(value)) => from_value(value),
            (None, None) => return default,
        };
        read.unwrap_or_else(|| {
            self.refuse(path, expected);
            default
        })
    }

    /// A text that `read` accepts.
    pub fn text<T>(
        &mut self,
        path: &'static str,
        expected: &'static str,
        default: T,
        read: impl Fn(&str) -> Option<T>,
    ) -> T {
        self.take(path, expected, default, read, |_| None)
    }

    /// The name of a file; empty: `None`.
    pub fn file(&mut self, path: &'static str) -> Option<std::path::PathBuf> {
        self.text(path, "the name of a file, or empty", None, |text| {
            Some((!text.is_empty()).then(|| text.into()))
        })
    }

    /// A whole number within bounds.
    pub fn number(
        &mut self,
        path: &'static str,
        expected: &'static str,
        default: u64,
        allowed: std::ops::RangeInclusive<u64>,
    ) -> u64 {
        let within = |number: u64| allowed.contains(&number).then_some(number);
        self.take(
            path,
            expected,
            default,
            |text| within(text.replace('_', "").parse().ok()?),
            |value| within(u64::try_from(value.as_integer()?).ok()?),
        )
    }

    /// A boolean, or `None` if it is not stated.
    pub fn truth(&mut self, path: &'static str) -> Option<bool> {
        let read = |text: &str| Some(Some(truth_of(text)?));
        self.take(path, "true or false", None, read, |value| {
            value.as_bool().map(Some)
        })
    }

    /// The same, for an option whose default depends on others: an empty text is that default, and `None`.
    pub fn truth_or_empty(&mut self, path: &'static str) -> Option<bool> {
        let read = |text: &str| match text {
            "" => Some(None),
            _ => Some(Some(truth_of(text)?)),
        };
        self.take(
            path,
            "true or false, or an empty text",
            None,
            read,
            |value| value.as_bool().map(Some),
        )
    }

    /// A duration of at least `least`.
    pub fn duration(
        &mut self,
        path: &'static str,
        expected: &'static str,
        default: std::time::Duration,
        least: std::time::Duration,
    ) -> std::time::Duration {
        self.text(path, expected, default, |text| {
            super::read_duration(text).filter(|duration| least <= *duration)
        })
    }

    /// A list of texts; a single text is split at its commas.
    pub fn list(
        &mut self,
        path: &'static str,
        expected: &'static str,
        default: Vec<String>,
        is_item: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        // An option that is empty by default may be set to empty.
        let may_be_empty = default.is_empty();
        let split = |text: &str| {
            if text.is_empty() && may_be_empty {
                return Some(Vec::new());
            }
            let list: Vec<String> = text.split(',').map(|s| s.trim().to_owned()).collect();
            list.iter().all(|item| is_item(item)).then_some(list)
        };
        self.take(path, expected, default, split, |value| {
            let list: Option<Vec<String>> = value
                .as_array()?
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect();
            let is_stated = |list: &Vec<String>| may_be_empty || !list.is_empty();
            list.filter(|list| is_stated(list) && list.iter().all(|item| is_item(item)))
        })
    }

    /// The properties that are passed on to the Kafka client.
    pub fn properties(&mut self) -> BTreeMap<String, String> {
        let expected = "a table of texts, as in \"session.timeout.ms\" = \"6000\"";
        self.take(
            PROPERTIES,
            expected,
            BTreeMap::new(),
            |_| None,
            |value| {
                value
                    .as_table()?
                    .iter()
                    .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                    .collect()
            },
        )
    }
}

fn truth_of(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}
