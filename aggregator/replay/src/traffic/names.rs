//! Names under which programs write the instant and the client of a request, if the user names no member or column.
//!
//! ```text
//! Client IP   client_ip   ClientIP   clientIp   client.ip     one name: clientip
//! ```
//!
//! Knows nothing of files. What stays true: of two names that a row has, the earlier one in its list is used.

use std::borrow::Cow;

/// Names of an instant, Tollgate's first; finer ones before those of whole seconds.
pub(super) const TIMES: &[&str] = &[
    "t",
    "ts",
    "startutc",
    "msec",
    "timeunix",
    "edgestarttimestamp",
    "requesttimeepoch",
    "timeepoch",
    "timeunixnano",
    "timestampns",
    "timestampus",
    "timestampms",
    "requestreceivedtimestamp",
    "starttimestamp",
    "starttime",
    "timestart",
    "startedat",
    "timestamp",
    "time",
    "timeiso8601",
    "timelocal",
    "datetime",
    "requesttime",
    "requestat",
    "createdat",
    "eventtime",
    "timegenerated",
    "timegeneratedutc",
    "eventtimestamp",
    "requesttimestamp",
    "requeststarttime",
    "reqtimesec",
    "receivedat",
    "occurredat",
    "loggedat",
    "logtime",
    "asctime",
    "created",
    "published",
];

/// The name of a date whose time of day is in another field.
pub(super) const DATE: &str = "date";

/// Names of fields in which proxies name their client: single clients first, then lists.
pub(super) const FORWARDED: &[&str] = &[
    "cfconnectingip",
    "httpcfconnectingip",
    "trueclientip",
    "httptrueclientip",
    "fastlyclientip",
    "httpfastlyclientip",
    "httpxforwardedfor",
    "xforwardedfor",
    "xff",
    "requestheadersxforwardedfor",
    "requestxforwardedfor",
    "forwardedfor",
    "httpforwarded",
    "forwarded",
    "xrealip",
    "httpxrealip",
    "requestxrealip",
    "fwd",
];

/// Whether the edge network sets this field of [`FORWARDED`], so that it is not a list.
pub(super) fn is_of_edge(name: &str) -> bool {
    const SET: [&str; 7] = [
        "cfconnectingip",
        "trueclientip",
        "xrealip",
        "realip",
        "xclientip",
        "fastlyclientip",
        "proxyprotocoladdr",
    ];
    SET.iter().any(|set| name.ends_with(set))
}

/// Names of a client, Tollgate's first.
pub(super) const CLIENTS: &[&str] = &[
    "domain",
    "requestclientip",
    "clientip",
    "clienthost",
    "remoteaddr",
    "requestremoteip",
    "remoteip",
    "requestremoteaddr",
    "downstreamremoteaddress",
    "downstreamdirectremoteaddress",
    "clientaddr",
    "clientaddress",
    "clientipaddress",
    "remoteaddress",
    "sourceip",
    "sourceipaddress",
    "sourceips",
    "sourceaddress",
    "callerip",
    "calleripaddress",
    "remotehost",
    "remoteipaddress",
    "peerip",
    "peeraddr",
    "peeraddress",
    "requestip",
    "userip",
    "cliip",
    "srcaddr",
    "idorigh",
    "cip",
    "client",
    "ip",
    "ipaddress",
    "srcip",
    "actorip",
    "remote",
    "tenant",
    "tenantid",
    "user",
    "userid",
    "customerid",
    "accountid",
    "apikey",
];

/// A name in plain spelling: without case, and without separators between words.
pub(super) fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// The most parts of a path that may end in a known name; those of programs have few.
const PARTS_MAX: usize = 16;

/// The plain names of a path with dots, as a whole and from each of its parts to the end; none if it has too many parts.
pub(super) fn ends(parts: &[&str]) -> Vec<String> {
    if PARTS_MAX < parts.len() {
        return Vec::new();
    }
    let ends = (0..parts.len()).map(|from| plain(&parts[from..].concat()));
    ends.collect()
}

/// A text in UTF-8; else decoded byte by byte as Windows' western encoding, so that different names stay different.
pub(super) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_too_many_parts_has_no_known_ends() {
        assert_eq!(
            ends(&["request", "client", "IP"]),
            ["requestclientip", "clientip", "ip"]
        );
        assert_eq!(ends(&["ip"; PARTS_MAX]).len(), PARTS_MAX);
        assert!(ends(&["ip"; PARTS_MAX + 1]).is_empty());
    }

    #[test]
    fn one_name_is_known_however_it_is_written() {
        for name in [
            "Client IP",
            "client_ip",
            "clientIp",
            " client.ip ",
            "CLIENT-IP",
        ] {
            assert!(CLIENTS.contains(&&*plain(name)), "{name}");
        }
        for lists in [TIMES, FORWARDED, CLIENTS] {
            assert!(lists.iter().all(|name| plain(name) == *name));
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_read_byte_by_byte() {
        assert_eq!(text_of("Größe".as_bytes()), "Größe");
        assert_eq!(text_of(b"Gr\xf6\xdfe"), "Größe");
    }
}
