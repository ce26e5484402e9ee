//! Repairs invalid JSON of programs that insert their values into a text.
//!
//! ```text
//! {"q":"\x22a\x22"}        {"q":"\u0022a\u0022"}     nginx's escapes
//! {"ua":"a<TAB>b"}         {"ua":"a\u0009b"}         control characters as they are
//! {"rt":-,"up":}           {"rt":null,"up":null}     a variable that is not set
//! ```
//!
//! Knows nothing of members. What stays true: valid JSON is examined once, and no byte of a string
//! is lost.

/// The line as valid JSON; `None` if it has nothing to repair.
pub(super) fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let mut fixed = Vec::with_capacity(line.len() + 16);
    let mut rest = line;
    let mut in_text = false;
    let mut any = false;
    while let Some((first, behind)) = rest.split_first() {
        let passed = match (in_text, rest) {
            (true, [b'\\', b'x', one, other, ..])
                if one.is_ascii_hexdigit() && other.is_ascii_hexdigit() =>
            {
                any = true;
                fixed.extend_from_slice(&[b'\\', b'u', b'0', b'0', *one, *other]);
                4
            }
            (true, [b'\\', escaped, ..]) => {
                fixed.extend_from_slice(&[b'\\', *escaped]);
                2
            }
            (true, [0..=0x1f, ..]) => {
                any = true;
                fixed.extend_from_slice(format!("\\u{:04x}", *first).as_bytes());
                1
            }
            (false, [b':', ..]) => {
                fixed.push(b':');
                let unset = unset(behind);
                if unset.is_some() {
                    any = true;
                    fixed.extend_from_slice(b"null");
                }
                1 + unset.unwrap_or(0)
            }
            _ => {
                in_text ^= *first == b'"';
                fixed.push(*first);
                1
            }
        };
        rest = &rest[passed..];
    }
    any.then_some(fixed)
}

/// The length of a missing value: nothing or a dash, and blanks; `None` if the member has a value.
fn unset(behind: &[u8]) -> Option<usize> {
    let blanks = |bytes: &[u8]| bytes.iter().take_while(|byte| **byte == b' ').count();
    let before = blanks(behind);
    let dash = usize::from(behind.get(before) == Some(&b'-'));
    let after = blanks(behind.get(before + dash..)?);
    let ends = matches!(behind.get(before + dash + after), Some(b',' | b'}'));
    ends.then_some(before + dash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_json_of_programs_is_repaired() {
        for (written, json) in [
            (r#"{"q":"\x22a\x5C"}"#, Some(r#"{"q":"\u0022a\u005C"}"#)),
            ("{\"ua\":\"a\tb\u{1}\"}", Some(r#"{"ua":"a\u0009b\u0001"}"#)),
            (
                r#"{"rt":-,"up": - ,"n":-1,"last":}"#,
                Some(r#"{"rt":null,"up":null ,"n":-1,"last":null}"#),
            ),
            (r#"{"a":"b:-,\\","c":[1,-2]}"#, None),
            (r#"{"a":"\\x22"}"#, None),
        ] {
            let repaired = repaired(written.as_bytes());
            let repaired = repaired.map(|bytes| String::from_utf8(bytes).expect("text"));
            assert_eq!(repaired.as_deref(), json, "{written}");
        }
    }
}
