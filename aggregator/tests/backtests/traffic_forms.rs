//! Logs as servers write them: each call has its client and its instant, whichever form the file has.
//!
//! What stays true: no form is silently read with another field as the client, or with another instant.

use tollgate_replay::traffic::Wanted;

use crate::rows::{CALLS, FormCase, LoggedCall, check, read};

const WHOLE_SECONDS: &[FormCase] = &[
    ("a user with a blank", "combined", "remote_addr", |c| {
        format!("{} - John Smith [{}] {}", c.ip, c.clf(), c.rest())
    }),
    ("ingress-nginx", "combined", "remote_addr", |c| {
        format!(
            "{} - - [{}] {} 412 0.004 [web-80] [] 10.42.0.12:80 5 0.004 200 6b",
            c.ip,
            c.clf(),
            c.rest()
        )
    }),
    (
        "a balancer before some calls",
        "combined_forwarded",
        "http_x_forwarded_for",
        |c| {
            let (peer, list) = match c.number % 3 {
                0 => (&*c.ip, "-"),
                _ => ("10.0.0.5", &*c.ip),
            };
            format!("{peer} - - [{}] {} \"{list}\"", c.clf(), c.rest())
        },
    ),
    (
        "the host before the list",
        "combined_forwarded",
        "http_x_forwarded_for",
        |c| {
            format!(
                "172.17.0.1 - - [{}] {} \"a.example\" \"{}\"",
                c.clf(),
                c.rest(),
                c.ip
            )
        },
    ),
    (
        "times before the list",
        "combined_forwarded",
        "http_x_forwarded_for",
        |c| {
            format!(
                "172.17.0.1 - - [{}] {} 0.003 \"{}\"",
                c.clf(),
                c.rest(),
                c.ip
            )
        },
    ),
    (
        "a list that begins unknown",
        "forwarded_first",
        "http_x_forwarded_for",
        |c| format!("unknown, {}, 10.2.0.9 - - [{}] {}", c.ip, c.clf(), c.rest()),
    ),
    (
        "a virtual host without a port",
        "vhost_combined",
        "remote_addr",
        |c| format!("shop.example {} - - [{}] {}", c.ip, c.clf(), c.rest()),
    ),
    (
        "a date with a colon in its zone",
        "combined",
        "remote_addr",
        |c| {
            let date = c.clf().replace("+0000", "+00:00");
            format!("{} - - [{date}] {}", c.ip, c.rest())
        },
    ),
    ("a month in small letters", "combined", "remote_addr", |c| {
        format!("{} - - [{}] {}", c.ip, c.clf().to_lowercase(), c.rest())
    }),
    ("the date first", "fields", "field 2", |c| {
        format!("[{}] {} TLSv1.3 \"GET / HTTP/1.1\" 5", c.clf(), c.ip)
    }),
    ("bars", "fields", "field 1", |c| {
        format!("{} | - | {} | \"GET / HTTP/1.1\" | 200", c.ip, c.clf())
    }),
    ("tabs", "fields", "field 1", |c| {
        format!("{}\t-\t{}\tGET /\t200", c.ip, c.clf())
    }),
    ("LTSV", "fields", "host", |c| {
        format!(
            "time:{}\thost:{}\tforwardedfor:-\treq:GET / HTTP/1.1\tstatus:200",
            c.clf(),
            c.ip
        )
    }),
    ("behind syslog", "combined", "remote_addr", |c| {
        format!(
            "Nov 20 10:00:{:02} web1 nginx: {} - - [{}] {}",
            c.second(),
            c.ip,
            c.clf(),
            c.rest()
        )
    }),
    ("behind docker compose", "combined", "remote_addr", |c| {
        format!("web_1  | {} - - [{}] {}", c.ip, c.clf(), c.rest())
    }),
    ("behind containerd", "combined", "remote_addr", |c| {
        format!(
            "{} stdout F {} - - [{}] {}",
            c.iso(),
            c.ip,
            c.clf(),
            c.rest()
        )
    }),
    ("within Docker's JSON", "combined", "remote_addr", |c| {
        let line = format!(
            "{} - - [{}] {}\\n",
            c.ip,
            c.clf(),
            c.rest().replace('"', "\\\"")
        );
        format!(
            "{{\"log\":\"{line}\",\"stream\":\"stdout\",\"time\":\"{}\"}}",
            c.iso()
        )
    }),
    ("with colours", "combined", "remote_addr", |c| {
        format!("\u{1b}[32m{} - - [{}] {}\u{1b}[0m", c.ip, c.clf(), c.rest())
    }),
    ("IIS without its heading", "fields", "field 9", |c| {
        format!(
            "2025-11-20 10:00:{:02} 10.0.0.{} GET / - 443 - {} Mozilla 200",
            c.second(),
            c.number,
            c.ip
        )
    }),
    ("a balancer of networks", "fields", "field 6", |c| {
        let at = &c.iso()[..19];
        format!(
            "tls 2.0 {at} net/lb/c6 g3d4 {}:51341 172.16.0.1:443 5 2 98",
            c.ip
        )
    }),
];

#[test]
fn nginx_and_apache_with_whole_seconds() {
    check(WHOLE_SECONDS, true);
}

const FRACTIONS: &[FormCase] = &[
    ("$msec first", "fields", "field 2", |c| {
        format!("{} {} \"GET / HTTP/1.1\" 200", c.unix(), c.ip)
    }),
    ("Squid", "fields", "field 3", |c| {
        format!(
            "{}     {} {} TCP_MISS/200 5 GET http://a/ - DIRECT/192.0.2.1",
            c.unix(),
            80 + c.number,
            c.ip
        )
    }),
    ("CloudFront in real time", "fields", "field 2", |c| {
        format!("{}\t{}\t0.002\t200\tGET\twww.example.com", c.unix(), c.ip)
    }),
    (
        "a number of a process in brackets",
        "fields",
        "field 1",
        |c| format!("{} worker[14389]: {} GET /a", c.ip, c.iso()),
    ),
    ("logfmt", "fields", "remote_addr", |c| {
        format!(
            "time={} level=info msg=\"a request\" remote_addr={}:51{} path=/a",
            c.iso(),
            c.ip,
            c.number
        )
    }),
    ("HAProxy for TCP", "haproxy", "remote_addr", |c| {
        format!(
            "Nov 20 10:00:00 lb haproxy[14389]: {}:33317 [{}] fnt bck/srv1 0/0/5 212 --",
            c.ip,
            c.clf_ms()
        )
    }),
    ("HAProxy, RFC 5424", "haproxy", "remote_addr", |c| {
        format!(
            "<134>1 {} lb haproxy 14389 - - {}:33317 [{}] fnt bck/srv1 0/0/5 212",
            c.iso(),
            c.ip,
            c.clf_ms()
        )
    }),
    ("HAProxy, IPv4 within IPv6", "haproxy", "remote_addr", |c| {
        format!(
            "Nov 20 10:00:00 lb haproxy[9]: ::ffff:{}:3317 [{}] fnt bck/srv1 0/0/5",
            c.ip,
            c.clf_ms()
        )
    }),
    (
        "HAProxy, a list among what it captured",
        "haproxy_forwarded",
        "http_x_forwarded_for",
        |c| {
            format!(
                "Nov 20 10:00:00 lb haproxy[9]: 10.0.0.9:33317 [{}] in bk/s1 0/0/0/1/1 200 5 - - ---- 1/1 0/0 {{{}|curl}} {{}} \"GET /\"",
                c.clf_ms(),
                c.ip
            )
        },
    ),
    (
        "HAProxy, a list behind others that it captured",
        "haproxy_forwarded",
        "http_x_forwarded_for",
        |c| {
            format!(
                "Nov 20 10:00:00 lb haproxy[9]: 10.0.0.9:33317 [{}] in bk/s1 0/0/0/1/1 200 5 - - ---- 1/1 0/0 {{a.example|curl|{}}} \"GET /\"",
                c.clf_ms(),
                c.ip
            )
        },
    ),
    ("ALB", "alb", "remote_addr", |c| {
        format!(
            "h2 {} app/lb/50 {}:2817 10.0.0.1:80 0.0 0.1 200",
            c.iso(),
            c.ip
        )
    }),
    ("Istio", "istio", "http_x_forwarded_for", |c| {
        format!(
            "[{}] \"GET / HTTP/1.1\" 200 - via_upstream - \"-\" 0 5 1 1 \"-\" \"curl\" \"id\" \"a:80\" \"10.44.1.27:80\" in|80|| 127.0.0.6:37 10.0.4.1:80 {}:4652 - default",
            c.iso(),
            c.ip
        )
    }),
];

#[test]
fn servers_that_log_fractions_of_a_second() {
    check(FRACTIONS, false);
}

#[test]
fn columns_that_a_file_names_itself() {
    for (heading, of) in [
        (
            "#Software: IIS\r\n#Fields: date time cs(User-Agent) c-ip\r\n",
            (|c: &LoggedCall| {
                format!(
                    "2025-11-20 10:00:{:02} \"Mozilla 5.0 (X11)\" {}\r\n",
                    c.second(),
                    c.ip
                )
            }) as fn(&LoggedCall) -> String,
        ),
        ("#Fields: date\ttime\tc-ip\n", |c| {
            format!("2025-11-20\t10:00:{:02}\t{}\n", c.second(), c.ip)
        }),
        ("#Fields: timestamp(ms) c-ip sc-status\n", |c| {
            format!("{}\t{}\t200\n", c.ms / 1_000 * 1_000, c.ip)
        }),
        ("#Fields: DateTime,Id,ClientIpAddress\r\n", |c| {
            format!("2025-11-20T10:00:{:02}Z,7,{}\r\n", c.second(), c.ip)
        }),
        ("#Fields: date-time c-ip\n", |c| {
            format!("2025-11-20T10:00:{:02}Z {}\n", c.second(), c.ip)
        }),
        ("#separator \\x09\n#fields\tts\tuid\tid.orig_h\n", |c| {
            format!("{}\tC\t{}\n", c.ms / 1_000, c.ip)
        }),
        ("Date,Host,network.client.ip\n", |c| {
            format!("2025-11-20T10:00:{:02}Z,web,{}\n", c.second(), c.ip)
        }),
        ("date;time;client_ip\n", |c| {
            format!("20.11.2025;10:00:{:02};{}\n", c.second(), c.ip)
        }),
    ] {
        let rows: String = (0..CALLS).map(|call| of(&LoggedCall::new(call))).collect();
        let recorded = read((heading.to_owned() + &rows).as_bytes(), &Wanted::default());
        let recorded = recorded.expect(heading);
        let expected = (0..CALLS).map(LoggedCall::new);
        let expected = expected.map(|call| (call.ms / 1_000 * 1_000_000, call.ip));
        assert_eq!(recorded.rows, expected.collect::<Vec<_>>(), "{heading}");
    }
}

#[test]
fn a_pattern_as_it_stands_in_a_configuration() {
    let line = "10.0.0.8 203.0.113.7 - [20/Nov/2025 10:00:00.250 -0500] \"GET / HTTP/1.1\" 200\n";
    for pattern in [
        r#"LogFormat "%h %{X-Real-IP}i %u [%{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t] \"%r\" %>s" real"#,
        "log_format  real  '$remote_addr $http_x_real_ip $remote_user '\n  '[$time_local] \"$request\" $status';",
    ] {
        let wanted = Wanted {
            form: Some(pattern.to_owned()),
            ..Wanted::default()
        };
        let is_apache = pattern.starts_with("LogFormat");
        let line = match is_apache {
            true => line.to_owned(),
            false => line.replace("2025 ", "2025:"),
        };
        let recorded = read(line.as_bytes(), &wanted).expect(pattern);
        let expected = (1_763_650_800_250_000, "203.0.113.7".to_owned());
        assert_eq!(recorded.rows, [expected], "{pattern}");
    }
}

#[test]
fn an_address_of_ipv6_is_one_client_whatever_its_port_is() {
    for (form, line) in [
        (
            "alb",
            "h2 2025-11-20T10:00:00.5Z app/lb/50 2001:db8::7:PORT 10.0.0.1:80 0.0\n",
        ),
        (
            "alb",
            "h2 2025-11-20T10:00:00.5Z app/lb/50 [2001:db8::7]:PORT 10.0.0.1:80 0.0\n",
        ),
        (
            "haproxy",
            "Nov 20 10:00:00 lb haproxy[9]: 2001:db8::7:PORT [20/Nov/2025:10:00:00.5] in\n",
        ),
    ] {
        let text: String = ["7", "80", "3317", "51034"]
            .map(|port| line.replace("PORT", port))
            .concat();
        let recorded = read(text.as_bytes(), &Wanted::default()).expect(form);
        assert_eq!(recorded.reading.form, form);
        assert!(
            recorded
                .rows
                .iter()
                .all(|(_, client)| client == "2001:db8::7"),
            "{recorded:?}"
        );
    }
}
