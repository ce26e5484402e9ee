//! An agent's settings as one text, for callers without a builder.
//!
//! ```text
//! aggregators=10.0.0.1:7401,10.0.0.2:7401; name=web-1; flush_relaxed_ms=10
//! ```
//!
//! Knows nothing of what settings mean. What stays true: an unknown or repeated setting is refused.

use std::time::Duration;

use tollgate_agent::{Agent, AgentBuilder};

/// The names, as `tollgate.h` lists them.
pub(crate) const NAMES: [&str; 22] = [
    "aggregators",
    "denials_max",
    "domain_key_file",
    "epoch_file",
    "flush_relaxed_ms",
    "holds_max",
    "insecure",
    "kafka",
    "kafka_properties_file",
    "kafka_topic_prefix",
    "kill_switch",
    "log",
    "name",
    "queue_bytes",
    "recorder_bytes",
    "resources_max",
    "threads_max",
    "tls_ca_file",
    "tls_cert_file",
    "tls_key_file",
    "tls_server_name",
    "token_file",
];

/// The variable of the environment with the value of `log`.
const LOG_VARIABLE: &str = "TOLLGATE_AGENT_LOG";

/// Why settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsFault {
    #[error(
        "settings: {found:?}: expected `name=value`, several with `;` or line breaks between them"
    )]
    NotAPair { found: String },
    #[error("settings: {name:?}: not known, expected one of {}", NAMES.join(", "))]
    Unknown { name: String },
    #[error("settings: {name}: given twice")]
    Twice { name: String },
    #[error("settings: {name}: expected {other}, too")]
    Alone {
        name: &'static str,
        other: &'static str,
    },
    #[error("settings: {name} = {value:?}: expected {expected}")]
    Value {
        name: String,
        value: String,
        expected: &'static str,
    },
}

/// Settings that are valid, as far as that shows without opening files.
#[derive(Debug)]
pub(crate) struct ParsedSettings {
    /// All settings that are not given have their defaults.
    pub(crate) builder: AgentBuilder,
    /// Whether the agent's warnings go to standard error.
    pub(crate) logs: bool,
    tls_cert_file: Option<String>,
    tls_key_file: Option<String>,
}

impl ParsedSettings {
    fn new(builder: AgentBuilder) -> Self {
        Self {
            builder,
            logs: false,
            tls_cert_file: None,
            tls_key_file: None,
        }
    }

    /// Those of the environment, of which `builder` has all but one.
    pub(crate) fn of_environment(builder: AgentBuilder) -> Result<Self, SettingsFault> {
        let mut settings = Self::new(builder);
        let log = std::env::var_os(LOG_VARIABLE).unwrap_or_default();
        if !log.is_empty() {
            settings.logs = logs(LOG_VARIABLE, &log.to_string_lossy())?;
        }
        Ok(settings)
    }

    /// Those of a text.
    pub(crate) fn of_text(text: &str) -> Result<Self, SettingsFault> {
        let mut settings = Self::new(Agent::builder());
        let mut seen = Vec::new();
        let pairs = text.split([';', '\n']).map(str::trim);
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                let found = pair.to_owned();
                return Err(SettingsFault::NotAPair { found });
            };
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                let name = name.to_owned();
                return Err(SettingsFault::Twice { name });
            }
            seen.push(name);
            match name {
                "log" => settings.logs = logs(name, value)?,
                "tls_cert_file" => settings.tls_cert_file = Some(value.to_owned()),
                "tls_key_file" => settings.tls_key_file = Some(value.to_owned()),
                _ => settings.builder = with(settings.builder, name, value)?,
            }
        }
        settings.with_identity()
    }

    /// A certificate is of no use without its key.
    fn with_identity(mut self) -> Result<Self, SettingsFault> {
        let (cert, key) = ("tls_cert_file", "tls_key_file");
        match (self.tls_cert_file.take(), self.tls_key_file.take()) {
            (None, None) => {}
            (Some(own), Some(its_key)) => self.builder = self.builder.tls_identity(own, its_key),
            (Some(_), None) => {
                return Err(SettingsFault::Alone {
                    name: cert,
                    other: key,
                });
            }
            (None, Some(_)) => {
                return Err(SettingsFault::Alone {
                    name: key,
                    other: cert,
                });
            }
        }
        Ok(self)
    }
}

/// Whether the agent's warnings go to standard error.
fn logs(name: &str, value: &str) -> Result<bool, SettingsFault> {
    match value {
        "stderr" => Ok(true),
        "off" => Ok(false),
        _ => Err(fault(name, value, "`stderr` or `off`")),
    }
}

fn with(builder: AgentBuilder, name: &str, value: &str) -> Result<AgentBuilder, SettingsFault> {
    let number = || whole(name, value);
    Ok(match name {
        "aggregators" => value
            .split(',')
            .fold(builder, |builder, one| builder.aggregator(one.trim())),
        "denials_max" => builder.denials_max(number()?),
        "domain_key_file" => builder.domain_key_file(value),
        "epoch_file" => builder.epoch_file(value),
        "flush_relaxed_ms" => builder.flush_relaxed(Duration::from_millis(number()? as u64)),
        "holds_max" => builder.holds_max(number()?),
        "insecure" => match value {
            "trusted-network" => builder.trust_network(),
            _ => return Err(fault(name, value, "`trusted-network`")),
        },
        "kafka" => builder.kafka(value),
        "kafka_properties_file" => builder.kafka_properties_file(value),
        "kafka_topic_prefix" => builder.kafka_topic_prefix(value),
        "kill_switch" => match value {
            "on" => builder.kill_switch_on(),
            "off" => builder,
            _ => return Err(fault(name, value, "`on` or `off`")),
        },
        "name" => builder.name(value),
        "queue_bytes" => builder.queue_bytes(number()?),
        "recorder_bytes" => builder.recorder_bytes(number()?),
        "resources_max" => builder.resources_max(number()?),
        "threads_max" => builder.threads_max(number()?),
        "tls_ca_file" => builder.tls_ca_file(value),
        "tls_server_name" => builder.tls_server_name(value),
        "token_file" => builder.token_file(value),
        _ => {
            let name = name.to_owned();
            return Err(SettingsFault::Unknown { name });
        }
    })
}

fn whole(name: &str, value: &str) -> Result<usize, SettingsFault> {
    let number = value.parse();
    number.map_err(|_| fault(name, value, "a whole number"))
}

fn fault(name: &str, value: &str, expected: &'static str) -> SettingsFault {
    SettingsFault::Value {
        name: name.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_read() {
        for name in NAMES {
            let value = match name {
                "insecure" => "trusted-network",
                "kill_switch" => "on",
                "log" => "stderr",
                "tls_cert_file" => "a.pem; tls_key_file=a.key",
                "tls_key_file" => "a.key; tls_cert_file=a.pem",
                "aggregators" => "127.0.0.1:7401, [::1]:7401",
                _ => "4096",
            };
            let text = format!("\n {name} = {value} ;;\n");
            let parsed = ParsedSettings::of_text(&text);
            assert_eq!(parsed.expect(&text).logs, name == "log", "{text}");
        }
        assert!(ParsedSettings::of_text("").is_ok());
    }

    #[test]
    fn a_fault_names_what_was_found_and_what_was_expected() {
        for (text, said) in [
            (
                "aggregator=a:1",
                "\"aggregator\": not known, expected one of aggregators, ",
            ),
            ("name=a; name=b", "name: given twice"),
            (
                "127.0.0.1:7401",
                "\"127.0.0.1:7401\": expected `name=value`",
            ),
            (
                "holds_max=many",
                "holds_max = \"many\": expected a whole number",
            ),
            (
                "kill_switch=1",
                "kill_switch = \"1\": expected `on` or `off`",
            ),
            ("log=on", "log = \"on\": expected `stderr` or `off`"),
            (
                "insecure=yes",
                "insecure = \"yes\": expected `trusted-network`",
            ),
            (
                "tls_cert_file=a",
                "tls_cert_file: expected tls_key_file, too",
            ),
            (
                "tls_key_file=a",
                "tls_key_file: expected tls_cert_file, too",
            ),
        ] {
            let fault = ParsedSettings::of_text(text).unwrap_err().to_string();
            assert!(fault.contains(said), "{fault}");
        }
    }

    #[test]
    fn the_header_lists_each_setting() {
        let header = include_str!("../tollgate.h");
        for name in NAMES {
            assert!(header.contains(&format!(" *   {name} ")), "{name}");
        }
    }
}
