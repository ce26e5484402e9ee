//! Patterns of lines in the syntax of nginx's `log_format` or of Apache's `LogFormat`, as pieces.
//!
//! Knows nothing of what a field means. What stays true: pieces are in the order of the pattern.

use super::pattern::Piece;

/// The pieces of a pattern, given bare or as in a configuration.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let text = unquoted(text);
    match text.contains('$') {
        true => Ok(of_nginx(&text.replace("\\\"", "\""))),
        false => of_apache(&text).map(in_one),
    }
}

/// A pattern as in a configuration: `log_format main '…' '…';`, over several lines, or
/// `LogFormat "…" combined`. Both servers read `\t` as a tab.
fn unquoted(text: &str) -> String {
    let text = &*text.replace("\\t", "\t");
    let text = text.trim_start().trim_end_matches(['\n', '\r', ';']);
    let is_directive = |name: &str| {
        let head = text.get(..name.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(name))
    };
    let quote = match text.find(['\'', '"']) {
        Some(at) if is_directive("log_format") || is_directive("LogFormat") => at,
        Some(0) if text.starts_with('\'') => 0,
        _ => return text.to_owned(),
    };
    let parts = quoted(&text[quote..]);
    // What follows the pattern of a LogFormat is its name.
    let parts = match is_directive("LogFormat") {
        true => parts.get(..1).unwrap_or_default(),
        false => &parts[..],
    };
    parts.concat()
}

/// The parts of a text that are in single or double quotes.
fn quoted(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['\'', '"']) {
        let (quote, inside) = (&rest[open..=open], &rest[open + 1..]);
        let mut ends = inside.match_indices(quote);
        let end = ends.find(|(at, _)| !inside[..*at].ends_with('\\'));
        let end = end.map_or(inside.len(), |(at, _)| at);
        parts.push(&inside[..end]);
        rest = inside.get(end + 1..).unwrap_or_default();
    }
    parts
}

/// Merges an instant that consists of several Apache fields into one: `%{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t`.
fn in_one(pieces: Vec<Piece>) -> Vec<Piece> {
    // Whether the field is for the end of a request, and its pattern.
    let by_pattern = |piece: &Piece| match piece {
        Piece::Field(name, _) => {
            let inside = name.strip_prefix("%{")?.strip_suffix("}t")?;
            let end = inside.strip_prefix("end:");
            let inside = end.unwrap_or_else(|| inside.strip_prefix("begin:").unwrap_or(inside));
            match inside {
                "msec_frac" | "usec_frac" => Some((end.is_some(), "%f".to_owned())),
                // A number, whose fraction no strftime pattern reads (`times`).
                "sec" | "msec" | "usec" | "%s" => None,
                pattern => Some((end.is_some(), pattern.to_owned())),
            }
        }
        Piece::Text(_) | Piece::Gap => None,
    };
    let mut merged: Vec<Piece> = Vec::new();
    for piece in pieces {
        // Before it: a part of an instant, and perhaps a text.
        let text = match merged.last() {
            Some(Piece::Text(text)) => String::from_utf8_lossy(text).replace('%', "%%"),
            _ => String::new(),
        };
        let before = merged.len().checked_sub(1 + usize::from(!text.is_empty()));
        // Closing marks separate two instants.
        let before = before.filter(|_| !text.contains(['[', ']', '"', '|']));
        let part = before.and_then(|before| Some((before, by_pattern(&merged[before])?)));
        match (part, by_pattern(&piece)) {
            (Some((before, (of_end, first))), Some((of_same, next))) if of_end == of_same => {
                merged.truncate(before);
                let end = if of_end { "end:" } else { "" };
                let name = format!("%{{{end}{first}{text}{next}}}t");
                merged.push(Piece::Field(name, None));
            }
            _ => merged.push(piece),
        }
    }
    merged
}

fn of_nginx(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        push_text(&mut pieces, &rest[..at]);
        let behind = &rest[at + 1..];
        let (name, behind) = match behind
            .strip_prefix('{')
            .and_then(|inside| inside.split_once('}'))
        {
            Some((name, behind)) => (name, behind),
            None => {
                let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = behind.find(|c| !is_of_name(c)).unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        pieces.push(Piece::Field(name.to_owned(), None));
        rest = behind;
    }
    push_text(&mut pieces, rest);
    pieces
}

fn of_apache(text: &str) -> Result<Vec<Piece>, String> {
    let text = text.replace("\\\"", "\"");
    let mut pieces = Vec::new();
    let mut rest = &*text;
    while let Some(at) = rest.find('%') {
        push_text(&mut pieces, &rest[..at]);
        let behind = &rest[at + 1..];
        if let Some(behind) = behind.strip_prefix('%') {
            push_text(&mut pieces, "%");
            rest = behind;
            continue;
        }
        // Conditions and modifiers: %>s, %!200,304{Referer}i.
        let is_modifier = |c: char| matches!(c, '<' | '>' | '!' | ',' | '0'..='9');
        let behind = behind.trim_start_matches(is_modifier);
        let end = match behind.starts_with('{') {
            true => behind.find('}').map(|close| close + 2),
            false if behind.starts_with('^') => Some(3),
            false => Some(1),
        };
        let end = end.filter(|end| behind.is_char_boundary(*end) && *end <= behind.len());
        let Some(end) = end else {
            return Err(format!(
                "%{behind:?}: expected a letter, or {{name}} and a letter"
            ));
        };
        let name = format!("%{}", &behind[..end]);
        match name.as_str() {
            "%t" => {
                push_text(&mut pieces, "[");
                pieces.push(Piece::Field(name, None));
                push_text(&mut pieces, "]");
            }
            _ => pieces.push(Piece::Field(name, None)),
        }
        rest = &behind[end..];
    }
    push_text(&mut pieces, rest);
    if !pieces.iter().any(|piece| matches!(piece, Piece::Field(..))) {
        return Err(
            "no field: expected words of nginx ($remote_addr) or of Apache (%h)".to_owned(),
        );
    }
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if text.is_empty() {
        return;
    }
    if let Some(Piece::Text(before)) = pieces.last_mut() {
        *before = [before, text.as_bytes()].concat().into();
    } else {
        pieces.push(Piece::Text(text.as_bytes().into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let pieces = pieces(text).expect(text);
        let names = pieces.into_iter().filter_map(|piece| match piece {
            Piece::Field(name, _) => Some(name),
            Piece::Text(_) | Piece::Gap => None,
        });
        names.collect()
    }

    #[test]
    fn a_line_of_a_configuration_is_read_as_its_pattern() {
        for text in [
            "log_format  main  '$remote_addr [$time_local] '\n    '\"$request\"';\n",
            "'$remote_addr [$time_local] ' '\"$request\"'",
            "$remote_addr [$time_local] \"$request\"",
        ] {
            assert_eq!(
                names(text),
                ["remote_addr", "time_local", "request"],
                "{text}"
            );
        }
        for text in [
            r#"LogFormat "%h %l %t \"%r\" %>s" combined"#,
            r#"%h %l %t \"%r\" %>s"#,
            r#"%h %l %t "%r" %>s"#,
        ] {
            assert_eq!(names(text), ["%h", "%l", "%t", "%r", "%s"], "{text}");
        }
    }

    #[test]
    fn an_instant_in_several_words_is_one_field() {
        assert_eq!(
            names("%h [%{begin:%d/%b/%Y %T}t.%{begin:msec_frac}t %{%z}t] %{sec}t %s"),
            ["%h", "%{%d/%b/%Y %T.%f %z}t", "%{sec}t", "%s"]
        );
    }

    #[test]
    fn all_quoted_parts_of_a_log_format_are_its_pattern() {
        for text in [
            r#"log_format main "$remote_addr [$time_local] " "\"$request\" $status";"#,
            r#"log_format main escape=json '$remote_addr [$time_local] ' "\"$request\" $status";"#,
        ] {
            let expected = pieces(r#"$remote_addr [$time_local] "$request" $status"#);
            assert_eq!(pieces(text), expected, "{text}");
        }
        let named = pieces(r#"LogFormat "%h %t" "main""#);
        assert_eq!(named, pieces("%h %t"));
    }
}
