//! The domain of a request, and its cost, by the web server's configuration.
//!
//! ```text
//! ?domain=header:x-tenant     the value of a header
//! ?domain=name:acme           this name
//! ?domain=ip                  the client's address: the last of X-Forwarded-For that is not a trusted proxy
//! ?cost=3, ?cost=header:x-cost
//! ```
//!
//! The query comes from the web server, so it is trusted; headers come from the client. If a domain or a cost is
//! taken from a header, the operator has to make sure that clients cannot set that header. What stays true: an
//! address that a client wrote into X-Forwarded-For itself is never taken.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::http::HeaderMap;
use ipnet::IpNet;
use tollgate_shared::networks::forwarded_client;

/// The header that lists the addresses for which a request was forwarded.
pub(crate) const FORWARDED: &str = "x-forwarded-for";

/// Where to find the domain of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainFrom {
    /// The value of this header.
    Header(String),
    /// This name.
    Name(String),
    /// The client's address.
    Address,
}

/// Where to find the cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// This many copies; 0 asks without counting.
    Copies(u32),
    /// The number in this header; 1 if the header is missing.
    Header(String),
}

impl DomainFrom {
    /// Parses a value of `domain` in a query.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("header", name)) if !name.is_empty() => Some(Self::Header(name.to_owned())),
            Some(("name", name)) if !name.is_empty() => Some(Self::Name(name.to_owned())),
            None if text == "ip" => Some(Self::Address),
            _ => None,
        }
    }

    /// The domain of a request with these headers; `None` if they do not contain one.
    pub fn find(&self, headers: &HeaderMap, trusted: &[IpNet]) -> Option<String> {
        let found = match self {
            Self::Name(name) => Some(name.clone()),
            Self::Header(name) => {
                let value = headers.get(name.as_str())?;
                // A client that writes other bytes is limited all the same.
                let text = String::from_utf8_lossy(value.as_bytes());
                Some(text.trim().to_owned())
            }
            Self::Address => client_address(headers, trusted).map(|address| address.to_string()),
        };
        found.filter(|domain| !domain.is_empty())
    }
}

impl Cost {
    /// Parses a value of `cost` in a query.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("header:") {
            Some(name) if !name.is_empty() => Some(Self::Header(name.to_owned())),
            Some(_) => None,
            None => number(text).map(Self::Copies),
        }
    }

    /// The cost of a request with these headers; `None` if the header is not a number.
    pub fn find(&self, headers: &HeaderMap) -> Option<u32> {
        match self {
            Self::Copies(copies) => Some(*copies),
            Self::Header(name) => match headers.get(name.as_str()) {
                None => Some(1),
                Some(value) => number(value.to_str().ok()?.trim()),
            },
        }
    }
}

/// Only digits, as documented.
fn number(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// The client's address, which the web server has appended to X-Forwarded-For.
fn client_address(headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let lists = headers.get_all(FORWARDED).iter();
    // What a client wrote in front may be any bytes; the rest comes from the web server.
    let lists: Vec<Cow<'_, str>> = lists
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    forwarded_client(lists.iter().map(|list| &**list), |address| {
        trusted.iter().any(|network| network.contains(&address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(lists: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for list in lists {
            headers.append(FORWARDED, list.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn a_forged_address_is_not_the_client() {
        let proxies: [IpNet; 1] = ["10.0.0.0/8".parse().expect("a network")];
        for (lists, client) in [
            (&["203.0.113.7"][..], Some("203.0.113.7")),
            // A client that wrote the first one.
            (&["8.8.8.8, 203.0.113.7"], Some("203.0.113.7")),
            (&["8.8.8.8", "203.0.113.7"], Some("203.0.113.7")),
            // Behind a trusted proxy, which states for whom it forwards.
            (&["8.8.8.8, 203.0.113.7, 10.1.2.3"], Some("203.0.113.7")),
            // All of them trusted: the first.
            (&["10.0.0.1, 10.0.0.2"], Some("10.0.0.1")),
            // The proxy got something that is not an address.
            (&["8.8.8.8, unknown, 10.0.0.2"], Some("10.0.0.2")),
            (&["203.0.113.7:4711"], Some("203.0.113.7")),
            (&["[2001:DB8::1]:4711"], Some("2001:db8::1")),
            (&["2001:db8:0:0::1"], Some("2001:db8::1")),
            (&["::ffff:203.0.113.7"], Some("203.0.113.7")),
            (&["unknown"], None),
            (&[], None),
        ] {
            let found = DomainFrom::Address.find(&forwarded(lists), &proxies);
            assert_eq!(found.as_deref(), client, "{lists:?}");
        }
        let found = DomainFrom::Address.find(&forwarded(&["203.0.113.7, 10.1.2.3"]), &[]);
        assert_eq!(found.as_deref(), Some("10.1.2.3"), "nobody is trusted");
    }

    #[test]
    fn header_bytes_that_are_not_text_do_not_hide_the_client() {
        let mut headers = HeaderMap::new();
        for value in [&b"\xff"[..], b"\xff, 203.0.113.7"] {
            headers.append(FORWARDED, value.try_into().expect("a value"));
        }
        let found = DomainFrom::Address.find(&headers, &[]);
        assert_eq!(found.as_deref(), Some("203.0.113.7"));
        let bytes = b"a\xffb"[..].try_into().expect("a value");
        headers.insert("x-tenant", bytes);
        let header = DomainFrom::Header("x-tenant".to_owned());
        assert_eq!(header.find(&headers, &[]).as_deref(), Some("a\u{FFFD}b"));
    }

    #[test]
    fn a_query_string_is_read_or_refused() {
        let header = DomainFrom::parse("header:x-tenant").expect("a header");
        let mut headers = HeaderMap::new();
        assert_eq!(header.find(&headers, &[]), None);
        headers.insert("x-tenant", " acme ".parse().expect("a value"));
        assert_eq!(header.find(&headers, &[]).as_deref(), Some("acme"));
        let name = DomainFrom::parse("name:a:b").expect("a name");
        assert_eq!(name.find(&headers, &[]).as_deref(), Some("a:b"));
        for bad in ["", "header:", "name:", "address", "ip:1", "x-tenant"] {
            assert_eq!(DomainFrom::parse(bad), None, "{bad}");
        }
        let cost = Cost::parse("header:x-cost").expect("a header");
        assert_eq!(cost.find(&headers), Some(1));
        headers.insert("x-cost", "17".parse().expect("a value"));
        assert_eq!(cost.find(&headers), Some(17));
        headers.insert("x-cost", "-1".parse().expect("a value"));
        assert_eq!(cost.find(&headers), None);
        assert_eq!(Cost::parse("3"), Some(Cost::Copies(3)));
        assert_eq!(Cost::parse("many"), None);
        assert_eq!(Cost::parse("+3"), None);
    }
}
