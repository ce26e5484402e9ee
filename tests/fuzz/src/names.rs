//! Names, spans and rates as people type them: written and parsed again, a value is the same.

use tollgate_limits::{parse_quota, parse_rate, parse_span, print_quota, print_rate, print_span};
use tollgate_shared::escape::{escaped, escaped_lines, is_hidden, unescaped};
use tollgate_shared::names::{NAME_BYTES_MAX, admit_domain, check_domain, check_name};
use tollgate_shared::networks::{NetworkName, NetworkText, address, network, network_of_domain};
use tollgate_shared::{domain_key, kafka_properties};

use crate::Memory;

/// A property is two texts in a list; an escape takes at most ten bytes per byte.
const MEMORY: Memory = Memory {
    base: 4096,
    per_byte: 128,
};

/// `[text…]`
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    MEMORY.holds(bytes.len(), || {
        escapes(text);
        names(text);
        networks(text);
        spellings(text);
        let _ = kafka_properties::parse(text);
    });
}

fn escapes(text: &str) {
    let written = escaped(text).to_string();
    assert!(!written.contains(is_hidden), "{written:?}");
    assert_eq!(unescaped(&written).as_deref(), Ok(text));
    let lines = escaped_lines(text).to_string();
    assert!(!lines.replace(['\n', '\t'], "").contains(is_hidden));
    match unescaped(text) {
        Ok(name) => assert_eq!(unescaped(&escaped(&name).to_string()), Ok(name)),
        Err(fault) => assert_eq!(text.as_bytes().get(fault.at), Some(&b'\\')),
    }
}

fn names(text: &str) {
    if check_name(text).is_ok() {
        assert!((1..=NAME_BYTES_MAX).contains(&text.len()));
    }
    let _ = domain_key::hashed_under(text);
    let admitted = admit_domain(text);
    assert_eq!(check_domain(&admitted), Ok(()), "{admitted:?}");
    assert_eq!(admit_domain(&admitted), admitted, "what is admitted stays");
}

fn networks(text: &str) {
    let mut buffer = NetworkText::default();
    if let NetworkName::Network(found) = network(text) {
        let written = buffer.write(found).to_owned();
        assert_eq!(network(&written), NetworkName::Network(found), "{written}");
    }
    if let Some(found) = address(text) {
        assert_eq!(address(&found.to_string()), Some(found));
    }
    let _ = network_of_domain(text);
}

fn spellings(text: &str) {
    if let Some(span) = parse_span(text) {
        assert_eq!(parse_span(&print_span(span)), Some(span));
    }
    if let Some(rate) = parse_rate(text) {
        assert_eq!(parse_rate(&print_rate(rate)), Some(rate));
    }
    if let Some((limit, calendar)) = parse_quota(text) {
        let written = print_quota(limit, calendar);
        assert_eq!(parse_quota(&written), Some((limit, calendar)), "{written}");
    }
}

/// One text of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        r"CORP\\ann\x1b[2J\u{202e}\n\t",
        "acme\u{1b}[2J\u{202e}",
        "2001:db8::/32",
        "::ffff:10.0.0.7",
        "10.0.0.0/8",
        "1_000_000 per month",
        "5/15s",
        "0.5/s",
        "1h30m",
        "# remark\nsasl.password=a = b\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
