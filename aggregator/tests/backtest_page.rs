//! The page of a backtest, opened in a browser: its plots have marks that can be seen.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the style sheet paints marks with, in a light scheme.
const MARKS: [(&str, [u8; 3]); 5] = [
    ("granted", [0x3b, 0x82, 0xc4]),
    ("refused", [0xd1, 0x43, 0x2f]),
    ("active", [0xcf, 0xe3, 0xc6]),
    ("cooling", [0xf0, 0xd9, 0xb5]),
    ("held", [0x4c, 0x7a, 0x3d]),
];

/// The legend has a square of each, of some 200 pixels; plots have more.
const PIXELS_MIN: usize = 1_000;

/// A screenshot of a page; none where there is no Chromium to take it.
fn screenshot(dir: &Path, page: &str) -> Option<Vec<u8>> {
    let profile = dir.join("profile");
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args([
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--window-size=1000,1400", "--force-device-scale-factor=1"])
        .arg(format!("--screenshot={}", dir.join("page.png").display()))
        .arg(format!("file://{}", dir.join(page).display()))
        .stdin(Stdio::null())
        .output();
    match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("no chromium: the page was not opened");
            None
        }
        output => {
            let output = output.expect("it starts");
            let stderr = String::from_utf8_lossy(&output.stderr);
            let png = std::fs::read(dir.join("page.png"));
            Some(png.unwrap_or_else(|error| panic!("{error}: {stderr}")))
        }
    }
}

/// How many pixels of each colour a PNG has: of 8 bits a channel, not interlaced.
fn pixels(png: &[u8]) -> HashMap<[u8; 3], usize> {
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    let (width, mut at, mut packed) = (word(16) as usize, 8, Vec::new());
    let channels = match png[25] {
        2 => 3,
        6 => 4,
        kind => panic!("colours of kind {kind}"),
    };
    assert_eq!((png[24], png[28]), (8, 0), "depth and interlacing");
    while at < png.len() {
        let length = word(at) as usize;
        if &png[at + 4..at + 8] == b"IDAT" {
            packed.extend_from_slice(&png[at + 8..at + 8 + length]);
        }
        at += 12 + length;
    }
    let mut raw = Vec::new();
    let mut inflate = flate2::read::ZlibDecoder::new(&*packed);
    inflate.read_to_end(&mut raw).expect("it is whole");
    let row_bytes = width * channels;
    let mut above = vec![0u8; row_bytes];
    let mut counts = HashMap::new();
    for row in raw.chunks(1 + row_bytes) {
        let (filter, mut row) = (row[0], row[1..].to_vec());
        for at in 0..row_bytes {
            let left = if channels <= at {
                row[at - channels]
            } else {
                0
            };
            let corner = if channels <= at {
                above[at - channels]
            } else {
                0
            };
            let guess = match filter {
                0 => 0,
                1 => left,
                2 => above[at],
                3 => u8::midpoint(left, above[at]),
                4 => paeth(left, above[at], corner),
                other => panic!("filter {other}"),
            };
            row[at] = row[at].wrapping_add(guess);
        }
        for pixel in row.chunks(channels) {
            *counts.entry([pixel[0], pixel[1], pixel[2]]).or_default() += 1;
        }
        above = row;
    }
    counts
}

fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, above, corner].map(i32::from);
    let distance = |of: i32| (a + b - c - of).abs();
    if distance(a) <= distance(b) && distance(a) <= distance(c) {
        left
    } else if distance(b) <= distance(c) {
        above
    } else {
        corner
    }
}

#[test]
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
    let Some(png) = screenshot(dir.path(), "page.html") else {
        return;
    };
    let seen = pixels(&png);
    for (mark, colour) in MARKS {
        let count = seen.get(&colour).copied().unwrap_or(0);
        assert!(PIXELS_MIN < count, "{mark}: {count} pixels");
    }
}
