//! The page of a backtest, opened in a browser: the marks in its plots are visible.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::program::Named;

/// The browser, by its name on Debian.
pub const BROWSER: &str = "chromium";

pub const TESTS: &[Named] = &[(
    "the_plots_of_a_page_have_marks_in_a_browser",
    the_plots_of_a_page_have_marks_in_a_browser,
)];

/// The colours of marks in the style sheet, in a light scheme.
const MARKS: [(&str, [u8; 3]); 5] = [
    ("granted", [0x3b, 0x82, 0xc4]),
    ("refused", [0xd1, 0x43, 0x2f]),
    ("active", [0xcf, 0xe3, 0xc6]),
    ("cooling", [0xf0, 0xd9, 0xb5]),
    ("held", [0x4c, 0x7a, 0x3d]),
];

/// The legend has a square of each, of about 200 pixels; plots have more.
const PIXELS_MIN: usize = 1_000;

/// A screenshot of a page.
fn screenshot(dir: &Path, page: &str) -> Vec<u8> {
    let profile = dir.join("profile");
    let output = Command::new(BROWSER)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking"])
        .args(["--disable-component-update", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--window-size=1000,1400", "--force-device-scale-factor=1"])
        .arg(format!("--screenshot={}", dir.join("page.png").display()))
        .arg(format!("file://{}", dir.join(page).display()))
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let png = std::fs::read(dir.join("page.png"));
    png.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// How many pixels of each colour a PNG has.
fn pixels(png: &[u8]) -> HashMap<[u8; 3], usize> {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("it fits")];
    let frame = reader.next_frame(&mut bytes).expect("it is whole");
    let mut counts = HashMap::new();
    let pixels = bytes[..frame.buffer_size()].chunks_exact(frame.color_type.samples());
    for pixel in pixels {
        *counts.entry([pixel[0], pixel[1], pixel[2]]).or_default() += 1;
    }
    counts
}

fn the_plots_of_a_page_have_marks_in_a_browser() {
    let dir = tempfile::tempdir().expect("a directory");
    let limits = "[rate.api]\ntiers = [\n  { limit = 2, window = \"1s\", active = \"1s\" },\n  { limit = 3, window = \"1s\", active = \"4s\", cooldown = \"10s\" },\n]\n";
    std::fs::write(dir.path().join("limits.toml"), limits).expect("written");
    let mut csv = "t,resource,domain\n".to_owned();
    for n in 0..400 {
        let domain = ["busy", "calm"][usize::from(n % 10 == 0)];
        let t = 1_455_944_445.0 + f64::from(n) / 10.0;
        let _ = writeln!(csv, "{t:.1},api,{domain}");
    }
    std::fs::write(dir.path().join("calls.csv"), csv).expect("written");
    let backtest = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .current_dir(dir.path())
        .args([
            "backtest",
            "--limits",
            "limits.toml",
            "calls.csv",
            "--html",
            "page.html",
        ])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(backtest.status.success());
    let seen = pixels(&screenshot(dir.path(), "page.html"));
    for (mark, colour) in MARKS {
        let count = seen.get(&colour).copied().unwrap_or(0);
        assert!(PIXELS_MIN < count, "{mark}: {count} pixels");
    }
}
