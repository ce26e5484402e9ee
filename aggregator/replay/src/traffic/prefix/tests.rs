//! Lines behind prefixes of tools.

use super::*;

/// The lines without their prefix; `None` if they have none.
fn left(lines: &[&str]) -> Option<Vec<String>> {
    let of = lines.iter().map(|line| line.as_bytes());
    let prefix = Prefix::of_first(of)?;
    let rests = lines.iter().map(|line| {
        let rest = prefix.rest(line.as_bytes()).unwrap_or(line.as_bytes());
        String::from_utf8_lossy(rest).into_owned()
    });
    Some(rests.collect())
}

const ROW: &str = "203.0.113.7 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"";

#[test]
fn prefixes_of_tools_before_a_row_are_skipped() {
    for before in [
        "access.log:",
        "/var/log/nginx/access.log-20251120:",
        "C:\\logs\\access.log:",
        "access.log:17:",
        "INFO:werkzeug:",
        "    17\t",
        "web-1  | ",
        "web_1            | ",
        "nginx | ",
        "10:00:00 web.1   | ",
        "0|web  | ",
        "[pod/web-7d9/nginx] ",
        "Nov 20 10:00:00 web1 nginx: ",
        "<190>Nov 20 10:00:00 web1 nginx: ",
        "Nov  2 10:00:00 web1 nginx[47]: ",
        "2025-11-20T10:00:00.25+00:00 web1 nginx[47]: ",
        "<134>1 2025-11-20T10:00:00.25Z web1 nginx 47 - - ",
        "2025-11-20T10:00:00.123456789Z ",
    ] {
        let line = format!("{before}{ROW}");
        assert_eq!(
            left(&[&line, &line]),
            Some(vec![ROW.to_owned(); 2]),
            "{before}"
        );
    }
}

#[test]
fn rows_that_only_look_prefixed_are_kept() {
    for line in [
        ROW,
        "www.example.com:443 203.0.113.7 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"",
        "203.0.113.7:51034 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"",
        "2001:db8::7 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"",
        "[2001:db8::7]:443 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"",
        "acme:7 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"",
        "1763632800:203.0.113.7 GET /",
        "log:1,1763632800,5",
        "unix: - - [20/Nov/2025:10:00:00 +0000] \"GET /\"",
        "20/Nov/2025:10:00:00 +0000 203.0.113.7 GET",
        "2025-11-20T10:00:00Z,acme,1",
        "2025-11-20 10:00:00,acme,1",
        "10:00:00 203.0.113.7 GET",
        "time:20/Nov/2025:10:00:00 +0000\thost:203.0.113.7",
        "host:203.0.113.7\ttime:20/Nov/2025:10:00:00 +0000",
        "203.0.113.7 | - | 20/Nov/2025:10:00:00 +0000 | GET",
        "acme | 2025-11-20T10:00:00Z | GET",
        "1\tapi\tacme",
        "Nov 20 10:00:00 lb haproxy[9]: 203.0.113.7:3317 [20/Nov/2025:10:00:00.25] in bk/s1",
        "Nov 20 10:00:00 web1 app: 203.0.113.7 GET /",
        "{\"t\":1,\"domain\":\"acme\"}",
    ] {
        assert_eq!(left(&[line, line]), None, "{line}");
    }
}

#[test]
fn line_numbers_are_distinguished_from_ipv6_addresses() {
    let row = "2001:db8::7 - - [20/Nov/2025:10:00:00 +0000] \"GET /\"";
    let numbered: Vec<String> = [3, 4, 9, 12].map(|line| format!("{line}:{row}")).into();
    let lines: Vec<&str> = numbered.iter().map(String::as_str).collect();
    assert_eq!(left(&lines), Some(vec![row.to_owned(); 4]));
    let of_files: Vec<String> = [3, 4, 9, 12]
        .map(|line| format!("access.log:{line}:{row}"))
        .into();
    let lines: Vec<&str> = of_files.iter().map(String::as_str).collect();
    assert_eq!(left(&lines), Some(vec![row.to_owned(); 4]));
}

#[test]
fn context_lines_of_grep_are_rows() {
    let lines = [
        format!("access.log:{ROW}"),
        format!("access.log-{ROW}"),
        format!("access.log:{ROW}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(left(&lines), Some(vec![ROW.to_owned(); 3]));
    let numbered = [format!("7:{ROW}"), format!("8-{ROW}"), format!("9:{ROW}")];
    let lines: Vec<&str> = numbered.iter().map(String::as_str).collect();
    assert_eq!(left(&lines), Some(vec![ROW.to_owned(); 3]));
}

#[test]
fn addresses_of_ipv6_are_kept_whole() {
    let rest = "- - [20/Nov/2025:10:00:00 +0000] \"GET /\"";
    let ascending = ["2001:db8::1", "2003:e0::2", "2400:cb00::3", "2606:4700::4"];
    let lines = ascending.map(|address| format!("{address} {rest}"));
    assert_eq!(left(&lines.each_ref().map(String::as_str)), None);
    let mut lines = vec![format!("access.log:{ROW}"); 4];
    lines.push(format!("2001:db8::5 {rest}"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let kept = left(&lines).expect("a prefix");
    assert_eq!((&*kept[0], &*kept[4]), (ROW, lines[4]));
    let numbered = [
        format!("7:{ROW}"),
        format!("8:2001:db8::5 {rest}"),
        format!("9:{ROW}"),
    ];
    let lines: Vec<&str> = numbered.iter().map(String::as_str).collect();
    let kept = left(&lines).expect("a prefix");
    assert_eq!(kept[1], format!("2001:db8::5 {rest}"));
}

#[test]
fn a_table_with_bars_is_not_taken_for_prefixes() {
    let rows = ["tenant-1 | 1763632800 | api"; 3];
    let table = ["domain | t | resource", rows[0], rows[1], rows[2]];
    assert_eq!(left(&table), None);
}
