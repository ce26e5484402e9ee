//! Lines in named formats, and in others.

use super::*;

const DATE: &str = "[20/Feb/2016:05:00:45 +0000]";

fn hints<'w>(client: Option<&'w str>, clients: &'w Clients, instants: &'w Instants) -> Hints<'w> {
    Hints {
        client,
        clients,
        instants,
    }
}

/// How lines are read by a stated format, if no line is known.
fn read_by(text: &str, client: Option<&str>) -> Result<LineReading, String> {
    stated(
        text,
        std::iter::empty(),
        hints(client, &Clients::default(), &Instants::default()),
    )
}

/// The guessed format, and the clients that it finds.
fn reading_of(lines: &[String]) -> (String, Vec<String>) {
    let (clients, instants) = (Clients::default(), Instants::default());
    let read = guess(
        lines.iter().map(String::as_bytes),
        hints(None, &clients, &instants),
    )
    .expect("a form");
    let named = lines.iter().filter_map(|line| {
        let found = read.pattern.find(line.as_bytes()).ok()?;
        let client = read.pattern.client_of(&found, &clients);
        client.map(std::borrow::Cow::into_owned)
    });
    let named = named.collect();
    (read.name, named)
}

fn lines(of: impl Fn(u8) -> String) -> Vec<String> {
    (1..=20).map(of).collect()
}

/// Lines by form: `{n}` is the line's number and part of its client, `{rest}` the request in quotes and what follows.
const LINES: [(&str, &str); 13] = [
    ("combined", "203.0.113.{n} - bob {date} {rest}"),
    ("combined", "203.0.113.{n}:5{n} - - {date} {rest}"),
    ("combined", "[2001:db8::{n}]:5{n} - - {date} {rest}"),
    (
        "vhost_combined",
        "www.example.com:443 203.0.113.{n} - - {date} {rest}",
    ),
    ("vhost_combined", "10.0.0.5 203.0.113.{n} - - {date} {rest}"),
    (
        "forwarded_first",
        "203.0.113.{n}, 10.0.0.1 - - {date} {rest}",
    ),
    (
        "forwarded_first",
        "\"203.0.113.{n}, 10.0.0.1\" - - {date} {rest}",
    ),
    (
        "combined_forwarded",
        "10.0.0.5 - - {date} {rest} \"203.0.113.{n}\"",
    ),
    (
        "alb",
        "https 2018-07-02T22:23:00.186641Z app/a/5 203.0.113.{n}:2817 10.0.0.1:80 0.0",
    ),
    (
        "elb",
        "2018-07-02T22:23:00.186641Z lb 203.0.113.{n}:2817 10.0.0.1:80 0.0",
    ),
    (
        "haproxy",
        "Feb  6 12:14:14 lb haproxy[14389]: 203.0.113.{n}:33317 [06/Feb/2009:12:14:14.655] in",
    ),
    (
        "nginx_proxy_manager",
        "{date} - 200 200 - GET https a.example \"/\" [Client 203.0.113.{n}] [Length 1]",
    ),
    (
        "envoy",
        "[2016-04-15T20:17:00.310Z] \"GET / HTTP/2\" 204 - 154 0 226 100 \"203.0.113.{n}\" \"ua\"",
    ),
];

#[test]
fn the_client_is_found_wherever_a_form_has_it() {
    let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"curl \\\"7\\\"\"";
    for (number, (name, line)) in LINES.into_iter().enumerate() {
        let line = line.replace("{date}", DATE).replace("{rest}", rest);
        let of = |n: u8| line.replace("{n}", &n.to_string());
        let (reading_of, clients) = reading_of(&lines(of));
        assert_eq!(reading_of, name, "form {number}: {}", of(1));
        assert_eq!(clients.len(), 20, "form {number}");
        let expected = if line.contains("2001:db8") {
            "2001:db8::1"
        } else {
            "203.0.113.1"
        };
        assert_eq!(clients[0], expected, "form {number}");
    }
}

#[test]
fn names_that_are_no_addresses_are_clients_of_a_combined_log() {
    let (reading_of, clients) =
        reading_of(&lines(|n| format!("host-{n}.example - - {DATE} \"GET /\"")));
    assert_eq!(
        (reading_of.as_str(), clients[0].as_str()),
        ("combined", "host-1.example")
    );
}

#[test]
fn names_behind_a_virtual_host_are_clients() {
    let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"";
    let (form, clients) = reading_of(&lines(|n| {
        format!("www.example.com:80 host-{n}.example - - {DATE} {rest}")
    }));
    assert_eq!((&*form, &*clients[0]), ("vhost_combined", "host-1.example"));
    let (form, clients) = reading_of(&lines(|n| {
        format!("f3a{n} - - {DATE} {rest} 10.42.0.12:8080")
    }));
    assert_eq!((&*form, &*clients[0]), ("combined", "f3a1"));
}

#[test]
fn a_stated_field_is_the_address_where_a_form_has_one() {
    let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"";
    let (clients, instants) = (Clients::default(), Instants::default());
    for (field, expected) in [
        ("remote_addr", "10.0.0.5"),
        ("agent", "curl"),
        ("http_user_agent", "curl"),
    ] {
        let lines = lines(|n| format!("10.0.0.5 - - {DATE} {rest} \"203.0.113.{n}\""));
        let hints = hints(Some(field), &clients, &instants);
        let read = guess(lines.iter().map(String::as_bytes), hints);
        let read = read.expect(field);
        let found = read.pattern.find(lines[0].as_bytes()).expect(field);
        assert_eq!(read.pattern.clients(&found), (None, Some(expected)));
    }
}

#[test]
fn a_proxys_list_of_clients_counts_where_only_it_has_asked() {
    let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"check\"";
    let (form, clients) = reading_of(&lines(|_| format!("10.0.0.5 - - {DATE} {rest} \"-\"")));
    assert_eq!((&*form, &*clients[0]), ("combined_forwarded", "10.0.0.5"));
    // The last field is not a list of clients.
    let (form, _) = reading_of(&lines(|_| format!("10.0.0.5 - - {DATE} {rest} \"gzip\"")));
    assert_eq!(form, "combined");
}

#[test]
fn patterns_of_nginx_and_apache_are_read() {
    let line = format!(
        "a.example:80 10.0.0.5 - - {DATE} \"GET /\" 200 \"6.6.6.6, 203.0.113.9, 10.0.0.7\""
    );
    for pattern in [
        "%v:%p %h %l %u %t \"%r\" %>s \"%{X-Forwarded-For}i\"",
        "'$host:$server_port $remote_addr - $remote_user [$time_local] '\n  '\"$request\" $status \"$http_x_forwarded_for\"';",
    ] {
        let read = read_by(pattern, None).expect(pattern);
        let found = read.pattern.find(line.as_bytes()).expect(pattern);
        let client = read.pattern.client_of(&found, &Clients::default());
        assert_eq!(client.as_deref(), Some("203.0.113.9"), "{pattern}");
        let at = read.pattern.at(&found, &mut LastDate::default());
        assert_eq!(at.map(|at| at.as_micros()), Ok(1_455_944_445_000_000));
        let peer = read_by(
            pattern,
            Some(if pattern.contains('$') {
                "remote_addr"
            } else {
                "%h"
            }),
        );
        let peer = peer.expect("a field").pattern;
        let found = peer.find(line.as_bytes()).expect(pattern);
        assert_eq!(peer.clients(&found), (None, Some("10.0.0.5")));
    }
}

#[test]
fn any_field_of_a_combined_log_may_be_the_client() {
    let line = format!("10.0.0.5 - bob {DATE} \"GET /\" 200 5 \"-\" \"curl\" \"203.0.113.9\"");
    for (field, expected) in [
        ("remote_user", "bob"),
        ("http_user_agent", "curl"),
        ("http_x_forwarded_for", "203.0.113.9"),
    ] {
        let (clients, instants) = (Clients::default(), Instants::default());
        let hints = hints(Some(field), &clients, &instants);
        let read = stated("combined", std::iter::once(line.as_bytes()), hints).expect(field);
        let found = read.pattern.find(line.as_bytes()).expect(field);
        let client = read.pattern.client_of(&found, &clients);
        assert_eq!(client.as_deref(), Some(expected));
    }
}

#[test]
fn an_unknown_form_is_refused_with_the_known_ones() {
    let fault = |text: &str, client| read_by(text, client).map(|_| ()).expect_err("no form");
    assert!(fault("combind", None).contains("expected combined, common, vhost_combined"));
    assert!(fault("$remote_addr $status", None).contains("no instant"));
    assert!(fault("[$time_local] $status", None).contains("no client"));
    assert!(fault("$remote_addr$status $time_local", None).contains("are adjacent"));
    assert!(fault("combined", Some("user")).contains("no field user: expected one of remote_addr"));
}
