//! Fields of a CSV row.

use super::*;

#[test]
fn blanks_within_quotes_are_meant() {
    let of = |line| fields(line).map(|fields| fields.into_iter().map(trimmed).collect::<Vec<_>>());
    let read = of("1, a ,\" a \",\"\u{b}2\",\" \"\" \"").expect("fields");
    assert_eq!(read, ["1", "a", " a ", "\u{b}2", " \" "]);
}

#[test]
fn quotes_hold_commas_quotes_and_line_breaks() {
    let of = |line| fields(line).map(|fields| fields.join("|"));
    assert_eq!(of(r#"1,a,"b, c",2"#).as_deref(), Some("1|a|b, c|2"));
    assert_eq!(of(r#""say ""x""",,"#).as_deref(), Some(r#"say "x"||"#));
    assert_eq!(of(r#"1, "b, c" ,2"#).as_deref(), Some("1|b, c|2"));
    assert_eq!(of("1,\"b\nc\",2").as_deref(), Some("1|b\nc|2"));
    assert_eq!(of(r#"1,"open,2"#), None);
    assert_eq!(of(r#"1,"a"b,2"#), None);
    assert_eq!(of("").as_deref(), Some(""));
}
