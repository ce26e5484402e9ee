//! Forms of access logs by name, and which of them a text has.
//!
//! ```text
//! www.example.com:443 203.0.113.7 - - [20/Feb/2016:05:00:45 +0000] "GET …      vhost_combined
//! 203.0.113.7, 10.1.2.3 - - [20/Feb/2016:05:00:45 +0000] "GET …                 forwarded_first
//! 10.1.2.3 - - [20/Feb/2016:05:00:45 +0000] "GET … "curl" "203.0.113.7"         combined_forwarded
//! ```
//!
//! Told by the first lines: in which form most of them have an address as their client, and the one that varies
//! where another is one balancer's. Knows nothing of files. What stays true: the same lines are told alike.

use std::collections::BTreeSet;

use tollgate_shared::time::Timestamp;

use super::clients::{Clients, is_address};
use super::dates::LastDate;
use super::discover::discover;
use super::pattern::Pattern;

/// A form that has a name.
struct Form {
    name: &'static str,
    pattern: &'static str,
}

/// The forms that are known, those that more people have first.
const FORMS: [Form; 19] = [
    form("combined", "$remote_addr $_[$time_local]"),
    form("common", "$remote_addr $_[$time_local]"),
    form("vhost_combined", "$host $remote_addr $_[$time_local]"),
    form(
        "forwarded_first",
        "$http_x_forwarded_for - $_ [$time_local]",
    ),
    form(
        "forwarded_first",
        "\"$http_x_forwarded_for\" $_[$time_local]",
    ),
    form(
        "combined_forwarded",
        "$remote_addr $_[$time_local] \"$request\" $status $bytes \"$referer\" \"$agent\" \"$http_x_forwarded_for\"",
    ),
    form(
        "combined_forwarded",
        "$remote_addr $_[$time_local] \"$request\" $status $bytes \"$referer\" \"$agent\" \"$_\" \"$http_x_forwarded_for\"",
    ),
    form(
        "combined_forwarded",
        "$remote_addr $_[$time_local] \"$request\" $status $bytes \"$referer\" \"$agent\" $_ \"$http_x_forwarded_for\"",
    ),
    form("alb", "$type $time_iso8601 $elb $remote_addr_port "),
    form("elb", "$time_iso8601 $elb $remote_addr_port "),
    form("haproxy", "$_]: $remote_addr_port [$time_local] "),
    form("haproxy", "$_ - - $remote_addr_port [$time_local] "),
    form(
        "haproxy_forwarded",
        "$_: $remote_addr_port [$time_local] $_ {$http_x_forwarded_for|",
    ),
    form(
        "haproxy_forwarded",
        "$_: $remote_addr_port [$time_local] $_ {$http_x_forwarded_for} ",
    ),
    form(
        "nginx_proxy_manager",
        "[$time_local] $_[Client $remote_addr]",
    ),
    form(
        "envoy",
        "[$start_time] \"$request\" $_ $_ $_ $_ $_ $_ \"$http_x_forwarded_for\"",
    ),
    form(
        "istio",
        "[$start_time] \"$request\" $_ $_ $_ $_ \"$_\" $_ $_ $_ $_ \"$http_x_forwarded_for\" \"$_\" \"$_\" \"$_\" \"$_\" $_ $_ $_ $remote_addr_port ",
    ),
    form("s3", "$owner $bucket [$time_local] $remote_addr "),
    form("traefik", "$remote_addr $_[$time_local]"),
];

const fn form(name: &'static str, pattern: &'static str) -> Form {
    Form { name, pattern }
}

/// How the lines of a text are read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    /// What the form is called.
    pub name: String,
    pub pattern: Pattern,
    /// Nobody said so.
    pub guessed: bool,
}

/// The form of a name, or of a pattern.
pub(super) fn stated(text: &str, client: Option<&str>) -> Result<Read, String> {
    let known = FORMS.iter().find(|form| form.name == text);
    let is_pattern = text.contains(['$', '%']);
    if known.is_none() && !is_pattern {
        let mut names: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
        names.dedup();
        return Err(format!(
            "{text:?}: expected {}, w3c, or a pattern in the words of nginx's log_format or Apache's LogFormat",
            names.join(", ")
        ));
    }
    Ok(Read {
        name: known.map_or("pattern", |form| form.name).to_owned(),
        pattern: Pattern::new(known.map_or(text, |form| form.pattern), client)
            .map_err(|fault| format!("{text:?}: {fault}"))?,
        guessed: false,
    })
}

/// What one form makes of the first lines.
pub(super) struct Fit {
    pub read: Read,
    /// Lines of which it has the instant, and an address as the client.
    pub lines: usize,
    /// Those of them whose client is no trusted proxy.
    pub foreign: usize,
    pub clients: BTreeSet<String>,
    /// The field is called as clients are.
    pub is_named: bool,
}

/// Whether requests were logged then: from 1990 on.
pub(super) fn is_plausible(at: Timestamp) -> bool {
    Timestamp::from_micros(631_152_000_000_000) <= at
}

/// The form that first lines have; combined where none of them has an address.
pub(super) fn guess<'a>(
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    client: Option<&str>,
    clients: &Clients,
) -> Result<Read, String> {
    let fit = |form: &Form, named: bool| -> Option<Fit> {
        let mut fit = Fit::new(Read {
            name: form.name.to_owned(),
            pattern: Pattern::new(form.pattern, client).ok()?,
            guessed: true,
        });
        for line in lines.clone() {
            fit.take(line, named, clients);
        }
        Some(fit)
    };
    let all = |named| -> Vec<Fit> { FORMS.iter().filter_map(|form| fit(form, named)).collect() };
    let mut fits = all(false);
    if client.is_some() && fits.iter().all(|fit| fit.lines == 0) {
        fits = all(true);
    }
    let most = fits.iter().map(|fit| fit.lines).max().unwrap_or(0);
    let count = lines.clone().count();
    if 2 * most <= count {
        let found = discover(lines.clone(), client, clients).filter(|fit| most < fit.lines);
        // Clients may be names and not addresses: of machines, or what hides an address.
        let of_names = |form: &&Form| matches!(form.name, "combined" | "vhost_combined");
        let by_name = FORMS.iter().filter(of_names);
        let by_name = by_name.filter_map(|form| fit(form, true)).filter(|fit| {
            let is_least = client.is_none() && most < fit.lines && count <= 2 * fit.lines;
            let varies =
                |found: &Fit| found.foreign == 0 && found.clients.len() < fit.clients.len();
            is_least && found.as_ref().is_none_or(varies)
        });
        // Of a virtual host there are few, and many ask it.
        let varied = by_name.rev().max_by_key(|fit| fit.clients.len());
        if let Some(fit) = varied.or(found) {
            return Ok(fit.read);
        }
    }
    let Some(first) = fits.iter().find(|fit| fit.lines == most && 0 < most) else {
        return match client {
            // It may be a field that only one of them has, and nothing fits that.
            Some(client) => stated(FORMS[0].pattern, Some(client)).map_err(|_| {
                format!("no field {client} in a form that is known: state one with --log-format")
            }),
            None => stated(FORMS[0].name, None).map(|read| Read {
                guessed: true,
                ..read
            }),
        };
    };
    Ok(better_than(first, &fits).read.clone())
}

/// Of the forms that fit nearly as many lines the one whose client is rather one; or the first.
fn better_than<'f>(first: &'f Fit, fits: &'f [Fit]) -> &'f Fit {
    let few = first.clients.len() <= 2 && 10 <= first.lines;
    let nearly = |fit: &&Fit| first.lines <= fit.lines.saturating_mul(10) / 9;
    let better = fits.iter().filter(nearly).filter(|fit| {
        let varies = few && 2 * first.clients.len() < fit.clients.len();
        // Another field says for whom a proxy asked, or will, where only the proxy's own checks stand so far.
        let of_proxies = first.foreign == 0 && fit.read.pattern.has_forwarded_and_peer();
        varies || of_proxies || first.foreign < fit.foreign.saturating_mul(9) / 10
    });
    let rank = |fit: &&Fit| {
        (
            fit.foreign,
            fit.clients.len(),
            fit.read.pattern.has_forwarded_and_peer(),
        )
    };
    better.max_by_key(rank).unwrap_or(first)
}

impl Fit {
    pub const fn new(read: Read) -> Self {
        Self {
            read,
            lines: 0,
            foreign: 0,
            clients: BTreeSet::new(),
            is_named: false,
        }
    }

    /// Counts a line, if it has what is wanted.
    pub fn take(&mut self, line: &[u8], stated: bool, clients: &Clients) {
        let pattern = &self.read.pattern;
        let Ok(found) = pattern.find(line) else {
            return;
        };
        match pattern.at(&found, &mut LastDate::default()) {
            Ok(at) if is_plausible(at) => {}
            Ok(_) | Err(_) => return,
        }
        let Some(client) = pattern.client_of(&found, clients) else {
            return;
        };
        if stated || is_address(&client) {
            self.lines += 1;
            self.foreign += usize::from(!clients.is_proxy(&client));
            self.clients.insert(client.into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "[20/Feb/2016:05:00:45 +0000]";

    /// The form that is told, and the clients that it has.
    fn told(lines: &[String]) -> (String, Vec<String>) {
        let clients = Clients::default();
        let read = guess(lines.iter().map(String::as_bytes), None, &clients).expect("a form");
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

    #[test]
    fn the_client_is_found_wherever_a_form_has_it() {
        let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"curl \\\"7\\\"\"";
        type Line = Box<dyn Fn(u8) -> String>;
        let forms: [(&str, Line); 13] = [
            (
                "combined",
                Box::new(move |n| format!("203.0.113.{n} - bob {DATE} {rest}")),
            ),
            (
                "combined",
                Box::new(move |n| format!("203.0.113.{n}:5{n} - - {DATE} {rest}")),
            ),
            (
                "combined",
                Box::new(move |n| format!("[2001:db8::{n}]:5{n} - - {DATE} {rest}")),
            ),
            (
                "vhost_combined",
                Box::new(move |n| format!("www.example.com:443 203.0.113.{n} - - {DATE} {rest}")),
            ),
            (
                "vhost_combined",
                Box::new(move |n| format!("10.0.0.5 203.0.113.{n} - - {DATE} {rest}")),
            ),
            (
                "forwarded_first",
                Box::new(move |n| format!("203.0.113.{n}, 10.0.0.1 - - {DATE} {rest}")),
            ),
            (
                "forwarded_first",
                Box::new(move |n| format!("\"203.0.113.{n}, 10.0.0.1\" - - {DATE} {rest}")),
            ),
            (
                "combined_forwarded",
                Box::new(move |n| format!("10.0.0.5 - - {DATE} {rest} \"203.0.113.{n}\"")),
            ),
            (
                "alb",
                Box::new(|n| {
                    format!(
                        "https 2018-07-02T22:23:00.186641Z app/a/5 203.0.113.{n}:2817 10.0.0.1:80 0.0"
                    )
                }),
            ),
            (
                "elb",
                Box::new(|n| {
                    format!("2018-07-02T22:23:00.186641Z lb 203.0.113.{n}:2817 10.0.0.1:80 0.0")
                }),
            ),
            (
                "haproxy",
                Box::new(|n| {
                    format!(
                        "Feb  6 12:14:14 lb haproxy[14389]: 203.0.113.{n}:33317 [06/Feb/2009:12:14:14.655] in"
                    )
                }),
            ),
            (
                "nginx_proxy_manager",
                Box::new(move |n| {
                    format!(
                        "{DATE} - 200 200 - GET https a.example \"/\" [Client 203.0.113.{n}] [Length 1]"
                    )
                }),
            ),
            (
                "envoy",
                Box::new(|n| {
                    format!(
                        "[2016-04-15T20:17:00.310Z] \"GET / HTTP/2\" 204 - 154 0 226 100 \"203.0.113.{n}\" \"ua\""
                    )
                }),
            ),
        ];
        for (number, (name, of)) in forms.iter().enumerate() {
            let (told, clients) = told(&lines(of));
            assert_eq!(told, *name, "form {number}: {}", of(1));
            assert_eq!(clients.len(), 20, "form {number}");
            let expected = if number == 2 {
                "2001:db8::1"
            } else {
                "203.0.113.1"
            };
            assert_eq!(clients[0], expected, "form {number}");
        }
    }

    #[test]
    fn names_that_are_no_addresses_are_clients_of_a_combined_log() {
        let (told, clients) = told(&lines(|n| format!("host-{n}.example - - {DATE} \"GET /\"")));
        assert_eq!(
            (told.as_str(), clients[0].as_str()),
            ("combined", "host-1.example")
        );
    }

    #[test]
    fn names_behind_a_virtual_host_and_names_that_hide_addresses_are_clients() {
        let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"";
        let (form, clients) = told(&lines(|n| {
            format!("www.example.com:80 host-{n}.example - - {DATE} {rest}")
        }));
        assert_eq!((&*form, &*clients[0]), ("vhost_combined", "host-1.example"));
        let (form, clients) = told(&lines(|n| {
            format!("f3a{n} - - {DATE} {rest} 10.42.0.12:8080")
        }));
        assert_eq!((&*form, &*clients[0]), ("combined", "f3a1"));
    }

    #[test]
    fn a_field_that_is_stated_is_the_address_where_one_form_has_it_there() {
        let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"";
        let clients = Clients::default();
        for (field, expected) in [("remote_addr", "10.0.0.5"), ("agent", "curl")] {
            let lines = lines(|n| format!("10.0.0.5 - - {DATE} {rest} \"203.0.113.{n}\""));
            let read = guess(lines.iter().map(String::as_bytes), Some(field), &clients);
            let read = read.expect(field);
            let found = read.pattern.find(lines[0].as_bytes()).expect(field);
            assert_eq!(read.pattern.clients(&found), (None, Some(expected)));
        }
    }

    #[test]
    fn where_only_a_proxy_has_asked_so_far_its_list_of_clients_is_heeded() {
        let rest = "\"GET / HTTP/1.1\" 200 5 \"-\" \"check\"";
        let (form, clients) = told(&lines(|_| format!("10.0.0.5 - - {DATE} {rest} \"-\"")));
        assert_eq!((&*form, &*clients[0]), ("combined_forwarded", "10.0.0.5"));
        // What stands there is no list of clients.
        let (form, _) = told(&lines(|_| format!("10.0.0.5 - - {DATE} {rest} \"gzip\"")));
        assert_eq!(form, "combined");
    }

    #[test]
    fn a_pattern_in_the_words_of_either_server_is_read() {
        let line = format!(
            "a.example:80 10.0.0.5 - - {DATE} \"GET /\" 200 \"6.6.6.6, 203.0.113.9, 10.0.0.7\""
        );
        for pattern in [
            "%v:%p %h %l %u %t \"%r\" %>s \"%{X-Forwarded-For}i\"",
            "'$host:$server_port $remote_addr - $remote_user [$time_local] '\n  '\"$request\" $status \"$http_x_forwarded_for\"';",
        ] {
            let read = stated(pattern, None).expect(pattern);
            let found = read.pattern.find(line.as_bytes()).expect(pattern);
            let client = read.pattern.client_of(&found, &Clients::default());
            assert_eq!(client.as_deref(), Some("203.0.113.9"), "{pattern}");
            let at = read.pattern.at(&found, &mut LastDate::default());
            assert_eq!(at.map(|at| at.as_micros()), Ok(1_455_944_445_000_000));
            let peer = stated(
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
    fn what_is_no_form_is_told_with_what_would_do() {
        let fault = |text: &str, client| stated(text, client).map(|_| ()).expect_err("no form");
        assert!(fault("combind", None).contains("expected combined, common, vhost_combined"));
        assert!(fault("$remote_addr $status", None).contains("no instant"));
        assert!(fault("[$time_local] $status", None).contains("no client"));
        assert!(fault("$remote_addr$status $time_local", None).contains("stand together"));
        assert!(
            fault("combined", Some("user")).contains("no field user: expected one of remote_addr")
        );
    }
}
