//! What public limits say of a domain of descriptors: the rules by which a gateway finds resources and domains.

use super::frame::read_list;
use super::public::GROUPS_BYTES_MAX;
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::descriptors::{DescriptorRule, KEYS_MAX, RULE_BYTES_MAX, RULES_MAX, TEXT_BYTES_MAX};

// However long its rules are, a domain of descriptors fits where the groups of a resource do.
const _: () = assert!(RULES_MAX * RULE_BYTES_MAX < GROUPS_BYTES_MAX);

/// Reads the rules of a domain of descriptors.
pub(super) fn read_rules(reader: &mut Reader<'_>) -> Result<Box<[DescriptorRule]>, DecodeError> {
    check_count(reader, "rules", RULES_MAX, "at most 96")?;
    Ok(read_list(reader, "rules", read_rule)?.into_boxed_slice())
}

/// Writes them.
pub(super) fn write_rules(writer: &mut Writer, rules: &[DescriptorRule]) {
    writer.array(rules.len());
    for rule in rules {
        writer.array(4);
        writer.array(rule.keys().len());
        for key in rule.keys() {
            writer.text(&key.to_string());
        }
        writer.text(rule.resource().text());
        writer.text(rule.domain().text());
        writer.bool(rule.records());
    }
}

fn read_rule(reader: &mut Reader<'_>) -> Result<DescriptorRule, DecodeError> {
    let whole = *reader;
    reader.fixed_array("rule", 4, "4")?;
    check_count(reader, "keys", KEYS_MAX, "at most 8")?;
    let keys = read_list(reader, "keys", read_key)?;
    let resource = reader.text("resource", 1, TEXT_BYTES_MAX)?;
    let domain = reader.text("domain", 1, TEXT_BYTES_MAX)?;
    let records = reader.bool("records")?;
    DescriptorRule::parse(&keys, resource, domain, records).map_err(|_| {
        let expected = "keys, and texts with no other keys in braces";
        whole.error("rule", FieldFault::Range { expected })
    })
}

fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    reader.text("key", 1, TEXT_BYTES_MAX)
}

/// Refuses a list of too many before anything of it is read.
fn check_count(
    reader: &Reader<'_>,
    field: &'static str,
    most: usize,
    expected: &'static str,
) -> Result<(), DecodeError> {
    let mut after = *reader;
    let found = after.array(field)?;
    match usize::try_from(found) {
        Ok(found) if found <= most => Ok(()),
        _ => {
            let found = u64::from(found);
            Err(reader.error(field, FieldFault::Length { found, expected }))
        }
    }
}
