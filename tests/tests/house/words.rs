//! A gate on words: phrases that a comment should not have, because a reader who is new asks "which one?".
//!
//! These are the phrases that a program can find; others may read as badly. There are no exceptions.

use super::structure::Source;

/// "invalid" or "not a …" in place of the first; a subject that acts in place of the others.
const PHRASES: [&str; 10] = [
    "is none",
    "are none",
    "is told",
    "are told",
    "is said",
    "are said",
    "is heard",
    "are heard",
    "made anew",
    "whoever",
];

/// The comments of a text, as one line with single blanks, in small letters.
fn comments(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split_once("//"));
    let words = lines.flat_map(|(_, comment)| {
        let comment = comment.trim_start_matches(['/', '!']);
        comment.split_ascii_whitespace()
    });
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The phrases in a text's comments, each between words of its own.
fn phrases(text: &str) -> Vec<&'static str> {
    let comments = comments(text);
    let is_word = |phrase: &&str| {
        comments.match_indices(*phrase).any(|(at, _)| {
            let before = comments[..at].chars().next_back();
            let after = comments[at + phrase.len()..].chars().next();
            let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
            ends(before) && ends(after)
        })
    };
    PHRASES.into_iter().filter(is_word).collect()
}

#[test]
fn comments_name_the_process_that_acts() {
    let all = Source::all();
    assert!(500 < all.len(), "{} sources", all.len());
    let found: Vec<(&str, Vec<&str>)> = all
        .iter()
        .filter(|source| !source.path.ends_with("house/words.rs"))
        .map(|source| (source.path.as_str(), phrases(&source.text)))
        .filter(|(_, phrases)| !phrases.is_empty())
        .collect();
    assert!(
        found.is_empty(),
        "in comments: name the process or type that acts, or say \"invalid\": {found:#?}"
    );
}

#[test]
fn a_phrase_is_found_over_the_end_of_a_line_and_not_in_code() {
    assert_eq!(
        phrases("/// What is\n    /// Told.\nfn f() {}"),
        ["is told"]
    );
    assert_eq!(
        phrases("//! this is toldest\nlet text = \"is said\";"),
        [""; 0]
    );
    assert_eq!(phrases("// cargo test whoever_is_killed"), [""; 0]);
}
