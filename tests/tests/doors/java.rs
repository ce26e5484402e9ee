//! The Java class, which needs the foreign functions of Java 22.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{self, Kit};

const JAVA_VERSION_MIN: u32 = 22;

/// The directory of a compiler that is new enough.
fn java() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = home
        .into_iter()
        .chain(std::env::split_paths(&path))
        .collect();
    // Debian and others install several versions here.
    let beside = std::fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten();
    places.extend(beside.map(|entry| entry.path().join("bin")));
    places.into_iter().find(|place| is_new_enough(place))
}

fn is_new_enough(place: &Path) -> bool {
    let output = Command::new(place.join("javac")).arg("-version").output();
    let stdout = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let stdout = stdout.unwrap_or_default();
    let version = stdout
        .strip_prefix("javac ")
        .and_then(|rest| rest.split(['.', '-', '\n']).next());
    let version = version.and_then(|version| version.parse::<u32>().ok());
    version.is_some_and(|version| JAVA_VERSION_MIN <= version)
}

pub fn missing() -> Option<&'static str> {
    java().is_none().then_some("javac 22")
}

/// The promises of the class, and the example.
pub fn checks_and_example() {
    let kit = Kit::start("java");
    let java = java().expect("it is not missing");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/java");
    let classes = kit.dir.join("classes");
    let mut javac = Command::new(java.join("javac"));
    javac
        .args(["--release", &JAVA_VERSION_MIN.to_string()])
        .args(["-Xlint:all,-restricted,-options", "-Werror", "-d"])
        .arg(&classes);
    for source in [
        "dev/tollgate/Library.java",
        "dev/tollgate/Tollgate.java",
        "example/Check.java",
        "example/Cost.java",
        "example/Example.java",
    ] {
        javac.arg(sources.join(source));
    }
    kit::run(&mut javac);
    let library = kit.prefix.join("lib/libtollgate_c.so.0");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(java.join("java"));
        command
            .arg("--enable-native-access=ALL-UNNAMED")
            .arg(format!("-Dtollgate.library={}", library.display()))
            .arg("-cp")
            .arg(&classes)
            .args(arguments);
        kit::run(&mut command)
    };
    let agents = &*kit.aggregator.agents;
    let output = run(&["Check", agents]);
    assert!(output.contains("all as promised"), "{output}");
    let output = run(&["Example", agents, "java-example"]);
    assert!(output.contains("then 429"), "{output}");
}

/// Each function is in a comment as in the header, with single blanks only, followed by its Java
/// declaration.
pub fn declares_what_the_header_does(header: &str) {
    let classes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/java/dev/tollgate");
    let read = |class: &str| std::fs::read_to_string(classes.join(class)).expect(class);
    let (library, class) = (read("Library.java"), read("Tollgate.java"));
    let mut found = 0;
    for (at, _) in library.match_indices("// ") {
        let Some((declared, below)) = library[at + 3..].split_once('\n') else {
            continue;
        };
        let Some((result, rest)) = declared.split_once(" tg_") else {
            continue;
        };
        found += 1;
        assert!(header.contains(declared), "Library.java: {declared}");
        let (name, arguments) = rest.split_once('(').expect(declared);
        let arguments = arguments.trim_end_matches([')', ';']).split(", ");
        let layouts = std::iter::once(result).chain(arguments.filter(|one| *one != "void"));
        let layouts: Vec<&str> = layouts.map(layout).collect();
        let (_, called) = below.split_once("(\"").expect(declared);
        let (called, _) = called.split_once(')').expect(declared);
        assert_eq!(called, format!("tg_{name}\", {}", layouts.join(", ")));
    }
    assert_eq!(found, 20, "all but tg_version");
    // As in agent/c/src/answers.rs and agent/c/tests/check.c.
    for place in [
        "STATUS = 8;",
        "RETRY_AFTER_MS = 16;",
        "DENIAL = 32;",
        "HEADERS = 96;",
        "BODY = 608;",
        "ANSWER_BYTES = 1376;",
    ] {
        assert!(class.contains(&format!(" int {place}")), "{place}");
    }
}

/// The Java layout of a C type.
fn layout(of: &str) -> &'static str {
    match of {
        pointer if pointer.contains('*') => "ADDRESS",
        long if long.starts_with("tg_handle") || long.starts_with("size_t") => "JAVA_LONG",
        _ => "JAVA_INT",
    }
}
