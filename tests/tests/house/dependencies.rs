//! What the project depends on is what `deny.toml` allows: licences, crates, sources.
//!
//! Reads the output of `cargo metadata` about every crate: offline and for this platform or, if CI
//! asks for everything, for all features and platforms. Knows no advisories. What stays true: an
//! unknown field of `deny.toml` is a fault, so that nothing in it stays unchecked.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use super::root;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Graph {
    all_features: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: String,
    wildcards: String,
    allow_wildcard_paths: bool,
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: String,
    unknown_git: String,
    allow_registry: BTreeSet<String>,
    allow_git: BTreeSet<String>,
}

fn rules() -> Rules {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let rules: Rules = toml::from_str(&text).unwrap_or_else(|fault| panic!("deny.toml: {fault}"));
    // The checks below implement exactly these settings.
    assert!(rules.graph.all_features && rules.bans.allow_wildcard_paths);
    assert_eq!(rules.bans.multiple_versions, "allow");
    assert_eq!(rules.bans.wildcards, "deny");
    assert_eq!(rules.sources.unknown_registry, "deny");
    assert_eq!(rules.sources.unknown_git, "deny");
    rules
}

/// Every crate, as cargo describes it.
pub(super) fn crates() -> Vec<Value> {
    let required = std::env::var("TOLLGATE_PROGRAMS").is_ok_and(|value| value == "required");
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let of_all = ["--all-features"];
    let of_this = ["--offline", "--filter-platform", &platform];
    let which: &[&str] = if required { &of_all } else { &of_this };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(which)
        .current_dir(root())
        .output()
        .expect("cargo");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {stderr}");
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    serde_json::from_value(metadata["packages"].take()).expect("a list of crates")
}

/// The faults of the crates, one line each.
fn faults(rules: &Rules, crates: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    for of in crates {
        let field = |name: &str| of[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        let license = field("license");
        if !is_allowed(license, &rules.licenses.allow) {
            faults.push(format!(
                "{name}: licence {license:?}, expected a choice among {:?}",
                rules.licenses.allow
            ));
        }
        if rules
            .bans
            .deny
            .iter()
            .any(|banned| banned.name == field("name"))
        {
            faults.push(format!("{name}: banned"));
        }
        let source = field("source");
        let known = match source.split_once('+') {
            Some(("registry", registry)) => rules.sources.allow_registry.contains(registry),
            Some((_, git)) => rules.sources.allow_git.contains(git),
            // The project's own crate.
            None => source.is_empty() && of["source"].is_null(),
        };
        if !known {
            faults.push(format!("{name}: from {source}, which is not allowed"));
        }
        if of["source"].is_null() {
            faults.extend(wildcards(&name, of));
        }
    }
    faults
}

/// Dependencies of one of our crates that accept any version, and are not in the workspace.
fn wildcards(name: &str, of: &Value) -> Vec<String> {
    let dependencies = of["dependencies"].as_array().map(Vec::as_slice);
    let any = dependencies.unwrap_or_default().iter();
    let any = any.filter(|on| on["req"] == "*" && on["path"].is_null());
    any.map(|on| format!("{name}: any version of {}", on["name"]))
        .collect()
}

/// Whether an SPDX expression offers an allowed licence. Older crates write `/` for OR.
fn is_allowed(license: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = license
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words, allowed).unwrap_or(false) && words.next().is_none()
}

type Words<'w, 't> = std::iter::Peekable<std::str::SplitWhitespace<'t>>;

fn any_of(words: &mut Words<'_, '_>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut found = all_of(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        found |= all_of(words, allowed)?;
    }
    Some(found)
}

fn all_of(words: &mut Words<'_, '_>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut found = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        found &= one(words, allowed)?;
    }
    Some(found)
}

fn one(words: &mut Words<'_, '_>, allowed: &BTreeSet<String>) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let found = any_of(words, allowed)?;
        return (words.next()? == ")").then_some(found);
    }
    match words.next_if_eq(&"WITH") {
        Some(_) => Some(allowed.contains(&format!("{word} WITH {}", words.next()?))),
        None => Some(allowed.contains(word)),
    }
}

#[test]
fn every_dependency_is_one_that_is_allowed() {
    let crates = crates();
    assert!(100 < crates.len(), "{} crates", crates.len());
    let faults = faults(&rules(), &crates);
    assert!(faults.is_empty(), "deny.toml:\n{}", faults.join("\n"));
}

#[test]
fn a_dependency_that_is_not_allowed_is_named() {
    let of = |name: &str, license: &str, source: Value| {
        serde_json::json!({"name": name, "version": "1.0.0", "license": license, "source": source,
            "dependencies": [{"name": "any", "req": "*", "path": null}]})
    };
    let registry = "registry+https://github.com/rust-lang/crates.io-index";
    let crates = [
        of("good", "GPL-3.0 OR (MIT AND Zlib)", registry.into()),
        of("copyleft", "MIT AND GPL-3.0", registry.into()),
        of("unstated", "", registry.into()),
        of("native-tls", "MIT", registry.into()),
        of("elsewhere", "MIT", "git+https://example.org/a".into()),
        of("ours", "Apache-2.0", Value::Null),
    ];
    let faults = faults(&rules(), &crates);
    let named: Vec<&str> = faults
        .iter()
        .filter_map(|fault| fault.split(':').next())
        .collect();
    let expected = [
        "copyleft 1.0.0",
        "unstated 1.0.0",
        "native-tls 1.0.0",
        "elsewhere 1.0.0",
        "ours 1.0.0",
    ];
    assert_eq!(named, expected, "{faults:#?}");
}

#[test]
fn a_licence_is_read_as_spdx_means_it() {
    let allowed = BTreeSet::from(["MIT", "Zlib", "Apache-2.0 WITH X"].map(str::to_owned));
    for good in [
        "MIT",
        "GPL/MIT",
        "A OR B AND C OR Zlib",
        "(A OR MIT) AND Zlib",
        "Apache-2.0 WITH X",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in [
        "",
        "A",
        "MIT AND A",
        "(MIT",
        "MIT Zlib",
        "MIT OR",
        "Apache-2.0",
        "(A OR MIT) AND A",
    ] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
