//! Texts, divided into rows.

use super::*;

#[test]
fn objects_are_rows_named_by_their_first_line() {
    let text = "[\n{\"a\": \"}{\\\"\"},\n  {\n\"b\": {}\n}\n,{\"c\":1} {\"d\":2}]\n{\"cut\":";
    let mut lines = Lines::new(text.as_bytes());
    lines.split_by(Split::Objects);
    let mut read = Vec::new();
    while lines.advance().expect("memory") {
        read.push((
            lines.number(),
            String::from_utf8_lossy(lines.line()).replace('\n', " "),
        ));
    }
    let read: Vec<(u64, &str)> = read.iter().map(|(line, text)| (*line, &**text)).collect();
    assert_eq!(
        read,
        [
            (2, "{\"a\": \"}{\\\"\"}"),
            (3, "{ \"b\": {} }"),
            (6, "{\"c\":1}"),
            (6, "{\"d\":2}")
        ]
    );
    assert_eq!((lines.rows(), lines.skipped()), (5, 1));
}

#[test]
fn an_object_that_is_too_long_hides_no_other() {
    let long = "x".repeat(LINE_BYTES_MAX as usize);
    let text = format!("[{{\"a\":\"{long}\"}},{{\"b\":1}},{{\"c\":\"{long}\n{{\"d\":1}}");
    let mut lines = Lines::new(text.as_bytes());
    lines.split_by(Split::Objects);
    for expected in [(1, "{\"b\":1}"), (2, "{\"d\":1}")] {
        assert!(lines.advance().expect("memory"));
        let found = str::from_utf8(lines.line()).expect("text");
        assert_eq!((lines.number(), found), expected);
    }
}

#[test]
fn an_endless_line_is_one_unreadable_row_in_bounded_memory() {
    let text = [
        b"one\n".to_vec(),
        vec![b'x'; 1 << 20],
        b"\nthree\n".to_vec(),
    ]
    .concat();
    let mut lines = Lines::new(text.as_slice());
    let mut read = Vec::new();
    while lines.advance().expect("memory") {
        read.push((lines.number(), lines.line().to_vec()));
    }
    assert_eq!(read, [(1, b"one".to_vec()), (3, b"three".to_vec())]);
    assert_eq!((lines.rows(), lines.skipped()), (3, 1));
    assert_eq!(lines.unreadable()[0].line, 2);
    assert!(lines.buffer.capacity() <= 2 * LINE_BYTES_MAX as usize);
}

#[test]
fn an_object_with_a_quote_too_many_hides_no_other() {
    let object = |n: u32| match n {
        11 => "{\"n\":11,\"ua\":\"a\"b\"}".to_owned(),
        n => format!(
            "{{\"n\":{n},\"inner\":{{\"text\":\"{}\"}}}}",
            "x".repeat(100)
        ),
    };
    let objects: Vec<String> = (1..=1_000).map(object).collect();
    for (separator, last) in [(",\n", 1_000), (",\n", 20), ("\n", 1_000)] {
        let text = format!("[\n{}\n]", objects[..last].join(separator));
        let mut lines = Lines::new(text.as_bytes());
        lines.split_by(Split::Objects);
        let mut numbers = Vec::new();
        while lines.advance().expect("memory") {
            numbers.push(lines.number());
        }
        let expected: Vec<u64> = (2..=last as u64 + 1).filter(|n| *n != 12).collect();
        assert_eq!(numbers, expected);
        assert_eq!((lines.rows(), lines.skipped()), (last as u64, 1));
        assert_eq!(lines.unreadable()[0].line, 12);
    }
}
