//! The environment of each test: a directory, an installed library, an aggregator.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate_tests::serving::Serving;

/// Removed with the test.
pub struct Kit {
    pub dir: PathBuf,
    /// The prefix under which `agent/c/install` installed the library.
    pub prefix: PathBuf,
    pub aggregator: Serving,
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Kit {
    pub fn start(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("tollgate-doors-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let prefix = dir.join("prefix");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built = std::env::current_exe().expect("this test");
        let built = built.parent().expect("where cargo builds");
        run(Command::new(here.join("../agent/c/install"))
            .arg(&prefix)
            .arg(built));
        let aggregator = Serving::start(&dir, crate::LIMITS, 2);
        Self {
            dir,
            prefix,
            aggregator,
        }
    }

    /// A C program, compiled and linked with the shared or the static library.
    pub fn compiled(&self, source: &Path, link: &str) -> Command {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let built = self.dir.join(format!("{name}-{link}"));
        let library = match link {
            "static" => format!("{}/lib/libtollgate_c.a", self.prefix.display()),
            _ => "-ltollgate_c".to_owned(),
        };
        let has_zlib = Path::new("/usr/include/zlib.h").exists();
        let mut cc = Command::new("cc");
        cc.args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-o",
        ])
        .arg(&built)
        .arg(source)
        .arg(format!("-I{}/include", self.prefix.display()))
        .arg(format!("-L{}/lib", self.prefix.display()))
        .args([&library, "-lm", "-lpthread", "-ldl"])
        // If the whole workspace is built, the agent includes Kafka's client.
        .args((link == "static" && has_zlib).then_some("-lz"));
        run(&mut cc);
        let mut program = Command::new(&built);
        program.env("LD_LIBRARY_PATH", self.prefix.join("lib"));
        program
    }
}

/// The output of a program, which must succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let more = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{stdout}\n{more}");
    stdout
}

/// Whether a program exists and succeeds.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
