//! The agent's C ABI and what is built on it, each with its own compiler or program, against a real aggregator: C,
//! Lua in nginx, Go, Java; and the example for actix-web.
//!
//! Each test is ignored if its program is missing; with `TOLLGATE_PROGRAMS=required` those that CI installs fail
//! instead. The library is the one that cargo built beside this test.

mod actix;
mod java;
mod kit;
mod nginx;
mod secured;

use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Trial};

use kit::Kit;

/// A test, and whether its requirements are met: `None`, or what is missing.
struct Door {
    name: &'static str,
    missing: fn() -> Option<&'static str>,
    /// Whether CI installs its requirements.
    is_required: bool,
    run: fn(),
}

const DOORS: &[Door] = &[
    Door {
        name: "c_has_what_the_header_promises",
        missing: no_c,
        is_required: true,
        run: c,
    },
    Door {
        name: "c_speaks_tls_and_reports_missing_credentials",
        missing: no_c,
        is_required: true,
        run: secured::checks_and_missing_credentials,
    },
    Door {
        name: "lua_limits_in_two_workers_of_nginx",
        missing: nginx::missing,
        is_required: true,
        run: nginx::limits_in_two_workers,
    },
    Door {
        name: "lua_sends_what_it_counted_when_nginx_reloads",
        missing: nginx::missing,
        is_required: true,
        run: nginx::sends_before_a_worker_ends,
    },
    Door {
        name: "lua_lets_impossible_numbers_through",
        missing: nginx::missing,
        is_required: true,
        run: nginx::lets_impossible_numbers_through,
    },
    Door {
        name: "lua_gives_copies_back_after_redirects",
        missing: nginx::missing,
        is_required: true,
        run: nginx::gives_copies_back_after_redirects,
    },
    Door {
        name: "lua_lets_through_without_library_or_module",
        missing: nginx::missing,
        is_required: true,
        run: nginx::lets_through_without_the_library,
    },
    Door {
        name: "go_has_what_its_module_promises",
        missing: no_go,
        // Debian's Go is older than what the module needs.
        is_required: false,
        run: go,
    },
    Door {
        name: "java_has_what_its_class_promises",
        missing: java::missing,
        // Debian's Java is older than what the class needs.
        is_required: false,
        run: java::checks_and_example,
    },
    Door {
        name: "actix_has_what_its_example_promises",
        missing: actix::missing,
        is_required: true,
        run: actix::example_limits,
    },
    Door {
        name: "each_language_declares_what_the_header_does",
        missing: || None,
        is_required: true,
        run: declarations_are_those_of_the_header,
    },
];

fn main() -> ExitCode {
    let is_required = std::env::var("TOLLGATE_PROGRAMS").is_ok_and(|value| value == "required");
    let trial = |door: &'static Door| {
        Trial::ignorable_test(door.name, move || match (door.missing)() {
            None => {
                (door.run)();
                Ok(Completion::Completed)
            }
            Some(missing) if is_required && door.is_required => {
                Err(format!("TOLLGATE_PROGRAMS=required, and {missing}: not found").into())
            }
            Some(missing) => Ok(Completion::ignored_with(format!("{missing}: not found"))),
        })
    };
    libtest_mimic::run(&Arguments::from_args(), DOORS.iter().map(trial).collect()).exit_code()
}

/// The limits of all tests here.
const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "6/m"
[rate."api.free"]
rate = "100000000/s"
[rate."llm.tokens"]
rate = "100/m"
[copies."jobs"]
limit = 2
[copies."batch"]
limit = 5
on_excess = "give-back"
[copies."brief"]
limit = 2
max_age = "1s"
"#;

fn no_c() -> Option<&'static str> {
    (!kit::succeeds(Command::new("cc").arg("--version"))).then_some("cc")
}

/// The checks against the shared and the static library, and the example.
fn c() {
    let kit = Kit::start("c");
    let c = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/c");
    for (program, link) in [
        ("check", "shared"),
        ("check", "static"),
        ("limited", "shared"),
    ] {
        // A domain can be limited only once, so each has an aggregator of its own.
        let kit = if link == "static" {
            &Kit::start("c-static")
        } else {
            &kit
        };
        let source = match program {
            "check" => c.join("tests/check.c"),
            _ => c.join("examples").join(program).with_extension("c"),
        };
        let mut run = kit.compiled(&source, link);
        run.arg(&kit.aggregator.agents)
            .args((program == "limited").then_some("limited"));
        let output = kit::run(&mut run);
        let expected = match program {
            "check" => "all as promised",
            _ => "then 429\nretry-after: ",
        };
        assert!(output.contains(expected), "{program}, {link}: {output}");
    }
}

fn no_go() -> Option<&'static str> {
    let version = Command::new("go").args(["env", "GOVERSION"]).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = version.unwrap_or_default();
    // From 1.24 on, calls that do not call back cost no more than necessary.
    let minor = version
        .strip_prefix("go1.")
        .and_then(|rest| rest.trim().split('.').next()?.parse::<u32>().ok());
    let is_there = minor.is_some_and(|minor| 24 <= minor) && no_c().is_none();
    (!is_there || !kit::succeeds(Command::new("pkg-config").arg("--version")))
        .then_some("go 1.24 with cc and pkg-config")
}

/// The module's tests and its example.
fn go() {
    let kit = Kit::start("go");
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/go"))
            .env("PKG_CONFIG_PATH", kit.prefix.join("lib/pkgconfig"))
            .env("LD_LIBRARY_PATH", kit.prefix.join("lib"))
            // Go's cache keys builds by these flags, not by the answers of pkg-config.
            .env(
                "CGO_LDFLAGS",
                format!("-L{}", kit.prefix.join("lib").display()),
            )
            .env("TOLLGATE_TEST_AGGREGATOR", &kit.aggregator.agents)
            .env("GOFLAGS", "-mod=mod")
            .env("GOPROXY", "off");
        kit::run(&mut go)
    };
    let output = go(&["test", "-count=1", "-v", "./..."]);
    assert!(
        output.contains("--- PASS: TestARefusalHasEverythingForAnAnswer"),
        "{output}"
    );
    assert!(!output.contains("SKIP"), "{output}");
    let output = go(&["run", "./example", &kit.aggregator.agents, "go-example"]);
    assert!(output.contains("then 429"), "{output}");
}

/// Languages that cannot read the header have declarations of their own, which must equal it.
fn declarations_are_those_of_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let header = plain(&read("agent/c/tollgate.h"));
    let lua = read("deploy/gateways/lua/tollgate.lua");
    let (_, declared) = lua.split_once("ffi.cdef([[").expect("declarations");
    let (declared, _) = declared.split_once("]])").expect("their end");
    let functions: Vec<String> = declared
        .split(';')
        .map(plain)
        .filter(|one| one.contains("tg_") && one.contains('('))
        .collect();
    assert!(8 <= functions.len(), "{functions:?}");
    for one in functions {
        assert!(header.contains(&format!("{one};")), "tollgate.lua: {one}");
    }
    java::declares_what_the_header_does(&header);
}
