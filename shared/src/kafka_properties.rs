//! Properties of the Kafka client in a file of their own, for passwords.
//!
//! ```text
//! # as in the files of kcat and Kafka's own tools
//! security.protocol = SASL_SSL
//! sasl.password=a = b
//! ```
//!
//! One on each line, NAME=VALUE; the value is everything after the first `=`, without the blanks around it.
//! Also determines which properties apply to every connection, and which may be shown. Knows no file. What
//! stays true: no fault contains a value.

/// Why a text cannot be read as properties.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected NAME=VALUE, or # and a remark")]
pub struct PropertiesFault {
    /// The line, counted from 1.
    pub line: usize,
}

/// Reads the properties of a text, in its order.
///
/// # Errors
///
/// The first line that is not a property.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, PropertiesFault> {
    let lines = text
        .lines()
        .zip(1..)
        .map(|(text, line)| (text.trim(), line));
    let stated = lines.filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
    let property = |(text, line): (&str, usize)| {
        let parts = text.split_once('=');
        let parts = parts.map(|(name, value)| (name.trim(), value.trim()));
        match parts {
            Some((name, value)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                Ok((name.to_owned(), value.to_owned()))
            }
            _ => Err(PropertiesFault { line }),
        }
    };
    stated.map(property).collect()
}

/// Whether a property is about the connection to the brokers, so that it applies to every client; the others
/// belong to a producer, a consumer or a group.
pub fn is_of_connection(name: &str) -> bool {
    let beginnings = [
        "sasl.",
        "ssl.",
        "enable.ssl.",
        "security.",
        "broker.",
        "socket.",
        "client.",
    ];
    beginnings
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// Whether there is a password or a key among these.
pub fn has_secret(properties: &[(String, String)]) -> bool {
    let words = [
        "password",
        "secret",
        "jaas",
        "oauthbearer.config",
        "key.pem",
    ];
    let is_secret = |name: &str| words.iter().any(|word| name.contains(word));
    properties.iter().any(|(name, _)| is_secret(name))
}

/// Whether the value of a property may be shown in a message: not if it identifies the client, and not if the
/// client does not know the property, which may be a misspelt password.
pub fn may_be_shown(name: &str, why: &str) -> bool {
    let is_harmless = matches!(name, "sasl.mechanism" | "sasl.mechanisms");
    let is_ours = name.starts_with("sasl.") || name.starts_with("ssl.");
    is_harmless || !(is_ours || why.contains("No such configuration property"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_all_behind_the_first_sign() {
        let text = "# a remark\n\n security.protocol = SASL_SSL\r\nsasl.password=a = #b\nssl.crl.location=\n";
        let expected = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.password", "a = #b"),
            ("ssl.crl.location", ""),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(text), Ok(expected.to_vec()));
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn possible_passwords_are_not_shown() {
        let unknown = "No such configuration property: \"sasl.pasword\"";
        assert!(!may_be_shown("sasl.pasword", unknown));
        assert!(!may_be_shown("pasword", unknown));
        assert!(!may_be_shown("ssl.key.pem", "not supported in this build"));
        assert!(may_be_shown("sasl.mechanism", "No provider"));
        assert!(may_be_shown("linger.ms", "Invalid value"));
    }

    #[test]
    fn an_invalid_line_is_reported_by_number_and_not_shown() {
        for line in ["sasl.password secret", "=secret", "a secret=b"] {
            let fault = parse(&format!("a=b\n{line}\n")).unwrap_err();
            assert_eq!(fault, PropertiesFault { line: 2 });
            assert!(!fault.to_string().contains("secret"));
        }
    }
}
