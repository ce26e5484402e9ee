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
pub(crate) const NAMES: [&str; 16] = [
    "aggregators",
    "denials_max",
    "domain_key_file",
    "epoch_file",
    "flush_relaxed_ms",
    "holds_max",
    "kafka",
    "kafka_properties_file",
    "kafka_topic_prefix",
    "key_file",
    "kill_switch",
    "name",
    "queue_bytes",
    "recorder_bytes",
    "resources_max",
    "threads_max",
];

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
    #[error("settings: {name} = {value:?}: expected {expected}")]
    Value {
        name: String,
        value: String,
        expected: &'static str,
    },
}

/// A builder with these settings; all others keep their defaults.
pub(crate) fn builder_of(settings: &str) -> Result<AgentBuilder, SettingsFault> {
    let mut builder = Agent::builder();
    let mut seen = Vec::new();
    let pairs = settings.split([';', '\n']).map(str::trim);
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
        builder = with(builder, name, value)?;
    }
    Ok(builder)
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
        "kafka" => builder.kafka(value),
        "kafka_properties_file" => builder.kafka_properties_file(value),
        "kafka_topic_prefix" => builder.kafka_topic_prefix(value),
        "key_file" => builder.key_file(value),
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
                "kill_switch" => "on",
                "aggregators" => "127.0.0.1:7401, [::1]:7401",
                _ => "4096",
            };
            let text = format!("\n {name} = {value} ;;\n");
            assert!(builder_of(&text).is_ok(), "{text}");
        }
        assert!(builder_of("").is_ok());
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
        ] {
            let fault = builder_of(text).unwrap_err().to_string();
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
