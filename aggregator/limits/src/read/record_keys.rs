//! The keys that count for aggregators' records: `record_keys = ["k2", "k1"]`.
//!
//! Knows only ids; each aggregator has its own key file. What stays true: a document that names only the checksum
//! equals one without the field.

use std::sync::Arc;

use tollgate_shared::keyring::{CHECKSUM_ID, COUNTING_MAX, is_key_id};

use crate::fault::FaultKind;
use crate::source::Section;

/// The ids, in their order; empty: checksums count.
pub(super) fn read_record_keys(document: &Section<'_, '_>) -> Arc<[Box<str>]> {
    const EXPECTED: &str = "a list of 1 to 4 ids of the fleet's key file, the first being the one to write with, as \
        [\"k2\", \"k1\"]; \"checksum\" stands for no key";
    let Some(list) = document.get("record_keys") else {
        return Arc::default();
    };
    let Some(values) = list.list(EXPECTED) else {
        return Arc::default();
    };
    if !(1..=COUNTING_MAX).contains(&values.len()) {
        list.expected(EXPECTED);
    }
    let mut ids: Vec<Box<str>> = Vec::new();
    for (number, value) in (1..).zip(values) {
        let item = list.nth(value, number);
        match item.text().filter(|id| is_key_id(id)) {
            None => item.expected("an id: 1 to 16 of a-z, 0-9, _ and -"),
            Some(id) if ids.iter().any(|of| **of == *id) => item.fault(FaultKind::Twice),
            Some(id) => ids.push(id.into()),
        }
    }
    match ids.iter().all(|id| **id == *CHECKSUM_ID) {
        true => Arc::default(),
        false => ids.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::Limits;

    fn read(keys: &str) -> Result<Vec<String>, String> {
        let limits = Limits::parse(&format!("rules = 2\nrecord_keys = {keys}\n"));
        let limits = limits.map_err(|faults| faults.to_string())?;
        let printed = limits.normalised_text();
        assert_eq!(Limits::parse(&printed).as_ref(), Ok(&limits), "{printed}");
        Ok(limits
            .record_keys()
            .iter()
            .map(ToString::to_string)
            .collect())
    }

    #[test]
    fn key_ids_keep_their_order_and_default_to_checksum() {
        assert_eq!(read("[\"k2\", \"k1\"]").unwrap(), ["k2", "k1"]);
        assert_eq!(read("[\"checksum\", \"k1\"]").unwrap(), ["checksum", "k1"]);
        assert_eq!(read("[\"checksum\"]").unwrap(), Vec::<String>::new());
        let silent = Limits::parse("rules = 2\n").unwrap();
        assert!(silent.record_keys().is_empty());
        assert!(!silent.normalised_text().contains("record_keys"));
    }

    #[test]
    fn an_invalid_key_id_is_refused_with_its_place() {
        for (keys, expected) in [
            ("[]", "record_keys = [...]: expected a list of 1 to 4 ids"),
            (
                "\"k1\"",
                "record_keys = \"k1\": expected a list of 1 to 4 ids",
            ),
            (
                "[\"a\", \"b\", \"c\", \"d\", \"e\"]",
                "record_keys = [...]: expected a list",
            ),
            (
                "[\"k1\", \"K2\"]",
                "record_keys[2] = \"K2\": expected an id",
            ),
            ("[\"k1\", 7]", "record_keys[2] = 7: expected an id"),
            ("[\"k1\", \"k1\"]", "record_keys[2] = \"k1\": "),
        ] {
            let fault = read(keys).expect_err(keys);
            assert!(fault.contains(expected), "{keys}: {fault}");
            assert_eq!(fault.lines().count(), 1, "{fault}");
        }
    }
}
