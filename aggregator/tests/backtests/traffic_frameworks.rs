//! Lines as frameworks write them, and as log collectors pass them on: each call has its client and its instant.
//!
//! What stays true: a line that lacks an instant, a year or a client causes an error, and is never read as something
//! else.

use tollgate_replay::traffic::{Instants, TimeUnit, Wanted};
use tollgate_shared::time::Timestamp;

use crate::rows::{CALLS, FormCase, LoggedCall, START_MS, check, read};

fn combined(c: &LoggedCall) -> String {
    format!("{} - - [{}] {}", c.ip, c.clf(), c.rest())
}

const GATHERED: &[FormCase] = &[
    ("grep -H", "combined", "remote_addr", |c| {
        format!("access.log.{}:{}", c.number % 3, combined(c))
    }),
    ("grep -n", "combined", "remote_addr", |c| {
        format!("{}:{}", 7 + 3 * c.number, combined(c))
    }),
    ("grep -Hn of dated files", "combined", "remote_addr", |c| {
        format!("logs/access.log-20251120:{}:{}", 1 + c.number, combined(c))
    }),
    ("findstr", "combined", "remote_addr", |c| {
        format!("C:\\logs\\access.log:{}", combined(c))
    }),
    ("cat -n", "combined", "remote_addr", |c| {
        format!("{:>6}\t{}", 1 + c.number, combined(c))
    }),
    ("kubectl logs --prefix", "combined", "remote_addr", |c| {
        format!("[pod/web-7d9f/nginx] {}", combined(c))
    }),
    (
        "docker compose with colours and times",
        "combined",
        "remote_addr",
        |c| {
            format!(
                "\u{1b}[36mweb-{}  | \u{1b}[0m{} {}",
                1 + c.number % 2,
                c.iso(),
                combined(c)
            )
        },
    ),
    ("pm2", "combined", "remote_addr", |c| {
        format!("0|web  | {}", combined(c))
    }),
    ("journalctl -o short-iso", "combined", "remote_addr", |c| {
        format!(
            "2025-11-20T10:00:{:02}+0000 web1 nginx[47]: {}",
            c.second(),
            combined(c)
        )
    }),
    ("RFC 5424", "combined", "remote_addr", |c| {
        format!("<190>1 {} web1 nginx 47 - - {}", c.iso(), combined(c))
    }),
    ("journalctl -o json", "combined", "remote_addr", |c| {
        let line = combined(c).replace('"', "\\\"");
        format!(
            "{{\"__REALTIME_TIMESTAMP\":\"{}000\",\"MESSAGE\":\"{line}\"}}",
            c.ms
        )
    }),
    (
        "a virtual host behind grep",
        "vhost_combined",
        "remote_addr",
        |c| format!("access.log:www.example.com:443 {}", combined(c)),
    ),
    (
        "a list of forwarders behind syslog",
        "combined_forwarded",
        "http_x_forwarded_for",
        |c| {
            let (peer, list) = match c.number % 3 {
                0 => (&*c.ip, "-"),
                _ => ("10.0.0.5", &*c.ip),
            };
            format!(
                "Nov 20 10:00:{:02} web1 nginx: {peer} - - [{}] {} \"{list}\"",
                c.second(),
                c.clf(),
                c.rest()
            )
        },
    ),
    ("names behind grep", "csv", "user", |c| match c.number {
        0 => format!("calls.csv:time,user\ncalls.csv:{},{}", c.ms / 1_000, c.ip),
        _ => format!("calls.csv:{},{}", c.ms / 1_000, c.ip),
    }),
    (
        "a list of forwarders in a column",
        "csv",
        "x_forwarded_for",
        |c| {
            let (peer, list) = match c.number % 3 {
                0 => (&*c.ip, ""),
                _ => ("10.0.0.5", &*c.ip),
            };
            let row = format!("{},{peer},{list}", c.ms / 1_000);
            match c.number {
                0 => format!("time,remote_addr,x_forwarded_for\n{row}"),
                _ => row,
            }
        },
    ),
    ("JSON behind grep", "jsonl", "ip", |c| {
        format!(
            "web.json:{}:{{\"time\":{},\"ip\":\"{}\"}}",
            1 + c.number,
            c.ms / 1_000,
            c.ip
        )
    }),
];

#[test]
fn prefixes_of_tools_are_not_part_of_a_row() {
    check(GATHERED, true);
}

const FRAMEWORKS: &[FormCase] = &[
    ("Gin", "gin", "remote_addr", |c| {
        format!(
            "[GIN] 2025/11/20 - 10:00:{:02} | 200 |     412.5µs | {:>15} | GET      \"/x|y\"",
            c.second(),
            c.ip
        )
    }),
    ("Gin with colours", "gin", "remote_addr", |c| {
        format!(
            "[GIN] 2025/11/20 - 10:00:{:02} |\u{1b}[97;42m 200 \u{1b}[0m|     1.2ms | {:>15} |\u{1b}[97;44m GET     \u{1b}[0m \"/\"",
            c.second(),
            c.ip
        )
    }),
    ("Werkzeug", "combined", "remote_addr", |c| {
        format!(
            "{} - - [20/Nov/2025 10:00:{:02}] \"GET / HTTP/1.1\" 200 -",
            c.ip,
            c.second()
        )
    }),
    ("Werkzeug through logging", "combined", "remote_addr", |c| {
        format!(
            "INFO:werkzeug:{} - - [20/Nov/2025 10:00:{:02}] \"GET / HTTP/1.1\" 200 -",
            c.ip,
            c.second()
        )
    }),
    ("WEBrick", "combined", "remote_addr", |c| {
        format!(
            "{} - - [20/Nov/2025:10:00:{:02} UTC] \"GET / HTTP/1.1\" 200 5",
            c.ip,
            c.second()
        )
    }),
    ("Rails", "fields", "field 5", |c| {
        format!(
            "Started GET \"/\" for {} at 2025-11-20 12:00:{:02} +0200",
            c.ip,
            c.second()
        )
    }),
    ("PHP's own server", "fields", "field 2", |c| {
        format!(
            "[Thu Nov 20 10:00:{:02} 2025] {}:51034 [200]: GET /",
            c.second(),
            c.ip
        )
    }),
    ("chi", "fields", "field 6", |c| {
        format!(
            "2025/11/20 10:00:{:02} [web/x-1] \"GET http://a/ HTTP/1.1\" from {}:51034 - 200 5B in 1ms",
            c.second(),
            c.ip
        )
    }),
    ("Tornado", "tornado", "remote_addr", |c| {
        format!(
            "[I 251120 10:00:{:02} web:2348] 200 GET /a ({}) 0.50ms",
            c.second(),
            c.ip
        )
    }),
    ("Vert.x", "combined", "remote_addr", |c| {
        format!(
            "{} - - [Thu, 20 Nov 2025 10:00:{:02} GMT] \"GET / HTTP/1.1\" 200 5",
            c.ip,
            c.second()
        )
    }),
    ("Hypercorn", "fields", "field 4", |c| {
        format!(
            "[2025-11-20 10:00:{:02} +0000] [12] [INFO] {}:51034 \"GET / 2\" 200",
            c.second(),
            c.ip
        )
    }),
];

#[test]
fn frameworks_that_log_whole_seconds() {
    check(FRAMEWORKS, true);
}

const FINER_FRAMEWORKS: &[FormCase] = &[
    ("Actix", "fields", "field 4", |c| {
        format!(
            "[{} INFO  actix_web::middleware::logger] {} \"GET / HTTP/1.1\" 200 5",
            c.iso(),
            c.ip
        )
    }),
    ("Rails behind its logger", "fields", "field 12", |c| {
        format!(
            "I, [{} #4711]  INFO -- : [ab-1] Started GET \"/\" for {} at 2025-11-20 10:00:00 +0000",
            c.iso(),
            c.ip
        )
    }),
    ("Go's log", "fields", "field 3", |c| {
        let at = c
            .iso()
            .replace('-', "/")
            .replace('T', " ")
            .replace('Z', "000");
        format!("{at} {}:51034 GET /", c.ip)
    }),
    ("Java's and Python's logging", "fields", "field 4", |c| {
        let at = c.iso().replace('T', " ").replace('Z', "").replace('.', ",");
        format!("{at} INFO {} GET /", c.ip)
    }),
    ("Heroku's router", "fields", "fwd", |c| {
        format!(
            "{} heroku[router]: at=info method=GET path=\"/\" host=a.example fwd=\"{}\" dyno=web.1 status=200",
            c.iso(),
            c.ip
        )
    }),
    ("Caddy's console", "jsonl", "request.remote_ip", |c| {
        let at = c.iso().replace('-', "/").replace('T', " ").replace('Z', "");
        format!(
            "{at}\tINFO\thttp.log.access\thandled request\t{{\"request\": {{\"remote_ip\": \"{}\"}}, \"duration\": 0.1}}",
            c.ip
        )
    }),
    ("an audit of Kubernetes", "jsonl", "sourceIPs", |c| {
        format!(
            "{{\"sourceIPs\":[\"{}\"],\"requestReceivedTimestamp\":\"{}\",\"stageTimestamp\":\"2025-11-20T11:00:00Z\"}}",
            c.ip,
            c.iso()
        )
    }),
    (
        "an audit of Google",
        "jsonl",
        "protoPayload.requestMetadata.callerIp",
        |c| {
            format!(
                "{{\"protoPayload\":{{\"requestMetadata\":{{\"callerIp\":\"{}\"}}}},\"timestamp\":\"{}\"}}",
                c.ip,
                c.iso()
            )
        },
    ),
    ("Azure's gateway", "jsonl", "callerIpAddress", |c| {
        format!(
            "{{\"callerIpAddress\":\"{}:51034\",\"time\":\"{}\"}}",
            c.ip,
            c.iso()
        )
    }),
];

#[test]
fn frameworks_and_clouds_that_log_fractions() {
    check(FINER_FRAMEWORKS, false);
}

/// The message to the user about twenty lines that cannot be read.
fn fault(line: &str, wanted: &Wanted) -> String {
    let text = format!("{line}\n").repeat(CALLS as usize);
    read(text.as_bytes(), wanted).expect_err(line)
}

#[test]
fn a_form_without_a_needed_field_is_reported() {
    for line in [
        "INFO:     203.0.113.7:51034 - \"GET / HTTP/1.1\" 200 OK",
        "203.0.113.7 - GET / HTTP/1.1 200 5 - 1.2 ms",
        "10:00:00.123 request_id=Fx remote_ip=203.0.113.7 [info] GET /",
    ] {
        let fault = fault(line, &Wanted::default());
        assert!(
            fault.contains("addresses and no instant"),
            "{line}: {fault}"
        );
    }
    let fault = fault(
        "[20/Nov/2025 10:00:00] \"GET / HTTP/1.1\" 200 5",
        &Wanted::default(),
    );
    assert!(fault.contains("no field is known as the client"), "{fault}");
    assert!(fault.contains("field 2 (\"GET / HTTP/1.1\")"), "{fault}");
}

#[test]
fn a_stamp_without_a_year_is_read_by_its_files_last_change() {
    let line = "Dec 31 23:59:58 web1 app[12]: 203.0.113.7 GET /x 200\nJan  1 00:00:01 web1 app[12]: 203.0.113.8 GET /x 200\n";
    let text = line.repeat(5);
    let changed = Timestamp::from_micros(1_767_312_000_000_000);
    let wanted = |changed| Wanted {
        instants: Instants {
            changed,
            ..Instants::default()
        },
        ..Wanted::default()
    };
    let recorded = read(text.as_bytes(), &wanted(Some(changed))).expect("rows");
    assert_eq!(
        recorded.reading.years_by_change_us,
        Some(changed.as_micros())
    );
    let expected = [
        (1_767_225_598_000_000, "203.0.113.7".to_owned()),
        (1_767_225_601_000_000, "203.0.113.8".to_owned()),
    ];
    assert_eq!(recorded.rows[..2], expected);
    let fault = read(text.as_bytes(), &wanted(None)).expect_err("no year");
    assert!(fault.contains("stamps have no year"), "{fault}");
    // The log's own stamp has a year.
    let own: String = (0..CALLS)
        .map(|call| {
            format!(
                "Nov 20 10:00:00 web1 nginx: {}\n",
                combined(&LoggedCall::new(call))
            )
        })
        .collect();
    let recorded = read(own.as_bytes(), &wanted(Some(changed))).expect("rows");
    assert_eq!(recorded.reading.years_by_change_us, None);
    assert_eq!(recorded.rows[0].0, START_MS * 1_000);
}

#[test]
fn a_stated_time_format_is_used_for_access_logs() {
    let by = |pattern: &str, form: Option<&str>| Wanted {
        form: form.map(str::to_owned),
        instants: Instants {
            pattern: Some(pattern.to_owned()),
            ..Instants::default()
        },
        ..Wanted::default()
    };
    let us = "%m/%d/%Y %H:%M:%S";
    for (pattern, form, text) in [
        (
            us,
            None,
            "203.0.113.7 - - [11/12/2025 10:00:00] \"GET /\" 200 5\n",
        ),
        (us, None, "11/12/2025 10:00:00 203.0.113.7 GET /\n"),
        (
            "%m/%d/%Y %I:%M:%S %p",
            None,
            "203.0.113.7 GET / 11/12/2025 10:00:00 AM 200\n",
        ),
        (
            us,
            Some("$remote_addr|$time_local|$request"),
            "203.0.113.7|11/12/2025 10:00:00|GET /\n",
        ),
        (
            us,
            None,
            "#Fields: date time c-ip\n11/12/2025 10:00:00 203.0.113.7\n",
        ),
        (
            "%d.%b.%y-%H:%M:%S",
            Some("%h %t"),
            "203.0.113.7 [12.Nov.25-10:00:00]\n",
        ),
    ] {
        let recorded = read(text.as_bytes(), &by(pattern, form)).expect(text);
        let expected = (1_762_941_600_000_000, "203.0.113.7".to_owned());
        assert_eq!(recorded.rows, [expected], "{text}");
    }
    let combined = combined(&LoggedCall::new(0));
    let fault = fault(&combined, &by(us, None));
    assert!(fault.contains("no instant"), "{fault}");
    let unit = Wanted {
        form: Some("$msec $remote_addr".to_owned()),
        instants: Instants {
            unit: TimeUnit::Millis,
            ..Instants::default()
        },
        ..Wanted::default()
    };
    let recorded = read(b"90000 203.0.113.7\n", &unit).expect("rows");
    assert_eq!(recorded.rows[0].0, 90_000_000);
}

#[test]
fn fractions_beside_apaches_instant_are_read() {
    let at = 1_763_632_800_250_000;
    for (pattern, line) in [
        (
            "%h %t %{usec_frac}t \"%r\"",
            "203.0.113.7 [20/Nov/2025:10:00:00 +0000] 250000 \"GET /\"",
        ),
        (
            "%h %t \"%r\" %{msec_frac}t",
            "203.0.113.7 [20/Nov/2025:10:00:00 +0000] \"GET /\" 250",
        ),
        (
            "%{msec_frac}t %h %t",
            "250 203.0.113.7 [20/Nov/2025:10:00:00 +0000]",
        ),
        ("%h %{sec}t.%{msec_frac}t", "203.0.113.7 1763632800.250"),
        ("%h %{sec}t %{usec_frac}t", "203.0.113.7 1763632800 250000"),
        ("%h %{%s}t.%{usec_frac}t", "203.0.113.7 1763632800.250000"),
        (
            "%h %t %{msec}t",
            "203.0.113.7 [20/Nov/2025:10:00:00 +0000] 1763632800250",
        ),
        (
            "%h %t %{usec}t",
            "203.0.113.7 [20/Nov/2025:10:00:00 +0000] 1763632800250000",
        ),
        (
            "%h %t %{begin:usec}t",
            "203.0.113.7 [20/Nov/2025:10:00:00 +0000] 1763632800250000",
        ),
        (
            "%h [%{%d/%b/%Y:%H:%M:%S}t.%{msec_frac}t %{%z}t]",
            "203.0.113.7 [20/Nov/2025:10:00:00.250 +0000]",
        ),
        (
            "%h [%{%d/%b/%Y:%H:%M:%S}t] %{usec_frac}t",
            "203.0.113.7 [20/Nov/2025:10:00:00] 250000",
        ),
        (
            "%h %{end:%F %T}t %{end:msec_frac}t [%{begin:%F %T}t] %{begin:msec_frac}t",
            "203.0.113.7 2025-11-20 10:00:09 900 [2025-11-20 10:00:00] 250",
        ),
    ] {
        let wanted = Wanted {
            form: Some(pattern.to_owned()),
            ..Wanted::default()
        };
        let recorded = read(format!("{line}\n").as_bytes(), &wanted).expect(pattern);
        assert_eq!(recorded.rows, [(at, "203.0.113.7".to_owned())], "{pattern}");
    }
}
