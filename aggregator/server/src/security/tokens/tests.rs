//! Tests of the tokens file: what it states, and what happens when it changes.

use super::*;

fn parse(text: &str) -> Result<Tokens, String> {
    Tokens::parse(Path::new("tokens.toml"), text).map_err(|fault| fault.to_string())
}

#[test]
fn a_token_is_found_by_its_hash_alone() {
    let hash = hash_of(b"tg1_a");
    let text = format!(
        "[tokens.checkout]\nhash = \"{hash}\"\nroles = [\"agent\"]\nagents = \"checkout-*\"\n\
         namespaces = [\"api\"]\nexpires = 2027-01-01T00:00:00Z\n"
    );
    let tokens = parse(&text).expect("a file");
    let grant = tokens.of_token(b"tg1_a").expect("the token");
    assert_eq!(
        (&*grant.name, grant.expires),
        ("checkout", Some(1_798_761_600))
    );
    assert!(tokens.of_token(b"tg1_b").is_none() && tokens.of_token(hash.as_bytes()).is_none());
    assert!(parse("[tokens]").expect("a file").is_empty());
    let narrower = parse(&text.replace("\"api\"", "\"web\"")).expect("a file");
    assert!(tokens.still_has(grant) && !narrower.still_has(grant));
}

#[test]
fn faults_are_named_and_never_quote_a_token() {
    let hash = hash_of(b"x");
    let of = |lines: &str| parse(&format!("[tokens.a]\n{lines}")).expect_err("a fault");
    let secret = "tg1_00112233";
    for (lines, expected) in [
        (
            "roles = [\"agent\"]".to_owned(),
            "tokens.a: expected either hash or certificate",
        ),
        (
            format!("hash = \"{secret}\"\nroles = [\"agent\"]"),
            "this is a token itself",
        ),
        (
            format!("hash = \"b3:{secret}\"\nroles = [\"agent\"]"),
            "expected b3: and 64",
        ),
        (
            format!("hash = \"{hash}\"\nroles = []"),
            "expected at least one of agent",
        ),
        (
            format!("hash = \"{hash}\"\nroles = [\"boss\"]"),
            "line 3: unknown variant `boss`",
        ),
        (
            format!("token = \"{secret}\"\nroles = [\"agent\"]"),
            "line 2: unknown field `token`",
        ),
        (
            format!("hash = \"{hash}\"\nroles = [\"agent\"]\nagents = \"a*b\""),
            "agents = \"a*b\"",
        ),
        (
            format!("hash = \"{hash}\"\nroles = [\"agent\"]\nnamespaces = [\"a.b\"]"),
            "without `.`",
        ),
        (
            format!("hash = \"{hash}\"\nroles = [\"agent\"]\nexpires = 2027-01-01"),
            "2027-01-01T00:00:00Z",
        ),
        (
            format!(
                "hash = \"{hash}\"\nroles = [\"agent\"]\n[tokens.b]\nhash = \"{hash}\"\nroles = [\"agent\"]"
            ),
            "tokens.b: has the same hash or certificate as tokens.a",
        ),
    ] {
        let fault = of(&lines);
        assert!(fault.contains(expected), "{fault}");
        assert!(
            fault.starts_with("tokens.toml: ") && !fault.contains(secret),
            "{fault}"
        );
    }
}

#[test]
fn a_bad_file_keeps_the_tokens_before_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens.toml");
    let good = format!(
        "[tokens.a]\nhash = \"{}\"\nroles = [\"agent\"]\n",
        hash_of(b"a")
    );
    std::fs::write(&path, &good).expect("written");
    let book = TokenBook::load(&path).expect("a file");
    assert!(!book.reload().expect("as it was"));
    let bad = |text: Option<&str>| {
        match text {
            Some(text) => std::fs::write(&path, text).expect("written"),
            None => std::fs::remove_file(&path).expect("removed"),
        }
        // It may be in the middle of a write: two looks have to find the same.
        assert!(!book.reload().expect("seen once"));
        assert!(book.reload().is_err() && book.is_behind());
        assert!(!book.reload().expect("told once"));
        assert!(book.is_behind() && book.tokens().of_token(b"a").is_some());
    };
    for text in [Some("[tokens.a"), None, Some(""), Some("# nothing yet\n")] {
        bad(text);
    }
    std::fs::write(&path, &good).expect("written");
    assert!(!book.reload().expect("seen once") && book.reload().expect("taken"));
    assert!(!book.is_behind());
}

#[test]
fn a_pipe_in_place_of_the_file_is_a_fault_and_holds_nothing_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens.toml");
    let one = |name: &str| {
        let hash = hash_of(name.as_bytes());
        format!("[tokens.{name}]\nhash = \"{hash}\"\nroles = [\"agent\"]\n")
    };
    std::fs::write(&path, one("a")).expect("written");
    let book = TokenBook::load(&path).expect("a file");
    std::fs::remove_file(&path).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo").success());
    assert!(!book.reload().expect("seen once"));
    let fault = book.reload().expect_err("a pipe").to_string();
    assert!(fault.ends_with("not a regular file"), "{fault}");
    assert!(book.is_behind() && book.tokens().of_token(b"a").is_some());
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, one("b")).expect("written");
    assert!(!book.reload().expect("seen once") && book.reload().expect("taken"));
    assert!(book.tokens().of_token(b"a").is_none());
}

#[test]
fn a_file_without_tokens_admits_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens.toml");
    std::fs::write(&path, "[tokens]\n").expect("written");
    let book = TokenBook::load(&path).expect("a file");
    assert!(book.tokens().is_empty());
    std::fs::write(&path, "").expect("written");
    let fault = TokenBook::load(&path).expect_err("nothing");
    assert!(fault.to_string().contains("[tokens.NAME]"), "{fault}");
}

#[test]
fn a_file_that_is_being_written_is_not_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens.toml");
    let one = |name: &str| {
        let hash = hash_of(name.as_bytes());
        format!("[tokens.{name}]\nhash = \"{hash}\"\nroles = [\"agent\"]\n")
    };
    let whole = one("a") + &one("b");
    std::fs::write(&path, &whole).expect("written");
    let book = TokenBook::load(&path).expect("a file");
    // Cut between two tables, it is a valid file that lacks a token.
    std::fs::write(&path, one("a")).expect("written");
    assert!(!book.reload().expect("seen once"));
    std::fs::write(&path, &whole).expect("written");
    assert!(!book.reload().expect("seen once") && !book.reload().expect("as it was"));
    assert_eq!(book.tokens().len(), 2);
}
