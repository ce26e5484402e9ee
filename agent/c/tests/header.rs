//! Compares the header with the library: each function, with as many arguments, and nothing else; and the version in
//! the pkg-config file.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

const HEADER: &str = include_str!("../tollgate.h");
const EXPORTED: &str = include_str!("../src/abi/mod.rs");

/// The header without comments, and with single spaces.
fn code() -> String {
    let mut code = String::new();
    let mut rest = HEADER;
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How many arguments are between the parentheses at the start of a text.
fn arguments(text: &str) -> usize {
    let inside = text.split(')').next().unwrap_or_default();
    let inside = inside.split(',').map(str::trim);
    inside
        .filter(|one| !one.is_empty() && *one != "void")
        .count()
}

/// Functions and their numbers of arguments, by the word before their names.
fn functions(text: &str, after: &[&str]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for before in after {
        for (at, _) in text.match_indices(before) {
            let rest = &text[at + before.len()..];
            if let Some((name, rest)) = rest.split_once('(')
                && name.starts_with("tg_")
                && !name.contains(char::is_whitespace)
            {
                found.insert(name.to_owned(), arguments(rest));
            }
        }
    }
    found
}

#[test]
fn the_header_declares_what_the_library_defines() {
    let declared = functions(&code(), &["int32_t ", "uint32_t ", "size_t ", "char *"]);
    let defined = functions(EXPORTED, &["extern \"C\" fn "]);
    assert_eq!(declared, defined);
    assert_eq!(declared.len(), 21, "{declared:?}");
}

/// The shared library, built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    deps.join("libtollgate_c.so")
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(library())
        .output()
        .expect("nm, which comes with every C compiler");
    assert!(output.status.success());
    let symbols = String::from_utf8(output.stdout).unwrap();
    let names = symbols.lines().filter_map(|line| line.split(' ').next());
    let exported: BTreeSet<String> = names.map(str::to_owned).collect();
    let declared = functions(EXPORTED, &["extern \"C\" fn "]);
    let declared: BTreeSet<String> = declared.into_keys().collect();
    assert_eq!(exported, declared);
}

#[test]
fn the_codes_and_flags_are_those_of_the_library() {
    let code = code();
    let defined = |name: &str| {
        let (_, rest) = code.split_once(&format!("#define {name} ")).expect(name);
        let value = rest.split(' ').next().unwrap_or_default();
        let value = value.trim_matches(['(', ')']).trim_end_matches('u');
        value.parse::<i64>().expect(name)
    };
    let faults = include_str!("../src/faults.rs");
    for (name, variants) in [
        (
            "TG_E_INVALID",
            "Self::Pointer { .. } | Self::TooLong { .. } | Self::Counter { .. }",
        ),
        (
            "TG_E_INVALID",
            "Self::NotRate | Self::Strict | Self::Misuse(_) | Self::Release(_)",
        ),
        ("TG_E_UTF8", "Self::NotUtf8 { .. }"),
        ("TG_E_HANDLE", "Self::Handle { .. }"),
        (
            "TG_E_SETTINGS",
            "Self::Settings(_) | Self::Build(_) | Self::NoThread(_)",
        ),
        ("TG_E_FULL", "Self::NoRoom"),
        ("TG_E_LATE", "Self::Settle(_)"),
        ("TG_E_FORKED", "Self::Forked"),
        ("TG_E_PANIC", "Self::Panicked"),
    ] {
        let line = format!("{variants} => {},", defined(name));
        assert!(faults.contains(&line), "{name}: {line}");
    }
    let answers = include_str!("../src/answers.rs");
    for name in [
        "ALLOWED",
        "DENIED",
        "NOT_YET",
        "GIVE_BACK",
        "ENDED",
        "UNCOUNTED",
        "BLIND",
        "NEAR",
        "FORKED",
        "NEVER",
        "UNHELD",
    ] {
        let value = defined(&format!("TG_{name}"));
        let has = |kind: &str| answers.contains(&format!("const {name}: {kind} = {value};"));
        assert!(has("i32") || has("u32"), "{name} = {value}");
    }
    assert_eq!(defined("TG_ABI"), i64::from(tollgate_c::abi::tg_abi()));
}

#[test]
fn pkg_config_names_the_version() {
    let version = concat!("\nVersion: ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(include_str!("../tollgate.pc").contains(version));
    let link = format!("libtollgate_c.so.{}", tollgate_c::abi::tg_abi());
    for text in [include_str!("../build.rs"), include_str!("../install")] {
        assert!(text.contains(&link), "{link}");
    }
}

#[test]
fn install_writes_any_prefix_into_the_pkg_config_file() {
    let dir = std::env::temp_dir().join(format!("tollgate-install-{}", std::process::id()));
    let (built, prefix) = (dir.join("built"), dir.join(r"a&b|c\d"));
    std::fs::create_dir_all(&built).unwrap();
    for library in ["libtollgate_c.so", "libtollgate_c.a"] {
        std::fs::write(built.join(library), "").unwrap();
    }
    let mut install = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/install"));
    let status = install.arg(&prefix).arg(&built).status();
    assert!(status.expect("bash").success());
    let written = std::fs::read_to_string(prefix.join("lib/pkgconfig/tollgate.pc")).unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    let first = format!("prefix={}", prefix.display());
    assert_eq!(written.lines().next(), Some(&*first));
}
